//! Tests of the requirements of RFC 8166 and RFC 8797 that need a device, named by section. The
//! requirements that a connection fulfils without a device are tested in crate `connection`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use onc_rpc::{Message, Segments};
use rdma::{Pool, Time};
use rdma_support::fabric::{FakeDevice, World, address, attributes};
use rdma_support::{POOL, Pair, data, message, options, room, speaking};
use rpc_transport::ServerTransport;
use rpc_transport::rdma::{Choice, RdmaServer, Version, Versions};

fn plain(xid: u32) -> Message {
    message(xid, 0, &[])
}

#[test]
fn s3_3_1_receives_are_posted_again_before_replies_go_out() {
    let (client, mut server) = options();
    server.common.credits = 2;
    let (world, mut pair, conn) = Pair::echoing(client, server);
    // The client sends the next call as soon as it sees a reply. Were the receive posted after
    // that, the four extra ones would soon be used up.
    for xid in 0..100 {
        pair.submit(conn, plain(xid), &room(0, &[]));
    }
    pair.until(|pair| pair.ended.len() == 100);
    let world = world.borrow();
    assert_eq!(world.overruns, 0);
    assert!(
        world.fewest_receives >= Some(4),
        "{:?}",
        world.fewest_receives
    );
}

#[test]
fn receives_are_posted_with_the_length_that_was_advertised() {
    for size in [1024, 4096, 262_144] {
        let (mut client, mut server) = options();
        (client.common.credits, server.common.credits) = (4, 4);
        client.common.inline_receive = size;
        server.common.inline_receive = size;
        (client.common.inline_send, server.common.inline_send) = (size, size);
        let (world, mut pair, conn) = Pair::echoing(client, server);
        assert!(world.borrow().shortest_receive >= Some(size as usize));
        // Exactly at the threshold, both ways: 28 bytes of header, 16 of message.
        let words = (size as usize - 28 - 16) / 4;
        pair.call(conn, message(1, words, &[]), &room(words, &[]))
            .reply();
        assert_eq!(pair.client.device().counters().registrations, 0, "{size}");
    }
}

#[test]
fn s4_5_4_a_requester_that_cannot_invalidate_closes_the_connection() {
    let (mut client, server) = options();
    client.common.remote_invalidation = false;
    let (world, mut pair, conn) = Pair::echoing(client, server);
    world.borrow_mut().fail_invalidate = true;
    pair.submit(conn, message(1, 0, &[data(1, 9000)]), &room(0, &[9000]));
    pair.until(|pair| !pair.down.is_empty());
    assert!(
        pair.ended.is_empty(),
        "its memory is not fenced off by an invalidation"
    );
    assert!(
        pair.down[0].1.reason.contains("local protection error"),
        "{:?}",
        pair.down
    );
    pair.settle();
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

#[test]
fn s4_5_4_a_responder_that_cannot_send_closes_the_connection() {
    a_responder_that_cannot_send_closes_the_connection(Version::ONE);
}

#[test]
fn wg_s7_4_a_responder_that_cannot_send_closes_the_connection() {
    a_responder_that_cannot_send_closes_the_connection(Version::TWO_WG);
}

#[track_caller]
fn a_responder_that_cannot_send_closes_the_connection(version: Version) {
    // Three pieces do not fit the device's gather list, and the program leaves no memory to join them in.
    let (mut client, mut server) = speaking(Choice::Only(version), Versions::only(version));
    (client.common.credits, server.common.credits) = (1, 1);
    let world = World::new();
    let narrow = rdma::Attributes {
        max_gather: 2,
        ..attributes()
    };
    let a = FakeDevice::new(&world, attributes(), Pool::new(POOL));
    let pool = Pool::new(1 << 20);
    let b = FakeDevice::new(&world, narrow, pool.clone());
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    let conn = pair.connect();
    pair.submit(conn, plain(1), &room(1000, &[]));
    pair.until(|pair| !pair.held.is_empty());
    let mut all = Vec::new();
    while let Ok(buf) = pool.alloc(4096) {
        all.push(buf);
    }
    let (at, token, _call) = pair.held.remove(0);
    let pieces: Segments = [data(1, 8), data(2, 8), data(3, 8)].into_iter().collect();
    pair.server
        .reply(at, token, Some(Message::new(pieces, [])), Time::ZERO);
    pair.until(|pair| !pair.down.is_empty() && !pair.server_down.is_empty());
    assert!(
        pair.server_down[0].1.contains("message not sent"),
        "{:?}",
        pair.server_down
    );
}

/// Linux refuses the calls of a verbs device on a thread that has changed its credentials.
#[test]
fn a_server_says_whether_its_device_needs_the_credentials_of_its_thread() {
    for keeps_credentials in [false, true] {
        let attributes = rdma::Attributes {
            keeps_credentials,
            ..attributes()
        };
        let device = FakeDevice::new(&World::new(), attributes, Pool::new(POOL));
        let server = RdmaServer::new(Box::new(device), options().1);
        assert_eq!(server.keeps_credentials(), keeps_credentials);
    }
}

#[test]
fn a_client_that_closes_a_connection_says_why() {
    // Three pieces do not fit the device's gather list, and there is no memory to join them in.
    let (mut client, server) = options();
    client.common.credits = 1;
    let world = World::new();
    let narrow = rdma::Attributes {
        max_gather: 2,
        ..attributes()
    };
    let a = FakeDevice::new(&world, narrow, Pool::new(7 * 4096));
    let b = FakeDevice::new(&world, attributes(), Pool::new(POOL));
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    let conn = pair.connect();
    let whole = plain(1).gather(|_| true).concat();
    let pieces: Segments = whole.chunks(4).map(bytes::Bytes::copy_from_slice).collect();
    pair.submit(conn, Message::new(pieces, []), &room(0, &[]));
    pair.until(|pair| !pair.down.is_empty());
    let reason = &pair.down[0].1.reason;
    assert!(reason.contains("message not sent"), "{reason}");
}

#[test]
fn rfc8797_s4_settings_may_change_with_a_new_connection() {
    let (client, server) = options();
    let world = World::new();
    let device = |pool| FakeDevice::new(&world, attributes(), Pool::new(pool));
    let mut pair = Pair::new(
        Box::new(device(POOL)),
        client,
        Box::new(device(POOL)),
        server.clone(),
        address(),
    );
    pair.echo();
    let conn = pair.connect();
    let call = || message(1, 500, &[]);
    pair.call(conn, call(), &room(500, &[])).reply();
    assert_eq!(pair.client.device().counters().registrations, 0);
    // The server comes back with the smallest sizes and without remote invalidation.
    world.borrow_mut().lose_all();
    world.borrow_mut().stop_listening();
    pair.until(|pair| !pair.down.is_empty());
    let mut smaller = server;
    (smaller.common.inline_receive, smaller.common.inline_send) = (1024, 1024);
    smaller.common.remote_invalidation = false;
    pair.server = RdmaServer::new(Box::new(device(POOL)), smaller);
    pair.server.listen(address()).unwrap();
    let conn = pair.connect();
    pair.call(conn, call(), &room(500, &[])).reply();
    let counters = pair.client.device().counters();
    assert_eq!(
        (counters.registrations, counters.local_invalidations),
        (2, 2)
    );
}
