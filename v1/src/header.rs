//! Transport headers (RFC 8166, section 4).

use smallvec::SmallVec;

/// `xdr_rdma_segment`: memory of the sender of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// STag or rkey.
    pub handle: u32,
    /// Bytes.
    pub length: u32,
    /// Tagged offset of the first byte.
    pub offset: u64,
}

/// `xdr_read_chunk`: one segment of a read chunk. Segments with the same position are one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// Offset in the XDR stream of the chunk's first byte; zero for a position-zero read chunk.
    pub position: u32,
    /// The memory.
    pub segment: Segment,
}

/// `xdr_write_chunk`: memory that the responder writes one result item, or a whole reply, into.
pub type WriteChunk = SmallVec<[Segment; 1]>;

/// The three chunk lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Read list.
    pub reads: Vec<ReadSegment>,
    /// Write list.
    pub writes: Vec<WriteChunk>,
    /// Reply chunk.
    pub reply: Option<WriteChunk>,
}

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
