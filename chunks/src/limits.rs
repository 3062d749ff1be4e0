//! Limits on what a header may hold. The protocol sets none (section 3.4.4); these keep the memory
//! that one message can claim bounded, and are far above what any peer is known to send: a megabyte
//! in pages of four kilobytes takes 256 segments.

/// Most segments in a read list.
pub const MAX_READ_SEGMENTS: usize = 512;
/// Most chunks in a write list.
pub const MAX_WRITE_CHUNKS: usize = 16;
/// Most segments in one write chunk or reply chunk.
pub const MAX_CHUNK_SEGMENTS: usize = 512;

/// Bytes under which a message is discarded before it is parsed (section 4.5).
pub const MIN_HEADER_LEN: usize = 28;
/// Bytes of an error header without fields of its own. Section 4.5 has receivers discard what is
/// shorter than 28 bytes, but this header is by its own XDR definition.
pub const MIN_ERROR_LEN: usize = 20;
