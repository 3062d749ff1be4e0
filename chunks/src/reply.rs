//! A reply's chunk lists, as the requester sees them (sections 3.4.6 and 4.3).

use smallvec::SmallVec;

use crate::{Chunks, Segment, WriteChunk};

/// A rule of the protocol that a decoded reply does not keep to. A requester never reports it to
/// the responder (section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyViolation {
    /// Responders never have a read list (section 4.3.1).
    #[error("reply with a read list")]
    ReadList,
    /// More or fewer write chunks than were offered.
    #[error("{returned} write chunks returned, {offered} offered")]
    WriteCount {
        /// Chunks in the call.
        offered: usize,
        /// Chunks in the reply.
        returned: usize,
    },
    /// A reply chunk where none was offered.
    #[error("reply chunk returned that was not offered")]
    ReplyChunkNotOffered,
    /// A chunk has more or fewer segments than were offered.
    #[error("{returned} segments returned, {offered} offered")]
    SegmentCount {
        /// Segments in the call.
        offered: usize,
        /// Segments in the reply.
        returned: usize,
    },
    /// A segment with another handle or offset than was offered.
    #[error("segment returned with another handle or offset")]
    OtherSegment,
    /// A segment with more bytes than were offered.
    #[error("{returned} bytes returned in a segment of {offered}")]
    SegmentTooLong {
        /// Bytes in the call.
        offered: u32,
        /// Bytes in the reply.
        returned: u32,
    },
    /// Data after a segment that was not filled: chunks are filled contiguously.
    #[error("data after a segment that was not filled")]
    Gap,
    /// RDMA_NOMSG, and nothing in the reply chunk.
    #[error("RDMA_NOMSG reply without a reply chunk in use")]
    NoPayload,
    /// RDMA_MSG, and data in the reply chunk as well.
    #[error("RDMA_MSG reply with a reply chunk in use")]
    TwoPayloads,
    /// RDMA_NOMSG with bytes after the header.
    #[error("{0} bytes follow an RDMA_NOMSG header")]
    PayloadAfterNoMsg(u64),
    /// A reply chunk without its round-up.
    #[error("reply chunk of {0} bytes, not a multiple of four")]
    UnpaddedPayload(u64),
}

/// What the chunks of a reply brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnedChunks {
    /// Bytes placed in each write chunk that was offered, in order.
    pub writes: SmallVec<[u64; 1]>,
    /// Bytes of payload in the reply chunk: RDMA_NOMSG. Nothing: the payload is inline.
    pub long: Option<u64>,
}

/// Checks the lists of a reply whose payload is in the reply chunk (`long`) or not, and whose
/// header `inline` bytes of payload follow, against the chunks that the call offered.
///
/// A write list or reply chunk that is left out altogether counts as unused: that cannot be
/// misunderstood, and some responders do so with replies that have no results.
///
/// # Errors
/// The first [`ReplyViolation`] found: the message must be discarded.
pub fn check_returned(
    chunks: &Chunks,
    long: bool,
    inline: u64,
    offered: &Chunks,
) -> Result<ReturnedChunks, ReplyViolation> {
    if !chunks.reads.is_empty() {
        return Err(ReplyViolation::ReadList);
    }
    let writes = check_write_list(&offered.writes, &chunks.writes)?;
    let reply = match (&offered.reply, &chunks.reply) {
        (_, None) => 0,
        (None, Some(_)) => return Err(ReplyViolation::ReplyChunkNotOffered),
        (Some(offered), Some(returned)) => check_chunk(offered, returned)?,
    };
    let long = match (long, reply) {
        (false, 0) => None,
        (false, _) => return Err(ReplyViolation::TwoPayloads),
        (true, 0) => return Err(ReplyViolation::NoPayload),
        (true, _) if inline > 0 => return Err(ReplyViolation::PayloadAfterNoMsg(inline)),
        (true, len) if len % 4 != 0 => return Err(ReplyViolation::UnpaddedPayload(len)),
        (true, len) => Some(len),
    };
    Ok(ReturnedChunks { writes, long })
}

/// Checks the write list of a reply against that of its call: bytes placed in each chunk, in order.
///
/// # Errors
/// [`ReplyViolation`].
pub fn check_write_list(
    offered: &[WriteChunk],
    returned: &[WriteChunk],
) -> Result<SmallVec<[u64; 1]>, ReplyViolation> {
    if returned.is_empty() {
        return Ok(offered.iter().map(|_| 0).collect());
    }
    if offered.len() != returned.len() {
        return Err(ReplyViolation::WriteCount {
            offered: offered.len(),
            returned: returned.len(),
        });
    }
    let pairs = offered.iter().zip(returned);
    pairs
        .map(|(offered, returned)| check_chunk(offered, returned))
        .collect()
}

/// Bytes in a returned chunk, whose segments must be those that were offered, filled one after the
/// other (section 3.4.6).
fn check_chunk(offered: &[Segment], returned: &[Segment]) -> Result<u64, ReplyViolation> {
    if offered.len() != returned.len() {
        return Err(ReplyViolation::SegmentCount {
            offered: offered.len(),
            returned: returned.len(),
        });
    }
    let (mut len, mut ended) = (0, false);
    for (offered, returned) in offered.iter().zip(returned) {
        if (offered.handle, offered.offset) != (returned.handle, returned.offset) {
            return Err(ReplyViolation::OtherSegment);
        }
        if returned.length > offered.length {
            return Err(ReplyViolation::SegmentTooLong {
                offered: offered.length,
                returned: returned.length,
            });
        }
        if ended && returned.length > 0 {
            return Err(ReplyViolation::Gap);
        }
        ended |= returned.length < offered.length;
        len += u64::from(returned.length);
    }
    Ok(len)
}
