//! A client and a server transport over fake devices, which the test polls step by step.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub mod fabric;
#[path = "../../../connection/tests/support/messages.rs"]
mod messages;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use onc_rpc::Message;
use rdma::{Attributes, ConnectOptions, Device, Pool, QpId, Time};
use rpc_transport::rdma::{
    Choice, RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions, Version, Versions,
};
use rpc_transport::{
    CallError, ClientTransport, ClientTransportEvent, ConnectionId, ConnectionLost, PollSource,
    ReplyRoom, ServerTransport, ServerTransportEvent,
};

pub use messages::{data, message, open, reply, room};

use fabric::{FakeDevice, Traffic, World, address, attributes};

/// The pool limit of a test's devices, in bytes.
pub const POOL: usize = 1 << 30;

/// Returns the number of RDMA Reads and RDMA Writes.
pub fn explicit(world: &World) -> usize {
    let traffic = world.traffic.iter();
    let explicit = traffic.filter(|(_, what)| !matches!(what, Traffic::Send(..)));
    explicit.count()
}

/// Returns the total length of the short messages, which are copied out of their receives.
pub fn short(world: &World) -> u64 {
    const COPIED: usize = 256;
    let lengths = world.traffic.iter().map(|(_, what)| match what {
        Traffic::Send(bytes, _) => bytes.len(),
        Traffic::Read(_) | Traffic::Write(_) => 0,
    });
    lengths.filter(|&len| len <= COPIED).sum::<usize>() as u64
}

/// The outcome of a call.
#[derive(Debug)]
pub enum End {
    Reply(Message),
    Failed(CallError),
}

impl End {
    #[track_caller]
    pub fn reply(self) -> Message {
        match self {
            Self::Reply(message) => message,
            Self::Failed(error) => panic!("the call failed: {error}"),
        }
    }

    #[track_caller]
    pub fn error(self) -> CallError {
        match self {
            Self::Reply(_) => panic!("the call succeeded"),
            Self::Failed(error) => error,
        }
    }
}

/// Connects a further device to the server, for a test that plays its client. Returns its queue pair too.
pub fn bare(world: &Rc<RefCell<World>>) -> (FakeDevice, QpId) {
    let mut device = FakeDevice::new(world, attributes(), Pool::new(POOL));
    let options = ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
        timeout: Duration::from_secs(1),
        shared_receives: None,
    };
    let qp = device.connect(address(), &options).unwrap();
    (device, qp)
}

/// A function that returns the reply to a call.
pub type Answer = Box<dyn FnMut(&Message) -> Option<Message>>;

/// A client and a server transport, and their events.
pub struct Pair {
    pub client: RdmaClient,
    pub server: RdmaServer,
    pub address: SocketAddr,
    pub client_pool: Pool,
    pub server_pool: Pool,
    pub ended: HashMap<(ConnectionId, u32), End>,
    pub up: Vec<ConnectionId>,
    pub down: Vec<(ConnectionId, ConnectionLost)>,
    pub server_up: Vec<ConnectionId>,
    pub server_down: Vec<(ConnectionId, String)>,
    /// The reasons that the server's transport reported when its device was lost.
    pub server_lost: Vec<String>,
    /// Calls that were delivered to the server and that the test must answer.
    pub held: Vec<(ConnectionId, u64, Message)>,
    /// The function that answers calls. `None`: calls are kept in `held`.
    pub answer: Option<Answer>,
    /// The outcomes of callbacks, at the server.
    pub called_back: HashMap<(ConnectionId, u32), End>,
    /// Callbacks that were delivered to the client and that the test must answer.
    pub held_back: Vec<(ConnectionId, u64, Message)>,
    /// The function that answers callbacks. `None`: they are kept in `held_back`.
    pub answer_back: Option<Answer>,
    start: Instant,
    /// The time by which the test has advanced the clock.
    pub ahead: Duration,
}

/// Returns options for version 1 at both ends, otherwise the defaults.
pub fn options() -> (RdmaClientOptions, RdmaServerOptions) {
    speaking(Choice::Only(Version::ONE), Versions::only(Version::ONE))
}

/// Returns options for these versions, otherwise the defaults.
pub fn speaking(client: Choice, server: Versions) -> (RdmaClientOptions, RdmaServerOptions) {
    let (mut options, mut server_options) = (
        RdmaClientOptions::new(rpcrdma_protocols::base()),
        RdmaServerOptions::new(rpcrdma_protocols::base()),
    );
    options.version = client;
    server_options.versions = server;
    (options, server_options)
}

impl Pair {
    /// Returns a pair over fake devices with the default options.
    pub fn fake() -> (Rc<RefCell<World>>, Self) {
        let (client, server) = options();
        Self::fake_with(client, server, attributes())
    }

    pub fn fake_with(
        client: RdmaClientOptions,
        server: RdmaServerOptions,
        attributes: Attributes,
    ) -> (Rc<RefCell<World>>, Self) {
        let world = World::new();
        let client_device = FakeDevice::new(&world, attributes.clone(), Pool::new(POOL));
        let server_device = FakeDevice::new(&world, attributes, Pool::new(POOL));
        let pair = Self::new(
            Box::new(client_device),
            client,
            Box::new(server_device),
            server,
            address(),
        );
        (world, pair)
    }

    /// Returns a pair over fake devices that is connected, and whose server echoes calls.
    #[track_caller]
    pub fn echoing(
        client: RdmaClientOptions,
        server: RdmaServerOptions,
    ) -> (Rc<RefCell<World>>, Self, ConnectionId) {
        let (world, mut pair) = Self::fake_with(client, server, attributes());
        pair.echo();
        let conn = pair.connect();
        (world, pair, conn)
    }

