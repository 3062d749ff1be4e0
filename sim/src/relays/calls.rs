//! The calls that pass the relays of a run, and their replies. All of their content follows from the numbers of the client
//! and of the call, so that either end knows what has to arrive. The clients' XIDs are the same, so that a message on
//! another client's connection is recognized by its content alone.

use bytes::Bytes;
use onc_rpc::{CALL, Decoder, Encoder, Message, REPLY};
use rdma_sim::Random;
use rpc_transport::ReplyRoom;

/// The XID of the first call. The others follow.
const FIRST_XID: u32 = 0x1000;
/// The lengths in bytes of what a call or a reply carries: nothing, inline, in chunks or several Sends. Some need
/// round-up.
const LENGTHS: [u32; 6] = [0, 1, 300, 3001, 9000, LONGEST];
/// The longest of them, bytes.
const LONGEST: u32 = 30_000;
/// The room that relays offer for replies whose length does not follow from the call, bytes.
pub(super) const MAX_REPLY: u32 = LONGEST + 4096;
/// The number of NFS and its version 3, with two of its procedures (RFC 1813).
const NFS: [u32; 2] = [100_003, 3];
const READ: u32 = 6;
const WRITE: u32 = 7;
/// A program that no relay knows.
const UNKNOWN: [u32; 3] = [0x3000_0000, 7, 11];
/// Bytes of the file handle of a call, and of what is in its place in calls of the unknown program. Begins with the
/// client's number.
const HANDLE: u32 = 32;
/// The number of words of a call before its file handle: XID, direction and version, the procedure, credential and
/// verifier without content, and the length of the handle.
const BEFORE_HANDLE: usize = 11;
/// The flavor of the verifiers of replies, AUTH_SHORT, because it has a body.
const VERIFIER: u32 = 2;
/// Upper bound of a reply's bytes besides bulk data.
const BESIDE: u32 = 256;

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Relays offer a chunk for the data of its results.
    Read,
    /// Relays put its data into a chunk.
    Write,
    /// Relays carry it whole.
    Unknown,
}

/// A call, and what its reply carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    /// The XID, which no other call of the client has.
    pub(super) xid: u32,
    client: u32,
    kind: Kind,
    arguments: u32,
    results: u32,
}

impl Exchange {
    /// Returns the call with this index of a client.
    pub(super) fn nth(client: usize, index: usize, random: &mut Random) -> Self {
        Self {
            xid: FIRST_XID + index as u32,
            client: client as u32,
            kind: random.pick(&[Kind::Read, Kind::Write, Kind::Unknown]),
            arguments: random.pick(&LENGTHS),
            results: random.pick(&LENGTHS),
        }
    }

    /// Returns the index of the call with this XID.
    pub(super) fn index(xid: u32) -> Option<usize> {
        Some(xid.checked_sub(FIRST_XID)? as usize)
    }

    /// Returns the number of the client that has made a call, and the index of the call, if it has both.
    pub(super) fn origin(call: &Message) -> Option<(usize, usize)> {
        let mut words = Decoder::new(call);
        let xid = words.u32().ok()?;
        for _ in 1..BEFORE_HANDLE {
            words.u32().ok()?;
        }
        let client = words.u32().ok()?;
        Some((client as usize, Self::index(xid)?))
    }

    /// Returns bytes derived from client and XID.
    fn data(&self, len: u32) -> Bytes {
        let first = self
            .xid
            .wrapping_mul(7)
            .wrapping_add(self.client.wrapping_mul(101));
        // Fibonacci hashing, so that bytes at the wrong place are seen as well.
        let byte = |at: u32| (at.wrapping_add(first).wrapping_mul(0x9e37_79b1) >> 24) as u8;
        (0..len).map(byte).collect()
    }

    /// Returns the file handle.
    fn handle(&self) -> Bytes {
        let client = self.client.to_be_bytes().into_iter();
        client.chain(self.data(HANDLE - 4)).collect()
    }

