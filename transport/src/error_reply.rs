//! RPC-level errors.

use onc_rpc::{AcceptStatus, AuthStat, DecodeError};

/// An RPC-level error reply (RFC 5531, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorReply {
    /// MSG_ACCEPTED with a status other than SUCCESS.
    #[error("{0}")]
    Accepted(AcceptStatus),
    /// MSG_DENIED, AUTH_ERROR.
    #[error("authentication error: {0}")]
    Auth(AuthStat),
    /// MSG_DENIED, RPC_MISMATCH.
    #[error("RPC version mismatch: the server speaks {low} to {high}")]
    RpcMismatch {
        /// The lowest supported RPC version.
        low: u32,
        /// The highest supported RPC version.
        high: u32,
    },
}

/// Arguments that cannot be decoded are answered with GARBAGE_ARGS.
impl From<DecodeError> for ErrorReply {
    fn from(_: DecodeError) -> Self {
        Self::Accepted(AcceptStatus::GarbageArgs)
    }
}
