//! The rules for calls and replies, applied to this version's headers (RFC 8166, section 4).

use rpcrdma_chunks::{
    CallChunks, Chunks, ReplyViolation, ReturnedChunks, Violation, check_returned,
};
use smallvec::SmallVec;

use crate::{Body, ErrorBody, Header};

/// Checks a call's header, which `inline` bytes of payload follow, for a responder that takes calls
/// of up to `max_call` bytes of XDR, items included.
///
/// # Errors
/// The first [`Violation`] found. The call must not be executed.
pub fn check_call(header: Header, inline: u64, max_call: u64) -> Result<CallChunks, Violation> {
    match header.body {
        Body::Msg(chunks) => CallChunks::new(chunks, false, inline, max_call),
        Body::NoMsg(chunks) => CallChunks::new(chunks, true, inline, max_call),
        Body::Error(_) => Err(Violation::ErrorProcedure),
    }
}

/// What a reply brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returned {
    /// A reply. Its payload follows the header, or is in the reply chunk.
    Reply {
        /// Bytes placed in each write chunk that was offered, in order.
        writes: SmallVec<[u64; 1]>,
        /// Bytes of payload in the reply chunk: RDMA_NOMSG. Nothing: the payload is inline.
        long: Option<u64>,
    },
    /// There will be no reply (section 4.5): the transaction ends with this error.
    Error(ErrorBody),
}

/// Checks a reply's header, which `inline` bytes of payload follow, against the chunks that the
/// call offered.
///
/// # Errors
/// The first [`ReplyViolation`] found: the message must be discarded.
pub fn check_reply(
    header: &Header,
    inline: u64,
    offered: &Chunks,
) -> Result<Returned, ReplyViolation> {
    let (chunks, long) = match &header.body {
        Body::Msg(chunks) => (chunks, false),
        Body::NoMsg(chunks) => (chunks, true),
        Body::Error(error) => return Ok(Returned::Error(*error)),
    };
    let ReturnedChunks { writes, long } = check_returned(chunks, long, inline, offered)?;
    Ok(Returned::Reply { writes, long })
}
