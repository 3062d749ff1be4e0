//! The calls that pass the relays of a run, and their replies. All of their content follows from the numbers of the client
//! and of the call, so that either end knows what has to arrive. The clients' XIDs are the same, so that a message on
//! another client's connection is recognized by its content alone.

use bytes::Bytes;
use onc_rpc::{BulkItem, CALL, Decoder, Encoder, Message, Position, REPLY};
use rdma_sim::Random;
use rpc_transport::ReplyRoom;

use super::compound::{self, Compound};

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
/// COMPOUND of NFS version 4.
const COMPOUND: [u32; 3] = [100_003, 4, 1];
/// A flavor of credentials that no relay knows. With it, replies may have verifiers.
const CREDENTIAL: u32 = 0x3000_0000;
/// A program that no relay knows, and one of clients.
const UNKNOWN: [u32; 3] = [0x3000_0000, 7, 11];
const OF_CLIENTS: [u32; 3] = [0x4000_0000, 1, 5];
/// Bytes of the file handle of a call, and of what is in its place in calls of the unknown program. Begins with the
/// client's number.
const HANDLE: u32 = 32;
/// The number of words of a call before its arguments: XID, direction and version, the procedure, credential and
/// verifier without content. The position of the procedure's numbers among them.
const BEFORE_ARGUMENTS: usize = 10;
const PROCEDURE: std::ops::Range<usize> = 3..6;
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
    /// Relays hold the data of several operations apart, in the call and in the reply.
    Compound(Compound),
    /// Relays carry it whole.
    Unknown,
    /// A call of the server to a client, carried whole as well.
    Callback,
}

/// A call, and what its reply carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    /// The XID, which no other call of the client has. Callbacks have XIDs of their own, which may be the same.
    pub(super) xid: u32,
    client: u32,
    kind: Kind,
    arguments: u32,
    results: u32,
}

impl Exchange {
    /// Returns the call with this index of a client. With `compounds`, it may be a COMPOUND.
    pub(super) fn nth(client: usize, index: usize, compounds: bool, random: &mut Random) -> Self {
        let kinds = match compounds {
            true => 5,
            false => 3,
        };
        let kind = match random.below(kinds) {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Unknown,
            _ => Kind::Compound(Compound::choose(&LENGTHS, random)),
        };
        Self {
            xid: FIRST_XID + index as u32,
            client: client as u32,
            kind,
            arguments: random.pick(&LENGTHS),
            results: random.pick(&LENGTHS),
        }
    }

    /// Returns the call with this index of the server to a client.
    pub(super) fn callback(client: usize, index: usize, random: &mut Random) -> Self {
        Self {
            xid: FIRST_XID + index as u32,
            client: client as u32,
            kind: Kind::Callback,
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
        let mut header = [0; BEFORE_ARGUMENTS];
        for word in &mut header {
            *word = words.u32().ok()?;
        }
        let before = match header[PROCEDURE] == COMPOUND {
            true => compound::BEFORE_HANDLE,
            false => 0,
        };
        // The length of the handle is between.
        for _ in 0..=before {
            words.u32().ok()?;
        }
        let client = words.u32().ok()?;
        Some((client as usize, Self::index(header[0])?))
    }

    /// Returns bytes derived from client and XID, and from who calls.
    fn data(&self, len: u32) -> Bytes {
        let of_server = u32::from(self.kind == Kind::Callback);
        let first = self
            .xid
            .wrapping_mul(7)
            .wrapping_add(self.client.wrapping_mul(101))
            .wrapping_add(of_server.wrapping_mul(10_007));
        // Fibonacci hashing, so that bytes at the wrong place are seen as well.
        let byte = |at: u32| (at.wrapping_add(first).wrapping_mul(0x9e37_79b1) >> 24) as u8;
        (0..len).map(byte).collect()
    }

    /// Returns the file handle.
    fn handle(&self) -> Bytes {
        let client = self.client.to_be_bytes().into_iter();
        client.chain(self.data(HANDLE - 4)).collect()
    }

    /// Returns the call, of which at most so many items are held apart.
    pub(super) fn call(&self, max_items: usize) -> Message {
        let mut call = Encoder::new();
        call.u32(self.xid).u32(CALL).u32(2);
        let procedure = match self.kind {
            Kind::Read => [NFS[0], NFS[1], READ],
            Kind::Write => [NFS[0], NFS[1], WRITE],
            Kind::Compound(_) => COMPOUND,
            Kind::Unknown => UNKNOWN,
            Kind::Callback => OF_CLIENTS,
        };
        for word in procedure.into_iter().chain([CREDENTIAL, 0, 0, 0]) {
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
            Kind::Compound(compound) => {
                let data = |len| self.data(len);
                compound.encode_call(&mut call, &self.handle(), max_items, data);
            }
            Kind::Unknown | Kind::Callback => {
                call.opaque(&self.handle())
                    .opaque(&self.data(self.arguments));
            }
        }
        call.finish()
    }

    /// Returns the room for the reply, of which at most so many items are held apart.
    pub(super) fn room(&self, max_items: usize) -> ReplyRoom {
        let mut items: Vec<u32> = match self.kind {
            Kind::Read => vec![self.results],
            Kind::Compound(compound) => compound.results().collect(),
            Kind::Write | Kind::Unknown | Kind::Callback => Vec::new(),
        };
        // Whether an empty result uses its chunk is not said (RFC 8267, section 6.4.1): those behind it may move up.
        for at in (1..items.len()).rev() {
            items[at - 1] = items[at - 1].max(items[at]);
        }
        let (apart, beside) = items.split_at(items.len().min(max_items));
        let beside = beside.iter().map(|len| len.next_multiple_of(4));
        let whole = match self.kind {
            Kind::Unknown | Kind::Callback => self.results,
            Kind::Read | Kind::Write | Kind::Compound(_) => 0,
        };
        ReplyRoom {
            payload: BESIDE + whole + beside.sum::<u32>(),
            items: apart.iter().copied().collect(),
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
            Kind::Compound(compound) => compound.encode_reply(&mut reply, |len| self.data(len)),
            Kind::Unknown | Kind::Callback => {
                reply.opaque(&self.data(self.results));
            }
        }
        reply.finish()
    }

    /// Returns whether a message that has arrived is the call, byte by byte.
    pub(super) fn is_call(&self, message: &Message) -> bool {
        is_same(&self.call(usize::MAX), message)
    }

    /// Returns whether a message that has arrived is the reply, byte by byte.
    pub(super) fn is_reply(&self, message: &Message) -> bool {
        is_same(&self.reply(), message)
    }
}

/// Returns whether the streams are the same, whichever items are held apart in the one that was found. Round-up is no
/// part of the content of items.
fn is_same(expected: &Message, found: &Message) -> bool {
    let mut from = Decoder::new(found);
    let head = expected.payload().concat();
    let mut same = |range: std::ops::Range<usize>, item: Option<&BulkItem>| {
        let before = from.opaque_fixed(range.len());
        let same = before.is_ok_and(|it| it[..] == head[range]);
        same && item.is_none_or(|item| {
            let data = from.bulk(u32::MAX);
            data.is_ok_and(|data| data.to_bytes() == item.data.to_bytes())
        })
    };
    let (mut at, mut reduced) = (0, 0);
    for item in expected.items() {
        let Position::At(position) = item.position else {
            return false;
        };
        // The item's length is before it.
        let behind = position as usize - reduced;
        if !same(at..behind - 4, Some(item)) {
            return false;
        }
        at = behind;
        reduced += item.data.len().next_multiple_of(4);
    }
    same(at..head.len(), None) && from.finish().is_ok()
}

/// Returns whether a message is a reply that says SYSTEM_ERR (RFC 5531, section 9), as relays make one.
pub(super) fn is_system_error(reply: &Message) -> bool {
    let mut words = Decoder::new(reply);
    let all: Vec<u32> = std::iter::from_fn(|| words.u32().ok()).take(7).collect();
    all.len() == 6 && all[1..] == [REPLY, 0, 0, 0, 5]
}

#[cfg(test)]
mod tests {
    use rdma::Pool;
    use rpcrdma_host::Budget;

