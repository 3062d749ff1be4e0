//! Calls and replies of one turn over connections with an extension that sends several together.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "../../connection/tests/sent_batches/toy.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod toy;

#[path = "rdma_support/mod.rs"]
mod rdma_support;

use std::cell::RefCell;
use std::rc::Rc;

use rdma_support::fabric::{Traffic, World};
use rdma_support::{Pair, message, open, reply, room, speaking};
use rpc_transport::rdma::{Choice, Version, Versions};
use rpc_transport::{ClientTransport, ConnectionId, PollSource, ServerTransport};
use toy::Toy;

const BOTH: [Version; 2] = [Version::TWO, Version::TWO_WG];

/// Returns a connected pair with the extension at both ends, over which a call has been made.
fn pair(version: Version, extended: bool) -> (Rc<RefCell<World>>, Pair, ConnectionId) {
    let (mut client, mut server) = speaking(Choice::Only(version), Versions::only(version));
    if extended {
        Toy::default().add(version, &mut client.common);
        Toy::default().add(version, &mut server.common);
    }
    let (world, mut pair, conn) = Pair::echoing(client, server);
    let first = pair.call(conn, message(1, 2, &[]), &room(2, &[]));
    assert_eq!(open(&first.reply()).0, 1);
    pair.settle();
    (world, pair, conn)
}

/// Returns the number of Sends of both ends so far.
fn sends(world: &Rc<RefCell<World>>) -> usize {
    let world = world.borrow();
    let traffic = world.traffic.iter();
    traffic
        .filter(|(_, what)| matches!(what, Traffic::Send(..)))
        .count()
}

#[test]
fn calls_of_one_turn_take_one_send_and_their_replies_another() {
    for version in BOTH {
        for (extended, expected) in [(true, 2), (false, 32)] {
            let (world, mut pair, conn) = pair(version, extended);
            let before = sends(&world);
            for xid in 2..18 {
                pair.submit(conn, message(xid, 2, &[]), &room(2, &[]));
            }
            pair.until(|pair| pair.ended.len() == 16);
            pair.settle();
            assert_eq!(sends(&world) - before, expected, "{version} {extended}");
            for xid in 2..18 {
                let end = pair.ended.remove(&(conn, xid)).unwrap();
                assert_eq!(open(&end.reply()).0, xid);
            }
        }
    }
}

/// An end does not fall asleep over calls or replies whose turn has not ended.
#[test]
fn nothing_sleeps_before_the_turn_has_ended() {
    for version in BOTH {
        let (_world, mut pair, conn) = pair(version, true);
        pair.answer = None;
        pair.submit(conn, message(2, 2, &[]), &room(2, &[]));
        assert!(!pair.client.arm(), "{version}");
        pair.until(|pair| pair.held.len() == 1);
        pair.settle();
        let (at, token, call) = pair.held.pop().unwrap();
        let now = pair.now();
        let (xid, words, items) = open(&call);
        pair.server
            .reply(at, token, Some(reply(xid, words, &items)), now);
        assert!(!pair.server.arm_without_owner(), "{version}");
        pair.until(|pair| pair.ended.contains_key(&(conn, 2)));
    }
}

/// A connection that ends before the turn does is not asked for its actions any more.
#[test]
fn a_connection_may_end_before_its_turn_does() {
    for version in BOTH {
        let (_world, mut pair, conn) = pair(version, true);
        pair.submit(conn, message(2, 2, &[]), &room(2, &[]));
        pair.client.close(conn);
        pair.settle();
        let again = pair.connect();
        let end = pair.call(again, message(3, 2, &[]), &room(2, &[]));
        assert_eq!(open(&end.reply()).0, 3, "{version}");
    }
}
