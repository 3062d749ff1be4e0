//! Tests of the simulated device against the contract of the device model.

mod link;
mod sharing;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use smallvec::smallvec;

use super::*;
use rdma::{
    AcceptOptions, Buf, Completion, ConnectError, ConnectOptions, Device, DeviceError, Disconnect,
    Event, Frame, Pool, PostError, QpId, Region, SendWr, Stag, Success, Tap, Time, WorkError, WrId,
};

const FAR: Time = Time::from_nanos(u64::MAX / 2);

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host), 20049).into()
}

/// Two connected hosts whose devices the tests use directly.
struct Pair {
    fabric: Fabric,
    devices: [SimDevice; 2],
    qps: [QpId; 2],
}

fn device(fabric: &Fabric, host: u8, change: impl FnOnce(&mut Attributes)) -> SimDevice {
    let mut attributes = attributes();
    change(&mut attributes);
    let host = Host {
        address: address(host),
        attributes,
        pool: Pool::new(1 << 24),
        interrupt: Duration::from_micros(3),
    };
    fabric.host(host).unwrap()
}

impl Pair {
    fn new(costs: Costs, faults: Faults) -> Self {
        Self::with(costs, faults, |_| {})
    }

    fn seeded(seed: u64, costs: Costs, faults: Faults) -> Self {
        Self::connected(Self::asking(Fabric::new(seed, costs, faults), |_| {}))
    }

    /// Creates two hosts of which one has asked the other for a connection.
    fn connecting(costs: Costs, faults: Faults, change: impl Fn(&mut Attributes)) -> Self {
        Self::asking(Fabric::new(7, costs, faults), change)
    }

    fn asking(fabric: Fabric, change: impl Fn(&mut Attributes)) -> Self {
        let mut devices = [1, 2].map(|host| device(&fabric, host, &change));
        devices[1].listen(address(2)).unwrap();
        let options = ConnectOptions {
            private_data: Bytes::from_static(b"hello"),
            inbound_reads: 2,
            outbound_reads: 2,
            timeout: Duration::from_secs(100),
            shared_receives: None,
        };
        let client = devices[0].connect(address(2), &options).unwrap();
        Self {
            fabric,
            devices,
            qps: [client, QpId(0)],
        }
    }

    fn prepare(&mut self) {
        let [Event::ConnectRequest(request)] = &self.events(1)[..] else {
            panic!("no request");
        };
        assert_eq!(&request.private_data[..], b"hello");
        let prepared = self.devices[1].prepare_accept(request.request, None);
        self.qps[1] = prepared.unwrap();
    }

    fn accept(&mut self) {
        let options = AcceptOptions {
            private_data: Bytes::from_static(b"welcome"),
            inbound_reads: 2,
            outbound_reads: 2,
        };
        self.devices[1].accept(self.qps[1], &options).unwrap();
    }

    fn with(costs: Costs, faults: Faults, change: impl Fn(&mut Attributes)) -> Self {
        Self::connected(Self::connecting(costs, faults, change))
    }

    fn connected(mut pair: Self) -> Self {
        pair.prepare();
        pair.accept();
        assert!(matches!(&pair.events(0)[..],
            [Event::Established { private_data, .. }] if &private_data[..] == b"welcome"));
        assert!(matches!(&pair.events(1)[..], [Event::Established { .. }]));
        pair
    }

    /// Runs until nothing more happens, and returns the events of one side.
    fn events(&mut self, side: usize) -> Vec<Event> {
        // Long enough for everything except the time-out of a connection request.
        let until = self.fabric.now() + Duration::from_secs(10);
        while self.fabric.next(until).is_some() {}
        let mut events = VecDeque::new();
        let now = self.fabric.now();
        loop {
            let before = events.len();
            self.devices[side].poll(now, &mut events);
            if events.len() == before {
                return events.into();
            }
        }
    }

    fn completions(&mut self, side: usize) -> Vec<Completion> {
        let events = self.events(side).into_iter();
        events
            .filter_map(|event| match event {
                Event::Completion(completion) => Some(completion),
                _ => None,
            })
            .collect()
    }

