//! A client with any number of connections, and NULL calls on them.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hostile::{Wrong, wrong};
use iwarp::{Iwarp, Options};
use onc_rpc::{Message, Segments};
use rdma::{Pool, Time};
use rpc_transport::rdma::{Choice, RdmaClient, RdmaClientOptions, Version};
use rpc_transport::{
    ClientTransport, ClientTransportEvent, ConnectionId, PollLoop, PollSource, ReplyRoom,
    TcpClient, TcpOptions,
};
use rpcrdma_protocols::RoundTripFeatures;

/// The number of connections that are being made at a time.
const AT_A_TIME: usize = 64;
/// The memory of the client, bytes.
const MEMORY: usize = 6 << 30;

/// A client and its connections.
pub(crate) struct Client {
    port: Rc<RefCell<dyn ClientTransport>>,
    poll: PollLoop,
    connections: Vec<ConnectionId>,
    /// The number of connections on which calls are made, and the next of them.
    used: usize,
    next: usize,
    xid: u32,
}

impl Client {
    /// Returns a client with this number of RDMA connections to a server.
    pub(crate) fn connect(server: SocketAddr, count: usize) -> Result<Self, Wrong> {
        let mut options = RdmaClientOptions::new(rpcrdma_protocols::base());
        options.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().map_err(wrong)?);
        Self::over_rdma(options, server, count)
    }

    /// Connects with a version of RPC-over-RDMA, without features for fewer round trips. With them, so
    /// many connections would need more memory at the client than there is.
    pub(crate) fn connect_speaking(
        version: Version,
        server: SocketAddr,
        count: usize,
    ) -> Result<Self, Wrong> {
        let mut options = RdmaClientOptions {
            version: Choice::Only(version),
            ..RdmaClientOptions::new(rpcrdma_protocols::base())
        };
        options.common.protocols = rpcrdma_protocols::standard(&RoundTripFeatures::default());
        Self::over_rdma(options, server, count)
    }

    fn over_rdma(
        client: RdmaClientOptions,
        server: SocketAddr,
        count: usize,
    ) -> Result<Self, Wrong> {
        let options = Options {
            max_connections: count + AT_A_TIME,
            ..Options::default()
        };
        let device = Iwarp::new(options, Pool::new(MEMORY)).map_err(wrong)?;
        Self::over(RdmaClient::new(Box::new(device), client), server, count)
    }

    /// Returns a client with this number of connections over TCP to a server.
    pub(crate) fn connect_tcp(server: SocketAddr, count: usize) -> Result<Self, Wrong> {
        Self::over(TcpClient::new(TcpOptions::default()), server, count)
    }

    fn over(
        transport: impl ClientTransport + 'static,
        server: SocketAddr,
        count: usize,
    ) -> Result<Self, Wrong> {
        let port = Rc::new(RefCell::new(transport));
        let mut poll = PollLoop::new().map_err(wrong)?;
        poll.add(Rc::clone(&port) as Rc<RefCell<dyn PollSource>>)
            .map_err(wrong)?;
        let mut client = Self {
            port,
            poll,
            connections: Vec::new(),
            used: count,
            next: 0,
            xid: 0,
        };
        let mut begun = 0;
        while client.connections.len() < count {
            while begun < count && begun - client.connections.len() < AT_A_TIME {
                client.port.borrow_mut().open(server, 0, Time::now());
                begun += 1;
            }
            match client.event()? {
                ClientTransportEvent::Connected(conn) => client.connections.push(conn),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(client)
    }

    /// Makes calls on this number of connections in turn from now on.
    pub(crate) fn in_turn(&mut self, count: usize) {
        (self.used, self.next) = (count, 0);
    }

    fn event(&mut self) -> Result<ClientTransportEvent, Wrong> {
        loop {
            if let Some(event) = self.port.borrow_mut().next_event() {
                return Ok(event);
            }
            if !self.poll.turn(Time::now()) {
                self.poll.wait(None);
            }
        }
    }

    /// Makes a NULL call, and waits for its reply.
    fn call(&mut self) -> Result<(), Wrong> {
        let conn = self.connections[self.next % self.used];
        self.next += 1;
        self.submit(conn);
        match self.event()? {
            ClientTransportEvent::Reply { xid, .. } if xid == self.xid => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a NULL call on the first connection, and waits for its reply.
    pub(crate) fn call_once(&mut self) -> Result<(), Wrong> {
        self.in_turn(1);
        self.call()
    }

    /// Makes this number of NULL calls on every connection, on `together` connections at the same
    /// time.
    pub(crate) fn burst(&mut self, calls: usize, together: usize) -> Result<(), Wrong> {
        let connections = self.connections.clone();
        for group in connections.chunks(together) {
            for conn in group {
                for _ in 0..calls {
                    self.submit(*conn);
                }
            }
            for _ in 0..group.len() * calls {
                match self.event()? {
                    ClientTransportEvent::Reply { .. } => {}
                    other => return Err(unexpected(&other)),
                }
            }
        }
        Ok(())
    }

    /// Makes NULL calls on all connections in turn until `done`. Connections that the server closes
    /// are left out. Returns the numbers of calls and of connections that are left.
    pub(crate) fn call_until(&mut self, done: impl Fn() -> bool) -> Result<(usize, usize), Wrong> {
        let mut calls = 0;
        while !done() {
            let conn = self.connections[self.next % self.connections.len()];
            self.next += 1;
            calls += 1;
            self.submit(conn);
            loop {
                match self.event()? {
                    ClientTransportEvent::Reply { conn: of, .. } if of == conn => break,
                    ClientTransportEvent::Disconnected { conn: gone, .. } => {
                        self.connections.retain(|other| *other != gone);
                        if gone == conn {
                            break;
                        }
                    }
                    other => return Err(unexpected(&other)),
                }
            }
        }
        Ok((calls, self.connections.len()))
    }

    fn submit(&mut self, conn: ConnectionId) {
        self.xid += 1;
        let (message, room) = (null(self.xid), ReplyRoom::default());
        let mut port = self.port.borrow_mut();
        port.submit(conn, self.xid, message, &room, Time::now());
    }

    /// Returns the median duration of a call: of so many rounds the median of their averages.
    pub(crate) fn median(&mut self, calls: usize, rounds: usize) -> Result<Duration, Wrong> {
        // The first calls on each connection do additional work.
        for _ in 0..self.used.max(calls / 10) {
            self.call()?;
        }
        let mut took = Vec::new();
        for _ in 0..rounds {
            let start = Instant::now();
            for _ in 0..calls {
                self.call()?;
            }
            took.push(start.elapsed() / u32::try_from(calls).map_err(wrong)?);
        }
        took.sort();
        Ok(took[rounds / 2])
    }
}

fn unexpected(event: &ClientTransportEvent) -> Wrong {
    wrong(format!("not expected: {event:?}"))
}

/// Returns a call of NFSv3's NULL (RFC 5531, section 9; RFC 1813, section 3.3.0).
fn null(xid: u32) -> Message {
    let (call, rpc_version, program, version, procedure) = (0, 2, 100_003, 3, 0);
    let no_credential = [0, 0];
    let no_verifier = [0, 0];
    let mut words = vec![xid, call, rpc_version, program, version, procedure];
    words.extend(no_credential);
    words.extend(no_verifier);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    Message::without_items(Segments::from_iter([Bytes::from(bytes)]))
}
