//! Requests that are posted in one turn of the device's owner, which leave with one system call.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iwarp::Options;
use rdma::{Device, Frame, QpId, Region, SendWr, Success, Tap, Time, WrId};
use smallvec::SmallVec;

use crate::node::{Node, PATIENCE, Pair, accept_options, connect_options, send};

/// Records the length of each write to TCP.
#[derive(Clone, Default)]
struct Writes(Arc<Mutex<Vec<usize>>>);

impl Tap for Writes {
    fn sent(&mut self, _: Time, _: QpId, frame: Frame<'_>) {
        let Frame::Stream { pieces, .. } = frame else {
            panic!("{frame:?}");
        };
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.0.lock().unwrap().push(len);
    }

    fn received(&mut self, _: Time, _: QpId, _: Frame<'_>) {}
}

impl Writes {
    /// Returns the lengths of the writes since the last call.
    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Returns a connection whose client's writes are recorded.
fn recorded() -> (Pair, Writes) {
    let (mut client, server) = (Node::new(Options::default()), Node::new(Options::default()));
    let writes = Writes::default();
    client.device.set_tap(Box::new(writes.clone()));
    let pair = Pair::connect(client, server, &connect_options(), &accept_options());
    writes.take();
    (pair, writes)
}

/// Posts Sends of these lengths in one turn.
fn post(node: &mut Node, qp: QpId, lengths: &[usize]) {
    for len in lengths {
        let wr = send(node.bytes(&vec![*len as u8; *len]));
        node.device
            .post_send(qp, WrId(*len as u64), wr, false)
            .unwrap();
    }
}

/// Whatever the lengths, the Sends of a turn leave with one write, at its end, and arrive in order.
#[test]
fn what_is_posted_in_one_turn_leaves_with_one_write() {
    let (mut pair, writes) = recorded();
    let groups: [&[usize]; 5] = [
        &[10],
        &[10; 16],
        &[2000, 3000, 2000],
        &[10, 20, 4000, 30, 5000],
        &[500; 40],
    ];
    for (round, lengths) in groups.into_iter().enumerate() {
        let Pair {
            client,
            server,
            c,
            s,
        } = &mut pair;
        for len in lengths {
            server.receive(*s, *len as u64, *len);
        }
        post(client, *c, lengths);
        // The background thread would write them if this thread were stopped for milliseconds.
        let held = writes.take();
        match round % 3 {
            0 => client.device.flush(),
            1 => client.device.poll(Time::now(), &mut client.events),
            _ => assert!(client.device.arm()),
        }
        let written = [held.clone(), writes.take()].concat();
        assert!(
            written.len() == 1 || !held.is_empty(),
            "{lengths:?}: {written:?}"
        );
        assert!(written.iter().sum::<usize>() > lengths.iter().sum());
        for len in lengths {
            let completion = server.next_completion();
            assert_eq!(completion.id, WrId(*len as u64));
            let Ok(Success::Receive { buf, .. }) = completion.result else {
                panic!("no message of {len} bytes");
            };
            assert_eq!(buf.to_vec(), vec![*len as u8; *len]);
        }
    }
    pair.finish();
}

/// RDMA Writes, Reads and Sends of a turn share a write too.
#[test]
fn requests_of_all_kinds_leave_with_one_write() {
    let (mut pair, writes) = recorded();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let target = Region::RemoteWrite(server.buf(&[0; 3000]));
    let target = server.device.register(*s, target).unwrap();
    let source = Region::RemoteRead(server.bytes(&[7; 100]));
    let source = server.device.register(*s, source).unwrap();
    server.receive(*s, 1, 64);
    let write = SendWr::Write {
        gather: SmallVec::from_iter([client.bytes(&[5; 3000])]),
        stag: target.stag,
        offset: target.offset,
    };
    let read = SendWr::Read {
        sink: client.pool.alloc(100).unwrap(),
        stag: source.stag,
        offset: source.offset,
    };
    let message = send(client.bytes(b"written"));
    for (id, wr) in [(1, write), (2, read), (3, message)] {
        client.device.post_send(*c, WrId(id), wr, id == 2).unwrap();
    }
    let held = writes.take();
    client.device.flush();
    let written = [held.clone(), writes.take()].concat();
    assert!(written.len() == 1 || !held.is_empty(), "{written:?}");
    assert_eq!(server.next_completion().id, WrId(1));
    assert_eq!(crate::node::next_completion(client, server).id, WrId(2));
    pair.finish();
}

/// An owner that posts and then computes for long has the background thread write, before or after that has taken
/// over.
#[test]
fn what_is_posted_by_an_owner_that_then_computes_is_written_all_the_same() {
    let (mut pair, writes) = recorded();
    for pause in [Duration::ZERO, Duration::from_millis(20)] {
        let Pair {
            client,
            server,
            c,
            s,
        } = &mut pair;
        server.receive(*s, 10, 10);
        client.device.poll(Time::now(), &mut client.events);
        std::thread::sleep(pause);
        post(client, *c, &[10]);
        let start = Instant::now();
        while writes.take().is_empty() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        assert_eq!(server.next_completion().id, WrId(10));
    }
    pair.finish();
}

/// Requests that are posted and not written when the connection ends fail, and all others are reported once.
#[test]
fn a_connection_that_ends_before_the_turn_does_fails_what_is_posted() {
    let (mut pair, writes) = recorded();
    let Pair { client, c, .. } = &mut pair;
    post(client, *c, &[10, 20, 2000]);
    client.device.abort(*c);
    client.device.poll(Time::now(), &mut client.events);
    let failed = client.events.iter().filter(
        |event| matches!(event, rdma::Event::Completion(completion) if completion.result.is_err()),
    );
    // The background thread may have written them before.
    let failed = failed.count();
    let written = !writes.take().is_empty();
    assert!(
        failed == 3 || (failed == 0 && written),
        "{:?}",
        client.events
    );
    pair.finish();
}
