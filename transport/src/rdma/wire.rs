//! What depends on the protocol version: how headers are written, read and checked.
//!
//! The engine around it deals in chunks, credits and plans, which later versions have as well. A
//! second version becomes a second implementation of these functions, chosen per connection.

use bytes::{Bytes, BytesMut};
use conveyance::{CallPayload, ChunkCounts, ReplyPayload};
use onc_rpc::Message;
pub(crate) use rpcrdma_v1::VERSION;
use rpcrdma_v1::{
    Answer, Body, CallChunks, Chunks, Header, HeaderError, ReplyViolation, Returned, Role,
    WriteChunk, check_call, check_reply, check_xid, limits,
};

/// Bytes of a version 1 header with these chunks (RFC 8166, section 4.7): what
/// [`conveyance::Limits::header_len`] asks for.
#[must_use]
pub fn header_len(chunks: &ChunkCounts) -> u64 {
    limits::MIN_HEADER_LEN as u64
        + 24 * chunks.read_segments
        + 8 * chunks.write_chunks
        + 16 * chunks.write_segments
        + chunks
            .reply_segments
            .map_or(0, |segments| 4 + 16 * segments)
}

/// A call's header, in `room`. Gives the chunks back: the reply is checked against them.
pub(crate) fn encode_call(
    room: &mut BytesMut,
    xid: u32,
    credits: u32,
    payload: CallPayload,
    chunks: Chunks,
) -> (Bytes, Chunks) {
    let body = match payload {
        CallPayload::Inline => Body::Msg(chunks),
        CallPayload::PositionZero => Body::NoMsg(chunks),
    };
    let header = Header { xid, credits, body };
    let encoded = encode(&header, room);
    let (Body::Msg(chunks) | Body::NoMsg(chunks)) = header.body else {
        return (encoded, Chunks::default());
    };
    (encoded, chunks)
}

/// Encodes a header in room that headers share: one allocation for many.
fn encode(header: &Header, room: &mut BytesMut) -> Bytes {
    header.encode_into(room);
    room.split().freeze()
}

/// A reply's header, in `room`.
pub(crate) fn encode_reply(
    room: &mut BytesMut,
    xid: u32,
    credits: u32,
    payload: ReplyPayload,
    writes: Vec<WriteChunk>,
    reply: Option<WriteChunk>,
) -> Bytes {
    let chunks = Chunks {
        reads: Vec::new(),
        writes,
        reply,
    };
    let body = match payload {
        ReplyPayload::Inline => Body::Msg(chunks),
        ReplyPayload::ReplyChunk => Body::NoMsg(chunks),
    };
    encode(&Header { xid, credits, body }, room)
}

/// An ERR_CHUNK for a call that was understood (RFC 8166, section 4.5.3).
pub(crate) fn encode_chunk_error(xid: u32, credits: u32) -> Bytes {
    Answer::chunk(xid).encode(credits)
}

/// A message from a responder.
pub(crate) struct FromResponder {
    header: Header,
    payload: Bytes,
}

impl FromResponder {
    /// Reads the header.
    ///
    /// # Errors
    /// The message must be discarded silently (RFC 8166, section 4.5).
    pub(crate) fn decode(mut message: Bytes) -> Result<Self, HeaderError> {
        let (header, at) = Header::decode(&message)?;
        let payload = message.split_off(at);
        Ok(Self { header, payload })
    }

    pub(crate) fn xid(&self) -> u32 {
        self.header.xid
    }

    pub(crate) fn granted(&self) -> u32 {
        self.header.credits
    }

    /// Checks it against what its call offered, and gives what it brought and the inline payload.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) fn check(self, offered: &Chunks) -> Result<(Returned, Message), BadReply> {
        let returned = check_reply(&self.header, self.payload.len() as u64, offered)?;
        let message = Message::from_payload(self.payload);
        if let Returned::Reply { long: None, .. } = returned {
            same_xid(self.header.xid, &message)?;
        }
        Ok((returned, message))
    }
}

/// Why a reply is discarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadReply {
    #[error(transparent)]
    Chunks(#[from] ReplyViolation),
    #[error("{0}")]
    Payload(String),
}

/// Whether an RPC message is the one that its transport header belongs to (RFC 8166, section
/// 4.2.1).
pub(crate) fn same_xid(xid: u32, message: &Message) -> Result<(), BadReply> {
    check_xid(xid, message).map_err(|violation| BadReply::Payload(violation.to_string()))
}

/// A call, checked as far as it can be before its chunks are fetched.
pub(crate) struct FromRequester {
    pub(crate) xid: u32,
    /// Credits it asks for.
    pub(crate) requested: u32,
    pub(crate) chunks: CallChunks,
    /// A handle that it offers, any one (RFC 8797, section 4.1).
    pub(crate) handle: Option<u32>,
    /// Empty when the payload is in a position-zero read chunk.
    pub(crate) payload: Bytes,
}

/// A call that is not executed.
pub(crate) struct BadCall {
    /// What the requester must be told, if anything (RFC 8166, sections 4.5 and 4.6).
    pub(crate) answer: Option<Answer>,
    /// For the log.
    pub(crate) reason: String,
}

impl FromRequester {
    /// Reads a call's header and checks its chunks, for a responder that takes calls of up to
    /// `max_call` bytes of XDR.
    ///
    /// # Errors
    /// [`BadCall`].
    pub(crate) fn decode(mut message: Bytes, max_call: u64) -> Result<Self, BadCall> {
        let (header, at) = Header::decode(&message).map_err(|error| BadCall {
            answer: error.answer(Role::Responder),
            reason: error.to_string(),
        })?;
        let payload = message.split_off(at);
        let (xid, requested) = (header.xid, header.credits);
        let bad = |violation: rpcrdma_v1::Violation| BadCall {
            answer: Answer::to_violation(&violation, xid, Role::Responder),
            reason: violation.to_string(),
        };
        let handle = match &header.body {
            Body::Msg(chunks) | Body::NoMsg(chunks) => preferred_handle(chunks),
            Body::Error(_) => None,
        };
        let chunks = check_call(header, payload.len() as u64, max_call).map_err(bad)?;
        if chunks.payload.is_none() {
            check_xid(xid, &Message::from_payload(payload.clone())).map_err(bad)?;
        }
        Ok(Self {
            xid,
            requested,
            chunks,
            handle,
            payload,
        })
    }
}

/// The handle to invalidate with the reply: one that the reply writes to, for its memory is what
/// the requester waits for.
fn preferred_handle(chunks: &Chunks) -> Option<u32> {
    let written = chunks.writes.iter().chain(&chunks.reply).flatten();
    let read = chunks.reads.iter().map(|read| read.segment.handle);
    written.map(|segment| segment.handle).chain(read).next()
}
