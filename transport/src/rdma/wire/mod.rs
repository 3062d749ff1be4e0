//! What depends on the protocol version: how headers are written, read and checked.
//!
//! The engine around it deals in chunks, credits and plans, which both versions have. Which version
//! a connection speaks is a [`Version`] that is passed along: each function here branches on it once.

pub(crate) mod pieces;
mod plain;
mod v1;
pub(crate) mod v2;

use bytes::{Bytes, BytesMut};
use conveyance::{CallPayload, ChunkCounts, ReplyPayload};
use onc_rpc::{Message, Segments};
use rpcrdma_chunks::{
    CallChunks, Chunks, ReplyViolation, ReturnedChunks, WriteChunk, check_returned,
};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::{Direction, check_payload};

pub(crate) use plain::Plain;

/// Bytes of a header with these chunks (RFC 8166, section 4.7; version-two-01, section 4.2): what
/// [`conveyance::Limits::header_len`] asks for.
#[must_use]
pub fn header_len(version: Version) -> fn(&ChunkCounts) -> u64 {
    match version {
        Version::One => v1::header_len,
        Version::Two => v2::header_len,
    }
}

/// Bytes that chunks add to the header, in both versions.
fn chunks_len(chunks: &ChunkCounts) -> u64 {
    24 * chunks.read_segments
        + 8 * chunks.write_chunks
        + 16 * chunks.write_segments
        + chunks
            .reply_segments
            .map_or(0, |segments| 4 + 16 * segments)
}

/// A call's header, in `room`, which headers share: one allocation for many. Gives the chunks back:
/// the reply is checked against them.
pub(crate) fn encode_call(
    version: Version,
    room: &mut BytesMut,
    xid: u32,
    credits: u32,
    payload: CallPayload,
    chunks: Chunks,
) -> (Bytes, Chunks) {
    let inline = payload == CallPayload::Inline;
    let chunks = match version {
        Version::One => v1::encode(room, xid, credits, inline, chunks),
        Version::Two => v2::encode(room, xid, credits, Direction::Call, inline, chunks),
    };
    (room.split().freeze(), chunks)
}

/// A reply's header, in `room`.
pub(crate) fn encode_reply(
    version: Version,
    room: &mut BytesMut,
    xid: u32,
    credits: u32,
    payload: ReplyPayload,
    chunks: Chunks,
) -> Bytes {
    let inline = payload == ReplyPayload::Inline;
    match version {
        Version::One => v1::encode(room, xid, credits, inline, chunks),
        Version::Two => v2::encode(room, xid, credits, Direction::Reply, inline, chunks),
    };
    room.split().freeze()
}

/// An error message to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// RDMA_ERROR.
    V1(rpcrdma_v1::Answer),
    /// RDMA2_ERROR.
    V2(rpcrdma_v2::Answer),
}

impl Answer {
    /// Whether it says which versions are spoken: so negotiation goes, and nothing is wrong with that.
    pub(crate) fn is_version(&self) -> bool {
        match self {
            Self::V1(answer) => {
                matches!(answer.error, rpcrdma_v1::ErrorBody::Version { .. })
            }
            Self::V2(answer) => {
                matches!(answer.error, rpcrdma_v2::ErrorBody::Version { .. })
            }
        }
    }

    /// ERR_CHUNK, or RDMA2_ERR_BAD_HEADER, for a call that was understood (RFC 8166, section 4.5.3).
    pub(crate) fn chunk(version: Version, xid: u32) -> Self {
        match version {
            Version::One => Self::V1(rpcrdma_v1::Answer::chunk(xid)),
            Version::Two => Self::V2(rpcrdma_v2::Answer::bad_header(xid)),
        }
    }

    /// The answer as XDR.
    pub(crate) fn encode(&self, credits: u32) -> Bytes {
        match self {
            Self::V1(answer) => answer.encode(credits),
            Self::V2(answer) => answer.encode(credits),
        }
    }
}

/// An error that the peer sent instead of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerError {
    /// ERR_VERS, RDMA2_ERR_VERS: it speaks only these.
    Version {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
    /// ERR_CHUNK, RDMA2_ERR_BAD_HEADER.
    Chunk,
    /// RDMA2_ERR_INVAL_OPTION.
    Option,
}

/// How the answer to a call travelled.
#[derive(Debug)]
enum ReplyBody {
    /// Payload inline, or in the reply chunk (`long`).
    Reply {
        chunks: Chunks,
        long: bool,
    },
    Error(PeerError),
}

/// A message from a responder.
#[derive(Debug)]
pub(crate) struct FromResponder {
    version: Version,
    pub(crate) xid: u32,
    pub(crate) granted: u32,
    body: ReplyBody,
    payload: Segments,
}

