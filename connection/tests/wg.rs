//! Tests of version 2 of the working group (version-two-07): the payload formats of section 6.6,
//! the exchange of properties, and flow control that counts every Send.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_connection::{Options, Protocols, ReplyRoom};
use rpcrdma_negotiation::Version;
use rpcrdma_v2_wg::header_type::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, GRANT, REPLY_EXTERNAL, REPLY_INLINE,
    REPLY_MIDDLE,
};
use rpcrdma_v2_wg::{Body, Chunks, Direction, Header, Prefix, WriteChunk};
use support::{
    Endpoint, Pair, WgPeer, bytes, configs_with, data, inline_reply, message, open, reply, room,
};

/// Returns a connection on which the properties have been exchanged.
fn connected(change: impl FnOnce(&mut Options, &mut Options)) -> Pair {
    let pair = Pair::echoing(configs_with(Version::TWO_WG, change));
    assert_eq!(types(&pair.client, 0), [CONNPROP_FINAL]);
    assert_eq!(types(&pair.server, 0), [CONNPROP_FINAL]);
    pair
}

/// Returns the header types of the messages that an end has sent, from the one with this index.
fn types(end: &Endpoint, from: usize) -> Vec<u32> {
    let sent = end.sent[from..].iter();
    sent.map(|(message, _)| Prefix::peek(message).unwrap().header_type)
        .collect()
}

/// The messages and RDMA operations of a call.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    /// Header types of the client's messages, grants left out.
    call: Vec<u32>,
    /// The number of RDMA Reads.
    reads: usize,
    /// The number of RDMA Writes.
    writes: usize,
    /// Header types of the server's messages, grants left out.
    reply: Vec<u32>,
}

impl Exchange {
    #[track_caller]
    fn is(&self, call: &[u32], reads: usize, writes: usize, reply: &[u32]) {
        let expected = Self {
            call: call.to_vec(),
            reads,
            writes,
            reply: reply.to_vec(),
        };
        assert_eq!(*self, expected);
    }
}

/// Makes a call with this content, which is answered with that one, and returns how it went.
fn exchange(pair: &mut Pair, call: (usize, &[Bytes]), answer: (usize, &[Bytes])) -> Exchange {
    let (words, items) = (answer.0, answer.1.to_vec());
    let lens: Vec<usize> = items.iter().map(Bytes::len).collect();
    let needed = room(words, &lens);
    let content = (words, items.clone());
    exchange_with(pair, call, content, &needed)
}

fn exchange_with(
    pair: &mut Pair,
    (words, items): (usize, &[Bytes]),
    answer: (usize, Vec<Bytes>),
    needed: &ReplyRoom,
) -> Exchange {
    let xid = 100 + pair.client.sent.len() as u32;
    let before = (pair.client.sent.len(), pair.server.sent.len());
    let (written, expected) = (pair.server.written.len(), answer.clone());
    let seen = (words, items.to_vec());
    pair.server.most_reads = 0;
    pair.answer_with(move |call| {
        let (xid, words, items) = open(call);
        assert_eq!((words, items), seen);
        Some(reply(xid, answer.0, &answer.1))
    });
    let result = pair.call(message(xid, words, items), needed).unwrap();
    let (_, words, items) = open(&result);
    assert_eq!((words, items), expected);
    assert!(pair.client.registered.is_empty(), "memory stays registered");
    let payload = |end, from| {
        let mut types = types(end, from);
        types.retain(|&header_type| header_type != GRANT);
        types
    };
    Exchange {
        call: payload(&pair.client, before.0),
        reads: pair.server.most_reads,
        writes: pair.server.written.len() - written,
        reply: payload(&pair.server, before.1),
    }
}

/// Content of some hundred kilobytes, for which explicit RDMA is cheaper than many Sends.
fn long() -> Bytes {
    data(7, 400_000)
}

#[test]
fn wg_s6_6_1_2_figure_1_simple_call_and_simple_reply() {
    let mut pair = connected(|_, _| {});
    let went = exchange(&mut pair, (3, &[]), (5, &[]));
    went.is(&[CALL_INLINE], 0, 0, &[REPLY_INLINE]);
}

#[test]
fn wg_s6_6_1_2_figure_2_simple_call_with_a_read_chunk() {
    let mut pair = connected(|_, _| {});
    let went = exchange(&mut pair, (3, &[long()]), (5, &[]));
    went.is(&[CALL_INLINE], 1, 0, &[REPLY_INLINE]);
}

