//! A call's chunk lists, as the responder sees them (sections 3.4.5, 3.5.3 and 4.3).

use onc_rpc::{Message, padded, peek_xid};
use smallvec::SmallVec;

use crate::{Chunks, ReadSegment, Segment, WriteChunk};

/// A rule of the protocol that a decoded call does not keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An RDMA_ERROR, which is nothing that a requester may send.
    #[error("RDMA_ERROR from a requester")]
    ErrorProcedure,
    /// The RPC message's own XID is another one, or missing.
    #[error("XID {header:#010x} in the header, {payload:#010x?} in the RPC message")]
    Xid {
        /// In the transport header.
        header: u32,
        /// In the RPC message.
        payload: Option<u32>,
    },
    /// A position that is not a multiple of four.
    #[error("read chunk at position {0}, not a multiple of four")]
    UnalignedPosition(u32),
    /// RDMA_NOMSG without a position-zero read chunk: there is no RPC message.
    #[error("RDMA_NOMSG call without a position-zero read chunk")]
    NoPayload,
    /// RDMA_MSG with a position-zero read chunk: there are two RPC messages.
    #[error("RDMA_MSG call with a position-zero read chunk")]
    TwoPayloads,
    /// RDMA_NOMSG with bytes after the header.
    #[error("{0} bytes follow an RDMA_NOMSG header")]
    PayloadAfterNoMsg(u64),
    /// A position-zero read chunk without its round-up.
    #[error("position-zero read chunk of {0} bytes, not a multiple of four")]
    UnpaddedPayload(u64),
    /// A segment runs past the end of the 64-bit address space.
    #[error("segment of {} bytes at offset {:#x} passes the address space", .0.length, .0.offset)]
    SegmentWraps(Segment),
    /// A read chunk begins before the item before it ends.
    #[error("read chunk at position {0} overlaps the one before it")]
    Overlap(u32),
    /// A read chunk's place is after the end of the payload.
    #[error("read chunk at position {0} is beyond the payload")]
    BeyondPayload(u32),
    /// The whole message would be longer than the responder allows.
    #[error("call of {len} bytes, where {max} are allowed")]
    TooLong {
        /// Its length, bytes.
        len: u64,
        /// The limit, bytes.
        max: u64,
    },
}

/// A read chunk: its segments, in the order in which their contents are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadChunk {
    /// Where it belongs in the unreduced payload stream; zero if it *is* the payload stream.
    pub position: u32,
    /// Bytes of all its segments, the item's round-up included if the requester sent that.
    pub length: u32,
    /// Its segments. Empty ones are left out: there is nothing to read from them.
    pub segments: SmallVec<[Segment; 1]>,
}

/// A call's chunks, checked against every rule that can be checked before the first RDMA Read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallChunks {
    /// The position-zero read chunk: the payload of an RDMA_NOMSG call.
    pub payload: Option<ReadChunk>,
    /// Read chunks that hold items, by ascending position.
    pub items: Vec<ReadChunk>,
    /// Write chunks, for the results' items in order.
    pub writes: Vec<WriteChunk>,
    /// Reply chunk.
    pub reply: Option<WriteChunk>,
}

impl CallChunks {
    /// Checks the lists of a call whose payload is in a position-zero read chunk (`long`) or not,
    /// and whose header `inline` bytes of payload follow, for a responder that takes calls of up to
    /// `max_call` bytes of XDR, items included.
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

    /// Bytes to fetch with RDMA Reads.
    #[must_use]
    pub fn read_len(&self) -> u64 {
        let chunks = self.payload.iter().chain(&self.items);
        chunks.map(|chunk| u64::from(chunk.length)).sum()
    }
}

/// Groups segments by position into chunks. Segments of one chunk are joined in list order
/// (section 3.4.5); the order of different chunks in the list has no meaning.
fn group(mut reads: Vec<ReadSegment>) -> Result<Vec<ReadChunk>, Violation> {
    // Stable: segments with the same position keep their order.
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
        // An XDR length is a `u32`, so a longer chunk holds no item.
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

/// Positions count the unreduced stream (section 3.4.5): an item's place in the payload is its
/// position less what the items before it took out, round-up included.
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

/// Whether the XID in the header is that of the RPC message it came with (sections 4.2.1 and
/// 4.5.2).
///
/// # Errors
/// [`Violation::Xid`].
pub fn check_xid(header: u32, message: &Message) -> Result<(), Violation> {
    match peek_xid(message) {
        Some(xid) if xid == header => Ok(()),
        payload => Err(Violation::Xid { header, payload }),
    }
}