    fn post(&mut self, side: usize, id: u64, wr: SendWr) {
        let qp = self.qps[side];
        self.devices[side]
            .post_send(qp, WrId(id), wr, true)
            .unwrap();
    }

    fn receive(&mut self, side: usize, id: u64, len: usize) {
        let buf = self.buf(side, len);
        let qp = self.qps[side];
        self.devices[side]
            .post_receive(qp, WrId(id), buf.into())
            .unwrap();
    }

    fn buf(&self, side: usize, len: usize) -> Buf {
        self.devices[side].pool().alloc(len).unwrap()
    }

    fn register(&mut self, side: usize, region: Region) -> rdma::RemoteSegment {
        let qp = self.qps[side];
        self.devices[side].register(qp, region).unwrap()
    }
}

fn send(bytes: &'static [u8]) -> SendWr {
    SendWr::Send {
        gather: smallvec![Bytes::from_static(bytes)],
        invalidate: None,
    }
}

fn read(sink: Buf, stag: Stag, offset: u64) -> SendWr {
    SendWr::Read { sink, stag, offset }
}

#[test]
fn a_message_costs_what_the_model_says() {
    let link = Link {
        delay: Duration::from_micros(10),
        rate: 1_000_000_000,
    };
    let costs = Costs {
        up: link,
        down: link,
        header: 0,
        post: Duration::from_micros(1),
        acknowledged: true,
        ..Costs::default()
    };
    let mut pair = Pair::new(costs, Faults::default());
    pair.receive(1, 1, 100);
    // Wait until both processors are idle.
    let idle = pair.fabric.now() + Duration::from_millis(1);
    pair.fabric.alarm(idle, 9);
    assert_eq!(pair.fabric.next(FAR), Some(Turn::Alarm(9)));
    let start = pair.fabric.now();
    pair.fabric.record_steps();
    pair.fabric.set_path(NodeId(0), Path::default());
    pair.post(0, 2, send(&[5; 100]));
    assert!(pair.devices[1].arm());
    let turn = pair.fabric.next(FAR);
    assert_eq!(turn, Some(Turn::Host(NodeId(1))));
    // Posting the Send (and before it, on the other host, the receive), transmitting 100 bytes, the
    // link delay, and the interrupt.
    let expected = Duration::from_nanos(1_000 + 100 + 10_000 + 3_000);
    assert_eq!(pair.fabric.now() - start, expected);
    assert_eq!(pair.devices[1].counters().interrupts, 1);
    let [
        Completion {
            id: WrId(1),
            result: Ok(Success::Receive { buf, .. }),
            ..
        },
    ] = &pair.completions(1)[..]
    else {
        panic!("no message");
    };
    assert_eq!(buf.to_vec(), [5; 100]);
    let path = pair.fabric.path(NodeId(1));
    assert_eq!((path.traversals, path.interrupts[1]), (1, 1));
    // The steps say when.
    let steps = pair.fabric.take_steps();
    assert_eq!(on_path(&steps, path.last), [true, true]);
    let after = |nanos| start + Duration::from_nanos(nanos);
    let times: Vec<_> = steps.iter().map(|it| (it.start, it.end)).collect();
    let arrived = after(11_100);
    assert_eq!(times, [(after(1_000), arrived), (arrived, after(14_100))]);
    assert!(matches!(steps[0].what, StepKind::Send { .. }));
    assert!(matches!(steps[1].what, StepKind::Interrupt));
    pair.receive(1, 4, 100);
    pair.post(0, 3, send(&[5; 100]));
    assert_eq!(pair.completions(1).len(), 1);
    assert!(
        pair.fabric.take_steps().is_empty(),
        "they are recorded no more"
    );
}

