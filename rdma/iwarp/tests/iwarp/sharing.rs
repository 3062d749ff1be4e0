//! Shared receive queues: peers that stop in the middle of a message or end while they wait.

use std::time::{Duration, Instant};

use iwarp::Options;
use rdma::{
    Completion, Device, Disconnect, Event, QpId, Scatter, SharedReceivesId, Success, Time,
    WorkError, WrId,
};

use crate::node::{Node, PATIENCE, accept_options};
use crate::raw::{Got, REPLY, REQUEST, Raw, SEND, frame, idle, send, untagged};

const LEN: usize = 5000;

/// A server with a shared receive queue.
struct Server {
    node: Node,
    shared: SharedReceivesId,
    address: std::net::SocketAddr,
}

impl Server {
    fn new(receives: u64) -> Self {
        Self::with(Options::default(), receives)
    }

    fn with(options: Options, receives: u64) -> Self {
        let mut node = Node::new(options);
        let shared = node.device.create_shared_receives().unwrap();
        let (_, address) = node.listen();
        let mut server = Self {
            node,
            shared,
            address,
        };
        for id in 0..receives {
            server.post(id);
        }
        server
    }

    fn post(&mut self, id: u64) {
        let buf = self.node.pool.alloc(LEN).unwrap();
        let device = &mut self.node.device;
        device
            .post_shared_receive(self.shared, WrId(id), buf.into())
            .unwrap();
    }

    /// Establishes a connection that may begin with a message.
    fn connection(&mut self, crc: bool) -> (Raw, QpId) {
        let mut raw = Raw::connect(self.address);
        let flags = 0x10 | u8::from(crc) << 6;
        raw.write(&frame(REQUEST, flags, 2, &[0, 16, 0, 4]));
        let (request, _) = raw.wait_request(&mut self.node);
        let device = &mut self.node.device;
        let qp = device.prepare_accept(request, Some(self.shared)).unwrap();
        device.accept(qp, &accept_options()).unwrap();
        raw.read_frame(REPLY, &mut self.node);
        raw.crc = crc;
        assert!(matches!(self.node.next(), Event::Established { .. }));
        (raw, qp)
    }

    fn posted(&self) -> usize {
        self.node.device.posted_shared_receives(self.shared)
    }

    fn receiving(&self) -> Vec<QpId> {
        let mut qps = Vec::new();
        self.node.device.receiving(self.shared, &mut qps);
        qps
    }

    /// Lets everything happen that can happen. No event may occur.
    fn settle(&mut self) {
        let end = Instant::now() + Duration::from_millis(60);
        let mut rounds = 0;
        // Several rounds even if this thread was not running for a while.
        while Instant::now() < end || rounds < 5 {
            idle(&mut self.node);
            rounds += 1;
        }
        let events = &self.node.events;
        assert!(events.is_empty(), "{events:?}");
    }

