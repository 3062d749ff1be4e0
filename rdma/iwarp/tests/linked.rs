//! Round trips of a device behind an added link delay, in real time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::middleware::{Linked, Shaper};
use rdma::{
    AcceptOptions, ConnectOptions, Device, Event, Pool, QpId, Region, SendWr, Success, Time, WrId,
};
use smallvec::smallvec;

const DELAY: Duration = Duration::from_millis(5);
/// Number of attempts, of which the fastest counts: other work on the machine only ever adds time.
const TRIES: usize = 200;
/// Time-out, longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

struct Node {
    device: Linked<Iwarp>,
    events: VecDeque<Event>,
    poll: mio::Poll,
    found: mio::Events,
}

impl Node {
    fn new() -> Self {
        let device = Iwarp::new(Options::default(), Pool::new(1 << 24)).unwrap();
        let mut device = Linked::new(device, Shaper::new(DELAY, None));
        let poll = mio::Poll::new().unwrap();
        device.attach(support::poller(&poll, 0)).unwrap();
        Self {
            device,
            events: VecDeque::new(),
            poll,
            found: mio::Events::with_capacity(16),
        }
    }

    /// Polls without sleeping, because the test has two nodes to run.
    fn step(&mut self) -> Option<Event> {
        self.device.poll(Time::now(), &mut self.events);
        if self.events.is_empty() && self.device.arm() {
            let now = Some(Duration::ZERO);
            self.poll.poll(&mut self.found, now).unwrap();
            for event in &self.found {
                self.device.ready(event.token().0, event.is_read_closed());
            }
        }
        self.events.pop_front()
    }

    fn receive(&mut self, qp: QpId) {
        let buf = self.device.pool().alloc(64).unwrap();
        self.device.post_receive(qp, WrId(1), buf.into()).unwrap();
    }

    fn send(&mut self, qp: QpId) {
        let wr = SendWr::Send {
            gather: smallvec![Bytes::from_static(b"message")],
            invalidate: None,
        };
        self.device.post_send(qp, WrId(2), wr, false).unwrap();
    }
}

/// Steps both nodes until one of them has the wanted event.
fn until<T>(nodes: &mut [Node; 2], mut wanted: impl FnMut(usize, Event) -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for (index, node) in nodes.iter_mut().enumerate() {
            if let Some(event) = node.step()
                && let Some(found) = wanted(index, event)
            {
                return found;
            }
        }
    }
    panic!("not in time");
}

fn received(node: usize) -> impl FnMut(usize, Event) -> Option<()> {
    move |index, event| match event {
        Event::Completion(c) if index == node => {
            matches!(c.result, Ok(Success::Receive { .. })).then_some(())
        }
        _ => None,
    }
}

/// The number of times that a duration is measured at least.
const LEAST: usize = 10;

/// Checks that the fastest of the measured durations is `trips` round trips and not much more. Ends
/// as soon as one is, after a few that could be too short, so that only a busy machine needs many.
fn takes(trips: u32, tried: impl IntoIterator<Item = Duration>) {
    let wanted = 2 * DELAY * trips;
    let mut fastest = Duration::MAX;
    for (count, duration) in (1..).zip(tried) {
        assert!(duration >= wanted, "{duration:?} instead of {wanted:?}");
        fastest = fastest.min(duration);
        if count >= LEAST && fastest < wanted + DELAY {
            return;
        }
    }
    panic!("{fastest:?} instead of {wanted:?}");
}

fn connect(nodes: &mut [Node; 2]) -> [QpId; 2] {
    let listener = nodes[1].device.listen((Ipv4Addr::LOCALHOST, 0).into());
    let address = nodes[1].device.local_address(listener.unwrap()).unwrap();
    let options = ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 4,
        outbound_reads: 4,
        timeout: PATIENCE,
        shared_receives: None,
    };
    let client = nodes[0].device.connect(address, &options).unwrap();
    let request = until(nodes, |_, event| match event {
        Event::ConnectRequest(request) => Some(request.request),
        _ => None,
    });
    let server = nodes[1].device.prepare_accept(request, None).unwrap();
    let options = AcceptOptions {
        private_data: Bytes::new(),
        inbound_reads: 4,
        outbound_reads: 4,
    };
    nodes[1].device.accept(server, &options).unwrap();
    let mut left = 2;
    until(nodes, |_, event| {
        left -= i32::from(matches!(event, Event::Established { .. }));
        (left == 0).then_some(())
    });
    [client, server]
}

#[test]
fn connecting_and_an_exchange_take_a_round_trip_and_a_read_within_it_another() {
    let mut nodes = [Node::new(), Node::new()];
    let start = Instant::now();
    let [client, server] = connect(&mut nodes);
    assert!(start.elapsed() >= 2 * DELAY);

    let memory = Region::RemoteRead(Bytes::from_static(&[7; 4096]));
    let offered = nodes[0].device.register(client, memory).unwrap();
    let mut exchange = |read: bool| {
        let start = Instant::now();
        nodes[0].receive(client);
        nodes[1].receive(server);
        nodes[0].send(client);
        until(&mut nodes, received(1));
        if read {
            let wr = SendWr::Read {
                sink: nodes[1].device.pool().alloc(4096).unwrap(),
                stag: offered.stag,
                offset: offered.offset,
            };
            nodes[1]
                .device
                .post_send(server, WrId(3), wr, true)
                .unwrap();
            let sink = until(&mut nodes, |_, event| match event {
                Event::Completion(c) => match c.result {
                    Ok(Success::Read { sink }) => Some(sink),
                    _ => None,
                },
                _ => None,
            });
            assert!(sink.iter().all(|&byte| byte == 7));
        }
        nodes[1].send(server);
        until(&mut nodes, received(0));
        start.elapsed()
    };
    takes(1, (0..TRIES).map(|_| exchange(false)));
    takes(2, (0..TRIES).map(|_| exchange(true)));
}
