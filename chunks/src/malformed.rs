//! What can be wrong with the form of a header.

/// A header, or what it carries, is not what its XDR definition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends in the middle of a field.
    #[error("the message ends within the header")]
    Truncated,
    /// A word that says whether list elements follow is neither 0 nor 1.
    #[error("{0} is not a boolean")]
    Boolean(u32),
    /// `rdma_proc` has no such value.
    #[error("no procedure {0}")]
    Procedure(u32),
    /// `rdma_err` has no such value.
    #[error("no error code {0}")]
    ErrorCode(u32),
    /// A list is longer than the limits in this crate allow.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A field holds a number that its enumeration does not have.
    #[error("{0} has no value {1}")]
    Enumeration(&'static str, u32),
    /// Bytes that fill an opaque up to a multiple of four are not zero (RFC 4506, section 4.10).
    #[error("round-up that is not zero")]
    RoundUp,
    /// Its fields are of their types, and contradict each other or a rule of their document.
    #[error("{0}")]
    Rule(&'static str),
    /// Bytes follow the last field of something with a length of its own.
    #[error("{0} bytes after the last field")]
    Trailing(usize),
}
