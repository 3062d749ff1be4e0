//! What versions 1 and 2 of RPC-over-RDMA have in common. No I/O and no clock.
//!
//! Version 2 (draft-cel-nfsv4-rpcrdma-version-two-01, section 4.2) took over the fixed fields, the
//! segments, the three chunk lists with all rules on them, and credits from version 1 (RFC 8166,
//! sections 3.3, 3.4, 4.1 to 4.3). They are here once. What the versions say differently, header
//! types and errors, each of them has for itself, and a later version that changes a chunk list
//! leaves this crate alone and brings its own.
//!
//! Sections cited here without a document are those of RFC 8166.

#![forbid(unsafe_code)]

mod call;
mod codec;
mod credits;
mod fixed;
pub mod limits;
mod list;
mod malformed;
mod place;
mod reply;

pub use call::{CallChunks, ReadChunk, Violation, check_xid};
pub use codec::Reader;
pub use credits::{CreditOverrun, RequesterCredits, ResponderCredits};
pub use fixed::{FIXED_LEN, Fixed, Role, proc};
pub use list::{Chunks, ReadSegment, Segment, WriteChunk};
pub use malformed::Malformed;
pub use place::{ChunkTooSmall, chunk_len, fill, unused};
pub use reply::{ReplyViolation, ReturnedChunks, check_returned, check_write_list};
