//! Limits on what a header may hold. The protocol sets none (RFC 8166, section 3.4.4); these keep
//! the memory that one message can claim bounded, and are far above what any peer is known to send:
//! a megabyte in pages of four kilobytes takes 256 segments.

/// Most segments in a read list.
pub const MAX_READ_SEGMENTS: usize = 512;
/// Most chunks in a write list.
pub const MAX_WRITE_CHUNKS: usize = 16;
/// Most segments in one write chunk or reply chunk.
pub const MAX_CHUNK_SEGMENTS: usize = 512;

/// Bytes of a header without chunks, the shortest of a call or reply (RFC 8166, section 4.5).
pub const MIN_HEADER_LEN: usize = 28;
/// Bytes of an RDMA_ERROR header with ERR_CHUNK. Section 4.5 has receivers discard what is shorter
/// than 28 bytes, but this header is by its own XDR definition.
pub const MIN_ERROR_LEN: usize = 20;
