//! Transport headers (RFC 8166, section 4).

use rpcrdma_chunks::Chunks;

/// The protocol version in `rdma_vers`.
pub const VERSION: u32 = 1;

/// `rdma_error`: what an RDMA_ERROR header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// ERR_VERS: the responder speaks only these versions.
    Version {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
    /// ERR_CHUNK: the header or a chunk could not be used, or the reply did not fit.
    Chunk,
}

/// What follows the fixed fields.
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
    /// The RPC message's XID.
    pub xid: u32,
    /// Credits: asked for by a requester, granted by a responder.
    pub credits: u32,
    /// The rest.
    pub body: Body,
}
