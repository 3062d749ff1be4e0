//! Computes the values that tshark must find, from the requests that were posted to the two
//! devices.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use onc_rpc::{Decoder, Message};
use rdma::middleware::Posted;
use rdma::{QpId, Stag};
use rpcrdma_v1::{Body, Chunks, ErrorBody, Header, Segment, WriteChunk};

use crate::columns::{Columns, Direction};
use crate::derive::{
    MESSAGES, READ_RESPONSE_BYTES, SEND, SEND_WITH_INVALIDATE, WRITE, WRITE_LENGTH, WRITE_OFFSET,
    WRITE_STAG,
};
use crate::dissect::CHECKED;
use crate::error::Error;
use crate::rpc;

/// The RDMAP queue of Sends (RFC 5040, section 5).
const SEND_QUEUE: u32 = 0;
/// The RDMAP queue of RDMA Read Requests.
const READ_QUEUE: u32 = 1;
/// The RDMAP opcode of an RDMA Read Request (section 4.3).
const READ_REQUEST: u64 = 1;

/// `rdma_proc` (RFC 8166, section 4.2).
mod proc {
    pub(super) const MSG: u32 = 0;
    pub(super) const NOMSG: u32 = 1;
    pub(super) const ERROR: u32 = 4;
}

/// The derived columns, which are checked like [`CHECKED`].
const DERIVED: &[&str] = &[
    MESSAGES,
    READ_RESPONSE_BYTES,
    WRITE_STAG,
    WRITE_OFFSET,
    WRITE_LENGTH,
];

/// A connection: device and queue pair.
pub(crate) type Connection = (u32, QpId);

/// Collects the expected values.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) columns: Columns,
    /// The number of untagged messages so far, for each sender and queue.
    sent: HashMap<(Direction, Connection, u32), u32>,
    /// Whether clients' devices begin connections by a message of their own.
    begins: bool,
    /// The connections on which clients have sent something.
    clients: HashSet<Connection>,
    /// The data that was written to each handle, in order.
    written: HashMap<u32, Vec<Bytes>>,
    rpc: rpc::Expected,
    /// The number of messages that tshark reports as malformed, because data that was placed
    /// directly is missing in them.
    pub(crate) malformed: usize,
}

/// Returns whether a returned Write list contains data.
fn is_used(writes: &[WriteChunk]) -> bool {
    writes.iter().flatten().any(|segment| segment.length > 0)
}

impl Expected {
    /// Creates a collection without messages.
    pub(crate) fn new(begins: bool) -> Self {
        let mut expected = Self {
            begins,
            ..Self::default()
        };
        for field in DERIVED.iter().chain(CHECKED) {
            for direction in [Direction::Call, Direction::Reply] {
                expected.columns.expect(direction, field);
            }
        }
        expected
    }

    /// Adds a request that was posted to the device on that side.
    pub(crate) fn posted(
        &mut self,
        direction: Direction,
        connection: Connection,
        posted: &Posted,
    ) -> Result<(), Error> {
        if self.begins && direction == Direction::Call && self.clients.insert(connection) {
            self.ready_to_receive(direction);
        }
        match posted {
            Posted::Send { gather, invalidate } => {
                self.untagged(direction, connection, SEND_QUEUE);
                let opcode = match invalidate {
                    Some(Stag(stag)) => {
                        self.columns.push(direction, "iwarp_rdma.inval_stag", stag);
                        SEND_WITH_INVALIDATE
                    }
                    None => SEND,
                };
                self.columns.push(direction, MESSAGES, opcode);
                self.message(direction, &Bytes::from(gather.concat()))
            }
            Posted::Read {
                length,
                stag,
                offset,
            } => {
                self.untagged(direction, connection, READ_QUEUE);
                self.columns.push(direction, MESSAGES, READ_REQUEST);
                self.columns.push(direction, "iwarp_rdma.rdmardsz", length);
                self.columns.push(direction, "iwarp_rdma.srcstag", stag.0);
                self.columns.push(direction, "iwarp_rdma.srcto", offset);
                let back = match direction {
                    Direction::Call => Direction::Reply,
                    Direction::Reply => Direction::Call,
                };
                self.columns.push(back, READ_RESPONSE_BYTES, length);
                Ok(())
            }
            Posted::Write {
                gather,
                stag,
                offset,
            } => {
                let length: usize = gather.iter().map(Bytes::len).sum();
                self.columns.push(direction, MESSAGES, WRITE);
                self.columns.push(direction, WRITE_STAG, stag.0);
                self.columns.push(direction, WRITE_OFFSET, offset);
                self.columns.push(direction, WRITE_LENGTH, length);
                self.written
                    .entry(stag.0)
                    .or_default()
                    .extend(gather.iter().cloned());
                Ok(())
            }
            // A local invalidation sends nothing.
            Posted::Invalidate { .. } => Ok(()),
        }
    }

