//! How a responder fills a requester's memory (RFC 8166, sections 3.4.6, 3.5.3 and 4.3).

use crate::{Segment, WriteChunk};

/// A result is longer than the chunk that the requester offered for it. The answer is ERR_CHUNK
/// (section 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes do not fit a chunk of {capacity}")]
pub struct ChunkTooSmall {
    /// Bytes to place.
    pub needed: u64,
    /// Bytes that were offered.
    pub capacity: u64,
}

/// Bytes that a write chunk or reply chunk offers, or that it holds in a reply.
#[must_use]
pub fn chunk_len(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

/// The chunk to return when `len` bytes are placed in it: its segments filled one after the other,
/// each with the number of bytes to write to it in `length`. `len` is the item's own length: its
/// round-up is never written (section 3.4.6.2). For a reply chunk it is the length of the payload,
/// a multiple of four.
///
/// # Errors
/// The chunk is too small; nothing may be written to it then.
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

/// The chunk to return when nothing is placed in it: as it was offered, with empty segments
/// (sections 4.3.2.2 and 4.3.3).
#[must_use]
pub fn unused(chunk: &[Segment]) -> WriteChunk {
    let empty = |segment: &Segment| Segment {
        length: 0,
        ..*segment
    };
    chunk.iter().map(empty).collect()
}

/// Which results' items go into write chunks. The n-th item goes into the n-th chunk, until there
/// are no more of either; an item whose chunk is empty, without segments, goes inline (sections
/// 4.3.2.1 and 4.3.2.3).
///
/// Returns the write list for the reply, and for each item whether it is taken out of the payload.
///
/// # Errors
/// An item is longer than its chunk.
pub fn fill_write_list(
    offered: &[WriteChunk],
    items: impl IntoIterator<Item = u64>,
) -> Result<Placement, ChunkTooSmall> {
    let mut placement = Placement::default();
    let mut chunks = offered.iter();
    for len in items {
        match chunks.next() {
            Some(chunk) if !chunk.is_empty() => {
                placement.writes.push(fill(chunk, len)?);
                placement.reduced.push(true);
            }
            Some(_) => {
                placement.writes.push(WriteChunk::new());
                placement.reduced.push(false);
            }
            None => placement.reduced.push(false),
        }
    }
    placement.writes.extend(chunks.map(|chunk| unused(chunk)));
    Ok(placement)
}

/// What [`fill_write_list`] decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The write list to return.
    pub writes: smallvec::SmallVec<[WriteChunk; 1]>,
    /// For each item, whether it is in the write chunk of the same number rather than inline.
    pub reduced: smallvec::SmallVec<[bool; 2]>,
}

/// How a message goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RDMA_MSG: the payload, reduced or not, follows the header (sections 3.5.1 and 3.5.2).
    Inline,
    /// RDMA_NOMSG: the payload is in a position-zero read chunk, or in the reply chunk (section
    /// 3.5.3).
    Long,
}

/// The reply fits neither inline nor the reply chunk. The answer is ERR_CHUNK (section 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reply of {header} + {payload} bytes fits neither {inline} bytes inline nor {chunk:?}")]
pub struct ReplyTooLong {
    /// Transport header, bytes.
    pub header: u64,
    /// Reduced payload, bytes.
    pub payload: u64,
    /// Reply inline threshold, bytes.
    pub inline: u64,
    /// What the reply chunk offered, bytes, if there was one.
    pub chunk: Option<u64>,
}

/// The form of a call whose transport header of `header` bytes leaves `payload` bytes of reduced
/// payload (section 3.5).
#[must_use]
pub fn call_form(header: u64, payload: u64, inline_threshold: u32) -> Form {
    if header + payload <= u64::from(inline_threshold) {
        Form::Inline
    } else {
        Form::Long
    }
}

/// The form of a reply (sections 3.5.3 and 4.3.3): inline where it fits, in the reply chunk where
/// it does not.
///
/// # Errors
/// It fits neither.
pub fn reply_form(
    header: u64,
    payload: u64,
    inline_threshold: u32,
    reply_chunk: Option<&WriteChunk>,
) -> Result<Form, ReplyTooLong> {
    let inline = u64::from(inline_threshold);
    let chunk = reply_chunk.map(|chunk| chunk_len(chunk));
    if header + payload <= inline {
        Ok(Form::Inline)
    } else if header <= inline && chunk.is_some_and(|capacity| payload <= capacity) {
        Ok(Form::Long)
    } else {
        Err(ReplyTooLong {
            header,
            payload,
            inline,
            chunk,
        })
    }
}
