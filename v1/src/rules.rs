//! The rules for calls and replies, applied to version 1 headers (RFC 8166, section 4).

use rpcrdma_chunks::{
    CallChunks, Chunks, ReplyViolation, ReturnedChunks, Violation, check_returned,
};
use smallvec::SmallVec;

use crate::{Body, ErrorBody, Header};

/// Checks the header of a call. `inline` is the number of payload bytes after the header, and
/// `max_call` is the most bytes of XDR, items included, that the responder accepts.
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

/// The result of a call, as its reply's header gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returned {
    /// A reply. Its payload follows the header or is in the reply chunk.
    Reply {
        /// Bytes placed in each write chunk that was offered, in order.
        writes: SmallVec<[u64; 1]>,
        /// Bytes of payload in the reply chunk of an RDMA_NOMSG reply; `None` if the payload is
        /// inline.
        long: Option<u64>,
    },
    /// The transaction ends with this error, and there will be no reply (section 4.5).
    Error(ErrorBody),
}

/// Checks the header of a reply against the chunks that the call offered. `inline` is the number of
/// payload bytes after the header.
///
/// # Errors
/// The first [`ReplyViolation`] found. The message must be discarded.
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
