//! The rules for calls and payloads, applied to version 2 headers (version-two-01, sections 4.2.1
//! and 4.2.2, and the rules of RFC 8166 for chunks).

use onc_rpc::{Message, peek_start};
use rpcrdma_chunks::{CallChunks, check_xid};

use crate::{Body, Direction, Header};

/// A protocol rule that a decoded message violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The message is a reply, an error or an optional operation instead of an RDMA2_MSG or
    /// RDMA2_NOMSG call. Callers must sort these out before they check chunks.
    #[error("not an RDMA2_MSG or RDMA2_NOMSG call")]
    NotACall,
    /// A rule that version 1 has as well.
    #[error(transparent)]
    Chunks(#[from] rpcrdma_chunks::Violation),
    /// The `msg_type` of the RPC message differs from the direction in the header, or is missing
    /// (section 4.2.2).
    #[error("direction {header} in the header, msg_type {payload:?} in the RPC message")]
    Direction {
        /// Direction in the transport header.
        header: Direction,
        /// `msg_type` in the RPC message.
        payload: Option<u32>,
    },
}

/// Checks the header of a call. `inline` is the number of payload bytes after the header, and
/// `max_call` is the maximum length of a call, items included, that the responder accepts, in bytes
/// of XDR.
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

/// Checks that a header and its RPC message have the same XID (RFC 8166, section 4.2.1) and the
/// same direction (section 4.2.2).
///
/// # Errors
/// The first [`Violation`] found. The message must not be executed or delivered.
pub fn check_payload(xid: u32, direction: Direction, message: &Message) -> Result<(), Violation> {
    let start = peek_start(message);
    if start == Some((xid, direction.number())) {
        return Ok(());
    }
    check_xid(xid, message)?;
    Err(Violation::Direction {
        header: direction,
        payload: start.map(|(_, msg_type)| msg_type),
    })
}
