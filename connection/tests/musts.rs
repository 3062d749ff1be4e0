//! Tests of the requirements of RFC 8166 and RFC 8797 for connections, by the messages sent, named
//! by section. Headers and chunk lists are tested in the crate of their protocol version;
//! requirements that need a device are tested with the driver in `transport`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use onc_rpc::Message;
use rdma::{Pool, Region, Stag};
use rpcrdma_connection::{CallError, Options};
use rpcrdma_ext_xchar::{RESPXCH, Response, Subset};
use rpcrdma_negotiation::Version;
use rpcrdma_v1::{Body, Chunks, ErrorBody, Header, PrivateData, ReadSegment, Segment, WriteChunk};
use rpcrdma_v2::{Direction, Optional};
use support::{
    Endpoint, Pair, Posted, Seen, bytes, configs, configs_with, data, message, open, room,
};

const ONE: Version = Version::ONE;

/// Returns a connected client in version 1. The test acts as its server.
fn alone(credits: u32) -> Endpoint {
    let (client, _) = configs_with(ONE, |client, _| client.credits = credits);
    let mut client = Endpoint::new(client);
    client.establish(Some(PrivateData::new(4096, 4096, true)));
    client
}

/// Returns a connected server in version 1 that grants four credits. The test acts as its client.
fn server() -> Endpoint {
    let (_, mut config) = configs_with(ONE, |_, server| {
        server.credits = 4;
        server.max_message = 1 << 20;
    });
    config.max_fetched = 1 << 20;
    let mut server = Endpoint::new(config);
    server.establish(Some(PrivateData::new(4096, 4096, true)));
    server
}

/// Makes a call, and executes the actions that follow.
fn submit(client: &mut Endpoint, call: Message, items: &[usize]) {
    client.call(call, &room(0, items));
    client.run();
}

/// Delivers a message that the test made to an end.
fn receive(end: &mut Endpoint, header: &Header, payload: &[u8]) {
    receive_with(end, header, payload, None);
}

fn receive_with(end: &mut Endpoint, header: &Header, payload: &[u8], invalidate: Option<Stag>) {
    let message = [&header.encode()[..], payload].concat().into();
    end.receive(&message, invalidate).unwrap();
    end.run();
}

/// Returns the chunks that the last call offered.
fn offered(client: &Endpoint) -> Chunks {
    let (bytes, _) = client.sent.last().unwrap();
    Seen::new(bytes).unwrap().chunks.unwrap()
}

fn reply(xid: u32, credits: u32, chunks: Chunks) -> Header {
    let body = Body::Msg(chunks);
    Header { xid, credits, body }
}

fn plain(xid: u32) -> Message {
    message(xid, 0, &[])
}

/// Returns the reply that a server which echoes would send to [`plain`].
fn plain_reply(xid: u32) -> Vec<u8> {
    bytes(&support::reply(xid, 0, &[]))
}

fn call(xid: u32, body: Body) -> Header {
    Header {
        xid,
        credits: 4,
        body,
    }
}

/// Returns the only message sent after the first `before` Sends, which must be an error.
#[track_caller]
fn one_error(end: &Endpoint, before: usize) -> Header {
    let [(bytes, invalidate)] = &end.sent[before..] else {
        panic!("{:?}", end.sent);
    };
    assert!(invalidate.is_none(), "an error invalidates nothing");
    let (header, _) = Header::decode(bytes).unwrap();
    assert!(matches!(header.body, Body::Error(_)), "{header:?}");
    header
}

/// Returns the headers and payloads that an end sent, in order.
fn sent(end: &Endpoint) -> Vec<(Header, Bytes)> {
    let sent = end.sent.iter().map(|(bytes, _)| {
        let (header, at) = Header::decode(bytes).unwrap();
        (header, bytes.slice(at..))
    });
    sent.collect()
}

fn chunks(header: &Header) -> &Chunks {
    match &header.body {
        Body::Msg(chunks) | Body::NoMsg(chunks) => chunks,
        Body::Error(error) => panic!("{error:?}"),
    }
}

/// Returns the chunks of a reply that uses none of those that were offered.
fn unused(offered: &Chunks) -> Chunks {
    let none = |chunk: &WriteChunk| rpcrdma_v1::unused(chunk);
    Chunks {
        reads: vec![],
        writes: offered.writes.iter().map(none).collect(),
        reply: offered.reply.as_ref().map(none),
    }
}

