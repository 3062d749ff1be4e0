//! Ends of connections: no request is lost and no resource is left over.

use bytes::Bytes;
use rdma::{Disconnect, Event, QpId, Region, SendWr, WorkError, WrId};

use super::world::{CLIENT, SERVER, World};

/// Checks that all receives of a side complete before the end is reported.
fn flushed(world: &mut World, side: usize, qp: QpId, receives: u64) -> Disconnect {
    let reason = world.disconnected(side, qp);
    let events = &world.sides[side].events;
    let back = events.iter().filter(|event| match event {
        Event::Completion(done) => {
            done.id.0 >= 1000
                && matches!(&done.result, Err(failed)
                    if failed.error == WorkError::Flushed && failed.buf.is_some())
        }
        _ => false,
    });
    assert_eq!(back.count() as u64, receives, "{events:?}");
    reason
}

#[test]
fn a_graceful_end_returns_all_memory() {
    let mut world = World::new();
    let [client, server] = world.connected(5, 4096);
    world.device(CLIENT).disconnect(client);
    assert_eq!(flushed(&mut world, CLIENT, client, 5), Disconnect::Local);
    assert_eq!(flushed(&mut world, SERVER, server, 5), Disconnect::Remote);
    for (side, qp) in [(CLIENT, client), (SERVER, server)] {
        let buf = world.device(side).pool().alloc(1).unwrap();
        assert!(
            world
                .device(side)
                .post_receive(qp, WrId(0), buf.into())
                .is_err()
        );
        world.device(side).destroy(qp);
    }
    world.assert_nothing_held();
}

#[test]
fn posted_requests_are_sent_before_a_graceful_end() {
    let mut world = World::new();
    let [client, server] = world.connected(60, 4096);
    let message = world.filled(CLIENT, 4000, 3).freeze();
    for n in 0..50 {
        world.send(CLIENT, client, n, std::slice::from_ref(&message));
    }
    world.device(CLIENT).disconnect(client);
    for _ in 0..50 {
        assert_eq!(world.receive(SERVER, server), message);
    }
    world.disconnected(CLIENT, client);
    world.disconnected(SERVER, server);
    drop(message);
    world.device(CLIENT).destroy(client);
    world.device(SERVER).destroy(server);
    world.assert_nothing_held();
}

#[test]
fn an_abort_during_transfers_leaves_no_resources() {
    for from in [CLIENT, SERVER] {
        let mut world = World::new();
        let qps = world.connected(60, 4096);
        let data = world.filled(CLIENT, 1 << 20, 3).freeze();
        let source = world.register(CLIENT, qps[CLIENT], Region::RemoteRead(data));
        let room = world.filled(CLIENT, 1 << 20, 3);
        let sink = world.register(CLIENT, qps[CLIENT], Region::RemoteWrite(room));
        world.message(CLIENT, qps, b"go");
        for n in 0..8 {
            world.read(SERVER, qps[SERVER], n, source);
        }
        let data = world.filled(SERVER, 1 << 20, 4).freeze();
        world.write(SERVER, qps[SERVER], 9, data, sink);
        for n in 0..20 {
            let message = world.filled(CLIENT, 4096, n).freeze();
            world.send(CLIENT, qps[CLIENT], n.into(), &[message]);
        }
        world.step();
        world.device(from).abort(qps[from]);
        assert_eq!(world.disconnected(from, qps[from]), Disconnect::Local);
        world.disconnected(1 - from, qps[1 - from]);
        // All Reads have completed, successfully or not.
        let events = &world.sides[SERVER].events;
        let reads = events.iter().filter(|event| match event {
            Event::Completion(done) => done.id.0 < 8,
            _ => false,
        });
        assert_eq!(reads.count(), 8, "{events:?}");
        // All registrations have ended, so their memory can be reclaimed.
        world
            .device(CLIENT)
            .reclaim(qps[CLIENT], sink.stag)
            .unwrap();
        world.device(CLIENT).destroy(qps[CLIENT]);
        world.device(SERVER).destroy(qps[SERVER]);
        world.assert_nothing_held();
    }
}

#[test]
fn a_destroyed_queue_pair_has_no_further_events() {
    let mut world = World::new();
    let [client, server] = world.connected(5, 4096);
    world.send(CLIENT, client, 1, &[Bytes::from_static(b"last words")]);
    world.device(CLIENT).destroy(client);
    world.disconnected(SERVER, server);
    assert!(world.sides[CLIENT].events.is_empty());
    let wr = SendWr::Invalidate {
        stag: rdma::Stag(1),
    };
    assert!(
        world
            .device(CLIENT)
            .post_send(client, WrId(1), wr, true)
            .is_err()
    );
    world.device(SERVER).destroy(server);
    world.assert_nothing_held();
}

#[test]
fn dropping_a_device_ends_its_connections() {
    let mut world = World::new();
    let [client, server] = world.connected(5, 4096);
    let data = world.filled(CLIENT, 5000, 1).freeze();
    world.register(CLIENT, client, Region::RemoteRead(data));
    world.message(CLIENT, [client, server], b"hello");
    world.sides[CLIENT].events.clear();
    let mut other = World::new();
    let gone = other.sides.swap_remove(CLIENT);
    world.sides[CLIENT] = gone;
    world.disconnected(SERVER, server);
    world.device(SERVER).destroy(server);
    world.assert_nothing_held();
}

#[test]
fn a_message_longer_than_its_buffer_ends_the_connection() {
    let mut world = World::new();
    let [client, server] = world.connected(2, 100);
    let message = world.filled(CLIENT, 101, 1).freeze();
    world.send(CLIENT, client, 1, &[message]);
    let (_, result) = world.completed(SERVER, server);
    assert_eq!(result.unwrap_err().error, WorkError::LocalLength);
    world.disconnected(SERVER, server);
    world.disconnected(CLIENT, client);
    world.device(CLIENT).destroy(client);
    world.device(SERVER).destroy(server);
    world.assert_nothing_held();
}
