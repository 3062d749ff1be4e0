//! A server's TCP connections.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use onc_rpc::{Message, REPLY, peek_start};
use rdma::{Carrier, Interest, Poller, Pool, Time};
use rpcrdma_host::{Account, Charge, LoopClaim, PER_CALL};

use super::connections::StreamSet;
use super::{MAX_QUEUED, TcpCounters, TcpOptions, prepare};
use crate::poll_loop::earlier;
use crate::{
    CallError, ConnectionId, PollSource, ReplyRoom, ServerTransport, ServerTransportEvent,
    TransportStatistics,
};

/// The listener's token. Connections have the tokens after it.
const LISTENER: usize = 0;
/// The maximum number of connections accepted in a row.
const BURST: usize = 64;
/// The pause before accepting again after the system ran out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The pause before accepting again when the maximum number of connections is reached and the owner
/// has not handled all events. It may close connections to make room.
const FULL_PAUSE: Duration = Duration::from_millis(2);
/// The maximum number of cancelled calls to one client whose replies may still come. A client that answers none
/// must not take memory for all of them.
const MAX_CANCELLED: usize = 4096;

/// A server transport that listens on one TCP address.
pub struct TcpServer {
    set: StreamSet<Connection>,
    listener: TcpListener,
    local: SocketAddr,
    events: VecDeque<ServerTransportEvent>,
    /// Whether there may be connections to accept.
    acceptable: bool,
    accept_at: Option<Time>,
    /// How often this loop had been told to accept at the last poll ([`rpcrdma_host::LoopSeat::turns`]).
    turns: usize,
    /// Reused to save allocations; empty between polls.
    visits: Vec<usize>,
}

/// The transport's state of a connection.
struct Connection {
    peer: SocketAddr,
    /// The number of calls that were delivered and not answered, and the memory that is reserved
    /// for their replies.
    outstanding: usize,
    calls: Charge,
    /// The memory account of the connection.
    account: Account,
    next_token: u64,
    /// The XIDs of calls to the client whose replies are awaited. Each is answered once at most. The connection
    /// is closed for other replies, except those to cancelled calls.
    called: HashSet<u32>,
    /// The XIDs of the latest calls to the client that were cancelled after they had been sent, oldest first. Their
    /// replies are dropped.
    cancelled: VecDeque<u32>,
    /// Whether the connection ends when its replies have left ([`ServerTransport::finish`]). Until the peer
    /// closes it too, what arrives is read and dropped: a socket that is closed with unread bytes makes the
    /// peer lose replies that it has not read.
    finishing: bool,
    /// Counts the connection for this loop.
    _claim: Option<LoopClaim>,
}

impl Connection {
    fn new(peer: SocketAddr, account: Account, claim: Option<LoopClaim>) -> Self {
        Self {
            peer,
            _claim: claim,
            outstanding: 0,
            calls: Charge::new(Some(account.clone())),
            account,
            next_token: 0,
            called: HashSet::new(),
            cancelled: VecDeque::new(),
            finishing: false,
        }
    }

    /// Returns whether another call may be taken while `queued` bytes wait to be sent to the peer.
    /// One call at a time may always be taken. While replies to callbacks are awaited, the number of calls is no
    /// limit: their jobs may wait for these replies, which arrive behind further calls.
    fn takes_another(&self, max_calls: usize, queued: usize) -> bool {
        (self.outstanding == 0 && queued == 0)
            || ((self.outstanding < max_calls || !self.called.is_empty())
                && queued < MAX_QUEUED
                && self.account.room() >= PER_CALL)
    }
}

impl TcpServer {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn bind(address: SocketAddr, options: TcpOptions) -> io::Result<Self> {
        Self::with(TcpListener::bind(address)?, options)
    }

