//! Tests of the rules for callbacks and of their violation.

use rpc_transport::rdma::Version;
use rpc_transport::{CallError, ServerTransport};
use rpcrdma_chunks::Fixed;

use super::rdma_support::{data, message, reply, room};
use super::{CLIENT, SERVER, VERSIONS, fakes, options, sent};

/// Section 5.3 of RFC 8167: the server sends a callback with chunks to a client that accepts none.
#[test]
fn rfc8167_s5_3_a_responder_without_chunks_refuses_them() {
    let (mut client, server) = options(Version::ONE, 4, true);
    client.common.callbacks.chunks = false;
    let (world, mut pair) = fakes((client, server));
    let conn = pair.ready();
    // A read chunk, a write chunk, a Long Call, and room for a Long Reply.
    let calls = [
        (message(1, 0, &[data(1, 9000)]), room(0, &[])),
        (message(2, 0, &[]), room(0, &[9000])),
        (message(3, 2000, &[]), room(0, &[])),
        (message(4, 0, &[]), room(2000, &[])),
    ];
    for (call, room) in calls {
        let error = pair.call_back(call, &room).error();
        assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
        let last = sent(&world, CLIENT).pop().unwrap();
        let (header, _) = rpcrdma_v1::Header::decode(&last).unwrap();
        let expected = rpcrdma_v1::Body::Error(rpcrdma_v1::ErrorBody::Chunk);
        assert_eq!(header.body, expected);
    }
    // The connection lives, both ways, and no credit is lost.
    for xid in 10..30 {
        pair.call_back(message(xid, 0, &[]), &room(0, &[])).reply();
        pair.call(conn, message(xid, 0, &[]), &room(0, &[])).reply();
    }
    assert_eq!(pair.client.callback_counters(conn).unwrap().errors_sent, 4);
}

/// In version 2, the server knows that its client accepts no chunks in callbacks, and sends
/// nothing.
#[test]
fn a_callback_that_needs_chunks_is_not_sent_to_a_client_that_takes_none() {
    for version in VERSIONS {
        let (client, mut server) = options(version, 4, false);
        // In version 2, what the client said counts.
        server.common.callbacks.chunks = version == Version::TWO;
        let (world, mut pair) = fakes((client, server));
        pair.ready();
        let before = sent(&world, SERVER).len();
        for (call, room) in [
            (message(1, 0, &[data(1, 9000)]), room(0, &[])),
            (message(2, 0, &[]), room(0, &[9000])),
            (message(3, 2000, &[]), room(0, &[])),
        ] {
            let error = pair.call_back(call, &room).error();
            assert!(matches!(error, CallError::TooLarge(_)), "{error:?}");
        }
        assert_eq!(sent(&world, SERVER).len(), before);
        pair.call_back(message(4, 0, &[data(1, 1000)]), &room(0, &[1000]))
            .reply();
    }
}

/// Section 6 of RFC 8167: no callback is possible before the client has sent a message.
#[test]
fn rfc8167_s6_no_backward_calls_before_the_upper_layer_says_so() {
    let refused = |call: Result<(), CallError>| matches!(call, Err(CallError::NoCallbacks(_)));
    for version in VERSIONS {
        let (world, mut pair) = fakes(options(version, 4, false));
        pair.connect();
        // Before anything has come in version 1; in version 2 the client has said what it takes.
        if version == Version::ONE {
            assert!(refused(
                pair.try_call_back(message(1, 0, &[]), &room(0, &[]))
            ));
            assert!(sent(&world, SERVER).is_empty());
        }
        // A server without callbacks.
        let (client, mut server) = options(version, 4, false);
        server.common.callbacks.credits = 0;
        let (_, mut pair) = fakes((client, server));
        let conn = pair.connect();
        pair.echo();
        pair.call(conn, message(1, 0, &[]), &room(0, &[])).reply();
        assert!(refused(
            pair.try_call_back(message(1, 0, &[]), &room(0, &[]))
        ));
    }
    // A client that says that it takes none.
    let (mut client, server) = options(Version::TWO, 4, false);
    client.common.callbacks.credits = 0;
    let (world, mut pair) = fakes((client, server));
    let conn = pair.connect();
    pair.echo();
    pair.call(conn, message(1, 0, &[]), &room(0, &[])).reply();
    let before = sent(&world, SERVER).len();
    assert!(refused(
        pair.try_call_back(message(1, 0, &[]), &room(0, &[]))
    ));
    pair.settle();
    assert_eq!(sent(&world, SERVER).len(), before);
}