/// Calls that are registered or waiting are not sent into a full send queue: the grant may be
/// lowered before there is room.
#[test]
fn s3_3_1_calls_without_room_in_the_send_queue_heed_a_grant_that_is_lowered() {
    let mut client = alone(8);
    let none = Chunks::default;
    submit(&mut client, plain(0), &[]);
    receive(&mut client, &reply(0, 4, none()), &plain_reply(0));
    client.room = 1;
    for xid in 1..=4 {
        // Every other one has memory registered.
        let items: &[usize] = if xid % 2 == 0 { &[8192] } else { &[] };
        submit(&mut client, plain(xid), items);
    }
    assert_eq!(client.sent.len(), 2, "one has room");
    receive(&mut client, &reply(1, 1, none()), &plain_reply(1));
    assert_eq!(client.sent.len(), 2);
    assert_eq!(client.connection.expected_messages(), 0);
    client.room = 8;
    client.run();
    assert_eq!(client.sent.len(), 3, "one credit is left");
}

/// An error frees its call for the next one. The credits in it are no grant.
#[test]
fn s3_3_3_one_call_at_a_time_until_a_valid_reply_has_come() {
    for error in [ErrorBody::Chunk, ErrorBody::Version { low: 1, high: 1 }] {
        let mut client = alone(8);
        for xid in 0..6 {
            submit(&mut client, plain(xid), &[]);
        }
        assert_eq!(client.sent.len(), 1);
        for xid in 0..2 {
            let header = call(xid, Body::Error(error));
            receive(&mut client, &header, &[]);
            let (ended, result) = client.finished.pop().unwrap();
            assert_eq!((ended, result.is_err()), (xid, true));
            assert_eq!(client.sent.len(), 2 + xid as usize, "{error:?}");
        }
        receive(
            &mut client,
            &reply(2, 4, Chunks::default()),
            &plain_reply(2),
        );
        assert_eq!(client.sent.len(), 6, "{error:?}");
    }
}

/// A responder that grants less in an error may have fewer receives from then on.
#[test]
fn s3_3_1_the_credits_of_an_error_lower_the_limit() {
    let mut client = alone(8);
    submit(&mut client, plain(0), &[]);
    receive(
        &mut client,
        &reply(0, 8, Chunks::default()),
        &plain_reply(0),
    );
    for xid in 1..=3 {
        submit(&mut client, plain(xid), &[]);
    }
    assert_eq!(client.sent.len(), 4);
    let header = Header {
        xid: 1,
        credits: 2,
        body: Body::Error(ErrorBody::Chunk),
    };
    receive(&mut client, &header, &[]);
    submit(&mut client, plain(4), &[]);
    assert_eq!(client.sent.len(), 4, "two calls are outstanding");
    receive(
        &mut client,
        &reply(2, 3, Chunks::default()),
        &plain_reply(2),
    );
    assert_eq!(client.sent.len(), 5);
}

#[test]
fn s3_3_1_calls_over_the_grant_wait_and_none_gets_lost() {
    let mut client = alone(8);
    for xid in 0..20 {
        submit(&mut client, plain(xid), &[]);
    }
    assert_eq!(client.sent.len(), 1, "one credit until a reply says more");
    let mut answered = 0;
    // Grants go up, down and beyond what was asked for.
    for granted in [3, 3, 1, 1, 1, 100, 8, 2] {
        let before = client.sent.len();
        let header = reply(answered, granted, Chunks::default());
        receive(&mut client, &header, &plain_reply(answered));
        answered += 1;
        let outstanding = client.sent.len() as u32 - answered;
        assert_eq!(outstanding, client.connection.expected_messages());
        // A lower grant takes nothing back; it only lets nothing follow.
        let grew = client.sent.len() > before;
        assert!(
            !grew || outstanding <= granted.min(8),
            "{outstanding} with {granted} granted"
        );
        assert!(
            outstanding >= granted.min(8) || client.sent.len() == 20,
            "credits are used"
        );
    }
    while answered < 20 {
        let header = reply(answered, 2, Chunks::default());
        receive(&mut client, &header, &plain_reply(answered));
        answered += 1;
    }
    let xids: Vec<u32> = client.finished.iter().map(|(xid, _)| *xid).collect();
    assert_eq!(
        xids,
        (0..20).collect::<Vec<u32>>(),
        "in order, and each once"
    );
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.most_in_flight, 8);
}

#[test]
fn s3_3_1_a_grant_of_zero_serialises_and_does_not_stop_the_client() {
    let mut client = alone(8);
    for xid in 0..5 {
        submit(&mut client, plain(xid), &[]);
    }
    for xid in 0..5 {
        assert_eq!(client.sent.len() as u32, xid + 1, "one at a time");
        let header = reply(xid, 0, Chunks::default());
        receive(&mut client, &header, &plain_reply(xid));
    }
    assert_eq!(client.finished.len(), 5);
}

