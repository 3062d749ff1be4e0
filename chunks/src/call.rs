//! The chunk lists of a call, as the responder sees them (sections 3.4.5, 3.5.3 and 4.3).

use onc_rpc::{Message, padded, peek_xid};
use smallvec::SmallVec;

use crate::{Chunks, ReadSegment, Segment, WriteChunk};

/// A protocol rule that a decoded call violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The message is an RDMA_ERROR, which a requester must not send.
    #[error("RDMA_ERROR from a requester")]
    ErrorProcedure,
    /// The XID of the RPC message is missing or differs from the one in the transport header.
    #[error("XID {header:#010x} in the header, {payload:#010x?} in the RPC message")]
    Xid {
        /// XID in the transport header.
        header: u32,
        /// XID in the RPC message.
        payload: Option<u32>,
    },
    /// The position of a read chunk is not a multiple of four.
    #[error("read chunk at position {0}, not a multiple of four")]
    UnalignedPosition(u32),
    /// RDMA_NOMSG without a position-zero read chunk, so there is no RPC message.
    #[error("RDMA_NOMSG call without a position-zero read chunk")]
    NoPayload,
    /// RDMA_MSG with a position-zero read chunk, so there are two RPC messages.
    #[error("RDMA_MSG call with a position-zero read chunk")]
    TwoPayloads,
    /// RDMA_NOMSG with payload bytes after the header.
    #[error("{0} bytes follow an RDMA_NOMSG header")]
    PayloadAfterNoMsg(u64),
    /// The length of a position-zero read chunk is not a multiple of four.
    #[error("position-zero read chunk of {0} bytes, not a multiple of four")]
    UnpaddedPayload(u64),
    /// A segment runs past the end of the 64-bit address space.
    #[error("segment of {} bytes at offset {:#x} exceeds the 64-bit address space", .0.length, .0.offset)]
    SegmentWraps(Segment),
    /// A read chunk begins before the previous item ends.
    #[error("read chunk at position {0} overlaps the one before it")]
    Overlap(u32),
    /// The position of a read chunk is beyond the end of the payload.
    #[error("read chunk at position {0} is beyond the payload")]
    BeyondPayload(u32),
    /// The whole RPC message would be longer than the responder allows.
    #[error("call of {len} bytes, where {max} are allowed")]
    TooLong {
        /// Length of the RPC message in bytes, items included.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
}

/// A read chunk: segments with the same position, in the order in which their contents are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadChunk {
    /// Position in the unreduced payload stream; zero if the chunk is itself the payload stream.
    pub position: u32,
    /// Total length of the segments in bytes. Includes the item's round-up if the requester sends
    /// it.
    pub length: u32,
    /// The segments. Empty ones are left out, as there is nothing to read from them.
    pub segments: SmallVec<[Segment; 1]>,
}

/// The chunks of a call, checked against every rule that can be checked before the first RDMA Read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallChunks {
    /// The position-zero read chunk: the payload of an RDMA_NOMSG call.
    pub payload: Option<ReadChunk>,
    /// Read chunks that hold bulk items, by ascending position.
    pub items: Vec<ReadChunk>,
    /// Write chunks for the bulk items of the results, in order.
    pub writes: Vec<WriteChunk>,
    /// The reply chunk.
    pub reply: Option<WriteChunk>,
}

