//! Tests of shared receive queues.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::smallvec;

use crate::*;
use rdma::{
    AcceptOptions, Completion, ConnectOptions, Device, DeviceError, Disconnect, Event, Pool,
    PostError, Region, SendWr, SharedReceivesId, Stag, Success, Time, WorkError, WrId,
};

const LEN: usize = 100;

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host), 20049).into()
}

/// A client (0) and a server (1) whose queue pairs share their receives.
struct World {
    fabric: Fabric,
    devices: [SimDevice; 2],
    shared: SharedReceivesId,
    /// Pairs of queue pairs, the client's first.
    pairs: Vec<[QpId; 2]>,
    /// What each side has been told and the test has not looked at.
    events: [VecDeque<Event>; 2],
}

/// Counts the messages that wait.
#[derive(Default)]
struct Waits(usize);

impl Observer for Waits {
    fn event(&mut self, _: Time, what: &FabricEvent<'_>) {
        self.0 += usize::from(matches!(what, FabricEvent::Waits(..)));
    }
}

impl World {
    fn new(pairs: usize, receives: u64) -> Self {
        Self::with(Costs::default(), pairs, receives, WhenEmpty::Waits)
    }

    fn with(costs: Costs, pairs: usize, receives: u64, when_empty: WhenEmpty) -> Self {
        let fabric = Fabric::new(7, costs, Faults::default());
        let mut devices = [1, 2].map(|host| {
            let mut attributes = attributes();
            attributes.shared_receives = Some(SharedReceives {
                max_wr: 64,
                when_empty,
            });
            let host = Host {
                address: address(host),
                attributes,
                pool: Pool::new(1 << 24),
                interrupt: Duration::from_micros(3),
            };
            fabric.host(host).unwrap()
        });
        devices[1].listen(address(2)).unwrap();
        let shared = devices[1].create_shared_receives().unwrap();
        let mut world = Self {
            fabric,
            devices,
            shared,
            pairs: Vec::new(),
            events: Default::default(),
        };
        for id in 0..receives {
            world.post(id);
        }
        for _ in 0..pairs {
            world.connect();
        }
        world
    }

    fn connect(&mut self) {
        let options = ConnectOptions {
            private_data: Bytes::new(),
            inbound_reads: 2,
            outbound_reads: 2,
            timeout: Duration::from_secs(100),
            shared_receives: None,
        };
        let client = self.devices[0].connect(address(2), &options).unwrap();
        self.run();
        let Some(Event::ConnectRequest(request)) = self.events[1].pop_back() else {
            panic!("no request")
        };
        let device = &mut self.devices[1];
        let server = device.prepare_accept(request.request, Some(self.shared));
        let server = server.unwrap();
        let options = AcceptOptions {
            private_data: Bytes::new(),
            inbound_reads: 2,
            outbound_reads: 2,
        };
        device.accept(server, &options).unwrap();
        self.run();
        for side in &mut self.events {
            assert!(matches!(side.pop_back(), Some(Event::Established { .. })));
        }
        self.pairs.push([client, server]);
    }

    /// Runs until nothing more happens.
    fn run(&mut self) {
        let until = self.fabric.now() + Duration::from_secs(10);
        while self.fabric.next(until).is_some() {}
        let now = self.fabric.now();
        for (device, events) in self.devices.iter_mut().zip(&mut self.events) {
            loop {
                let before = events.len();
                device.poll(now, events);
                if events.len() == before {
                    break;
                }
            }
        }
    }

    fn post(&mut self, id: u64) {
        let buf = self.devices[1].pool().alloc(LEN).unwrap();
        let posted = self.devices[1].post_shared_receive(self.shared, WrId(id), buf.into());
        posted.unwrap();
    }

    fn posted(&self) -> usize {
        self.devices[1].posted_shared_receives(self.shared)
    }

