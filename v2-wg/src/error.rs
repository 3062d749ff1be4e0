//! Errors in a received header, and the receiver's obligation to answer them (version-two-07,
//! section 7).

use rpcrdma_chunks::{Direction, Malformed};

use crate::{ErrorBody, VERSION, header};

/// The reason why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The message is too short to hold a prefix, so that not even its XID can be trusted (section
    /// 7).
    #[error("message of {0} bytes is shorter than any transport header")]
    TooShort(usize),
    /// The header has another protocol version. The caller decides whether that is RDMA2_ERR_VERS
    /// (section 7.1.1), RDMA2_ERR_VERS_MISMATCH (section 7.1.2) or a version that it speaks.
    #[error("transport header of version {version}")]
    Version {
        /// Protocol version of the header.
        version: u32,
        /// Whether the message is an error, which has the same number in every version. An error is
        /// never answered with an error.
        is_error: bool,
    },
    /// The header type is unknown (section 7.1.3).
    #[error("no header type {0}")]
    HeaderType(u32),
    /// The header does not match its XDR definition or a rule for its fields (section 7.2.1).
    #[error("malformed header of type {header_type}: {reason}")]
    Malformed {
        /// Number of the header type.
        header_type: u32,
        /// What is wrong with the header.
        reason: Malformed,
    },
    /// The length of a property's value exceeds the message, or the limit of this crate (sections
    /// 5.1 and 7.2.2).
    #[error("property {id} with a value of {len} bytes")]
    Property {
        /// Number of the property, known or not.
        id: u32,
        /// Length in bytes that the message states.
        len: u32,
    },
    /// The header has more chunks or segments than this crate accepts (sections 7.3.2 and 7.3.3).
    #[error("header of type {header_type} with too many chunks or segments: {error}")]
    Limit {
        /// Number of the header type.
        header_type: u32,
        /// The error that names the limit.
        error: ErrorBody,
    },
    /// An RDMA2_ERROR that cannot be decoded.
    #[error("malformed RDMA2_ERROR: {0}")]
    BadError(Malformed),
}

fn shown(xid: Option<u32>) -> String {
    xid.map_or_else(String::new, |xid| format!(" (XID {xid:#010x})"))
}

/// The reason why [`crate::Header::decode`] refused a header, with the XID to which an error can be
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}{}", shown(*.xid))]
pub struct DecodeError {
    /// XID of the message, or `None` if the message is too short to have one.
    pub xid: Option<u32>,
    /// What is wrong with the header.
    pub error: HeaderError,
}

impl DecodeError {
    /// Returns the error message that the receiver must send, or `None` if it must discard the
    /// message silently.
    ///
    /// The result is `None` for a message without an XID, an error or a reply: errors go from
    /// responder to requester only (section 7.2.1), and the sender of a reply would look for the
    /// XID among its own calls. The result is also `None` for a message of another version, because
    /// that answer depends on the state of the connection.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        let xid = self.xid?;
        let (header_type, error) = match self.error {
            HeaderError::HeaderType(_) => (None, ErrorBody::InvalidHeaderType),
            HeaderError::Malformed { header_type, .. } => (Some(header_type), ErrorBody::BadXdr),
            HeaderError::Property { .. } => (None, ErrorBody::BadPropertyValue),
            HeaderError::Limit { header_type, error } => (Some(header_type), error),
            HeaderError::TooShort(_) | HeaderError::Version { .. } | HeaderError::BadError(_) => {
                return None;
            }
        };
        match header_type.and_then(header::direction) {
            Some(Direction::Reply) => None,
            Some(Direction::Call) | None => Some(Answer::new(xid, error)),
        }
    }
}

/// An RDMA2_ERROR message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// XID of the message being answered.
    pub xid: u32,
    /// Protocol version of the message being answered, which this side may not support (section 7).
    pub version: u32,
    /// The error to report.
    pub error: ErrorBody,
}

impl Answer {
    /// Creates an answer to a message of version 2.
    #[must_use]
    pub fn new(xid: u32, error: ErrorBody) -> Self {
        Self {
            xid,
            version: VERSION,
            error,
        }
    }
}