impl CallChunks {
    /// Checks the chunk lists of a call. `long` says whether the payload is in a position-zero read
    /// chunk (RDMA_NOMSG), `inline` is the number of payload bytes after the header, and `max_call`
    /// is the maximum length of a call, items included, that the responder accepts, in bytes of
    /// XDR.
    ///
    /// # Errors
    /// The first [`Violation`] found. The call must not be executed.
    pub fn new(chunks: Chunks, long: bool, inline: u64, max_call: u64) -> Result<Self, Violation> {
        let writes = chunks.writes.iter().chain(&chunks.reply).flatten();
        writes.copied().try_for_each(check_segment)?;
        let mut items = group(chunks.reads)?;
        let has_payload_chunk = items.first().is_some_and(|chunk| chunk.position == 0);
        let payload = match (long, has_payload_chunk) {
            (true, false) => return Err(Violation::NoPayload),
            (false, true) => return Err(Violation::TwoPayloads),
            (true, true) if inline > 0 => return Err(Violation::PayloadAfterNoMsg(inline)),
            (true, true) => Some(items.remove(0)),
            (false, false) => None,
        };
        let payload_len = match &payload {
            None => inline,
            Some(chunk) if chunk.length == 0 => return Err(Violation::NoPayload),
            Some(chunk) if chunk.length % 4 != 0 => {
                return Err(Violation::UnpaddedPayload(u64::from(chunk.length)));
            }
            Some(chunk) => u64::from(chunk.length),
        };
        check_places(&items, payload_len, max_call)?;
        Ok(Self {
            payload,
            items,
            writes: chunks.writes,
            reply: chunks.reply,
        })
    }

    /// Returns the number of bytes to fetch with RDMA Reads.
    #[must_use]
    pub fn read_len(&self) -> u64 {
        let chunks = self.payload.iter().chain(&self.items);
        chunks.map(|chunk| u64::from(chunk.length)).sum()
    }
}

/// Groups read segments by position into chunks. Segments of one chunk are joined in list order
/// (section 3.4.5); the order of different chunks in the list has no meaning.
fn group(mut reads: Vec<ReadSegment>) -> Result<Vec<ReadChunk>, Violation> {
    // The sort is stable: segments with the same position keep their order.
    reads.sort_by_key(|read| read.position);
    let mut chunks: Vec<ReadChunk> = Vec::new();
    for ReadSegment { position, segment } in reads {
        if position % 4 != 0 {
            return Err(Violation::UnalignedPosition(position));
        }
        check_segment(segment)?;
        if chunks.last().is_none_or(|chunk| chunk.position != position) {
            chunks.push(ReadChunk {
                position,
                ..ReadChunk::default()
            });
        }
        let Some(chunk) = chunks.last_mut() else {
            continue;
        };
        // An XDR length is a `u32`, so a chunk that is longer cannot hold an item.
        let len = u64::from(chunk.length) + u64::from(segment.length);
        chunk.length = u32::try_from(len).map_err(|_| Violation::TooLong {
            len,
            max: u64::from(u32::MAX),
        })?;
        if segment.length > 0 {
            chunk.segments.push(segment);
        }
    }
    Ok(chunks)
}

fn check_segment(segment: Segment) -> Result<(), Violation> {
    match segment.offset.checked_add(u64::from(segment.length)) {
        Some(_) => Ok(()),
        None => Err(Violation::SegmentWraps(segment)),
    }
}

/// Checks that the items do not overlap, lie within the payload and keep to `max_call`. Positions
/// count the unreduced stream (section 3.4.5): an item's offset in the payload is its position
/// minus the bytes of the items before it, round-up included.
fn check_places(items: &[ReadChunk], payload_len: u64, max_call: u64) -> Result<(), Violation> {
    let (mut end, mut reduced) = (0, 0);
    for chunk in items {
        let position = u64::from(chunk.position);
        if position < end {
            return Err(Violation::Overlap(chunk.position));
        }
        if position - reduced > payload_len {
            return Err(Violation::BeyondPayload(chunk.position));
        }
        let len = padded(u64::from(chunk.length));
        (end, reduced) = (position + len, reduced + len);
    }
    let len = payload_len + reduced;
    if len > max_call {
        return Err(Violation::TooLong { len, max: max_call });
    }
    Ok(())
}

/// Checks that the XID in the transport header equals that of the RPC message (sections 4.2.1 and
/// 4.5.2).
///
/// # Errors
/// [`Violation::Xid`] if they differ or the RPC message is too short to have one.
pub fn check_xid(header: u32, message: &Message) -> Result<(), Violation> {
    match peek_xid(message) {
        Some(xid) if xid == header => Ok(()),
        payload => Err(Violation::Xid { header, payload }),
    }
}
