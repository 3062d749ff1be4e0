//! Transport headers (version-two-07, sections 6.1 to 6.4).

use std::ops::RangeInclusive;

use rpcrdma_chunks::{Chunks, Direction, Fixed};

use crate::Property;

/// Numbers of header types (`rdma_htype`, section 6.1, table 2).
pub mod header_type {
    /// RDMA2_ERROR. The same number as in every version, so that a receiver never answers an error
    /// with an error.
    pub const ERROR: u32 = 4;
    /// RDMA2_GRANT: the message consists of the prefix.
    pub const GRANT: u32 = 5;
    /// RDMA2_CONNPROP_MIDDLE: properties, and more follow.
    pub const CONNPROP_MIDDLE: u32 = 6;
    /// RDMA2_CONNPROP_FINAL: the last properties.
    pub const CONNPROP_FINAL: u32 = 7;
    /// RDMA2_CALL_EXTERNAL: a call whose payload is in a call chunk.
    pub const CALL_EXTERNAL: u32 = 8;
    /// RDMA2_CALL_MIDDLE: a part of a continued call, and more follow.
    pub const CALL_MIDDLE: u32 = 9;
    /// RDMA2_CALL_INLINE: a call, or the last part of a continued one.
    pub const CALL_INLINE: u32 = 10;
    /// RDMA2_REPLY_EXTERNAL: a reply whose payload is in the reply chunk.
    pub const REPLY_EXTERNAL: u32 = 11;
    /// RDMA2_REPLY_MIDDLE: a part of a continued reply, and more follow.
    pub const REPLY_MIDDLE: u32 = 12;
    /// RDMA2_REPLY_INLINE: a reply, or the last part of a continued one.
    pub const REPLY_INLINE: u32 = 13;
}

/// Range of numbers for experimental header types, properties and error codes. The draft refers to
/// such a range (appendix B.3) but no longer says which it is; this is the one of xcharext-02,
/// section 6.2.
pub const EXPERIMENTAL: RangeInclusive<u32> = 0xffff_ff00..=0xffff_ffff;

/// Returns the direction of messages with this header type, or `None` if it is unknown or belongs
/// to neither direction (grants and properties). An error always goes from responder to requester:
/// its XID is that of a message that its receiver sent.
pub(crate) fn direction(number: u32) -> Option<Direction> {
    match number {
        header_type::CALL_EXTERNAL | header_type::CALL_MIDDLE | header_type::CALL_INLINE => {
            Some(Direction::Call)
        }
        header_type::ERROR
        | header_type::REPLY_EXTERNAL
        | header_type::REPLY_MIDDLE
        | header_type::REPLY_INLINE => Some(Direction::Reply),
        _ => None,
    }
}

/// `rpcrdma_common`, the only part of `rpcrdma2_hdr_prefix`: the words with which every header
/// begins (sections 6.2.1 and 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// `rdma_xid`: XID of the RPC message. Ignored in a grant (section 6.3.2).
    pub xid: u32,
    /// `rdma_vers`: protocol version.
    pub version: u32,
    /// `rdma_credit`: the total number of messages, modulo 2^32, that the receiver of this message
    /// may have sent on the connection (section 4.2.1).
    pub credit: u32,
    /// `rdma_htype`: number of the header type, which need not be a known one.
    pub header_type: u32,
}

impl Prefix {
    /// Decodes the prefix of a message of any version. Returns `None` if the message is shorter
    /// than [`crate::limits::PREFIX_LEN`].
    #[must_use]
    pub fn peek(message: &[u8]) -> Option<Self> {
        let fixed = Fixed::peek(message)?;
        Some(Self {
            xid: fixed.xid,
            version: fixed.version,
            credit: fixed.credits,
            header_type: fixed.procedure,
        })
    }
}

