//! Placement of results in the requester's memory by a responder (sections 3.4.6, 3.5.3 and 4.3).

use crate::{Segment, WriteChunk};

/// A result is longer than the chunk that the requester offered for it. The responder must answer
/// with ERR_CHUNK (section 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes do not fit a chunk of {capacity}")]
pub struct ChunkTooSmall {
    /// Number of bytes to place.
    pub needed: u64,
    /// Number of bytes offered.
    pub capacity: u64,
}

/// Returns the total length in bytes of a write chunk or reply chunk.
#[must_use]
pub fn chunk_len(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

/// Returns the chunk for the reply when `len` bytes are placed in `chunk`: its segments are filled
/// one after the other, and each `length` is the number of bytes to write to the segment. For a
/// write chunk `len` is the item's own length, because its round-up is never written (section
/// 3.4.6.2). For a reply chunk it is the length of the payload, a multiple of four.
///
/// # Errors
/// [`ChunkTooSmall`] if `chunk` is shorter than `len`; nothing may be written to it then.
pub fn fill(chunk: &[Segment], len: u64) -> Result<WriteChunk, ChunkTooSmall> {
    let capacity = chunk_len(chunk);
    if len > capacity {
        return Err(ChunkTooSmall {
            needed: len,
            capacity,
        });
    }
    let mut left = len;
    let place = |segment: &Segment| {
        let length = segment.length.min(u32::try_from(left).unwrap_or(u32::MAX));
        left -= u64::from(length);
        Segment { length, ..*segment }
    };
    Ok(chunk.iter().map(place).collect())
}

/// Returns the chunk for the reply when nothing is placed in `chunk`: the segments that were
/// offered, each with a length of zero (sections 4.3.2.2 and 4.3.3).
#[must_use]
pub fn unused(chunk: &[Segment]) -> WriteChunk {
    let empty = |segment: &Segment| Segment {
        length: 0,
        ..*segment
    };
    chunk.iter().map(empty).collect()
}
