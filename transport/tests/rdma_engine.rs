//! Tests of client and server transports over fake devices in one process.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use rdma::{Attributes, ConnectError, Device, Pool, SendWr, Time, WrId};
use rdma_support::fabric::{FakeDevice, Traffic, World, address, attributes};
use rdma_support::{End, POOL, Pair, bare, data, message, open, options, reply, room};
use rpc_transport::rdma::{RdmaClientOptions, RdmaServerOptions};
use rpc_transport::{
    CallError, ClientTransport, PollSource, ServerTransport, ServerTransportEvent,
};

/// The indices of the fake devices of client and server.
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Makes calls with and without items, short and long in both directions.
#[track_caller]
fn every_shape(pair: &mut Pair) {
    pair.echo();
    let conn = pair.connect();
    pair.every_shape(conn);
}

#[test]
fn calls_of_every_shape_come_back() {
    let (world, mut pair) = Pair::fake();
    every_shape(&mut pair);
    assert_eq!(world.borrow().overruns, 0);
}

/// Regression test: a device also refuses a request if it has no memory for a copy. The reply waited for a
/// completion, which unsignaled requests do not have.
#[test]
fn a_reply_that_the_device_refuses_for_lack_of_memory_is_sent_a_while_later() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    for xid in 1..10 {
        world.borrow_mut().refuse_posts.insert(SERVER, 1);
        pair.call(conn, message(xid, 0, &[]), &room(0, &[])).reply();
    }
    assert_eq!(world.borrow().refuse_posts[&SERVER], 0);
}

/// A server with too many jobs takes no events and sleeps. Its peers must not wait for it meanwhile.
#[test]
fn receives_are_posted_again_while_the_owner_takes_no_events() {
    let (world, mut pair) = Pair::fake();
    let conn = pair.connect();
    let all = world.borrow().posted_receives(SERVER);
    for xid in 0..3 {
        pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
    }
    let now = pair.now();
    pair.client.poll(now);
    assert!(pair.server.poll(now));
    assert!(world.borrow().posted_receives(SERVER) < all);
    assert!(pair.server.arm_without_owner());
    assert_eq!(world.borrow().posted_receives(SERVER), all);
    assert!(!pair.server.arm(), "there are events");
}