/// `rpcrdma2_hdr_error`: the contents of an RDMA2_ERROR header (sections 6.3.1 and 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ErrorBody {
    /// RDMA2_ERR_VERS: the sender supports only these protocol versions (section 7.1.1).
    #[error("RDMA2_ERR_VERS ({low} to {high})")]
    Version {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// RDMA2_ERR_BAD_XDR: the header cannot be decoded (section 7.2.1).
    #[error("RDMA2_ERR_BAD_XDR")]
    BadXdr,
    /// RDMA2_ERR_BAD_PROPVAL: the value of a known property cannot be decoded (section 7.2.2).
    #[error("RDMA2_ERR_BAD_PROPVAL")]
    BadPropertyValue,
    /// RDMA2_ERR_INVAL_HTYPE: the header type is unknown or not supported (section 7.1.3).
    #[error("RDMA2_ERR_INVAL_HTYPE")]
    InvalidHeaderType,
    /// RDMA2_ERR_INVAL_CONT: the message does not belong where it stands in a continued message or
    /// an exchange of properties (sections 6.3.3, 6.3.4, 6.3.6, 6.3.9 and 7.1.4).
    #[error("RDMA2_ERR_INVAL_CONT")]
    InvalidContinuation,
    /// RDMA2_ERR_READ_CHUNKS: the call has more read chunks than the responder can fetch (section
    /// 7.3.1).
    #[error("RDMA2_ERR_READ_CHUNKS (at most {max})")]
    ReadChunks {
        /// Maximum number of read chunks.
        max: u32,
    },
    /// RDMA2_ERR_WRITE_CHUNKS: the call has more write chunks than the responder can fill (section
    /// 7.3.2).
    #[error("RDMA2_ERR_WRITE_CHUNKS (at most {max})")]
    WriteChunks {
        /// Maximum number of write chunks.
        max: u32,
    },
    /// RDMA2_ERR_SEGMENTS: a chunk has more segments than the responder supports (section 7.3.3).
    #[error("RDMA2_ERR_SEGMENTS (at most {max})")]
    Segments {
        /// Maximum number of segments.
        max: u32,
    },
    /// RDMA2_ERR_WRITE_RESOURCE: a result does not fit its write chunk (section 7.3.4).
    #[error("RDMA2_ERR_WRITE_RESOURCE (chunk {chunk} needs {needed} bytes)")]
    WriteResource {
        /// Number of the first write chunk that is too short, counted from 1; 0 if it is not known.
        chunk: u32,
        /// Length in bytes that the chunk needs.
        needed: u32,
    },
    /// RDMA2_ERR_REPLY_RESOURCE: the reply does not fit the reply chunk and cannot be continued
    /// (section 7.3.5).
    #[error("RDMA2_ERR_REPLY_RESOURCE ({needed} bytes needed)")]
    ReplyResource {
        /// Length in bytes that the reply chunk needs; 0 if a longer one would not help.
        needed: u32,
    },
    /// RDMA2_ERR_VERS_MISMATCH: the message has another version than earlier ones of the connection
    /// (section 7.1.2).
    #[error("RDMA2_ERR_VERS_MISMATCH")]
    VersionMismatch,
    /// RDMA2_ERR_SYSTEM: a problem at the responder that no other code describes (section 7.4.1).
    #[error("RDMA2_ERR_SYSTEM")]
    System,
    /// A code that this crate does not know, which is none of the codes above. The receiver
    /// discards the message silently (section 7).
    #[error("error code {0}")]
    Other(u32),
}

impl ErrorBody {
    /// Returns `rdma_err`, the number of the error.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Version { .. } => 1,
            Self::BadXdr => 2,
            Self::BadPropertyValue => 3,
            Self::InvalidHeaderType => 4,
            Self::InvalidContinuation => 5,
            Self::ReadChunks { .. } => 6,
            Self::WriteChunks { .. } => 7,
            Self::Segments { .. } => 8,
            Self::WriteResource { .. } => 9,
            Self::ReplyResource { .. } => 10,
            Self::VersionMismatch => 11,
            Self::System => 100,
            Self::Other(code) => code,
        }
    }
}

