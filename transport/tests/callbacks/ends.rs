//! Tests of callbacks that end without a reply.

use std::cell::RefCell;
use std::rc::Rc;

use rpc_transport::rdma::Version;
use rpc_transport::{CallError, ClientTransport, ConnectionId, ReplyRoom, ServerTransport};

use super::rdma_support::fabric::World;
use super::rdma_support::{Pair, data, message, reply, room};
use super::{SERVER, VERSIONS, fakes, options, sent};

/// The late reply to a cancelled callback returns its credit and has no other effect.
#[test]
fn a_cancelled_callback_keeps_its_credit_until_its_reply() {
    for version in VERSIONS {
        let (_, mut pair) = fakes(options(version, 1, false));
        pair.ready();
        pair.answer_back = None;
        let at = pair.at_server();
        pair.submit_back(message(1, 0, &[]), &room(0, &[]));
        pair.until(|pair| !pair.held_back.is_empty());
        pair.server.cancel_call(at, 1);
        pair.submit_back(message(2, 0, &[]), &room(0, &[]));
        pair.settle();
        assert_eq!(pair.held_back.len(), 1, "the next waits");
        let (conn, token, _) = pair.held_back.remove(0);
        let now = pair.now();
        pair.client.reply(conn, token, Some(reply(1, 0, &[])), now);
        pair.until(|pair| !pair.held_back.is_empty());
        assert!(pair.called_back.is_empty());
        let counters = pair.server.callback_counters(at).unwrap();
        assert_eq!(counters.cancelled_replies, 1);
    }
}

/// A client drops a callback that it cannot answer, and accepts the next.
#[test]
fn a_client_may_drop_a_call() {
    let (_, mut pair) = fakes(options(Version::ONE, 2, false));
    pair.ready();
    pair.answer_back = Some(Box::new(|_| None));
    pair.submit_back(message(1, 0, &[]), &room(0, &[]));
    pair.settle();
    assert!(pair.called_back.is_empty());
    pair.echo_back();
    pair.call_back(message(2, 0, &[]), &room(0, &[])).reply();
}

/// The server's transport reports that the connection has ended, upon which its user ends the
/// callbacks. All memory is released.
#[test]
fn memory_of_callbacks_comes_back_when_the_connection_is_lost() {
    for version in VERSIONS {
        let (world, mut pair) = fakes(options(version, 4, true));
        let conn = pair.ready();
        pair.answer_back = None;
        let at = pair.at_server();
        for xid in 1..=8 {
            let item = [data(xid, 20_000)];
            pair.submit_back(message(xid, 0, &item), &room(0, &[20_000]));
        }
        pair.until(|pair| pair.held_back.len() == 4);
        world.borrow_mut().lose_all();
        pair.until(|pair| !pair.server_down.is_empty() && !pair.down.is_empty());
        let (lost, token, _) = pair.held_back.remove(0);
        pair.held_back.clear();
        // A reply to a server that is gone goes nowhere, and a call to a client that is gone ends.
        let now = pair.now();
        pair.client.reply(lost, token, Some(reply(1, 0, &[])), now);
        let called = pair
            .server
            .call(at, 9, message(9, 0, &[]), &room(0, &[]), now);
        let gone = matches!(called, Err(CallError::Disconnected { .. }));
        assert!(gone, "{called:?}");
        assert_eq!(lost, conn);
        assert_eq!(pair.server_pool.in_use(), 0, "{version}");
        assert_eq!(pair.client_pool.in_use(), 0, "{version}");
    }
}

/// Returns a connection on which the server has made a callback, with this room for the reply, that the client holds,
/// and has then posted the reply to call 2 and begun to close the connection. Nothing that the server posts is sent
/// until `World::stalled` is reset.
fn finishing(
    version: Version,
    callback_room: &ReplyRoom,
) -> (Rc<RefCell<World>>, Pair, ConnectionId) {
    let (world, mut pair) = fakes(options(version, 4, true));
    let conn = pair.ready();
    pair.answer_back = None;
    pair.submit_back(message(1, 0, &[]), callback_room);
    pair.until(|pair| pair.held_back.len() == 1);
    world.borrow_mut().stalled = Some(SERVER);
    pair.submit(conn, message(2, 0, &[]), &room(0, &[]));
    pair.settle();
    let (at, now) = (pair.at_server(), pair.now());
    assert!(pair.server.finish(at, now), "{version}: all is posted");
    pair.settle();
    assert!(pair.down.is_empty(), "{version}");
    (world, pair, conn)
}

/// Regression test: a connection with a callback in progress was aborted, and with it replies that had been posted.
#[test]
fn a_connection_is_closed_in_order_after_callbacks_with_memory_have_ended() {
    for version in VERSIONS {
        let (world, mut pair, conn) = finishing(version, &room(0, &[20_000]));
        assert!(!world.borrow().reachable(SERVER).is_empty(), "{version}");
        world.borrow_mut().stalled = None;
        pair.until(|pair| pair.ended.contains_key(&(conn, 2)));
        pair.settle();
        let (at_server, now) = (pair.at_server(), pair.now());
        assert!(pair.server.finish(at_server, now));
        pair.settle();
        assert!(
            pair.down.is_empty(),
            "{version}: its memory is in the client's reach"
        );
        let (at, token, _) = pair.held_back.remove(0);
        let answer = Some(reply(1, 0, &[data(1, 20_000)]));
        pair.client.reply(at, token, answer, pair.now());
        pair.until(|pair| pair.called_back.contains_key(&(at_server, 1)));
        assert!(pair.server.finish(at_server, pair.now()));
        pair.until(|pair| !pair.down.is_empty());
    }
}

/// A callback without chunks does not keep the connection.
#[test]
fn a_connection_is_closed_in_order_with_a_callback_without_memory() {
    for version in VERSIONS {
        let (world, mut pair, conn) = finishing(version, &room(0, &[]));
        assert!(world.borrow().reachable(SERVER).is_empty(), "{version}");
        world.borrow_mut().stalled = None;
        pair.until(|pair| !pair.down.is_empty() && !pair.server_down.is_empty());
        assert!(
            pair.ended.contains_key(&(conn, 2)),
            "{version}: the reply has left before"
        );
        assert!(pair.called_back.is_empty(), "{version}");
    }
}

/// A callback that waits for a credit when the connection begins to close is not sent any more: it would offer its
/// memory.
#[test]
fn a_callback_that_waits_for_a_credit_is_not_sent_on_a_closing_connection() {
    for version in VERSIONS {
        let (world, mut pair) = fakes(options(version, 1, true));
        pair.ready();
        pair.answer_back = None;
        for xid in [1, 2] {
            pair.submit_back(message(xid, 0, &[]), &room(0, &[20_000]));
        }
        pair.until(|pair| pair.held_back.len() == 1);
        let before = sent(&world, SERVER).len();
        let (at_server, now) = (pair.at_server(), pair.now());
        assert!(pair.server.finish(at_server, now));
        pair.settle();
        let (at, token, _) = pair.held_back.remove(0);
        let answer = Some(reply(1, 0, &[data(1, 20_000)]));
        pair.client.reply(at, token, answer, pair.now());
        pair.until(|pair| pair.called_back.contains_key(&(at_server, 1)));
        pair.settle();
        assert!(pair.held_back.is_empty(), "{version}");
        assert_eq!(sent(&world, SERVER).len(), before, "{version}");
        assert!(pair.server.finish(at_server, pair.now()));
        pair.until(|pair| !pair.down.is_empty());
    }
}
