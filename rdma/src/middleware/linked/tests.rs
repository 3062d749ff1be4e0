use std::time::Duration;

use quickcheck::{Arbitrary, Gen, quickcheck};
use smallvec::smallvec;

use super::traffic::RETRY;
use super::*;
use crate::middleware::fake::{
    Fake, MAX_SEND_WR, Script, accept_options, anywhere, connect_options, pair,
};
use crate::{Completion, Disconnect, Pool, Stag, Success, WorkError};

const D: Duration = Duration::from_millis(1);

/// A client (0) and a server (1) on one virtual clock.
struct World {
    now: Time,
    ends: [Linked<Fake>; 2],
    qps: [QpId; 2],
    scripts: [Script; 2],
    pool: Pool,
    seen: VecDeque<(usize, Event)>,
}

fn unconnected(delay: Duration, rate: Option<u64>) -> World {
    let (a, b) = pair();
    World {
        now: Time::from_nanos(5_000),
        scripts: [a.script(), b.script()],
        pool: a.pool().clone(),
        ends: [a, b].map(|fake| Linked::new(fake, Shaper::new(delay, rate))),
        qps: [QpId(0), QpId(0)],
        seen: VecDeque::new(),
    }
}

fn connected(delay: Duration, rate: Option<u64>) -> World {
    let mut world = unconnected(delay, rate);
    world.qps[0] = world.ends[0]
        .connect(anywhere(), &connect_options())
        .unwrap();
    let Some((_, Event::ConnectRequest(request))) = world.step() else {
        panic!("no connection request");
    };
    world.qps[1] = world.ends[1].prepare_accept(request.request, None).unwrap();
    world.ends[1]
        .accept(world.qps[1], &accept_options(b""))
        .unwrap();
    for _ in 0..2 {
        assert!(matches!(world.step(), Some((_, Event::Established { .. }))));
    }
    for end in 0..2 {
        for id in 0..16 {
            world.receive(end, 100 + id);
        }
    }
    world
}

impl World {
    /// Returns the next event and the index of its end. Advances time to the next deadline if
    /// needed; returns `None` if no more events are to come.
    fn step(&mut self) -> Option<(usize, Event)> {
        for _ in 0..1000 {
            // Twice, because one end may handle what the other releases.
            for end in [0, 1, 0, 1] {
                let mut events = VecDeque::new();
                self.ends[end].poll(self.now, &mut events);
                self.seen
                    .extend(events.into_iter().map(|event| (end, event)));
            }
            if let Some(event) = self.seen.pop_front() {
                return Some(event);
            }
            let next = self.ends.iter().filter_map(Linked::next_deadline).min()?;
            assert!(next > self.now, "a deadline that polling did not serve");
            self.now = next;
        }
        panic!("no event in 1000 deadlines");
    }

    /// Polls at the present time and at `then`; no event may occur.
    fn poll_until(&mut self, then: Time) {
        for now in [self.now, then] {
            self.now = now;
            for end in [0, 1, 0] {
                let mut events = VecDeque::new();
                self.ends[end].poll(now, &mut events);
                assert!(events.is_empty(), "{events:?}");
            }
        }
    }

    fn receive(&mut self, end: usize, id: u64) {
        let buf = self.pool.alloc(4096).unwrap();
        self.ends[end]
            .post_receive(self.qps[end], WrId(id), buf.into())
            .unwrap();
    }

    fn post(&mut self, end: usize, id: u64, wr: SendWr) -> Result<(), PostError> {
        let posted = self.ends[end].post_send(self.qps[end], WrId(id), wr, true);
        posted.map_err(|(error, _)| error)
    }

    fn read(&self, len: usize) -> SendWr {
        SendWr::Read {
            sink: self.pool.alloc(len).unwrap(),
            stag: Stag(9),
            offset: 0,
        }
    }

    /// Steps until `end` gets the completion of `id`, and returns it with its time.
    fn until(&mut self, end: usize, id: u64) -> (Completion, Time) {
        loop {
            match self.step() {
                Some((at, Event::Completion(c))) if at == end && c.id == WrId(id) => {
                    return (c, self.now);
                }
                Some(_) => {}
                None => panic!("no completion of {id}"),
            }
        }
    }
}

fn send(len: usize) -> SendWr {
    SendWr::Send {
        gather: smallvec![Bytes::from(vec![7; len])],
        invalidate: None,
    }
}

fn write(len: usize) -> SendWr {
    SendWr::Write {
        gather: smallvec![Bytes::from(vec![7; len])],
        stag: Stag(9),
        offset: 0,
    }
}