    /// Accepts connections from a socket that listens already, perhaps for several loops.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn listening(socket: std::net::TcpListener, options: TcpOptions) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::with(TcpListener::from_std(socket), options)
    }

    fn with(listener: TcpListener, options: TcpOptions) -> io::Result<Self> {
        rpcrdma_host::lengthen_backlog(&listener);
        if let Some(congestion) = &options.congestion {
            congestion.set(&listener)?;
        }
        Ok(Self {
            local: listener.local_addr()?,
            listener,
            set: StreamSet::new(options),
            events: VecDeque::new(),
            acceptable: true,
            accept_at: None,
            turns: 0,
            visits: Vec::new(),
        })
    }

    /// Returns the local address, with the actual port if `bind` was given port 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> TcpCounters {
        self.set.counters
    }

    fn accept(&mut self, now: Time) {
        for _ in 0..BURST {
            if self.set.len() >= self.set.options.max_connections && !self.events.is_empty() {
                self.acceptable = false;
                self.accept_at = Some(now + FULL_PAUSE);
                return;
            }
            let accept = || self.listener.accept();
            let accepted = match &self.set.options.seat {
                Some(seat) => seat
                    .accept(accept)
                    .map(|accepted| accepted.map(|(accepted, claim)| (accepted, Some(claim)))),
                None => Some(accept().map(|accepted| (accepted, None))),
            };
            let Some(accepted) = accepted else {
                // It is the turn of another loop, which knows now.
                self.acceptable = false;
                return;
            };
            match accepted {
                Ok(((socket, peer), claim)) => self.take(socket, peer, claim),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.acceptable = false;
                    return;
                }
                // The peer closed the connection before it was accepted.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    rpcrdma_host::limited!(warn, %error, "cannot accept connections for now");
                    self.acceptable = false;
                    self.accept_at = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn take(&mut self, socket: TcpStream, peer: SocketAddr, claim: Option<LoopClaim>) {
        if self.set.len() >= self.set.options.max_connections {
            rpcrdma_host::limited!(warn, %peer, "too many connections: one more was closed");
            return;
        }
        let account = self.set.options.budget.account();
        let pool = self.set.options.pool.charged_to(&account);
        let connection = Connection::new(peer, account, claim);
        let inserted = prepare(&socket).and_then(|()| self.set.insert(socket, connection, pool));
        match inserted {
            Ok(conn) => {
                if let Some((index, member)) = self.set.find(conn) {
                    member.stream.set_ready(false);
                    self.set.mark(index);
                }
                self.events
                    .push_back(ServerTransportEvent::Connected { conn, peer });
            }
            Err(error) => rpcrdma_host::limited!(warn, %peer, %error, "cannot take a connection"),
        }
    }

    fn visit(&mut self, index: usize, now: Time) {
        let Some(member) = self.set.get(index) else {
            return;
        };
        let (conn, finishing) = (member.id, member.extra.finishing);
        let max_calls = self.set.options.max_calls.max(1);
        let events = &mut self.events;
        let deliver = |connection: &mut Connection, message: Message| {
            if let Some((xid, REPLY)) = peek_start(&message) {
                if connection.called.remove(&xid) {
                    events.push_back(ServerTransportEvent::Reply { conn, xid, message });
                    return true;
                }
                let mut cancelled = connection.cancelled.iter();
                if let Some(at) = cancelled.position(|&other| other == xid) {
                    connection.cancelled.remove(at);
                    return true;
                }
            }
            if connection.finishing {
                return true;
            }
            let token = connection.next_token;
            connection.next_token += 1;
            connection.outstanding += 1;
            connection.calls.add(PER_CALL);
            events.push_back(ServerTransportEvent::Call {
                conn,
                token,
                message,
            });
            connection.takes_another(max_calls, 0)
        };
        let may_receive =
            |connection: &Connection, queued: usize| connection.takes_another(max_calls, queued);
        if let Err(ended) = self.set.transfer(index, now, deliver, may_receive) {
            return self.end(index, conn, ended.to_string());
        }
        if finishing {
            self.shut(index, conn);
        }
    }

    /// Sends no more on a connection whose replies have left. Its end follows when the peer closes it too.
    #[cold]
    fn shut(&mut self, index: usize, conn: ConnectionId) {
        if let Some(member) = self.set.get(index)
            && member.stream.reply_bytes() == 0
            && let Err(error) = member.stream.socket.shutdown(Shutdown::Write)
        {
            self.end(index, conn, error.to_string());
        }
    }

    fn end(&mut self, index: usize, conn: ConnectionId, reason: String) {
        self.set.remove(index);
        // Calls that the owner has not taken cannot be answered any more. If they were kept, a client that connects
        // again and again would fill the memory of an owner that takes no events.
        self.events.retain(
            |event| !matches!(event, ServerTransportEvent::Call { conn: of, .. } if *of == conn),
        );
        self.events
            .push_back(ServerTransportEvent::Disconnected { conn, reason });
    }
}

impl PollSource for TcpServer {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        poller.watch(self.listener.as_fd(), LISTENER, Interest::Readable)?;
        self.set.attach(poller, LISTENER + 1);
        Ok(())
    }

    fn ready(&mut self, local: usize, closed: bool) {
        if local == LISTENER {
            self.set.interrupted();
            self.acceptable = true;
        } else {
            self.set.ready(local - LISTENER - 1, closed);
        }
    }

    fn poll(&mut self, now: Time) -> bool {
        self.acceptable |= self.accept_at.take_if(|at| *at <= now).is_some();
        if let Some(seat) = &self.set.options.seat {
            let turns = seat.turns();
            self.acceptable |= std::mem::replace(&mut self.turns, turns) != turns;
        }
        if self.acceptable {
            self.accept(now);
        }
        let mut visits = std::mem::take(&mut self.visits);
        self.set.start(now, &mut visits);
        for index in visits.drain(..) {
            self.visit(index, now);
        }
        self.visits = visits;
        for (index, stalled) in self.set.stalled(now) {
            if let Some(member) = self.set.get(index) {
                let (conn, peer) = (member.id, member.extra.peer);
                let reason = stalled.to_string();
                rpcrdma_host::limited!(warn, %peer, reason, "closing the connection");
                self.end(index, conn, reason);
            }
        }
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.events.is_empty() && self.arm_without_owner()
    }

    fn arm_without_owner(&mut self) -> bool {
        !self.acceptable && self.set.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        let stalled = self.set.stalled_at();
        earlier(earlier(self.accept_at, stalled), self.set.next_deadline())
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.set.set_busy_poll(on);
    }
}

