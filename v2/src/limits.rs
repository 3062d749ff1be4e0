//! Sizes and limits (version-two-01, sections 2.3, 4.2 and 5).

pub use rpcrdma_chunks::limits::*;

/// Inline threshold in bytes, in both directions, until the peer announces a larger one. Every
/// receiver accepts messages of this size (section 2.3).
pub const DEFAULT_INLINE: u32 = 4096;
/// Maximum length in bytes of a message sent before the peer is known to support version 2: the
/// default inline threshold of version 1 (section 5).
pub const FIRST_MESSAGE_MAX: u32 = 1024;
/// Length in bytes of a header without chunks: fixed fields, direction and three empty lists.
pub const NO_CHUNKS_LEN: usize = 32;
/// Length in bytes of an RDMA2_OPTIONAL header with empty `rdma_optinfo`.
pub const OPTIONAL_LEN: usize = 28;