/// Regression test: calls of a connection that had ended stayed in the queue of a server that takes no events, so
/// a client that connected again and again could fill its memory.
#[test]
fn calls_that_the_owner_has_not_taken_go_with_their_connection() {
    let (world, mut pair) = Pair::fake();
    let (lost, kept) = (pair.connect(), pair.connect());
    let gone = pair.server_up[0];
    for conn in [lost, kept] {
        pair.submit(conn, message(1, 0, &[]), &room(0, &[]));
    }
    let now = pair.now();
    pair.client.poll(now);
    assert!(pair.server.poll(now));
    world.borrow_mut().lose_one(SERVER, gone.0);
    pair.server.poll(now);
    let mut left = Vec::new();
    while let Some(event) = pair.server.next_event() {
        left.push(match event {
            ServerTransportEvent::Call { conn, .. } => (conn, "call"),
            ServerTransportEvent::Disconnected { conn, .. } => (conn, "end"),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(left, [(pair.server_up[1], "call"), (gone, "end")]);
}

#[test]
fn a_server_whose_device_is_removed_is_told_after_its_connections_ended() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    world.borrow_mut().remove(SERVER);
    pair.until(|pair| !pair.server_lost.is_empty());
    assert_eq!(pair.server_down.len(), 1);
    assert_eq!(pair.server_lost, ["device fake was removed"]);
    // The client's device is still there: the server may come back with another.
    pair.until(|pair| !pair.down.is_empty());
    assert_eq!(pair.down[0].0, conn);
    assert!(pair.down[0].1.retry);
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

#[test]
fn a_client_whose_device_is_removed_does_not_try_again() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    pair.connect();
    world.borrow_mut().remove(CLIENT);
    pair.until(|pair| !pair.down.is_empty());
    let address = pair.address;
    let again = pair.client.open(address, 0, Time::ZERO);
    pair.until(|pair| pair.down.len() > 1);
    assert_eq!(pair.down[1].0, again);
    assert!(!pair.down[1].1.retry, "{:?}", pair.down[1]);
}

#[test]
fn a_device_with_small_limits_changes_nothing() {
    let small = Attributes {
        max_send_wr: 2,
        max_recv_wr: 6,
        max_gather: 2,
        max_region: 100_000,
        max_outbound_reads: 1,
        ..attributes()
    };
    let (client, server) = options();
    let (world, mut pair) = Pair::fake_with(client, server, small);
    every_shape(&mut pair);
    assert_eq!(world.borrow().overruns, 0);
}

#[test]
fn peers_that_say_nothing_in_private_data_understand_each_other() {
    for (client_says, server_says) in [(false, true), (true, false), (false, false)] {
        let (mut client, mut server) = options();
        client.common.private_data = client_says;
        server.common.private_data = server_says;
        let (world, mut pair) = Pair::fake_with(client, server, attributes());
        every_shape(&mut pair);
        let longest = longest_send(&world.borrow());
        assert!(
            longest <= 1024,
            "{longest} bytes sent to a peer that takes 1024"
        );
        assert_eq!(pair.server.device().counters().sends_with_invalidate, 0);
    }
}

fn longest_send(world: &World) -> usize {
    let lengths = world
        .traffic
        .iter()
        .filter_map(|(_, traffic)| match traffic {
            Traffic::Send(bytes, _) => Some(bytes.len()),
            _ => None,
        });
    lengths.max().unwrap_or(0)
}

/// Each operation posts exactly the work requests that it needs.
#[test]
fn nothing_is_posted_that_is_not_needed() {
    let (world, mut pair) = Pair::fake();
    let conn = pair.connect();
    let item = data(1, 8192);
    let cost = |pair: &mut Pair, call: &[Bytes], result: &[Bytes]| {
        let answer = result.to_vec();
        let lens: Vec<usize> = answer.iter().map(Bytes::len).collect();
        pair.answer_with(move |call| Some(reply(open(call).0, 1, &answer)));
        let before = (
            pair.client.device().counters(),
            pair.server.device().counters(),
        );
        let xid = before.0.sends as u32;
        pair.call(conn, message(xid, 1, call), &room(1, &lens))
            .reply();
        let (c, s) = (
            pair.client.device().counters(),
            pair.server.device().counters(),
        );
        [
            c.sends - before.0.sends,
            c.registrations - before.0.registrations,
            c.local_invalidations - before.0.local_invalidations,
            s.sends - before.1.sends,
            s.sends_with_invalidate - before.1.sends_with_invalidate,
            s.rdma_reads - before.1.rdma_reads,
            s.rdma_writes - before.1.rdma_writes,
            s.registrations - before.1.registrations,
        ]
    };
    let item = std::slice::from_ref(&item);
    assert_eq!(cost(&mut pair, &[], &[]), [1, 0, 0, 1, 0, 0, 0, 0], "NULL");
    assert_eq!(
        cost(&mut pair, &[], item),
        [1, 1, 0, 1, 1, 0, 1, 0],
        "READ of 8 KiB"
    );
    assert_eq!(
        cost(&mut pair, item, &[]),
        [1, 1, 0, 1, 1, 1, 0, 0],
        "WRITE of 8 KiB"
    );
    // One handle goes with the reply, the other has to be invalidated here.
    assert_eq!(
        cost(&mut pair, item, item),
        [1, 2, 1, 1, 1, 1, 1, 0],
        "both"
    );
    assert_eq!(world.borrow().overruns, 0);
}

#[test]
fn hundreds_of_calls_at_once_stay_within_the_grant() {
    for credits in [1, 4, 64] {
        let (client, mut server) = options();
        server.common.credits = credits;
        let (world, mut pair) = Pair::fake_with(client, server, attributes());
        let conn = pair.connect();
        for xid in 0..300 {
            let item = [data(xid, 2000 + xid as usize * 10)];
            let lens = [item[0].len()];
            pair.submit(conn, message(xid, 3, &item), &room(3, &lens));
        }
        // The server answers some of what it has, the newest first, then lets more arrive.
        while pair.ended.len() < 300 {
            pair.settle();
            let now = pair.now();
            let half = pair.held.len() / 2;
            for (at, token, call) in pair.held.drain(half..).rev().collect::<Vec<_>>() {
                let (xid, words, items) = open(&call);
                pair.server
                    .reply(at, token, Some(reply(xid, words, &items)), now);
            }
        }
        for (&(_, xid), end) in &pair.ended {
            let End::Reply(reply) = end else {
                panic!("{xid}: {end:?}")
            };
            let want = vec![data(xid, 2000 + xid as usize * 10)];
            assert_eq!(open(reply), (xid, 3, want));
        }
        let server_conn = pair.server_up[0];
        let most = pair
            .server
            .responder_counters(server_conn)
            .unwrap()
            .most_outstanding;
        assert_eq!(most, credits, "the grant is used, and not exceeded");
        let requester = pair.client.requester_counters(conn).unwrap();
        assert_eq!(requester.most_in_flight, credits);
        assert_eq!(world.borrow().overruns, 0);
        let left = world.borrow().fewest_receives.unwrap();
        assert!(
            left >= 4,
            "receives for messages without a credit were used up: {left}"
        );
    }
}

/// The connection is lost before each operation in turn. One `Down` reports the end of all its
/// calls, and no memory stays allocated on either side.
#[test]
fn losing_the_connection_anywhere_leaves_nothing_behind() {
    let mut losses = 0;
    for lose_at in 0..120 {
        let (world, mut pair) = Pair::fake();
        pair.echo();
        let conn = pair.connect();
        world.borrow_mut().lose_at = Some(lose_at);
        for xid in 0..10 {
            let items = [data(xid, 9000), data(xid, 50)];
            pair.submit(
                conn,
                message(xid, 1500 * (xid as usize % 2), &items),
                &room(1500, &[9000, 50]),
            );
        }
        pair.settle();
        if !pair.down.is_empty() {
            losses += 1;
            assert_eq!(pair.down.len(), 1, "one end");
            assert!(pair.down[0].1.was_established && pair.down[0].1.retry);
            assert!(
                pair.down[0].1.reason.contains("cable pulled"),
                "{}",
                pair.down[0].1.reason
            );
            assert_eq!(pair.server_down.len(), 1);
        } else {
            assert_eq!(pair.ended.len(), 10);
            pair.client.close(conn);
            pair.settle();
            assert!(pair.down.is_empty(), "no event follows a close");
        }
        pair.ended.clear();
        pair.held.clear();
        assert_eq!(
            (pair.client_pool.in_use(), pair.server_pool.in_use()),
            (0, 0),
            "{lose_at}"
        );
        // A new connection works, and its calls too.
        world.borrow_mut().lose_at = None;
        let conn = pair.connect();
        let reply = pair.call(conn, message(99, 0, &[]), &room(0, &[]));
        assert_eq!(open(&reply.reply()).0, 99);
    }
    assert!(
        (40..120).contains(&losses),
        "{losses} of 120 connections lost"
    );
}

/// The connection ends while calls wait for credits, for send-queue entries and for replies: all of
/// them end.
#[test]
fn a_full_send_queue_does_not_keep_anybody_on_a_closed_connection() {
    let small = Attributes {
        max_send_wr: 1,
        ..attributes()
    };
    let (client, server) = options();
    let (world, mut pair) = Pair::fake_with(client, server, small);
    pair.echo();
    let conn = pair.connect();
    pair.call(conn, message(1000, 0, &[]), &room(0, &[]))
        .reply();
    world.borrow_mut().running = false;
    for xid in 0..100 {
        pair.submit(conn, message(xid, 0, &[data(xid, 8000)]), &room(0, &[8000]));
    }
    pair.settle();
    world.borrow_mut().lose_all();
    pair.settle();
    assert_eq!(pair.down.len(), 1);
    pair.ended.clear();
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

#[test]
fn a_reply_without_room_is_an_error_and_the_connection_lives() {
    let (_, mut pair) = Pair::fake();
    let conn = pair.connect();
    let big = data(7, 10_000);
    for (xid, offered) in [
        (1, room(0, &[])),
        (2, room(0, &[9_999])),
        (3, room(2000, &[])),
    ] {
        let big = big.clone();
        pair.answer_with(move |call| Some(reply(open(call).0, 0, std::slice::from_ref(&big))));
        let error = pair.call(conn, message(xid, 0, &[]), &offered).error();
        assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
    }
    pair.echo();
    pair.call(conn, message(4, 0, &[]), &room(0, &[])).reply();
    assert!(pair.down.is_empty());
}

#[test]
fn a_call_that_cannot_be_conveyed_fails_at_once() {
    let (mut client, server) = options();
    client.common.max_message = 1 << 16;
    let (_, mut pair, conn) = Pair::echoing(client, server);
    let error = pair
        .call(conn, message(1, 0, &[data(1, 1 << 16)]), &room(0, &[]))
        .error();
    assert!(matches!(error, CallError::TooLarge(_)), "{error:?}");
    let error = pair
        .call(conn, message(2, 0, &[]), &room(0, &[1 << 16]))
        .error();
    assert!(matches!(error, CallError::TooLarge(_)), "{error:?}");
    pair.call(conn, message(3, 0, &[]), &room(0, &[])).reply();
}

/// With a pool that holds the receives and little more, calls wait for memory one after the other,
/// on both sides.
#[test]
fn calls_wait_for_memory() {
    let (mut client, mut server) = options();
    client.common.credits = 16;
    server.common.credits = 16;
    let world = World::new();
    let receives = 20 * 4096;
    let pool = || Pool::new(receives + 3 * (1 << 17));
    let (a, b) = (
        FakeDevice::new(&world, attributes(), pool()),
        FakeDevice::new(&world, attributes(), pool()),
    );
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    pair.answer_with(|call| {
        let (xid, _, items) = open(call);
        // What is sent back is not from the pool.
        let copy: Vec<Bytes> = items
            .iter()
            .map(|item| Bytes::copy_from_slice(item))
            .collect();
        Some(reply(xid, 0, &copy))
    });
    let conn = pair.connect();
    for xid in 0..24 {
        let item = data(xid, 100_000);
        pair.submit(conn, message(xid, 0, &[item]), &room(0, &[100_000]));
    }
    let mut done = 0;
    while done < 24 {
        pair.until(|pair| !pair.ended.is_empty());
        for ((_, xid), end) in std::mem::take(&mut pair.ended) {
            assert_eq!(open(&end.reply()).2, [data(xid, 100_000)]);
            done += 1;
        }
    }
    // One that can never fit fails, instead of waiting for ever.
    let error = pair
        .call(conn, message(99, 0, &[]), &room(0, &[1 << 20]))
        .error();
    assert!(matches!(error, CallError::TooLarge(_)), "{error:?}");
}

/// The receives leave too little of the pool, and no other call can release any: calls that need
/// more fail one by one, and calls that need less succeed.
#[test]
fn a_call_for_which_no_memory_can_come_free_fails() {
    let (mut client, server) = options();
    client.common.credits = 16;
    let world = World::new();
    let (a, b) = (
        FakeDevice::new(&world, attributes(), Pool::new(1 << 18)),
        FakeDevice::new(&world, attributes(), Pool::new(POOL)),
    );
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    pair.echo();
    let conn = pair.connect();
    assert!(pair.client_pool.in_use() > 1 << 16, "receives");
    pair.submit(conn, message(1, 0, &[]), &room(0, &[1 << 18]));
    pair.submit(conn, message(2, 0, &[]), &room(0, &[200_000]));
    pair.submit(conn, message(3, 0, &[]), &room(0, &[10_000]));
    for _ in 0..30 {
        pair.ahead += Duration::from_secs(1);
        pair.settle();
    }
    for xid in [1, 2] {
        let error = pair.ended.remove(&(conn, xid)).unwrap().error();
        let CallError::TooLarge(why) = &error else {
            panic!("{error:?}");
        };
        assert!(why.contains("no call under way"), "{why}");
    }
    pair.ended.remove(&(conn, 3)).unwrap().reply();
    assert!(pair.down.is_empty());
}

/// The fetched chunks of one connection's calls are limited. Calls over the limit wait until others
/// are answered. A call that exceeds the limit by itself is served alone.
#[test]
fn fetched_chunks_stay_within_their_limit() {
    let (client, mut server) = options();
    server.max_fetched = 250_000;
    let (_, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.connect();
    pair.echo();
    pair.call(conn, message(0, 0, &[]), &room(0, &[])).reply();
    pair.answer = None;
    let lens = [
        100_000, 100_000, 100_000, 100_000, 300_000, 100_000, 0, 100_000,
    ];
    for (xid, len) in (1..).zip(lens) {
        let items = [data(xid, len)];
        pair.submit(conn, message(xid, 0, &items), &room(0, &[len]));
    }
    let mut together = Vec::new();
    let mut served = Vec::new();
    while served.len() < lens.len() {
        pair.settle();
        together.push(pair.held.len());
        let now = pair.now();
        for (at, token, call) in std::mem::take(&mut pair.held) {
            let (xid, words, items) = open(&call);
            served.push(xid);
            pair.server
                .reply(at, token, Some(reply(xid, words, &items)), now);
        }
    }
    // The call without chunks passes the others.
    assert_eq!(together, [3, 2, 1, 2]);
    assert_eq!(served, [7, 1, 2, 3, 4, 5, 6, 8]);
    pair.until(|pair| pair.ended.len() == lens.len());
    for ((_, xid), end) in pair.ended.drain() {
        assert_eq!(open(&end.reply()).2, [data(xid, lens[xid as usize - 1])]);
    }
}

/// Every granted call finds a posted receive, even if the server's pool is exhausted.
#[test]
fn receives_do_not_depend_on_free_memory() {
    let (mut client, mut server) = options();
    client.common.credits = 32;
    server.common.credits = 32;
    let world = World::new();
    let small = Pool::new(36 * 4096 + 8192);
    let (a, b) = (
        FakeDevice::new(&world, attributes(), Pool::new(POOL)),
        FakeDevice::new(&world, attributes(), small.clone()),
    );
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    let conn = pair.connect();
    pair.echo();
    pair.call(conn, message(0, 0, &[]), &room(0, &[])).reply();
    pair.answer = None;
    // All of it is taken, so that what arrives cannot be replaced from the pool.
    let mut taken = Vec::new();
    while let Ok(buf) = small.alloc(1) {
        taken.push(buf);
    }
    for round in 0..8 {
        for n in 0..32 {
            let xid = 1 + 32 * round + n;
            pair.submit(conn, message(xid, n as usize, &[]), &room(31, &[]));
        }
        pair.until(|pair| pair.held.len() == 32 || !pair.down.is_empty());
        assert!(pair.down.is_empty(), "{:?}", pair.down);
        let now = pair.now();
        for (at, token, call) in std::mem::take(&mut pair.held) {
            let (xid, words, _) = open(&call);
            pair.server
                .reply(at, token, Some(reply(xid, words, &[])), now);
        }
        pair.until(|pair| pair.ended.len() == 32 * (round as usize + 1));
    }
    assert_eq!(world.borrow().overruns, 0);
    let left = world.borrow().fewest_receives;
    assert_eq!(left, Some(6), "all but those beyond the credits were used");
}

/// If a device rejects a receive, the connection is closed at once, because the peer's credits rely
/// on that receive.
#[test]
fn a_receive_that_cannot_be_posted_ends_the_connection() {
    for side in [0, 1] {
        let (world, mut pair) = Pair::fake();
        let conn = pair.connect();
        pair.echo();
        pair.call(conn, message(1, 0, &[]), &room(0, &[])).reply();
        world.borrow_mut().full = Some(side);
        for xid in 2..6 {
            pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
        }
        pair.until(|pair| !pair.down.is_empty() && !pair.server_down.is_empty());
        assert!(pair.down[0].1.retry, "{side}: another connection may do");
        assert_eq!(world.borrow().overruns, 0, "{side}");
        pair.ended.clear();
        pair.settle();
        let held = (pair.client_pool.in_use(), pair.server_pool.in_use());
        assert_eq!(held, (0, 0), "{side}");
    }
}

#[test]
fn a_client_without_memory_for_receives_does_not_connect() {
    let (client, server) = options();
    let world = World::new();
    let (a, b) = (
        FakeDevice::new(&world, attributes(), Pool::new(10 * 4096)),
        FakeDevice::new(&world, attributes(), Pool::new(POOL)),
    );
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    let conn = pair.client.open(pair.address, 0, Time::ZERO);
    pair.settle();
    assert_eq!(pair.down.len(), 1);
    assert!(pair.down[0].0 == conn && pair.down[0].1.retry);
    assert!(pair.up.is_empty());
    assert_eq!(pair.client_pool.in_use(), 0);
}

/// A client that sends calls and receives no replies makes the server queue no more replies than it
/// granted credits.
#[test]
fn answers_that_are_not_taken_do_not_pile_up() {
    for garbage in [false, true] {
        let (client, mut server) = options();
        server.common.credits = 8;
        let few = Attributes {
            max_send_wr: 4,
            ..attributes()
        };
        let (world, mut pair) = Pair::fake_with(client, server, few);
        pair.echo();
        let (mut device, qp) = bare(&world);
        pair.until(|pair| {
            device.poll(Time::ZERO, &mut VecDeque::new());
            !pair.server_up.is_empty()
        });
        world.borrow_mut().stalled = Some(1);
        let mut sent = 0;
        while sent < 100 && pair.server_down.is_empty() {
            let (procedure, payload) = match garbage {
                false => (0, message(sent, 0, &[]).gather(|_| true).concat()),
                true => (77, Vec::new()),
            };
            let header = [sent, 1, 8, procedure, 0, 0, 0];
            let mut call: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
            call.extend(payload);
            let send = SendWr::Send {
                gather: std::iter::once(Bytes::from(call)).collect(),
                invalidate: None,
            };
            let posted = device.post_send(qp, WrId(u64::from(sent)), send, true);
            assert!(posted.is_ok() || !pair.server_down.is_empty());
            device.poll(Time::ZERO, &mut VecDeque::new());
            pair.settle();
            sent += 1;
        }
        assert!(
            (12..=14).contains(&sent),
            "stopped after {sent} messages: the grant of 8, and a send queue of 4"
        );
        assert!(
            pair.server_down[0].1.contains("not taken"),
            "{:?}",
            pair.server_down
        );
        assert_eq!(pair.server_pool.in_use(), 0);
    }
}

#[test]
fn a_cancelled_call_is_fenced_off_and_its_reply_dropped() {
    let (mut client, server) = options();
    client.common.remote_invalidation = false;
    let (_, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.connect();
    let base = pair.client_pool.in_use();
    pair.submit(conn, message(1, 0, &[data(1, 8000)]), &room(0, &[]));
    pair.until(|pair| !pair.held.is_empty());
    pair.client.cancel(conn, 1);
    pair.settle();
    let counters = pair.client.device().counters();
    assert_eq!(
        (counters.registrations, counters.local_invalidations),
        (1, 1)
    );
    assert_eq!(pair.client_pool.in_use(), base);
    // Its credit is still taken: the next call waits.
    pair.submit(conn, message(2, 0, &[]), &room(0, &[]));
    pair.settle();
    assert_eq!(pair.held.len(), 1);
    let (at, token, _) = pair.held.remove(0);
    pair.server
        .reply(at, token, Some(reply(1, 0, &[])), Time::ZERO);
    pair.until(|pair| !pair.held.is_empty());
    let (at, token, call) = pair.held.remove(0);
    assert_eq!(open(&call).0, 2);
    pair.server
        .reply(at, token, Some(reply(2, 0, &[])), Time::ZERO);
    pair.until(|pair| pair.ended.contains_key(&(conn, 2)));
    assert_eq!(pair.ended.len(), 1, "a cancelled call does not end again");
    assert_eq!(
        pair.client
            .requester_counters(conn)
            .unwrap()
            .cancelled_replies,
        1
    );
    assert!(pair.down.is_empty());
}

/// A responder that writes to memory of a cancelled call finds it invalidated, which ends the
/// connection.
#[test]
fn memory_of_a_cancelled_call_cannot_be_written() {
    let (mut client, server) = options();
    client.common.remote_invalidation = false;
    let (_, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.connect();
    pair.submit(conn, message(1, 0, &[]), &room(0, &[8000]));
    pair.until(|pair| !pair.held.is_empty());
    pair.client.cancel(conn, 1);
    pair.settle();
    let (at, token, _) = pair.held.remove(0);
    pair.server
        .reply(at, token, Some(reply(1, 0, &[data(1, 8000)])), Time::ZERO);
    pair.until(|pair| !pair.down.is_empty() && !pair.server_down.is_empty());
    assert!(
        pair.server_down[0].1.contains("remote access error"),
        "{:?}",
        pair.server_down
    );
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

/// A responder that may invalidate handles may also invalidate those of a cancelled call. They stay
/// valid until its reply, and the connection continues.
#[test]
fn handles_of_a_cancelled_call_are_there_until_its_reply() {
    let (_, mut pair) = Pair::fake();
    let conn = pair.connect();
    pair.submit(conn, message(1, 0, &[]), &room(0, &[8000]));
    pair.until(|pair| !pair.held.is_empty());
    pair.client.cancel(conn, 1);
    pair.settle();
    let before = pair.client_pool.in_use();
    let (at, token, _) = pair.held.remove(0);
    pair.server
        .reply(at, token, Some(reply(1, 0, &[data(1, 8000)])), Time::ZERO);
    pair.until(|pair| {
        let counters = pair.client.requester_counters(conn);
        counters.is_some_and(|counters| counters.cancelled_replies == 1)
    });
    pair.settle();
    assert!(pair.down.is_empty() && pair.server_down.is_empty());
    assert!(pair.ended.is_empty(), "nobody is told");
    assert!(pair.client_pool.in_use() < before, "its memory is back");
}

#[test]
fn connections_that_cannot_be_made_say_why() {
    let (_, mut pair) = Pair::fake();
    let nowhere = (std::net::Ipv4Addr::LOCALHOST, 1).into();
    let conn = pair.client.open(nowhere, 0, Time::ZERO);
    pair.until(|pair| !pair.down.is_empty());
    let (at, lost) = pair.down.remove(0);
    assert_eq!(at, conn);
    assert!(!lost.was_established && lost.retry);
    assert!(lost.reason.contains("refused"), "{}", lost.reason);

    // A server that has no room for the moment, whether it was met before or not.
    for met in [false, true] {
        let (client, mut server) = options();
        server.max_connections = usize::from(met);
        let (_, mut pair) = Pair::fake_with(client, server, attributes());
        if met {
            pair.connect();
        }
        pair.client.open(pair.address, 0, Time::ZERO);
        pair.until(|pair| !pair.down.is_empty());
        let lost = pair.down.remove(0).1;
        assert!(lost.busy && lost.retry && !lost.was_established, "{lost:?}");
        assert!(lost.reason.contains("no room"), "{}", lost.reason);
    }
}

#[test]
fn a_server_without_memory_is_tried_again() {
    let (client, mut server) = options();
    server.max_receive_memory = 0;
    let mut own = attributes();
    own.shared_receives = None;
    let (_, mut pair) = Pair::fake_with(client, server, own);
    pair.client.open(pair.address, 0, Time::ZERO);
    pair.until(|pair| !pair.down.is_empty());
    let lost = pair.down.remove(0).1;
    assert!(lost.busy && lost.retry && !lost.was_established, "{lost:?}");
    assert!(lost.reason.contains("no room"), "{}", lost.reason);
}

/// Regression test: a queue pair was made before there was memory for the first receives, so that the client was
/// rejected like one that is not wanted.
#[test]
fn a_server_without_memory_for_the_first_receives_is_tried_again() {
    let (client, server) = options();
    let world = World::new();
    let (a, b) = (
        FakeDevice::new(&world, attributes(), Pool::new(POOL)),
        FakeDevice::new(&world, attributes(), Pool::new(10 * 4096)),
    );
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    pair.client.open(pair.address, 0, Time::ZERO);
    pair.until(|pair| !pair.down.is_empty());
    let lost = pair.down.remove(0).1;
    assert!(lost.busy && lost.retry && !lost.was_established, "{lost:?}");
    pair.settle();
    assert!(pair.server_up.is_empty());
    assert_eq!(pair.server_pool.in_use(), 0);
}

#[test]
fn a_server_without_memory_for_a_queue_pair_is_tried_again() {
    for (kind, again) in [
        (ErrorKind::OutOfMemory, true),
        (ErrorKind::InvalidInput, false),
    ] {
        let (world, mut pair) = Pair::fake();
        world.borrow_mut().refuse_queue_pairs = Some(kind);
        pair.client.open(pair.address, 0, Time::ZERO);
        pair.until(|pair| !pair.down.is_empty());
        let lost = pair.down.remove(0).1;
        assert_eq!((lost.busy, lost.retry), (again, again), "{lost:?}");
        assert!(lost.reason.contains("rejected"), "{}", lost.reason);
        pair.settle();
        assert_eq!(pair.server_pool.in_use(), 0);
    }
}

#[test]
fn several_connections_share_a_device() {
    let (_, mut pair) = Pair::fake();
    pair.echo();
    let conns: Vec<_> = (0..4).map(|_| pair.connect()).collect();
    for round in 0..20 {
        for &conn in &conns {
            pair.submit(
                conn,
                message(round, 0, &[data(round, 6000)]),
                &room(0, &[6000]),
            );
        }
    }
    pair.until(|pair| pair.ended.len() == 80);
    // Closing one does not touch the others.
    pair.client.close(conns[0]);
    pair.until(|pair| !pair.server_down.is_empty());
    pair.ended.clear();
    pair.call(conns[3], message(100, 0, &[]), &room(0, &[]))
        .reply();
    assert!(pair.down.is_empty());
}

/// Calls can be made before the connection is established, and such a connection can be closed.
#[test]
fn calls_before_the_connection_is_made_wait_for_it() {
    let (_, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.client.open(pair.address, 0, Time::ZERO);
    for xid in 0..5 {
        pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
    }
    pair.until(|pair| pair.ended.len() == 5);
    let early = pair.client.open(pair.address, 0, Time::ZERO);
    pair.client.close(early);
    pair.settle();
    assert!(!pair.up.contains(&early) && pair.down.is_empty());
}

/// The server closes a connection from its side.
#[test]
fn the_server_can_end_a_connection() {
    let (_, mut pair) = Pair::fake();
    let conn = pair.connect();
    pair.submit(conn, message(1, 0, &[]), &room(0, &[]));
    pair.until(|pair| !pair.held.is_empty());
    let (at, token, _) = pair.held.remove(0);
    pair.server.close(at);
    // A reply that comes too late goes nowhere.
    pair.server
        .reply(at, token, Some(reply(1, 0, &[])), Time::ZERO);
    pair.until(|pair| !pair.down.is_empty() && !pair.server_down.is_empty());
    assert_eq!(pair.down[0].0, conn);
    assert!(pair.ended.is_empty());
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

/// A call that is never answered does not keep the other credits from being used.
#[test]
fn a_dropped_call_does_not_stop_the_server() {
    let (_, mut pair) = Pair::fake();
    let conn = pair.connect();
    pair.answer_with(|call| {
        open(call)
            .0
            .is_multiple_of(2)
            .then(|| reply(open(call).0, 0, &[]))
    });
    pair.call(conn, message(0, 0, &[]), &room(0, &[])).reply();
    for xid in 1..=60 {
        pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
    }
    pair.until(|pair| pair.ended.len() == 30);
}

/// A second reply with the same token is not used for a later call.
#[test]
fn an_answer_is_for_one_call_only() {
    let (_, mut pair) = Pair::fake();
    let conn = pair.connect();
    let mut tokens = Vec::new();
    for xid in 1..=2 {
        pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
        pair.until(|pair| !pair.held.is_empty());
        let (at, token, _) = pair.held.remove(0);
        for earlier in &tokens {
            assert_ne!(*earlier, token);
            let again = reply(1, 0, &[]);
            pair.server.reply(at, *earlier, Some(again), Time::ZERO);
        }
        tokens.push(token);
        let answer = reply(xid, 0, &[]);
        pair.server.reply(at, token, Some(answer), Time::ZERO);
        pair.until(|pair| pair.ended.contains_key(&(conn, xid)));
    }
    assert_eq!(pair.client.device().counters().receives, 2);
}

/// `arm` returns false while there is work to do.
#[test]
fn arming_is_refused_while_there_is_something_to_take() {
    let (_, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    pair.submit(conn, message(1, 0, &[]), &room(0, &[]));
    assert!(pair.client.next_deadline().is_none());
    for _ in 0..4 {
        let now = pair.now();
        pair.client.poll(now);
        pair.server.poll(now);
        if let Some(ServerTransportEvent::Call {
            conn,
            token,
            message,
        }) = pair.server.next_event()
        {
            let (xid, words, items) = open(&message);
            let reply = Some(reply(xid, words, &items));
            pair.server.reply(conn, token, reply, now);
        }
    }
    assert!(!pair.client.arm(), "a reply waits");
    assert!(pair.client.next_event().is_some());
    assert!(pair.client.arm());
}

#[test]
fn defaults_are_those_of_linux_peers() {
    let client = RdmaClientOptions::new(rpcrdma_protocols::base());
    let server = RdmaServerOptions::new(rpcrdma_protocols::base());
    assert_eq!((client.common.credits, server.common.credits), (128, 64));
    assert_eq!(
        (client.common.inline_send, server.common.inline_receive),
        (4096, 4096)
    );
}

/// A disconnect that the peer never answers ends after a time-out.
#[test]
fn closing_does_not_wait_for_a_peer_that_is_gone() {
    let (world, mut pair) = Pair::fake();
    let conn = pair.connect();
    world.borrow_mut().deaf = true;
    pair.client.close(conn);
    pair.server.close(pair.server_up[0]);
    let deadlines = (pair.client.next_deadline(), pair.server.next_deadline());
    pair.settle();
    assert_ne!(pair.client_pool.in_use(), 0, "it may still end in order");
    let (Some(client), Some(server)) = deadlines else {
        panic!("nothing will wake up for it");
    };
    pair.client.poll(client);
    pair.client.poll(client);
    pair.server.poll(server);
    pair.server.poll(server);
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

/// Closing a connection ends its calls, and the peer can reach none of their memory afterwards.
#[test]
fn closing_with_calls_under_way_takes_their_memory_back_at_once() {
    let (world, mut pair) = Pair::fake();
    let conn = pair.connect();
    pair.submit(conn, message(1, 0, &[data(1, 9000)]), &room(0, &[9000]));
    pair.until(|pair| !pair.held.is_empty());
    world.borrow_mut().deaf = true;
    pair.client.close(conn);
    pair.settle();
    assert_eq!(pair.client_pool.in_use(), 0);
    assert!(
        pair.down.is_empty() && pair.ended.is_empty(),
        "no event follows"
    );
}

/// Copies that a plan requires are counted, also of connections that have ended.
#[test]
fn copies_are_counted() {
    let (_, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    // In one piece already, or apart: nothing to copy.
    pair.call(conn, message(1, 2000, &[]), &room(2000, &[]))
        .reply();
    let apart = [data(2, 9000)];
    pair.call(conn, message(2, 0, &apart), &room(0, &[9000]))
        .reply();
    // But for what short messages are, or begin with.
    let short = 256;
    let before = pair.client.copied_bytes();
    assert!(before <= 2 * short && pair.server.copied_bytes() <= 2 * short);
    // A Long Call whose item is not worth a chunk of its own: put together from pieces.
    let call = message(3, 2000, &[data(3, 1000)]);
    let len = call.stream_len();
    pair.call(conn, call, &room(2000, &[1000])).reply();
    let copied = pair.client.copied_bytes();
    assert!((len..=len + short).contains(&(copied - before)));
    pair.client.close(conn);
    pair.settle();
    assert_eq!(pair.client.copied_bytes(), copied);
    assert!(pair.server.copied_bytes() <= 3 * short);
}

/// A connection attempt that fails because the peer speaks another protocol is not repeated, unless
/// an earlier connection to the same server succeeded: the server was then stopped while it
/// answered.
#[test]
fn a_failed_set_up_is_tried_again_only_with_a_server_that_was_met() {
    let (world, mut pair) = Pair::fake();
    let protocol = || Some(ConnectError::Protocol("not MPA".to_owned()));
    for met in [false, true] {
        world.borrow_mut().refuse_with = protocol();
        pair.client.open(pair.address, 0, Time::ZERO);
        pair.until(|pair| !pair.down.is_empty());
        let (_, lost) = pair.down.remove(0);
        assert_eq!((lost.was_established, lost.retry), (false, met));
        assert!(lost.reason.contains("not MPA"), "{}", lost.reason);
        world.borrow_mut().refuse_with = None;
        pair.connect();
    }
}

/// A peer sends a message that is longer than the receives: the connection ends, and device and log
/// give the reason.
#[test]
fn a_message_longer_than_the_receives_ends_the_connection_with_a_clear_reason() {
    let (client, mut server) = options();
    server.common.inline_receive = 1024;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.connect();
    let (mut rude, qp) = bare(&world);
    pair.until(|pair| pair.server_up.len() == 2);
    let gather = [data(1, 1025)].into_iter().collect();
    let invalidate = None;
    let send = SendWr::Send { gather, invalidate };
    rude.post_send(qp, WrId(0), send, true).unwrap();
    rude.poll(Time::ZERO, &mut VecDeque::new());
    pair.until(|pair| !pair.server_down.is_empty());
    let reason = &pair.server_down[0].1;
    assert!(reason.contains("local length error"), "{reason}");
    assert!(pair.down.is_empty(), "the other client is left alone");
}

#[test]
fn receives_of_all_connections_have_a_limit() {
    let (client, mut server) = options();
    // A connection gets a quarter of what is left, which leaves fewer credits for each that
    // follows.
    server.max_receive_memory = 1 << 20;
    let world = World::new();
    let device = FakeDevice::new(&world, attributes(), Pool::new(POOL));
    let pool = Pool::new(POOL);
    let other = FakeDevice::new(&world, attributes(), pool.clone());
    let mut pair = Pair::new(Box::new(device), client, Box::new(other), server, address());
    let before = pool.in_use();
    let mut accepted = 0;
    loop {
        let now = pair.now();
        let conn = pair.client.open(address(), 0, now);
        pair.settle();
        assert!(pool.in_use() - before <= 1 << 20, "{} bytes", pool.in_use());
        if !pair.up.contains(&conn) {
            break;
        }
        accepted += 1;
        assert!(accepted < 60, "nobody is turned away");
    }
    assert!(accepted > 5, "{accepted} connections");
    assert!(pool.in_use() - before > 3 << 18, "most of it is used");
}

/// Returns whether a server does nothing by itself within this time.
fn rests(pair: &Pair, time: Duration) -> bool {
    let next = pair.server.next_deadline();
    next.is_none_or(|next| next > pair.now() + time)
}

/// A back end answers when nobody looks for memory to give back any more. Its unsignaled replies are followed by no event.
#[test]
fn a_server_looks_for_memory_to_give_back_after_late_replies() {
    const INTERVAL: Duration = Duration::from_secs(10);
    let (client, mut server) = options();
    server.give_back_after = Some(INTERVAL);
    let (_world, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.connect();
    pair.submit(conn, message(1, 2, &[]), &room(2, &[]));
    pair.until(|pair| pair.held.len() == 1);
    for _ in 0..20 {
        pair.ahead += INTERVAL;
        pair.settle();
    }
    assert!(rests(&pair, 2 * INTERVAL));
    let (conn, token, _) = pair.held.remove(0);
    let now = pair.now();
    pair.server.reply(conn, token, Some(reply(1, 2, &[])), now);
    assert!(!rests(&pair, INTERVAL));
    for _ in 0..20 {
        pair.ahead += INTERVAL;
        pair.settle();
    }
    assert!(rests(&pair, 2 * INTERVAL));
}

/// A connection that is closed in order ends after all its replies have left, those included that wait for room in
/// the send queue.
#[test]
fn a_connection_is_closed_in_order_after_its_last_reply_has_left() {
    let few = Attributes {
        max_send_wr: 4,
        ..attributes()
    };
    let (client, server) = options();
    let (world, mut pair) = Pair::fake_with(client, server, few);
    pair.echo();
    let conn = pair.connect();
    // It grants the credits for the others.
    pair.call(conn, message(16, 0, &[]), &room(0, &[])).reply();
    world.borrow_mut().stalled = Some(SERVER);
    for xid in 0..16 {
        pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
    }
    pair.settle();
    let (at_server, now) = (pair.server_up[0], pair.now());
    assert!(!pair.server.finish(at_server, now), "replies wait");
    pair.settle();
    assert!(pair.server_down.is_empty() && pair.down.is_empty());
    world.borrow_mut().stalled = None;
    pair.until(|pair| pair.ended.len() == 16);
    assert!(pair.server.finish(at_server, now));
    pair.until(|pair| !pair.down.is_empty() && !pair.server_down.is_empty());
    for (_, end) in pair.ended.drain() {
        end.reply();
    }
    assert!(pair.server.finish(at_server, now), "the connection is gone");
}