#[test]
fn reads_wait_for_their_turn_and_queues_complete_in_order() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    pair.receive(1, 0, 100);
    let source = Bytes::from((0..100).collect::<Vec<u8>>());
    let segment = pair.register(1, Region::RemoteRead(source.clone()));
    for id in 1..=4 {
        let sink = pair.buf(0, 10);
        pair.post(0, id, read(sink, segment.stag, segment.offset + 10 * id));
    }
    pair.post(0, 5, send(b"after the reads"));
    let done = pair.completions(0);
    let ids: Vec<u64> = done.iter().map(|done| done.id.0).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    for Completion { id, result, .. } in &done[..4] {
        let Ok(Success::Read { sink }) = result else {
            panic!("{result:?}")
        };
        let from = 10 * id.0 as usize;
        assert_eq!(sink[..], source[from..from + 10]);
    }
    // With two reads at a time, two round trips, and one for the Send and its acknowledgement.
    assert!(pair.fabric.now().as_nanos() > 5 * Costs::default().round_trip().as_nanos() as u64 - 1);
}

#[test]
fn an_access_is_checked_for_handle_bounds_and_rights() {
    let cases: [(&str, i64, i64, usize, bool); 6] = [
        ("one byte too long", 0, 0, 101, false),
        ("one byte early", 0, -1, 100, false),
        ("another handle", 1, 0, 100, false),
        ("the wrong right", 0, 0, 100, true),
        ("exactly all", 0, 0, 100, false),
        ("nothing, at the end", 0, 100, 0, false),
    ];
    for (case, stag_off, offset_by, len, write) in cases {
        let mut pair = Pair::new(Costs::default(), Faults::default());
        let bytes = Bytes::from(vec![1; 100]);
        let segment = pair.register(1, Region::RemoteRead(bytes));
        let stag = Stag((i64::from(segment.stag.0) + stag_off) as u32);
        let offset = segment.offset.wrapping_add_signed(offset_by);
        let wr = if write {
            SendWr::Write {
                gather: smallvec![Bytes::from(vec![0; len])],
                stag,
                offset,
            }
        } else {
            let sink = pair.buf(0, len);
            read(sink, stag, offset)
        };
        pair.post(0, 1, wr);
        let events = pair.events(0);
        let allowed = case.starts_with("exactly") || case.starts_with("nothing");
        match &events[..] {
            [Event::Completion(Completion { result: Ok(_), .. })] => assert!(allowed, "{case}"),
            [
                ..,
                Event::Disconnected {
                    reason: Disconnect::Terminated(_),
                    ..
                },
            ] => {
                assert!(!allowed, "{case}");
                // A Write completes when it is acknowledged; this one was refused before.
                let Event::Completion(Completion {
                    result: Err(failed),
                    ..
                }) = &events[0]
                else {
                    panic!("{case}: {events:?}")
                };
                assert_eq!(failed.error, WorkError::RemoteAccess, "{case}");
            }
            _ => panic!("{case}: {events:?}"),
        }
    }
}

#[test]
fn a_refused_read_gives_its_memory_back() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    for id in 1..=2 {
        let sink = pair.buf(0, 100);
        pair.post(0, id, read(sink, Stag(1), 0));
    }
    let done = pair.completions(0);
    assert_eq!(done.len(), 2);
    let errors = [WorkError::RemoteAccess, WorkError::Flushed];
    for (done, error) in done.into_iter().zip(errors) {
        let failed = done.result.unwrap_err();
        assert_eq!(failed.error, error);
        assert_eq!(failed.buf.map(|buf| buf.len()), Some(100));
    }
    assert_eq!(pair.devices[0].pool().in_use(), 0);
}

#[test]
fn memory_is_reclaimed_only_after_invalidation() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    pair.receive(0, 9, 100);
    let buf = pair.buf(0, 50);
    let first = pair.register(0, Region::RemoteWrite(buf));
    let second = pair.register(0, Region::RemoteRead(Bytes::from_static(b"x")));
    let qp = pair.qps[0];
    assert_eq!(pair.fabric.reachable(NodeId(0)).len(), 2);
    let early = pair.devices[0].reclaim(qp, first.stag);
    assert!(matches!(early, Err(DeviceError::StillRegistered(_))));
    pair.post(0, 1, SendWr::Invalidate { stag: second.stag });
    assert!(matches!(
        pair.completions(0)[..],
        [Completion {
            result: Ok(Success::Invalidate),
            ..
        }]
    ));
    pair.devices[0].reclaim(qp, second.stag).unwrap();
    let invalidating = SendWr::Send {
        gather: smallvec![Bytes::from_static(b"done")],
        invalidate: Some(first.stag),
    };
    pair.post(1, 1, invalidating);
    let got = pair.completions(0);
    assert!(matches!(
        got[..],
        [Completion { result: Ok(Success::Receive { invalidated, .. }), .. }]
            if invalidated == Some(first.stag)
    ));
    pair.devices[0].reclaim(qp, first.stag).unwrap();
    assert!(pair.devices[0].reclaim(qp, first.stag).is_err());
    assert_eq!(pair.fabric.reachable(NodeId(0)), []);
}

