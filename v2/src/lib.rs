//! RPC-over-RDMA version 2 (draft-cel-nfsv4-rpcrdma-version-two-01): headers and rules. No I/O
//! and no clock.
//!
//! The interface resembles that of the version 1 crate as far as the protocols agree. A message's
//! header is decoded with [`Header::decode`]. A responder checks the chunks of a call with
//! [`check_call`] and fills those of the reply with [`fill`]; a requester checks the chunks of a
//! reply with [`check_returned`]. [`HeaderError::answer`] and [`Answer::to_violation`] say whether
//! an error must be reported to the peer. Segments and chunk lists are the same types in
//! both versions, from the `rpcrdma-chunks` crate, so that code that uses them does not depend on
//! the version.
//!
//! Two things are new. Headers have a [`Direction`]: both ends can be requester and responder at
//! the same time, and the role of a receiver follows from the message ([`Side::role`]). And there
//! are optional operations, which belong to extensions: see [`operations`]. This crate knows no
//! particular extension.
//!
//! Section numbers in this crate are those of version-two-01, unless another document is named.
//! MUSTS.md, beside this crate's manifest, lists every requirement of that draft and of RFC 8167
//! with the name of the test for it.
//!
//! A call without chunks:
//!
//! ```
//! use bytes::Bytes;
//! use rpcrdma_v2::{Body, Chunks, Direction, Header, Role, check_call};
//!
//! let body = Body::Msg(Direction::Call, Chunks::default());
//! let header = Header { xid: 7, credits: 32, body };
//! let rpc_call = [0; 40];
//! let message = Bytes::from([&header.encode()[..], &rpc_call].concat());
//!
//! // The receiver learns from the header that it is the responder.
//! let (header, at) = Header::decode(&message)?;
//! assert_eq!(header.direction().receiver(), Role::Responder);
//! let payload = message.slice(at..);
//! let call = check_call(header, payload.len() as u64, 1 << 20)?;
//! assert_eq!((payload.len(), call.read_len()), (40, 0));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod codec;
mod error;
mod header;
pub mod limits;
pub mod operations;
mod rules;

pub use error::{Answer, HeaderError};
pub use header::{Body, ErrorBody, Header, OPTIONAL, Optional};
pub use rpcrdma_chunks::{
    CallChunks, ChunkTooSmall, Chunks, Direction, Malformed, ReadChunk, ReadSegment, Reader,
    ReplyViolation, ReturnedChunks, Role, Segment, Side, WriteChunk, check_returned,
    check_write_list, check_xid, chunk_len, fill, unused,
};
pub use rules::{Violation, check_call, check_payload};

/// The protocol version in `rdma_vers`.
pub const VERSION: u32 = 2;
