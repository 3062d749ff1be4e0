//! The loops of one server, each with a device of its own, that listen together.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rdma::{Completion, Disconnect, Event, QpId, SharedReceivesId, Success, WrId};
use rpcrdma_host::LoopSeat;

use super::world::{CLIENT, SERVER, World, is_verbs};

/// Length of the receives.
const LEN: usize = 4096;

/// A connection of the client with one of the loops.
struct Pair {
    client: QpId,
    /// The side of the loop.
    side: usize,
    server: QpId,
}

/// Establishes a connection. The server's side uses its queue in `shared`, or 8 receives of its own.
fn connected(world: &mut World, shared: &[SharedReceivesId]) -> Pair {
    let (client, side, request) = world.connecting(8, LEN);
    let receives = shared.get(side - SERVER).copied();
    let prepared = world.device(side).prepare_accept(request, receives);
    let server = prepared.unwrap();
    if receives.is_none() {
        world.post_receives(side, server, 8, LEN);
    }
    world.accept(client, side, server);
    Pair {
        client,
        side,
        server,
    }
}

/// Sends a message to the loop and one back.
fn there_and_back(world: &mut World, pair: &Pair) {
    let hello = [Bytes::from_static(b"hello")];
    world.send(CLIENT, pair.client, 77, &hello);
    assert_eq!(world.receive(pair.side, pair.server), hello[0]);
    world.send(pair.side, pair.server, 77, &hello);
    assert_eq!(world.receive(CLIENT, pair.client), hello[0]);
}

fn close(world: &mut World, pair: &Pair) {
    world.close_with(pair.side, [pair.client, pair.server]);
}

#[test]
fn connections_are_spread_evenly_over_loops() {
    spread_evenly(false);
}

#[test]
fn connections_are_spread_evenly_over_busy_loops() {
    spread_evenly(true);
}

fn spread_evenly(is_busy: bool) {
    let seats = LoopSeat::all(3);
    let mut world = World::with(&seats);
    world.busy = is_busy;
    for side in &mut world.sides {
        side.device.set_busy_poll(is_busy);
    }
    let pairs: Vec<Pair> = (0..6).map(|_| connected(&mut world, &[])).collect();
    assert!(seats.iter().all(|seat| seat.connections() == 2));
    pairs
        .iter()
        .for_each(|pair| there_and_back(&mut world, pair));
    // The next ones replace those of the loop that lost its own.
    let (gone, left): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|pair| pair.side == SERVER);
    gone.iter().for_each(|pair| close(&mut world, pair));
    assert_eq!(seats[0].connections(), 0);
    for _ in 0..2 {
        let pair = connected(&mut world, &[]);
        assert_eq!(pair.side, SERVER);
        there_and_back(&mut world, &pair);
        close(&mut world, &pair);
    }
    left.iter().for_each(|pair| close(&mut world, pair));
    assert_eq!(seats[0].connections_of_all(), 0);
    world.assert_nothing_held();
}

#[test]
fn a_rejected_request_counts_for_no_loop() {
    let seats = LoopSeat::all(2);
    let mut world = World::with(&seats);
    for _ in 0..3 {
        let (client, side, request) = world.connecting(8, LEN);
        assert_eq!(seats[side - SERVER].connections(), 1);
        world.device(side).reject(request, b"").unwrap();
        world.wait(CLIENT, |event| match event {
            Event::ConnectFailed { qp, .. } if *qp == client => Some(()),
            _ => None,
        });
        world.step();
        assert_eq!(seats[0].connections_of_all(), 0);
    }
}

#[test]
fn connections_of_a_loop_outlive_the_other_loops() {
    let mut world = World::with(&LoopSeat::all(2));
    let pairs: Vec<Pair> = (0..4).map(|_| connected(&mut world, &[])).collect();
    // On a verbs device, the first loop created the listener. It is dropped here.
    let (lost, left): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|pair| pair.side == SERVER);
    assert_eq!((lost.len(), left.len()), (2, 2));
    let mut other = World::new();
    world.sides[SERVER] = other.sides.swap_remove(CLIENT);
    for pair in lost {
        world.disconnected(CLIENT, pair.client);
        world.device(CLIENT).destroy(pair.client);
    }
    for pair in left {
        there_and_back(&mut world, &pair);
        world.device(pair.side).disconnect(pair.server);
        assert_eq!(world.disconnected(CLIENT, pair.client), Disconnect::Remote);
        world.disconnected(pair.side, pair.server);
        world.device(CLIENT).destroy(pair.client);
        world.device(pair.side).destroy(pair.server);
    }
}

#[test]
fn a_loop_that_begins_again_listens_with_the_others_or_anew() {
    let seats = LoopSeat::all(2);
    let mut world = World::with(&seats);
    // On a verbs device, the first one creates the listener, and the second one joins it.
    for side in [SERVER + 1, SERVER] {
        world.begin_again(side, &seats[side - SERVER]);
        let pairs = [(); 2].map(|()| connected(&mut world, &[]));
        assert!(pairs.iter().any(|pair| pair.side == side));
        pairs.iter().for_each(|pair| {
            there_and_back(&mut world, pair);
            close(&mut world, pair);
        });
    }
    world.assert_nothing_held();
}

#[test]
fn each_loop_is_told_of_its_own_shared_receives() {
    let mut world = World::with(&LoopSeat::all(2));
    let attributes = world.sides[SERVER].device.attributes();
    if attributes.shared_receives.is_none() {
        return;
    }
    let shared: Vec<SharedReceivesId> = [SERVER, SERVER + 1]
        .map(|side| {
            let shared = world.device(side).create_shared_receives().unwrap();
            for id in 0..8 {
                let buf = world.device(side).pool().alloc(LEN).unwrap();
                let device = world.device(side);
                let posted = device.post_shared_receive(shared, WrId(1000 + id), buf.into());
                posted.unwrap();
            }
            world.device(side).arm_shared_receives(shared, 6).unwrap();
            shared
        })
        .into();
    let pairs = [(); 2].map(|()| connected(&mut world, &shared));
    assert_ne!(pairs[0].side, pairs[1].side);
    for pair in &pairs {
        for _ in 0..3 {
            world.send(CLIENT, pair.client, 77, &[Bytes::from_static(b"one")]);
        }
        // The order of the two depends on the device.
        let (mut arrived, mut low) = (0, 0);
        while (arrived, low) != (3, 1) {
            let all = SERVER..world.sides.len();
            let (side, id) = world.wait_at(all, |_, event| match event {
                Event::SharedReceivesLow { id } => Some(Some(*id)),
                Event::Completion(Completion {
                    result: Ok(Success::Receive { .. }),
                    ..
                }) => Some(None),
                _ => None,
            });
            assert_eq!(side, pair.side);
            match id {
                Some(id) => {
                    assert_eq!(id, shared[side - SERVER]);
                    low += 1;
                }
                None => arrived += 1,
            }
        }
    }
    for pair in &pairs {
        let start = Instant::now();
        close(&mut world, pair);
        // rxe reports the end of a queue pair's use of the shared queue by an asynchronous event,
        // which either device may have read. Without it the end takes a second.
        assert!(!is_verbs() || start.elapsed() < Duration::from_millis(900));
        let device = world.device(pair.side);
        device
            .destroy_shared_receives(shared[pair.side - SERVER])
            .unwrap();
    }
    world.assert_nothing_held();
}
