//! Version 1 with inline thresholds that are shorter than private data can express.

use bytes::{Bytes, BytesMut};
use onc_rpc::Message;
use rpc_transport::rdma::{Protocols, Version};
use rpcrdma_connection::dialect::{
    BadReply, Dialect, ErrorMessage, Negotiable, Outgoing, Plain, Session, VersionOne,
};
use rpcrdma_extension::{DuplicateNumber, EndConfig, Extension};
use rpcrdma_v1::Chunks;
use rpcrdma_v2::Direction;
use transfer_plan::ChunkCounts;

use super::INLINE;

/// The shortest inline threshold that private data can express, in bytes (RFC 8797, section 4.2).
pub(super) const SHORTEST_INLINE: u32 = 1024;

/// Returns the versions of a run.
pub(super) fn protocols() -> Protocols {
    Protocols::default().speaking([&ShortInline as _])
}

/// Version 1 in which messages may use only [`INLINE`] of [`SHORTEST_INLINE`] bytes, so that short
/// scripts reach the code for long messages.
#[derive(Debug)]
struct ShortInline;

impl Negotiable for ShortInline {
    fn version(&self) -> Version {
        VersionOne.version()
    }
}

impl Dialect for ShortInline {
    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        |chunks| VersionOne.header_len()(chunks) + u64::from(SHORTEST_INLINE) - INLINE
    }

    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain) {
        VersionOne.encode_plain(out, direction, header);
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        VersionOne.encode(out, header)
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        VersionOne.encode_error(error, credits)
    }

    fn session(
        &self,
        end: &EndConfig<'_>,
        extensions: Vec<Box<dyn Extension>>,
        first_xid: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber> {
        VersionOne.session(end, extensions, first_xid)
    }

    fn check_payload(
        &self,
        xid: u32,
        direction: Direction,
        message: &Message,
    ) -> Result<(), BadReply> {
        VersionOne.check_payload(xid, direction, message)
    }
}