#[test]
fn a_message_and_its_answer_take_one_round_trip() {
    let mut world = connected(D, None);
    let start = world.now;
    world.post(0, 1, send(64)).unwrap();
    assert_eq!(world.until(1, 100).1, start + D);
    world.post(1, 2, send(64)).unwrap();
    assert_eq!(world.until(0, 100).1, start + 2 * D);
}

#[test]
fn a_read_within_a_call_takes_a_second_round_trip() {
    let mut world = connected(D, None);
    let start = world.now;
    world.post(0, 1, send(64)).unwrap();
    world.until(1, 100);
    world.post(1, 2, world.read(4096)).unwrap();
    let (read, at) = world.until(1, 2);
    assert!(matches!(read.result, Ok(Success::Read { sink }) if sink.len() == 4096));
    assert_eq!(at, start + 3 * D);
    world.post(1, 3, send(64)).unwrap();
    assert_eq!(world.until(0, 100).1, start + 4 * D);
}

#[test]
fn connecting_takes_one_round_trip() {
    let mut world = unconnected(D, None);
    let start = world.now;
    let client = world.ends[0]
        .connect(anywhere(), &connect_options())
        .unwrap();
    let Some((1, Event::ConnectRequest(request))) = world.step() else {
        panic!("no connection request");
    };
    assert_eq!(world.now, start + D);
    let server = world.ends[1].prepare_accept(request.request, None).unwrap();
    assert!(
        world.ends[1]
            .accept(server, &accept_options(&[0; 17]))
            .is_err()
    );
    world.ends[1]
        .accept(server, &accept_options(b"yes"))
        .unwrap();
    assert!(
        world.ends[1]
            .accept(server, &accept_options(b"again"))
            .is_err()
    );
    let early = world.ends[1].post_send(server, WrId(1), send(1), true);
    assert!(matches!(early, Err((PostError::NotConnected, _))));
    let (mut told, mut answer) = (false, Bytes::new());
    while let Some((end, Event::Established { qp, private_data })) = world.step() {
        assert_eq!((qp, world.now), ([client, server][end], start + 2 * D));
        if end == 0 {
            (told, answer) = (true, private_data);
        }
    }
    assert!(told);
    assert_eq!(answer, "yes");
}

#[test]
fn being_rejected_takes_one_round_trip() {
    let mut world = unconnected(D, None);
    let start = world.now;
    world.ends[0]
        .connect(anywhere(), &connect_options())
        .unwrap();
    let Some((1, Event::ConnectRequest(request))) = world.step() else {
        panic!("no connection request");
    };
    world.ends[1].reject(request.request, b"no").unwrap();
    assert!(world.ends[1].reject(request.request, b"no").is_err());
    let Some((0, Event::ConnectFailed { error, .. })) = world.step() else {
        panic!("not rejected");
    };
    let private_data = Bytes::from_static(b"no");
    assert_eq!(error, ConnectError::Rejected { private_data });
    assert_eq!(world.now, start + 2 * D);
}

#[test]
fn a_request_in_flight_to_a_closed_listener_is_rejected() {
    let mut world = unconnected(D, None);
    world.ends[0]
        .connect(anywhere(), &connect_options())
        .unwrap();
    world.ends[1].poll(world.now, &mut VecDeque::new());
    world.ends[1].close_listener(ListenerId(1));
    assert!(matches!(
        world.step(),
        Some((0, Event::ConnectFailed { .. }))
    ));
    assert!(world.step().is_none());
}

#[test]
fn an_accept_that_comes_too_late_fails_the_connection() {
    let mut world = unconnected(D, None);
    world.ends[0]
        .connect(anywhere(), &connect_options())
        .unwrap();
    let Some((1, Event::ConnectRequest(request))) = world.step() else {
        panic!("no connection request");
    };
    let server = world.ends[1].prepare_accept(request.request, None).unwrap();
    world.ends[1].accept(server, &accept_options(b"")).unwrap();
    world.scripts[1].refuse_accept();
    let Some((1, Event::ConnectFailed { qp, .. })) = world.step() else {
        panic!("accepted");
    };
    assert_eq!(qp, server);
}