    fn client(&mut self, pair: usize, id: u64, wr: SendWr) {
        let qp = self.pairs[pair][0];
        self.devices[0].post_send(qp, WrId(id), wr, true).unwrap();
    }

    fn text(&mut self, pair: usize, id: u64, text: &'static str) {
        self.client(pair, id, send(text, None));
    }

    /// Runs, and returns the messages that the server got: pair, `wr_id` and content. Nothing else
    /// may have happened to it.
    fn messages(&mut self) -> Vec<(usize, u64, String)> {
        self.run();
        let message = |event| match event {
            Event::Completion(Completion {
                qp,
                id,
                result: Ok(Success::Receive { buf, .. }),
            }) => {
                let pair = self.pairs.iter().position(|[_, server]| *server == qp);
                let text = String::from_utf8(buf.to_vec()).unwrap();
                (pair.unwrap(), id.0, text)
            }
            other => panic!("{other:?}"),
        };
        self.events[1].drain(..).map(message).collect()
    }

    /// Returns the successful completions of the client since the last call.
    fn done(&mut self) -> Vec<u64> {
        self.run();
        let id = |event| match event {
            Event::Completion(Completion {
                id, result: Ok(_), ..
            }) => id.0,
            other => panic!("{other:?}"),
        };
        self.events[0].drain(..).map(id).collect()
    }

    fn finish(mut self) {
        for [client, server] in self.pairs {
            self.devices[0].destroy(client);
            self.devices[1].destroy(server);
        }
        self.devices[1]
            .destroy_shared_receives(self.shared)
            .unwrap();
        self.events = Default::default();
        for device in &self.devices {
            assert_eq!(device.pool().in_use(), 0);
        }
    }
}

fn send(text: &'static str, invalidate: Option<Stag>) -> SendWr {
    SendWr::Send {
        gather: smallvec![Bytes::from_static(text.as_bytes())],
        invalidate,
    }
}

fn got(pair: usize, id: u64, text: &str) -> (usize, u64, String) {
    (pair, id, text.to_owned())
}

#[test]
fn messages_of_all_connections_take_receives_in_order_of_arrival() {
    let mut world = World::new(2, 4);
    for (id, pair) in [0, 1, 1, 0].into_iter().enumerate() {
        world.text(pair, 1, "which?");
        assert_eq!(world.messages(), [got(pair, id as u64, "which?")]);
        assert_eq!(world.posted(), 3 - id);
    }
    world.finish();
}

#[test]
fn senders_wait_for_receives_and_go_on_in_turn() {
    for acknowledged in [false, true] {
        let costs = Costs {
            acknowledged,
            ..Costs::default()
        };
        let mut world = World::with(costs, 2, 1, WhenEmpty::Waits);
        let waits = Rc::new(RefCell::new(Waits::default()));
        world.fabric.watch(waits.clone());
        let texts = ["a", "b", "c"];
        for (id, text) in texts.into_iter().enumerate() {
            for pair in 0..2 {
                world.text(pair, 10 * (1 + pair as u64) + id as u64, text);
            }
        }
        assert_eq!(world.messages(), [got(0, 0, "a")]);
        assert_eq!(waits.borrow().0, 2, "one message of each waits");
        // Sends that wait are acknowledged when they have been received, and not before.
        match acknowledged {
            true => assert_eq!(world.done(), [10]),
            false => assert_eq!(world.done().len(), 6),
        }
        for (id, (pair, text)) in [(1, "a"), (0, "b"), (1, "b"), (0, "c"), (1, "c")]
            .into_iter()
            .enumerate()
        {
            world.post(1 + id as u64);
            assert_eq!(world.messages(), [got(pair, 1 + id as u64, text)]);
            let message = texts.iter().position(|one| *one == text).unwrap();
            let expected = acknowledged.then_some(10 * (1 + pair as u64) + message as u64);
            assert_eq!(world.done(), Vec::from_iter(expected));
        }
        world.finish();
    }
}

