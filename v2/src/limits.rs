//! Sizes and limits (version-two-01, sections 2.3, 4.2 and 5).

pub use rpcrdma_chunks::limits::*;
pub use rpcrdma_extension::{DEFAULT_INLINE, FIRST_MESSAGE_MAX};

/// Length in bytes of a header without chunks: fixed fields, direction and three empty lists.
pub const NO_CHUNKS_LEN: usize = 32;
/// Length in bytes of an RDMA2_OPTIONAL header with empty `rdma_optinfo`.
pub const OPTIONAL_LEN: usize = 28;
