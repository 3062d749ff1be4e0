//! Tests of calls in both directions (RFC 8167), and of messages whose direction is unclear.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use onc_rpc::{Encoder, Message};
use rpcrdma_connection::{CallError, CallbackOptions, Config, agreed};
use rpcrdma_extension::FeatureValue;
use rpcrdma_negotiation::Version;
use rpcrdma_v1::{Body, Chunks, ErrorBody, Header, PrivateData};
use support::{Endpoint, Pair, Seen, bytes, configs_with, data, echo, message, open, room};

const BOTH: [Version; 2] = [Version::ONE, Version::TWO];

fn payload(xid: u32, msg_type: u32) -> Message {
    let mut words = Encoder::new();
    words.u32(xid).u32(msg_type).u32(0);
    words.finish()
}

/// Returns a message of version 1 whose payload has this message type.
fn of_type(xid: u32, credits: u32, msg_type: u32) -> Bytes {
    let body = Body::Msg(Chunks::default());
    let header = Header { xid, credits, body }.encode();
    [&header[..], &bytes(&payload(xid, msg_type))]
        .concat()
        .into()
}

/// Returns the configurations of both ends, with these credits for calls in the reverse direction.
fn both_ways(version: Version, client: (u32, bool), server: (u32, bool)) -> (Config, Config) {
    let callbacks = |(credits, chunks)| CallbackOptions { credits, chunks };
    configs_with(version, |ours, theirs| {
        (ours.callbacks, theirs.callbacks) = (callbacks(client), callbacks(server));
    })
}

/// Returns a connection on which a message of the client has reached the server. Both ends answer
/// calls with their own content.
fn called(version: Version, client: (u32, bool), server: (u32, bool)) -> Pair {
    let mut pair = Pair::echoing(both_ways(version, client, server));
    pair.answer_back = Some(Box::new(echo));
    pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
    pair
}

/// Makes a call from server to client, and returns how it ended.
#[track_caller]
fn call_back(
    pair: &mut Pair,
    call: Message,
    room: &rpcrdma_connection::ReplyRoom,
) -> Result<Message, CallError> {
    let (xid, ..) = open(&call);
    pair.server.call(call, room);
    pair.settle();
    let mut finished = pair.server.finished.iter();
    let at = finished.position(|(ended, _)| *ended == xid);
    pair.server.finished.remove(at.expect("it has not ended")).1
}

