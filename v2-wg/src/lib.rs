//! RPC-over-RDMA version 2 as the NFSv4 working group left it
//! (draft-ietf-nfsv4-rpcrdma-version-two-07): headers, transport properties and messages in several
//! parts. No I/O and no clock.
//!
//! This is another protocol than that of the 2016 draft (`rpcrdma-v2`), with the same version
//! number. What both have in common with version 1 is in `rpcrdma-chunks`: segments, chunk lists
//! and the rules for them. Here every purpose has a header type of its own ([`header_type`]), which
//! says the direction of the message as well. Each end announces its [`Properties`] when the
//! connection begins, long messages are continued in several ([`Body::Middle`]), a call names the
//! handle that its reply may invalidate, and credits count messages instead of calls
//! (`rpcrdma_connection::flow`).
//!
//! [`Header::decode`] decodes the header of a received message, and [`DecodeError::answer`] says
//! which error must be reported if that fails. A responder checks the chunks of a call with
//! [`check_call`] and fills those of the reply with [`fill`]; a requester checks the chunks of a
//! reply with [`check_returned`].
//!
//! Section numbers in this crate are those of version-two-07, unless another document is named.
//! MUSTS.md, beside this crate's manifest, lists every requirement of its sections 4 to 7 with the
//! name of the test for it. Where the draft contradicts itself, the documentation of the item says
//! which way was chosen.
//!
//! A call without chunks:
//!
//! ```
//! use bytes::Bytes;
//! use rpcrdma_v2_wg::{Body, Chunks, Direction, Header, check_call};
//!
//! let body = Body::Call { external: false, inv_handle: 0, chunks: Chunks::default() };
//! let header = Header { xid: 7, credit: 32, body };
//! let rpc_call = [0; 40];
//! let message = Bytes::from([&header.encode()[..], &rpc_call].concat());
//!
//! // The server learns from the header that it may send 32 messages, and that this is a call.
//! let (header, at) = Header::decode(&message)?;
//! assert_eq!(header.credit, 32);
//! assert_eq!(header.body.direction(), Some(Direction::Call));
//! let payload = message.slice(at..);
//! let call = check_call(header.body, payload.len() as u64, 1 << 20)?;
//! assert_eq!((payload.len(), call.read_len()), (40, 0));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod base;
mod codec;
mod error;
mod header;
pub mod limits;
mod lists;
mod property;
mod refused;
mod rules;

pub use error::{Answer, DecodeError, HeaderError};
pub use header::{Body, EXPERIMENTAL, ErrorBody, Header, Prefix, header_type};
pub use property::{BadProperty, Properties, Property, ReverseSupport, property_id};
pub use refused::{MessageId, Owner, RefusedMessages};
pub use rpcrdma_chunks::{
    CallChunks, ChunkTooSmall, Chunks, Direction, Malformed, ReadChunk, ReadSegment, Reader,
    ReplyViolation, ReturnedChunks, Role, Segment, WriteChunk, check_returned, check_write_list,
    check_xid, chunk_len, fill, unused,
};
pub use rules::{Violation, check_call, check_payload};

/// The protocol version in `rdma_vers`.
pub const VERSION: u32 = 2;
