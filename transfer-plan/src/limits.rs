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
    /// Whether the payload of the call is a chunk as well. Its segments count in the read list; some
    /// versions have a list of its own for them (version-two-07, section 6.3.5).
    pub position_zero: bool,
}

impl ChunkCounts {
    /// Returns the number of segments in all lists.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.read_segments + self.write_segments + self.reply_segments.unwrap_or(0)
    }
}

/// The maximum numbers of chunks and segments in the header of a call that its responder takes. By
/// default there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Maximum number of read chunks. A position-zero read chunk does not count.
    pub read_chunks: u32,
    /// Maximum number of write chunks.
    pub write_chunks: u32,
    /// Maximum number of segments of all chunks together (version-two-07, section 5.2.4).
    pub segments: u32,
    /// Whether the payload of a call may be in a position-zero read chunk. Not if the peer has refused
    /// RDMA2_CALL_EXTERNAL (version-two-07, section 7.1.3).
    pub position_zero: bool,
}

impl ChunkLimits {
    /// Returns the stricter of both limits, each by itself.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            read_chunks: self.read_chunks.min(other.read_chunks),
            write_chunks: self.write_chunks.min(other.write_chunks),
            segments: self.segments.min(other.segments),
            position_zero: self.position_zero && other.position_zero,
        }
    }

    /// Returns whether a header may list so many chunks and segments.
    #[must_use]
    pub fn allow(&self, read_chunks: usize, write_chunks: usize, segments: u64) -> bool {
        read_chunks as u64 <= u64::from(self.read_chunks)
            && write_chunks as u64 <= u64::from(self.write_chunks)
            && segments <= u64::from(self.segments)
    }
}

impl Default for ChunkLimits {
    fn default() -> Self {
        Self {
            read_chunks: u32::MAX,
            write_chunks: u32::MAX,
            segments: u32::MAX,
            position_zero: true,
        }
    }
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
    /// Maximum numbers of chunks and segments in the header of a call.
    pub chunks: ChunkLimits,
    /// Returns the length in bytes of the protocol version's transport header with these chunks.
    pub header_len: fn(&ChunkCounts) -> u64,
    /// Whether the protocol version has a call chunk for the payload of a long call (version-two-07,
    /// section 6.3.5). Otherwise the chunk is a read chunk at position zero. Only the text of plans
    /// depends on it.
    pub call_chunk: bool,
}

impl Limits {
    /// Returns the number of segments of a chunk of `len` bytes. At least one, because a chunk
    /// without segments is an *empty* chunk, which means something else (RFC 8166, section
    /// 4.3.2.3).
    #[must_use]
    pub fn segments(&self, len: u64) -> u64 {
        len.div_ceil(self.max_segment.max(1)).max(1)
    }

    /// Returns whether a call with these chunks can be sent with `payload` bytes after its header.
    #[must_use]
    pub fn fits(&self, counts: &ChunkCounts, payload: u64) -> bool {
        let len = (self.header_len)(counts).checked_add(payload);
        len.is_some_and(|len| len <= self.inline_send)
            && counts.segments() <= u64::from(self.chunks.segments)
    }
}
