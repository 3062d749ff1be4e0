//! The devices of a client and of the loops of a server, in one poll loop.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::{self, Iwarp};
use rdma::{
    AcceptOptions, Buf, Completion, ConnectOptions, ConnectRequest, Counters, Device, Disconnect,
    Event, Failed, ListenerId, Pool, QpId, Region, RemoteSegment, RequestId, SendWr, Stag, Success,
    Time, WorkError, WrId,
};
use rdma_core::{self, RdmaCore, Registration};
use rpcrdma_host::LoopSeat;

use crate::support::poller;

/// Time-out, which is reached only if a wake-up is lost. (A lost packet of InfiniBand's connection
/// manager is sent again after four seconds.)
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The token of the waker by which seats wake the poll loop.
const WAKE: mio::Token = mio::Token(usize::MAX);
/// Number of tokens of one device.
const TOKENS: usize = 1 << 20;
pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

/// A device that reports its registrations.
pub(crate) trait Tested: Device {
    /// Returns the number of windows and registrations that the device holds for connections.
    fn held(&self) -> usize;
}

impl Tested for Iwarp {
    /// Returns 0: the software device holds no windows or registrations of an RDMA device.
    fn held(&self) -> usize {
        0
    }
}

impl Tested for RdmaCore {
    fn held(&self) -> usize {
        self.held()
    }
}

/// A device and its events.
pub(crate) struct Side {
    pub(crate) device: Box<dyn Tested>,
    pub(crate) events: VecDeque<Event>,
}

pub(crate) struct World {
    /// The client, and the loops of the server.
    pub(crate) sides: Vec<Side>,
    pub(crate) listener: ListenerId,
    pub(crate) address: SocketAddr,
    /// The address passed to the listeners.
    wanted: SocketAddr,
    open: OpenServer,
    poll: mio::Poll,
    /// Whether the tests busy-poll instead of sleeping.
    pub(crate) busy: bool,
}

fn registration() -> Option<Registration> {
    let name = std::env::var("VERBS_MODEL_REGISTRATION").ok()?;
    Some(name.parse().unwrap())
}

/// Returns whether the devices under test are verbs devices of the machine.
pub(crate) fn is_verbs() -> bool {
    std::env::var_os("VERBS_MODEL").is_some()
}

/// Opens the device of a loop of the server, which has a seat if there are several.
type OpenServer = Box<dyn Fn(Option<LoopSeat>) -> Box<dyn Tested>>;

/// Returns the client's device, the function that opens the server's, and the address on which these
/// listen, together if they have seats (`is_shared`).
fn devices(is_shared: bool) -> (Box<dyn Tested>, OpenServer, SocketAddr) {
    let Ok(addresses) = std::env::var("VERBS_MODEL") else {
        let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut sockets = Vec::new();
        if is_shared {
            let socket = TcpListener::bind(address).unwrap();
            socket.set_nonblocking(true).unwrap();
            address = socket.local_addr().unwrap();
            sockets.push(Arc::new(socket));
        }
        let open = |sockets, seat| {
            let options = iwarp::Options {
                sockets,
                seat,
                ..iwarp::Options::default()
            };
            let device = Iwarp::new(options, Pool::new(256 << 20));
            Box::new(device.unwrap()) as Box<dyn Tested>
        };
        let client = open(Vec::new(), None);
        return (
            client,
            Box::new(move |seat| open(sockets.clone(), seat)),
            address,
        );
    };
    let open = |address: IpAddr, seat: Option<LoopSeat>| {
        let options = rdma_core::Options {
            address: Some(address),
            registration: registration(),
            seat,
            ..rdma_core::Options::default()
        };
        let mut device = rdma_core::open(&options).unwrap();
        if std::env::var_os("VERBS_MODEL_AS_ADAPTER").is_some() {
            device.set_invalidate_by_request(true);
            device.set_exact_windows(false);
        }
        Box::new(device) as Box<dyn Tested>
    };
    let (near, far) = addresses.split_once(',').unwrap();
    let far: IpAddr = far.parse().unwrap();
    (
        open(near.parse().unwrap(), None),
        Box::new(move |seat| open(far, seat)),
        SocketAddr::new(far, 0),
    )
}

pub(crate) fn connect_options(private_data: &[u8]) -> ConnectOptions {
    ConnectOptions {
        private_data: Bytes::copy_from_slice(private_data),
        inbound_reads: 16,
        outbound_reads: 16,
        timeout: PATIENCE / 2,
        shared_receives: None,
    }
}

