//! Counts of the bytes of messages by the way in which they moved, at both ends, and of what RDMA
//! transports hold, over fake devices: exact numbers for one exchange after another.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use onc_rpc::Message;
use rdma_support::fabric::attributes;
use rdma_support::{Pair, data, message, open, reply, room, speaking};
use rpc_transport::rdma::{Choice, Version, Versions};
use rpc_transport::{ServerTransport, TransportStatistics};
use rpcrdma_protocols::RoundTripFeatures;

/// The bytes that moved: inline, in chunks, placed, continued.
type Bytes = [u64; 4];

/// The bytes that the client sent and the server received, and those that came back.
struct Exchange {
    there: Bytes,
    back: Bytes,
    server: TransportStatistics,
    client: TransportStatistics,
}

/// Makes a call with an item of `there` bytes, or none, whose reply has an item of `back` bytes, or
/// none, on a connection that has been used before. Returns how its bytes moved.
fn exchange(version: Version, features: &str, there: usize, back: usize) -> Exchange {
    let (mut ours, mut theirs) = speaking(Choice::Only(version), Versions::only(version));
    let features: RoundTripFeatures = features.parse().unwrap();
    ours.common.protocols = rpcrdma_protocols::standard(&features);
    theirs.common.protocols = rpcrdma_protocols::standard(&features);
    let (_world, mut pair) = Pair::fake_with(ours, theirs, attributes());
    pair.answer_with(move |call| {
        let (xid, words, _) = open(call);
        let items = (back > 0 && xid == 2).then(|| data(xid, back));
        Some(reply(xid, words, items.as_slice()))
    });
    let conn = pair.connect();
    pair.call(conn, message(1, 0, &[]), &room(0, &[])).reply();
    let before = [pair.client.statistics(), pair.server.statistics()];
    let items = (there > 0).then(|| data(2, there));
    let lens = (back > 0).then_some(back);
    let asked = message(2, 2, items.as_slice());
    let sent = asked.payload_len();
    let end: Message = pair.call(conn, asked, &room(2, lens.as_slice())).reply();
    let [client, server] = [pair.client.statistics(), pair.server.statistics()];
    let difference = |sent: bool, after: &TransportStatistics, before: &TransportStatistics| {
        let bytes = |it: &TransportStatistics| {
            let it = if sent {
                it.moved.sent
            } else {
                it.moved.received
            };
            [it.inline, it.chunk, it.placed, it.continued]
        };
        let (after, before) = (bytes(after), bytes(before));
        std::array::from_fn(|at| after[at] - before[at])
    };
    let there = difference(true, &client, &before[0]);
    let back = difference(true, &server, &before[1]);
    assert_eq!(
        there,
        difference(false, &server, &before[1]),
        "the call at the server"
    );
    assert_eq!(
        back,
        difference(false, &client, &before[0]),
        "the reply at the client"
    );
    // What is not counted for an item is the payload.
    let payload = |bytes: Bytes| bytes[0].max(bytes[3]);
    assert!(payload(there) >= sent && payload(back) >= end.payload_len());
    Exchange {
        there,
        back,
        server,
        client,
    }
}

/// The payload lengths of the call and the reply of [`exchange`].
fn payloads(version: Version) -> (u64, u64) {
    let short = exchange(version, "none", 0, 0);
    (short.there[0], short.back[0])
}

#[test]
fn data_in_chunks_is_counted_as_such_in_both_directions() {
    for version in [Version::ONE, Version::TWO] {
        let (call, answer) = payloads(version);
        let write = exchange(version, "none", 8192, 0);
        assert_eq!(write.there[1..], [8192, 0, 0], "{version}");
        assert_eq!(write.back, [answer, 0, 0, 0], "{version}");
        let requester = write.client.requester;
        assert_eq!((requester.read_segments, requester.write_segments), (1, 0));
        assert_eq!(
            (requester.registered_bytes, requester.long_calls),
            (8192, 0)
        );
        assert_eq!(requester.offered_bytes, 0, "{version}");
        let read = exchange(version, "none", 0, 8192);
        assert_eq!(read.there, [call, 0, 0, 0], "{version}");
        assert_eq!(read.back[1..], [8192, 0, 0], "{version}");
        let requester = read.client.requester;
        assert_eq!((requester.read_segments, requester.write_segments), (0, 1));
        let bytes = (requester.registered_bytes, requester.offered_bytes);
        assert_eq!(bytes, (8192, 8192), "{version}");
    }
}

