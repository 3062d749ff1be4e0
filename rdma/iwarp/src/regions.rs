//! The memory that a connection's peer may access, and the check of every access.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::random::Random;
use super::terminate::Code;
use rdma::{IdMap, Region, RemoteSegment, Stag};

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
    /// Number of the region among those that the peer may write, in the order of registration.
    number: u64,
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
pub(super) struct Regions {
    /// By handle. The peer chooses no handle that is in here, so it cannot make the table slow.
    entries: IdMap<u32, Entry>,
    /// Handles of the last regions that the peer may write, valid or not, in the order of registration: at most
    /// [`MOST_ORDERED`], with [`NO_HANDLE`] in the place of each that is gone. The first is not gone.
    order: VecDeque<u32>,
    /// Number of regions registered so far that the peer may write, which is that of the last one in `order`.
    writable: u64,
}

/// A region that the peer may write.
pub(super) struct Writable<'a> {
    pub(super) stag: u32,
    /// Tagged offset of the region's first byte.
    pub(super) base: u64,
    /// Whether the peer has written nothing to it.
    pub(super) is_untouched: bool,
    pub(super) bytes: &'a mut [u8],
}

/// Maximum number of regions whose order is known. If one is registered for long while many others come and go, its place
/// is forgotten.
const MOST_ORDERED: usize = 1024;
/// Maximum number of regions that [`Regions::in_order`] returns.
const MOST_IN_ORDER: usize = 16;
/// A handle that no region gets.
const NO_HANDLE: u32 = 0;
/// Regions, in the order of registration. The list is moved by value, so only a few lie in itself: one call in flight has
/// one region, and with many calls, one allocation is for the data of all of them.
type InOrder<'a> = SmallVec<[Writable<'a>; 4]>;

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
        if let Region::RemoteWrite(_) = region {
            self.writable += 1;
            self.order.push_back(stag);
            if self.order.len() > MOST_ORDERED {
                self.order.pop_front();
                self.forget_gone();
            }
        }
        self.entries.insert(
            stag,
            Entry {
                region,
                base,
                touched: base,
                number: self.writable,
                valid,
            },
        );
        Ok(RemoteSegment {
            stag: Stag(stag),
            length,
            offset: base,
        })
    }

    /// Returns the index in `order` of the region with this number, if it was not forgotten.
    fn place_of(&self, number: u64) -> Option<usize> {
        let forgotten = self.writable - self.order.len() as u64;
        usize::try_from(number.checked_sub(forgotten + 1)?).ok()
    }

    /// Removes the places of regions that are gone from the front of `order`.
    fn forget_gone(&mut self) {
        while self.order.front() == Some(&NO_HANDLE) {
            self.order.pop_front();
        }
    }

    /// Returns a handle that no region has.
    fn unused(&self, random: &mut Random) -> io::Result<u32> {
        loop {
            let stag = random.handle()?;
            if stag != NO_HANDLE && !self.entries.contains_key(&stag) {
                return Ok(stag);
            }
        }
    }

    fn valid(&self, stag: u32) -> Result<&Entry, Refused> {
        let entry = self.entries.get(&stag).ok_or(Refused::Stag)?;
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
        let entry = self.entries.get_mut(&stag).filter(|entry| entry.valid);
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

    /// Records that the peer writes to a range. If that is the beginning of a region to which it had written nothing,
    /// returns the number of the region, in the order of registration, and its length.
    pub(super) fn touch(&mut self, stag: u32, offset: u64, length: u64) -> Option<(u64, usize)> {
        let entry = self.entries.get_mut(&stag)?;
        let begins = entry.touched == entry.base && offset == entry.base;
        entry.touched = entry.touched.max(offset.saturating_add(length));
        begins.then_some((entry.number, entry.region.len()))
    }

    /// Returns the valid regions that the peer may write, in the order of registration from the one with this number on:
    /// at most `most`, and none behind a gap in this order.
    pub(super) fn in_order(&mut self, first: u64, most: usize) -> InOrder<'_> {
        let most = most.min(MOST_IN_ORDER);
        let from = self.place_of(first).unwrap_or(self.order.len());
        let stags = self.order.iter().skip(from).take(most).copied();
        let stags = stags.take_while(|stag| *stag != NO_HANDLE);
        let stags: SmallVec<[u32; MOST_IN_ORDER]> = stags.collect();
        match stags.len() {
            0..=1 => self.valid_of::<1>(&stags),
            2..=4 => self.valid_of::<4>(&stags),
            _ => self.valid_of::<MOST_IN_ORDER>(&stags),
        }
    }

    /// Returns the regions with these handles, of which there are at most `N` and no two are the same, up to the first
    /// that is not valid.
    fn valid_of<const N: usize>(&mut self, stags: &[u32]) -> InOrder<'_> {
        let mut keys = [NO_HANDLE; N];
        for (key, stag) in keys.iter_mut().zip(stags) {
            *key = *stag;
        }
        let entries = self.entries.get_disjoint_mut(keys.each_ref());
        let regions = entries.into_iter().zip(stags).map_while(|(entry, &stag)| {
            let entry = entry.filter(|entry| entry.valid)?;
            let is_untouched = entry.touched == entry.base;
            match &mut entry.region {
                Region::RemoteWrite(buf) => Some(Writable {
                    stag,
                    base: entry.base,
                    is_untouched,
                    bytes: &mut buf[..],
                }),
                Region::RemoteRead(_) => None,
            }
        });
        regions.collect()
    }

    /// Returns the memory of a part of a region that bytes were read ahead into. The handle may have become invalid
    /// since.
    pub(super) fn read_ahead(&mut self, stag: u32, offset: u64, length: u64) -> Option<&mut [u8]> {
        let entry = self.entries.get_mut(&stag)?;
        let range = entry.locate(offset, length).ok()?;
        match &mut entry.region {
            Region::RemoteWrite(buf) => buf.get_mut(range),
            Region::RemoteRead(_) => None,
        }
    }

    /// Invalidates a handle. Doing so twice is not an error, because both peer and program may do
    /// it.
    pub(super) fn invalidate(&mut self, stag: u32) {
        if let Some(entry) = self.entries.get_mut(&stag) {
            entry.valid = false;
        }
    }

    /// Returns whether the peer may still use the handle.
    pub(super) fn is_valid(&self, stag: u32) -> bool {
        self.valid(stag).is_ok()
    }

    /// Returns whether the handle belongs to this connection, valid or not.
    pub(super) fn is_known(&self, stag: u32) -> bool {
        self.entries.contains_key(&stag)
    }

    /// Invalidates all handles.
    pub(super) fn invalidate_all(&mut self) {
        for entry in self.entries.values_mut() {
            entry.valid = false;
        }
    }

    /// Removes memory whose handle is no longer valid.
    pub(super) fn reclaim(&mut self, stag: u32) -> Result<Region, NotReclaimed> {
        if self.is_valid(stag) {
            return Err(NotReclaimed::StillValid);
        }
        let entry = self.entries.remove(&stag).ok_or(NotReclaimed::Unknown)?;
        if let Region::RemoteWrite(_) = entry.region
            && let Some(at) = self.place_of(entry.number)
            && let Some(place) = self.order.get_mut(at)
        {
            *place = NO_HANDLE;
            self.forget_gone();
        }
        Ok(entry.region)
    }
}

