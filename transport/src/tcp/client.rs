//! A client's TCP connections.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use mio::net::TcpStream;
use onc_rpc::{CALL, Message, peek_start, peek_xid};
use rdma::trace::{Event, Tracer};
use rdma::{Poller, Pool, Time};

use super::connections::StreamSet;
use super::stream::StreamEnd;
use super::{MAX_QUEUED, TcpCounters, TcpOptions, prepare};
use crate::{
    CallError, ClientTransport, ClientTransportEvent, ConnectionId, ConnectionLost, PollSource,
    ReplyRoom, TransportStatistics,
};

/// The record of a call that is sent: there are no credits.
const SENT: Event = Event::Sent {
    in_flight: 0,
    granted: 0,
};
const ANSWERED: Event = Event::Answered {
    in_flight: 0,
    granted: 0,
};

/// A client transport for RPC over TCP.
pub struct TcpClient {
    set: StreamSet<Connection>,
    events: VecDeque<ClientTransportEvent>,
    /// The number of attempts that failed before they had a socket, used for their ids.
    failed_attempts: u64,
    /// Reused to save allocations; empty between polls.
    visits: Vec<usize>,
    /// The observer of calls on further connections.
    tracer: Option<Tracer>,
}

/// The transport's state of a connection.
struct Connection {
    connected: bool,
    /// The observer of its calls, if they are traced.
    tracer: Option<Tracer>,
    /// The calls of a trace that wait for the connection to be established.
    early: Vec<u32>,
}

impl Connection {
    /// Records that the calls that were made before the connection was established are sent now.
    fn trace_early(&mut self) {
        if let Some(tracer) = &self.tracer {
            for xid in std::mem::take(&mut self.early) {
                tracer.record(xid, SENT);
            }
        }
    }
}

/// The bit that is set in the ids of attempts without a socket, so that they differ from all other
/// ids.
const FAILED_ATTEMPT: u64 = 1 << 63;

impl TcpClient {
    /// Creates a transport without connections.
    #[must_use]
    pub fn new(options: TcpOptions) -> Self {
        Self {
            set: StreamSet::new(options),
            events: VecDeque::new(),
            failed_attempts: 0,
            visits: Vec::new(),
            tracer: None,
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> TcpCounters {
        self.set.counters
    }

    /// Returns what the transport has counted since its creation, and what it holds.
    #[must_use]
    pub fn statistics(&self) -> TransportStatistics {
        self.set.counters.statistics(self.set.len())
    }

    fn start(&mut self, remote: SocketAddr) -> io::Result<ConnectionId> {
        let congestion = self.set.options.congestion.as_ref();
        self.insert(rpcrdma_host::begin_connect(remote, congestion)?)
    }

    /// Starts to connect like [`ClientTransport::open`], from this port of the host. A connection that is
    /// closed is reset, so that the port is free for the next one at once.
    ///
    /// # Errors
    /// The error of the operating system; no event follows then. Another port may do: see
    /// [`rpcrdma_host::begin_connect_from`].
    pub fn open_from(&mut self, remote: SocketAddr, port: u16) -> io::Result<ConnectionId> {
        let congestion = self.set.options.congestion.as_ref();
        self.insert(rpcrdma_host::begin_connect_from(port, remote, congestion)?)
    }

    /// Returns this end's address of a connection that is established or being established.
    #[must_use]
    pub fn local_address_of(&self, conn: ConnectionId) -> Option<SocketAddr> {
        self.set.peek(conn)?.stream.socket.local_addr().ok()
    }

    fn insert(&mut self, socket: std::net::TcpStream) -> io::Result<ConnectionId> {
        let socket = TcpStream::from_std(socket);
        let pool = self.set.options.pool.clone();
        let connection = Connection {
            connected: false,
            tracer: self.tracer.clone(),
            early: Vec::new(),
        };
        self.set.insert(socket, connection, pool)
    }

    fn visit(&mut self, index: usize, now: Time) {
        let Some(member) = self.set.get(index) else {
            return;
        };
        let conn = member.id;
        if !member.extra.connected {
            match connected(&member.stream.socket) {
                Ok(false) => return,
                Ok(true) => {
                    member.extra.connected = true;
                    member.extra.trace_early();
                    member.stream.set_ready(false);
                    self.events.push_back(ClientTransportEvent::Connected(conn));
                }
                Err(error) => {
                    self.set.remove(index);
                    self.disconnected(conn, connect_reason(&error), true, false);
                    return;
                }
            }
        }
        let events = &mut self.events;
        let mut no_xid = false;
        let callbacks = self.set.options.callbacks;
        let deliver = |connection: &mut Connection, message: Message| {
            match peek_start(&message) {
                Some((xid, CALL)) if callbacks => events.push_back(ClientTransportEvent::Call {
                    conn,
                    token: u64::from(xid),
                    message,
                }),
                Some((xid, CALL)) => {
                    tracing::debug!(xid, "dropped a call from the server: none are taken");
                }
                _ => {
                    let Some(xid) = peek_xid(&message) else {
                        no_xid = true;
                        return false;
                    };
                    if let Some(tracer) = &connection.tracer {
                        tracer.record(xid, ANSWERED);
                    }
                    events.push_back(ClientTransportEvent::Reply { conn, xid, message });
                }
            }
            true
        };
        // If the server goes on calling and does not take the replies, stop reading from it.
        let may_receive = |_: &Connection, queued: usize| !callbacks || queued < MAX_QUEUED;
        match self.set.transfer(index, now, deliver, may_receive) {
            Ok(()) if no_xid => {
                self.set.remove(index);
                self.disconnected(conn, "a record too short for an XID".into(), false, true);
            }
            Ok(()) => {}
            Err(ended) => {
                self.set.remove(index);
                // A record that is too long would be as long after a reconnect.
                let retry = matches!(ended, StreamEnd::Eof | StreamEnd::Io(_));
                self.disconnected(conn, ended.to_string(), retry, true);
            }
        }
    }

    fn disconnected(
        &mut self,
        conn: ConnectionId,
        reason: String,
        retry: bool,
        was_established: bool,
    ) {
        let lost = ConnectionLost {
            reason,
            retry,
            busy: false,
            was_established,
        };
        self.events
            .push_back(ClientTransportEvent::Disconnected { conn, lost });
    }
}

/// Returns whether a connecting socket is connected by now.
fn connected(socket: &TcpStream) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => {
            prepare(socket)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

fn connect_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: nothing listens on that address and port".into()
        }
        io::ErrorKind::TimedOut => "no answer in time".into(),
        _ => error.to_string(),
    }
}