#[test]
fn receives_posted_at_once_serve_all_that_wait() {
    let mut world = World::new(3, 0);
    for text in ["one", "two"] {
        for pair in 0..3 {
            world.text(pair, 1, text);
            assert_eq!(world.messages(), []);
        }
    }
    for id in 0..7 {
        world.post(id);
    }
    let expected = [
        (0, "one"),
        (1, "one"),
        (2, "one"),
        (0, "two"),
        (1, "two"),
        (2, "two"),
    ];
    let expected = expected.iter().zip(0..);
    let expected: Vec<_> = expected
        .map(|(&(pair, text), id)| got(pair, id, text))
        .collect();
    assert_eq!(world.messages(), expected);
    assert_eq!(world.posted(), 1);
    world.finish();
}

#[test]
fn everything_behind_a_message_that_waits_waits_too() {
    let mut world = World::new(1, 0);
    let server = world.pairs[0][1];
    let room = world.devices[1].pool().alloc(8).unwrap();
    let target = world.devices[1]
        .register(server, Region::RemoteWrite(room))
        .unwrap();
    let source = Bytes::from_static(b"to be read");
    let source = world.devices[1]
        .register(server, Region::RemoteRead(source))
        .unwrap();
    world.text(0, 1, "first");
    world.client(
        0,
        2,
        SendWr::Write {
            gather: smallvec![Bytes::from_static(b"written!")],
            stag: target.stag,
            offset: target.offset,
        },
    );
    let sink = world.devices[0].pool().alloc(10).unwrap();
    let (stag, offset) = (source.stag, source.offset);
    world.client(0, 3, SendWr::Read { sink, stag, offset });
    world.client(0, 4, send("second", Some(target.stag)));
    assert_eq!(world.messages(), []);
    assert_eq!(world.done(), [] as [u64; 0]);
    let early = world.devices[1].reclaim(server, target.stag);
    assert!(matches!(early, Err(DeviceError::StillRegistered(_))));
    world.post(0);
    assert_eq!(world.messages(), [got(0, 0, "first")]);
    assert_eq!(world.done(), [1, 2, 3]);
    let early = world.devices[1].reclaim(server, target.stag);
    assert!(
        matches!(early, Err(DeviceError::StillRegistered(_))),
        "not invalidated yet"
    );
    world.post(1);
    assert_eq!(world.messages(), [got(0, 1, "second")]);
    assert_eq!(world.done(), [4]);
    let Ok(Region::RemoteWrite(buf)) = world.devices[1].reclaim(server, target.stag) else {
        panic!("not invalidated")
    };
    assert_eq!(buf[..], *b"written!");
    drop(buf);
    world.finish();
}

#[test]
fn responses_to_reads_wait_behind_a_message_that_waits() {
    let mut world = World::new(1, 0);
    let [client, server] = world.pairs[0];
    let source = Bytes::from_static(b"to be read");
    let source = world.devices[0]
        .register(client, Region::RemoteRead(source))
        .unwrap();
    world.text(0, 1, "waits");
    assert_eq!(world.messages(), []);
    let sink = world.devices[1].pool().alloc(10).unwrap();
    let (stag, offset) = (source.stag, source.offset);
    let wr = SendWr::Read { sink, stag, offset };
    world.devices[1]
        .post_send(server, WrId(9), wr, true)
        .unwrap();
    assert_eq!(world.messages(), []);
    world.post(0);
    world.run();
    assert!(
        matches!(
            world.events[1].make_contiguous(),
            [
                Event::Completion(Completion { id: WrId(0), .. }),
                Event::Completion(Completion { result: Ok(Success::Read { sink }), .. }),
            ] if sink[..] == *b"to be read"
        ),
        "{:?}",
        world.events[1]
    );
    world.finish();
}

