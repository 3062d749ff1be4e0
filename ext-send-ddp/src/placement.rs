//! The places of a message's bulk items (section 7.3).

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use onc_rpc::put_words;
use rpcrdma_extension::layout::limits::MAX_SPAN;
use rpcrdma_extension::layout::{Frame, Spot};
use rpcrdma_extension::{BadItem, ItemEntry};
use rpcrdma_v2::{Malformed, Reader, Segment};
use smallvec::SmallVec;

use crate::kind;
use crate::limits::MAX_ITEMS;

/// `xmddp_loc`: the location of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// XMDTYPE_EXRW: the item must be fetched from this memory, or was written into it.
    Explicit(SmallVec<[Segment; 1]>),
    /// XMDTYPE_TBSN: the item is in the transmissions themselves (`xmdl_offset` and `xmdl_bsnum`).
    Placed(Spot),
    /// XMDTYPE_TOOSHORT: the item is in the payload stream, because it was shorter than the minimum
    /// in its direction. In replies only.
    TooShort,
    /// XMDTYPE_NOITEM: there is no item for the direction. In replies only.
    NoItem,
}

/// `xmddp_mitem`: a bulk item of a message; in a reply, also the outcome of a direction of the
/// call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedItem {
    /// `xmdmi_disp`: offset of the item's first byte in the whole stream, like the position of a
    /// read chunk.
    pub position: u32,
    /// `xmdmi_length`: length in bytes, without round-up.
    pub length: u32,
    /// `xmdmi_where`: the location of the item.
    pub location: Location,
}

/// The bulk items of a message. One is stored inline, as most messages have at most one and a `Vec` would cost an
/// allocation for each.
pub type Items = SmallVec<[PlacedItem; 1]>;

impl Location {
    /// Returns the encoded length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Explicit(segments) => 8 + SEGMENT_LEN * segments.len(),
            Self::Placed(spot) => 12 + 4 * spot.segments.len(),
            Self::TooShort | Self::NoItem => 4,
        }
    }

    fn encode_into(&self, out: &mut BytesMut) {
        match self {
            Self::Explicit(segments) => {
                out.put_u32(kind::EXRW);
                put_segments(out, segments);
            }
            Self::Placed(spot) => {
                // An item made by this side spans no more segments than the limit for received
                // items.
                let count = spot.segments.len() as u32;
                put_words(out, [kind::TBSN, spot.offset, count]);
                spot.segments
                    .iter()
                    .for_each(|&number| put_words(out, [number]));
            }
            Self::TooShort => put_words(out, [kind::TOOSHORT]),
            Self::NoItem => put_words(out, [kind::NOITEM]),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match from.u32()? {
            kind::EXRW => Ok(Self::Explicit(from.chunk()?)),
            kind::TBSN => {
                let offset = from.u32()?;
                let count = from.u32()? as usize;
                if count > MAX_SPAN {
                    return Err(Malformed::TooMany("buffer segments of an item"));
                }
                // The numbers must be there before memory is allocated for them.
                if from.left() / 4 < count {
                    return Err(Malformed::Truncated);
                }
                let mut segments = SmallVec::new();
                for _ in 0..count {
                    segments.push(from.u32()?);
                }
                Ok(Self::Placed(Spot { offset, segments }))
            }
            kind::TOOSHORT => Ok(Self::TooShort),
            kind::NOITEM => Ok(Self::NoItem),
            other => Err(Malformed::Enumeration("xmddp_type of a location", other)),
        }
    }
}

impl ItemEntry for PlacedItem {
    /// An item that stays in the payload stream takes nothing out of it.
    fn extent(&self) -> Option<(u32, u32)> {
        match self.location {
            Location::Explicit(_) | Location::Placed(_) => Some((self.position, self.length)),
            Location::TooShort | Location::NoItem => None,
        }
    }

    fn spot(&self, _: &Frame) -> Result<Option<Cow<'_, Spot>>, BadItem> {
        Ok(match &self.location {
            Location::Placed(spot) => Some(Cow::Borrowed(spot)),
            _ => None,
        })
    }
}

const SEGMENT_LEN: usize = 16;

pub(crate) fn put_segments(out: &mut BytesMut, segments: &[Segment]) {
    // The segments of a registration: nowhere near 2^32.
    out.put_u32(segments.len() as u32);
    for segment in segments {
        out.put_u32(segment.handle);
        out.put_u32(segment.length);
        out.put_u64(segment.offset);
    }
}

/// Returns the encoded length of `xmddp_grpinfo` in bytes.
#[must_use]
pub fn items_len(items: &[PlacedItem]) -> usize {
    let items = items.iter();
    4 + items
        .map(|item| 8 + item.location.encoded_len())
        .sum::<usize>()
}

/// Appends `xmddp_grpinfo`, all bulk items of a message.
pub fn put_items(out: &mut BytesMut, items: &[PlacedItem]) {
    put_words(out, [items.len() as u32]);
    for item in items {
        put_words(out, [item.position, item.length]);
        item.location.encode_into(out);
    }
}

/// Decodes `xmddp_grpinfo`.
///
/// # Errors
/// [`Malformed`] if the bytes do not match the XDR definition or exceed a limit.
pub fn get_items(from: &mut Reader<'_>) -> Result<Items, Malformed> {
    let count = from.u32()? as usize;
    if count > MAX_ITEMS {
        return Err(Malformed::TooMany("bulk items"));
    }
    let mut items = Items::new();
    for _ in 0..count {
        items.push(PlacedItem {
            position: from.u32()?,
            length: from.u32()?,
            location: Location::decode(from)?,
        });
    }
    Ok(items)
}