/// What it brought.
#[derive(Debug)]
pub(crate) enum Returned {
    Reply(ReturnedChunks),
    Error(PeerError),
}

impl FromResponder {
    /// Reads the header.
    ///
    /// # Errors
    /// The message must be discarded silently (RFC 8166, section 4.5).
    pub(crate) fn decode(version: Version, message: Segments) -> Result<Self, BadReply> {
        match version {
            Version::One => v1::from_responder(message),
            Version::Two => v2::from_responder(message),
        }
    }

    /// Of a plain message.
    pub(crate) fn plain(version: Version, plain: Plain, payload: Segments) -> Self {
        Self {
            version,
            xid: plain.xid,
            granted: plain.credits,
            body: ReplyBody::Reply {
                chunks: Chunks::default(),
                long: false,
            },
            payload,
        }
    }

    /// Whether it lists no chunks.
    pub(crate) fn is_plain(&self) -> bool {
        match &self.body {
            ReplyBody::Reply { chunks, long } => {
                !long && chunks.writes.is_empty() && chunks.reply.is_none()
            }
            ReplyBody::Error(_) => false,
        }
    }

    /// Checks it against what its call offered, and gives what it brought and the inline payload.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) fn check(self, offered: &Chunks) -> Result<(Returned, Message), BadReply> {
        let inline = pieces::length(&self.payload);
        let message = Message::without_items(self.payload);
        let (chunks, long) = match self.body {
            ReplyBody::Reply { chunks, long } => (chunks, long),
            ReplyBody::Error(error) => return Ok((Returned::Error(error), message)),
        };
        let returned = check_returned(&chunks, long, inline, offered)?;
        if returned.long.is_none() {
            belongs(self.version, self.xid, Direction::Reply, &message)?;
        }
        Ok((Returned::Reply(returned), message))
    }
}

/// Why a reply is discarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadReply {
    #[error(transparent)]
    Chunks(#[from] ReplyViolation),
    #[error("{0}")]
    Header(String),
    #[error("{0}")]
    Payload(String),
}

/// Whether an RPC message is the one that its transport header belongs to (RFC 8166, section 4.2.1;
/// version-two-01, section 4.2.2).
pub(crate) fn belongs(
    version: Version,
    xid: u32,
    direction: Direction,
    message: &Message,
) -> Result<(), BadReply> {
    match version {
        Version::One => v1::check_payload(xid, message),
        Version::Two => check_payload(xid, direction, message)
            .map_err(|violation| BadReply::Payload(violation.to_string())),
    }
}

/// A call, checked as far as it can be before its chunks are fetched.
#[derive(Debug)]
pub(crate) struct FromRequester {
    pub(crate) xid: u32,
    /// Credits it asks for.
    pub(crate) requested: u32,
    pub(crate) chunks: CallChunks,
    /// A handle that it offers, any one (RFC 8797, section 4.1).
    pub(crate) handle: Option<u32>,
    /// Empty when the payload is in a position-zero read chunk.
    pub(crate) payload: Segments,
}

/// A call that is not executed.
#[derive(Debug)]
pub(crate) struct BadCall {
    /// What the requester must be told, if anything (RFC 8166, sections 4.5 and 4.6).
    pub(crate) answer: Option<Answer>,
    /// For the log.
    pub(crate) reason: String,
}

impl FromRequester {
    /// Whether it, or its reply, has chunks.
    pub(crate) fn has_chunks(&self) -> bool {
        let chunks = &self.chunks;
        chunks.payload.is_some()
            || !chunks.items.is_empty()
            || !chunks.writes.is_empty()
            || chunks.reply.is_some()
    }

    /// Reads a call's header and checks its chunks, for a responder that takes calls of up to
    /// `max_call` bytes of XDR.
    ///
    /// # Errors
    /// [`BadCall`].
    pub(crate) fn decode(
        version: Version,
        message: Segments,
        max_call: u64,
    ) -> Result<Self, BadCall> {
        match version {
            Version::One => v1::from_requester(message, max_call),
            Version::Two => v2::from_requester(message, max_call),
        }
    }
}

/// The handle to invalidate with the reply: one that the reply writes to, for its memory is what
/// the requester waits for.
fn preferred_handle(chunks: &Chunks) -> Option<u32> {
    let written = chunks.writes.iter().chain(&chunks.reply).flatten();
    let read = chunks.reads.iter().map(|read| read.segment.handle);
    written.map(|segment| segment.handle).chain(read).next()
}

/// A reply's chunk lists.
pub(crate) fn returned_chunks(writes: Vec<WriteChunk>, reply: Option<WriteChunk>) -> Chunks {
    Chunks {
        reads: Vec::new(),
        writes,
        reply,
    }
}
