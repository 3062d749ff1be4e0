//! Errors in the form of a header.

/// A header, or information inside it, does not match its XDR definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message ends in the middle of a field.
    #[error("the message ends within the header")]
    Truncated,
    /// A word that tells whether list elements follow is neither 0 nor 1.
    #[error("{0} is not a boolean")]
    Boolean(u32),
    /// `rdma_proc` has a value that this protocol version does not define.
    #[error("no procedure {0}")]
    Procedure(u32),
    /// `rdma_err` has a value that this protocol version does not define.
    #[error("no error code {0}")]
    ErrorCode(u32),
    /// A list exceeds the limits of this crate.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A field holds a number that is not in its enumeration.
    #[error("{0} has no value {1}")]
    Enumeration(&'static str, u32),
    /// The round-up of an opaque to a multiple of four bytes is not zero (RFC 4506, section 4.10).
    #[error("nonzero XDR round-up")]
    RoundUp,
    /// The fields have the right types but contradict each other or a rule of their specification.
    #[error("{0}")]
    Rule(&'static str),
    /// Bytes follow the last field of a structure that has a length of its own.
    #[error("{0} bytes after the last field")]
    Trailing(usize),
}
