//! A device with a poll loop of its own, stepped by the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::{
    AcceptOptions, Buf, Completion, ConnectOptions, ConnectRequest, Device, Disconnect, Event,
    Failed, ListenerId, Pool, QpId, SendWr, Success, Time, WrId,
};
use smallvec::SmallVec;

use crate::support::poller;

/// Time-out, longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// First token of the device.
const FIRST_TOKEN: usize = 100;

pub(crate) struct Node {
    pub(crate) device: Iwarp,
    pub(crate) pool: Pool,
    pub(crate) events: VecDeque<Event>,
    poll: mio::Poll,
    found: mio::Events,
}

impl Node {
    pub(crate) fn new(options: Options) -> Self {
        let pool = Pool::new(1 << 30);
        let mut device = Iwarp::new(options, pool.clone()).unwrap();
        let poll = mio::Poll::new().unwrap();
        device.attach(poller(&poll, FIRST_TOKEN)).unwrap();
        Self {
            device,
            pool,
            events: VecDeque::new(),
            poll,
            found: mio::Events::with_capacity(64),
        }
    }

    /// Polls, and waits for at most `timeout` if there is nothing to do.
    pub(crate) fn step(&mut self, timeout: Duration) {
        self.device.poll(Time::now(), &mut self.events);
        if !self.events.is_empty() || !self.device.arm() {
            return;
        }
        let due = self.device.next_deadline();
        let wait = due.map_or(timeout, |due| (due - Time::now()).min(timeout));
        self.sleep(wait);
        self.device.poll(Time::now(), &mut self.events);
    }

    /// Waits for readiness for at most `timeout`, and passes it to the device.
    pub(crate) fn sleep(&mut self, timeout: Duration) {
        self.poll.poll(&mut self.found, Some(timeout)).unwrap();
        for event in &self.found {
            self.device
                .ready(event.token().0 - FIRST_TOKEN, event.is_read_closed());
        }
    }

    pub(crate) fn listen(&mut self) -> (ListenerId, SocketAddr) {
        let id = self.device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        (id, self.device.local_address(id).unwrap())
    }

    pub(crate) fn buf(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.pool.alloc(bytes.len()).unwrap();
        buf.copy_from_slice(bytes);
        buf
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) -> Bytes {
        self.buf(bytes).freeze()
    }

    pub(crate) fn receive(&mut self, qp: QpId, id: u64, len: usize) {
        let buf = self.pool.alloc(len).unwrap();
        self.device.post_receive(qp, WrId(id), buf.into()).unwrap();
    }

    /// Posts a request, which leaves at once.
    pub(crate) fn post(&mut self, qp: QpId, id: u64, wr: SendWr) {
        self.device.post_send(qp, WrId(id), wr, true).unwrap();
        self.device.flush();
    }

    pub(crate) fn send(&mut self, qp: QpId, id: u64, bytes: &[u8]) {
        let wr = send(self.bytes(bytes));
        self.post(qp, id, wr);
    }

    /// Steps only this node until it has an event.
    pub(crate) fn next(&mut self) -> Event {
        let start = Instant::now();
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            assert!(start.elapsed() < PATIENCE, "no event");
            self.step(Duration::from_millis(50));
        }
    }

    pub(crate) fn next_completion(&mut self) -> Completion {
        match self.next() {
            Event::Completion(completion) => completion,
            other => panic!("{other:?}"),
        }
    }
}

/// Steps both nodes until the first has an event, and returns it.
pub(crate) fn next(of: &mut Node, other: &mut Node) -> Event {
    let start = Instant::now();
    loop {
        if let Some(event) = of.events.pop_front() {
            return event;
        }
        assert!(start.elapsed() < PATIENCE, "no event");
        let mut waiting = std::mem::take(&mut other.events);
        other.step(Duration::ZERO);
        waiting.append(&mut other.events);
        other.events = waiting;
        of.step(Duration::from_millis(1));
    }
}