#[test]
fn slots_come_back_with_signaled_completions_only() {
    let mut pair = Pair::with(Costs::default(), Faults::default(), |attributes| {
        attributes.max_send_wr = 2;
    });
    for id in 0..4 {
        pair.receive(1, id, 10);
    }
    let qp = pair.qps[0];
    let device = &mut pair.devices[0];
    device.post_send(qp, WrId(0), send(b"a"), false).unwrap();
    device.post_send(qp, WrId(1), send(b"b"), false).unwrap();
    assert!(pair.completions(0).is_empty());
    let (error, _) = pair.devices[0]
        .post_send(qp, WrId(2), send(b"c"), true)
        .unwrap_err();
    assert_eq!(error, PostError::QueueFull);
}

#[test]
fn a_lost_connection_flushes_all_requests_before_the_event() {
    let faults = Faults {
        lose: 1_000_000,
        ..Faults::default()
    };
    let mut pair = Pair::new(Costs::default(), Faults::default());
    let registered = pair.register(0, Region::RemoteRead(Bytes::from_static(b"abc")));
    pair.receive(0, 1, 10);
    pair.receive(1, 1, 10);
    pair.fabric.set_faults(faults);
    pair.post(0, 2, send(b"lost"));
    for side in [0, 1] {
        let events = pair.events(side);
        let (last, before) = events.split_last().unwrap();
        assert!(matches!(
            last,
            Event::Disconnected {
                reason: Disconnect::Lost(_),
                ..
            }
        ));
        assert!(before.iter().all(|event| matches!(event,
            Event::Completion(Completion { result: Err(failed), .. })
                if failed.error == WorkError::Flushed)));
        assert_eq!(before.len(), [2, 1][side]);
    }
    let qp = pair.qps[0];
    let refused = pair.devices[0].post_send(qp, WrId(3), send(b"late"), true);
    assert_eq!(refused.unwrap_err().0, PostError::NotConnected);
    pair.devices[0].reclaim(qp, registered.stag).unwrap();
    pair.devices[0].destroy(qp);
    assert!(pair.events(0).is_empty());
}

#[test]
fn a_message_without_a_receive_ends_the_connection() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    pair.post(0, 1, send(b"nobody waits"));
    assert!(matches!(
        pair.events(1)[..],
        [Event::Disconnected {
            reason: Disconnect::PeerError(_),
            ..
        }]
    ));
    assert!(matches!(
        pair.events(0)[..],
        [
            Event::Completion(_),
            Event::Disconnected {
                reason: Disconnect::Terminated(_),
                ..
            }
        ]
    ));
}

#[test]
fn a_graceful_end_sends_posted_requests_first() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    pair.receive(1, 1, 10);
    pair.post(0, 1, send(b"last words"));
    let qp = pair.qps[0];
    pair.devices[0].disconnect(qp);
    let got = pair.events(1);
    assert!(matches!(
        got[..],
        [
            Event::Completion(Completion {
                result: Ok(Success::Receive { .. }),
                ..
            }),
            Event::Disconnected {
                reason: Disconnect::Remote,
                ..
            }
        ]
    ));
    assert!(matches!(
        pair.events(0)[..],
        [
            Event::Completion(_),
            Event::Disconnected {
                reason: Disconnect::Local,
                ..
            }
        ]
    ));
}