#[track_caller]
fn refused(result: Result<Message, CallError>, expected: &str) {
    match result {
        Err(CallError::NoCallbacks(why)) => assert!(why.contains(expected), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// RFC 8167, section 4.1: a message that is neither a call nor a reply has no direction, so its
/// credits are ignored.
#[test]
fn rfc8167_s4_1_credits_without_a_direction_are_ignored() {
    let (client, _) = configs_with(Version::ONE, |client, _| client.credits = 8);
    let mut client = Endpoint::new(client);
    client.establish(Some(PrivateData::new(4096, 4096, true)));
    for xid in 1..=4 {
        client
            .connection
            .call(xid, payload(xid, onc_rpc::CALL), &room(0, &[]))
            .unwrap();
    }
    client.run();
    assert_eq!(client.sent.len(), 1, "one credit until more are granted");
    let receive = |client: &mut Endpoint, msg_type| {
        client.receive(&of_type(1, 8, msg_type), None).unwrap();
        client.run();
        (client.sent.len(), client.connection.expected_messages())
    };
    for msg_type in [2, u32::MAX] {
        assert_eq!(receive(&mut client, msg_type), (1, 1));
    }
    // A call of the server's asks for them.
    assert_eq!(receive(&mut client, onc_rpc::CALL), (1, 1));
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.discarded, 3);
    assert!(client.delivered.is_empty() && client.finished.is_empty());
    // The reply grants them.
    assert_eq!(receive(&mut client, onc_rpc::REPLY), (4, 3));
}

#[test]
fn both_ends_call_each_other_with_the_same_xid() {
    for version in BOTH {
        let mut pair = called(version, (4, true), (4, true));
        (pair.answer, pair.answer_back) = (None, None);
        pair.client.call(message(5, 1, &[]), &room(1, &[]));
        pair.server.call(message(5, 2, &[]), &room(2, &[]));
        pair.settle();
        assert_eq!(
            (pair.client.delivered.len(), pair.server.delivered.len()),
            (1, 1)
        );
        // Neither call answers the other.
        assert!(pair.server.finished.is_empty());
        assert_eq!(pair.client.connection.unanswered_calls(), 1);
        pair.answer = Some(Box::new(echo));
        pair.answer_back = Some(Box::new(echo));
        pair.settle();
        let (_, ours) = pair.client.finished.pop().unwrap();
        let (_, theirs) = pair.server.finished.pop().unwrap();
        assert_eq!(open(&ours.unwrap()), (5, 1, vec![]));
        assert_eq!(open(&theirs.unwrap()), (5, 2, vec![]));
    }
}

#[test]
fn each_direction_has_credits_of_its_own() {
    for version in BOTH {
        // The client grants three, of the five that the server asks for.
        let mut pair = called(version, (3, true), (5, true));
        pair.answer_back = None;
        // The first calls use the credits that the client's own calls do not.
        for xid in 100..110 {
            pair.server.call(message(xid, 0, &[]), &room(0, &[]));
        }
        pair.settle();
        let counters = |end: &Endpoint| end.connection.requester_counters().unwrap();
        assert_eq!(
            pair.client.delivered.len(),
            1,
            "one until a reply grants more"
        );
        pair.call(message(2, 0, &[]), &room(0, &[])).unwrap();
        assert_eq!(
            pair.client.delivered.len(),
            1,
            "a reply of the server's grants none"
        );
        let (id, call) = pair.client.delivered.pop_front().unwrap();
        pair.client.reply(id, echo(&call));
        pair.settle();
        assert_eq!(pair.client.delivered.len(), 3);
        assert_eq!(counters(&pair.server).most_in_flight, 3);
        pair.answer_back = Some(Box::new(echo));
        pair.settle();
        assert_eq!(pair.server.finished.len(), 10);
        assert_eq!(pair.client.closed, None);
    }
}

#[test]
fn receives_are_posted_before_the_first_call_in_the_reverse_direction() {
    for version in BOTH {
        let mut pair = called(version, (3, true), (5, true));
        let before = pair.server.receives.len();
        pair.server.no_further_receives = true;
        let error = call_back(&mut pair, message(100, 0, &[]), &room(0, &[])).unwrap_err();
        assert!(matches!(error, CallError::TooLarge(_)), "{error:?}");
        assert_eq!(pair.server.receives.len(), before);
        // They are asked for again with the next call, which waits for them.
        pair.server.no_further_receives = false;
        let sent = pair.server.sent.len();
        pair.server.call(message(101, 0, &[]), &room(0, &[]));
        pair.server.poll();
        assert_eq!(
            (pair.server.posting.len(), pair.server.sent.len()),
            (1, sent)
        );
        pair.settle();
        assert_eq!(pair.server.finished.len(), 1);
        assert_eq!(pair.server.receives.len(), before + 5);
    }
}

#[test]
fn a_server_calls_no_client_that_it_has_not_heard_of() {
    for version in BOTH {
        let (_, server) = both_ways(version, (3, true), (5, true));
        let mut server = Endpoint::new(server);
        server.call(message(1, 0, &[]), &room(0, &[]));
        server.establish(Some(PrivateData::new(4096, 4096, true)));
        server.call(message(2, 0, &[]), &room(0, &[]));
        server.run();
        assert_eq!(server.finished.len(), 2);
        for (_, result) in server.finished {
            refused(result, "nothing has come");
        }
        assert!(server.sent.is_empty());
    }
}

#[test]
fn an_end_without_callbacks_makes_and_takes_none() {
    for version in BOTH {
        let mut pair = called(version, (3, true), (0, true));
        let result = call_back(&mut pair, message(100, 0, &[]), &room(0, &[]));
        refused(result, "makes none");
    }
    // In version 2, clients say what they take.
    let mut pair = called(Version::TWO, (0, true), (5, true));
    let sent = pair.server.sent.len();
    let result = call_back(&mut pair, message(100, 0, &[]), &room(0, &[]));
    refused(result, "the client says so");
    assert_eq!(pair.server.sent.len(), sent);
    // In version 1 they do not: the call is discarded silently.
    let mut pair = called(Version::ONE, (0, true), (5, true));
    pair.server.call(message(100, 0, &[]), &room(0, &[]));
    pair.settle();
    assert!(pair.server.finished.is_empty());
    let counters = pair.client.connection.requester_counters().unwrap();
    assert_eq!(counters.discarded, 1);
    // The connection goes on.
    pair.call(message(2, 0, &[]), &room(0, &[])).unwrap();
}

/// Callbacks have chunks only if the client accepts them (RFC 8167, section 5.3; xcharext-02,
/// section 3.3).
#[test]
fn chunks_in_the_reverse_direction_are_used_where_the_client_takes_them() {
    let items = [data(1, 9000)];
    let room = room(0, &[9000]);
    for version in BOTH {
        let mut pair = called(version, (3, true), (5, true));
        let reply = call_back(&mut pair, message(100, 0, &items), &room).unwrap();
        assert_eq!(open(&reply).2, items);
        assert_eq!(pair.server.registrations, 2);
        assert!(pair.server.registered.is_empty());
        // A client does not invalidate: only handles of its own calls may be invalidated.
        assert!(pair.client.sent.iter().all(|(_, handle)| handle.is_none()));
    }
    // Version 2: the client said that it takes none. Version 1: the server was told so by its user.
    for (version, client, server) in [
        (Version::TWO, (3, false), (5, true)),
        (Version::ONE, (3, false), (5, false)),
    ] {
        let mut pair = called(version, client, server);
        let error = call_back(&mut pair, message(100, 0, &items), &room).unwrap_err();
        assert!(matches!(error, CallError::TooLarge(_)), "{error:?}");
        assert_eq!(pair.server.registrations, 0);
        let short = call_back(&mut pair, message(101, 3, &[]), &support::room(3, &[]));
        assert_eq!(open(&short.unwrap()).1, 3);
    }
    // Version 1, and the server's user is wrong about it: the client refuses the call.
    let mut pair = called(Version::ONE, (3, false), (5, true));
    let error = call_back(&mut pair, message(100, 0, &items), &room).unwrap_err();
    assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
    assert!(pair.client.reads.is_empty() && pair.server.registered.is_empty());
    let (answer, _) = pair.client.sent.last().unwrap();
    let (answer, _) = Header::decode(answer).unwrap();
    assert_eq!(answer.body, Body::Error(ErrorBody::Chunk));
}

#[test]
fn replies_to_a_server_that_makes_no_calls_are_discarded() {
    let mut pair = called(Version::TWO, (0, false), (0, false));
    let reply = rpcrdma_v2::Header {
        xid: 9,
        credits: 1,
        body: rpcrdma_v2::Body::Msg(rpcrdma_v2::Direction::Reply, Chunks::default()),
    };
    let reply = [&reply.encode()[..], &bytes(&support::reply(9, 0, &[]))].concat();
    let sent = pair.server.sent.len();
    pair.server.receive(&reply.into(), None).unwrap();
    pair.server.run();
    assert_eq!(pair.server.sent.len(), sent);
    assert!(pair.server.delivered.is_empty());
    let counters = pair.server.connection.responder_counters().unwrap();
    assert_eq!(counters.discarded, 1);
    // A call to a client that said it takes none is answered with an error.
    let call = rpcrdma_v2::Header {
        xid: 9,
        credits: 1,
        body: rpcrdma_v2::Body::Msg(rpcrdma_v2::Direction::Call, Chunks::default()),
    };
    let call = [&call.encode()[..], &bytes(&message(9, 0, &[]))].concat();
    pair.client.receive(&call.into(), None).unwrap();
    pair.client.run();
    let (answer, _) = pair.client.sent.last().unwrap();
    let answer = Seen::new(answer).unwrap();
    assert!(answer.error && answer.xid == 9, "{answer:?}");
    assert!(pair.client.delivered.is_empty());
}

/// Calls of a server that were not sent are cancelled in whichever stage they are. One that was sent keeps the memory that
/// it offers until its reply has arrived.
#[test]
fn calls_that_were_not_sent_are_cancelled_together() {
    for version in BOTH {
        let mut pair = called(version, (5, true), (5, true));
        call_back(&mut pair, message(1, 0, &[]), &room(0, &[])).unwrap();
        pair.answer_back = None;
        assert!(!pair.server.connection.has_registered_memory());
        let room = room(0, &[9000]);
        pair.server.call(message(2, 0, &[]), &room);
        pair.server.run();
        pair.server.call(message(3, 0, &[]), &room);
        pair.server.poll();
        assert_eq!(pair.server.registering.len(), 1, "{version}: of call 3");
        pair.server.call(message(4, 0, &[]), &room);
        let sent = pair.server.sent.len();
        assert!(pair.server.connection.cancel_unsent());
        let late = pair.server.connection.call(5, message(5, 0, &[]), &room);
        assert_eq!(late, Err(CallError::Ending), "{version}");
        assert!(!pair.server.connection.cancel_unsent(), "none is left");
        pair.settle();
        assert_eq!(pair.server.sent.len(), sent, "{version}");
        assert_eq!(pair.server.connection.unfinished_calls(), 1);
        assert_eq!(pair.server.registered.len(), 1, "{version}: of call 2");
        assert!(pair.server.connection.has_registered_memory());
        let (id, _) = pair.client.delivered.pop_front().unwrap();
        let reply = support::reply(2, 0, &[data(2, 9000)]);
        pair.client.reply(id, Some(reply));
        pair.settle();
        assert!(!pair.server.connection.has_registered_memory());
        let ended: Vec<u32> = pair.server.finished.iter().map(|(xid, _)| *xid).collect();
        assert_eq!(ended, [2], "{version}");
        assert_eq!(pair.client.delivered.len(), 0, "{version}");
    }
}

/// The size of its receives concerns the calls of the other end alone, so that a raise ends with its
/// announcement and another change can follow.
#[test]
fn a_server_that_makes_no_calls_changes_its_receive_size_again_and_again() {
    let mut pair = Pair::echoing(configs_with(Version::TWO, |client, server| {
        client.inline_send = 32 << 10;
        (client.credits, server.credits) = (8, 8);
    }));
    // Each receive is replaced when a message has consumed it.
    let replace = |pair: &mut Pair, size: u32| {
        for xid in 10..60 {
            pair.call(message(xid, 0, &[]), &room(0, &[])).unwrap();
        }
        let features = pair.client.connection.features().unwrap();
        let send = features.value(agreed::INLINE_SEND);
        assert_eq!(send, Some(FeatureValue::Bytes(size)));
        let mut receives = pair.server.receives.iter();
        assert!(receives.all(|receive| receive.size() == size as usize));
    };
    for size in [8192, 12_288, 16_384] {
        let raised = pair.server.connection.raise_receive_size(size);
        assert_eq!(raised, Ok(()), "{size}");
        replace(&mut pair, size);
    }
    for size in [8192, 24_576] {
        let asked = pair.client.connection.request_receive_size(size);
        assert_eq!(asked, Ok(()), "{size}");
        replace(&mut pair, size);
    }
}