#[test]
fn bytes_take_time_in_both_directions() {
    // A byte takes a nanosecond.
    let ns = Duration::from_nanos;
    let mut world = connected(D, Some(8_000_000_000));
    let start = world.now;
    world.post(0, 1, send(1000)).unwrap();
    world.post(0, 2, send(500)).unwrap();
    assert_eq!(world.until(1, 100).1, start + D + ns(1000));
    assert_eq!(world.until(1, 101).1, start + D + ns(1500));
    let start = world.now;
    world.post(0, 3, world.read(4000)).unwrap();
    // The 28 bytes of the request in one direction, the data in the other.
    assert_eq!(world.until(0, 3).1, start + 2 * D + ns(28 + 4000));
}

#[test]
fn a_send_does_not_overtake_a_write() {
    let mut world = connected(D, Some(8_000_000));
    world.post(0, 1, write(1 << 20)).unwrap();
    world.post(0, 2, send(1)).unwrap();
    world.until(1, 100);
    assert_eq!(world.scripts[0].posted(), ["write", "send"]);
}

#[test]
fn invalidation_is_not_delayed() {
    let mut world = connected(D, None);
    let start = world.now;
    world.post(0, 1, send(1)).unwrap();
    world
        .post(0, 2, SendWr::Invalidate { stag: Stag(1) })
        .unwrap();
    assert_eq!(world.until(0, 2).1, start);
    assert_eq!(world.until(0, 1).1, start + D);
}

