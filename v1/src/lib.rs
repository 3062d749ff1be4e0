//! RPC-over-RDMA version 1 (RFC 8166, RFC 8797): headers, chunk lists and the rules for them.
//! No I/O and no clock.
//!
//! A message's header is decoded with [`Header::decode`]; the responder then checks the chunks of a
//! call with [`check_call`] and fills those of the reply with [`fill`], the requester checks what
//! comes back with [`check_reply`]. Each error says whether the peer must be told: see
//! [`HeaderError::answer`] and [`Answer::to_violation`]. Which bytes go into which chunk is not
//! decided here but by the `conveyance` crate. Chunk lists, the rules on them and credits are those
//! of the `rpcrdma-chunks` crate, which version 2 has in common with this one.
//!
//! MUSTS.md, beside this crate's manifest, lists every requirement of the two documents and the
//! test that is named after it.

#![forbid(unsafe_code)]

mod codec;
mod error;
mod header;
mod private_data;
mod rules;

pub use error::{Answer, HeaderError};
pub use header::{Body, ErrorBody, Header, VERSION};
pub use private_data::{Agreed, DEFAULT_INLINE, MAX_INLINE, PRIVATE_DATA_LEN, PrivateData};
pub use rpcrdma_chunks::{
    CallChunks, ChunkTooSmall, Chunks, CreditOverrun, Malformed, ReadChunk, ReadSegment,
    ReplyViolation, RequesterCredits, ResponderCredits, Role, Segment, Violation, WriteChunk,
    check_xid, chunk_len, fill, limits, unused,
};
pub use rules::{Returned, check_call, check_reply};