    /// Adds the message that the initiator's device sends first by itself, after which the
    /// responder may send: an RDMA Write of 0 bytes to STag 1 (RFC 6581, section 9.2). Some hardware
    /// fails STag 0.
    fn ready_to_receive(&mut self, direction: Direction) {
        self.columns.push(direction, MESSAGES, WRITE);
        self.columns.push(direction, WRITE_STAG, 1);
        self.columns.push(direction, WRITE_OFFSET, 0);
        self.columns.push(direction, WRITE_LENGTH, 0);
    }

    fn untagged(&mut self, direction: Direction, connection: Connection, queue: u32) {
        let msn = self.sent.entry((direction, connection, queue)).or_default();
        *msn += 1;
        self.columns.push(direction, "iwarp_ddp.qn", queue);
        self.columns.push(direction, "iwarp_ddp.msn", *msn);
    }

    /// Adds a version 1 message, and the RPC message in it.
    fn message(&mut self, direction: Direction, bytes: &Bytes) -> Result<(), Error> {
        let decoded = Header::decode(bytes);
        let (header, length) = decoded.map_err(Error::ours("a header that was sent"))?;
        let mut push = |field, value: u32| self.columns.push(direction, field, value);
        push("rpcordma.xid", header.xid);
        push("rpcordma.version", rpcrdma_v1::VERSION);
        push("rpcordma.flow_control", header.credits);
        match header.body {
            Body::Msg(chunks) => {
                push("rpcordma.msg_type", proc::MSG);
                self.chunks(direction, &chunks);
                let payload = bytes.slice(length..);
                // tshark decodes a reply with data in Write chunks twice: without the data, when it
                // is reported as malformed, and with the data.
                let chunked = direction == Direction::Reply && is_used(&chunks.writes);
                for _ in 0..1 + usize::from(chunked) {
                    self.payload(direction, payload.clone())?;
                }
                self.malformed += usize::from(chunked);
                Ok(())
            }
            Body::NoMsg(chunks) => {
                push("rpcordma.msg_type", proc::NOMSG);
                self.chunks(direction, &chunks);
                match (direction, chunks.reply) {
                    (Direction::Reply, Some(chunk)) => {
                        let payload = self.written_to(&chunk);
                        self.payload(direction, payload)
                    }
                    _ => {
                        self.rpc.long_call(header.xid, &mut self.columns);
                        Ok(())
                    }
                }
            }
            Body::Error(error) => {
                push("rpcordma.msg_type", proc::ERROR);
                match error {
                    ErrorBody::Version { low, high } => {
                        push("rpcordma.errcode", 1);
                        push("rpcordma.vers_low", low);
                        push("rpcordma.vers_high", high);
                    }
                    ErrorBody::Chunk => push("rpcordma.errcode", 2),
                }
                Ok(())
            }
        }
    }

    fn payload(&mut self, direction: Direction, payload: Bytes) -> Result<(), Error> {
        let message = Message::from_payload(payload);
        self.rpc
            .message(direction, &mut Decoder::new(&message), &mut self.columns)
            .map_err(Error::ours("an RPC message that was sent"))
    }

    /// Returns the data that was written to the chunk's memory.
    fn written_to(&self, chunk: &WriteChunk) -> Bytes {
        let pieces = chunk
            .iter()
            .filter_map(|segment| self.written.get(&segment.handle))
            .flatten();
        let all: Vec<u8> = pieces.flat_map(|piece| piece.iter().copied()).collect();
        all.into()
    }

    fn chunks(&mut self, direction: Direction, chunks: &Chunks) {
        let columns = &mut self.columns;
        columns.push(direction, "rpcordma.reads_count", chunks.reads.len());
        columns.push(direction, "rpcordma.writes_count", chunks.writes.len());
        let reply = usize::from(chunks.reply.is_some());
        columns.push(direction, "rpcordma.reply_count", reply);
        let mut segment = |segment: &Segment| {
            columns.push(direction, "rpcordma.rdma_handle", segment.handle);
            columns.push(direction, "rpcordma.rdma_length", segment.length);
            columns.push(direction, "rpcordma.rdma_offset", segment.offset);
        };
        chunks.reads.iter().for_each(|read| segment(&read.segment));
        let written = || chunks.writes.iter().chain(&chunks.reply);
        written().flatten().for_each(segment);
        for read in &chunks.reads {
            columns.push(direction, "rpcordma.position", read.position);
        }
        for chunk in written() {
            columns.push(direction, "rpcordma.segment_count", chunk.len());
        }
    }
}
