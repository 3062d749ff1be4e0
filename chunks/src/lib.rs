//! The parts that versions 1 and 2 of RPC-over-RDMA have in common. No I/O and no clock.
//!
//! Version 2 (draft-cel-nfsv4-rpcrdma-version-two-01, section 4.2) took the fixed fields, the
//! segments and the three chunk lists with all their rules from version 1 (RFC 8166, sections 3.4, 4.1
//! to 4.3). This crate implements them once. Header types and errors differ, so each version's crate
//! has its own. A later version that changes a chunk list brings its own
//! list and leaves this crate alone.
//!
//! Sections cited here without a document are those of RFC 8166.
//!
//! A call with 8192 bytes in a read chunk, and a result of 100 bytes for a write chunk of 8192:
//!
//! ```
//! use rpcrdma_chunks::{CallChunks, Chunks, ReadSegment, Segment, fill};
//!
//! let segment = Segment { handle: 7, length: 8192, offset: 1 << 32 };
//! let reads = vec![ReadSegment { position: 152, segment }];
//! let chunks = Chunks { reads, ..Chunks::default() };
//! // 152 bytes of payload follow the header, and the responder accepts calls of up to a mebibyte.
//! let call = CallChunks::new(chunks, false, 152, 1 << 20)?;
//! assert_eq!(call.read_len(), 8192);
//!
//! let placed = fill(&[segment], 100)?;
//! assert_eq!(placed[0], Segment { length: 100, ..segment });
//! // A responder must not write to a chunk that is too short for the result.
//! assert!(fill(&[segment], 8193).is_err());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod call;
mod codec;
mod direction;
mod fixed;
pub mod limits;
mod list;
mod malformed;
mod place;
mod reply;

pub use call::{CallChunks, ReadChunk, Violation, check_xid};
pub use codec::{
    Reader, put_read_list, put_reply_chunk, put_write_list, read_list_len, reply_chunk_len,
    write_list_len,
};
pub use direction::{Direction, Side};
pub use fixed::{FIXED_LEN, Fixed, Role, proc};
pub use list::{Chunks, ReadSegment, Segment, WriteChunk};
pub use malformed::Malformed;
pub use place::{ChunkTooSmall, chunk_len, fill, unused};
pub use reply::{ReplyViolation, ReturnedChunks, check_returned, check_write_list};
