//! What a peer may reach, and what it may not: rights, bounds, stale and foreign handles.

use bytes::Bytes;
use verbs::{Region, RemoteSegment, SendWr, Stag, Success, WrId};

use super::world::{CLIENT, SERVER, World, part};

/// What the server does to the client's memory.
#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    Write,
}

/// The server reaches for what it may not: its connection ends, at both ends, and the memory is
/// what it was. `offer` registers memory and says where the server reaches.
fn refused(access: Access, offer: impl FnOnce(&mut World, [verbs::QpId; 2]) -> RemoteSegment) {
    let mut world = World::new();
    let qps = world.connected(4, 64);
    let to = offer(&mut world, qps);
    world.message(CLIENT, qps, b"reach for it");
    match access {
        Access::Read => world.read(SERVER, qps[SERVER], 5, to),
        Access::Write => {
            let data = Bytes::from(vec![0xee; to.length as usize]);
            world.write(SERVER, qps[SERVER], 5, data, to);
        }
    }
    // A Write may be said to be done before the peer's device has looked at it.
    world.disconnected(SERVER, qps[SERVER]);
    world.disconnected(CLIENT, qps[CLIENT]);
    let events = &world.sides[SERVER].events;
    let read = events.iter().any(|event| match event {
        verbs::Event::Completion(done) => matches!(done.result, Ok(Success::Read { .. })),
        _ => false,
    });
    assert!(!read, "{access:?} of {to:?} was allowed");
    world.device(CLIENT).destroy(qps[CLIENT]);
    world.device(SERVER).destroy(qps[SERVER]);
    world.assert_nothing_held();
}

fn source(world: &mut World, qp: verbs::QpId) -> RemoteSegment {
    let data = world.filled(CLIENT, 5000, 1).freeze();
    world.register(CLIENT, qp, Region::RemoteRead(data))
}

fn sink(world: &mut World, qp: verbs::QpId) -> RemoteSegment {
    let room = world.filled(CLIENT, 5000, 2);
    world.register(CLIENT, qp, Region::RemoteWrite(room))
}

#[test]
fn nobody_reads_past_the_end() {
    refused(Access::Read, |world, qps| {
        part(source(world, qps[CLIENT]), 1, 5000)
    });
}

#[test]
fn nobody_reads_before_the_beginning() {
    refused(Access::Read, |world, qps| {
        let to = source(world, qps[CLIENT]);
        RemoteSegment {
            offset: to.offset - 1,
            ..to
        }
    });
}

#[test]
fn nobody_writes_past_the_end() {
    refused(Access::Write, |world, qps| {
        part(sink(world, qps[CLIENT]), 4990, 11)
    });
}

#[test]
fn nobody_writes_what_is_for_reading() {
    refused(Access::Write, |world, qps| source(world, qps[CLIENT]));
}

#[test]
fn nobody_reads_what_is_for_writing() {
    // The kernel's siw checks bounds and protection domain of what a peer reads, but no right.
    if World::new()
        .device(CLIENT)
        .attributes()
        .name
        .contains("siw")
    {
        return;
    }
    refused(Access::Read, |world, qps| sink(world, qps[CLIENT]));
}

#[test]
fn a_handle_that_was_never_given_reaches_nothing() {
    refused(Access::Read, |world, qps| {
        let to = source(world, qps[CLIENT]);
        let stag = Stag(to.stag.0 ^ 0x5a);
        RemoteSegment { stag, ..to }
    });
}

#[test]
fn a_stale_handle_reaches_nothing() {
    for access in [Access::Read, Access::Write] {
        refused(access, |world, qps| {
            let to = match access {
                Access::Read => source(world, qps[CLIENT]),
                Access::Write => sink(world, qps[CLIENT]),
            };
            world.message(CLIENT, qps, b"usable");
            let wr = SendWr::Invalidate { stag: to.stag };
            world
                .device(CLIENT)
                .post_send(qps[CLIENT], WrId(1), wr, true)
                .unwrap();
            world.done(CLIENT, qps[CLIENT], 1).unwrap();
            world.device(CLIENT).reclaim(qps[CLIENT], to.stag).unwrap();
            // The window, if it is one, has another owner by now.
            let again = match access {
                Access::Read => source(world, qps[CLIENT]),
                Access::Write => sink(world, qps[CLIENT]),
            };
            assert_ne!(again.stag, to.stag);
            RemoteSegment {
                offset: again.offset,
                ..to
            }
        });
    }
}