/// The part of a header after the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA2_ERROR.
    Error(ErrorBody),
    /// RDMA2_GRANT.
    Grant,
    /// RDMA2_CONNPROP_MIDDLE or RDMA2_CONNPROP_FINAL.
    Properties {
        /// Whether these are the last properties of the sender (RDMA2_CONNPROP_FINAL).
        last: bool,
        /// `rdma_props`: the properties, whose order has no meaning.
        properties: Vec<Property>,
    },
    /// RDMA2_CALL_EXTERNAL or RDMA2_CALL_INLINE.
    Call {
        /// Whether the payload is in the call chunk (RDMA2_CALL_EXTERNAL). The call chunk consists
        /// of the entries of `chunks.reads` with position zero: an external call has at least one,
        /// and an inline call has none.
        external: bool,
        /// `rdma_inv_handle`: the handle that the reply may invalidate (Send With Invalidate), one
        /// of those in `chunks`; zero if there is none (section 6.5).
        inv_handle: u32,
        /// Call chunk and read chunks, whose positions never decrease, and the chunks provided for
        /// the reply.
        chunks: Chunks,
    },
    /// RDMA2_REPLY_EXTERNAL or RDMA2_REPLY_INLINE.
    Reply {
        /// Whether the payload is in the reply chunk (RDMA2_REPLY_EXTERNAL).
        external: bool,
        /// The write list; and the reply chunk if the reply is external. The header of an inline
        /// reply has no place for a reply chunk, and none has a place for a read list.
        chunks: Chunks,
    },
    /// RDMA2_CALL_MIDDLE or RDMA2_REPLY_MIDDLE.
    Middle {
        /// Whether the message belongs to a call or a reply.
        direction: Direction,
        /// `rdma_remaining`: number of bytes of the payload that follow in later messages.
        remaining: u32,
    },
}

impl Body {
    /// Returns `rdma_htype`, the number of the header type.
    #[must_use]
    pub fn header_type(&self) -> u32 {
        match self {
            Self::Error(_) => header_type::ERROR,
            Self::Grant => header_type::GRANT,
            Self::Properties { last: false, .. } => header_type::CONNPROP_MIDDLE,
            Self::Properties { last: true, .. } => header_type::CONNPROP_FINAL,
            Self::Call { external: true, .. } => header_type::CALL_EXTERNAL,
            Self::Call { .. } => header_type::CALL_INLINE,
            Self::Reply { external: true, .. } => header_type::REPLY_EXTERNAL,
            Self::Reply { .. } => header_type::REPLY_INLINE,
            Self::Middle { direction, .. } => match direction {
                Direction::Call => header_type::CALL_MIDDLE,
                Direction::Reply => header_type::REPLY_MIDDLE,
            },
        }
    }

    /// Returns the direction of the message, or `None` for grants and properties, which belong to
    /// neither. An error is a reply.
    #[must_use]
    pub fn direction(&self) -> Option<Direction> {
        direction(self.header_type())
    }

    /// Returns whether payload follows the header (section 6.1, table 2, column "Msg").
    #[must_use]
    pub fn has_payload(&self) -> bool {
        matches!(
            self,
            Self::Middle { .. }
                | Self::Call {
                    external: false,
                    ..
                }
                | Self::Reply {
                    external: false,
                    ..
                }
        )
    }

    /// Returns the chunk lists, or `None` for a header type that has none.
    #[must_use]
    pub fn chunks(&self) -> Option<&Chunks> {
        match self {
            Self::Call { chunks, .. } | Self::Reply { chunks, .. } => Some(chunks),
            _ => None,
        }
    }
}

/// A transport header of the working group's version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// `rdma_xid`: XID of the RPC message, or of an exchange of properties; zero in a grant.
    pub xid: u32,
    /// `rdma_credit`: the total number of messages, modulo 2^32, that the receiver of this message
    /// may have sent on the connection (section 4.2.1).
    pub credit: u32,
    /// The fields after the prefix.
    pub body: Body,
}

impl Header {
    /// Creates an RDMA2_GRANT, whose XID is zero (section 6.3.2). The XID of a received one means
    /// nothing.
    #[must_use]
    pub fn grant(credit: u32) -> Self {
        Self {
            xid: 0,
            credit,
            body: Body::Grant,
        }
    }
}