pub(crate) fn next_completion(of: &mut Node, other: &mut Node) -> Completion {
    match next(of, other) {
        Event::Completion(completion) => completion,
        event => panic!("{event:?}"),
    }
}

/// Checks that the next event is a successful completion with this `wr_id`.
pub(crate) fn success(of: &mut Node, other: &mut Node, id: u64) -> Success {
    let completion = next_completion(of, other);
    assert_eq!(completion.id, WrId(id), "{completion:?}");
    completion.result.unwrap()
}

/// Checks that the next event is a failed completion with this `wr_id`.
pub(crate) fn failure(of: &mut Node, other: &mut Node, id: u64) -> Failed {
    let completion = next_completion(of, other);
    assert_eq!(completion.id, WrId(id), "{completion:?}");
    completion.result.unwrap_err()
}

pub(crate) fn disconnected(of: &mut Node, other: &mut Node) -> Disconnect {
    match next(of, other) {
        Event::Disconnected { reason, .. } => reason,
        event => panic!("{event:?}"),
    }
}

pub(crate) fn send(bytes: Bytes) -> SendWr {
    SendWr::Send {
        gather: SmallVec::from_iter([bytes]),
        invalidate: None,
    }
}

pub(crate) fn connect_options() -> ConnectOptions {
    ConnectOptions {
        private_data: Bytes::from_static(b"hello"),
        inbound_reads: 16,
        outbound_reads: 16,
        timeout: PATIENCE,
        shared_receives: None,
    }
}

pub(crate) fn accept_options() -> AcceptOptions {
    AcceptOptions {
        private_data: Bytes::from_static(b"welcome"),
        inbound_reads: 16,
        outbound_reads: 16,
    }
}

pub(crate) fn request(of: &mut Node, other: &mut Node) -> ConnectRequest {
    match next(of, other) {
        Event::ConnectRequest(request) => request,
        event => panic!("{event:?}"),
    }
}

/// A client, its queue pair, a server and its queue pair, with a connection between them.
pub(crate) struct Pair {
    pub(crate) client: Node,
    pub(crate) server: Node,
    pub(crate) c: QpId,
    pub(crate) s: QpId,
}

impl Pair {
    pub(crate) fn new(client: Options, server: Options) -> Self {
        let (client, server) = (Node::new(client), Node::new(server));
        Self::connect(client, server, &connect_options(), &accept_options())
    }

    pub(crate) fn connect(
        mut client: Node,
        mut server: Node,
        connect: &ConnectOptions,
        accept: &AcceptOptions,
    ) -> Self {
        let (_, address) = server.listen();
        let c = client.device.connect(address, connect).unwrap();
        let request = request(&mut server, &mut client);
        assert_eq!(request.private_data, connect.private_data);
        let s = server.device.prepare_accept(request.request, None).unwrap();
        server.device.accept(s, accept).unwrap();
        match next(&mut client, &mut server) {
            Event::Established { qp, private_data } => {
                assert_eq!((qp, private_data), (c, accept.private_data.clone()));
            }
            event => panic!("{event:?}"),
        }
        match next(&mut server, &mut client) {
            Event::Established { qp, private_data } => {
                assert_eq!((qp, private_data), (s, Bytes::new()));
            }
            event => panic!("{event:?}"),
        }
        Self {
            client,
            server,
            c,
            s,
        }
    }

    /// Releases everything and checks that all memory was returned.
    pub(crate) fn finish(mut self) {
        self.client.device.destroy(self.c);
        self.server.device.destroy(self.s);
        let pools = [self.client.pool.clone(), self.server.pool.clone()];
        self.client.events.clear();
        self.server.events.clear();
        for pool in &pools {
            assert_eq!(pool.in_use(), 0, "memory is still held");
        }
    }
}

impl Default for Pair {
    fn default() -> Self {
        Self::new(Options::default(), Options::default())
    }
}