#[test]
fn s3_3_1_a_requester_has_receives_for_all_replies_it_expects() {
    let mut pair = Pair::echoing(configs(ONE));
    pair.call(plain(1000), &room(0, &[])).unwrap();
    pair.answer = None;
    for xid in 0..64 {
        pair.client.call(plain(xid), &room(0, &[]));
    }
    pair.settle();
    assert_eq!(pair.server.delivered.len(), 64);
    // All replies are sent before the client takes the first.
    while let Some((id, call)) = pair.server.delivered.pop_front() {
        pair.server.reply(id, support::echo(&call));
    }
    pair.server.run();
    assert_eq!(pair.server.sends_under_way(), 64);
    assert!(pair.client.receives.len() >= 64);
    assert_eq!(pair.client.connection.expected_messages(), 64);
    pair.settle();
    assert_eq!(pair.client.finished.len(), 64);
}

#[test]
fn s3_3_1_a_peer_that_exceeds_its_grant_loses_its_connection() {
    let mut server = server();
    for xid in 0..4 {
        let header = call(xid, Body::Msg(Chunks::default()));
        receive(&mut server, &header, &bytes(&plain(xid)));
        assert_eq!(server.delivered.len() as u32, xid + 1);
        assert_eq!(server.closed, None);
    }
    let header = call(4, Body::Msg(Chunks::default()));
    receive(&mut server, &header, &bytes(&plain(4)));
    let reason = server.closed.as_deref().unwrap();
    assert!(reason.contains("4 were granted at most"), "{reason}");
    assert_eq!(server.delivered.len(), 4, "the fifth is not executed");
}

#[test]
fn s3_3_1_credits_are_asked_for_in_every_call_and_granted_in_every_reply() {
    let mut pair = Pair::echoing(configs(ONE));
    for xid in 0..10 {
        pair.client.call(plain(xid), &room(0, &[]));
    }
    pair.settle();
    assert_eq!(pair.client.finished.len(), 10);
    assert!(
        pair.client
            .finished
            .iter()
            .all(|(_, result)| result.is_ok())
    );
    assert!(
        sent(&pair.client)
            .iter()
            .all(|(call, _)| call.credits == 128)
    );
    assert!(
        sent(&pair.server)
            .iter()
            .all(|(reply, _)| reply.credits == 64)
    );
}

#[test]
fn s3_3_2_receives_are_as_long_as_was_advertised() {
    for size in [1024, 4096, 262_144] {
        let mut pair = Pair::echoing(configs_with(ONE, |client, server| {
            for options in [client, server] {
                options.credits = 4;
                (options.inline_receive, options.inline_send) = (size, size);
            }
        }));
        for end in [&pair.client, &pair.server] {
            let long =
                |receive: &rpcrdma_connection::ReceiveStructure| receive.size() >= size as usize;
            assert!(!end.receives.is_empty() && end.receives.iter().all(long));
        }
        // Exactly at the threshold, both ways: 28 bytes of header, 16 of message.
        let words = (size as usize - 28 - 16) / 4;
        let reply = pair.call(message(1, words, &[]), &room(words, &[]));
        assert_eq!(open(&reply.unwrap()).1, words);
        for end in [&pair.client, &pair.server] {
            let longest = sent(end).iter().map(|(_, payload)| payload.len()).max();
            assert_eq!(longest, Some(size as usize - 28));
        }
        assert_eq!(pair.client.registrations, 0, "{size}");
    }
}

#[test]
fn s3_3_3_the_first_call_fits_1024_bytes_without_another_agreement() {
    let mut pair = Pair::echoing(configs_with(ONE, |client, _| client.private_data = false));
    let items = [data(1, 1500)];
    pair.call(message(1, 0, &items), &room(0, &[1500])).unwrap();
    for end in [&pair.client, &pair.server] {
        for (bytes, _) in &end.sent {
            assert!(bytes.len() <= 1024);
        }
    }
}

#[test]
fn s3_4_5_read_chunks_of_any_number_and_segmentation_are_fetched_and_put_in_place() {
    let mut pair = Pair::echoing(configs_with(ONE, |client, _| client.max_segment = 4096));
    let items = [data(1, 10_001), data(2, 4096), data(3, 70_000)];
    let room = room(2, &[10_001, 4096, 70_000]);
    let reply = pair.call(message(1, 2, &items), &room).unwrap();
    assert_eq!(open(&reply), (1, 2, items.to_vec()));
    let call = sent(&pair.client).remove(0).0;
    let reads = chunks(&call).reads.iter();
    let positions: Vec<u32> = reads.map(|read| read.position).collect();
    // Counted from the start of the unreduced stream: 16 bytes, the count, and each length.
    let (first, second) = (24, 24 + 10_004 + 4);
    let third = second + 4096 + 4;
    assert_eq!(positions[..4], [first, first, first, second]);
    assert_eq!(positions[4..], [third; 18]);
}