impl PollSource for TcpClient {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        self.set.attach(poller, 0);
        Ok(())
    }

    fn ready(&mut self, local: usize, closed: bool) {
        self.set.ready(local, closed);
    }

    fn poll(&mut self, now: Time) -> bool {
        let mut visits = std::mem::take(&mut self.visits);
        self.set.start(now, &mut visits);
        for index in visits.drain(..) {
            self.visit(index, now);
        }
        self.visits = visits;
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.events.is_empty() && self.set.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.set.next_deadline()
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.set.set_busy_poll(on);
    }
}

impl ClientTransport for TcpClient {
    fn open(&mut self, remote: SocketAddr, _next_xid: u32, _now: Time) -> ConnectionId {
        self.start(remote).unwrap_or_else(|error| {
            self.failed_attempts += 1;
            let conn = ConnectionId(FAILED_ATTEMPT | self.failed_attempts);
            self.disconnected(conn, connect_reason(&error), true, false);
            conn
        })
    }

    fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.tracer = tracer;
    }

    fn submit(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        _room: &ReplyRoom,
        now: Time,
    ) {
        let Some((index, member)) = self.set.find(conn) else {
            return;
        };
        if let Some(tracer) = &member.extra.tracer {
            match member.extra.connected {
                true => tracer.record(xid, SENT),
                false => member.extra.early.push(xid),
            }
        }
        if let Err(error) = self.set.send(index, xid, &message, now) {
            let error = CallError::TooLarge(error.to_string());
            self.events
                .push_back(ClientTransportEvent::Failed { conn, xid, error });
        }
    }

    fn cancel(&mut self, conn: ConnectionId, xid: u32) {
        if let Some((_, member)) = self.set.find(conn) {
            member.stream.unqueue(xid);
        }
    }

    fn reply(&mut self, conn: ConnectionId, _token: u64, message: Option<Message>, now: Time) {
        let Some((index, _)) = self.set.find(conn) else {
            return;
        };
        // Reading may have been stopped until now because too many replies were queued.
        self.set.mark(index);
        if let Some(message) = message
            && let Err(error) = self.set.reply(index, &message, now)
        {
            self.set.remove(index);
            let reason = format!("a reply to a callback cannot be sent: {error}");
            self.disconnected(conn, reason, true, true);
        }
    }

    fn pool(&self) -> &Pool {
        &self.set.options.pool
    }

    fn close(&mut self, conn: ConnectionId) {
        if let Some((index, _)) = self.set.find(conn) {
            self.set.remove(index);
        }
        self.events.retain(|event| event.conn() != conn);
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        self.events.pop_front()
    }
}

impl fmt::Debug for TcpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpClient")
            .field("connections", &self.set.len())
            .finish_non_exhaustive()
    }
}