impl ServerTransport for TcpServer {
    fn reply(&mut self, conn: ConnectionId, _token: u64, message: Option<Message>, now: Time) {
        let Some((index, member)) = self.set.find(conn) else {
            return;
        };
        let Connection {
            outstanding, calls, ..
        } = &mut member.extra;
        *outstanding = outstanding.saturating_sub(1);
        calls.sub(PER_CALL);
        // Reading may have been stopped until now because too many calls or replies were
        // outstanding.
        self.set.mark(index);
        if let Some(message) = message
            && let Err(error) = self.set.reply(index, &message, now)
        {
            rpcrdma_host::limited!(error, %error, "a reply cannot be sent: closing its connection");
            self.end(index, conn, error.to_string());
        }
    }

    fn call(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        _room: &ReplyRoom,
        now: Time,
    ) -> Result<(), CallError> {
        if !self.set.options.callbacks {
            let why = "this server makes none".to_owned();
            return Err(CallError::NoCallbacks(why));
        }
        let Some((index, member)) = self.set.find(conn) else {
            let reason = "the connection has ended".to_owned();
            return Err(CallError::Disconnected { reason });
        };
        member.extra.called.insert(xid);
        let sent = self.set.send(index, xid, &message, now);
        sent.map_err(|error| {
            if let Some((_, member)) = self.set.find(conn) {
                member.extra.called.remove(&xid);
            }
            CallError::TooLarge(error.to_string())
        })
    }

    fn cancel_call(&mut self, conn: ConnectionId, xid: u32) {
        if let Some((_, member)) = self.set.find(conn)
            && member.extra.called.remove(&xid)
            && !member.stream.unqueue(xid)
        {
            let cancelled = &mut member.extra.cancelled;
            if cancelled.len() == MAX_CANCELLED {
                cancelled.pop_front();
            }
            cancelled.push_back(xid);
        }
    }

    fn close(&mut self, conn: ConnectionId) {
        if let Some((index, _)) = self.set.find(conn) {
            self.set.remove(index);
        }
        self.events.retain(|event| match event {
            ServerTransportEvent::Connected { conn: other, .. }
            | ServerTransportEvent::Call { conn: other, .. }
            | ServerTransportEvent::Reply { conn: other, .. }
            | ServerTransportEvent::Failed { conn: other, .. }
            | ServerTransportEvent::Disconnected { conn: other, .. } => *other != conn,
            ServerTransportEvent::Lost { .. } => true,
        });
    }

    fn finish(&mut self, conn: ConnectionId, _: Time) -> bool {
        let Some((index, member)) = self.set.find(conn) else {
            return true;
        };
        let has_sent = member.stream.reply_bytes() == 0;
        if !std::mem::replace(&mut member.extra.finishing, true) {
            self.set.mark(index);
        }
        has_sent
    }

    fn pool(&self, conn: ConnectionId) -> Pool {
        let pool = &self.set.options.pool;
        match self.set.peek(conn) {
            Some(member) => pool.charged_to(&member.extra.account),
            None => pool.clone(),
        }
    }

    fn carrier(&self, conn: ConnectionId) -> Carrier {
        match self.set.peek(conn) {
            Some(member) => {
                let socket = &member.stream.socket;
                Carrier::tcp(socket.local_addr(), socket.peer_addr())
            }
            None => Carrier::Ended,
        }
    }

    fn statistics(&self) -> TransportStatistics {
        self.set.counters.statistics(self.set.len())
    }

    fn is_rdma(&self) -> bool {
        false
    }

    fn next_event(&mut self) -> Option<ServerTransportEvent> {
        self.events.pop_front()
    }
}

impl fmt::Debug for TcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpServer")
            .field("local", &self.local)
            .field("connections", &self.set.len())
            .finish_non_exhaustive()
    }
}
