//! Transport headers (RFC 8166, section 4).

use rpcrdma_chunks::Chunks;

/// The protocol version in `rdma_vers`.
pub const VERSION: u32 = 1;

/// `rdma_error`: what an RDMA_ERROR header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// ERR_VERS: the responder supports only these protocol versions.
    Version {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// ERR_CHUNK: the header or a chunk could not be used, or the reply did not fit.
    Chunk,
}

/// The part of a header after the fixed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA_MSG: the payload follows the header.
    Msg(Chunks),
    /// RDMA_NOMSG: the payload is in a position-zero read chunk or in the reply chunk.
    NoMsg(Chunks),
    /// RDMA_ERROR.
    Error(ErrorBody),
}

/// A version 1 transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// XID of the RPC message.
    pub xid: u32,
    /// Credits: requested in a call, granted in a reply.
    pub credits: u32,
    /// The fields after the fixed ones.
    pub body: Body,
}