    /// Returns the call.
    pub(super) fn call(&self) -> Message {
        let mut call = Encoder::new();
        call.u32(self.xid).u32(CALL).u32(2);
        let procedure = match self.kind {
            Kind::Read => [NFS[0], NFS[1], READ],
            Kind::Write => [NFS[0], NFS[1], WRITE],
            Kind::Unknown => UNKNOWN,
        };
        for word in procedure.into_iter().chain([0; 4]) {
            call.u32(word);
        }
        match self.kind {
            Kind::Read => {
                call.opaque(&self.handle()).u64(4096).u32(self.results);
            }
            Kind::Write => {
                let len = self.arguments;
                call.opaque(&self.handle()).u64(4096).u32(len).u32(2);
                call.bulk(self.data(len));
            }
            Kind::Unknown => {
                call.opaque(&self.handle())
                    .opaque(&self.data(self.arguments));
            }
        }
        call.finish()
    }

    /// Returns the room for the reply.
    pub(super) fn room(&self) -> ReplyRoom {
        let (payload, items) = match self.kind {
            Kind::Read => (BESIDE, Some(self.results)),
            Kind::Write => (BESIDE, None),
            Kind::Unknown => (BESIDE + self.results, None),
        };
        ReplyRoom {
            payload,
            items: items.into_iter().collect(),
            idempotent: true,
        }
    }

    /// Returns the reply.
    pub(super) fn reply(&self) -> Message {
        let mut reply = Encoder::new();
        // Accepted, with a verifier that tells whose reply it is.
        reply.u32(self.xid).u32(REPLY).u32(0).u32(VERIFIER);
        reply.opaque(&self.client.to_be_bytes()).u32(0);
        match self.kind {
            Kind::Read => {
                // Status, no attributes, count, whether it is the end of the file.
                reply.u32(0).u32(0).u32(self.results).u32(0);
                reply.bulk(self.data(self.results));
            }
            // A status of failure, and wcc_data without attributes.
            Kind::Write => {
                reply.u32(5).u32(0).u32(0);
            }
            Kind::Unknown => {
                reply.opaque(&self.data(self.results));
            }
        }
        reply.finish()
    }

    /// Returns whether a message that has arrived is the call, byte by byte.
    pub(super) fn is_call(&self, message: &Message) -> bool {
        self.is(&self.call(), message)
    }

    /// Returns whether a message that has arrived is the reply, byte by byte.
    pub(super) fn is_reply(&self, message: &Message) -> bool {
        self.is(&self.reply(), message)
    }

    fn is(&self, expected: &Message, found: &Message) -> bool {
        let mut from = Decoder::new(found);
        let item = expected.items().first();
        // All before the item and its length; items of calls and replies come last here.
        let head = expected.payload().concat();
        let before = item.map_or(head.len(), |_| head.len() - 4);
        let same = from
            .opaque_fixed(before)
            .is_ok_and(|it| it[..] == head[..before]);
        let same = same
            && item.is_none_or(|item| {
                let data = from.bulk(u32::MAX);
                data.is_ok_and(|data| data.to_bytes() == item.data.to_bytes())
            });
        same && from.finish().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message with one bit of its stream changed.
    fn changed(message: &Message, at: usize) -> Message {
        let mut stream: Vec<u8> = Vec::new();
        message.for_each_piece(|piece| stream.extend_from_slice(piece));
        stream[at] ^= 1;
        Message::from_payload(stream.into())
    }

    #[test]
    fn a_changed_octet_is_noticed() {
        let mut random = Random::new(7);
        for index in 0..40 {
            let exchange = Exchange::nth(1, index, &mut random);
            let (call, reply) = (exchange.call(), exchange.reply());
            assert_eq!(Exchange::origin(&call), Some((1, index)));
            assert!(exchange.is_call(&call) && exchange.is_reply(&reply));
            for (message, is_call) in [(&call, true), (&reply, false)] {
                let len = message.stream_len() as usize;
                // Round-up is no part of the content.
                for at in [0, 3, len / 2, len - 4] {
                    let message = changed(message, at);
                    let is_it = match is_call {
                        true => exchange.is_call(&message),
                        false => exchange.is_reply(&message),
                    };
                    assert!(!is_it, "{exchange:?}, call {is_call}, octet {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_same_call_of_another_client_is_another_one() {
        for index in 0..20 {
            let of = |client| Exchange::nth(client, index, &mut Random::new(index as u64));
            let (own, other) = (of(0), of(1));
            assert_eq!(own.xid, other.xid);
            assert!(!own.is_call(&other.call()) && !own.is_reply(&other.reply()));
        }
    }
}