#[test]
fn s3_4_6_write_chunks_are_long_enough_and_returned_with_what_is_in_them() {
    let mut pair = Pair::new(configs_with(ONE, |client, _| client.max_segment = 4096));
    let item = data(5, 5001);
    let answer = item.clone();
    pair.answer_with(move |call| {
        let items = std::slice::from_ref(&answer);
        Some(support::reply(open(call).0, 0, items))
    });
    let reply = pair.call(plain(1), &room(0, &[10_000])).unwrap();
    assert_eq!(open(&reply).2, [item]);
    let (call, reply) = (
        sent(&pair.client).remove(0).0,
        sent(&pair.server).remove(0).0,
    );
    let lengths = |header: &Header| -> Vec<u32> {
        let segments = chunks(header).writes[0].iter();
        segments.map(|segment| segment.length).collect()
    };
    assert_eq!(lengths(&call), [4096, 4096, 1808]);
    assert_eq!(
        lengths(&reply),
        [4096, 905, 0],
        "in order, without round-up"
    );
    let handles = |header: &Header| -> Vec<(u32, u64)> {
        let segments = chunks(header).writes[0].iter();
        segments
            .map(|segment| (segment.handle, segment.offset))
            .collect()
    };
    assert_eq!(handles(&call), handles(&reply));
}

#[test]
fn s3_4_6_2_round_up_is_not_written() {
    let mut pair = Pair::new(configs(ONE));
    pair.answer_with(|call| Some(support::reply(open(call).0, 0, &[data(1, 5001)])));
    pair.call(plain(1), &room(0, &[8192])).unwrap();
    assert_eq!(pair.server.written, [5001]);
}

#[test]
fn s3_5_3_long_calls_and_replies_travel_by_chunks() {
    let mut pair = Pair::echoing(configs(ONE));
    let reply = pair.call(message(1, 5000, &[]), &room(5000, &[])).unwrap();
    assert_eq!(open(&reply).1, 5000);
    let (call, payload) = sent(&pair.client).remove(0);
    assert!(matches!(call.body, Body::NoMsg(_)) && payload.is_empty());
    assert!(!chunks(&call).reads.is_empty());
    assert!(chunks(&call).reads.iter().all(|read| read.position == 0));
    let (reply, payload) = sent(&pair.server).remove(0);
    assert!(matches!(reply.body, Body::NoMsg(_)) && payload.is_empty());
    assert_eq!(chunks(&reply).reply.as_ref().unwrap()[0].length, 20_016);
}

#[test]
fn s4_2_1_a_call_whose_header_has_another_xid_is_refused() {
    let mut server = server();
    let header = call(1, Body::Msg(Chunks::default()));
    receive(&mut server, &header, &bytes(&plain(2)));
    let error = one_error(&server, 0);
    assert_eq!((error.xid, error.body), (1, Body::Error(ErrorBody::Chunk)));
    // In a Long Call the RPC message can be looked at only when it is here.
    let segment = Segment {
        handle: 5,
        length: 16,
        offset: 0,
    };
    let position = 0;
    let mut long = Chunks::default();
    long.reads.push(ReadSegment { position, segment });
    receive(&mut server, &call(3, Body::NoMsg(long)), &[]);
    let mut read = server.reads.remove(0);
    read.sink.copy_from_slice(&bytes(&plain(4)));
    server.read_done(read);
    server.run();
    assert_eq!(one_error(&server, 1).xid, 3);
    assert_eq!(server.connection.unanswered_calls(), 0);
    assert!(server.delivered.is_empty());
}

#[test]
fn s4_2_4_no_send_exceeds_the_inline_threshold() {
    let mut pair = Pair::echoing(configs_with(ONE, |client, server| {
        client.inline_receive = 2048;
        server.inline_receive = 1024;
    }));
    for (xid, words) in (200..520).enumerate() {
        let call = message(xid as u32, words, &[]);
        let reply = pair.call(call, &room(words, &[])).unwrap();
        assert_eq!(open(&reply).1, words);
    }
    let longest = |end: &Endpoint| end.sent.iter().map(|(bytes, _)| bytes.len()).max();
    assert_eq!(
        (longest(&pair.client), longest(&pair.server)),
        (Some(1024), Some(2048))
    );
}

#[test]
fn s4_3_2_2_unused_write_chunks_are_returned_and_released() {
    let mut pair = Pair::new(configs(ONE));
    pair.answer_with(|call| Some(support::reply(open(call).0, 0, &[])));
    let reply = pair.call(plain(1), &room(0, &[9000, 9000])).unwrap();
    assert_eq!(reply.items().len(), 2);
    assert!(reply.items().iter().all(|item| item.data.is_empty()));
    let reply_header = sent(&pair.server).remove(0).0;
    let writes = &chunks(&reply_header).writes;
    assert_eq!(writes.len(), 2);
    let lengths: Vec<u32> = writes
        .iter()
        .flatten()
        .map(|segment| segment.length)
        .collect();
    assert_eq!(lengths, [0, 0]);
    drop(reply);
    assert_eq!(pair.client.pool.in_use(), 0, "both chunks are back");
}

