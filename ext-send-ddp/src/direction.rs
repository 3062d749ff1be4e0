//! A requester's directions for the bulk items of a reply (section 7.4).

use bytes::BytesMut;
use onc_rpc::put_words;
use rpcrdma_v2::{Malformed, Reader, WriteChunk};
use smallvec::SmallVec;

use crate::limits::{MAX_ITEMS, MAX_SETS};
use crate::placement::put_segments;
use crate::{Location, kind};

/// `xmddp_rsdloc`: the direction for an item of the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// XMDTYPE_EXRW: write it into this memory.
    Explicit(WriteChunk),
    /// XMDTYPE_TBSN: place it in the transmissions of the reply.
    Placed,
    /// XMDTYPE_CHOICE: write or place it, as the responder prefers.
    Choice(WriteChunk),
    /// XMDTYPE_BYSIZE: write or place it, depending on its length.
    BySize {
        /// `xmdrsdl_dsdov`, which the draft does not define. Taken here as the maximum length in
        /// bytes of an item to be placed in the transmissions; longer items are written.
        longest_placed: u32,
        /// The memory to write into.
        chunk: WriteChunk,
    },
}

impl Direction {
    /// Returns the memory that the direction offers.
    #[must_use]
    pub fn chunk(&self) -> Option<&WriteChunk> {
        match self {
            Self::Explicit(chunk) | Self::Choice(chunk) | Self::BySize { chunk, .. } => Some(chunk),
            Self::Placed => None,
        }
    }

    /// Returns whether the direction allows `result` for the item (table 2).
    #[must_use]
    pub fn allows(&self, result: &Location) -> bool {
        match (self, result) {
            (Self::Explicit(_), Location::Placed(_)) => false,
            (Self::Placed, Location::Explicit(_)) => false,
            (_, Location::TooShort | Location::NoItem) => true,
            (_, Location::Explicit(_) | Location::Placed(_)) => true,
        }
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let chunk = self.chunk().map_or(0, |chunk| 4 + 16 * chunk.len());
        match self {
            Self::BySize { .. } => 8 + chunk,
            _ => 4 + chunk,
        }
    }

    fn encode_into(&self, out: &mut BytesMut) {
        match self {
            Self::Explicit(chunk) => {
                put_words(out, [kind::EXRW]);
                put_segments(out, chunk);
            }
            Self::Placed => put_words(out, [kind::TBSN]),
            Self::Choice(chunk) => {
                put_words(out, [kind::CHOICE]);
                put_segments(out, chunk);
            }
            Self::BySize {
                longest_placed,
                chunk,
            } => {
                put_words(out, [kind::BYSIZE, *longest_placed]);
                put_segments(out, chunk);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match from.u32()? {
            kind::EXRW => Ok(Self::Explicit(from.chunk()?)),
            kind::TBSN => Ok(Self::Placed),
            kind::CHOICE => Ok(Self::Choice(from.chunk()?)),
            kind::BYSIZE => Ok(Self::BySize {
                longest_placed: from.u32()?,
                chunk: from.chunk()?,
            }),
            other => Err(Malformed::Enumeration("xmddp_type of a direction", other)),
        }
    }
}

/// `xmddp_rsditem`: the direction for one potential item of the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectedItem {
    /// `xmdrsdi_minlen`: minimum length in bytes; a shorter item stays in the payload stream.
    pub min_len: u32,
    /// `xmdrsdi_loc`: the direction for the item.
    pub to: Direction,
}

/// `xmddp_rsdset`: directions for the results of a part of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectedSet {
    /// `xmdrsdr_begin`: offset in the call's stream at which that part begins.
    pub begin: u32,
    /// `xmdrsdr_end`: offset at which it ends.
    pub end: u32,
    /// One direction for each potential item, in order.
    pub items: DirectedItems,
}

/// The directions of a set, in order. One is stored inline, as most sets have at most one.
pub type DirectedItems = SmallVec<[DirectedItem; 1]>;

/// The sets of directions of a call (`xmddp_rsdgroup`). One is stored inline, as few calls have more.
pub type DirectedSets = SmallVec<[DirectedSet; 1]>;

/// Returns the encoded length of `xmddp_rsdgroup` in bytes.
#[must_use]
pub fn sets_len(sets: &[DirectedSet]) -> usize {
    let item = |item: &DirectedItem| 4 + item.to.encoded_len();
    let set = |set: &DirectedSet| 12 + set.items.iter().map(item).sum::<usize>();
    4 + sets.iter().map(set).sum::<usize>()
}

/// Appends `xmddp_rsdgroup`, all directions of a call.
pub fn put_sets(out: &mut BytesMut, sets: &[DirectedSet]) {
    put_words(out, [sets.len() as u32]);
    for set in sets {
        put_words(out, [set.begin, set.end, set.items.len() as u32]);
        for item in &set.items {
            put_words(out, [item.min_len]);
            item.to.encode_into(out);
        }
    }
}

/// Decodes `xmddp_rsdgroup`. All sets together have at most [`MAX_ITEMS`] items.
///
/// # Errors
/// [`Malformed`] if the bytes do not match the XDR definition or exceed a limit.
pub fn get_sets(from: &mut Reader<'_>) -> Result<DirectedSets, Malformed> {
    let count = from.u32()? as usize;
    if count > MAX_SETS {
        return Err(Malformed::TooMany("sets of directions"));
    }
    let (mut sets, mut total) = (DirectedSets::new(), 0);
    for _ in 0..count {
        let (begin, end) = (from.u32()?, from.u32()?);
        let items = from.u32()? as usize;
        total += items.min(MAX_ITEMS + 1);
        if total > MAX_ITEMS {
            return Err(Malformed::TooMany("directions"));
        }
        let mut set = DirectedItems::new();
        for _ in 0..items {
            set.push(DirectedItem {
                min_len: from.u32()?,
                to: Direction::decode(from)?,
            });
        }
        let items = set;
        sets.push(DirectedSet { begin, end, items });
    }
    Ok(sets)
}

/// Checks that the ranges of all sets are disjoint and in strictly increasing order.
///
/// A range may begin where the previous one ends; an empty range is not in increasing order.
///
/// # Errors
/// [`Malformed::Rule`] if the check fails.
pub fn check_ranges(sets: &[DirectedSet]) -> Result<(), Malformed> {
    let mut from = 0;
    for set in sets {
        if set.begin < from || set.end <= set.begin {
            return Err(Malformed::Rule(
                "ranges of directions overlap, or are not in order",
            ));
        }
        from = set.end;
    }
    Ok(())
}
