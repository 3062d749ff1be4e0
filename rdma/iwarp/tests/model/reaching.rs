//! Memory that a peer can and cannot access: rights, bounds, stale and foreign handles.

use bytes::Bytes;
use rdma::{Event, QpId, Region, RemoteSegment, SendWr, Stag, Success, WrId};

use super::world::{CLIENT, SERVER, World, part, pattern};

/// Number of bytes offered at a time.
const LEN: usize = 5000;
/// Seeds of the contents of memory offered for reading and for writing.
const SOURCE: u8 = 1;
const SINK: u8 = 2;
/// Byte that the server writes.
const FOREIGN: u8 = 0xee;

/// The server's access to the client's memory.
#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    Write,
}

impl Access {
    /// Registers memory of the client for this access.
    fn offered(self, world: &mut World, qp: QpId) -> RemoteSegment {
        match self {
            Self::Read => source(world, qp),
            Self::Write => sink(world, qp),
        }
    }

    /// Executes the access by the server, with `id` as its `wr_id`.
    fn attempt(self, world: &mut World, qp: QpId, id: u64, to: RemoteSegment) {
        match self {
            Self::Read => world.read(SERVER, qp, id, to),
            Self::Write => {
                let data = Bytes::from(vec![FOREIGN; to.length as usize]);
                world.write(SERVER, qp, id, data, to);
            }
        }
    }
}

/// Checks an access that the server must not make: the connection ends at both ends, the server
/// gets no data, and the memory is unchanged. `offer` registers memory and returns the place that
/// the server accesses.
fn refused(access: Access, offer: impl FnOnce(&mut World, [QpId; 2]) -> Refused) {
    let mut world = World::new();
    let qps = world.connected(4, 64);
    let Refused { offered, to } = offer(&mut world, qps);
    world.message(CLIENT, qps, b"reach for it");
    access.attempt(&mut world, qps[SERVER], 5, to);
    // A Write may complete before the peer's device has checked it.
    world.disconnected(SERVER, qps[SERVER]);
    world.disconnected(CLIENT, qps[CLIENT]);
    got_nothing(&world, access, to);
    unchanged(&mut world, qps[CLIENT], offered.stag);
    world.device(CLIENT).destroy(qps[CLIENT]);
    world.device(SERVER).destroy(qps[SERVER]);
    world.assert_nothing_held();
}

/// The memory offered to the peer, and the place that it accesses instead.
struct Refused {
    offered: RemoteSegment,
    to: RemoteSegment,
}

/// Checks that no RDMA Read of the server has returned data.
fn got_nothing(world: &World, access: Access, to: RemoteSegment) {
    let events = &world.sides[SERVER].events;
    let read = events.iter().any(|event| match event {
        Event::Completion(done) => matches!(done.result, Ok(Success::Read { .. })),
        _ => false,
    });
    assert!(!read, "{access:?} of {to:?} was allowed");
}

/// Reclaims memory that nobody can access any more, and checks that it holds the data of [`source`]
/// or [`sink`].
fn unchanged(world: &mut World, qp: QpId, stag: Stag) {
    let region = world.device(CLIENT).reclaim(qp, stag).unwrap();
    let (bytes, seed): (&[u8], u8) = match &region {
        Region::RemoteRead(bytes) => (bytes, SOURCE),
        Region::RemoteWrite(buf) => (buf, SINK),
    };
    assert_eq!(bytes.len(), LEN);
    let changed = (0..LEN).find(|&n| bytes[n] != pattern(n, seed));
    assert_eq!(changed, None, "the first byte that is another one");
}

fn source(world: &mut World, qp: QpId) -> RemoteSegment {
    let data = world.filled(CLIENT, LEN, SOURCE).freeze();
    world.register(CLIENT, qp, Region::RemoteRead(data))
}

fn sink(world: &mut World, qp: QpId) -> RemoteSegment {
    let room = world.filled(CLIENT, LEN, SINK);
    world.register(CLIENT, qp, Region::RemoteWrite(room))
}

