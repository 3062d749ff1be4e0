//! Direct I/O (`O_DIRECT`): data moves between the memory of messages and the storage without the
//! page cache.
//!
//! * A file has a second description, with `O_DIRECT`. The kernel accepts only aligned memory,
//!   lengths and offsets in it. What it accepts depends on the file (`STATX_DIOALIGN`, Linux 6.1);
//!   where the kernel does not say, pages are taken, which all file systems of this size of block
//!   accept.
//! * Of a WRITE, whole units go through the second description, from the memory in which they
//!   arrived if that is aligned, and otherwise from an aligned copy. What does not fill a unit, at
//!   the head and at the tail, goes through the page cache: only the kernel can change a part of a
//!   block without losing what somebody else writes to the rest of it meanwhile. A unit has at
//!   least a page, so that the two ways do not share pages within one WRITE. Head, units and tail
//!   are written in this order, so that a failure leaves a beginning of the data written.
//! * The kernel keeps the two ways coherent: before direct I/O, it writes back cached changes of
//!   the same range, and after a direct write it drops what the cache holds of that. So a program
//!   on the host, with or without `O_DIRECT`, reads what was written last. The exception is
//!   a program that has mapped the file (open(2)).
//! * A direct write may still be in the volatile cache of the device, and blocks and size of the
//!   file are not yet on stable storage. So WRITE and COMMIT sync as they do otherwise
//!   (`sync.rs`), by the first description: failures to write back are reported to that for the
//!   whole file.
//! * Direct writes of one file run at the same time, since each waits for the device
//!   (`Served::change_beside`).

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onc_rpc::Bulk;
use rdma::Pool;
use rustix::fs::OFlags;
use rustix::io::Errno;
use smallvec::SmallVec;

use super::content::write_all;
use super::direct_file::{Alignment, DirectFile};
use super::node::{Content, Node};
use super::volume::Volume;
use super::{Served, host};
use crate::fs::{DirectIoBytes, FsError, FsResult};

/// The maximum number of bytes that are copied into aligned memory at a time.
const COPIED_AT_ONCE: usize = 256 << 10;
/// The maximum memory for copies of all calls together, bytes.
const MOST_COPIES: usize = 64 << 20;
/// The maximum memory for copies that is kept for later ones, bytes.
const KEPT_COPIES: usize = 4 << 20;

/// The pieces of data that are written at once.
pub(super) type Pieces<'a> = SmallVec<[IoSlice<'a>; 18]>;

/// The state of direct I/O of an export.
pub(super) struct DirectIo {
    /// Memory for data that did not arrive aligned.
    copies: Pool,
    counts: Counts,
}

/// The counts in [`DirectIoBytes`].
#[derive(Default)]
struct Counts {
    written_in_place: AtomicU64,
    written_copied: AtomicU64,
    written_buffered: AtomicU64,
    read_direct: AtomicU64,
    read_buffered: AtomicU64,
}

/// Adds a number of bytes to a count.
fn add(count: &AtomicU64, bytes: usize) {
    count.fetch_add(bytes as u64, Ordering::Relaxed);
}

impl DirectIo {
    /// Creates the state of an export that nothing was read from or written to.
    pub(super) fn new() -> Self {
        Self {
            copies: Pool::keeping(MOST_COPIES, KEPT_COPIES),
            counts: Counts::default(),
        }
    }

    /// Returns the numbers of bytes by the way that they took.
    pub(super) fn bytes(&self) -> DirectIoBytes {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DirectIoBytes {
            written_in_place: of(&self.counts.written_in_place),
            written_copied: of(&self.counts.written_copied),
            written_buffered: of(&self.counts.written_buffered),
            read_direct: of(&self.counts.read_direct),
            read_buffered: of(&self.counts.read_buffered),
        }
    }
}

/// A part of a WRITE, as a range of its data.
enum Part {
    Buffered(Range<usize>),
    Direct(Range<usize>),
}