#[test]
fn wg_s6_6_1_2_figure_3_simple_reply_with_a_write_chunk() {
    let mut pair = connected(|_, _| {});
    let went = exchange(&mut pair, (3, &[]), (5, &[long()]));
    went.is(&[CALL_INLINE], 0, 1, &[REPLY_INLINE]);
}

#[test]
fn wg_s6_6_2_2_figure_4_continued_call_and_continued_reply() {
    let mut pair = connected(|_, _| {});
    let went = exchange(&mut pair, (2500, &[]), (2600, &[]));
    went.is(
        &[CALL_MIDDLE, CALL_MIDDLE, CALL_INLINE],
        0,
        0,
        &[REPLY_MIDDLE, REPLY_MIDDLE, REPLY_INLINE],
    );
}

#[test]
fn wg_s6_6_2_2_figure_5_continued_call_with_a_read_chunk() {
    let mut pair = connected(|_, _| {});
    let went = exchange(&mut pair, (2500, &[long()]), (5, &[]));
    went.is(
        &[CALL_MIDDLE, CALL_MIDDLE, CALL_INLINE],
        1,
        0,
        &[REPLY_INLINE],
    );
}

#[test]
fn wg_s6_6_2_2_figure_6_continued_reply_with_a_write_chunk() {
    let mut pair = connected(|_, _| {});
    let went = exchange(&mut pair, (3, &[]), (2500, &[long()]));
    went.is(
        &[CALL_INLINE],
        0,
        1,
        &[REPLY_MIDDLE, REPLY_MIDDLE, REPLY_INLINE],
    );
}

#[test]
fn wg_s6_6_3_1_figure_7_special_call() {
    // Sends cost more than by default, so that one RDMA Read replaces a hundred of them.
    let per_message = Duration::from_micros(20);
    let mut pair = connected(|client, _| client.costs.per_message = per_message);
    let went = exchange(&mut pair, (100_000, &[]), (5, &[]));
    went.is(&[CALL_EXTERNAL], 1, 0, &[REPLY_INLINE]);
}

#[test]
fn wg_s6_6_3_1_figure_8_special_reply() {
    // Sends cost more than by default, so that one RDMA Write replaces a hundred of them.
    let per_message = Duration::from_micros(20);
    let mut pair = connected(|client, _| client.costs.per_message = per_message);
    let went = exchange(&mut pair, (3, &[]), (100_000, &[]));
    went.is(&[CALL_INLINE], 0, 1, &[REPLY_EXTERNAL]);
}

/// Section 6.6.4: a reply that fits nothing that the requester provided is continued.
#[test]
fn wg_s6_6_4_a_reply_longer_than_what_was_provided_is_continued() {
    let mut pair = connected(|_, _| {});
    let needed = room(5, &[]);
    let went = exchange_with(&mut pair, (3, &[]), (2500, vec![data(2, 9000)]), &needed);
    assert_eq!(went.call, [CALL_INLINE]);
    assert_eq!(went.reply.last(), Some(&REPLY_INLINE));
    assert_eq!(went.reply[..4], [REPLY_MIDDLE; 4]);
    // A write chunk for a shorter result, and a reply chunk that is too short. Sends cost so much
    // that both are offered.
    let mut dear = connected(|client, _| client.costs.per_message = Duration::from_secs(1));
    let needed = room(2500, &[6000]);
    let before = dear.client.sent.len();
    let went = exchange_with(&mut dear, (3, &[]), (2500, vec![data(2, 9000)]), &needed);
    let (header, _) = Header::decode(&dear.client.sent[before].0).unwrap();
    let offered = header.body.chunks().unwrap();
    let len = |chunk: &WriteChunk| chunk.iter().map(|part| part.length).sum::<u32>();
    assert_eq!(offered.writes.iter().map(len).collect::<Vec<_>>(), [6000]);
    let reply_chunk = offered.reply.as_ref().map(len).unwrap_or_default();
    assert!((10_000..10_100).contains(&reply_chunk), "{offered:?}");
    assert_eq!((went.writes, went.reply.len()), (0, 5), "{went:?}");
    assert_eq!(went.reply.last(), Some(&REPLY_INLINE));
    // The call has the write chunk here, and it comes back unused.
    let went = exchange_with(&mut pair, (3, &[]), (5, vec![long()]), &room(5, &[300_000]));
    assert_eq!((went.writes, went.reply.len()), (0, 99));
    assert_eq!(went.reply.last(), Some(&REPLY_INLINE));
}

