//! What is wrong with a received header, and what its receiver must do (version-two-01, sections
//! 3.1 and 4.2.3; RFC 8166, section 4.5, which goes for both versions).

use bytes::Bytes;
use rpcrdma_chunks::{Malformed, Role};

use crate::codec::{VERSION, encode_error};
use crate::{Direction, ErrorBody, Violation};

/// The end of the connection that a receiver is at. It never changes, unlike the part played in a
/// transaction: a client is also the responder of calls in the other direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// It made the connection.
    Client,
    /// It accepted the connection.
    Server,
}

impl Side {
    /// The part that the receiver of a message plays: what its direction says, or, if that cannot
    /// be read, the part that this side plays in the forward direction.
    #[must_use]
    pub fn role(self, direction: Option<Direction>) -> Role {
        match (direction, self) {
            (Some(direction), _) => direction.receiver(),
            (None, Self::Client) => Role::Requester,
            (None, Self::Server) => Role::Responder,
        }
    }
}

/// A header that cannot be used. [`HeaderError::answer`] says whether the sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Too short to hold a header: not even its XID can be trusted (RFC 8166, section 4.5).
    #[error("message of {0} bytes is shorter than any transport header")]
    TooShort(usize),
    /// Another version of the protocol (RFC 8166, section 4.5.1).
    #[error("transport header of version {version} (XID {xid:#010x})")]
    Version {
        /// Its transaction id, at the same place in every version.
        xid: u32,
        /// Its version.
        version: u32,
        /// Whether it is an error, whose number is the same in every version. An error is never
        /// answered with an error.
        is_error: bool,
    },
    /// The header is not what its XDR definition says (RFC 8166, section 4.5.2).
    #[error("malformed transport header (XID {xid:#010x}): {reason}")]
    Malformed {
        /// Its transaction id.
        xid: u32,
        /// Its direction, if that could be read.
        direction: Option<Direction>,
        /// What is wrong.
        reason: Malformed,
    },
    /// An RDMA2_ERROR that cannot be decoded.
    #[error("malformed RDMA2_ERROR (XID {xid:#010x}): {reason}")]
    BadError {
        /// Its transaction id.
        xid: u32,
        /// What is wrong.
        reason: Malformed,
    },
}

/// An RDMA2_ERROR to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of the message it answers.
    pub xid: u32,
    /// Of the message it answers, spoken here or not.
    pub version: u32,
    /// What it says.
    pub error: ErrorBody,
}

impl Answer {
    /// RDMA2_ERR_BAD_HEADER: the header or a chunk cannot be used, or the reply fits nowhere
    /// (RFC 8166, sections 4.5.2 and 4.5.3).
    #[must_use]
    pub fn bad_header(xid: u32) -> Self {
        Self {
            xid,
            version: VERSION,
            error: ErrorBody::BadHeader,
        }
    }

    /// RDMA2_ERR_INVAL_OPTION: the optional operation is not known here (section 3.1).
    #[must_use]
    pub fn invalid_option(xid: u32) -> Self {
        Self {
            xid,
            version: VERSION,
            error: ErrorBody::InvalidOption,
        }
    }

    /// The error message that the receiver of a call must send when a rule is violated; nothing
    /// when it must discard the message silently.
    #[must_use]
    pub fn to_violation(violation: &Violation, xid: u32, role: Role) -> Option<Self> {
        match (role, violation) {
            (Role::Requester, _) | (_, Violation::NotACall) => None,
            (Role::Responder, _) => Some(Self::bad_header(xid)),
        }
    }

    /// The answer as XDR, granting `credits`.
    #[must_use]
    pub fn encode(&self, credits: u32) -> Bytes {
        encode_error(self.xid, self.version, credits, self.error)
    }
}

impl HeaderError {
    /// The transaction it belongs to, as far as the header can be trusted.
    #[must_use]
    pub fn xid(&self) -> Option<u32> {
        match *self {
            Self::TooShort(_) => None,
            Self::Version { xid, .. }
            | Self::Malformed { xid, .. }
            | Self::BadError { xid, .. } => Some(xid),
        }
    }

    /// The error message that the receiver must send; nothing when it must discard the message
    /// silently. Only a responder ever answers: what is wrong with a reply is not reported to the
    /// responder. A header whose direction cannot be read counts as one of the forward direction.
    ///
    /// A message of another version is answered as by one who speaks only this one. Where several
    /// are accepted, that is decided before this version looks at the message.
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