/// Invalidates memory that the client offered.
fn invalidate(world: &mut World, qp: QpId, stag: Stag) {
    let wr = SendWr::Invalidate { stag };
    world
        .device(CLIENT)
        .post_send(qp, WrId(1), wr, true)
        .unwrap();
    world.done(CLIENT, qp, 1).unwrap();
}

#[test]
fn nobody_reads_past_the_end() {
    refused(Access::Read, |world, qps| {
        let offered = source(world, qps[CLIENT]);
        let to = part(offered, 1, LEN as u32);
        Refused { offered, to }
    });
}

#[test]
fn reads_before_the_beginning_are_refused() {
    refused(Access::Read, |world, qps| {
        let offered = source(world, qps[CLIENT]);
        let to = RemoteSegment {
            offset: offered.offset - 1,
            ..offered
        };
        Refused { offered, to }
    });
}

#[test]
fn writes_past_the_end_are_refused() {
    refused(Access::Write, |world, qps| {
        let offered = sink(world, qps[CLIENT]);
        let to = part(offered, 4990, 11);
        Refused { offered, to }
    });
}

#[test]
fn nobody_writes_what_is_for_reading() {
    refused(Access::Write, |world, qps| {
        let offered = source(world, qps[CLIENT]);
        let to = offered;
        Refused { offered, to }
    });
}

#[test]
fn reads_of_memory_for_writing_are_refused() {
    // The kernel's siw checks bounds and protection domain of a peer's read, but not the right.
    if World::new()
        .device(CLIENT)
        .attributes()
        .name
        .contains("siw")
    {
        return;
    }
    refused(Access::Read, |world, qps| {
        let offered = sink(world, qps[CLIENT]);
        let to = offered;
        Refused { offered, to }
    });
}

#[test]
fn an_unknown_handle_is_refused() {
    refused(Access::Read, |world, qps| {
        let offered = source(world, qps[CLIENT]);
        let stag = Stag(offered.stag.0 ^ 0x5a);
        let to = RemoteSegment { stag, ..offered };
        Refused { offered, to }
    });
}

#[test]
fn a_stale_handle_is_refused() {
    for access in [Access::Read, Access::Write] {
        refused(access, |world, qps| {
            let stale = access.offered(world, qps[CLIENT]);
            world.message(CLIENT, qps, b"usable");
            invalidate(world, qps[CLIENT], stale.stag);
            unchanged(world, qps[CLIENT], stale.stag);
            // If the handle belonged to a window, that has another use by now.
            let offered = access.offered(world, qps[CLIENT]);
            assert_ne!(offered.stag, stale.stag);
            let to = RemoteSegment {
                offset: offered.offset,
                ..stale
            };
            Refused { offered, to }
        });
    }
}

#[test]
fn a_handle_of_another_connection_is_refused() {
    for access in [Access::Read, Access::Write] {
        let mut world = World::new();
        let (own, other) = (world.connected(4, 64), world.connected(4, 64));
        let to = access.offered(&mut world, own[CLIENT]);
        world.message(CLIENT, own, b"for you only");
        access.attempt(&mut world, other[SERVER], 5, to);
        world.disconnected(SERVER, other[SERVER]);
        world.disconnected(CLIENT, other[CLIENT]);
        got_nothing(&world, access, to);
        // The server's own connection is not affected.
        if let Access::Read = access {
            world.read(SERVER, own[SERVER], 6, to);
            assert!(matches!(
                world.done(SERVER, own[SERVER], 6),
                Ok(Success::Read { .. })
            ));
        }
        invalidate(&mut world, own[CLIENT], to.stag);
        unchanged(&mut world, own[CLIENT], to.stag);
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
fn memory_that_was_never_announced_can_be_reclaimed() {
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
fn send_with_invalidate_returns_memory() {
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
        // The other region is still valid.
        world.read(SERVER, qps[SERVER], 10, kept);
        assert!(world.done(SERVER, qps[SERVER], 10).is_ok());
    }
    assert_eq!(world.counters(CLIENT).remote_invalidations, 3);
    assert_eq!(world.counters(SERVER).sends_with_invalidate, 3);
    world.close(qps);
    world.assert_nothing_held();
}