    use super::super::plan::SHORT;
    use super::super::relay::CONNECTIONS;
    use super::*;

    /// A connection that holds nothing may take this much. A call that needs more is refused, not put off.
    #[test]
    fn the_longest_call_has_room_where_memory_is_short() {
        let longest = Exchange {
            kind: Kind::Compound(Compound::of_writes(LONGEST)),
            ..Exchange::nth(0, 0, true, &mut Random::new(0))
        };
        // Chunks are fetched into blocks: the payload, and each item.
        let memory = |most: usize| {
            let call = longest.call(most);
            let items = call.items().iter().map(|item| item.data.len());
            let pieces = items.chain([call.payload_len() as usize]);
            pieces.map(Pool::block_size).sum::<usize>()
        };
        let needed = (0..=4).map(memory).max();
        assert_eq!(needed, Some(160 << 10));
        let least = SHORT.into_iter().min().unwrap_or_default();
        let largest = Budget::new(least, CONNECTIONS).account().largest();
        assert!(needed <= Some(largest), "{needed:?} of {largest}");
    }

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
        for index in 0..60 {
            let exchange = match index % 6 {
                5 => Exchange::callback(1, index, &mut random),
                _ => Exchange::nth(1, index, true, &mut random),
            };
            let (call, reply) = (exchange.call(usize::MAX), exchange.reply());
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

    /// A server and a client that call each other may choose the same XID.
    #[test]
    fn a_callback_is_not_a_call_of_its_client() {
        for index in 0..20 {
            let random = &mut Random::new(index as u64);
            let call = Exchange::nth(0, index, true, random);
            let callback = Exchange::callback(0, index, random);
            assert_eq!(call.xid, callback.xid);
            assert!(!call.is_call(&callback.call(0)) && !callback.is_call(&call.call(0)));
            assert!(!callback.is_reply(&call.reply()));
        }
    }

    /// The items that are not held apart are in the payload.
    #[test]
    fn a_compound_has_one_stream_however_many_items_are_apart() {
        let random = &mut Random::new(3);
        let all: Vec<_> = (0..50).map(|n| Exchange::nth(0, n, true, random)).collect();
        let most = all.iter().map(|it| it.call(usize::MAX).items().len());
        assert!(most.max() >= Some(3));
        for exchange in all {
            for max_items in [0, 1, 2] {
                let call = exchange.call(max_items);
                assert!(exchange.is_call(&call));
                assert!(exchange.room(max_items).items.len() <= max_items);
            }
        }
    }

    #[test]
    fn the_same_call_of_another_client_is_another_one() {
        for index in 0..20 {
            let of = |client| Exchange::nth(client, index, true, &mut Random::new(index as u64));
            let (own, other) = (of(0), of(1));
            assert_eq!(own.xid, other.xid);
            assert!(!own.is_call(&other.call(1)) && !own.is_reply(&other.reply()));
        }
    }
}