    /// Waits for a message: its queue pair, `wr_id` and content.
    fn message(&mut self) -> (QpId, u64, Vec<u8>) {
        let Completion { qp, id, result } = self.node.next_completion();
        match result {
            Ok(Success::Receive { buf, .. }) => (qp, id.0, buf.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// Expects that a receive comes back because its connection has ended.
    fn flushed(&mut self, qp: QpId, id: u64) {
        let completion = self.node.next_completion();
        let failed = completion.result.unwrap_err();
        assert_eq!((completion.qp, completion.id), (qp, WrId(id)));
        assert_eq!(failed.error, WorkError::Flushed);
        assert_eq!(failed.buf.map(|buf| buf.count()), Some(1));
    }

    fn disconnected(&mut self, of: QpId) -> Disconnect {
        match self.node.next() {
            Event::Disconnected { qp, reason } if qp == of => reason,
            other => panic!("{other:?}"),
        }
    }

    fn finish(mut self, qps: &[QpId]) {
        for qp in qps {
            self.node.device.destroy(*qp);
        }
        self.node.events.clear();
        let device = &mut self.node.device;
        device.destroy_shared_receives(self.shared).unwrap();
        assert_eq!(self.node.pool.in_use(), 0, "memory is still held");
    }
}

/// Returns the first segment of a message, `len` bytes long.
fn first_part(msn: u32, len: usize) -> Vec<u8> {
    untagged(SEND, false, 0, (0, msn, 0), &vec![1; len])
}

#[test]
fn a_message_in_the_middle_holds_its_receive() {
    for crc in [false, true] {
        let mut server = Server::new(3);
        let (mut one, a) = server.connection(crc);
        let (mut two, b) = server.connection(crc);
        one.send_ulpdu(&first_part(1, 100));
        server.settle();
        assert_eq!((server.posted(), server.receiving()), (2, vec![a]));
        two.send_ulpdu(&send(1, b"whole"));
        assert_eq!(server.message(), (b, 1, b"whole".to_vec()));
        one.send_ulpdu(&untagged(SEND, true, 0, (0, 1, 100), &[2; 50]));
        let expected = [vec![1; 100], vec![2; 50]].concat();
        assert_eq!(server.message(), (a, 0, expected));
        assert!(server.receiving().is_empty());
        one.send_ulpdu(&send(2, b"next"));
        assert_eq!(server.message(), (a, 2, b"next".to_vec()));
        server.finish(&[a, b]);
    }
}

#[test]
fn the_end_of_a_connection_returns_the_receive_of_its_message() {
    for reset in [false, true] {
        let mut server = Server::new(2);
        let (mut one, a) = server.connection(false);
        let (mut two, b) = server.connection(false);
        one.send_ulpdu(&first_part(1, 100));
        server.settle();
        if reset {
            rustix::net::sockopt::set_socket_linger(&one.socket, Some(Duration::ZERO)).unwrap();
        }
        drop(one);
        server.flushed(a, 0);
        let reason = server.disconnected(a);
        assert_eq!(reset, matches!(reason, Disconnect::Lost(_)), "{reason:?}");
        assert_eq!(server.posted(), 1);
        two.send_ulpdu(&send(1, b"after it"));
        assert_eq!(server.message(), (b, 1, b"after it".to_vec()));
        server.finish(&[a, b]);
    }
}

#[test]
fn the_owner_gets_the_receive_back_when_it_ends_the_connection() {
    let mut server = Server::new(2);
    let (mut raw, qp) = server.connection(false);
    raw.send_ulpdu(&first_part(1, 100));
    server.settle();
    server.node.device.abort(qp);
    server.flushed(qp, 0);
    assert_eq!(server.disconnected(qp), Disconnect::Local);
    assert_eq!(server.posted(), 1);
    let (mut raw, other) = server.connection(false);
    raw.send_ulpdu(&first_part(1, 100));
    server.settle();
    assert_eq!(server.posted(), 0);
    server.finish(&[qp, other]);
}

/// Each of several connections stops in the middle of a message, and others go on; no receive is
/// given out twice.
#[test]
fn a_receive_belongs_to_one_message() {
    let mut server = Server::new(0);
    let mut ends: Vec<_> = (0..8).map(|_| server.connection(false)).collect();
    for (number, (raw, _)) in ends.iter_mut().enumerate() {
        let part = vec![number as u8; 100];
        raw.send_ulpdu(&untagged(SEND, false, 0, (0, 1, 0), &part));
    }
    server.settle();
    for id in 0..8 {
        server.post(id);
    }
    server.settle();
    assert_eq!(server.posted(), 0, "each has begun");
    for (number, (raw, _)) in ends.iter_mut().enumerate().rev() {
        let part = vec![number as u8; 50];
        raw.send_ulpdu(&untagged(SEND, true, 0, (0, 1, 100), &part));
    }
    let mut seen = Vec::new();
    for _ in 0..8 {
        let (qp, id, content) = server.message();
        let number = ends.iter().position(|(_, of)| *of == qp).unwrap();
        assert_eq!(content, vec![number as u8; 150]);
        seen.push(id);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    let qps: Vec<QpId> = ends.iter().map(|(_, qp)| *qp).collect();
    server.finish(&qps);
}

#[test]
fn a_peer_that_closes_while_it_waits_is_heard_to_the_end() {
    let mut server = Server::new(0);
    let (mut raw, qp) = server.connection(false);
    for msn in 1..=2 {
        raw.send_ulpdu(&send(msn, &[msn as u8; 1500]));
    }
    server.settle();
    drop(raw);
    // The end is behind the messages.
    server.settle();
    for id in 0..3 {
        server.post(id);
    }
    assert_eq!(server.message(), (qp, 0, vec![1; 1500]));
    assert_eq!(server.message(), (qp, 1, vec![2; 1500]));
    assert_eq!(server.disconnected(qp), Disconnect::Remote);
    assert_eq!(server.posted(), 1);
    server.finish(&[qp]);
}

#[test]
fn a_connection_that_is_lost_while_it_waits_ends_at_once() {
    for busy in [false, true] {
        let mut server = Server::new(0);
        let (mut raw, qp) = server.connection(false);
        let (mut next, other) = server.connection(false);
        raw.send_ulpdu(&send(1, &[1; 1500]));
        server.settle();
        next.send_ulpdu(&send(1, b"next"));
        server.settle();
        server.node.device.set_busy_poll(busy);
        rustix::net::sockopt::set_socket_linger(&raw.socket, Some(Duration::ZERO)).unwrap();
        drop(raw);
        assert!(matches!(server.disconnected(qp), Disconnect::Lost(_)));
        server.post(0);
        assert_eq!(server.message(), (other, 0, b"next".to_vec()));
        server.finish(&[qp, other]);
    }
}

/// The owner may sleep although there is data in the socket, and is not woken for more of it than
/// TCP announces.
#[test]
fn a_connection_that_waits_costs_nothing() {
    let mut server = Server::new(0);
    let (mut raw, qp) = server.connection(false);
    raw.send_ulpdu(&send(1, &[1; 1400]));
    server.settle();
    for msn in 2..50 {
        raw.send_ulpdu(&send(msn, &[msn as u8; 1400]));
    }
    server.settle();
    for _ in 0..20 {
        let mut events = Default::default();
        server.node.device.poll(Time::now(), &mut events);
        assert!(server.node.device.arm(), "there is nothing to do");
        assert_eq!(server.node.device.next_deadline(), None);
    }
    // All data is there already, so no readiness event announces it.
    for msn in 1..50 {
        server.post(msn);
        assert_eq!(server.message(), (qp, msn, vec![msn as u8; 1400]));
    }
    server.finish(&[qp]);
}

#[test]
fn connections_go_on_while_the_owner_is_away() {
    let mut server = Server::new(0);
    let mut ends: Vec<_> = (0..3).map(|_| server.connection(false)).collect();
    // They wait in another order than that in which they were made.
    for (raw, _) in ends.iter_mut().rev() {
        raw.send_ulpdu(&send(1, b"waits"));
        server.settle();
    }
    (0..3).for_each(|id| server.post(id));
    let start = Instant::now();
    while server.node.device.counters().receives < 3 {
        assert!(start.elapsed() < PATIENCE, "nobody takes the owner's place");
        std::thread::sleep(Duration::from_millis(1));
    }
    for (id, (_, qp)) in ends.iter().rev().enumerate() {
        assert_eq!(server.message(), (*qp, id as u64, b"waits".to_vec()));
    }
    let qps: Vec<QpId> = ends.iter().map(|(_, qp)| *qp).collect();
    server.finish(&qps);
}

/// A connection that is being set up waits for the peer's first message, but not for a receive.
#[test]
fn a_first_message_that_waits_establishes_the_connection() {
    // The ready-to-receive messages that the initiator offers (RFC 6581, section 9.2): a Write, or an
    // FPDU without payload. A Send is as good.
    for offered in [[0x80, 4, 0x80, 4], [0xc0, 4, 0, 4]] {
        let options = Options {
            setup_timeout: Duration::from_millis(300),
            ..Options::default()
        };
        let mut server = Server::with(options, 0);
        let mut raw = Raw::connect(server.address);
        raw.write(&frame(REQUEST, 0x10, 2, &offered));
        let (request, _) = raw.wait_request(&mut server.node);
        let device = &mut server.node.device;
        let qp = device.prepare_accept(request, Some(server.shared));
        let qp = qp.unwrap();
        device.accept(qp, &accept_options()).unwrap();
        raw.read_frame(REPLY, &mut server.node);
        server.settle();
        raw.send_ulpdu(&send(1, b"early"));
        assert!(matches!(server.node.next(), Event::Established { .. }));
        std::thread::sleep(Duration::from_millis(300));
        server.settle();
        // This side may send now.
        server.node.send(qp, 9, b"hello");
        assert_eq!(
            raw.read_fpdu(&mut server.node),
            Got::Ulpdu(send(1, b"hello"))
        );
        assert!(server.node.next_completion().result.is_ok());
        server.post(7);
        assert_eq!(server.message(), (qp, 7, b"early".to_vec()));
        server.finish(&[qp]);
    }
}

/// Data for the later buffers of a receive is not copied, although the receive is taken late.
#[test]
fn later_buffers_are_received_in_place() {
    let mut server = Server::new(0);
    // Bound before the structure is known.
    let (mut raw, qp) = server.connection(false);
    let device = &mut server.node.device;
    for id in 0..3 {
        let (first, second) = (server.node.pool.alloc(100), server.node.pool.alloc(1000));
        let receive = Scatter::new(first.unwrap(), vec![second.unwrap()]);
        device
            .post_shared_receive(server.shared, WrId(id), receive)
            .unwrap();
    }
    for msn in 1..=3 {
        let before = server.node.device.counters().copied_bytes;
        raw.send_ulpdu(&send(msn, &[7; 1100]));
        assert_eq!(server.message().2, [7; 1100]);
        let copied = server.node.device.counters().copied_bytes - before;
        assert_eq!(copied, 100);
    }
    server.finish(&[qp]);
}
