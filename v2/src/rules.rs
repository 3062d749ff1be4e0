//! The rules for calls and replies, applied to this version's headers (version-two-01, sections
//! 4.2.1 and 4.2.2, and what RFC 8166 says of chunks).

use onc_rpc::{Message, peek_start};
use rpcrdma_chunks::{
    CallChunks, Chunks, ReplyViolation, ReturnedChunks, check_returned, check_xid,
};

use crate::{Body, Direction, ErrorBody, Header};

/// A rule of the protocol that a decoded message does not keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not a call that base version 2 knows: a reply, an error or an optional operation. It has to
    /// be told apart before its chunks are looked at.
    #[error("not an RDMA2_MSG or RDMA2_NOMSG call")]
    NotACall,
    /// One of those that version 1 has as well.
    #[error(transparent)]
    Chunks(#[from] rpcrdma_chunks::Violation),
    /// The RPC message is of another type than its header says, or too short to have one
    /// (section 4.2.2).
    #[error("direction {header} in the header, msg_type {payload:?} in the RPC message")]
    Direction {
        /// In the transport header.
        header: Direction,
        /// In the RPC message.
        payload: Option<u32>,
    },
}

/// Checks a call's header, which `inline` bytes of payload follow, for a responder that takes calls
/// of up to `max_call` bytes of XDR, items included.
///
/// # Errors
/// The first [`Violation`] found. The call must not be executed.
pub fn check_call(header: Header, inline: u64, max_call: u64) -> Result<CallChunks, Violation> {
    let checked = match header.body {
        Body::Msg(Direction::Call, chunks) => CallChunks::new(chunks, false, inline, max_call),
        Body::NoMsg(Direction::Call, chunks) => CallChunks::new(chunks, true, inline, max_call),
        _ => return Err(Violation::NotACall),
    };
    Ok(checked?)
}

/// Whether a header and the RPC message that came with it agree: on the XID (RFC 8166, section
/// 4.2.1), and on the direction (section 4.2.2).
///
/// # Errors
/// [`Violation`]; the message is not executed or delivered.
pub fn check_payload(xid: u32, direction: Direction, message: &Message) -> Result<(), Violation> {
    check_xid(xid, message)?;
    let payload = peek_start(message).map(|(_, msg_type)| msg_type);
    if payload == Some(direction.number()) {
        return Ok(());
    }
    Err(Violation::Direction {
        header: direction,
        payload,
    })
}

/// What a reply brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returned {
    /// A reply. Its payload follows the header, or is in the reply chunk.
    Reply(ReturnedChunks),
    /// There will be no reply: the transaction ends with this error.
    Error(ErrorBody),
}

/// Why a message from a responder is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// Neither a reply nor an error.
    #[error("not an RDMA2_MSG or RDMA2_NOMSG reply")]
    NotAReply,
    /// Its chunks are not those that were offered.
    #[error(transparent)]
    Chunks(#[from] ReplyViolation),
}

/// Checks a reply's header, which `inline` bytes of payload follow, against the chunks that the
/// call offered.
///
/// # Errors
/// [`BadReply`]: the message must be discarded.
pub fn check_reply(header: &Header, inline: u64, offered: &Chunks) -> Result<Returned, BadReply> {
    let (chunks, long) = match &header.body {
        Body::Msg(Direction::Reply, chunks) => (chunks, false),
        Body::NoMsg(Direction::Reply, chunks) => (chunks, true),
        Body::Error(error) => return Ok(Returned::Error(*error)),
        _ => return Err(BadReply::NotAReply),
    };
    let returned = check_returned(chunks, long, inline, offered)?;
    Ok(Returned::Reply(returned))
}
