//! RPC-over-RDMA version 2 (draft-cel-nfsv4-rpcrdma-version-two-01): headers, rules, and the
//! interface for extensions. No I/O and no clock.
//!
//! The interface is that of version 1's crate wherever the protocol is: a message's header is
//! decoded with [`Header::decode`]; a responder checks the chunks of a call with [`check_call`] and
//! fills those of the reply with [`fill`], a requester checks what comes back with [`check_reply`].
//! Each error says whether the peer must be told: see [`HeaderError::answer`] and
//! [`Answer::to_violation`]. Segments, chunk lists and credits are the same types for both
//! versions, those of the `rpcrdma-chunks` crate, so that what is built on them need not know the
//! version.
//!
//! New is that headers say which way they go ([`Direction`]): both ends can be requester and
//! responder at the same time, and one receiver's part follows from the message ([`Side::role`]).
//! And there are optional operations, which belong to extensions: see [`extension`]. This crate
//! names none.
//!
//! Section numbers in this crate are those of version-two-01, unless another document is named.
//! MUSTS.md, beside this crate's manifest, lists every requirement of it and of RFC 8167, and the
//! test that is named after each.

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