#[test]
fn s4_3_3_the_reply_chunk_is_returned_when_the_reply_fits_inline() {
    let mut pair = Pair::echoing(configs(ONE));
    drop(pair.call(plain(1), &room(5000, &[])).unwrap());
    let reply = sent(&pair.server).remove(0).0;
    assert!(matches!(reply.body, Body::Msg(_)));
    assert_eq!(chunks(&reply).reply.as_ref().unwrap()[0].length, 0);
    assert_eq!(pair.client.pool.in_use(), 0);
}

/// RFC 8166, section 4.4.1: memory is invalidated before the upper layer gets the reply.
#[test]
fn s4_4_1_memory_is_fenced_before_it_is_looked_at() {
    let mut client = alone(4);
    let items = [data(1, 9000)];
    client.call(message(1, 0, &items), &room(5000, &[7000]));
    client.run();
    let offered = offered(&client);
    assert_eq!(client.registered.len(), 3);
    let header = reply(1, 4, unused(&offered));
    let message = [&header.encode()[..], &plain_reply(1)].concat().into();
    client.receive(&message, None).unwrap();
    client.poll();
    // The reply is known now, and the device invalidates one handle after the other.
    for left in (1..=3).rev() {
        assert_eq!((client.registered.len(), client.finished.len()), (left, 0));
        client.invalidate(0);
        client.poll();
    }
    assert_eq!(client.finished.len(), 1);
    assert_eq!(client.invalidated.len(), 3);
    assert!(
        client.registered.is_empty(),
        "nothing stays registered after its call"
    );
}

/// RFC 8166, section 4.2.1, for a reply in a reply chunk, whose XID can be checked only after the
/// chunk has been invalidated.
#[test]
fn s4_2_1_a_long_reply_with_the_xid_of_another_call_is_not_delivered() {
    for inside in [1, 2] {
        let mut client = alone(4);
        client.call(plain(1), &room(5000, &[]));
        client.run();
        let offered = offered(&client);
        let payload = bytes(&support::reply(inside, 5000, &[]));
        let segment = offered.reply.as_ref().unwrap()[0];
        let stag = Stag(segment.handle);
        let Region::RemoteWrite(_) = &client.registered[&stag].region else {
            panic!("no reply chunk")
        };
        let written = client.remote_write(stag, segment.offset, &payload);
        written.unwrap();
        let mut chunks = unused(&offered);
        chunks.reply.as_mut().unwrap()[0].length = payload.len() as u32;
        let header = Header {
            xid: 1,
            credits: 4,
            body: Body::NoMsg(chunks),
        };
        receive(&mut client, &header, &[]);
        let (xid, end) = client.finished.remove(0);
        assert_eq!(xid, 1);
        match end {
            Ok(reply) => assert_eq!((inside, open(&reply).1), (1, 5000)),
            Err(error) => assert!(inside == 2 && matches!(error, CallError::Protocol(_))),
        }
    }
}

#[test]
fn s4_5_replies_with_a_bad_header_are_discarded() {
    let mut client = alone(4);
    submit(&mut client, plain(1), &[8192]);
    let good = unused(&offered(&client));
    let mut longer = good.clone();
    longer.writes[0][0].length = 8193;
    let mut other = good.clone();
    other.writes[0][0].handle += 1;
    let mut more = good.clone();
    more.writes.push(WriteChunk::new());
    let segment = good.writes[0][0];
    let mut reading = good.clone();
    reading.reads.push(ReadSegment {
        position: 4,
        segment,
    });
    for bad in [longer, other, more, reading] {
        receive(&mut client, &reply(1, 4, bad), &plain_reply(1));
    }
    receive(&mut client, &reply(1, 4, good.clone()), &plain_reply(2));
    for noise in [&[][..], &[0; 27], &[0xff; 40]] {
        client.receive(&Bytes::from_static(noise), None).unwrap();
        client.run();
    }
    assert!(
        client.finished.is_empty() && client.sent.len() == 1,
        "no answer, no end"
    );
    let counters = client.connection.requester_counters().unwrap();
    assert!(counters.discarded >= 7, "{counters:?}");
    assert_eq!(
        client.connection.expected_messages(),
        1,
        "no credit is free"
    );
    // The call is still there for the right reply.
    receive(&mut client, &reply(1, 4, good), &plain_reply(1));
    assert_eq!(client.finished.len(), 1);
}

