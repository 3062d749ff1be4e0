//! RPC-over-RDMA version 1 (RFC 8166, RFC 8797): headers, chunk lists and the rules for them. No
//! I/O and no clock.
//!
//! A message's header is decoded with [`Header::decode`]. The responder then checks the chunks of a
//! call with [`check_call`] and fills those of the reply with [`fill`]; the requester checks the
//! chunks of a reply with [`check_returned`]. [`HeaderError::answer`] and [`Answer::to_violation`]
//! say whether an error must be reported to the peer. The `transfer-plan` crate decides which bytes
//! go into which chunk. Chunk lists, their rules and credits come from the `rpcrdma-chunks` crate,
//! which version 2 shares.
//!
//! MUSTS.md, beside this crate's manifest, lists every requirement of the two documents with the
//! name of the test for it.
//!
//! A call without chunks, and its reply:
//!
//! ```
//! use bytes::Bytes;
//! use rpcrdma_v1::{Body, Chunks, Header, check_call, check_returned};
//!
//! let offered = Chunks::default();
//! let header = Header { xid: 7, credits: 32, body: Body::Msg(offered.clone()) };
//! let rpc_call = [0; 40];
//! let message = Bytes::from([&header.encode()[..], &rpc_call].concat());
//!
//! // The responder finds the payload behind the header, and checks the chunks.
//! let (header, at) = Header::decode(&message)?;
//! let payload = message.slice(at..);
//! let call = check_call(header, payload.len() as u64, 1 << 20)?;
//! assert_eq!((payload.len(), call.read_len()), (40, 0));
//!
//! // The requester holds the reply against the chunks that it offered.
//! let reply = Header { xid: 7, credits: 16, body: Body::Msg(Chunks::default()) };
//! let Body::Msg(chunks) = &reply.body else { panic!() };
//! let returned = check_returned(chunks, false, 24, &offered)?;
//! assert_eq!(returned.long, None);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

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
    CallChunks, ChunkTooSmall, Chunks, Malformed, ReadChunk, ReadSegment, ReplyViolation,
    ReturnedChunks, Role, Segment, Violation, WriteChunk, check_returned, check_xid, chunk_len,
    fill, limits, unused,
};
pub use rules::check_call;
