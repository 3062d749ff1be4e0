//! Received messages, in terms that all versions share.

use onc_rpc::{Message, Segments, total_len};
use rpcrdma_chunks::{
    CallChunks, Chunks, Direction, ReplyViolation, ReturnedChunks, check_returned,
};
use rpcrdma_extension::PeerError;

use super::{Dialect, Plain};

/// A message that was received, with its header decoded.
#[derive(Debug)]
pub enum Incoming {
    /// A call or reply without chunks: direction, header fields and inline payload.
    Plain(Direction, Plain, Segments),
    /// Any other call, whose chunk lists are checked.
    Call(CallHeader),
    /// Any other reply, or an error for a call, which is still to be checked against its call.
    Reply(ReplyHeader),
    /// A message that is done with: one of an extension, or one of the version that is no call,
    /// reply or error for a call. Its credits, if they count, count like those of a message of its
    /// direction; those of an error do not (version-two-01, section 5).
    Handled(Direction, Option<u32>),
    /// A reply that cannot be used, and that ends its call.
    Unusable {
        /// The XID of the call.
        xid: u32,
        /// A description of the error, for the log and the upper layer.
        reason: String,
    },
    /// An invalid message, and the direction in which it was sent.
    Bad(Direction, BadMessage),
}

/// A call that was received.
#[derive(Debug)]
pub struct CallHeader {
    /// The XID of the call.
    pub xid: u32,
    /// The credits that the call requests.
    pub requested: u32,
    /// The checked chunks of the call.
    pub chunks: CallChunks,
    /// The handle to invalidate with the reply, if any is offered (RFC 8797, section 4.1).
    pub handle: Option<u32>,
    /// The inline payload, which is empty if the payload is in a chunk: a position-zero read chunk, or in
    /// the working group's version 2 the call chunk (version-two-07, section 6.3.5).
    pub payload: Segments,
}

impl CallHeader {
    /// Returns whether the call has chunks, for itself or for its reply.
    #[must_use]
    pub fn has_chunks(&self) -> bool {
        let chunks = &self.chunks;
        chunks.payload.is_some()
            || !chunks.items.is_empty()
            || !chunks.writes.is_empty()
            || chunks.reply.is_some()
    }

    /// Returns the handle that a responder should invalidate: preferably one of a write or reply
    /// chunk, because the requester waits for that memory.
    #[must_use]
    pub fn preferred_handle(chunks: &Chunks) -> Option<u32> {
        let written = chunks.writes.iter().chain(&chunks.reply).flatten();
        let read = chunks.reads.iter().map(|read| read.segment.handle);
        written.map(|segment| segment.handle).chain(read).next()
    }
}

/// An error message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// The XID of the message that it answers.
    pub xid: u32,
    /// The version of the message that it answers, which this end need not support.
    pub version: u32,
    /// The error.
    pub error: PeerError,
}

impl ErrorMessage {
    /// Returns ERR_CHUNK or RDMA2_ERR_BAD_HEADER for a message of `dialect` (RFC 8166, section
    /// 4.5.3).
    #[must_use]
    pub fn chunk(dialect: &dyn Dialect, xid: u32) -> Self {
        Self {
            xid,
            version: dialect.version().number(),
            error: PeerError::Chunk,
        }
    }
}

/// A reply, or an error instead of one.
#[derive(Debug)]
pub enum ReplyBody {
    /// A reply with these chunk lists.
    Reply {
        /// The lists.
        chunks: Chunks,
        /// Whether the payload is in the reply chunk (RDMA_NOMSG).
        long: bool,
    },
    /// An error: there will be no reply.
    Error(PeerError),
}

/// A message from a responder.
#[derive(Debug)]
pub struct ReplyHeader {
    /// The XID of the call that it answers.
    pub xid: u32,
    /// The credits that it grants. Those of an error only lower the limit.
    pub granted: u32,
    /// The reply's chunk lists, or the error.
    pub body: ReplyBody,
    /// The inline payload.
    pub payload: Segments,
}

/// Contents of a reply that agrees with its call.
#[derive(Debug)]
pub(crate) enum Returned {
    Reply(ReturnedChunks),
    Error(PeerError),
}

impl ReplyHeader {
    /// Returns a reply without chunks.
    pub(crate) fn plain(header: Plain, payload: Segments) -> Self {
        Self {
            xid: header.xid,
            granted: header.credits,
            body: ReplyBody::Reply {
                chunks: Chunks::default(),
                long: false,
            },
            payload,
        }
    }

    /// Returns whether the reply lists no chunks and is no error.
    pub(crate) fn is_plain(&self) -> bool {
        match &self.body {
            ReplyBody::Reply { chunks, long } => {
                !long && chunks.writes.is_empty() && chunks.reply.is_none()
            }
            ReplyBody::Error(_) => false,
        }
    }

    /// Checks the reply against the chunks that its call offered. Returns the lengths that were
    /// written or the error, and the inline payload.
    ///
    /// # Errors
    /// [`BadReply`]: the message must be discarded silently (RFC 8166, section 4.5).
    pub(crate) fn check(
        self,
        dialect: &dyn Dialect,
        offered: &Chunks,
    ) -> Result<(Returned, Message), BadReply> {
        let inline = total_len(&self.payload);
        let message = Message::without_items(self.payload);
        let (mut chunks, long) = match self.body {
            ReplyBody::Reply { chunks, long } => (chunks, long),
            ReplyBody::Error(error) => return Ok((Returned::Error(error), message)),
        };
        dialect.complete_returned(&mut chunks, offered);
        let returned = check_returned(&chunks, long, inline, offered)?;
        if returned.long.is_none() {
            dialect.check_payload(self.xid, Direction::Reply, &message)?;
        }
        Ok((Returned::Reply(returned), message))
    }
}

/// The reason why a reply is discarded.
#[derive(Debug, thiserror::Error)]
pub enum BadReply {
    /// The returned chunk lists differ from those that were offered.
    #[error(transparent)]
    Chunks(#[from] ReplyViolation),
    /// XID or direction of the RPC message differ from the header.
    #[error("{0}")]
    Payload(String),
}

/// An invalid message, which is discarded.
#[derive(Debug)]
pub struct BadMessage {
    /// The error message to send, if any (RFC 8166, sections 4.5 and 4.6).
    pub answer: Option<ErrorMessage>,
    /// A description of the error, for the log.
    pub reason: String,
}
