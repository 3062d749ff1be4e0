//! RPC-over-RDMA version 2 (draft-cel-nfsv4-rpcrdma-version-two-01): headers, rules, and the
//! interface for extensions. No I/O and no clock.
//!
//! The interface resembles that of the version 1 crate as far as the protocols agree. A message's
//! header is decoded with [`Header::decode`]. A responder checks the chunks of a call with
//! [`check_call`] and fills those of the reply with [`fill`]; a requester checks a reply with
//! [`check_reply`]. [`HeaderError::answer`] and [`Answer::to_violation`] say whether an error must
//! be reported to the peer. Segments, chunk lists and credits are the same types in both versions,
//! from the `rpcrdma-chunks` crate, so that code that uses them does not depend on the version.
//!
//! Two things are new. Headers have a [`Direction`]: both ends can be requester and responder at
//! the same time, and the role of a receiver follows from the message ([`Side::role`]). And there
//! are optional operations, which belong to extensions: see [`extension`]. This crate knows no
//! particular extension.
//!
//! Section numbers in this crate are those of version-two-01, unless another document is named.
//! MUSTS.md, beside this crate's manifest, lists every requirement of that draft and of RFC 8167
//! with the name of the test for it.

#![forbid(unsafe_code)]

mod codec;
mod error;
pub mod extension;
mod header;
pub mod limits;
mod rules;

pub use codec::VERSION;
pub use error::{Answer, HeaderError, Side};
pub use header::{Body, Direction, ErrorBody, Header, OPTIONAL, Optional};
pub use rpcrdma_chunks::{
    CallChunks, ChunkTooSmall, Chunks, CreditOverrun, Malformed, ReadChunk, ReadSegment, Reader,
    ReplyViolation, RequesterCredits, ResponderCredits, ReturnedChunks, Role, Segment, WriteChunk,
    check_write_list, check_xid, chunk_len, fill, unused,
};
pub use rules::{BadReply, Returned, Violation, check_call, check_payload, check_reply};
