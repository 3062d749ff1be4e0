//! What the properties of version 2 of the working group change (version-two-07, sections 4.2.2, 4.3
//! and 5.2): lengths of messages and segments.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{Bulk, BulkItem, Message, Position};
use rpcrdma_connection::ReplyRoom;
use rpcrdma_v2_wg::{Body, Chunks, ErrorBody, Properties, Property, property_id};
use support::{WgPeer, bytes, data, inline_call, message, reply, room};

/// Length in bytes of the headers of a reply, as a call without chunks plans them: of the transport,
/// taken as long as in a call, and of an RPC reply.
const REPLY_HEADERS: u32 = 32 + 24;

fn sizes(send_size: u32, receive_size: u32) -> Properties {
    Properties {
        send_size,
        receive_size,
        ..Properties::default()
    }
}

/// Returns the length of the longest message of the end after its properties.
fn longest(peer: &WgPeer) -> usize {
    let lengths = peer.end.sent[1..].iter().map(|(sent, _)| sent.len());
    lengths.max().unwrap()
}

fn long_call(peer: &mut WgPeer, xid: u32) {
    let call = message(xid, 5000, &[]);
    peer.end.call(call, &ReplyRoom::default());
    peer.end.run();
}

#[test]
fn wg_s5_2_1_the_smaller_of_the_two_sizes_limits_a_message() {
    for (own, peers, expected) in [
        (8192, 16384, 8192),
        (8192, 4096, 4096),
        (4096, 8192, 4096),
        (8192, 8192, 8192),
    ] {
        // The peer's maximum send size has nothing to do with a message to it.
        for send_size in [1024, 65536] {
            let properties = sizes(send_size, peers);
            let mut peer = WgPeer::client_of(&properties, |client| client.inline_send = own);
            long_call(&mut peer, 1);
            assert_eq!(longest(&peer), expected, "{own} {peers}");
        }
        // A reply is limited by this end's receives and the peer's maximum send size alone: a call
        // offers a chunk for one that may be longer. Messages cost so much that none is continued.
        for receive_size in [1024, 65536] {
            let offers_chunk = |reply: usize| {
                let properties = sizes(peers, receive_size);
                let mut peer = WgPeer::client_of(&properties, |client| {
                    client.inline_receive = own;
                    client.costs.per_message = Duration::from_secs(1);
                });
                let room = ReplyRoom {
                    payload: reply as u32 - REPLY_HEADERS,
                    ..ReplyRoom::default()
                };
                peer.end.call(message(1, 1, &[]), &room);
                let sent = peer.take();
                let [call] = &sent[..] else {
                    panic!("{sent:?}");
                };
                call.header.body.chunks().unwrap().reply.is_some()
            };
            assert!(!offers_chunk(expected), "{own} {peers}");
            assert!(offers_chunk(expected + 4), "{own} {peers}");
        }
    }
}

/// A maximum send size that is shorter than most replies is taken seriously, and one in which no reply at
/// all would fit does not keep calls back.
#[test]
fn wg_s5_2_1_a_peer_that_sends_little_is_offered_chunks() {
    for (send_size, room, chunk) in [
        (512, 512 - REPLY_HEADERS, false),
        (512, 516 - REPLY_HEADERS, true),
        (3, 0, false),
        (0, 0, false),
        (0, 100, true),
    ] {
        let mut peer = WgPeer::client_of(&sizes(send_size, 4096), |client| {
            client.costs.per_message = Duration::from_secs(1);
        });
        let payload = ReplyRoom {
            payload: room,
            ..ReplyRoom::default()
        };
        peer.end.call(message(1, 1, &[]), &payload);
        let sent = peer.take();
        assert_eq!(sent.len(), 1, "{send_size} {room}");
        let offered = sent[0].header.body.chunks().unwrap().reply.is_some();
        assert_eq!(offered, chunk, "{send_size} {room}");
    }
}

#[test]
fn wg_s5_2_2_a_lower_receive_size_counts_from_when_it_was_read() {
    let mut peer = WgPeer::listening(|_| {});
    let call = bytes(&message(1, 1, &[]));
    peer.send(1, inline_call(Chunks::default()), &call);
    peer.reply(Some(reply(1, 3000, &[])));
    assert_eq!(longest(&peer), 4096, "the default");
    let before = peer.end.sent.len();
    peer.properties(sizes(4096, 2048).encode(), true);
    peer.send(2, inline_call(Chunks::default()), &call_with(2));
    peer.reply(Some(reply(2, 3000, &[])));
    let after = peer.end.sent[before..].iter().map(|(sent, _)| sent.len());
    assert_eq!(after.max(), Some(2048));
}

/// Nothing keeps a peer from announcing receives below the length of a first message. They are not
/// exceeded, and what does not fit them fails.
#[test]
fn wg_s5_2_2_a_receive_size_below_1024_is_not_exceeded() {
    for size in [0, 16, 24, 40, 64, 512, 1023] {
        let mut peer = WgPeer::client_of(&sizes(4096, size), |_| {});
        long_call(&mut peer, 1);
        let sent = peer.take();
        match sent.is_empty() {
            true => {
                let (_, result) = peer.end.finished.remove(0);
                let error = result.unwrap_err().to_string();
                assert!(error.contains("inline threshold"), "{size}: {error}");
                assert!(size < 40, "{size}");
            }
            false => assert!(longest(&peer) <= size as usize, "{size}"),
        }
        let mut peer = WgPeer::listening(|_| {});
        peer.properties(sizes(4096, size).encode(), true);
        let _ = peer.take();
        let before = peer.end.sent.len();
        peer.send(2, inline_call(Chunks::default()), &call_with(2));
        peer.reply(Some(reply(2, 3000, &[])));
        let sent = peer.taken();
        let lengths = peer.end.sent[before..].iter().map(|(sent, _)| sent.len());
        match sent[..] {
            // An error is the shortest answer that there is.
            [Body::Error(error)] => {
                assert_eq!(error, ErrorBody::ReplyResource { needed: 0 }, "{size}");
                assert!(size < 24, "{size}");
            }
            // The last parts of the longest ones wait for credits.
            [Body::Middle { .. } | Body::Reply { .. }, ..] => {
                assert!(lengths.max() <= Some(size as usize), "{size}");
                assert!(size >= 24, "{size}");
            }
            _ => panic!("{size}: {sent:?}"),
        }
    }
}

