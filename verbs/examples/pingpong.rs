//! What the iwarp device costs over the TCP it runs on: latency of a small request and reply, and
//! throughput of 1 MiB transfers by RDMA Write and by RDMA Read, request, registration, reply and
//! invalidation included, each beside the same bytes over a raw socket in the same run.
//!
//! `cargo run --release -p verbs --example pingpong [round trips]`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program to look at"
)]

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;
use verbs::iwarp::{Iwarp, Options};
use verbs::{
    AcceptOptions, ConnectOptions, Device, Event, Poller, Pool, QpId, Region, SendWr, Stag,
    Success, Time, WrId,
};

/// Bytes of a request and of a reply.
const MESSAGE: usize = 100;
/// Bytes of a transfer.
const BULK: usize = 1 << 20;
/// Transfers in flight.
const DEPTH: usize = 4;
/// Transfers in one round.
const BULKS: usize = 200;
/// Each figure is the median of this many rounds, in turn with the ones it is compared with, so
/// that whatever else the machine does falls on all alike.
const ROUNDS: usize = 7;

struct Node {
    device: Iwarp,
    poll: mio::Poll,
    found: mio::Events,
    events: VecDeque<Event>,
    busy: bool,
}

impl Node {
    fn new(busy: bool) -> Self {
        let mut device = Iwarp::new(Options::default(), Pool::new(1 << 28)).unwrap();
        let poll = mio::Poll::new().unwrap();
        let registry = poll.registry().try_clone().unwrap();
        let poller = Poller {
            registry,
            first_token: 0,
        };
        device.attach(poller).unwrap();
        device.set_busy_poll(busy);
        Self {
            device,
            poll,
            found: mio::Events::with_capacity(64),
            events: VecDeque::new(),
            busy,
        }
    }

    fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.device.poll(Time::now(), &mut self.events);
            if self.busy || !self.events.is_empty() || !self.device.arm() {
                continue;
            }
            let due = self.device.next_deadline();
            let wait = due.map(|due| due - Time::now());
            self.poll.poll(&mut self.found, wait).unwrap();
            for event in &self.found {
                self.device.ready(event.token().0, event.is_read_closed());
            }
        }
    }

    fn completion(&mut self) -> Success {
        loop {
            match self.next() {
                Event::Completion(completion) => return completion.result.unwrap(),
                Event::Established { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn receive(&mut self, qp: QpId) {
        let buf = self.device.pool().alloc(4096).unwrap();
        self.device.post_receive(qp, WrId(0), buf.into()).unwrap();
    }

    fn send(&mut self, qp: QpId, bytes: Bytes) {
        let gather = SmallVec::from_iter([bytes]);
        let wr = SendWr::Send {
            gather,
            invalidate: None,
        };
        self.device.post_send(qp, WrId(1), wr, false).unwrap();
    }

    fn answer(&mut self, qp: QpId, stag: u32) {
        let wr = SendWr::Send {
            gather: SmallVec::from_iter([Bytes::from_static(&[1; MESSAGE])]),
            invalidate: Some(Stag(stag)),
        };
        self.device.post_send(qp, WrId(1), wr, false).unwrap();
    }

    fn connect(&mut self, address: SocketAddr) -> QpId {
        let options = ConnectOptions {
            private_data: Bytes::new(),
            inbound_reads: 16,
            outbound_reads: 16,
            timeout: Duration::from_secs(5),
        };
        let qp = self.device.connect(address, &options).unwrap();
        assert!(matches!(self.next(), Event::Established { .. }));
        qp
    }

    fn accept(&mut self) -> QpId {
        let Event::ConnectRequest(request) = self.next() else {
            panic!("no request")
        };
        let qp = self.device.prepare_accept(request.request).unwrap();
        for _ in 0..8 {
            self.receive(qp);
        }
        let options = AcceptOptions {
            private_data: Bytes::new(),
            inbound_reads: 16,
            outbound_reads: 16,
        };
        self.device.accept(qp, &options).unwrap();
        qp
    }
}

/// A server on a thread; the client gets its address.
fn beside<T>(busy: bool, server: fn(&mut Node), client: impl FnOnce(SocketAddr) -> T) -> T {
    let mut node = Node::new(busy);
    let listener = node.device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = node.device.local_address(listener).unwrap();
    let thread = thread::spawn(move || server(&mut node));
    let result = client(address);
    thread.join().unwrap();
    result
}

fn echo(node: &mut Node) {
    let qp = node.accept();
    loop {
        match node.next() {
            Event::Completion(completion) => {
                if let Ok(Success::Receive { buf, .. }) = completion.result {
                    node.receive(qp);
                    node.send(qp, buf.into_first().freeze());
                }
            }
            Event::Disconnected { .. } => return,
            _ => {}
        }
    }
}

fn median(mut samples: Vec<Duration>) -> f64 {
    samples.sort_unstable();
    samples[samples.len() / 2].as_secs_f64() * 1e6
}

fn device_latency(busy: bool, count: usize) -> f64 {
    beside(busy, echo, |address| {
        let mut node = Node::new(busy);
        let qp = node.connect(address);
        let message = Bytes::from(vec![7; MESSAGE]);
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            node.receive(qp);
            node.send(qp, message.clone());
            assert!(matches!(node.completion(), Success::Receive { .. }));
            samples.push(start.elapsed());
        }
        node.device.disconnect(qp);
        while !matches!(node.next(), Event::Disconnected { .. }) {}
        median(samples)
    })
}

fn read_exact(socket: &mut TcpStream, bytes: &mut [u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        match socket.read(&mut bytes[done..]) {
            Ok(0) => return false,
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
    true
}

fn tcp_latency(busy: bool, count: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(busy).unwrap();
        let mut bytes = [0; MESSAGE];
        while read_exact(&mut socket, &mut bytes) {
            socket.write_all(&bytes).unwrap();
        }
    });
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_nonblocking(busy).unwrap();
    let mut bytes = [7; MESSAGE];
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        socket.write_all(&bytes).unwrap();
        assert!(read_exact(&mut socket, &mut bytes));
        samples.push(start.elapsed());
    }
    drop(socket);
    server.join().unwrap();
    median(samples)
}

/// Answers requests as a file server does. A request names memory: written with one RDMA Write,
/// or read with one RDMA Read, then answered with a Send With Invalidate.
fn bulk_server(node: &mut Node) {
    let qp = node.accept();
    let source = node.device.pool().alloc(BULK).unwrap().freeze();
    let mut sinks: Vec<_> = (0..DEPTH)
        .map(|_| node.device.pool().alloc(BULK).unwrap())
        .collect();
    loop {
        match node.next() {
            Event::Disconnected { .. } => return,
            Event::Completion(completion) => match completion.result {
                Ok(Success::Receive { buf, .. }) => {
                    let buf = buf.into_first();
                    let stag = u32::from_be_bytes(buf[..4].try_into().unwrap());
                    let offset = u64::from_be_bytes(buf[4..12].try_into().unwrap());
                    let read = buf[12] == 1;
                    drop(buf);
                    node.receive(qp);
                    let wr = if read {
                        SendWr::Read {
                            sink: sinks.pop().unwrap(),
                            stag: Stag(stag),
                            offset,
                        }
                    } else {
                        SendWr::Write {
                            gather: SmallVec::from_iter([source.clone()]),
                            stag: Stag(stag),
                            offset,
                        }
                    };
                    let id = WrId(stag.into());
                    node.device.post_send(qp, id, wr, read).unwrap();
                    if !read {
                        node.answer(qp, stag);
                    }
                }
                Ok(Success::Read { sink }) => {
                    sinks.push(sink);
                    node.answer(qp, completion.id.0 as u32);
                }
                _ => {}
            },
            _ => {}
        }
    }
}

/// MiB/s, and the bytes that the client's device copied for each MiB.
fn device_throughput(read: bool) -> (f64, u64) {
    beside(false, bulk_server, |address| {
        let mut node = Node::new(false);
        let qp = node.connect(address);
        let pool = node.device.pool().clone();
        let mut free: Vec<_> = (0..DEPTH).map(|_| pool.alloc(BULK).unwrap()).collect();
        let source = pool.alloc(BULK).unwrap().freeze();
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < BULKS {
            while posted < BULKS && posted - done < DEPTH {
                let region = if read {
                    Region::RemoteRead(source.clone())
                } else {
                    Region::RemoteWrite(free.pop().unwrap())
                };
                let segment = node.device.register(qp, region).unwrap();
                let mut request = segment.stag.0.to_be_bytes().to_vec();
                request.extend(segment.offset.to_be_bytes());
                request.push(u8::from(read));
                node.receive(qp);
                node.send(qp, Bytes::from(request));
                posted += 1;
            }
            match node.completion() {
                Success::Receive { invalidated, .. } => {
                    match node.device.reclaim(qp, invalidated.unwrap()).unwrap() {
                        Region::RemoteWrite(buf) => free.push(buf),
                        Region::RemoteRead(_) => {}
                    }
                }
                other => panic!("{other:?}"),
            }
            done += 1;
        }
        let rate = (BULKS * BULK) as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64();
        let copied = node.device.counters().copied_bytes;
        node.device.disconnect(qp);
        while !matches!(node.next(), Event::Disconnected { .. }) {}
        (rate, copied / BULKS as u64)
    })
}

fn tcp_throughput() -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        let mut bytes = vec![0; BULK];
        for _ in 0..BULKS {
            assert!(read_exact(&mut socket, &mut bytes));
        }
        socket.write_all(b"placed").unwrap();
    });
    let mut socket = TcpStream::connect(address).unwrap();
    let bytes = vec![7; BULK];
    let start = Instant::now();
    for _ in 0..BULKS {
        socket.write_all(&bytes).unwrap();
    }
    assert!(read_exact(&mut socket, &mut [0; 6]));
    let rate = (BULKS * BULK) as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64();
    server.join().unwrap();
    rate
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let count = std::env::args()
        .nth(1)
        .map_or(3000, |arg| arg.parse().unwrap());
    println!("request and reply of {MESSAGE} bytes, median of {ROUNDS} medians of {count}:");
    for (name, busy) in [("blocking", false), ("busy-polled", true)] {
        let rounds = (0..ROUNDS).map(|_| (tcp_latency(busy, count), device_latency(busy, count)));
        let (tcp, iwarp): (Vec<f64>, Vec<f64>) = rounds.unzip();
        let (tcp, iwarp) = (middle(tcp), middle(iwarp));
        let ratio = iwarp / tcp;
        println!("  {name:12} tcp {tcp:6.2} µs   iwarp {iwarp:6.2} µs   {ratio:.2} times");
    }
    println!("1 MiB, {DEPTH} in flight, median of {ROUNDS} rounds of {BULKS}:");
    for (name, read) in [("Write", false), ("Read", true)] {
        let mut most_copied = 0;
        let rounds = (0..ROUNDS).map(|_| {
            let tcp = tcp_throughput();
            let (iwarp, copied) = device_throughput(read);
            most_copied = copied.max(most_copied);
            (tcp, iwarp)
        });
        let (tcp, iwarp): (Vec<f64>, Vec<f64>) = rounds.unzip();
        let (tcp, iwarp) = (middle(tcp), middle(iwarp));
        let ratio = iwarp / tcp;
        println!(
            "  {name:12} tcp {tcp:6.0} MiB/s iwarp {iwarp:6.0} MiB/s {ratio:.2} times, \
             {most_copied} bytes copied each by the client"
        );
    }
}
