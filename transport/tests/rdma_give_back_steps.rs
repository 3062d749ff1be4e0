//! The steps in which a server with thousands of connections looks for memory to give back.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::cell::RefCell;
use std::time::Duration;

use rdma::{QpId, Time, WhenEmpty};
use rdma_support::fabric::{World, sharing};
use rdma_support::{Pair, message, options, reply, room};
use rpc_transport::{
    ClientTransport, ConnectionId, PollSource, ServerTransport, ServerTransportEvent,
};

const SERVER: usize = 1;
const CONNECTIONS: usize = 2_100;
/// The maximum number of connections of a step, and the time until the next one.
const STEP: usize = 1_000;
const NEXT_STEP: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_secs(10);

/// Makes a call on each connection.
fn call_on_all(pair: &mut Pair, connections: &[ConnectionId]) {
    for conn in connections {
        pair.submit(*conn, message(1, 2, &[]), &room(2, &[]));
    }
    pair.until(|pair| pair.ended.len() == connections.len());
    for (_, end) in pair.ended.drain() {
        end.reply();
    }
}

/// Polls the server for each step of a look. Returns the queue pairs that each step gave to the device.
fn look(pair: &mut Pair, world: &RefCell<World>, now: &mut Time) -> Vec<Vec<QpId>> {
    for _ in 0..CONNECTIONS.div_ceil(STEP) {
        pair.server.poll(*now);
        *now = *now + NEXT_STEP;
    }
    std::mem::take(&mut world.borrow_mut().given_back)
}

#[test]
fn a_look_for_memory_to_give_back_has_steps_between_which_the_server_does_other_work() {
    let (client, mut server) = options();
    server.give_back_after = Some(INTERVAL);
    server.max_connections = CONNECTIONS;
    let (world, mut pair) = Pair::fake_with(client, server, sharing(WhenEmpty::Waits));
    pair.echo();
    let now = pair.now();
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| pair.client.open(pair.address, 0, now))
        .collect();
    pair.until(|pair| pair.up.len() == CONNECTIONS);
    call_on_all(&mut pair, &connections);
    // They were accepted in this order.
    let queue_pairs = world.borrow().queue_pairs(SERVER);
    // From now on, the test alone advances the server's clock. The first look finds traffic everywhere.
    let mut now = pair.now() + INTERVAL;
    assert!(look(&mut pair, &world, &mut now).is_empty());

    now = now + INTERVAL;
    pair.server.poll(now);
    let first = world.borrow_mut().given_back.pop().unwrap();
    assert_eq!(first.len(), STEP);
    assert_eq!(pair.server.next_deadline(), Some(now + NEXT_STEP));
    // Before the next step, a connection that it is for makes a call, and another one ends.
    let mut later = (0..CONNECTIONS).filter(|&at| !first.contains(&queue_pairs[at]));
    let (active, ended) = (later.next().unwrap(), later.next().unwrap());
    world.borrow_mut().lose_one(SERVER, queue_pairs[ended].0);
    pair.submit(connections[active], message(2, 2, &[]), &room(2, &[]));
    let client_now = pair.now();
    pair.client.poll(client_now);
    pair.server.poll(now);
    let (mut called, mut has_ended) = (None, None);
    while let Some(event) = pair.server.next_event() {
        match event {
            ServerTransportEvent::Call { conn, token, .. } => called = Some((conn, token)),
            ServerTransportEvent::Disconnected { conn, .. } => has_ended = Some(conn.0),
            other => panic!("{other:?}"),
        }
    }
    let (conn, token) = called.unwrap();
    assert_eq!(conn.0, queue_pairs[active].0);
    assert_eq!(has_ended, Some(queue_pairs[ended].0));
    let answer = Some(reply(2, 2, &[]));
    pair.server.reply(conn, token, answer, now);
    assert!(world.borrow().given_back.is_empty(), "not before its time");

    // The other steps are for all others.
    now = now + NEXT_STEP;
    let mut steps = look(&mut pair, &world, &mut now);
    assert!(steps.len() == 2 && steps.iter().all(|step| step.len() <= STEP));
    steps.push(first);
    let mut all = steps.concat();
    all.sort();
    let others = queue_pairs.iter().enumerate();
    let others = others.filter(|(at, _)| ![active, ended].contains(at));
    assert_eq!(all, others.map(|(_, qp)| *qp).collect::<Vec<_>>());

    // The next look is for the connection that made the call, and there is none after it.
    now = now + INTERVAL;
    assert_eq!(
        look(&mut pair, &world, &mut now).concat(),
        [queue_pairs[active]]
    );
    for _ in 0..3 {
        now = now + INTERVAL;
        assert!(look(&mut pair, &world, &mut now).is_empty());
    }
}