#[cfg(test)]
mod tests {
    use rdma::Pool;

    use super::*;

    #[test]
    fn regions_are_found_in_the_order_of_registration() {
        let pool = Pool::new(1 << 20);
        let mut random = Random::new();
        let mut regions = Regions::default();
        let mut register = |regions: &mut Regions, writable: bool| {
            let buf = pool.alloc(8).unwrap();
            let region = match writable {
                true => Region::RemoteWrite(buf),
                false => Region::RemoteRead(buf.freeze()),
            };
            let registered = regions.register(&mut random, region);
            registered.map_err(|(error, _)| error).unwrap().stag.0
        };
        let mut stags = Vec::new();
        for _ in 0..100 {
            register(&mut regions, false);
            stags.push(register(&mut regions, true));
        }
        let found = |regions: &mut Regions, first, most| -> Vec<u32> {
            let found = regions.in_order(first, most);
            found.iter().map(|region| region.stag).collect()
        };
        for most in [0, 1, 2, 4, 5, 16] {
            assert_eq!(found(&mut regions, 11, most), stags[10..10 + most]);
        }
        assert_eq!(found(&mut regions, 11, 99), stags[10..26]);
        assert_eq!(found(&mut regions, 98, 16), stags[97..]);
        assert_eq!(found(&mut regions, 101, 16), []);
        // An invalid region ends them, and so does one that is gone.
        regions.invalidate(stags[14]);
        assert_eq!(found(&mut regions, 11, 16), stags[10..14]);
        assert!(regions.reclaim(stags[14]).is_ok());
        assert_eq!(found(&mut regions, 11, 16), stags[10..14]);
        assert_eq!(found(&mut regions, 15, 16), []);
        regions.invalidate_all();
        for stag in stags {
            let _ = regions.reclaim(stag);
        }
        assert!(regions.order.is_empty());
    }

    #[test]
    fn the_order_of_many_regions_takes_no_more_memory_beside_one_that_stays() {
        let pool = Pool::new(1 << 20);
        let mut random = Random::new();
        let mut regions = Regions::default();
        let mut register = |regions: &mut Regions| {
            let region = Region::RemoteWrite(pool.alloc(8).unwrap());
            let registered = regions.register(&mut random, region);
            registered.map_err(|(error, _)| error).unwrap().stag.0
        };
        let stays = register(&mut regions);
        for number in 2..3 * MOST_ORDERED as u64 {
            let stag = register(&mut regions);
            let found = |regions: &mut Regions, first| -> Vec<u32> {
                let found = regions.in_order(first, 16);
                found.iter().map(|region| region.stag).collect()
            };
            assert_eq!(found(&mut regions, number), [stag]);
            let from_first = match number {
                2 => vec![stays, stag],
                _ if number <= MOST_ORDERED as u64 => vec![stays],
                _ => Vec::new(),
            };
            assert_eq!(found(&mut regions, 1), from_first);
            regions.invalidate(stag);
            assert!(regions.reclaim(stag).is_ok());
            assert_eq!(found(&mut regions, number), []);
            assert!(regions.order.len() <= MOST_ORDERED);
        }
        assert!(regions.order.is_empty(), "all others are gone");
        regions.invalidate(stays);
        assert!(regions.reclaim(stays).is_ok());
        assert!(regions.entries.is_empty());
    }
}
