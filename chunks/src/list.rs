//! Segments and chunk lists (sections 3.4 and 4.1.2; version-two-01, section 4.2).

use smallvec::SmallVec;

/// `xdr_rdma_segment`: a range of registered memory at the sender of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Steering tag: the handle of the registered memory (STag of iWARP, R_Key of InfiniBand).
    pub handle: u32,
    /// Length in bytes.
    pub length: u32,
    /// Tagged offset of the first byte.
    pub offset: u64,
}

/// `xdr_read_chunk`: one segment of a read chunk. Segments with the same position form one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// Offset in the XDR stream of the chunk's first byte; zero for a position-zero read chunk.
    pub position: u32,
    /// The memory to read from.
    pub segment: Segment,
}

/// `xdr_write_chunk`: memory into which the responder writes one result item, or a whole reply.
pub type WriteChunk = SmallVec<[Segment; 1]>;

/// The three chunk lists of a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Read list.
    pub reads: Vec<ReadSegment>,
    /// Write list.
    pub writes: Vec<WriteChunk>,
    /// Reply chunk.
    pub reply: Option<WriteChunk>,
}

impl Chunks {
    /// Returns every handle in the lists. These are the handles that a Send With Invalidate for the
    /// same XID may name (RFC 8797, section 4.1).
    pub fn handles(&self) -> impl Iterator<Item = u32> {
        let reads = self.reads.iter().map(|read| read.segment.handle);
        let writes = self.writes.iter().chain(&self.reply).flatten();
        reads.chain(writes.map(|segment| segment.handle))
    }

    /// Returns whether all three lists are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }
}