pub(crate) fn accept_options(private_data: &[u8]) -> AcceptOptions {
    AcceptOptions {
        private_data: Bytes::copy_from_slice(private_data),
        inbound_reads: 16,
        outbound_reads: 16,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Returns a client and the loops of a server that have these seats.
    pub(crate) fn with(seats: &[LoopSeat]) -> Self {
        let (client, open, wanted) = devices(!seats.is_empty());
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKE).unwrap());
        for seat in seats {
            let waker = Arc::clone(&waker);
            seat.set_wake(move || waker.wake().unwrap());
        }
        let mut world = Self {
            sides: Vec::new(),
            listener: ListenerId(0),
            address: wanted,
            wanted,
            open,
            poll,
            busy: false,
        };
        let client = world.attached(client, CLIENT);
        world.sides.push(client);
        let loops = match seats {
            [] => vec![None],
            seats => seats.iter().map(Some).collect(),
        };
        for (index, seat) in loops.into_iter().enumerate() {
            let server = world.serving(SERVER + index, seat);
            world.sides.push(server);
        }
        world
    }

    fn attached(&self, mut device: Box<dyn Tested>, side: usize) -> Side {
        device.attach(poller(&self.poll, side * TOKENS)).unwrap();
        Side {
            device,
            events: VecDeque::new(),
        }
    }

    /// Opens a device of the server, which listens.
    fn serving(&mut self, side: usize, seat: Option<&LoopSeat>) -> Side {
        let device = (self.open)(seat.cloned());
        let mut side = self.attached(device, side);
        self.listener = side.device.listen(self.wanted).unwrap();
        self.address = side.device.local_address(self.listener).unwrap();
        side
    }

    /// Ends the device of a loop, and opens another one in its place.
    pub(crate) fn begin_again(&mut self, side: usize, seat: &LoopSeat) {
        let mut other = Self::new();
        self.sides[side] = other.sides.swap_remove(CLIENT);
        self.sides[side] = self.serving(side, Some(seat));
    }

    pub(crate) fn device(&mut self, side: usize) -> &mut dyn Device {
        &mut *self.sides[side].device
    }

    pub(crate) fn counters(&self, side: usize) -> Counters {
        self.sides[side].device.counters()
    }

    /// Polls both devices.
    pub(crate) fn step(&mut self) {
        for Side { device, events } in &mut self.sides {
            device.poll(Time::now(), events);
        }
    }

    /// Arms a side, so that the next event wakes it. Has no effect while busy-polling.
    pub(crate) fn fall_asleep(&mut self, side: usize) {
        let Side { device, events } = &mut self.sides[side];
        while !self.busy && !device.arm() {
            device.poll(Time::now(), events);
        }
    }

    /// Sleeps until an event occurs, or until `deadline`.
    pub(crate) fn sleep(&mut self, deadline: Instant) {
        let mut until = deadline.saturating_duration_since(Instant::now());
        for side in &mut self.sides {
            if self.busy || !side.device.arm() {
                return;
            }
            if let Some(at) = side.device.next_deadline() {
                until = until.min(at.since(Time::now()) + Duration::from_millis(1));
            }
        }
        let mut ready = mio::Events::with_capacity(64);
        self.poll.poll(&mut ready, Some(until)).unwrap();
        for event in ready.iter().filter(|event| event.token() != WAKE) {
            let token = event.token().0;
            let closed = event.is_read_closed() || event.is_error();
            let device = &mut self.sides[token / TOKENS].device;
            device.ready(token % TOKENS, closed);
        }
    }

    /// Waits for the first event of a side for which `take` returns a value. Earlier events are
    /// kept.
    pub(crate) fn wait<T>(
        &mut self,
        side: usize,
        mut take: impl FnMut(&mut Event) -> Option<T>,
    ) -> T {
        let (_, taken) = self.wait_at(side..side + 1, |_, event| take(event));
        taken
    }

    /// Waits like [`World::wait`] for an event of one of several sides, and returns which as well.
    pub(crate) fn wait_at<T>(
        &mut self,
        sides: Range<usize>,
        mut take: impl FnMut(usize, &mut Event) -> Option<T>,
    ) -> (usize, T) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.step();
            let mut found = None;
            for side in sides.clone() {
                for (at, event) in self.sides[side].events.iter_mut().enumerate() {
                    if found.is_none()
                        && let Some(taken) = take(side, event)
                    {
                        found = Some((side, at, taken));
                    }
                }
            }
            if let Some((side, at, taken)) = found {
                self.sides[side].events.remove(at);
                return (side, taken);
            }
            let events = self.sides[sides.clone()].iter().map(|side| &side.events);
            assert!(
                Instant::now() < deadline,
                "nothing came; there is {:?}",
                events.collect::<Vec<_>>()
            );
            self.sleep(deadline);
        }
    }

    pub(crate) fn requested(&mut self) -> ConnectRequest {
        let anything = |event: &mut Event| match event {
            Event::ConnectRequest(request) => Some(ConnectRequest {
                private_data: request.private_data.clone(),
                ..*request
            }),
            _ => None,
        };
        self.wait(SERVER, anything)
    }

    pub(crate) fn established(&mut self, side: usize, qp: QpId) -> Bytes {
        self.wait(side, |event| match event {
            Event::Established {
                qp: one,
                private_data,
            } if *one == qp => Some(private_data.clone()),
            _ => None,
        })
    }

    pub(crate) fn disconnected(&mut self, side: usize, qp: QpId) -> Disconnect {
        self.wait(side, |event| match event {
            Event::Disconnected { qp: one, reason } if *one == qp => Some(reason.clone()),
            _ => None,
        })
    }

    /// Waits for the next completion of a queue pair.
    pub(crate) fn completed(&mut self, side: usize, qp: QpId) -> (WrId, Result<Success, Failed>) {
        self.wait(side, |event| match event {
            Event::Completion(done) if done.qp == qp => {
                let nothing = Failed {
                    error: WorkError::Flushed,
                    buf: None,
                };
                Some((done.id, std::mem::replace(&mut done.result, Err(nothing))))
            }
            _ => None,
        })
    }

    /// Waits for the completion of one request. Earlier events are kept.
    pub(crate) fn done(&mut self, side: usize, qp: QpId, id: u64) -> Result<Success, Failed> {
        self.wait(side, |event| match event {
            Event::Completion(Completion {
                qp: one,
                id: of,
                result,
            }) if (*one, *of) == (qp, WrId(id)) => {
                let nothing = Failed {
                    error: WorkError::Flushed,
                    buf: None,
                };
                Some(std::mem::replace(result, Err(nothing)))
            }
            _ => None,
        })
    }

    /// Returns a connected pair of queue pairs, the client's first. Both sides have `receives`
    /// buffers of `len` bytes posted, with `wr_id`s from 1000.
    pub(crate) fn connected(&mut self, receives: u64, len: usize) -> [QpId; 2] {
        let (client, side, request) = self.connecting(receives, len);
        let server = self.device(side).prepare_accept(request, None).unwrap();
        self.post_receives(side, server, receives, len);
        self.accept(client, side, server);
        [client, server]
    }

    /// Starts a connection whose client's side has buffers posted as [`World::connected`] says. Returns
    /// the client's queue pair, and the side of the loop that was asked and its request.
    pub(crate) fn connecting(&mut self, receives: u64, len: usize) -> (QpId, usize, RequestId) {
        let address = self.address;
        let connecting = self.device(CLIENT).connect(address, &connect_options(b""));
        let client = connecting.unwrap();
        self.post_receives(CLIENT, client, receives, len);
        let (side, request) = self.wait_at(SERVER..self.sides.len(), |_, event| match event {
            Event::ConnectRequest(request) => Some(request.request),
            _ => None,
        });
        (client, side, request)
    }

    /// Accepts a connection that is prepared, and waits until both ends have it.
    pub(crate) fn accept(&mut self, client: QpId, side: usize, server: QpId) {
        let accepted = self.device(side).accept(server, &accept_options(b""));
        accepted.unwrap();
        self.established(CLIENT, client);
        self.established(side, server);
    }

    pub(crate) fn post_receives(&mut self, side: usize, qp: QpId, count: u64, len: usize) {
        for id in 0..count {
            let buf = self.device(side).pool().alloc(len).unwrap();
            self.device(side)
                .post_receive(qp, WrId(1000 + id), buf.into())
                .unwrap();
        }
    }

    /// Returns memory of a side's pool whose contents depend on `seed`.
    pub(crate) fn filled(&mut self, side: usize, len: usize, seed: u8) -> Buf {
        let mut buf = self.device(side).pool().alloc(len).unwrap();
        for (n, byte) in buf.iter_mut().enumerate() {
            *byte = pattern(n, seed);
        }
        buf
    }

    pub(crate) fn send(&mut self, side: usize, qp: QpId, id: u64, gather: &[Bytes]) {
        let wr = SendWr::Send {
            gather: gather.iter().cloned().collect(),
            invalidate: None,
        };
        self.device(side).post_send(qp, WrId(id), wr, true).unwrap();
    }

    pub(crate) fn send_invalidating(&mut self, side: usize, qp: QpId, stag: Stag) {
        let wr = SendWr::Send {
            gather: std::iter::once(Bytes::from_static(b"done with it")).collect(),
            invalidate: Some(stag),
        };
        self.device(side).post_send(qp, WrId(1), wr, false).unwrap();
    }

    pub(crate) fn read(&mut self, side: usize, qp: QpId, id: u64, from: RemoteSegment) {
        let sink = self
            .device(side)
            .pool()
            .alloc(from.length as usize)
            .unwrap();
        let wr = SendWr::Read {
            sink,
            stag: from.stag,
            offset: from.offset,
        };
        self.device(side).post_send(qp, WrId(id), wr, true).unwrap();
    }

    pub(crate) fn write(&mut self, side: usize, qp: QpId, id: u64, data: Bytes, to: RemoteSegment) {
        let wr = SendWr::Write {
            gather: std::iter::once(data).collect(),
            stag: to.stag,
            offset: to.offset,
        };
        self.device(side).post_send(qp, WrId(id), wr, true).unwrap();
    }

    pub(crate) fn register(&mut self, side: usize, qp: QpId, region: Region) -> RemoteSegment {
        let registered = self.device(side).register(qp, region);
        registered.map_err(|(error, _)| error).unwrap()
    }

    /// Sends a message from one side to the other and back, so that everything before it has
    /// arrived.
    pub(crate) fn message(&mut self, from: usize, qps: [QpId; 2], text: &'static [u8]) {
        self.send(from, qps[from], 77, &[Bytes::from_static(text)]);
        let got = self.receive(1 - from, qps[1 - from]);
        assert_eq!(got, text);
    }

    /// Waits for the next message.
    pub(crate) fn receive(&mut self, side: usize, qp: QpId) -> Bytes {
        self.receive_with(side, qp).0
    }

    pub(crate) fn receive_with(&mut self, side: usize, qp: QpId) -> (Bytes, Option<Stag>) {
        self.wait(side, |event| match event {
            Event::Completion(done) if done.qp == qp && done.id.0 >= 1000 => {
                let nothing = Failed {
                    error: WorkError::Flushed,
                    buf: None,
                };
                match std::mem::replace(&mut done.result, Err(nothing)) {
                    Ok(Success::Receive { buf, invalidated }) => {
                        Some((Bytes::from(buf.to_vec()), invalidated))
                    }
                    other => panic!("no message: {other:?}"),
                }
            }
            _ => None,
        })
    }

    /// Ends a connection from the client's side and frees both ends.
    pub(crate) fn close(&mut self, qps: [QpId; 2]) {
        self.close_with(SERVER, qps);
    }

    /// Ends a connection with the loop of this side, like [`World::close`].
    pub(crate) fn close_with(&mut self, side: usize, [client, server]: [QpId; 2]) {
        self.device(CLIENT).disconnect(client);
        assert_eq!(self.disconnected(CLIENT, client), Disconnect::Local);
        self.disconnected(side, server);
        self.device(CLIENT).destroy(client);
        self.device(side).destroy(server);
    }

    /// Checks that no memory of the pools is in use, so that no request or registration holds any,
    /// and that the devices hold no registrations for connections.
    pub(crate) fn assert_nothing_held(&mut self) {
        for side in &mut self.sides {
            side.events.clear();
            assert_eq!(side.device.pool().in_use(), 0);
            assert_eq!(side.device.held(), 0);
        }
    }
}

pub(crate) fn pattern(n: usize, seed: u8) -> u8 {
    (n as u8).wrapping_mul(31).wrapping_add((n >> 8) as u8) ^ seed
}

/// Returns a part of the peer's offered memory.
pub(crate) fn part(of: RemoteSegment, from: u64, length: u32) -> RemoteSegment {
    RemoteSegment {
        offset: of.offset + from,
        length,
        ..of
    }
}
