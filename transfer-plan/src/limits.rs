//! Limits of a connection.

/// The number of chunks and segments that a header lists, from which its length follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Segments in the read list, of all read chunks together.
    pub read_segments: u64,
    /// Chunks in the write list.
    pub write_chunks: u64,
    /// Segments of all write chunks together.
    pub write_segments: u64,
    /// Segments of the reply chunk, if there is one.
    pub reply_segments: Option<u64>,
}

/// The limits of a connection, its protocol version and its device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length in bytes of a Send by this side, transport header included: the inline
    /// threshold of this direction (RFC 8166, section 3.3.2).
    pub inline_send: u64,
    /// Maximum length in bytes of a Send by the peer.
    pub inline_receive: u64,
    /// Maximum length in bytes of the memory that one segment covers. Not zero.
    pub max_segment: u64,
    /// Maximum length in bytes of the whole XDR stream of an RPC message, in either direction.
    pub max_message: u64,
    /// Returns the length in bytes of the protocol version's transport header with these chunks.
    pub header_len: fn(&ChunkCounts) -> u64,
}

impl Limits {
    /// Returns the number of segments of a chunk of `len` bytes. At least one, because a chunk
    /// without segments is an *empty* chunk, which means something else (RFC 8166, section
    /// 4.3.2.3).
    #[must_use]
    pub fn segments(&self, len: u64) -> u64 {
        len.div_ceil(self.max_segment.max(1)).max(1)
    }
}
