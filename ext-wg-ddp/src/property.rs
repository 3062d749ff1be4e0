//! The properties of this extension (version-two-07, appendix B.3).

use bytes::{BufMut as _, Bytes, BytesMut};
use rpcrdma_chunks::{Malformed, Reader};
use rpcrdma_extension::layout::limits::MAX_GROUPS;
use rpcrdma_extension::layout::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};

/// The numbers of the properties, from the range for experiments.
pub mod property_id {
    /// The structure of every receive buffer of the end. Default: one segment, in which nothing can
    /// be placed.
    pub const STRUCTURE: u32 = 0xffff_ff01;
    /// Abilities of the end as a responder ([`super::Support`]). Default: none of it.
    pub const SUPPORT: u32 = 0xffff_ff02;
    /// The length in bytes from which on results are to be placed. Default: [`super::NO_RESULTS`].
    pub const SMALLEST_RESULT: u32 = 0xffff_ff03;
}

/// The value of [`property_id::SMALLEST_RESULT`] of an end that accepts no placed results.
pub const NO_RESULTS: u32 = u32::MAX;

bitflags::bitflags! {
    /// The abilities of a responder. Unnamed bits have no meaning.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Support: u32 {
        /// The end takes calls with placed items.
        const CALLS = 1;
        /// The end places results that are long enough.
        const RESULTS = 2;
        const _ = !0;
    }
}

/// Encodes the value of [`property_id::STRUCTURE`].
#[must_use]
pub fn structure_value(structure: &BufferStructure) -> Bytes {
    let mut out = BytesMut::new();
    // Made by this side, of few groups.
    out.put_u32(structure.groups().len() as u32);
    for SegmentGroup { count, segment } in structure.groups() {
        out.put_u32(*count);
        out.put_u32(segment.length);
        out.put_u32(segment.align);
        out.put_u32(segment.flags.bits());
    }
    out.freeze()
}

/// Decodes the value of [`property_id::STRUCTURE`].
///
/// # Errors
/// [`Malformed`]: the value does not match its XDR definition, or has too many groups.
pub fn structure_from(value: &[u8]) -> Result<BufferStructure, Malformed> {
    Reader::whole(value, |from| {
        let count = from.u32()? as usize;
        if count > MAX_GROUPS {
            return Err(Malformed::TooMany("groups of buffer segments"));
        }
        let group = |_| {
            Ok(SegmentGroup {
                count: from.u32()?,
                segment: BufferSegment {
                    length: from.u32()?,
                    align: from.u32()?,
                    flags: SegmentFlags::from_bits_retain(from.u32()?),
                },
            })
        };
        let groups: Vec<SegmentGroup> = (0..count).map(group).collect::<Result<_, _>>()?;
        Ok(BufferStructure::new(groups))
    })
}

/// Returns whether a value is the encoding of a structure. A structure with more than
/// [`MAX_GROUPS`] groups is valid, too; it is then treated as not announced.
pub(crate) fn is_structure(value: &[u8]) -> bool {
    const GROUP_LEN: u64 = 16;
    let count = value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    count.is_some_and(|count| value.len() as u64 == 4 + GROUP_LEN * u64::from(count))
}

/// Encodes the value of [`property_id::SUPPORT`].
#[must_use]
pub fn support_value(support: Support) -> Bytes {
    word(support.bits())
}

/// Decodes the value of [`property_id::SUPPORT`].
///
/// # Errors
/// [`Malformed`]: the value does not match its XDR definition.
pub fn support_from(value: &[u8]) -> Result<Support, Malformed> {
    Reader::whole(value, Reader::u32).map(Support::from_bits_retain)
}

/// Encodes the value of [`property_id::SMALLEST_RESULT`], a length in bytes.
#[must_use]
pub fn smallest_result_value(length: u32) -> Bytes {
    word(length)
}

/// Decodes the value of [`property_id::SMALLEST_RESULT`], a length in bytes.
///
/// # Errors
/// [`Malformed`]: the value does not match its XDR definition.
pub fn smallest_result_from(value: &[u8]) -> Result<u32, Malformed> {
    Reader::whole(value, Reader::u32)
}

fn word(value: u32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}
