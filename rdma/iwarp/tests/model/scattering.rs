//! Receives of several buffers.

use bytes::Bytes;
use rdma::{ALIGNMENT, Buf, PostError, QpId, Scatter, Success, WorkError, WrId};

use super::world::{CLIENT, SERVER, World, pattern};

/// Lengths of a receive's buffers: a short one, pages, an odd one, an empty one.
const LENGTHS: [usize; 5] = [100, 4096, 8192, 0, 37];
const ALL: usize = 100 + 4096 + 8192 + 37;

fn expected(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| pattern(n, seed)).collect()
}

/// Returns as many of the lengths as the device supports, with the rest added to the last.
fn lengths(world: &mut World) -> Vec<usize> {
    let most = world.device(SERVER).attributes().max_scatter;
    assert!(most >= 2, "a device that scatters nothing");
    let kept = LENGTHS.len().min(most);
    let mut lengths = LENGTHS[..kept].to_vec();
    lengths[kept - 1] += LENGTHS[kept..].iter().sum::<usize>();
    lengths
}

fn scatter(world: &mut World, lengths: &[usize]) -> Scatter {
    let mut pieces: Vec<Buf> = lengths
        .iter()
        .map(|&len| {
            let mut piece = world.device(SERVER).pool().alloc(len).unwrap();
            piece.fill(0xee);
            piece
        })
        .collect();
    let first = pieces.remove(0);
    Scatter::new(first, pieces)
}

/// Returns the addresses of the buffers.
fn places(scatter: &Scatter) -> Vec<*const u8> {
    scatter.pieces().map(|piece| piece.as_ptr()).collect()
}

fn post(world: &mut World, qp: QpId, id: u64, receive: Scatter) {
    let posted = world.device(SERVER).post_receive(qp, WrId(id), receive);
    posted.map_err(|(error, _)| error).unwrap();
}

#[test]
fn messages_fill_pieces_in_order_and_where_they_are() {
    let mut world = World::new();
    let qps = world.connected(0, 64);
    let lengths = lengths(&mut world);
    // Messages that end one byte before, at and one byte behind the end of each buffer.
    let mut sizes = vec![0, 1, ALL - 1, ALL];
    let mut end = 0;
    for len in &lengths {
        end += len;
        sizes.extend([end - 1, end, end + 1]);
    }
    sizes.retain(|&size| size <= ALL);
    for (n, size) in sizes.into_iter().enumerate() {
        let (id, seed) = (1000 + n as u64, n as u8);
        let receive = scatter(&mut world, &lengths);
        let before = places(&receive);
        assert!(
            before.iter().all(|start| start.addr() % ALIGNMENT == 0),
            "the pool's memory is aligned"
        );
        post(&mut world, qps[SERVER], id, receive);
        let message = world.filled(CLIENT, size, seed).freeze();
        world.send(CLIENT, qps[CLIENT], 1, &[message]);
        let Ok(Success::Receive { buf, .. }) = world.done(SERVER, qps[SERVER], id) else {
            panic!("no message of {size} bytes")
        };
        assert_eq!(places(&buf), before, "other memory");
        let mut left = size;
        for (piece, &len) in buf.pieces().zip(&lengths) {
            assert_eq!(piece.len(), left.min(len), "of {size} bytes");
            left -= piece.len();
        }
        assert_eq!(buf.to_vec(), expected(size, seed));
        assert!(world.done(CLIENT, qps[CLIENT], 1).is_ok());
    }
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn many_long_messages_in_many_pieces_stay_apart() {
    let mut world = World::new();
    let qps = world.connected(0, 64);
    let most = world.device(SERVER).attributes().max_scatter.min(17);
    let lengths: Vec<usize> = (0..most)
        .map(|n| if n == 0 { 1024 } else { 16 << 10 })
        .collect();
    let all: usize = lengths.iter().sum();
    for id in 0..8 {
        let receive = scatter(&mut world, &lengths);
        post(&mut world, qps[SERVER], 1000 + id, receive);
    }
    for id in 0..8 {
        let len = all - id as usize * 777;
        let message = world.filled(CLIENT, len, id as u8).freeze();
        world.send(CLIENT, qps[CLIENT], id, &[message]);
    }
    for id in 0..8 {
        let got = world.receive(SERVER, qps[SERVER]);
        assert_eq!(got, expected(all - id * 777, id as u8), "{id}");
    }
    for id in 0..8 {
        assert!(world.done(CLIENT, qps[CLIENT], id).is_ok());
    }
    world.close(qps);
    world.assert_nothing_held();
}

#[test]
fn a_message_longer_than_all_buffers_of_a_receive_ends_the_connection() {
    let mut world = World::new();
    let qps = world.connected(0, 64);
    let lengths = lengths(&mut world);
    let receive = scatter(&mut world, &lengths);
    post(&mut world, qps[SERVER], 1000, receive);
    let message = world.filled(CLIENT, ALL + 1, 1).freeze();
    world.send(CLIENT, qps[CLIENT], 1, &[message]);
    let failed = world.done(SERVER, qps[SERVER], 1000).unwrap_err();
    assert_eq!(failed.error, WorkError::LocalLength);
    if let Some(buf) = failed.buf {
        assert_eq!(buf.count(), lengths.len(), "all pieces come back");
    }
    world.disconnected(SERVER, qps[SERVER]);
    world.disconnected(CLIENT, qps[CLIENT]);
    world.device(CLIENT).destroy(qps[CLIENT]);
    world.device(SERVER).destroy(qps[SERVER]);
    world.assert_nothing_held();
}

#[test]
fn a_receive_with_too_many_buffers_is_returned() {
    let mut world = World::new();
    let qps = world.connected(1, 64);
    let most = world.device(SERVER).attributes().max_scatter;
    let receive = scatter(&mut world, &vec![8; most + 1]);
    let before = places(&receive);
    let posted = world
        .device(SERVER)
        .post_receive(qps[SERVER], WrId(1), receive);
    let (error, receive) = posted.unwrap_err();
    assert_eq!(error, PostError::TooManyElements);
    assert_eq!(places(&receive), before);
    drop(receive);
    world.send(
        CLIENT,
        qps[CLIENT],
        2,
        &[Bytes::from_static(b"still there")],
    );
    assert_eq!(world.receive(SERVER, qps[SERVER]), &b"still there"[..]);
    world.close(qps);
    world.assert_nothing_held();
}
