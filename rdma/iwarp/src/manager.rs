//! The connection manager: listening, connecting, accepting, ending.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::Bytes;
use mio::net::{TcpListener, TcpStream};

use super::conn::{Conn, Phase};
use super::mpa::{ENHANCED, MAX_PRIVATE_DATA};
use super::setup::Wants;
use super::socket;
use super::state::{Listener, Slot, State, index_of, unwatch};
use rdma::{
    AcceptOptions, Carrier, ConnectError, ConnectOptions, DeviceError, Event, ListenerId, QpId,
    RequestId, SharedReceivesId, Time,
};
use rpcrdma_host::{LoopClaim, LoopSeat};

/// Maximum number of connections that wait for a Request Frame. If there are so many, or at the limit of
/// all connections if none drains, the oldest is closed for a new one (RFC 5044, section 7.1.2,
/// rule 10 mentions such peers).
const MAX_HALF_OPEN: usize = 256;
/// Number of connections accepted in a row before other connections get their turn.
const ACCEPT_TURN: usize = 64;
/// Time after which accepting is tried again if the system cannot provide another socket.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl State {
    pub(super) fn listen(&mut self, address: SocketAddr) -> io::Result<ListenerId> {
        let socket = self.listening_socket(address)?;
        let make = |id| {
            let id = ListenerId(id);
            Slot::Listener(Listener { id, socket })
        };
        let index = self.insert(make)?;
        self.enqueue(index);
        match self.slots.get(index) {
            Some(Slot::Listener(listener)) => Ok(listener.id),
            _ => Err(io::Error::other("the listener is gone")),
        }
    }

    /// Returns a handle to the socket of the options that has this address, or binds a new one.
    fn listening_socket(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let mut sockets = self.options.sockets.iter();
        let socket =
            match sockets.find(|socket| socket.local_addr().is_ok_and(|own| own == address)) {
                Some(socket) => TcpListener::from_std(socket.try_clone()?),
                None => TcpListener::bind(address)?,
            };
        rpcrdma_host::lengthen_backlog(&socket);
        if let Some(congestion) = &self.options.congestion {
            congestion.set(&socket)?;
        }
        Ok(socket)
    }

    /// Schedules the listeners if this loop was told to accept.
    pub(super) fn take_turn(&mut self) {
        let Some(turns) = self.options.seat.as_ref().map(LoopSeat::turns_within) else {
            return;
        };
        if std::mem::replace(&mut self.turns, turns) != turns {
            self.woken = true;
            self.enqueue_listeners();
        }
    }

    pub(super) fn enqueue_listeners(&mut self) {
        let listeners = self
            .slots
            .iter()
            .filter(|(_, slot)| matches!(slot, Slot::Listener(_)));
        self.ready.extend(listeners.map(|(index, _)| index));
    }

    pub(super) fn listener(&self, id: ListenerId) -> Option<(usize, &Listener)> {
        let index = index_of(id.0);
        match self.slots.get(index) {
            Some(Slot::Listener(listener)) if listener.id == id => Some((index, listener)),
            _ => None,
        }
    }

    pub(super) fn local_address(&self, id: ListenerId) -> Result<SocketAddr, DeviceError> {
        let (_, listener) = self.listener(id).ok_or(DeviceError::Unknown("listener"))?;
        let address = listener.socket.local_addr();
        address.map_err(|source| system("cannot tell the listener's address", source))
    }

    pub(super) fn carrier(&self, qp: QpId) -> Carrier {
        let conn = self.owned(qp).and_then(|index| self.conn(index));
        match conn.and_then(|conn| conn.socket.as_ref()) {
            Some(socket) => Carrier::tcp(socket.local_addr(), socket.peer_addr()),
            None => Carrier::Ended,
        }
    }

    pub(super) fn close_listener(&mut self, id: ListenerId) {
        if let Some((index, listener)) = self.listener(id) {
            if let Some(poller) = &self.poller {
                // Closing one handle to a socket that loops share does not end its registration.
                unwatch(poller, listener.socket.as_fd());
            }
            self.slots.remove(index);
        }
    }

    pub(super) fn close_listeners(&mut self) {
        let listeners = self.slots.iter().filter_map(|(_, slot)| match slot {
            Slot::Listener(listener) => Some(listener.id),
            Slot::Conn(_) => None,
        });
        let listeners: Vec<ListenerId> = listeners.collect();
        listeners.into_iter().for_each(|id| self.close_listener(id));
    }

    #[inline(never)]
    pub(super) fn accept_all(&mut self, index: usize, now: Time) {
        if self.busy
            && self
                .options
                .seat
                .as_ref()
                .is_some_and(|seat| !seat.is_next_within(self.options.max_connections))
        {
            // The other loop busy-polls its listeners too, so it need not be woken.
            return;
        }
        for _ in 0..ACCEPT_TURN {
            let Some(Slot::Listener(listener)) = self.slots.get(index) else {
                return;
            };
            let id = listener.id;
            let accept = || listener.socket.accept();
            let accepted = match &self.options.seat {
                Some(seat) => seat
                    .accept_within(self.options.max_connections, accept)
                    .map(|accepted| accepted.map(|(accepted, claim)| (accepted, Some(claim)))),
                None => Some(accept().map(|accepted| (accepted, None))),
            };
            let Some(accepted) = accepted else {
                // Another loop should accept the connection, and has been woken.
                return;
            };
            match accepted {
                Ok(((stream, peer), claim)) => self.accepted(id, stream, peer, claim, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted
                            | ErrorKind::ConnectionAborted
                            | ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => {
                    rpcrdma_host::limited!(warn, %error, "cannot accept a connection");
                    self.accept_again = Some(now + ACCEPT_AGAIN);
                    return;
                }
            }
        }
        self.enqueue(index);
    }

    pub(super) fn accepted(
        &mut self,
        listener: ListenerId,
        stream: TcpStream,
        peer: SocketAddr,
        mut claim: Option<LoopClaim>,
        now: Time,
    ) {
        if let Some(claim) = &mut claim {
            // Set before the oldest half-open connection is closed: if the count fell to 0 in between, another
            // loop at the limit would accept and then refuse a connection.
            claim.set_expendable(true);
        }
        let full = self.connections >= self.options.max_connections
            || claim.as_ref().is_some_and(LoopClaim::is_over_limit);
        if full && !self.close_oldest_draining() && !self.close_oldest_half_open(now) {
            // Refused before the connection is set up: a client that sees an established connection end
            // after its first message takes that for a sign that the server does not speak its version.
            rpcrdma_host::limited!(warn, %peer, "refused: too many connections");
            return;
        }
        if self.half_open.len() >= MAX_HALF_OPEN {
            self.close_oldest_half_open(now);
        }
        socket::prepare(&stream);
        let (limits, deadline) = (self.limits, now + self.options.setup_timeout);
        let make = |id| {
            let mut conn = Conn::responder(id, stream, peer, limits, listener, deadline);
            conn.claim = claim;
            Slot::Conn(Box::new(conn))
        };
        match self.insert(make) {
            Ok(index) => {
                self.timers.insert((deadline, index));
                if let Some(conn) = self.conn(index) {
                    self.half_open.push_back(conn.id);
                }
                self.with(index, now, Conn::progress);
            }
            Err(error) => rpcrdma_host::limited!(warn, %error, "cannot watch a connection"),
        }
    }

    /// Closes the connection that has waited for a Request Frame for longest, to make room for another one.
    /// Returns false if there is none.
    fn close_oldest_half_open(&mut self, now: Time) -> bool {
        while let Some(id) = self.half_open.pop_front() {
            let Some(index) = self.find(id) else {
                continue;
            };
            if let Some(Slot::Conn(conn)) = self.slots.get_mut(index) {
                conn.readable = true;
            }
            // The Request Frame may have arrived and not been read yet.
            self.with(index, now, Conn::progress);
            let phase = self.find(id).and_then(|index| self.conn(index));
            match phase.map(|conn| conn.phase) {
                Some(Phase::AwaitRequest) => {
                    self.with(index, now, |conn, _| conn.close());
                    return true;
                }
                Some(_) => {}
                None => return true,
            }
        }
        false
    }

    // ---- connecting ----

    /// Returns the parameters to ask the peer for, within the device's limits. At least one Read
    /// each way, because Linux refuses a connection without IRD or ORD.
    pub(super) fn wants(&self, inbound: u32, outbound: u32) -> Wants {
        let within = |asked: u32, limit: u32| super::depth(asked.min(limit));
        Wants {
            crc: self.options.crc == super::CrcPolicy::Request,
            inbound_reads: within(inbound, self.options.inbound_reads),
            outbound_reads: within(outbound, self.options.outbound_reads),
        }
    }

    pub(super) fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        check_private_data(&options.private_data)?;
        let head = self.shared_head(options.shared_receives)?;
        let is_full = self.connections >= self.options.max_connections;
        if is_full && self.half_open.is_empty() && !self.has_draining() {
            return Err(DeviceError::Limit("connections"));
        }
        let stream = match rpcrdma_host::begin_connect(remote, self.options.congestion.as_ref()) {
            Ok(stream) => TcpStream::from_std(stream),
            Err(error) => {
                let Some(failure) = refused_at_once(&error) else {
                    return Err(system(&format!("cannot connect to {remote}"), error));
                };
                // A failure that the system reports at once is delivered like one that the peer
                // reports.
                self.serial = self.serial.wrapping_add(1);
                let qp = QpId(u64::from(self.serial) << 32 | u64::from(u32::MAX));
                self.events
                    .push_back(Event::ConnectFailed { qp, error: failure });
                return Ok(qp);
            }
        };
        let wants = self.wants(options.inbound_reads, options.outbound_reads);
        let limits = self.limits;
        let make = |id| {
            let now = Time::now();
            let mut conn = Conn::initiator(id, stream, remote, limits, wants, options, now);
            if let Some(receives) = options.shared_receives {
                conn.endpoint.bind(receives, head);
            }
            Slot::Conn(Box::new(conn))
        };
        let index = self
            .insert(make)
            .map_err(|source| system("cannot watch a connection", source))?;
        // Only now: a connection that cannot be made must cost no peer its own.
        if is_full && !self.close_oldest_draining() && !self.close_oldest_half_open(Time::now()) {
            self.remove(index);
            return Err(DeviceError::Limit("connections"));
        }
        self.enqueue(index);
        let Some(conn) = self.conn(index) else {
            return Err(DeviceError::Unknown("connection"));
        };
        let (qp, deadline) = (conn.qp(), conn.deadline);
        self.timers.extend(deadline.map(|at| (at, index)));
        Ok(qp)
    }

    pub(super) fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        let index = self.requested(request.0)?;
        let head = self.shared_head(receives)?;
        if let Some(Slot::Conn(conn)) = self.slots.get_mut(index) {
            conn.owned = true;
            if let Some(receives) = receives {
                conn.endpoint.bind(receives, head);
            }
        }
        Ok(QpId(request.0))
    }

    pub(super) fn requested(&self, id: u64) -> Result<usize, DeviceError> {
        let unknown = DeviceError::Unknown("connection request");
        let index = self.find(id).ok_or(unknown)?;
        match self.conn(index) {
            Some(conn) if conn.phase == Phase::Requested && !conn.owned => Ok(index),
            _ => Err(DeviceError::Unknown("connection request")),
        }
    }

    pub(super) fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        check_private_data(&options.private_data)?;
        let index = self.owned(qp).ok_or(DeviceError::Unknown("queue pair"))?;
        if self
            .conn(index)
            .is_none_or(|conn| conn.phase != Phase::Requested)
        {
            return Err(DeviceError::Unknown("connection request"));
        }
        let wants = self.wants(options.inbound_reads, options.outbound_reads);
        self.with(index, Time::now(), |conn, cx| {
            conn.accept(options, &wants, cx)
        });
        Ok(())
    }

    pub(super) fn reject(&mut self, id: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        check_private_data(private_data)?;
        let index = self.requested(id.0)?;
        let private_data = Bytes::copy_from_slice(private_data);
        self.with(index, Time::now(), |conn, cx| conn.reject(private_data, cx));
        Ok(())
    }

    // ---- ending ----

    pub(super) fn disconnect(&mut self, qp: QpId) {
        if let Some(index) = self.owned(qp) {
            self.with(index, Time::now(), Conn::disconnect);
        }
    }

    pub(super) fn abort(&mut self, qp: QpId) {
        if let Some(index) = self.owned(qp) {
            self.with(index, Time::now(), Conn::abort);
        }
    }

    pub(super) fn destroy(&mut self, qp: QpId) {
        if let Some(index) = self.owned(qp) {
            self.with(index, Time::now(), Conn::destroy);
        }
        self.events.retain(|event| match event {
            Event::Established { qp: of, .. }
            | Event::ConnectFailed { qp: of, .. }
            | Event::Disconnected { qp: of, .. } => *of != qp,
            Event::Completion(completion) => completion.qp != qp,
            Event::ConnectRequest(_) | Event::SharedReceivesLow { .. } | Event::Removed => true,
        });
    }
}

pub(super) fn check_private_data(data: &[u8]) -> Result<(), DeviceError> {
    let (len, max) = (data.len(), MAX_PRIVATE_DATA - ENHANCED);
    if len > max {
        return Err(DeviceError::PrivateDataTooLong { len, max });
    }
    Ok(())
}

pub(super) fn system(what: &str, source: io::Error) -> DeviceError {
    DeviceError::System {
        what: what.to_owned(),
        source,
    }
}

/// Returns the error of a connection attempt that the system refused at once.
pub(super) fn refused_at_once(error: &io::Error) -> Option<ConnectError> {
    match socket::connect_error(error) {
        ConnectError::Protocol(_) => None,
        known => Some(known),
    }
}
