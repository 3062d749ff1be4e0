//! Sizes and limits (version-two-07, sections 4.2.2, 4.3 and 6.3).

pub use rpcrdma_chunks::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS};
pub use rpcrdma_extension::{DEFAULT_INLINE, FIRST_MESSAGE_MAX};

/// Length in bytes of the prefix, and of a whole RDMA2_GRANT (sections 6.2.1 and 6.3.2). A shorter
/// message is discarded. Section 7 says 20 octets, but the structure has four words.
pub const PREFIX_LEN: usize = 16;
/// Length in bytes of an RDMA2_CALL_INLINE header without chunks.
pub const CALL_INLINE_LEN: usize = 32;
/// Length in bytes of an RDMA2_REPLY_INLINE header without chunks.
pub const REPLY_INLINE_LEN: usize = 20;
/// Length in bytes of a message with the longest RPC reply that has no results, PROG_MISMATCH with an empty
/// verifier (RFC 5531, section 9): every call provides for it. The header counts like that of a call, as in
/// transfer plans.
pub const LEAST_REPLY: u32 = CALL_INLINE_LEN as u32 + 32;
/// Length in bytes of an RDMA2_CALL_MIDDLE or RDMA2_REPLY_MIDDLE header.
pub const MIDDLE_LEN: usize = 20;
/// Minimum length in bytes of the payload that follows an inline or middle header: the header's XDR
/// ends with the first word of it, `rdma_rpc_first_word`.
pub const MIN_PAYLOAD_LEN: usize = 4;

/// Maximum number of parts of a continued message to send: enough for the longest messages by
/// default and receives of 1 KiB. A peer that announces a few bytes for its receives would make
/// this end hold millions of messages otherwise.
pub const MAX_PARTS: u32 = 8192;

/// Maximum number of properties in one message, and of a peer in all its messages. The draft sets no
/// limit; this one bounds the memory that a peer can claim.
pub const MAX_PROPERTIES: usize = 64;
/// Maximum length in bytes of the value of a property.
pub const MAX_PROPERTY_LEN: usize = 4096;
