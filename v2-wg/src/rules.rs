//! The rules for calls and payloads that go beyond the form of one header (version-two-07, sections
//! 4.5, 4.6 and 7.2).

use onc_rpc::{Message, peek_start};
use rpcrdma_chunks::{CallChunks, Direction, check_xid};

use crate::{Body, ErrorBody};

/// A protocol rule that a decoded message violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The header is neither RDMA2_CALL_INLINE nor RDMA2_CALL_EXTERNAL. Callers must sort these out
    /// before they check chunks.
    #[error("not an RDMA2_CALL_INLINE or RDMA2_CALL_EXTERNAL")]
    NotACall,
    /// A rule for chunks, which every version has, or for the XID.
    #[error(transparent)]
    Chunks(#[from] rpcrdma_chunks::Violation),
    /// The `msg_type` of the RPC message differs from the direction of the header type, or is
    /// missing.
    #[error("direction {header} in the header, msg_type {payload:?} in the RPC message")]
    Direction {
        /// Direction of the header type.
        header: Direction,
        /// `msg_type` in the RPC message.
        payload: Option<u32>,
    },
}

impl Violation {
    /// Returns the error that the responder must report for a call, or `None` if it must discard
    /// the message silently. Violations in replies are not reported.
    ///
    /// A call longer than the responder allows is not malformed, and no code is meant for it:
    /// RDMA2_ERR_SYSTEM says that the call fails for good (section 7.4.1).
    #[must_use]
    pub fn error(&self) -> Option<ErrorBody> {
        match self {
            Self::NotACall => None,
            Self::Chunks(rpcrdma_chunks::Violation::TooLong { .. }) => Some(ErrorBody::System),
            Self::Chunks(_) | Self::Direction { .. } => Some(ErrorBody::BadXdr),
        }
    }
}

/// Checks the header of a call. `inline` is the number of payload bytes after the header; of a
/// continued call, of all its parts together, because positions count in the whole payload stream.
/// `max_call` is the maximum length of a call, items included, that the responder accepts, in bytes
/// of XDR.
///
/// # Errors
/// The first [`Violation`] found. The call must not be executed.
pub fn check_call(body: Body, inline: u64, max_call: u64) -> Result<CallChunks, Violation> {
    match body {
        Body::Call {
            external, chunks, ..
        } => Ok(CallChunks::new(chunks, external, inline, max_call)?),
        _ => Err(Violation::NotACall),
    }
}

/// Checks that a header and its RPC message have the same XID (section 7.2) and the same direction.
///
/// # Errors
/// The first [`Violation`] found. The message must not be executed or delivered.
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