#[test]
fn s4_5_an_rdma_error_ends_its_call_for_good() {
    let mut client = alone(4);
    submit(&mut client, message(1, 0, &[data(1, 9000)]), &[]);
    let error = |xid, error| call(xid, Body::Error(error));
    let header = error(1, ErrorBody::Chunk);
    receive(&mut client, &header, &[]);
    assert!(
        matches!(client.finished[..], [(1, Err(CallError::Chunk(_)))]),
        "{:?}",
        client.finished
    );
    assert!(client.registered.is_empty());
    assert_eq!(client.connection.expected_messages(), 0);
    receive(&mut client, &header, &[]);
    assert_eq!(
        (client.finished.len(), client.sent.len()),
        (1, 1),
        "once, and not sent again"
    );
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.unknown_xid, 1);

    submit(&mut client, plain(2), &[]);
    let header = error(2, ErrorBody::Version { low: 2, high: 3 });
    receive(&mut client, &header, &[]);
    let (_, Err(CallError::Protocol(reason))) = &client.finished[1] else {
        panic!("{:?}", client.finished);
    };
    assert!(reason.contains("2 to 3"), "{reason}");
    assert!(!client.misjudged, "version 1 is what the user asked for");
}

#[test]
fn s4_5_replies_to_no_call_are_dropped_and_counted() {
    let mut client = alone(4);
    submit(&mut client, plain(1), &[]);
    for xid in [0, 2, u32::MAX] {
        let header = reply(xid, 100, Chunks::default());
        receive(&mut client, &header, &plain_reply(xid));
    }
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.unknown_xid, 3);
    assert_eq!(
        client.connection.expected_messages(),
        1,
        "they free no credit"
    );
    submit(&mut client, plain(2), &[]);
    assert_eq!(client.sent.len(), 1, "and grant none");
}

#[test]
fn s4_5_1_and_s4_5_2_bad_calls_are_answered_and_not_executed() {
    let mut server = server();
    let header = call(7, Body::Msg(Chunks::default()));
    let good: Bytes = [&header.encode()[..], &bytes(&plain(7))].concat().into();
    // The first message of all settles the version; so that this says nothing of it, one call comes
    // before.
    server.receive(&good, None).unwrap();
    server.run();
    let (id, _) = server.delivered.pop_front().unwrap();
    server.reply(id, None);
    server.run();
    assert!(server.sent.is_empty());

    let with = |at: usize, word: u32| {
        let mut bytes = good.to_vec();
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        Bytes::from(bytes)
    };
    server.receive(&with(4, 9), None).unwrap();
    server.run();
    // The error has the version of what it answers, so it is looked at word by word.
    let [(answer, None)] = &server.sent[..] else {
        panic!("no answer");
    };
    let words = answer.chunks_exact(4);
    let words: Vec<u32> = words
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!((words[0], words[1], &words[3..]), (7, 9, &[4, 1, 1, 1][..]));
    for (at, word) in [(12, 77), (16, 2), (24, 3)] {
        let before = server.sent.len();
        server.receive(&with(at, word), None).unwrap();
        server.run();
        let error = one_error(&server, before);
        assert_eq!((error.xid, error.body), (7, Body::Error(ErrorBody::Chunk)));
        assert!(error.credits > 0);
    }
    let before = server.sent.len();
    for silent in [with(12, 3), with(12, 4), good.slice(..27)] {
        server.receive(&silent, None).unwrap();
        server.run();
        assert_eq!(server.sent.len(), before);
    }
    let counters = server.connection.responder_counters().unwrap();
    assert_eq!(
        (
            server.connection.unanswered_calls(),
            counters.discarded,
            counters.errors_sent
        ),
        (0, 3, 4)
    );
    assert!(server.delivered.is_empty());
}

/// Version 1 has one error for all problems with a call and its chunks.
#[test]
fn s4_5_3_a_call_that_the_host_never_has_memory_for_is_refused() {
    let (_, mut config) = configs_with(ONE, |_, server| server.credits = 4);
    config.pool = Pool::new(64 << 10);
    let mut server = Endpoint::new(config);
    server.establish(Some(PrivateData::new(4096, 4096, true)));
    let segment = Segment {
        handle: 1,
        length: 100_000,
        offset: 0,
    };
    let position = 8;
    let chunks = Chunks {
        reads: vec![ReadSegment { position, segment }],
        ..Chunks::default()
    };
    let header = call(1, Body::Msg(chunks));
    receive(&mut server, &header, &bytes(&plain(1)));
    let error = one_error(&server, 0);
    assert_eq!((error.xid, error.body), (1, Body::Error(ErrorBody::Chunk)));
    assert!(server.reads.is_empty() && server.delivered.is_empty());
}

/// A call whose chunks claim gigabytes is answered with an error, and no memory is allocated for
/// it.
#[test]
fn s4_5_3_chunks_that_are_too_long_are_refused_before_memory_is_taken() {
    let mut server = server();
    let segment = |length| Segment {
        handle: 1,
        length,
        offset: 0,
    };
    for lengths in [&[u32::MAX][..], &[u32::MAX, u32::MAX, 10], &[(1 << 20) + 1]] {
        let mut chunks = Chunks::default();
        for &length in lengths {
            chunks.reads.push(ReadSegment {
                position: 8,
                segment: segment(length),
            });
        }
        let before = server.sent.len();
        let header = call(1, Body::Msg(chunks));
        receive(&mut server, &header, &bytes(&plain(1)));
        let error = one_error(&server, before);
        assert_eq!(error.body, Body::Error(ErrorBody::Chunk));
        assert!(server.reads.is_empty() && server.pool.in_use() == 0);
    }
    assert_eq!(server.connection.unanswered_calls(), 0);
}

