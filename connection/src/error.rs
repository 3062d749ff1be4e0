//! Errors of calls.

/// The reason why a call ended without a reply. Its connection may continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The call, or the longest reply that it may have, is longer than the connection or its memory
    /// allows; or it needs chunks, and the peer accepts none.
    #[error("the call cannot be sent: {0}")]
    TooLarge(String),
    /// The responder answered with ERR_CHUNK (RFC 8166, section 4.5.3), or with an error of version
    /// 2 that means the same: the reply fitted neither inline nor into the chunks that were
    /// offered, or the chunks could not be used. The text begins with the name that the error has
    /// in the version of the connection.
    #[error("the responder answered with {0}")]
    Chunk(String),
    /// The responder violated the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// A server called a client that takes no calls, or from which nothing has arrived yet, or this server is
    /// not configured to make calls.
    #[error("the client takes no calls: {0}")]
    NoCallbacks(String),
    /// This end is ending the connection, and makes no further calls over it.
    #[error("this end is ending the connection")]
    Ending,
}
