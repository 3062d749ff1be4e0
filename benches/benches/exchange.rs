//! Benchmarks a request and its reply over the iwarp device, compared with the same bytes over bare
//! TCP, which shows the overhead of the software RNIC.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use iwarp::{Iwarp, Options};
use mio::{Events, Poll};
use rdma::{
    AcceptOptions, Buf, ConnectOptions, Device, Event, Pool, QpId, SendWr, Success, Time, WrId,
};
use rpc_transport::MioReadiness;
use rpcrdma_benches::against;
use smallvec::smallvec;

/// The bytes of a small call or reply, headers included.
const MESSAGE: usize = 128;
/// The number of receives posted on each side.
const RECEIVES: u64 = 4;

/// The memory of one device, bytes.
const POOL: usize = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One end of a connection between two devices.
struct End {
    device: Iwarp,
    poll: Poll,
    wakes: Events,
    events: VecDeque<Event>,
    busy: bool,
}

impl End {
    fn new(busy: bool) -> Outcome<Self> {
        let mut device = Iwarp::new(Options::default(), Pool::new(POOL))?;
        let poll = Poll::new()?;
        device.attach(MioReadiness::poller(poll.registry(), 0)?)?;
        device.set_busy_poll(busy);
        Ok(Self {
            device,
            poll,
            wakes: Events::with_capacity(16),
            events: VecDeque::new(),
            busy,
        })
    }

    /// Returns the next event, waiting if necessary.
    fn next(&mut self) -> Outcome<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let now = Time::now();
            self.device.poll(now, &mut self.events);
            if !self.events.is_empty() || self.busy || !self.device.arm() {
                continue;
            }
            let deadline = self.device.next_deadline();
            let timeout = deadline.map(|deadline| deadline.since(now));
            self.poll.poll(&mut self.wakes, timeout)?;
            for wake in &self.wakes {
                self.device.ready(wake.token().0, wake.is_read_closed());
            }
        }
    }

    fn receive(&mut self, qp: QpId, id: u64, buf: Buf) -> Outcome<()> {
        let posted = self.device.post_receive(qp, WrId(id), buf.into());
        posted.map_err(|(error, _)| error.into())
    }

    fn receives(&mut self, qp: QpId) -> Outcome<()> {
        for id in 0..RECEIVES {
            let buf = self.device.pool().alloc(MESSAGE)?;
            self.receive(qp, id, buf)?;
        }
        Ok(())
    }

    fn send(&mut self, qp: QpId, message: Bytes) -> Outcome<()> {
        let wr = SendWr::Send {
            gather: smallvec![message],
            invalidate: None,
        };
        let posted = self.device.post_send(qp, WrId(0), wr, false);
        posted.map_err(|(error, _)| error.into())
    }

    /// Waits for a message, and reposts its buffer. Returns false when the connection has ended.
    fn message(&mut self, qp: QpId) -> Outcome<bool> {
        loop {
            match self.next()? {
                Event::Completion(completion) => {
                    if let Ok(Success::Receive { buf, .. }) = completion.result {
                        self.receive(qp, completion.id.0, buf.into_first())?;
                        return Ok(true);
                    }
                }
                Event::Disconnected { .. } => return Ok(false),
                _ => {}
            }
        }
    }
}

/// Answers every message with one of the same size, until the connection ends.
fn echo(busy: bool, tell: impl FnOnce(SocketAddr)) -> Outcome<()> {
    let mut end = End::new(busy)?;
    let listener = end.device.listen((Ipv4Addr::LOCALHOST, 0).into())?;
    tell(end.device.local_address(listener)?);
    let request = loop {
        if let Event::ConnectRequest(request) = end.next()? {
            break request.request;
        }
    };
    let qp = end.device.prepare_accept(request, None)?;
    end.receives(qp)?;
    let options = AcceptOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
    };
    end.device.accept(qp, &options)?;
    let answer = Bytes::from(vec![2; MESSAGE]);
    while end.message(qp)? {
        end.send(qp, answer.clone())?;
    }
    Ok(())
}

/// Returns the client of [`echo`].
fn iwarp(busy: bool) -> Outcome<impl FnMut() -> Outcome<bool>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        echo(busy, |address| {
            tell.send(address).expect("a client that waits")
        })
    });
    let address = told.recv_timeout(Duration::from_secs(10))?;
    let mut end = End::new(busy)?;
    let options = ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
        timeout: Duration::from_secs(10),
        shared_receives: None,
    };
    let qp = end.device.connect(address, &options)?;
    end.receives(qp)?;
    while !matches!(end.next()?, Event::Established { .. }) {}
    let call = Bytes::from(vec![1; MESSAGE]);
    Ok(move || {
        end.send(qp, call.clone())?;
        end.message(qp)
    })
}

/// Fills `buf`, spinning while there is no data.
fn read(stream: &mut TcpStream, buf: &mut [u8]) -> io::Result<()> {
    let mut have = 0;
    while have < buf.len() {
        match stream.read(&mut buf[have..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => have += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the client of the same exchange over TCP.
fn tcp(busy: bool) -> Outcome<impl FnMut() -> io::Result<()>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(busy)?;
    }
    thread::spawn(move || {
        let mut buf = [2; MESSAGE];
        while read(&mut server, &mut buf).is_ok() && server.write_all(&buf).is_ok() {}
    });
    Ok(move || {
        let mut buf = [1; MESSAGE];
        client.write_all(&buf)?;
        read(&mut client, &mut buf)
    })
}

fn exchange(c: &mut Criterion) {
    for (how, busy) in [("blocking", false), ("busy-polled", true)] {
        let ends = tcp(busy).and_then(|tcp| Ok((tcp, iwarp(busy)?)));
        let (mut tcp, mut iwarp) = ends.expect("loopback connections");
        against(
            c,
            &format!("exchange of {MESSAGE} bytes, {how}"),
            (&format!("bare TCP, {how}"), || {
                tcp().expect("TCP stays connected")
            }),
            (&format!("iwarp, {how}"), || {
                iwarp().expect("iwarp stays connected")
            }),
        );
    }
}

criterion_group!(benches, exchange);
criterion_main!(benches);