/// In version 1, a client that accepts no callbacks cannot announce that; it drops them.
#[test]
fn a_client_that_takes_no_calls_drops_them_and_loses_nothing() {
    let (mut client, server) = options(Version::ONE, 4, false);
    client.common.callbacks.credits = 0;
    let (_, mut pair) = fakes((client, server));
    let conn = pair.connect();
    pair.submit(conn, message(5, 0, &[]), &room(0, &[]));
    pair.until(|pair| !pair.held.is_empty());
    // The XID of the call that is outstanding: it is no reply to it.
    pair.submit_back(message(5, 0, &[]), &room(0, &[]));
    pair.settle();
    assert!(pair.ended.is_empty() && pair.called_back.is_empty());
    let counters = pair.client.requester_counters(conn).unwrap();
    assert_eq!(counters.discarded, 1);
    let (at, token, _) = pair.held.remove(0);
    let now = pair.now();
    pair.server.reply(at, token, Some(reply(5, 0, &[])), now);
    pair.until(|pair| !pair.ended.is_empty());
    pair.ended.remove(&(conn, 5)).unwrap().reply();
    assert!(pair.down.is_empty());
}

/// The message type of a payload in a chunk is known only after it has been fetched, so its
/// direction is checked then (version-two-01, section 4.2.2).
#[test]
fn v2_s4_2_2_a_long_call_with_another_msg_type_is_refused() {
    let (_, mut pair) = fakes(options(Version::TWO, 4, true));
    let conn = pair.ready();
    pair.answer = None;
    let error = pair.call(conn, reply(1, 5000, &[]), &room(0, &[])).error();
    assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
    let error = pair.call_back(reply(2, 5000, &[]), &room(0, &[])).error();
    assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
    assert!(pair.held.is_empty() && pair.held_back.is_empty());
    assert!(pair.down.is_empty());
}

/// The credit value of a header belongs to the header's direction, also in messages without an RPC
/// message.
#[test]
fn operations_ask_for_and_grant_the_credits_of_their_direction() {
    let (mut client, mut server) = options(Version::TWO, 6, false);
    (client.common.credits, server.common.credits) = (20, 16);
    server.common.callbacks.credits = 11;
    let (world, mut pair) = fakes((client, server));
    let conn = pair.ready();
    pair.client.raise_receive_size(conn, 8192).unwrap();
    pair.client.request_receive_size(conn, 8192).unwrap();
    for xid in 1..100 {
        pair.call(conn, message(xid, 0, &[]), &room(0, &[])).reply();
        pair.call_back(message(xid, 0, &[]), &room(0, &[])).reply();
    }
    for (by, asked, granted) in [(CLIENT, 20, 6), (SERVER, 11, 16)] {
        let (mut said, mut operations) = ([Vec::new(), Vec::new()], 0);
        for message in sent(&world, by) {
            let (header, _) = rpcrdma_v2::Header::decode(&message).unwrap();
            let direction = usize::from(header.direction() == rpcrdma_v2::Direction::Reply);
            said[direction].push(Fixed::peek(&message).unwrap().credits);
            operations += usize::from(matches!(header.body, rpcrdma_v2::Body::Optional(_)));
        }
        assert!(operations > 1, "{by} sent messages without an RPC");
        let [calls, mut replies] = said;
        assert!(calls.len() >= 99 && calls.iter().all(|&credits| credits == asked));
        // One is granted until the peer has asked for more, and then what it may have.
        replies.dedup();
        assert!(
            replies == [granted] || replies == [1, granted],
            "{by}: {replies:?}"
        );
    }
}