/// Section 6.5: the reply invalidates the handle that the call offers, and no other.
#[test]
fn wg_s6_5_the_offered_handle_is_invalidated_if_both_ends_want_that() {
    for (client, server) in [(true, true), (false, true), (true, false)] {
        let mut pair = connected(|ours, theirs| {
            ours.remote_invalidation = client;
            theirs.remote_invalidation = server;
        });
        let before = (pair.client.sent.len(), pair.server.sent.len());
        let _ = exchange(&mut pair, (3, &[long()]), (5, &[]));
        let (header, _) = Header::decode(&pair.client.sent[before.0].0).unwrap();
        let Body::Call {
            inv_handle, chunks, ..
        } = header.body
        else {
            panic!("{header:?}");
        };
        let handle = chunks.reads[0].segment.handle;
        assert_eq!(inv_handle, if client { handle } else { 0 });
        let invalidated = pair.server.sent[before.1].1.map(|stag| stag.0);
        assert_eq!(invalidated, (client && server).then_some(handle));
    }
}

/// Section 4.2.1: a message of many parts passes a receiver with few credits, which grants more
/// before they are used up.
#[test]
fn wg_s4_2_1_1_credits_are_refreshed_in_a_continued_message() {
    for credits in [1, 3, 4, 8] {
        let mut pair = connected(|client, server| {
            server.credits = credits;
            client.credits = credits;
            // Nothing but Sends is used.
            client.costs.registration = Duration::from_secs(1);
        });
        // The calls before have told the ends of each other's credits.
        for _ in 0..3 {
            let _ = exchange(&mut pair, (3, &[]), (5, &[]));
        }
        let needed = ReplyRoom::default();
        let before = pair.client.sent.len();
        let went = exchange_with(&mut pair, (3, &[]), (20_000, Vec::new()), &needed);
        assert_eq!(went.reply.len(), 20, "{credits} credits: {went:?}");
        let grants = types(&pair.client, before);
        let grants = grants.iter().filter(|&&header_type| header_type == GRANT);
        assert!(grants.count() >= 2, "{credits} credits");
        assert_eq!(pair.client.closed, None);
        assert_eq!(pair.server.closed, None);
    }
    // A grant is sent for the part with which half of what the sender was told is used up, and not
    // for every part.
    for credits in [4, 8, 32] {
        let mut peer = WgPeer::client(|client| client.credits = credits);
        peer.end.call(message(1, 1, &[]), &ReplyRoom::default());
        let _ = peer.take();
        let told = peer.flow.may_send();
        assert!(2 * told > credits, "{credits} credits: {told}");
        let answer = bytes(&reply(1, 400, &[]));
        let (mut rest, mut grants) = (&answer[..], 0);
        while rest.len() > 16 {
            let (part, others) = rest.split_at(16);
            peer.send_middle(Direction::Reply, 1, part, others.len());
            rest = others;
            let left = peer.flow.may_send();
            let sent = peer.take();
            assert!(sent.iter().all(|sent| sent.header.body == Body::Grant));
            assert_eq!(sent.len(), usize::from(2 * left <= credits), "{left} left");
            grants += sent.len();
        }
        assert!(grants > 1);
        peer.send(1, inline_reply(Chunks::default()), rest);
        assert_eq!(peer.end.finished.len(), 1);
    }
}

/// Section 4.3: one message each way until both ends have credits.
#[test]
fn wg_s4_3_the_first_messages_exchange_properties_and_credits() {
    let pair = connected(|client, server| {
        client.credits = 17;
        server.credits = 9;
    });
    let credit = |end: &Endpoint| Prefix::peek(&end.sent[0].0).unwrap().credit;
    assert_eq!(credit(&pair.client), 17);
    assert_eq!(credit(&pair.server), 1 + 9, "it has received one message");
    assert!(pair.client.sent[0].0.len() <= 1024);
}

/// A server whose calls are not answered yet advertises less, and never more calls pile up than it
/// has credits for.
#[test]
fn wg_s4_2_1_calls_in_progress_lower_the_credits() {
    let mut pair = connected(|_, server| server.credits = 4);
    pair.answer = None;
    for xid in 0..10 {
        pair.client.call(message(xid, 1, &[]), &room(1, &[]));
    }
    pair.settle();
    assert_eq!(pair.server.delivered.len(), 4);
    let (id, call) = pair.server.delivered.pop_front().unwrap();
    pair.server.reply(id, support::echo(&call));
    pair.settle();
    assert_eq!(pair.server.delivered.len(), 4);
    pair.answer_with(support::echo);
    pair.settle();
    assert_eq!(pair.client.finished.len(), 10);
}

/// Returns the features of an end, one in a line.
fn features(end: &Endpoint) -> Vec<String> {
    let features = end.connection.features().unwrap().to_string();
    features.lines().map(str::to_owned).collect()
}

