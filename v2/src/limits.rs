//! Sizes (version-two-01, sections 2.3, 4.2 and 5).

pub use rpcrdma_chunks::limits::*;

/// Inline threshold, both ways, until the peer said more: every receiver takes messages of this
/// size (section 2.3).
pub const DEFAULT_INLINE: u32 = 4096;
/// Longest message that may be sent before the peer is known to speak version 2: version 1's
/// default inline threshold (section 5).
pub const FIRST_MESSAGE_MAX: u32 = 1024;
/// Bytes of a header without chunks: fixed fields, direction, three empty lists.
pub const NO_CHUNKS_LEN: usize = 32;
/// Bytes of RDMA2_OPTIONAL without its information.
pub const OPTIONAL_LEN: usize = 28;
