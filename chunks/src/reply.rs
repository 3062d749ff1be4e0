//! The chunk lists of a reply, as the requester sees them (sections 3.4.6 and 4.3).

use smallvec::SmallVec;

use crate::{Chunks, Segment, WriteChunk};

/// A protocol rule that a decoded reply violates. A requester never reports it to the responder
/// (section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyViolation {
    /// The reply has a read list, which a responder must not send (section 4.3.1).
    #[error("reply with a read list")]
    ReadList,
    /// The number of write chunks differs from the number offered.
    #[error("{returned} write chunks returned, {offered} offered")]
    WriteCount {
        /// Chunks in the call.
        offered: usize,
        /// Chunks in the reply.
        returned: usize,
    },
    /// The reply has a reply chunk although the call offered none.
    #[error("reply chunk returned that was not offered")]
    ReplyChunkNotOffered,
    /// The number of segments in a chunk differs from the number offered.
    #[error("{returned} segments returned, {offered} offered")]
    SegmentCount {
        /// Segments in the call.
        offered: usize,
        /// Segments in the reply.
        returned: usize,
    },
    /// The handle or offset of a segment differs from the one offered.
    #[error("segment returned with another handle or offset")]
    OtherSegment,
    /// A segment is longer than the one offered.
    #[error("{returned} bytes returned in a segment of {offered}")]
    SegmentTooLong {
        /// Length in bytes of the segment in the call.
        offered: u32,
        /// Length in bytes of the segment in the reply.
        returned: u32,
    },
    /// Data follows a segment that was not filled; chunks must be filled contiguously.
    #[error("data after a segment that was not filled")]
    Gap,
    /// RDMA_NOMSG with an empty or missing reply chunk, so there is no RPC message.
    #[error("RDMA_NOMSG reply without a reply chunk in use")]
    NoPayload,
    /// RDMA_MSG with data in the reply chunk, so there are two RPC messages.
    #[error("RDMA_MSG reply with a reply chunk in use")]
    TwoPayloads,
    /// RDMA_NOMSG with payload bytes after the header.
    #[error("{0} bytes follow an RDMA_NOMSG header")]
    PayloadAfterNoMsg(u64),
    /// The length of the data in the reply chunk is not a multiple of four.
    #[error("reply chunk of {0} bytes, not a multiple of four")]
    UnpaddedPayload(u64),
}

/// The data that the responder placed in the chunks of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnedChunks {
    /// Bytes placed in each write chunk that was offered, in order.
    pub writes: SmallVec<[u64; 1]>,
    /// Bytes of payload in the reply chunk of an RDMA_NOMSG reply; `None` if the payload is inline.
    pub long: Option<u64>,
}

/// Checks the chunk lists of a reply against the chunks that the call offered. `long` says whether
/// the payload is in the reply chunk (RDMA_NOMSG), and `inline` is the number of payload bytes
/// after the header.
///
/// A write list or reply chunk that is missing altogether counts as unused. That is unambiguous,
/// and some responders omit them in replies without results.
///
/// # Errors
/// The first [`ReplyViolation`] found. The message must be discarded.
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

/// Checks the write list of a reply against that of its call, and returns the number of bytes
/// placed in each chunk, in order.
///
/// # Errors
/// The first [`ReplyViolation`] found.
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

/// Returns the number of bytes in a returned chunk. Its segments must be those that were offered,
/// filled one after the other (section 3.4.6).
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
