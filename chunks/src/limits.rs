//! Limits on the contents of a header. The protocol sets none: neither on the length of a chunk
//! (section 3.4.4), nor on the numbers of segments and chunks. These bound the
//! memory that one message can claim, and are far above what any known peer sends: a megabyte in
//! pages of four kilobytes takes 256 segments.

/// Maximum number of segments in a read list.
pub const MAX_READ_SEGMENTS: usize = 512;
/// Maximum number of chunks in a write list.
pub const MAX_WRITE_CHUNKS: usize = 16;
/// Maximum number of segments in one write chunk or reply chunk.
pub const MAX_CHUNK_SEGMENTS: usize = 512;

/// A message shorter than this many bytes is discarded before it is parsed (section 4.5).
pub const MIN_HEADER_LEN: usize = 28;
/// Length in bytes of an RDMA_ERROR header without fields of its own. Section 4.5 has receivers
/// discard messages shorter than 28 bytes, but the XDR definition makes this header shorter.
pub const MIN_ERROR_LEN: usize = 20;