#[test]
fn completions_do_not_overtake_a_read() {
    let mut world = connected(D, None);
    world.post(0, 1, world.read(1)).unwrap();
    world.post(0, 2, send(1)).unwrap();
    world.post(0, 3, write(1)).unwrap();
    let mut ids = Vec::new();
    while let Some((end, event)) = world.step() {
        if let (0, Event::Completion(completion)) = (end, event) {
            ids.push(completion.id.0);
        }
    }
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn requests_in_flight_count_against_the_send_queue() {
    let mut world = connected(D, None);
    for id in 0..MAX_SEND_WR as u64 {
        world.post(0, id, world.read(1)).unwrap();
    }
    assert_eq!(world.post(0, 50, send(1)), Err(PostError::QueueFull));
    // The peer's device has answered, but the answers are still in flight.
    let half = world.now + D;
    world.poll_until(half);
    assert_eq!(world.scripts[0].posted().len(), MAX_SEND_WR);
    assert_eq!(world.post(0, 50, send(1)), Err(PostError::QueueFull));
    world.until(0, 0);
    world.post(0, 50, send(1)).unwrap();
    let many = SendWr::Send {
        gather: smallvec![Bytes::from_static(b"x"); 3],
        invalidate: None,
    };
    world.until(0, MAX_SEND_WR as u64 - 1);
    assert_eq!(world.post(0, 51, many), Err(PostError::TooManyElements));
}

#[test]
fn a_full_device_is_tried_again_when_it_has_made_progress() {
    let mut world = connected(3 * D, None);
    world.scripts[0].set_room(1);
    let start = world.now;
    world.post(0, 1, world.read(1)).unwrap();
    world.post(0, 2, send(1)).unwrap();
    world.poll_until(start + 3 * D);
    assert_eq!(world.scripts[0].posted(), ["read"]);
    // No poll is needed until the completion of the read, which is in flight.
    assert_eq!(world.ends[0].next_deadline(), Some(start + 6 * D));
    world.scripts[0].set_room(1);
    world.until(1, 100);
    assert_eq!(world.scripts[0].posted(), ["read", "send"]);
}

/// Regression test: a device also refuses a request if it has no memory for a copy. Without a request in progress
/// there was no completion, and so no other attempt.
#[test]
fn a_request_that_an_idle_device_refuses_is_posted_a_while_later() {
    let mut world = connected(D, None);
    world.scripts[0].set_room(0);
    world.post(0, 1, send(1)).unwrap();
    let mut due = world.now + D;
    for _ in 0..3 {
        world.poll_until(due);
        assert!(world.scripts[0].posted().is_empty());
        due = due + RETRY;
        assert_eq!(world.ends[0].next_deadline(), Some(due));
    }
    world.scripts[0].set_room(1);
    world.until(1, 100);
    assert_eq!(world.scripts[0].posted(), ["send"]);
}

#[test]
fn a_graceful_end_follows_the_posted_requests() {
    let mut world = connected(D, None);
    let start = world.now;
    world.post(0, 1, send(1)).unwrap();
    world.ends[0].disconnect(world.qps[0]);
    assert_eq!(world.post(0, 2, send(1)), Err(PostError::NotConnected));
    let mut seen = [Vec::new(), Vec::new()];
    while let Some((end, event)) = world.step() {
        match event {
            Event::Completion(c) if c.result.is_ok() => seen[end].push("success"),
            Event::Disconnected { reason, .. } => {
                assert_eq!(reason, [Disconnect::Local, Disconnect::Remote][end]);
                seen[end].push("end");
            }
            _ => {}
        }
    }
    assert_eq!(seen, [["success", "end"], ["success", "end"]]);
    assert_eq!(world.now, start + D);
}

#[test]
fn an_abort_flushes_requests_in_flight() {
    let mut world = connected(D, None);
    world.post(0, 1, world.read(4096)).unwrap();
    let silent = world.ends[0].post_send(world.qps[0], WrId(2), send(1), false);
    assert!(silent.is_ok());
    world.ends[0].abort(world.qps[0]);
    let mut flushed = Vec::new();
    loop {
        match world.step() {
            Some((0, Event::Completion(c))) if c.id.0 < 100 => {
                let failed = c.result.unwrap_err();
                assert_eq!(failed.error, WorkError::Flushed);
                flushed.push((c.id.0, failed.buf.map(|buf| buf.len())));
            }
            Some((0, Event::Disconnected { .. })) => break,
            Some(_) => {}
            None => panic!("not disconnected"),
        }
    }
    assert_eq!(flushed, [(1, Some(4096)), (2, None)]);
    assert!(world.scripts[0].posted().is_empty());
}

#[test]
fn an_answer_in_flight_arrives_before_the_end() {
    let mut world = connected(D, None);
    world.post(0, 1, world.read(8)).unwrap();
    let half = world.now + D;
    world.poll_until(half);
    world.ends[1].abort(world.qps[1]);
    assert!(world.until(0, 1).0.result.is_ok());
    assert_eq!(world.now, half);
}

#[test]
fn destroying_lets_go_of_the_memory() {
    let mut world = connected(D, None);
    world.post(0, 1, world.read(4096)).unwrap();
    for end in 0..2 {
        world.ends[end].destroy(world.qps[end]);
    }
    assert_eq!(world.pool.in_use(), 0);
    assert!(world.step().is_none());
    assert_eq!(world.post(0, 2, send(1)), Err(PostError::Unknown));
}

/// An action of a program at one end.
#[derive(Clone, Debug)]
enum Act {
    Send(u16),
    Write(u16),
    Read(u16),
    Invalidate,
    Step,
    Disconnect,
    Abort,
    PeerAbort,
}

impl Arbitrary for Act {
    fn arbitrary(g: &mut Gen) -> Self {
        let len = u16::arbitrary(g) % 4096;
        match u8::arbitrary(g) % 32 {
            0 => Self::Disconnect,
            1 => Self::Abort,
            2 => Self::PeerAbort,
            3..=8 => Self::Send(len),
            9..=12 => Self::Write(len),
            13..=16 => Self::Read(len),
            17..=19 => Self::Invalidate,
            _ => Self::Step,
        }
    }
}

quickcheck! {
    fn every_request_completes_exactly_once(acts: Vec<Act>, rate: u16) -> bool {
        let mut world = connected(D, Some(u64::from(rate) * 100_000));
        let (mut posted, mut completed) = (Vec::new(), Vec::new());
        let mut note = |event| {
            if let Some((0, Event::Completion(c))) = event && c.id.0 < 100 {
                completed.push(c.id.0);
            }
        };
        let mut sends = 0;
        for (id, act) in acts.into_iter().take(90).enumerate() {
            let id = id as u64;
            let wr = match act {
                // Sixteen receives are posted.
                Act::Send(len) if sends < 16 => send(len.into()),
                Act::Send(len) | Act::Write(len) => write(len.into()),
                Act::Read(len) => world.read(len.into()),
                Act::Invalidate => SendWr::Invalidate { stag: Stag(1) },
                Act::Step => {
                    note(world.step());
                    continue;
                }
                Act::Disconnect => {
                    world.ends[0].disconnect(world.qps[0]);
                    continue;
                }
                Act::Abort => {
                    world.ends[0].abort(world.qps[0]);
                    continue;
                }
                Act::PeerAbort => {
                    world.ends[1].abort(world.qps[1]);
                    continue;
                }
            };
            sends += u32::from(matches!(wr, SendWr::Send { .. }));
            if world.post(0, id, wr).is_ok() {
                posted.push(id);
            }
        }
        loop {
            match world.step() {
                None => break,
                event => note(event),
            }
        }
        completed.sort_unstable();
        posted == completed
    }
}