/// The response has the number of the server's request, which another one of the client has, too.
#[test]
fn the_response_to_a_read_acknowledges_no_message_that_waits() {
    let costs = Costs {
        acknowledged: true,
        ..Costs::default()
    };
    let mut world = World::with(costs, 1, 0, WhenEmpty::Waits);
    let [client, server] = world.pairs[0];
    let source = Bytes::from_static(b"to be read");
    let source = world.devices[0]
        .register(client, Region::RemoteRead(source))
        .unwrap();
    world.text(0, 10, "first");
    assert_eq!(world.messages(), []);
    // The server's second Read has number 1, as the client's second Send.
    for id in [20, 21] {
        let sink = world.devices[1].pool().alloc(10).unwrap();
        let (stag, offset) = (source.stag, source.offset);
        let wr = SendWr::Read { sink, stag, offset };
        world.devices[1]
            .post_send(server, WrId(id), wr, true)
            .unwrap();
    }
    assert_eq!(world.messages(), []);
    world.text(0, 11, "second");
    assert_eq!(world.done(), [] as [u64; 0]);
    world.post(0);
    assert_eq!(world.done(), [10], "the second one waits for a receive");
    assert_eq!(world.events[1].len(), 3, "the first one and both Reads");
    world.events[1].clear();
    world.post(1);
    assert_eq!(world.messages(), [got(0, 1, "second")]);
    assert_eq!(world.done(), [11]);
    world.finish();
}

#[test]
fn the_owner_is_told_once_that_receives_are_low() {
    let mut world = World::new(1, 3);
    let shared = world.shared;
    let low = |world: &mut World| {
        world.run();
        let events = world.events[1].drain(..);
        events
            .filter(|event| matches!(event, Event::SharedReceivesLow { id } if *id == shared))
            .count()
    };
    world.devices[1].arm_shared_receives(shared, 2).unwrap();
    for expected in [0, 1, 0] {
        world.text(0, 1, "takes one");
        assert_eq!(low(&mut world), expected);
    }
    world.devices[1].arm_shared_receives(shared, 1).unwrap();
    assert_eq!(low(&mut world), 1, "there is none already");
    world.finish();
    // No event of a queue follows its end.
    let mut world = World::new(0, 0);
    let device = &mut world.devices[1];
    device.arm_shared_receives(world.shared, 1).unwrap();
    device.destroy_shared_receives(world.shared).unwrap();
    world.run();
    assert!(world.events[1].is_empty());
}

#[test]
fn wrong_uses_are_refused() {
    let mut world = World::new(1, 1);
    let (shared, server) = (world.shared, world.pairs[0][1]);
    let device = &mut world.devices[1];
    let buf = |device: &SimDevice, len| device.pool().alloc(len).unwrap().into();
    let other = buf(device, LEN + 1);
    let refused = device.post_shared_receive(shared, WrId(1), other);
    assert_eq!(refused.unwrap_err().0, PostError::Structure);
    let own = buf(device, LEN);
    let refused = device.post_receive(server, WrId(1), own);
    assert_eq!(refused.unwrap_err().0, PostError::Bound);
    let unknown = SharedReceivesId(u64::MAX);
    let receive = buf(device, LEN);
    let refused = device.post_shared_receive(unknown, WrId(1), receive);
    assert_eq!(refused.unwrap_err().0, PostError::Unknown);
    assert!(device.arm_shared_receives(unknown, 1).is_err());
    let bound = device.destroy_shared_receives(shared);
    assert!(matches!(bound, Err(DeviceError::Bound)));
    world.finish();
}

#[test]
fn a_device_of_the_other_kind_ends_the_connection() {
    let mut world = World::with(Costs::default(), 2, 0, WhenEmpty::EndsConnection);
    world.text(0, 1, "nobody waits");
    world.run();
    assert!(matches!(
        world.events[1].make_contiguous(),
        [Event::Disconnected {
            reason: Disconnect::PeerError(_),
            ..
        }]
    ));
    world.events[1].clear();
    // The other connection is not affected.
    world.post(5);
    world.text(1, 1, "goes on");
    assert_eq!(world.messages(), [got(1, 5, "goes on")]);
    world.finish();
}

