//! What a connection allows.

/// The chunks that a header lists, counted: what its length follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Segments in the read list, of all read chunks together.
    pub read_segments: u64,
    /// Chunks in the write list.
    pub write_chunks: u64,
    /// Segments of all those chunks together.
    pub write_segments: u64,
    /// Segments of the reply chunk, when there is one.
    pub reply_segments: Option<u64>,
}

/// What a connection, a protocol version and a device allow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest message that this side may put into one Send, transport header included, bytes: the
    /// inline threshold of this direction (RFC 8166, section 3.3.2).
    pub inline_send: u64,
    /// Longest message that the peer may put into one Send towards this side, bytes.
    pub inline_receive: u64,
    /// Longest piece of memory that one segment covers, bytes. Not zero.
    pub max_segment: u64,
    /// Longest RPC message, bytes of its whole XDR stream, in either direction.
    pub max_message: u64,
    /// Length of the protocol version's transport header with these chunks, bytes.
    pub header_len: fn(&ChunkCounts) -> u64,
}

impl Limits {
    /// Segments that a chunk of `len` bytes is made of: at least one, as a chunk without segments
    /// would be an *empty* chunk, which means something else (RFC 8166, section 4.3.2.3).
    #[must_use]
    pub fn segments(&self, len: u64) -> u64 {
        len.div_ceil(self.max_segment.max(1)).max(1)
    }
}