    pub fn new(
        client_device: Box<dyn Device>,
        client: RdmaClientOptions,
        server_device: Box<dyn Device>,
        server: RdmaServerOptions,
        listen: SocketAddr,
    ) -> Self {
        let (client_pool, server_pool) =
            (client_device.pool().clone(), server_device.pool().clone());
        let mut server = RdmaServer::new(server_device, server);
        let address = server.listen(listen).unwrap();
        Self {
            client: RdmaClient::new(client_device, client),
            server,
            address,
            client_pool,
            server_pool,
            ended: HashMap::new(),
            up: Vec::new(),
            down: Vec::new(),
            server_up: Vec::new(),
            server_down: Vec::new(),
            server_lost: Vec::new(),
            held: Vec::new(),
            answer: None,
            called_back: HashMap::new(),
            held_back: Vec::new(),
            answer_back: None,
            start: Instant::now(),
            ahead: Duration::ZERO,
        }
    }

    pub fn now(&self) -> Time {
        Time::from_nanos((self.start.elapsed() + self.ahead).as_nanos() as u64)
    }

    /// Polls both ends once. Returns whether anything happened.
    pub fn step(&mut self) -> bool {
        let now = self.now();
        self.server.poll(now);
        let mut busy = false;
        while let Some(event) = self.server.next_event() {
            busy = true;
            match event {
                ServerTransportEvent::Connected { conn, .. } => self.server_up.push(conn),
                ServerTransportEvent::Disconnected { conn, reason } => {
                    self.server_down.push((conn, reason))
                }
                ServerTransportEvent::Lost { reason } => self.server_lost.push(reason),
                ServerTransportEvent::Call {
                    conn,
                    token,
                    message,
                } => match &mut self.answer {
                    Some(answer) => {
                        let reply = answer(&message);
                        self.server.reply(conn, token, reply, now);
                    }
                    None => self.held.push((conn, token, message)),
                },
                ServerTransportEvent::Reply { conn, xid, message } => {
                    let earlier = self.called_back.insert((conn, xid), End::Reply(message));
                    assert!(earlier.is_none(), "callback {xid} ended twice");
                }
                ServerTransportEvent::Failed { conn, xid, error } => {
                    let earlier = self.called_back.insert((conn, xid), End::Failed(error));
                    assert!(earlier.is_none(), "callback {xid} ended twice");
                }
            }
        }
        self.client.poll(now);
        while let Some(event) = self.client.next_event() {
            busy = true;
            match event {
                ClientTransportEvent::Connected(conn) => self.up.push(conn),
                ClientTransportEvent::Disconnected { conn, lost } => self.down.push((conn, lost)),
                ClientTransportEvent::Reply { conn, xid, message } => {
                    let earlier = self.ended.insert((conn, xid), End::Reply(message));
                    assert!(earlier.is_none(), "call {xid} ended twice");
                }
                ClientTransportEvent::Failed { conn, xid, error } => {
                    let earlier = self.ended.insert((conn, xid), End::Failed(error));
                    assert!(earlier.is_none(), "call {xid} ended twice");
                }
                ClientTransportEvent::Call {
                    conn,
                    token,
                    message,
                } => match &mut self.answer_back {
                    Some(answer) => {
                        let reply = answer(&message);
                        self.client.reply(conn, token, reply, now);
                    }
                    None => self.held_back.push((conn, token, message)),
                },
            }
        }
        busy
    }

    /// Polls both ends until `done` returns true.
    #[track_caller]
    pub fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.step();
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "nothing comes of it"
            );
        }
    }

    /// Polls both ends until nothing more happens.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            self.step();
        }
    }

    #[track_caller]
    pub fn connect(&mut self) -> ConnectionId {
        let conn = self.client.open(self.address, 0, self.now());
        let before = self.server_up.len();
        self.until(|pair| pair.up.contains(&conn) && pair.server_up.len() > before);
        conn
    }

    pub fn submit(&mut self, conn: ConnectionId, message: Message, room: &ReplyRoom) {
        let (xid, ..) = open(&message);
        self.client.submit(conn, xid, message, room, self.now());
    }

    /// Makes a call and waits for its end.
    #[track_caller]
    pub fn call(&mut self, conn: ConnectionId, message: Message, room: &ReplyRoom) -> End {
        let (xid, ..) = open(&message);
        self.submit(conn, message, room);
        self.until(|pair| pair.ended.contains_key(&(conn, xid)));
        self.ended.remove(&(conn, xid)).unwrap()
    }

    pub fn answer_with(&mut self, answer: impl FnMut(&Message) -> Option<Message> + 'static) {
        self.answer = Some(Box::new(answer));
    }

    /// Makes calls with and without items, short and long in both directions, which the server echoes.
    #[track_caller]
    pub fn every_shape(&mut self, conn: ConnectionId) {
        let mut xid = 0;
        for words in [0, 1, 900, 1011, 1015, 1016, 1020, 5000] {
            for lens in [
                &[][..],
                &[1],
                &[3000],
                &[4096],
                &[8192],
                &[1 << 20],
                &[5000, 3, 70_000],
            ] {
                xid += 1;
                let items: Vec<Bytes> = lens.iter().map(|&len| data(xid, len)).collect();
                let end = self.call(conn, message(xid, words, &items), &room(words, lens));
                let seen = open(&end.reply());
                assert_eq!(seen, (xid, words, items), "{words} words, {lens:?}");
            }
        }
    }

    /// Makes the server answer calls with their own content.
    pub fn echo(&mut self) {
        self.answer_with(|call| {
            let (xid, words, items) = open(call);
            Some(reply(xid, words, &items))
        });
    }
}