/// xcharext-02, section 3.1: a reply waits if its inline limit has been lowered since the call was
/// sent and the new limit is not settled.
#[test]
fn xchar_s3_1_a_reply_waits_while_it_is_not_known_what_fits() {
    // Whether the client still has room for the reply, which it says in the end.
    for fits in [true, false] {
        let mut pair = Pair::new(configs_with(Version::TWO, |client, server| {
            (client.inline_receive, server.inline_send) = (8192, 8192);
        }));
        pair.client.call(plain(7), &room(1500, &[]));
        pair.settle();
        assert_eq!(pair.client.registrations, 0, "the call offers no chunk");
        let (id, _) = pair.server.delivered.pop_front().unwrap();
        let reply = support::reply(7, 1500, &[]);
        assert!((4096..8192).contains(&bytes(&reply).len()));
        let asked = pair.server.connection.request_receive_size(4096);
        asked.unwrap();
        pair.server.run();
        let Some(Posted::Send(request, None)) = pair.server.posted.back() else {
            panic!("nothing was asked");
        };
        let request = Seen::new(request).unwrap();
        assert!(request.optional);
        pair.server.reply(id, Some(reply.clone()));
        pair.server.run();
        assert_eq!(pair.server.sends_under_way(), 1, "the reply waits");
        assert_eq!(pair.server.connection.unanswered_calls(), 1);
        if fits {
            // The client has not answered the call, so its receives are still as long as before.
            pair.settle();
            let (7, Ok(arrived)) = pair.client.finished.remove(0) else {
                panic!("another call ended");
            };
            assert_eq!(bytes(&arrived), bytes(&reply));
        } else {
            // The client says that it has shorter receives already.
            pair.server.posted.clear();
            let done = Response {
                done: Subset::all(1),
                ..Response::default()
            };
            let optional = Optional {
                direction: Direction::Reply,
                opttype: RESPXCH,
                info: done.encode(),
            };
            let response = rpcrdma_v2::Header {
                xid: request.xid,
                credits: 1,
                body: rpcrdma_v2::Body::Optional(optional),
            };
            pair.server.receive(&response.encode(), None).unwrap();
            pair.server.run();
            pair.settle();
            let (7, Err(CallError::Chunk(_))) = pair.client.finished.remove(0) else {
                panic!("the reply did not fit");
            };
        }
        assert!(pair.client.finished.is_empty());
        assert_eq!(pair.server.connection.unanswered_calls(), 0);
    }
}

#[test]
fn s4_5_3_a_reply_that_fits_nowhere_is_err_chunk() {
    let mut pair = Pair::new(configs(ONE));
    pair.answer_with(|call| Some(support::reply(open(call).0, 3000, &[])));
    let error = pair.call(plain(1), &room(1500, &[])).unwrap_err();
    assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
    let (reply, payload) = sent(&pair.server).remove(0);
    assert_eq!((reply.xid, reply.body), (1, Body::Error(ErrorBody::Chunk)));
    assert!(payload.is_empty());
    assert!(
        pair.server.written.is_empty(),
        "nothing is written of a reply that does not fit"
    );
}

/// RFC 8797, section 4.1: each reply invalidates a handle of its own call, also if many calls are
/// outstanding.
#[test]
fn rfc8797_s4_1_replies_invalidate_a_handle_of_their_own_call() {
    let mut pair = Pair::echoing(configs(ONE));
    for xid in 0..50 {
        let items = [data(xid, 9000), data(xid, 9000)];
        pair.client
            .call(message(xid, 0, &items), &room(0, &[9000, 9000]));
    }
    pair.settle();
    assert_eq!(pair.client.finished.len(), 50);
    for (xid, result) in &pair.client.finished {
        let expected = (*xid, 0, vec![data(*xid, 9000), data(*xid, 9000)]);
        assert_eq!(open(result.as_ref().unwrap()), expected);
    }
    let calls = sent(&pair.client);
    let mut invalidated = 0;
    for (bytes, invalidate) in &pair.server.sent {
        let (reply, _) = Header::decode(bytes).unwrap();
        let mut calls = calls.iter();
        let (call, _) = calls.find(|(call, _)| call.xid == reply.xid).unwrap();
        let handle = invalidate.expect("every one of these calls has chunks").0;
        assert!(chunks(call).handles().any(|offered| offered == handle));
        invalidated += 1;
    }
    assert_eq!(invalidated, 50);
    assert_eq!(pair.client.registrations, 200);
    assert_eq!(
        pair.client.invalidated.len(),
        150,
        "each handle is invalidated once, by one side"
    );
}

