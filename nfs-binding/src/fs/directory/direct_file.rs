//! Files that are open for direct I/O (`O_DIRECT`): what the kernel takes, and system calls.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rdma::ALIGNMENT;
use rustix::fs::{Statx, StatxFlags};
use rustix::io::{Errno, pread, pwrite, pwritev};

use super::host::MAX_PIECES;

/// The smallest unit of direct I/O, bytes: a page. Smaller ones would share pages, and blocks of
/// most file systems, with buffered I/O, for which the kernel lets writes wait for one another.
pub(super) const LEAST_UNIT: u32 = 4096;
/// The largest unit, bytes. Files that need a larger one are read and written through the page
/// cache.
pub(super) const MOST_UNIT: u32 = 64 << 10;

/// The state of direct I/O in a file system.
#[derive(Debug)]
pub(super) struct DirectVolume {
    /// The largest unit of the files that were opened so far.
    pub(super) unit: AtomicU32,
    /// Whether it was reported that files are not read and written directly.
    pub(super) told: AtomicBool,
}

impl DirectVolume {
    /// Creates the state of a file system in which no file was opened.
    pub(super) fn new() -> Self {
        Self {
            unit: AtomicU32::new(LEAST_UNIT),
            told: AtomicBool::new(false),
        }
    }

    /// Returns the unit of READs that are done directly.
    pub(super) fn unit(&self) -> u32 {
        self.unit.load(Ordering::Relaxed)
    }
}

/// The alignment that the kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Addresses are multiples of this.
    memory: usize,
    /// Lengths of pieces, and offsets in the file, are multiples of this.
    block: usize,
    /// Offsets and lengths of direct I/O are multiples of this, which is itself one of `block`.
    pub(super) unit: u32,
}

impl Alignment {
    /// Returns the alignment for a file with these metadata, which were read with
    /// [`StatxFlags::DIOALIGN`]. `None` if it does not support direct I/O, or not with memory of a
    /// pool.
    pub(super) fn of(stat: &Statx) -> Option<Self> {
        let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
        let (memory, block) = match known {
            true => (stat.stx_dio_mem_align, stat.stx_dio_offset_align),
            false => (LEAST_UNIT, LEAST_UNIT),
        };
        let usable = memory.is_power_of_two()
            && memory as usize <= ALIGNMENT
            && block.is_power_of_two()
            && block <= MOST_UNIT;
        usable.then(|| Self {
            memory: memory as usize,
            block: block as usize,
            unit: block.max(LEAST_UNIT),
        })
    }

    /// Returns whether the kernel takes this piece of memory.
    pub(super) fn fits(self, piece: &[u8]) -> bool {
        piece.as_ptr().addr().is_multiple_of(self.memory) && piece.len().is_multiple_of(self.block)
    }
}

/// The description of a file with `O_DIRECT`.
pub(super) struct DirectFile {
    pub(super) fd: OwnedFd,
    pub(super) alignment: Alignment,
    /// Whether the kernel has refused I/O with the alignment that it asked for.
    pub(super) refused: AtomicBool,
}

impl DirectFile {
    /// Returns whether `buf` can be read into directly, from `offset`.
    pub(super) fn may_read(&self, offset: u64, buf: &[u8]) -> bool {
        let unit = self.alignment.unit;
        offset.is_multiple_of(unit.into())
            && buf.len().is_multiple_of(unit as usize)
            && self.alignment.fits(buf)
    }

    /// Reads up to the end of the file, or until `buf` is full.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut count = 0;
        // After a part of a block there is only the end of the file.
        while count < buf.len() && self.alignment.fits(&buf[count..]) {
            match pread(&self.fd, &mut buf[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(n) => count += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Writes as much as possible from where it is. The pieces must fit. Fails only if nothing
    /// could be written.
    pub(super) fn write(
        &self,
        offset: u64,
        mut pieces: &mut [IoSlice<'_>],
    ) -> Result<usize, Errno> {
        let mut count = 0;
        // After a part of a block, the kernel would not take the rest.
        while !pieces.is_empty() && self.alignment.fits(&pieces[0]) {
            let most = pieces.len().min(MAX_PIECES);
            match pwritev(&self.fd, &pieces[..most], offset + count as u64) {
                Ok(0) => break,
                Ok(n) => {
                    count += n;
                    IoSlice::advance_slices(&mut pieces, n);
                }
                Err(Errno::INTR) => {}
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Writes as much as possible of `data`, which must fit. Fails only if nothing could be
    /// written.
    pub(super) fn write_one(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let mut count = 0;
        while count < data.len() && self.alignment.fits(&data[count..]) {
            match pwrite(&self.fd, &data[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(n) => count += n,
                Err(Errno::INTR) => {}
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}