#[test]
fn what_is_said_of_a_connection_is_what_it_does() {
    let pair = connected(|client, server| {
        (client.inline_send, server.inline_receive) = (8192, 16384);
        client.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap());
        server.protocols = rpcrdma_protocols::standard(&"ddp:send".parse().unwrap());
        server.remote_invalidation = false;
    });
    let client = features(&pair.client);
    for line in [
        "transport characteristics: yes (both ends have it)",
        "remote invalidation, by the peer: yes (each call says which handle)",
        "remote invalidation, by this end: yes (each call says which handle)",
        "bulk data placed by Sends, to the peer: no (the peer said nothing of it, which means \
         this)",
        "bulk data placed by Sends, from the peer: yes (both ends have it)",
        "transmissions of a call: any number (every peer of this version does)",
    ] {
        assert!(
            client.iter().any(|said| said == line),
            "{line}\n{client:#?}"
        );
    }
    let server = features(&pair.server);
    for line in [
        "remote invalidation, by this end: no (this end's choice)",
        "bulk data placed by Sends, to the peer: yes (both ends have it)",
        "bulk data placed by Sends, from the peer: no (this end's choice)",
    ] {
        assert!(
            server.iter().any(|said| said == line),
            "{line}\n{server:#?}"
        );
    }
}

/// Without extensions, the list has what the version itself settles.
#[test]
fn what_is_said_of_a_connection_without_extensions() {
    let pair = connected(|client, server| {
        (client.protocols, server.protocols) = (Protocols::default(), Protocols::default());
    });
    let client = [
        "inline, to the peer: 4096 B (the extensions say so)",
        "inline, from the peer: 4096 B (the extensions say so)",
        "transport characteristics: yes (both ends have it)",
        "remote invalidation, by the peer: yes (each call says which handle)",
        "remote invalidation, by this end: yes (each call says which handle)",
        "bulk data placed by Sends, to the peer: no (this end's choice)",
        "bulk data placed by Sends, from the peer: no (this end's choice)",
        "transmissions of a call: any number (every peer of this version does)",
        "transmissions of a reply: any number (every peer of this version does)",
    ];
    assert_eq!(features(&pair.client), client);
    let mut server = client.to_vec();
    server.insert(5, "backward calls: no (the extensions say so)");
    assert_eq!(features(&pair.server), server);
}

/// Returns the header types of a call of `len` bytes and the number of RDMA Reads, with a server
/// that takes so many messages at a time.
fn sent_with(credits: u32, len: usize, delay: Duration) -> (Vec<u32>, usize) {
    let mut pair = connected(|client, server| {
        server.credits = credits;
        client.costs.link_delay = delay;
    });
    let went = exchange(&mut pair, (1, &[data(1, len)]), (1, &[]));
    (went.call, went.reads)
}

/// Round trips in which a message waits for credits are a part of its cost.
#[test]
fn a_call_is_continued_where_it_does_not_wait_for_credits() {
    let (short, long) = (Duration::from_micros(5), Duration::from_millis(1));
    let continued = |parts: usize| {
        let mut types = vec![CALL_MIDDLE; parts - 1];
        types.push(CALL_INLINE);
        (types, 0)
    };
    assert_eq!(sent_with(64, 60_000, short), continued(15));
    assert_eq!(sent_with(8, 60_000, short), (vec![CALL_INLINE], 1));
    // Over a long path copies are cheap, and any number of messages that are not waited for.
    assert_eq!(sent_with(128, 400_000, long), continued(99));
    assert_eq!(sent_with(32, 400_000, long), (vec![CALL_INLINE], 1));
}

#[test]
fn a_call_that_waits_for_credits_arrives() {
    // One wait takes no more round trips than an RDMA Read, however long the path is, and goes for as
    // many messages as the peer has credits for. Two do, and one of a reply does as well, as RDMA
    // Writes are not waited for.
    for (call, reply, expected) in [
        (46_000, 1000, (12, 0, 0)),
        (60_000, 1000, (15, 0, 0)),
        (70_000, 1000, (1, 1, 0)),
        (1000, 46_000, (1, 0, 1)),
    ] {
        let mut pair = connected(|client, server| {
            (client.credits, server.credits) = (8, 8);
            client.costs.registration = Duration::from_secs(1);
        });
        let went = exchange(&mut pair, (1, &[data(1, call)]), (1, &[data(2, reply)]));
        let found = (went.call.len(), went.reads, went.writes);
        assert_eq!(found, expected, "{call} {reply}");
    }
}
