//! Errors in a received header, and the receiver's obligation to answer them (RFC 8166, sections
//! 4.5 and 4.6).

use rpcrdma_chunks::{Malformed, Role, Violation};

use crate::header::{ErrorBody, VERSION};

/// A header that cannot be used. [`HeaderError::answer`] returns the RDMA_ERROR to send, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The message is too short to hold a header, so that not even its XID can be trusted (section
    /// 4.5).
    #[error("message of {0} bytes is shorter than any transport header")]
    TooShort(usize),
    /// The header has another protocol version (section 4.5.1).
    #[error("transport header of version {version} (XID {xid:#010x})")]
    Version {
        /// XID, which is at the same offset in every version.
        xid: u32,
        /// Protocol version of the header.
        version: u32,
        /// Whether the message is an RDMA_ERROR, which has the same `rdma_proc` in every version.
        /// An error is never answered with an error.
        is_error: bool,
    },
    /// The header does not match its XDR definition (section 4.5.2).
    #[error("malformed transport header (XID {xid:#010x}): {reason}")]
    Malformed {
        /// XID of the header.
        xid: u32,
        /// What is wrong with the header.
        reason: Malformed,
    },
    /// RDMA_MSGP, which must not be sent (section 4.6.1).
    #[error("RDMA_MSGP is not supported (XID {xid:#010x})")]
    Msgp {
        /// XID of the header.
        xid: u32,
    },
    /// RDMA_DONE, which must not be sent (section 4.6.2).
    #[error("RDMA_DONE is not supported (XID {xid:#010x})")]
    Done {
        /// XID of the header.
        xid: u32,
    },
    /// An RDMA_ERROR that cannot be decoded (section 4.5).
    #[error("malformed RDMA_ERROR (XID {xid:#010x}): {reason}")]
    BadError {
        /// XID of the header.
        xid: u32,
        /// What is wrong with the header.
        reason: Malformed,
    },
}

/// An RDMA_ERROR message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// XID of the message being answered.
    pub xid: u32,
    /// Protocol version of the message being answered, which this side may not support.
    pub version: u32,
    /// The error to report.
    pub error: ErrorBody,
}

impl Answer {
    /// Creates an ERR_CHUNK for a call of this version: a chunk cannot be used, or the reply fits
    /// neither inline nor in a chunk (sections 4.5.2 and 4.5.3).
    #[must_use]
    pub fn chunk(xid: u32) -> Self {
        Self {
            xid,
            version: VERSION,
            error: ErrorBody::Chunk,
        }
    }

    /// Returns the error message that the receiver of a call must send for `violation`, or `None`
    /// if it must discard the call silently (sections 4.2.4, 4.5 and 4.5.2).
    #[must_use]
    pub fn to_violation(violation: &Violation, xid: u32, role: Role) -> Option<Self> {
        match (role, violation) {
            (Role::Requester, _) | (_, Violation::ErrorProcedure) => None,
            (Role::Responder, _) => Some(Self::chunk(xid)),
        }
    }
}

impl HeaderError {
    /// Returns the XID of the message, or `None` if the header is too short to be trusted.
    #[must_use]
    pub fn xid(&self) -> Option<u32> {
        match *self {
            Self::TooShort(_) => None,
            Self::Version { xid, .. }
            | Self::Malformed { xid, .. }
            | Self::Msgp { xid }
            | Self::Done { xid }
            | Self::BadError { xid, .. } => Some(xid),
        }
    }

    /// Returns the error message that the receiver must send, or `None` if it must discard the
    /// message silently. Only a responder answers: errors in replies are not reported to the
    /// responder (section 4.5).
    #[must_use]
    pub fn answer(&self, role: Role) -> Option<Answer> {
        if role == Role::Requester {
            return None;
        }
        match *self {
            Self::Version {
                xid,
                version,
                is_error: false,
            } => Some(Answer {
                xid,
                version,
                error: ErrorBody::Version {
                    low: VERSION,
                    high: VERSION,
                },
            }),
            Self::Malformed { xid, .. } | Self::Msgp { xid } => Some(Answer::chunk(xid)),
            Self::TooShort(_)
            | Self::Version { is_error: true, .. }
            | Self::Done { .. }
            | Self::BadError { .. } => None,
        }
    }
}