#[test]
fn a_handle_of_another_connection_reaches_nothing() {
    for access in [Access::Read, Access::Write] {
        let mut world = World::new();
        let (own, other) = (world.connected(4, 64), world.connected(4, 64));
        let to = match access {
            Access::Read => source(&mut world, own[CLIENT]),
            Access::Write => sink(&mut world, own[CLIENT]),
        };
        world.message(CLIENT, own, b"for you only");
        match access {
            Access::Read => world.read(SERVER, other[SERVER], 5, to),
            Access::Write => {
                world.write(SERVER, other[SERVER], 5, Bytes::from(vec![0xee; 5000]), to);
            }
        }
        world.disconnected(SERVER, other[SERVER]);
        world.disconnected(CLIENT, other[CLIENT]);
        // Its own connection is none the worse.
        match access {
            Access::Read => {
                world.read(SERVER, own[SERVER], 6, to);
                assert!(matches!(
                    world.done(SERVER, own[SERVER], 6),
                    Ok(Success::Read { .. })
                ));
            }
            Access::Write => {
                let wr = SendWr::Invalidate { stag: to.stag };
                world
                    .device(CLIENT)
                    .post_send(own[CLIENT], WrId(1), wr, true)
                    .unwrap();
                world.done(CLIENT, own[CLIENT], 1).unwrap();
                let region = world.device(CLIENT).reclaim(own[CLIENT], to.stag).unwrap();
                let Region::RemoteWrite(buf) = region else {
                    panic!("another region")
                };
                assert!(
                    !buf.contains(&0xee) || buf[0] != 0xee,
                    "the other one wrote"
                );
            }
        }
        world.close(own);
    }
}

#[test]
fn memory_is_not_reclaimed_while_the_peer_may_reach_it() {
    let mut world = World::new();
    let qps = world.connected(4, 64);
    let to = source(&mut world, qps[CLIENT]);
    assert!(world.device(CLIENT).reclaim(qps[CLIENT], to.stag).is_err());
    world.message(CLIENT, qps, b"here");
    assert!(world.device(CLIENT).reclaim(qps[CLIENT], to.stag).is_err());
    world.read(SERVER, qps[SERVER], 1, to);
    assert!(world.done(SERVER, qps[SERVER], 1).is_ok());
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn memory_that_was_never_told_of_can_be_taken_back() {
    let mut world = World::new();
    let qps = world.connected(4, 64);
    for _ in 0..3 {
        let to = sink(&mut world, qps[CLIENT]);
        let wr = SendWr::Invalidate { stag: to.stag };
        world
            .device(CLIENT)
            .post_send(qps[CLIENT], WrId(1), wr, true)
            .unwrap();
        world.done(CLIENT, qps[CLIENT], 1).unwrap();
        world.device(CLIENT).reclaim(qps[CLIENT], to.stag).unwrap();
    }
    world.message(CLIENT, qps, b"still here");
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn a_peer_gives_memory_back_with_its_send() {
    let mut world = World::new();
    if !world.device(CLIENT).attributes().remote_invalidation {
        return;
    }
    let qps = world.connected(8, 64);
    for round in 0..3 {
        let to = sink(&mut world, qps[CLIENT]);
        let kept = source(&mut world, qps[CLIENT]);
        world.message(CLIENT, qps, b"yours");
        let data = Bytes::from(vec![round; 5000]);
        world.write(SERVER, qps[SERVER], 9, data.clone(), to);
        world.send_invalidating(SERVER, qps[SERVER], to.stag);
        let (message, invalidated) = world.receive_with(CLIENT, qps[CLIENT]);
        assert_eq!(
            (&message[..], invalidated),
            (&b"done with it"[..], Some(to.stag))
        );
        let region = world.device(CLIENT).reclaim(qps[CLIENT], to.stag).unwrap();
        assert!(matches!(region, Region::RemoteWrite(buf) if buf[..] == data[..]));
        // The other one is as valid as before.
        world.read(SERVER, qps[SERVER], 10, kept);
        assert!(world.done(SERVER, qps[SERVER], 10).is_ok());
    }
    assert_eq!(world.counters(CLIENT).remote_invalidations, 3);
    assert_eq!(world.counters(SERVER).sends_with_invalidate, 3);
    world.close(qps);
    world.assert_nothing_held();
}
