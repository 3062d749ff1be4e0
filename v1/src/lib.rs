//! RPC-over-RDMA version 1 (RFC 8166, RFC 8797): headers, chunk lists and the rules for them.
//! No I/O and no clock.

#![forbid(unsafe_code)]

mod header;

pub use header::{Body, Chunks, ErrorBody, Header, ReadSegment, Segment, WriteChunk};
