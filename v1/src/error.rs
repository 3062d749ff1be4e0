//! What is wrong with a received header, and what its receiver must do (RFC 8166, sections 4.5 and
//! 4.6).

use rpcrdma_chunks::{Malformed, Role, Violation};

use crate::header::{ErrorBody, VERSION};

/// A header that cannot be used. [`HeaderError::answer`] says whether the sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Too short to hold a header: not even its XID can be trusted (section 4.5).
    #[error("message of {0} bytes is shorter than any transport header")]
    TooShort(usize),
    /// Another version of the protocol (section 4.5.1).
    #[error("transport header of version {version} (XID {xid:#010x})")]
    Version {
        /// Its transaction id, at the same place in every version.
        xid: u32,
        /// Its version.
        version: u32,
        /// Whether it is an RDMA_ERROR, whose number is the same in every version. An error is
        /// never answered with an error.
        is_error: bool,
    },
    /// The header is not what its XDR definition says (section 4.5.2).
    #[error("malformed transport header (XID {xid:#010x}): {reason}")]
    Malformed {
        /// Its transaction id.
        xid: u32,
        /// What is wrong.
        reason: Malformed,
    },
    /// RDMA_MSGP, which nobody may send (section 4.6.1).
    #[error("RDMA_MSGP is not supported (XID {xid:#010x})")]
    Msgp {
        /// Its transaction id.
        xid: u32,
    },
    /// RDMA_DONE, which nobody may send (section 4.6.2).
    #[error("RDMA_DONE is not supported (XID {xid:#010x})")]
    Done {
        /// Its transaction id.
        xid: u32,
    },
    /// An RDMA_ERROR that cannot be decoded (section 4.5).
    #[error("malformed RDMA_ERROR (XID {xid:#010x}): {reason}")]
    BadError {
        /// Its transaction id.
        xid: u32,
        /// What is wrong.
        reason: Malformed,
    },
}

/// An RDMA_ERROR to send.
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
    /// ERR_CHUNK to a call of this version: a chunk cannot be used, or the reply fits nowhere
    /// (sections 4.5.2 and 4.5.3).
    #[must_use]
    pub fn chunk(xid: u32) -> Self {
        Self {
            xid,
            version: VERSION,
            error: ErrorBody::Chunk,
        }
    }

    /// The error message that the receiver of a call must send when a rule is violated; nothing
    /// when it must discard the message silently (sections 4.2.4, 4.5 and 4.5.2).
    #[must_use]
    pub fn to_violation(violation: &Violation, xid: u32, role: Role) -> Option<Self> {
        match (role, violation) {
            (Role::Requester, _) | (_, Violation::ErrorProcedure) => None,
            (Role::Responder, _) => Some(Self::chunk(xid)),
        }
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
            | Self::Msgp { xid }
            | Self::Done { xid }
            | Self::BadError { xid, .. } => Some(xid),
        }
    }

    /// The error message that the receiver must send; nothing when it must discard the message
    /// silently. Only a responder ever answers: what is wrong with a reply is not reported to the
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
