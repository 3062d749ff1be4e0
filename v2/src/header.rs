//! Transport headers (version-two-01, section 4.2).

use bytes::Bytes;
use rpcrdma_chunks::{Chunks, Direction, proc};

/// `rdma_proc` of RDMA2_OPTIONAL.
pub const OPTIONAL: u32 = 5;

/// `rpcrdma2_error`: the contents of an RDMA2_ERROR header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorBody {
    /// RDMA2_ERR_VERS: the sender supports only these protocol versions.
    #[error("RDMA2_ERR_VERS ({low} to {high})")]
    Version {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// RDMA2_ERR_BAD_HEADER: the header or a chunk could not be used, or the reply did not fit. The
    /// number is that of version 1's ERR_CHUNK.
    #[error("RDMA2_ERR_BAD_HEADER")]
    BadHeader,
    /// RDMA2_ERR_INVAL_OPTION: the optional operation is not supported (section 3.1).
    #[error("RDMA2_ERR_INVAL_OPTION")]
    InvalidOption,
}

/// `rpcrdma2_optional`: an optional operation, which belongs to an extension (section 3.1). Payload
/// may follow the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optional {
    /// `rdma_optdir`, which applies whether or not payload follows.
    pub direction: Direction,
    /// `rdma_opttype`: the number of the operation.
    pub opttype: u32,
    /// `rdma_optinfo`: the fields of the operation as XDR, whose meaning only the extension knows.
    pub info: Bytes,
}

/// The part of a header after the fixed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA2_MSG: the payload follows the header.
    Msg(Direction, Chunks),
    /// RDMA2_NOMSG: the payload is in a position-zero read chunk or in the reply chunk.
    NoMsg(Direction, Chunks),
    /// RDMA2_ERROR, which is always a reply.
    Error(ErrorBody),
    /// RDMA2_OPTIONAL.
    Optional(Optional),
}

impl Body {
    /// Returns the `rdma_proc` of the header.
    #[must_use]
    pub fn procedure(&self) -> u32 {
        match self {
            Self::Msg(..) => proc::MSG,
            Self::NoMsg(..) => proc::NOMSG,
            Self::Error(_) => proc::ERROR,
            Self::Optional(_) => OPTIONAL,
        }
    }
}

/// A version 2 transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// XID of the RPC message, or of an exchange of optional operations without an RPC message.
    pub xid: u32,
    /// Credits: requested in a call, granted in a reply.
    pub credits: u32,
    /// The fields after the fixed ones.
    pub body: Body,
}

impl Header {
    /// Returns the direction of the message (section 4.2.2).
    #[must_use]
    pub fn direction(&self) -> Direction {
        match &self.body {
            Body::Msg(direction, _) | Body::NoMsg(direction, _) => *direction,
            Body::Error(_) => Direction::Reply,
            Body::Optional(optional) => optional.direction,
        }
    }

    /// Returns the chunk lists, or `None` for a header type that has none.
    #[must_use]
    pub fn chunks(&self) -> Option<&Chunks> {
        match &self.body {
            Body::Msg(_, chunks) | Body::NoMsg(_, chunks) => Some(chunks),
            Body::Error(_) | Body::Optional(_) => None,
        }
    }
}
