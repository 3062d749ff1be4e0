//! Errors in a received header, and the receiver's obligation to answer them (version-two-01,
//! sections 3.1 and 4.2.3; RFC 8166, section 4.5, which applies to both versions).

use rpcrdma_chunks::{Malformed, Role, Side};

use crate::{Direction, ErrorBody, VERSION, Violation};

/// A header that cannot be used. [`HeaderError::answer`] returns the RDMA2_ERROR to send, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The message is too short to hold a header, so that not even its XID can be trusted (RFC
    /// 8166, section 4.5).
    #[error("message of {0} bytes is shorter than any transport header")]
    TooShort(usize),
    /// The header has another protocol version (RFC 8166, section 4.5.1).
    #[error("transport header of version {version} (XID {xid:#010x})")]
    Version {
        /// XID, which is at the same offset in every version.
        xid: u32,
        /// Protocol version of the header.
        version: u32,
        /// Whether the message is an error, which has the same `rdma_proc` in every version. An
        /// error is never answered with an error.
        is_error: bool,
    },
    /// The header does not match its XDR definition (RFC 8166, section 4.5.2).
    #[error("malformed transport header (XID {xid:#010x}): {reason}")]
    Malformed {
        /// XID of the header.
        xid: u32,
        /// Direction of the message, if it could be decoded.
        direction: Option<Direction>,
        /// What is wrong with the header.
        reason: Malformed,
    },
    /// An RDMA2_ERROR that cannot be decoded.
    #[error("malformed RDMA2_ERROR (XID {xid:#010x}): {reason}")]
    BadError {
        /// XID of the header.
        xid: u32,
        /// What is wrong with the header.
        reason: Malformed,
    },
}

/// An RDMA2_ERROR message to send.
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
    /// Creates an RDMA2_ERR_BAD_HEADER: the header or a chunk cannot be used, or the reply fits
    /// neither inline nor in a chunk (RFC 8166, sections 4.5.2 and 4.5.3).
    #[must_use]
    pub fn bad_header(xid: u32) -> Self {
        Self {
            xid,
            version: VERSION,
            error: ErrorBody::BadHeader,
        }
    }

    /// Creates an RDMA2_ERR_INVAL_OPTION: the optional operation is not supported (section 3.1).
    #[must_use]
    pub fn invalid_option(xid: u32) -> Self {
        Self {
            xid,
            version: VERSION,
            error: ErrorBody::InvalidOption,
        }
    }

    /// Returns the error message that the receiver of a call must send for `violation`, or `None`
    /// if it must discard the call silently.
    #[must_use]
    pub fn to_violation(violation: &Violation, xid: u32, role: Role) -> Option<Self> {
        match (role, violation) {
            (Role::Requester, _) | (_, Violation::NotACall) => None,
            (Role::Responder, _) => Some(Self::bad_header(xid)),
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
            | Self::BadError { xid, .. } => Some(xid),
        }
    }

    /// Returns the error message that the receiver must send, or `None` if it must discard the
    /// message silently. Only a responder answers: errors in replies are not reported to the
    /// responder. A header whose direction cannot be decoded counts as forward direction.
    ///
    /// The answer to another protocol version names version 2 as the only supported one. A receiver
    /// that supports several versions must choose between them before this version decodes the
    /// message.
    #[must_use]
    pub fn answer(&self, side: Side) -> Option<Answer> {
        let direction = match self {
            Self::Malformed { direction, .. } => *direction,
            _ => None,
        };
        if side.role(direction) == Role::Requester {
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
            Self::Malformed { xid, .. } => Some(Answer::bad_header(xid)),
            Self::TooShort(_) | Self::Version { is_error: true, .. } | Self::BadError { .. } => {
                None
            }
        }
    }
}
