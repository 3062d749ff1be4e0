//! Transport headers (version-two-01, section 4.2).

use std::fmt;

use bytes::Bytes;
use rpcrdma_chunks::{Chunks, Role, proc};

/// `rdma_proc` of RDMA2_OPTIONAL.
pub const OPTIONAL: u32 = 5;

/// `rdma_direction` and `rdma_optdir`: the `msg_type` of the RPC message that a header belongs to
/// (section 4.2.2).
///
/// It says in whose XID space the header's XID is, and whether its credits are asked for or
/// granted: calls go out from a requester, whichever end of the connection that is, and replies
/// come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From requester to responder.
    Call,
    /// From responder to requester.
    Reply,
}

impl Direction {
    /// Its number (RFC 5531, section 9).
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Call => onc_rpc::CALL,
            Self::Reply => onc_rpc::REPLY,
        }
    }

    /// From its number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            onc_rpc::CALL => Some(Self::Call),
            onc_rpc::REPLY => Some(Self::Reply),
            _ => None,
        }
    }

    /// The part that the receiver of such a message plays.
    #[must_use]
    pub const fn receiver(self) -> Role {
        match self {
            Self::Call => Role::Responder,
            Self::Reply => Role::Requester,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "CALL",
            Self::Reply => "REPLY",
        })
    }
}

/// `rpcrdma2_error`: what an RDMA2_ERROR header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorBody {
    /// RDMA2_ERR_VERS: only these versions are spoken.
    #[error("RDMA2_ERR_VERS ({low} to {high})")]
    Version {
        /// Lowest.
        low: u32,
        /// Highest.
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

/// `rpcrdma2_optional`: an operation of an extension (section 3.1). Payload may follow the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optional {
    /// Direction, with or without payload.
    pub direction: Direction,
    /// Which operation.
    pub opttype: u32,
    /// Its fields as XDR: what they mean, only the extension knows.
    pub info: Bytes,
}

/// What follows the fixed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA2_MSG: the payload follows the header.
    Msg(Direction, Chunks),
    /// RDMA2_NOMSG: the payload is in a position-zero read chunk or in the reply chunk.
    NoMsg(Direction, Chunks),
    /// RDMA2_ERROR, always a reply.
    Error(ErrorBody),
    /// RDMA2_OPTIONAL.
    Optional(Optional),
}

impl Body {
    /// Its `rdma_proc`.
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
    /// The RPC message's XID, or that of an exchange without one.
    pub xid: u32,
    /// Credits: asked for in a call, granted in a reply.
    pub credits: u32,
    /// The rest.
    pub body: Body,
}

impl Header {
    /// Which way it goes (section 4.2.2).
    #[must_use]
    pub fn direction(&self) -> Direction {
        match &self.body {
            Body::Msg(direction, _) | Body::NoMsg(direction, _) => *direction,
            Body::Error(_) => Direction::Reply,
            Body::Optional(optional) => optional.direction,
        }
    }

    /// Its chunk lists, if it is of a kind that has them.
    #[must_use]
    pub fn chunks(&self) -> Option<&Chunks> {
        match &self.body {
            Body::Msg(_, chunks) | Body::NoMsg(_, chunks) => Some(chunks),
            Body::Error(_) | Body::Optional(_) => None,
        }
    }
}
