//! The rules for calls, applied to version 1 headers (RFC 8166, section 4).

use rpcrdma_chunks::{CallChunks, Violation};

use crate::{Body, Header};

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
