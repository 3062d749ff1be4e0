//! Messages, Reads and Writes of all sizes.

use bytes::Bytes;
use rdma::{Pool, Region, SendWr, Success, WrId};

use super::world::{CLIENT, SERVER, World, part, pattern};

const SIZES: [usize; 9] = [0, 1, 63, 64, 127, 128, 1024, 4096, 60_000];

fn expected(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| pattern(n, seed)).collect()
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    let mut world = World::new();
    let qps = world.connected(SIZES.len() as u64 * 2, 64 << 10);
    for from in [CLIENT, SERVER] {
        for (n, len) in SIZES.into_iter().enumerate() {
            let message = world.filled(from, len, n as u8).freeze();
            world.send(from, qps[from], n as u64, &[message]);
        }
        for (n, len) in SIZES.into_iter().enumerate() {
            assert_eq!(
                world.receive(1 - from, qps[1 - from]),
                expected(len, n as u8)
            );
            assert!(matches!(
                world.done(from, qps[from], n as u64),
                Ok(Success::Send)
            ));
        }
    }
    assert_eq!(world.counters(CLIENT).sends, SIZES.len() as u64);
    assert_eq!(world.counters(SERVER).receives, SIZES.len() as u64);
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn a_message_is_gathered_from_any_memory() {
    let mut world = World::new();
    let qps = world.connected(2, 64 << 10);
    let most = world.device(CLIENT).attributes().max_gather.min(6);
    let mut pieces = vec![world.filled(CLIENT, 3000, 1).freeze()];
    // Memory that is registered with no device, empty pieces, and slices.
    pieces.push(Bytes::from(expected(500, 2)));
    pieces.push(Bytes::new());
    pieces.push(pieces[0].slice(100..101));
    pieces.push(Bytes::from_static(b"constant"));
    pieces.push(world.filled(CLIENT, 9000, 3).freeze());
    pieces.truncate(most);
    world.send(CLIENT, qps[CLIENT], 5, &pieces);
    assert_eq!(world.receive(SERVER, qps[SERVER]), pieces.concat());
    let small = [
        Bytes::from_static(b"in"),
        Bytes::new(),
        Bytes::from_static(b"line"),
    ];
    world.send(CLIENT, qps[CLIENT], 6, &small);
    assert_eq!(world.receive(SERVER, qps[SERVER]), &b"inline"[..]);
    drop(pieces);
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn memory_is_read_and_written() {
    let mut world = World::new();
    let qps = world.connected(4, 64);
    for (n, len) in [1, 100, 4096, 70_000, 1 << 20].into_iter().enumerate() {
        let seed = n as u8;
        let data = world.filled(CLIENT, len, seed).freeze();
        let source = world.register(CLIENT, qps[CLIENT], Region::RemoteRead(data));
        let room = world.filled(CLIENT, len, 0xff);
        let sink = world.register(CLIENT, qps[CLIENT], Region::RemoteWrite(room));
        assert_eq!((source.length, sink.length), (len as u32, len as u32));
        world.message(CLIENT, qps, b"registered");
        world.read(SERVER, qps[SERVER], 1, source);
        let Ok(Success::Read { sink: read }) = world.done(SERVER, qps[SERVER], 1) else {
            panic!("not read")
        };
        assert_eq!(read[..], expected(len, seed));
        world.write(SERVER, qps[SERVER], 2, read.freeze(), sink);
        world.message(SERVER, qps, b"written");
        for (id, stag) in [(3, source.stag), (4, sink.stag)] {
            let wr = SendWr::Invalidate { stag };
            world
                .device(CLIENT)
                .post_send(qps[CLIENT], WrId(id), wr, true)
                .unwrap();
            let done = world.done(CLIENT, qps[CLIENT], id);
            assert!(matches!(done, Ok(Success::Invalidate)), "{done:?}");
        }
        let reclaimed = world
            .device(CLIENT)
            .reclaim(qps[CLIENT], sink.stag)
            .unwrap();
        let Region::RemoteWrite(buf) = reclaimed else {
            panic!("another region")
        };
        assert_eq!(buf[..], expected(len, seed));
        world
            .device(CLIENT)
            .reclaim(qps[CLIENT], source.stag)
            .unwrap();
        world.post_receives(CLIENT, qps[CLIENT], 1, 64);
        world.post_receives(SERVER, qps[SERVER], 1, 64);
    }
    let counters = world.counters(SERVER);
    assert_eq!((counters.rdma_reads, counters.rdma_writes), (5, 5));
    assert_eq!(world.counters(CLIENT).registrations, 10);
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn parts_of_a_region_can_be_reached_by_many_at_once() {
    let mut world = World::new();
    let qps = world.connected(4, 64);
    let data = world.filled(CLIENT, 256 << 10, 9).freeze();
    let whole = world.register(CLIENT, qps[CLIENT], Region::RemoteRead(data.clone()));
    world.message(CLIENT, qps, b"go");
    for n in 0..64 {
        world.read(SERVER, qps[SERVER], n, part(whole, n * 4096, 4096));
    }
    for n in 0..64 {
        let Ok(Success::Read { sink }) = world.done(SERVER, qps[SERVER], n) else {
            panic!("not read")
        };
        let from = n as usize * 4096;
        assert_eq!(sink[..], data[from..from + 4096]);
    }
    drop(data);
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn memory_outside_the_pool_can_be_offered_and_received_into() {
    let mut world = World::new();
    let qps = world.connected(2, 64);
    let foreign = Pool::new(1 << 20);
    let source = Bytes::from(expected(10_000, 4));
    let source = world.register(CLIENT, qps[CLIENT], Region::RemoteRead(source));
    let room = foreign.alloc(10_000).unwrap();
    let sink = world.register(CLIENT, qps[CLIENT], Region::RemoteWrite(room));
    world.message(CLIENT, qps, b"go");
    let wr = SendWr::Read {
        sink: foreign.alloc(10_000).unwrap(),
        stag: source.stag,
        offset: source.offset,
    };
    world
        .device(SERVER)
        .post_send(qps[SERVER], WrId(1), wr, true)
        .unwrap();
    let Ok(Success::Read { sink: read }) = world.done(SERVER, qps[SERVER], 1) else {
        panic!("not read")
    };
    assert_eq!(read[..], expected(10_000, 4));
    world.write(SERVER, qps[SERVER], 2, read.freeze(), sink);
    let buf = foreign.alloc(64).unwrap();
    world
        .device(CLIENT)
        .post_receive(qps[CLIENT], WrId(2000), buf.into())
        .unwrap();
    for text in [&b"one"[..], b"two", b"three"] {
        world.send(SERVER, qps[SERVER], 3, &[Bytes::from_static(text)]);
        assert_eq!(world.receive(CLIENT, qps[CLIENT]), text);
    }
    let wr = SendWr::Invalidate { stag: sink.stag };
    world
        .device(CLIENT)
        .post_send(qps[CLIENT], WrId(4), wr, true)
        .unwrap();
    world.done(CLIENT, qps[CLIENT], 4).unwrap();
    let Ok(Region::RemoteWrite(buf)) = world.device(CLIENT).reclaim(qps[CLIENT], sink.stag) else {
        panic!("another region")
    };
    assert_eq!(buf[..], expected(10_000, 4));
    drop(buf);
    world.close(qps);
    world.assert_nothing_held();
    assert_eq!(foreign.in_use(), 0);
}

#[test]
fn unsignaled_sends_release_their_memory() {
    let mut world = World::new();
    let qps = world.connected(300, 4096);
    let before = world.device(CLIENT).pool().in_use();
    for round in 0..3 {
        for n in 0..100 {
            let wr = SendWr::Send {
                gather: std::iter::once(world.filled(CLIENT, 2000, n).freeze()).collect(),
                invalidate: None,
            };
            world
                .device(CLIENT)
                .post_send(qps[CLIENT], WrId(n.into()), wr, false)
                .unwrap();
        }
        for n in 0..100 {
            assert_eq!(
                world.receive(SERVER, qps[SERVER]),
                expected(2000, n),
                "round {round}"
            );
        }
    }
    let deadline = std::time::Instant::now() + super::world::PATIENCE;
    while world.device(CLIENT).pool().in_use() > before {
        world.sleep(deadline);
        world.step();
    }
    assert!(world.sides[CLIENT].events.is_empty(), "nobody asked");
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn a_read_is_not_done_before_its_bytes_are_there() {
    let mut world = World::new();
    let qps = world.connected(200, 64);
    let len = 256 << 10;
    for seed in 0..8 {
        let data = world.filled(CLIENT, len, seed).freeze();
        let source = world.register(CLIENT, qps[CLIENT], Region::RemoteRead(data));
        world.message(CLIENT, qps, b"go");
        // Requests posted after the Read may complete before it.
        world.read(SERVER, qps[SERVER], 1, source);
        for n in 0..16 {
            world.send(
                SERVER,
                qps[SERVER],
                10 + n,
                &[Bytes::from_static(b"behind")],
            );
        }
        let Ok(Success::Read { sink }) = world.done(SERVER, qps[SERVER], 1) else {
            panic!("not read")
        };
        assert!(
            sink[..] == expected(len, seed)[..],
            "read {seed} is not what was offered"
        );
        for n in 0..16 {
            assert!(world.done(SERVER, qps[SERVER], 10 + n).is_ok());
            assert_eq!(world.receive(CLIENT, qps[CLIENT]), &b"behind"[..]);
        }
        let wr = SendWr::Invalidate { stag: source.stag };
        world
            .device(CLIENT)
            .post_send(qps[CLIENT], WrId(1), wr, true)
            .unwrap();
        world.done(CLIENT, qps[CLIENT], 1).unwrap();
        world
            .device(CLIENT)
            .reclaim(qps[CLIENT], source.stag)
            .unwrap();
    }
    world.close(qps);
    world.assert_nothing_held();
}