/// A requester accepts the invalidation of any of its handles, even by the reply to another call.
#[test]
fn rfc8797_s4_1_any_handle_may_have_been_invalidated() {
    let mut client = alone(4);
    submit(&mut client, plain(1), &[]);
    receive(
        &mut client,
        &reply(1, 4, Chunks::default()),
        &plain_reply(1),
    );
    submit(&mut client, message(2, 0, &[data(1, 9000)]), &[]);
    let stag = Stag(offered(&client).reads[0].segment.handle);
    submit(&mut client, plain(3), &[]);
    let header = reply(3, 4, Chunks::default());
    receive_with(&mut client, &header, &plain_reply(3), Some(stag));
    assert!(
        client.registered.is_empty(),
        "call 2's memory was taken back"
    );
    receive(
        &mut client,
        &reply(2, 4, Chunks::default()),
        &plain_reply(2),
    );
    assert!(
        client.invalidated.is_empty(),
        "and is not invalidated again"
    );
    assert_eq!(client.finished.len(), 3);
    client.finished.clear();
    assert_eq!(client.pool.in_use(), 0);
}

#[test]
fn rfc8797_s4_1_without_both_flags_replies_are_plain_sends() {
    for (client_wants, server_wants) in [(true, false), (false, true), (false, false)] {
        let mut pair = Pair::echoing(configs_with(ONE, |client, server| {
            client.remote_invalidation = client_wants;
            server.remote_invalidation = server_wants;
        }));
        let call = message(1, 0, &[data(1, 9000)]);
        pair.call(call, &room(0, &[9000])).unwrap();
        assert!(pair.server.sent.iter().all(|(_, handle)| handle.is_none()));
        assert_eq!(pair.client.invalidated.len(), 2);
    }
}

#[test]
fn rfc8797_s4_2_thresholds_are_the_smaller_of_what_both_sides_said() {
    let mut pair = Pair::echoing(configs_with(ONE, |client, server| {
        client.inline_send = 8192;
        server.inline_receive = 3072;
        server.inline_send = 2048;
        client.inline_receive = 16_384;
    }));
    for (xid, words) in (400..800).step_by(3).enumerate() {
        let call = message(xid as u32, words, &[]);
        pair.call(call, &room(words, &[])).unwrap();
    }
    let longest = |end: &Endpoint| end.sent.iter().map(|(bytes, _)| bytes.len()).max().unwrap();
    let (client, server) = (longest(&pair.client), longest(&pair.server));
    assert!((3060..=3072).contains(&client), "{client}");
    assert!((2036..=2048).contains(&server), "{server}");
}

/// The format of private data (RFC 8797, section 5).
#[test]
fn private_data_has_the_format_of_rfc_8797() {
    for options in [
        Options::client(rpcrdma_protocols::base()),
        Options::server(rpcrdma_protocols::base()),
    ] {
        let said = options.private_data().unwrap().encode();
        assert_eq!(said[..5], [0xf6, 0xab, 0x0e, 0x18, 1]);
    }
}

/// The peer's codec may take no more segments than that of this project, and says so in no version
/// but the working group's.
#[test]
fn data_in_more_pieces_than_a_peer_takes_segments_is_joined() {
    for version in [Version::ONE, Version::TWO] {
        for pieces in [512, 513] {
            let mut pair = Pair::echoing(configs_with(version, |client, server| {
                for options in [client, server] {
                    (options.inline_send, options.inline_receive) = (65_536, 65_536);
                }
            }));
            let sent = data(7, 200 * pieces);
            let mut divided = onc_rpc::Bulk::new();
            for at in 0..pieces {
                // Adjacent pieces of the same memory would be one.
                divided.push(Bytes::copy_from_slice(&sent[200 * at..][..200]));
            }
            let whole = message(1, 0, std::slice::from_ref(&sent));
            let item = onc_rpc::BulkItem {
                position: whole.items()[0].position,
                data: divided,
            };
            let call = Message::new(whole.payload().clone(), [item]);
            pair.answer_with(move |call| {
                assert_eq!(open(call).2, std::slice::from_ref(&sent));
                Some(support::reply(open(call).0, 0, &[]))
            });
            pair.call(call, &room(0, &[])).unwrap();
            let expected = if pieces > 512 { 1 } else { 512 };
            assert_eq!(pair.client.registrations, expected, "{version:?}");
        }
    }
}

/// The codecs take no more than 16 write chunks. With more results, the reply chunk has them all.
#[test]
fn a_call_with_more_results_than_write_chunks_has_a_reply_chunk() {
    let mut pair = Pair::new(configs(ONE));
    pair.answer_with(|call| Some(support::reply(open(call).0, 0, &[])));
    assert!(pair.call(plain(1), &room(0, &[9000; 17])).is_ok());
}
