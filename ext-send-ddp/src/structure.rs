//! The encoding of the structure of a receive buffer (section 7.2).

use bytes::{BufMut, BytesMut};
use rpcrdma_extension::layout::limits::MAX_GROUPS;
use rpcrdma_extension::layout::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};
use rpcrdma_v2::{Malformed, Reader};
use smallvec::SmallVec;

/// Appends `xmrbs_buf`: a structure, with its length. The draft does not define what `xmrbuf_length`
/// counts; here it counts all segments, as section 8.3 adds them up.
pub fn put_structure(out: &mut BytesMut, structure: &BufferStructure) {
    out.put_u32(structure.len());
    out.put_u32(structure.groups().len() as u32);
    for SegmentGroup { count, segment } in structure.groups() {
        out.put_u32(*count);
        out.put_u32(segment.length);
        out.put_u32(segment.align);
        out.put_u32(segment.flags.bits());
    }
}

/// Decodes `xmrbs_buf`.
///
/// # Errors
/// [`Malformed`] if the bytes do not match the XDR definition or there are too many groups.
pub fn get_structure(from: &mut Reader<'_>) -> Result<BufferStructure, Malformed> {
    let length = from.u32()?;
    let count = from.u32()? as usize;
    if count > MAX_GROUPS {
        return Err(Malformed::TooMany("groups of buffer segments"));
    }
    let mut groups = SmallVec::<[SegmentGroup; 2]>::new();
    for _ in 0..count {
        groups.push(SegmentGroup {
            count: from.u32()?,
            segment: BufferSegment {
                length: from.u32()?,
                align: from.u32()?,
                flags: SegmentFlags::from_bits_retain(from.u32()?),
            },
        });
    }
    Ok(BufferStructure::with_length(length, groups))
}
