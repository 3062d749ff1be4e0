//! The memory that a connection's peer may access, and the check of every access.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use bytes::Bytes;

use super::random::Random;
use super::terminate::Code;
use rdma::{Region, RemoteSegment, Stag};

/// The reason for refusing an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The handle is unknown on this connection or no longer valid.
    Stag,
    /// The access exceeds the bounds of the region.
    Bounds,
    /// The region does not permit the operation.
    Rights,
    /// Offset plus length exceeds 2^64.
    Wrap,
}

impl Refused {
    /// Returns the error code for a Read Request (RFC 5040, figure 9).
    pub(super) const fn for_read(self) -> Code {
        match self {
            Self::Stag => Code::READ_STAG,
            Self::Bounds => Code::READ_BOUNDS,
            Self::Rights => Code::READ_RIGHTS,
            Self::Wrap => Code::READ_WRAP,
        }
    }

    /// Returns the error code for an RDMA Write (RFC 5041, section 7.2). DDP has no code for
    /// missing rights; a handle that cannot be written does not belong to a buffer "that allows
    /// Placement" (section 7.1).
    pub(super) const fn for_write(self) -> Code {
        match self {
            Self::Stag | Self::Rights => Code::TAGGED_STAG,
            Self::Bounds => Code::TAGGED_BOUNDS,
            Self::Wrap => Code::TAGGED_WRAP,
        }
    }
}

struct Entry {
    region: Region,
    /// Tagged offset of the region's first byte.
    base: u64,
    /// Tagged offset above which the peer has not written.
    touched: u64,
    /// False between invalidation and reclaim.
    valid: bool,
}

impl Entry {
    /// Returns the range of an access in the region.
    fn locate(&self, offset: u64, length: u64) -> Result<Range<usize>, Refused> {
        let end = offset.checked_add(length).ok_or(Refused::Wrap)?;
        let start = offset.checked_sub(self.base).ok_or(Refused::Bounds)?;
        let end = end.checked_sub(self.base).ok_or(Refused::Bounds)?;
        if end > self.region.len() as u64 {
            return Err(Refused::Bounds);
        }
        // Both are within the region, so they fit its index type.
        Ok(start as usize..end as usize)
    }
}

/// The reason why [`Regions::reclaim`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotReclaimed {
    Unknown,
    StillValid,
}

/// The registrations of one connection. A handle is valid on its own connection only and unknown on
/// others, so a peer cannot probe for handles of other connections.
#[derive(Default)]
pub(super) struct Regions(HashMap<u32, Entry>);

impl Regions {
    /// Registers memory with a random handle and a random first offset.
    pub(super) fn register(
        &mut self,
        random: &mut Random,
        region: Region,
    ) -> Result<RemoteSegment, (io::Error, Region)> {
        let Ok(length) = u32::try_from(region.len()) else {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "region of 4 GiB or more");
            return Err((error, region));
        };
        let drawn = random
            .base()
            .and_then(|base| Ok((self.unused(random)?, base)));
        let (stag, base) = match drawn {
            Ok(drawn) => drawn,
            Err(error) => return Err((error, region)),
        };
        let valid = true;
        self.0.insert(
            stag,
            Entry {
                region,
                base,
                touched: base,
                valid,
            },
        );
        Ok(RemoteSegment {
            stag: Stag(stag),
            length,
            offset: base,
        })
    }

    /// Returns a handle that no region has.
    fn unused(&self, random: &mut Random) -> io::Result<u32> {
        loop {
            let stag = random.handle()?;
            if !self.0.contains_key(&stag) {
                return Ok(stag);
            }
        }
    }

    fn valid(&self, stag: u32) -> Result<&Entry, Refused> {
        let entry = self.0.get(&stag).ok_or(Refused::Stag)?;
        if entry.valid {
            Ok(entry)
        } else {
            Err(Refused::Stag)
        }
    }

    /// Returns the bytes that the peer wants to read.
    pub(super) fn readable(&self, stag: u32, offset: u64, length: u32) -> Result<Bytes, Refused> {
        let entry = self.valid(stag)?;
        let Region::RemoteRead(bytes) = &entry.region else {
            return Err(Refused::Rights);
        };
        Ok(bytes.slice(entry.locate(offset, u64::from(length))?))
    }

    /// Checks whether the peer may write to a range.
    pub(super) fn check_write(&self, stag: u32, offset: u64, length: u64) -> Result<(), Refused> {
        let entry = self.valid(stag)?;
        if let Region::RemoteRead(_) = entry.region {
            return Err(Refused::Rights);
        }
        entry.locate(offset, length).map(drop)
    }

    /// Returns the memory that the peer writes.
    pub(super) fn writable(
        &mut self,
        stag: u32,
        offset: u64,
        length: u64,
    ) -> Result<&mut [u8], Refused> {
        let entry = self.0.get_mut(&stag).filter(|entry| entry.valid);
        let entry = entry.ok_or(Refused::Stag)?;
        let range = entry.locate(offset, length)?;
        let Region::RemoteWrite(buf) = &mut entry.region else {
            return Err(Refused::Rights);
        };
        Ok(&mut buf[range])
    }

    /// Returns the number of bytes from `offset` to the end of the region if the peer has written
    /// none of them, and zero otherwise.
    pub(super) fn untouched_at(&self, stag: u32, offset: u64) -> usize {
        let Ok(entry) = self.valid(stag) else {
            return 0;
        };
        match entry.locate(offset, 0) {
            Ok(range) if offset >= entry.touched => entry.region.len() - range.start,
            _ => 0,
        }
    }

    /// Records that the peer writes to a range.
    pub(super) fn touch(&mut self, stag: u32, offset: u64, length: u64) {
        if let Some(entry) = self.0.get_mut(&stag) {
            entry.touched = entry.touched.max(offset.saturating_add(length));
        }
    }

    /// Invalidates a handle. Doing so twice is not an error, because both peer and program may do
    /// it.
    pub(super) fn invalidate(&mut self, stag: u32) {
        if let Some(entry) = self.0.get_mut(&stag) {
            entry.valid = false;
        }
    }

    /// Returns whether the peer may still use the handle.
    pub(super) fn is_valid(&self, stag: u32) -> bool {
        self.valid(stag).is_ok()
    }

    /// Returns whether the handle belongs to this connection, valid or not.
    pub(super) fn is_known(&self, stag: u32) -> bool {
        self.0.contains_key(&stag)
    }

    /// Invalidates all handles.
    pub(super) fn invalidate_all(&mut self) {
        for entry in self.0.values_mut() {
            entry.valid = false;
        }
    }

    /// Removes memory whose handle is no longer valid.
    pub(super) fn reclaim(&mut self, stag: u32) -> Result<Region, NotReclaimed> {
        if self.is_valid(stag) {
            return Err(NotReclaimed::StillValid);
        }
        let entry = self.0.remove(&stag).ok_or(NotReclaimed::Unknown)?;
        Ok(entry.region)
    }
}