#[test]
fn a_connection_that_is_lost_while_it_waits_leaves_the_receives_to_others() {
    let mut world = World::new(2, 0);
    world.text(0, 1, "waits");
    assert_eq!(world.messages(), []);
    world.text(1, 1, "next");
    assert_eq!(world.messages(), []);
    let [client, server] = world.pairs[0];
    world.devices[0].abort(client);
    world.run();
    assert!(matches!(
        world.events[1].pop_front(),
        Some(Event::Disconnected { qp, reason: Disconnect::Lost(_) }) if qp == server
    ));
    world.post(0);
    assert_eq!(world.messages(), [got(1, 0, "next")]);
    // Another one that waits is freed by its owner.
    world.text(1, 2, "too late");
    assert_eq!(world.messages(), []);
    let [_, server] = world.pairs[1];
    world.devices[1].destroy(server);
    world.post(1);
    assert_eq!(world.messages(), []);
    assert_eq!(world.posted(), 1);
    world.finish();
}

#[test]
fn a_peer_that_closes_while_it_waits_is_heard_to_the_end() {
    let costs = Costs {
        acknowledged: false,
        ..Costs::default()
    };
    let mut world = World::with(costs, 1, 0, WhenEmpty::Waits);
    world.text(0, 1, "one");
    world.text(0, 2, "two");
    let [client, server] = world.pairs[0];
    world.devices[0].disconnect(client);
    assert_eq!(world.messages(), [], "the end is behind the messages");
    assert!(matches!(
        world.events[0].pop_back(),
        Some(Event::Disconnected {
            reason: Disconnect::Local,
            ..
        })
    ));
    for id in 0..3 {
        world.post(id);
    }
    world.run();
    let end = world.events[1].pop_back();
    assert!(matches!(
        end,
        Some(Event::Disconnected { qp, reason: Disconnect::Remote }) if qp == server
    ));
    assert_eq!(world.messages(), [got(0, 0, "one"), got(0, 1, "two")]);
    assert_eq!(world.posted(), 1);
    world.finish();
}

#[test]
fn a_receive_that_was_taken_comes_back_when_its_message_is_refused() {
    let mut world = World::new(1, 2);
    world.client(0, 1, send("invalidates what there is not", Some(Stag(5))));
    world.run();
    let events = world.events[1].make_contiguous();
    assert!(
        matches!(
            events,
            [
                Event::Completion(Completion {
                    id: WrId(0),
                    result: Err(failed),
                    ..
                }),
                Event::Disconnected { .. },
            ] if failed.error == WorkError::Flushed && failed.buf.is_some()
        ),
        "{events:?}"
    );
    assert_eq!(world.posted(), 1);
    world.finish();
}

#[test]
fn messages_behind_one_that_is_refused_take_no_receive() {
    let mut world = World::new(1, 0);
    world.client(0, 1, send("invalidates what there is not", Some(Stag(5))));
    world.text(0, 2, "behind it");
    assert_eq!(world.messages(), []);
    world.post(0);
    world.post(1);
    assert_eq!(world.posted(), 1);
    world.run();
    assert_eq!(world.events[1].len(), 2, "{:?}", world.events[1]);
    world.finish();
}

#[test]
fn a_crash_loses_the_queue() {
    let mut world = World::new(1, 2);
    world.fabric.crash(NodeId(1));
    assert_eq!(world.posted(), 0);
    assert_eq!(world.devices[1].pool().in_use(), 0);
    let buf = world.devices[1].pool().alloc(LEN).unwrap();
    let refused = world.devices[1].post_shared_receive(world.shared, WrId(1), buf.into());
    assert_eq!(refused.unwrap_err().0, PostError::Unknown);
    assert!(world.devices[1].create_shared_receives().is_err());
}