fn call_with(xid: u32) -> Vec<u8> {
    bytes(&message(xid, 1, &[]))
}

#[test]
fn wg_s5_2_3_long_segments_are_divided_by_the_requester() {
    for (segment_size, count) in [(1 << 20, 1), (100_000, 4), (65_536, 7)] {
        let properties = Properties {
            segment_size,
            ..Properties::default()
        };
        let mut peer = WgPeer::client_of(&properties, |_| {});
        let call = message(1, 1, &[data(1, 400_000)]);
        peer.end.call(call, &room(1, &[400_000]));
        let sent = peer.take();
        let chunks = sent[0].header.body.chunks().unwrap();
        let reads: Vec<u32> = chunks
            .reads
            .iter()
            .map(|read| read.segment.length)
            .collect();
        let writes: Vec<u32> = chunks.writes[0].iter().map(|part| part.length).collect();
        for lengths in [reads, writes] {
            assert_eq!(lengths.len(), count);
            assert!(
                lengths.iter().all(|&len| len <= segment_size),
                "{lengths:?}"
            );
        }
    }
}

/// All segments of a call's header count, those for its reply included. Data in more pieces than
/// that is copied together.
#[test]
fn wg_s5_2_4_a_requester_keeps_the_segment_count_of_its_peer() {
    let call = |segment_count: u32, pieces: usize| {
        let properties = Properties {
            segment_count,
            segment_size: 50_000,
            ..Properties::default()
        };
        // Messages cost so much that chunks are used.
        let dear = Duration::from_secs(1);
        let mut peer = WgPeer::client_of(&properties, |client| client.costs.per_message = dear);
        let whole = data(1, 200_000);
        let pieces: Bulk = whole
            .chunks(200_000 / pieces)
            .map(Bytes::copy_from_slice)
            .collect();
        let item = BulkItem {
            position: Position::At(20),
            data: pieces,
        };
        let call = Message::new(message(1, 1, &[]).into_payload(), [item]);
        peer.end.call(call, &room(1, &[200_000]));
        let sent = peer.take();
        let last = sent.last().map(|sent| sent.header.body.clone());
        let listed = last.map(|body| body.chunks().unwrap().handles().count());
        (listed, peer.end.finished.len())
    };
    assert_eq!(call(16, 1), (Some(8), 0));
    assert_eq!(call(8, 1), (Some(8), 0));
    let (fewer, _) = call(7, 1);
    assert!(fewer.is_some_and(|listed| listed <= 7), "{fewer:?}");
    // Ten pieces fit sixteen segments beside the reply's four, and no fewer.
    assert_eq!(call(16, 10), (Some(14), 0));
    assert_eq!(call(13, 10), (Some(8), 0));
    // Not even one segment: the call goes without chunks.
    assert_eq!(call(0, 1).0.unwrap_or_default(), 0);
}

/// Each end sends by the other's receives, whether it sends calls or replies.
#[test]
fn wg_s4_2_2_each_direction_has_its_own_inline_threshold() {
    let callbacks = rpcrdma_connection::CallbackOptions {
        credits: 2,
        chunks: false,
    };
    let mut peer = WgPeer::client_of(&sizes(4096, 8192), |client| {
        client.callbacks = callbacks;
        (client.inline_send, client.inline_receive) = (16384, 4096);
    });
    long_call(&mut peer, 1);
    assert_eq!(longest(&peer), 8192, "call");
    let mut peer = WgPeer::client_of(&sizes(4096, 8192), |client| {
        client.callbacks = callbacks;
        (client.inline_send, client.inline_receive) = (16384, 4096);
    });
    peer.send(5, inline_call(Chunks::default()), &call_with(5));
    peer.reply(Some(reply(5, 5000, &[])));
    assert_eq!(longest(&peer), 8192, "reply");
}

/// A version 1 server discards a shorter message without an answer (RFC 8166, section 4.5).
#[test]
fn wg_s4_3_the_first_message_is_long_enough_for_version_1() {
    let peer = WgPeer::client(|_| {});
    let first = &peer.end.sent[0].0;
    assert!((28..=1024).contains(&first.len()), "{}", first.len());
    let told = |id| move |property: &Property| property.id == id && property.value.len() == 4;
    let (header, _) = rpcrdma_v2_wg::Header::decode(first).unwrap();
    let Body::Properties { properties, .. } = header.body else {
        panic!("{header:?}");
    };
    for id in [property_id::SEND_SIZE, property_id::RECEIVE_SIZE] {
        assert!(properties.iter().any(told(id)), "{id}");
    }
}

/// Both ends have said 1024 bytes in private data; receives of version 2 hold 4096.
#[test]
fn wg_s4_2_2_private_data_counts_in_version_1_alone() {
    let mut peer = WgPeer::client(|client| client.inline_receive = 1024);
    assert!(
        peer.end
            .receives
            .iter()
            .all(|receive| receive.size() >= 4096)
    );
    long_call(&mut peer, 1);
    assert_eq!(longest(&peer), 4096, "the peer's private data is no limit");
}