/// Either way, the end is reported to its owner at once, and to the peer as soon as it can know.
#[test]
fn a_connection_that_is_not_established_ends_when_it_is_closed_or_aborted() {
    let ways: [fn(&mut SimDevice, QpId); 2] = [SimDevice::disconnect, SimDevice::abort];
    for give_up in ways {
        let connecting =
            || Pair::connecting(Costs::default(), Faults::default(), |_: &mut Attributes| {});
        let ends = |pair: &mut Pair, side: usize| {
            pair.receive(side, 1, 10);
            let qp = pair.qps[side];
            give_up(&mut pair.devices[side], qp);
            let events = pair.events(side);
            assert!(
                matches!(
                    &events[..],
                    [
                        Event::Completion(Completion { result: Err(failed), .. }),
                        Event::Disconnected { reason: Disconnect::Local, .. },
                    ] if failed.error == WorkError::Flushed && failed.buf.is_some()
                ),
                "{events:?}"
            );
            let late = pair.devices[side].post_send(qp, WrId(1), send(b"late"), true);
            assert_eq!(late.unwrap_err().0, PostError::NotConnected);
            pair.devices[side].destroy(qp);
        };
        let fails_at_once = |pair: &mut Pair| {
            let events = pair.events(0);
            assert!(
                matches!(
                    &events[..],
                    [Event::ConnectFailed { error, .. }] if *error != ConnectError::TimedOut
                ),
                "{events:?}"
            );
        };
        // The initiator does not want the connection any more; its peer still accepts.
        let mut pair = connecting();
        ends(&mut pair, 0);
        pair.prepare();
        pair.accept();
        let events = pair.events(1);
        assert!(
            matches!(events[..], [Event::ConnectFailed { .. }]),
            "{events:?}"
        );
        // The responder has prepared a queue pair.
        let mut pair = connecting();
        pair.prepare();
        ends(&mut pair, 1);
        fails_at_once(&mut pair);
        // It frees a queue pair that it has prepared.
        let mut pair = connecting();
        pair.prepare();
        let qp = pair.qps[1];
        pair.devices[1].destroy(qp);
        fails_at_once(&mut pair);
        // The responder has accepted.
        let mut pair = connecting();
        pair.prepare();
        pair.accept();
        ends(&mut pair, 1);
        let events = pair.events(0);
        assert!(
            matches!(
                events[..],
                [
                    Event::Established { .. },
                    Event::Disconnected {
                        reason: Disconnect::Lost(_),
                        ..
                    },
                ]
            ),
            "{events:?}"
        );
    }
}

#[test]
fn a_crash_loses_all_state_and_the_peer_notices() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    pair.receive(0, 1, 10);
    let early = pair.fabric.host(Host {
        address: address(2),
        attributes: attributes(),
        pool: Pool::new(4096),
        interrupt: Duration::ZERO,
    });
    assert!(early.is_err(), "it is alive");
    pair.fabric.crash(NodeId(1));
    assert!(matches!(
        pair.events(0)[..],
        [
            Event::Completion(_),
            Event::Disconnected {
                reason: Disconnect::Lost(_),
                ..
            }
        ]
    ));
    let mut again = device(&pair.fabric, 2, |_| {});
    assert_eq!(again.node(), NodeId(1));
    again.listen(address(2)).unwrap();
    let old = &mut pair.devices[1];
    assert!(old.arm(), "what is left of the old one has nothing to say");
    let options = ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
        timeout: Duration::from_secs(100),
        shared_receives: None,
    };
    pair.devices[0].connect(address(2), &options).unwrap();
    assert!(pair.events(1).is_empty());
    let mut events = VecDeque::new();
    again.poll(pair.fabric.now(), &mut events);
    assert!(matches!(events.pop_front(), Some(Event::ConnectRequest(_))));
}

#[test]
fn a_device_of_a_host_that_has_crashed_cannot_listen() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    pair.fabric.crash(NodeId(1));
    assert!(pair.devices[1].listen(address(2)).is_err());
    let mut again = device(&pair.fabric, 2, |_| {});
    assert!(pair.devices[1].listen(address(2)).is_err());
    again.listen(address(2)).unwrap();
}

/// A frame shown to a tap, with a copy of its payload.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Send(Vec<u8>, Option<Stag>),
    Write(Vec<u8>, Stag, u64),
    ReadRequest(usize, Stag, u64),
    ReadResponse(Vec<u8>),
}