#[test]
fn placed_data_is_counted_apart_from_the_message_that_it_came_in() {
    for version in [Version::TWO, Version::TWO_WG] {
        let write = exchange(version, "ddp", 8192, 0);
        assert_eq!(write.there[1..], [0, 8192, 0], "{version}");
        let read = exchange(version, "ddp", 0, 8192);
        assert_eq!(read.back[1..], [0, 8192, 0], "{version}");
    }
}

#[test]
fn messages_of_several_sends_are_counted_as_continued() {
    let whole = exchange(Version::TWO, "ddp+cont", 1 << 20, 0);
    assert_eq!((whole.there[1], whole.there[2]), (0, 1 << 20));
    assert!(
        whole.there[3] > 0,
        "the payload came in one of several Sends"
    );
    assert_eq!(whole.there[0], 0);
    // In the working group's version 2, every end can continue messages.
    let whole = exchange(Version::TWO_WG, "none", 8192, 0);
    assert!(
        whole.there[3] > 8192 && whole.there[..3] == [0; 3],
        "{:?}",
        whole.there
    );
}

#[test]
fn connections_are_told_apart_by_version_and_features() {
    let kinds = |found: &TransportStatistics| -> Vec<(String, u64)> {
        let each = found.connections.iter();
        each.map(|(kind, count)| (format!("{} {}", kind.version, kind.features), *count))
            .collect()
    };
    let one = exchange(Version::ONE, "none", 0, 0);
    assert_eq!(kinds(&one.server), [("1 none".to_owned(), 1)]);
    assert_eq!(kinds(&one.client), [("1 none".to_owned(), 1)]);
    let two = exchange(Version::TWO, "ddp+cont", 0, 0);
    assert_eq!(kinds(&two.server), [("2 ddp+cont".to_owned(), 1)]);
    let half = exchange(Version::TWO, "ddp:send", 0, 0);
    assert_eq!(kinds(&half.server), [("2 none".to_owned(), 1)]);
}

#[test]
fn credits_and_receives_are_those_of_the_present_connections() {
    let found = exchange(Version::ONE, "none", 0, 0);
    let (_, theirs) = rdma_support::options();
    assert_eq!(
        found.server.granted_credits,
        u64::from(theirs.common.credits)
    );
    // A client may use what it asks for and the server grants.
    let (used, limit) = found.client.own_credits;
    assert_eq!(used, 0);
    assert!(limit > 0 && limit <= found.server.granted_credits);
    assert!(found.server.own_receives >= found.server.granted_credits);
    assert!(found.server.receive_bytes >= found.server.own_receives * 4096);
    assert_eq!(found.server.unanswered, 0);
}

#[test]
fn what_ended_connections_have_counted_stays() {
    for version in [Version::ONE, Version::TWO, Version::TWO_WG] {
        let (ours, theirs) = speaking(Choice::Only(version), Versions::only(version));
        let (world, mut pair) = Pair::fake_with(ours, theirs, attributes());
        pair.answer_with(|call| {
            let (xid, words, _) = open(call);
            Some(reply(xid, words, &[]))
        });
        let conn = pair.connect();
        let items = [data(1, 1 << 20)];
        pair.call(conn, message(1, 0, &items), &room(0, &[]))
            .reply();
        let counted = |pair: &Pair| {
            [pair.client.statistics(), pair.server.statistics()]
                .map(|it| (it.moved, it.requester, it.responder, it.grants_sent))
        };
        let before = counted(&pair);
        let [client, server] = &before;
        assert!(server.0.received.inline + server.0.received.continued > 0);
        assert_ne!(client.1, Default::default(), "{version}");
        world.borrow_mut().lose_all();
        pair.until(|pair| !pair.server_down.is_empty() && !pair.down.is_empty());
        assert_eq!(counted(&pair), before, "{version}");
        let after = pair.server.statistics();
        assert_eq!((after.connections.len(), after.granted_credits), (0, 0));
    }
}
