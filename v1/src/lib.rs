//! RPC-over-RDMA version 1 (RFC 8166, RFC 8797): headers, chunk lists and the rules for them.
//! No I/O and no clock.
//!
//! A message's header is decoded with [`Header::decode`]; the responder then checks the chunks of
//! a call with [`CallChunks::new`] and fills those of the reply with [`fill`], the requester checks
//! what comes back with [`check_reply`]. Each error says whether the peer must be told: see
//! [`HeaderError::answer`] and [`Violation::answer`]. Which bytes go into which chunk is not decided
//! here but by the `conveyance` crate.
//!
//! MUSTS.md, beside this crate's manifest, lists every requirement of the two documents and the
//! test that is named after it.

#![forbid(unsafe_code)]

mod call;
mod codec;
mod credits;
mod error;
mod header;
pub mod limits;
mod place;
mod private_data;
mod reply;

pub use call::{CallChunks, ReadChunk, Violation, check_xid};
pub use codec::VERSION;
pub use credits::{CreditOverrun, RequesterCredits, ResponderCredits};
pub use error::{Answer, HeaderError, Malformed, Role};
pub use header::{Body, Chunks, ErrorBody, Header, ReadSegment, Segment, WriteChunk};
pub use place::{ChunkTooSmall, chunk_len, fill, unused};
pub use private_data::{Agreed, DEFAULT_INLINE, MAX_INLINE, PRIVATE_DATA_LEN, PrivateData};
pub use reply::{ReplyViolation, Returned, check_reply};