#[derive(Debug, Default)]
struct Shows {
    sent: Vec<(Time, Shown)>,
    received: Vec<(Time, Shown)>,
}

struct Recorder(Arc<Mutex<Shows>>);

fn shown(frame: Frame<'_>) -> Shown {
    match frame {
        Frame::Send {
            payload,
            invalidate,
        } => Shown::Send(payload.to_vec(), invalidate),
        Frame::Write {
            payload,
            stag,
            offset,
        } => Shown::Write(payload.to_vec(), stag, offset),
        Frame::ReadRequest {
            length,
            stag,
            offset,
        } => Shown::ReadRequest(length, stag, offset),
        Frame::ReadResponse { payload } => Shown::ReadResponse(payload.to_vec()),
        other => panic!("{other:?}"),
    }
}

impl Tap for Recorder {
    fn sent(&mut self, at: Time, _: QpId, frame: Frame<'_>) {
        self.0.lock().unwrap().sent.push((at, shown(frame)));
    }

    fn received(&mut self, at: Time, _: QpId, frame: Frame<'_>) {
        self.0.lock().unwrap().received.push((at, shown(frame)));
    }
}

#[test]
fn a_tap_sees_both_directions_and_what_the_peer_does_to_memory() {
    let mut pair = Pair::new(Costs::default(), Faults::default());
    let shows = [0, 1].map(|side| {
        let shows = Arc::new(Mutex::new(Shows::default()));
        pair.devices[side].set_tap(Box::new(Recorder(Arc::clone(&shows))));
        shows
    });
    let source = pair.register(1, Region::RemoteRead(Bytes::from_static(b"to be read")));
    let buf = pair.buf(1, 8);
    let target = pair.register(1, Region::RemoteWrite(buf));
    pair.receive(1, 1, 16);
    let sink = pair.buf(0, 4);
    pair.post(0, 2, read(sink, source.stag, source.offset + 6));
    let write = SendWr::Write {
        gather: smallvec![Bytes::from_static(b"pay"), Bytes::from_static(b"load")],
        stag: target.stag,
        offset: target.offset,
    };
    pair.post(0, 3, write);
    let invalidate = Some(target.stag);
    let done = SendWr::Send {
        gather: smallvec![Bytes::from_static(b"done")],
        invalidate,
    };
    pair.post(0, 4, done);
    assert_eq!(pair.completions(0).len(), 3);
    let [client, server] = shows.each_ref().map(|shows| shows.lock().unwrap());
    let what = |list: &[(Time, Shown)]| -> Vec<String> {
        list.iter().map(|(_, shown)| format!("{shown:?}")).collect()
    };
    let requests = [
        Shown::ReadRequest(4, source.stag, source.offset + 6),
        Shown::Write(b"payload".to_vec(), target.stag, target.offset),
        Shown::Send(b"done".to_vec(), invalidate),
    ];
    assert_eq!(
        what(&client.sent),
        requests.map(|shown| format!("{shown:?}"))
    );
    assert_eq!(what(&server.received), what(&client.sent));
    let response = Shown::ReadResponse(b"read".to_vec());
    assert_eq!(what(&server.sent), [format!("{response:?}")]);
    assert_eq!(what(&client.received), what(&server.sent));
    // Each frame arrives after the delay of the link.
    let delay = Costs::default().up.delay;
    for (sent, received) in [
        (&client.sent, &server.received),
        (&server.sent, &client.received),
    ] {
        for ((left, _), (arrived, _)) in sent.iter().zip(received) {
            assert_eq!(*left + delay, *arrived);
        }
    }
}

#[test]
fn a_host_cannot_reject_the_request_of_another_one() {
    let mut pair = Pair::connecting(Costs::default(), Faults::default(), |_| {});
    let events = pair.events(1);
    let [Event::ConnectRequest(request)] = &events[..] else {
        panic!("{events:?}");
    };
    let id = request.request;
    assert!(pair.devices[0].reject(id, b"").is_err());
    assert!(pair.devices[1].prepare_accept(id, None).is_ok());
}