impl Served {
    /// Returns the description of a file for direct I/O, if the export has that and the file
    /// supports it. It is opened by the first call, and closed with `content`.
    pub(super) fn direct<'a>(&self, node: &Node, content: &'a Content) -> Option<&'a DirectFile> {
        self.direct_io.as_ref()?;
        let known = match content.direct.get() {
            Some(known) => known,
            None => {
                let opened = self.open_direct(node, content).ok()?;
                // Of two calls at the same time, one closes its own again.
                let _ = content.direct.set(opened);
                content.direct.get()?
            }
        };
        let usable = |file: &&DirectFile| !file.refused.load(Ordering::Relaxed);
        known.as_ref().filter(usable)
    }

    /// Opens a file for direct I/O, as its content was opened. Returns `None` if it does not support
    /// that, or cannot be opened again.
    ///
    /// # Errors
    /// A later attempt may succeed: for example, there are no descriptors now.
    fn open_direct(&self, node: &Node, content: &Content) -> FsResult<Option<DirectFile>> {
        let Some(alignment) = Alignment::of(&host::stat_alignment(node)?) else {
            node.volume
                .tell_not_direct(&self.files, "it does not support that for every file");
            return Ok(None);
        };
        let open = || {
            Ok(self
                .files
                .reopen(node.as_fd(), content.access() | OFlags::DIRECT)?)
        };
        let opened = open().or_else(|error| match error {
            FsError::Access => self.authority.as_server(open),
            other => Err(other),
        });
        match opened {
            Ok(fd) => {
                node.volume
                    .direct
                    .unit
                    .fetch_max(alignment.unit, Ordering::Relaxed);
                Ok(Some(DirectFile {
                    fd,
                    alignment,
                    refused: AtomicBool::new(false),
                }))
            }
            Err(FsError::Invalid | FsError::NotSupported) => {
                node.volume
                    .tell_not_direct(&self.files, "it refuses O_DIRECT");
                Ok(None)
            }
            // Its mode was changed since the content was opened, which its owner may still use.
            Err(FsError::Access) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes that the kernel refused I/O that is aligned as it wanted.
    fn refused(&self, node: &Node, file: &DirectFile) {
        file.refused.store(true, Ordering::Relaxed);
        let reason = "it refuses memory and offsets that are aligned as it asks for";
        node.volume.tell_not_direct(&self.files, reason);
    }

    /// Reads from a file into `buf`, directly if the file and the alignment of `buf` allow that.
    pub(super) fn read_by_either(
        &self,
        node: &Node,
        content: &Content,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<usize> {
        let Some(direct_io) = &self.direct_io else {
            return super::content::read_all(&content.fd, offset, buf);
        };
        let direct = self.direct(node, content);
        if let Some(direct) = direct.filter(|file| file.may_read(offset, buf)) {
            match direct.read(offset, buf) {
                Err(Errno::INVAL) => self.refused(node, direct),
                result => {
                    let count = result?;
                    add(&direct_io.counts.read_direct, count);
                    return Ok(count);
                }
            }
        }
        let count = super::content::read_all(&content.fd, offset, buf)?;
        add(&direct_io.counts.read_buffered, count);
        Ok(count)
    }

    /// Writes to a file, whole units directly if the file supports that. Writes as much as possible,
    /// and fails only if nothing could be written.
    pub(super) fn write_by_either(
        &self,
        node: &Node,
        content: &Content,
        offset: u64,
        data: &Bulk,
    ) -> FsResult<usize> {
        let Some(direct_io) = &self.direct_io else {
            return write_all(&content.fd, offset, &mut pieces(data, 0..data.len()));
        };
        let direct = self.direct(node, content);
        let parts = match direct {
            Some(direct) => parts(offset, data.len(), direct.alignment.unit),
            None => std::iter::once(Part::Buffered(0..data.len())).collect(),
        };
        let mut count = 0;
        for part in parts {
            let (Part::Buffered(range) | Part::Direct(range)) = &part;
            let (at, end) = (offset + range.start as u64, range.end);
            let mut pieces = pieces(data, range.clone());
            let written = match (direct, part) {
                (Some(direct), Part::Direct(_)) => {
                    self.write_units(direct_io, node, (content, direct), at, &mut pieces)
                }
                _ => direct_io.write_buffered(content, at, &mut pieces),
            };
            match written {
                Ok(n) => count += n,
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
            // The rest would leave a hole.
            if count < end {
                break;
            }
        }
        Ok(count)
    }

    /// Writes whole units: directly, from a copy if they are not aligned in memory. Through the page
    /// cache if the kernel does not take them, or if there is no memory for the copy.
    fn write_units(
        &self,
        direct_io: &DirectIo,
        node: &Node,
        (content, direct): (&Content, &DirectFile),
        offset: u64,
        pieces: &mut [IoSlice<'_>],
    ) -> FsResult<usize> {
        let written = match pieces.iter().all(|piece| direct.alignment.fits(piece)) {
            true => direct.write(offset, pieces).inspect(|&count| {
                add(&direct_io.counts.written_in_place, count);
            }),
            false => match direct_io.write_copied(direct, offset, pieces) {
                Some(written) => written,
                None => return direct_io.write_buffered(content, offset, pieces),
            },
        };
        match written {
            Err(Errno::INVAL) => {
                self.refused(node, direct);
                direct_io.write_buffered(content, offset, pieces)
            }
            written => Ok(written?),
        }
    }
}

impl DirectIo {
    /// Writes through the page cache.
    fn write_buffered(
        &self,
        content: &Content,
        offset: u64,
        pieces: &mut [IoSlice<'_>],
    ) -> FsResult<usize> {
        let count = write_all(&content.fd, offset, pieces)?;
        add(&self.counts.written_buffered, count);
        Ok(count)
    }

    /// Copies data into aligned memory and writes it from there. Returns `None` if there is no memory
    /// for that. The pieces together have whole units.
    fn write_copied(
        &self,
        direct: &DirectFile,
        offset: u64,
        pieces: &[IoSlice<'_>],
    ) -> Option<Result<usize, Errno>> {
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut copy = self.copies.alloc(left.min(COPIED_AT_ONCE)).ok()?;
        let mut source = pieces.iter().map(|piece| &**piece);
        let mut rest: &[u8] = &[];
        let mut count = 0;
        while left > 0 {
            let copy = &mut copy[..left.min(COPIED_AT_ONCE)];
            let mut filled = 0;
            while filled < copy.len() {
                if rest.is_empty() {
                    rest = source.next().unwrap_or_default();
                }
                let (now, later) = rest.split_at(rest.len().min(copy.len() - filled));
                copy[filled..filled + now.len()].copy_from_slice(now);
                (filled, rest) = (filled + now.len(), later);
            }
            match direct.write_one(offset + count as u64, copy) {
                Ok(n) => {
                    add(&self.counts.written_copied, n);
                    count += n;
                    if n < copy.len() {
                        break;
                    }
                    left -= n;
                }
                Err(_) if count > 0 => break,
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(count))
    }
}

impl Volume {
    /// Reports, once for each file system, that files are read and written through the page cache.
    fn tell_not_direct(&self, files: &host::OpenFiles, reason: &str) {
        if !self.direct.told.swap(true, Ordering::Relaxed) {
            let path = files.path(self.directory.as_fd()).unwrap_or_default();
            tracing::warn!(
                directory = %path.display(),
                "no direct I/O in the file system of this directory ({reason}): its files are read and \
                 written through the page cache"
            );
        }
    }
}

/// Divides a WRITE into what fills units of the file and what does not. Empty parts are left out.
fn parts(offset: u64, len: usize, unit: u32) -> SmallVec<[Part; 3]> {
    let unit = u64::from(unit);
    let end = offset + len as u64;
    let (first, last) = (offset.next_multiple_of(unit), end - end % unit);
    if first >= last {
        return std::iter::once(Part::Buffered(0..len)).collect();
    }
    // Both are within the data, whose length is a `usize`.
    let (first, last) = ((first - offset) as usize, (last - offset) as usize);
    let mut parts = SmallVec::new();
    if first > 0 {
        parts.push(Part::Buffered(0..first));
    }
    parts.push(Part::Direct(first..last));
    if last < len {
        parts.push(Part::Buffered(last..len));
    }
    parts
}

/// Returns the pieces of a range of the data.
pub(super) fn pieces(data: &Bulk, range: Range<usize>) -> Pieces<'_> {
    let mut begin = 0;
    let mut pieces = Pieces::new();
    for piece in data.pieces() {
        let end = begin + piece.len();
        let (from, to) = (range.start.max(begin), range.end.min(end));
        if from < to {
            pieces.push(IoSlice::new(&piece[from - begin..to - begin]));
        }
        begin = end;
    }
    pieces
}
