//! Listening, connecting, accepting and ending: methods of the device model, and events of the
//! connection manager.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use tracing::field::display;

use super::caps::Kind;
use super::cm::{CmEvent, CmEventKind, Depths, Id, IdKey, Sizes};
use super::conn::{Binding, Conn, End, EventSink, Phase};
use super::device::{CmIdOwner, RdmaCore, Waiting};
use super::memory::{Domain, memory_hint};
use super::objects::Pd;
use super::siblings::PendingRequest;
use rdma::{
    AcceptOptions, ConnectError, ConnectOptions, ConnectRequest, DeviceError, Disconnect, Event,
    ListenerId, QpId, RequestId, SharedReceivesId,
};

/// Time for an accepted peer to confirm the connection.
const ACCEPTING: Duration = Duration::from_secs(10);
/// Attempts to use a port that the connection manager chooses.
const PORT_TRIES: u32 = 8;
/// Reasons for a rejection (InfiniBand's CM): no listener; rejected by the program.
const NO_SERVICE: i32 = 8;
const CONSUMER: i32 = 28;

pub(super) fn system(what: impl Into<String>, source: io::Error) -> DeviceError {
    let hint = memory_hint(&source);
    DeviceError::System {
        what: what.into() + &hint,
        source,
    }
}

/// Converts an error of the system to the error of a connection attempt.
fn not_connected(error: &io::Error) -> ConnectError {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED) => ConnectError::Refused,
        Some(Errno::TIMEDOUT) => ConnectError::TimedOut,
        // The last two: on iWARP, a TCP socket may have taken the source port since `is_taken` looked, or hardware
        // reports it. The next attempt uses another one.
        Some(
            Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NODEV
            | Errno::ADDRNOTAVAIL
            | Errno::ADDRINUSE,
        ) => ConnectError::Unreachable(error.to_string()),
        _ => ConnectError::Protocol(error.to_string()),
    }
}

impl RdmaCore {
    fn check(&self) -> Result<(), DeviceError> {
        match self.gone {
            true => Err(DeviceError::Unknown("device: it was removed")),
            false => Ok(()),
        }
    }

    fn check_private_data(&self, data: &[u8]) -> Result<(), DeviceError> {
        let (len, max) = (data.len(), self.attributes.max_private_data);
        match len <= max {
            true => Ok(()),
            false => Err(DeviceError::PrivateDataTooLong { len, max }),
        }
    }

    /// Returns whether an identifier is bound to this device.
    fn is_ours(&self, id: &Id) -> bool {
        id.context() == self.context.raw()
    }

    /// Limits the numbers of outstanding reads to those of the device. At least one, because Linux
    /// refuses connections without any.
    fn depths(&self, inbound: u32, outbound: u32) -> Depths {
        let within = |asked: u32, limit: u32| asked.min(limit).clamp(1, 254) as u8;
        Depths {
            inbound: within(inbound, self.attributes.max_inbound_reads),
            outbound: within(outbound, self.attributes.max_outbound_reads),
        }
    }

    // ---- calls ----

    pub(super) fn make_listener(&mut self, address: SocketAddr) -> Result<ListenerId, DeviceError> {
        self.check()?;
        let cannot = |source| system(format!("cannot listen on {address}"), source);
        let (context, name, backlog) = (
            self.context.raw(),
            &self.attributes.name,
            self.options.backlog,
        );
        let try_once = || {
            let id = Id::new(&self.cm)?;
            id.bind(address)?;
            // A wildcard address is not bound to a device; its connection requests are.
            if !id.context().is_null() && id.context() != context {
                return Err(io::Error::other(format!("not an address of {name}")));
            }
            id.listen(backlog)?;
            Ok(id)
        };
        // The connection manager knows its own ports alone. A free one that it chooses can be one of the kernel's
        // TCP, on which soft iWARP then cannot listen. It chooses another one the next time.
        let tries = if address.port() == 0 { PORT_TRIES } else { 1 };
        let make = || {
            let mut left = tries;
            loop {
                left -= 1;
                match try_once() {
                    Err(error) if left > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                    done => return done.map_err(cannot),
                }
            }
        };
        let (number, listener) = self.membership.listen(address, make)?;
        if let Some(id) = &listener.id {
            self.targets.insert(id.key(), CmIdOwner::Listener(number));
        }
        self.listeners.insert(number.0, listener);
        Ok(number)
    }

    /// Stops listening.
    pub(super) fn end_listening(&mut self, number: ListenerId) {
        if let Some(listener) = self.listeners.remove(&number.0) {
            self.membership.close_listener(number);
            if let Some(id) = &listener.id {
                self.targets.remove(&id.key());
            }
        }
    }

    pub(super) fn start_connecting(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        self.check()?;
        self.check_private_data(&options.private_data)?;
        self.check_shared(options.shared_receives)?;
        if self.conns.len() >= self.options.max_connections {
            return Err(DeviceError::Limit("connections"));
        }
        let id = self.resolve(remote, options.timeout);
        let id = id.map_err(|source| system(format!("cannot connect to {remote}"), source))?;
        let phase = Phase::Connecting {
            private_data: options.private_data.clone(),
            depths: self.depths(options.inbound_reads, options.outbound_reads),
            timeout: options.timeout,
            ports: match self.capabilities.kind {
                Kind::Siw => PORT_TRIES - 1,
                _ => 0,
            },
        };
        let domain = self.domain_of_connection()?;
        let qp = QpId(self.membership.new_id());
        let key = id.key();
        let mut conn = self.conn(qp, id, phase, options.shared_receives, domain);
        conn.deadline = Some(self.now.max(rdma::Time::now()) + options.timeout);
        self.targets.insert(key, CmIdOwner::Conn(qp));
        self.conns.insert(qp.0, conn);
        self.timer(qp);
        Ok(qp)
    }

    /// Begins to look for the way to `remote`, from a port that the connection manager chooses.
    fn resolve(&self, remote: SocketAddr, timeout: Duration) -> io::Result<Id> {
        let id = Id::new(&self.cm)?;
        let from = self.options.address.map(|ip| SocketAddr::new(ip, 0));
        id.resolve_address(from, remote, timeout)?;
        Ok(id)
    }

    /// Returns the protection domain for a new connection: that of all connections, or a new one.
    fn domain_of_connection(&self) -> Result<Arc<Domain>, DeviceError> {
        if let Some(domain) = &self.domain {
            return Ok(Arc::clone(domain));
        }
        let pd = Pd::new(&self.context);
        let pd = pd.map_err(|error| system("no protection domain", error))?;
        Ok(Arc::new(Domain::new(pd)))
    }

    fn conn(
        &self,
        qp: QpId,
        id: Id,
        phase: Phase,
        receives: Option<SharedReceivesId>,
        domain: Arc<Domain>,
    ) -> Conn {
        let kind = self.capabilities.kind;
        let mut conn = Conn::new(
            qp,
            id,
            &self.context,
            &self.policy.arenas,
            domain,
            kind,
            phase,
        );
        conn.own_domain = self.domain.is_none();
        conn.binding = receives.map(|queue| Binding {
            queue,
            floor: 0,
            drained: false,
            drains_at_once: kind == Kind::Siw,
        });
        conn
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            max_send_wr: self.send_queue,
            max_recv_wr: self.attributes.max_recv_wr as u32,
            max_send_sge: self.attributes.max_gather as u32,
            max_recv_sge: self.attributes.max_scatter as u32,
            max_inline_data: self.options.inline_data,
        }
    }

    fn make_queue_pair(&mut self, qp: QpId) -> io::Result<()> {
        let sizes = self.sizes();
        let channel = Arc::clone(&self.channel);
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return Ok(());
        };
        let queue = conn.binding.as_ref().map(|binding| binding.queue);
        let shared = queue.and_then(|queue| self.shared.get_mut(&queue));
        conn.make_queue_pair(&channel, sizes, shared.as_deref())?;
        if let Some(shared) = shared
            && let Some(number) = conn.id.as_ref().and_then(Id::queue_pair_number)
            && let Some(binding) = &mut conn.binding
        {
            binding.floor = shared.bind(number, conn.qp);
        }
        self.look_at(qp);
        Ok(())
    }

    pub(super) fn prepare(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        self.check_shared(receives)?;
        let domain = self.domain_of_connection()?;
        let waiting = self.requests.remove(&request.0);
        let Waiting { id, depths, claim } =
            waiting.ok_or(DeviceError::Unknown("connection request"))?;
        let (qp, key) = (QpId(request.0), id.key());
        let mut conn = self.conn(qp, id, Phase::Prepared(depths), receives, domain);
        conn.claim = claim;
        self.targets.insert(key, CmIdOwner::Conn(qp));
        self.conns.insert(qp.0, conn);
        if let Err(error) = self.make_queue_pair(qp) {
            self.unprepare(qp, depths);
            return Err(system("cannot make a queue pair", error));
        }
        Ok(qp)
    }

    /// Turns a connection whose queue pair could not be made into a request again, which waits for an
    /// answer.
    fn unprepare(&mut self, qp: QpId, depths: Depths) {
        let conn = self.conns.get_mut(&qp.0);
        let claim = conn.and_then(|conn| conn.claim.take());
        // No receive was posted.
        let (id, _) = self.take_down(qp);
        self.conns.remove(&qp.0);
        if let Some(id) = id {
            let request = RequestId(qp.0);
            self.targets.insert(id.key(), CmIdOwner::Request(request));
            let waiting = Waiting { id, depths, claim };
            self.requests.insert(request.0, waiting);
        }
    }

    pub(super) fn answer(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        self.check_private_data(&options.private_data)?;
        let wanted = self.depths(options.inbound_reads, options.outbound_reads);
        let conn = self.conns.get_mut(&qp.0);
        let conn = conn.ok_or(DeviceError::Unknown("queue pair"))?;
        let (&Phase::Prepared(asked), Some(id)) = (&conn.phase, &conn.id) else {
            return Err(DeviceError::Unknown("connection request"));
        };
        // Not more than the peer asked for: it could not answer more reads, or would not send them.
        let depths = Depths {
            inbound: wanted.inbound.min(asked.inbound.max(1)),
            outbound: wanted.outbound.min(asked.outbound.max(1)),
        };
        id.accept(&options.private_data, depths)
            .map_err(|error| system("cannot accept a connection", error))?;
        // The answer is on its way, and the queue pair is connected.
        conn.set_receiver_timer();
        conn.phase = Phase::Accepting;
        conn.deadline = Some(self.now.max(rdma::Time::now()) + ACCEPTING);
        self.timer(qp);
        Ok(())
    }

    pub(super) fn refuse(
        &mut self,
        request: RequestId,
        private_data: &[u8],
    ) -> Result<(), DeviceError> {
        self.check_private_data(private_data)?;
        let waiting = self.requests.remove(&request.0);
        let waiting = waiting.ok_or(DeviceError::Unknown("connection request"))?;
        self.targets.remove(&waiting.id.key());
        let rejected = waiting.id.reject(private_data);
        rejected.map_err(|error| system("cannot reject a connection request", error))
    }

    pub(super) fn start_disconnecting(&mut self, qp: QpId) {
        self.ring_all();
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        match conn.phase {
            Phase::Up => conn.phase = Phase::Draining,
            Phase::Connecting { .. } | Phase::Prepared(_) | Phase::Accepting => {
                return self.end_now(qp);
            }
            Phase::Draining | Phase::Ending(_) | Phase::Over => return,
        }
        self.look_at(qp);
        self.advance(qp);
    }

    pub(super) fn end_now(&mut self, qp: QpId) {
        if let Some(conn) = self.conns.get_mut(&qp.0) {
            conn.end(End::Disconnected(Disconnect::Local), false, self.now);
            self.timer(qp);
        }
    }

    pub(super) fn remove(&mut self, qp: QpId) {
        if let Some(conn) = self.conns.get(&qp.0)
            && let Some(id) = &conn.id
        {
            self.targets.remove(&id.key());
            if matches!(conn.phase, Phase::Prepared(_)) {
                // Without a rejection the peer would wait until its time-out.
                if let Err(error) = id.reject(&[]) {
                    tracing::debug!(%error, "connection request not rejected");
                }
            } else if matches!(conn.phase, Phase::Up | Phase::Draining) {
                let _ = id.disconnect();
            }
        }
        // Memory of receives that completed is freed with the events.
        drop(self.take_down(qp));
        self.conns.remove(&qp.0);
        let mine = |event: &Event| event_qp(event) == Some(qp);
        self.events.retain(|event| !mine(event));
    }

    // ---- events ----

    pub(super) fn take_cm_events(&mut self) {
        self.take_handed_requests();
        while let Some(mut event) = self.cm.next() {
            tracing::debug!(kind = ?event.kind, status = event.status, "connection manager");
            if let CmEventKind::ConnectRequest(listener) = event.kind {
                if let Some(id) = event.new.take() {
                    self.requested(listener, id, event);
                }
                continue;
            }
            match self.targets.get(&event.id) {
                None => {}
                Some(&CmIdOwner::Conn(qp)) => self.conn_event(qp, event),
                Some(CmIdOwner::Listener(_)) if event.kind == CmEventKind::DeviceRemoved => {
                    self.device_gone();
                }
                Some(CmIdOwner::Listener(_)) => {}
                // The peer has gone, or the time has passed in which it had to be kept.
                Some(&CmIdOwner::Request(request)) => {
                    self.requests.remove(&request.0);
                    self.targets.remove(&event.id);
                }
                Some(CmIdOwner::Parting) => {
                    self.targets.remove(&event.id);
                    self.parting.retain(|(_, id)| id.key() != event.id);
                }
            }
        }
    }

    /// Announces the connection requests that siblings have handed to this one.
    fn take_handed_requests(&mut self) {
        for request in self.membership.take_requests() {
            if self.listeners.contains_key(&request.listener.0) {
                self.announce_request(request);
            } else {
                let _ = request.id.reject(&[]);
            }
        }
    }

    /// Handles a connection request that arrived at a listener of this device: rejects it, announces it,
    /// or hands it to a sibling.
    fn requested(&mut self, listener: IdKey, id: Id, event: CmEvent) {
        let listener = match self.targets.get(&listener) {
            Some(&CmIdOwner::Listener(listener)) => listener,
            _ => return,
        };
        if !self.is_ours(&id) {
            rpcrdma_host::limited!(
                warn,
                "a connection request came in by another device: rejected"
            );
            let _ = id.reject(&[]);
            return;
        }
        // This includes the claim.
        let assigned = self.membership.assign(listener);
        let seat = self.options.seat.as_ref().filter(|_| assigned.is_some());
        let of_all = seat.map_or(0, |seat| seat.connections_of_all().saturating_sub(1));
        let of_this = self.conns.len() + self.requests.len();
        if of_this.max(of_all) >= self.options.max_connections {
            let peer = id.peer_address().map(display);
            rpcrdma_host::limited!(warn, peer, "refused: too many connections");
            let _ = id.reject(&[]);
            return;
        }
        let request = PendingRequest {
            listener,
            id,
            depths: event.depths,
            private_data: event.private_data,
            claim: None,
        };
        if let Some(request) = self.membership.hand_over(request, assigned) {
            self.announce_request(request);
        }
    }

    /// Queues [`Event::ConnectRequest`].
    fn announce_request(&mut self, request: PendingRequest) {
        let PendingRequest {
            listener,
            id,
            depths,
            private_data,
            claim,
        } = request;
        let Some(peer) = id.peer_address() else {
            let _ = id.reject(&[]);
            return;
        };
        let request = RequestId(self.membership.new_id());
        self.targets.insert(id.key(), CmIdOwner::Request(request));
        let waiting = Waiting { id, depths, claim };
        self.requests.insert(request.0, waiting);
        self.events.push_back(Event::ConnectRequest(ConnectRequest {
            listener,
            request,
            peer,
            private_data,
        }));
    }

    fn conn_event(&mut self, qp: QpId, event: CmEvent) {
        let failure = match event.kind {
            CmEventKind::AddressResolved => self.address_resolved(qp),
            CmEventKind::RouteResolved => self.route_resolved(qp),
            CmEventKind::Established => {
                if let Some(conn) = self.conns.get_mut(&qp.0)
                    && matches!(conn.phase, Phase::Connecting { .. } | Phase::Accepting)
                {
                    let active = matches!(conn.phase, Phase::Connecting { .. });
                    let private_data = if active {
                        event.private_data
                    } else {
                        Bytes::new()
                    };
                    let mut out = EventSink {
                        events: &mut self.events,
                        counters: &mut self.counters,
                    };
                    conn.established(private_data, &mut out);
                    self.look_at(qp);
                }
                Ok(())
            }
            CmEventKind::Rejected => Err(self.rejection(event)),
            CmEventKind::Unreachable | CmEventKind::Failed(_) => Err(failure(&event)),
            CmEventKind::Disconnected => {
                self.disconnected(qp);
                Ok(())
            }
            CmEventKind::DeviceRemoved => {
                self.device_gone();
                Ok(())
            }
            CmEventKind::ConnectRequest(_) | CmEventKind::Other(_) => Ok(()),
        };
        if let Err(error) = failure
            && let Some(conn) = self.conns.get_mut(&qp.0)
        {
            let end = match conn.phase {
                Phase::Up | Phase::Draining => {
                    End::Disconnected(Disconnect::Lost(error.to_string()))
                }
                _ => End::NotMade(error),
            };
            conn.end(end, false, self.now);
            self.timer(qp);
            self.advance(qp);
        }
    }

    fn address_resolved(&mut self, qp: QpId) -> Result<(), ConnectError> {
        let Some(conn) = self.conns.get(&qp.0) else {
            return Ok(());
        };
        let (Some(id), &Phase::Connecting { timeout, ports, .. }) = (&conn.id, &conn.phase) else {
            return Ok(());
        };
        if ports > 0
            && let (Some(from), Some(remote)) = (id.local_address(), id.peer_address())
            && is_taken(from)
        {
            return self.resolve_again(qp, remote, timeout);
        }
        if !self.is_ours(id) {
            return Err(ConnectError::Unreachable(format!(
                "the way there does not lead over {}",
                self.attributes.name
            )));
        }
        self.make_queue_pair(qp).map_err(|error| {
            ConnectError::Unreachable(format!("no queue pair: {error}{}", memory_hint(&error)))
        })?;
        let id = self.conns.get(&qp.0).and_then(|conn| conn.id.as_ref());
        let resolved = id.map_or(Ok(()), |id| id.resolve_route(timeout));
        resolved.map_err(|error| not_connected(&error))
    }

    /// Begins an attempt to connect again, from another port. There is no queue pair yet.
    fn resolve_again(
        &mut self,
        qp: QpId,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<(), ConnectError> {
        let id = self.resolve(remote, timeout);
        let id = id.map_err(|error| not_connected(&error))?;
        self.targets.insert(id.key(), CmIdOwner::Conn(qp));
        if let Some(conn) = self.conns.get_mut(&qp.0) {
            if let Phase::Connecting { ports, .. } = &mut conn.phase {
                *ports = ports.saturating_sub(1);
            }
            if let Some(before) = conn.id.replace(id) {
                self.targets.remove(&before.key());
            }
        }
        Ok(())
    }

    fn route_resolved(&mut self, qp: QpId) -> Result<(), ConnectError> {
        let Some(conn) = self.conns.get(&qp.0) else {
            return Ok(());
        };
        match (&conn.id, &conn.phase) {
            (
                Some(id),
                Phase::Connecting {
                    private_data,
                    depths,
                    ..
                },
            ) => id
                .connect(private_data, *depths)
                .map_err(|error| not_connected(&error)),
            _ => Ok(()),
        }
    }

    /// Returns the reason for which a peer rejected the connection. On iWARP the status is an error
    /// number, from which a refused TCP connection can be told from a rejection by the program.
    fn rejection(&self, event: CmEvent) -> ConnectError {
        let private_data = event.private_data;
        if self.capabilities.kind.is_iwarp() {
            return match event.status.checked_neg().map(Errno::from_raw_os_error) {
                Some(Errno::TIMEDOUT) => ConnectError::TimedOut,
                _ => ConnectError::Rejected { private_data },
            };
        }
        match event.status {
            CONSUMER => ConnectError::Rejected { private_data },
            NO_SERVICE => ConnectError::Refused,
            reason => ConnectError::Protocol(format!("rejected for reason {reason}")),
        }
    }

    /// Handles the end of the connection: by the peer, by the peer's confirmation of this side's
    /// end, or by its loss.
    fn disconnected(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        if conn.is_ending() {
            // An orderly end: the queue pair has left the connection, and completed what it took.
            if let Some(binding) = conn.binding.as_mut().filter(|one| one.drains_at_once) {
                binding.drained = true;
                self.look_at(qp);
            }
            return;
        }
        // Messages that arrived before must be delivered.
        let mut out = EventSink {
            events: &mut self.events,
            counters: &mut self.counters,
        };
        let cause = conn.reap(&mut out);
        if let Some(queue) = conn.binding.as_ref().map(|binding| binding.queue) {
            self.reap_shared(queue);
        }
        let Some(conn) = self.conns.get_mut(&qp.0).filter(|conn| !conn.is_ending()) else {
            return self.advance(qp);
        };
        let end = match conn.phase {
            Phase::Up | Phase::Draining => End::Disconnected(cause.unwrap_or(Disconnect::Remote)),
            _ => End::NotMade(ConnectError::Protocol("ended while it was made".to_owned())),
        };
        conn.end(end, false, self.now);
        self.timer(qp);
        self.advance(qp);
    }
}

/// Returns whether a TCP socket of this host uses a local address. The connection manager allocates source ports from
/// its own list, and soft iWARP then binds its TCP socket to the same port.
fn is_taken(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn failure(event: &CmEvent) -> ConnectError {
    let error = io::Error::from_raw_os_error(event.status.saturating_abs());
    match (&event.kind, not_connected(&error)) {
        (CmEventKind::Failed(what), ConnectError::Protocol(text)) => {
            ConnectError::Unreachable(format!("{what}: {text}"))
        }
        (CmEventKind::Unreachable, ConnectError::Protocol(text)) => ConnectError::Unreachable(text),
        (_, error) => error,
    }
}

fn event_qp(event: &Event) -> Option<QpId> {
    match event {
        Event::ConnectRequest(_) | Event::SharedReceivesLow { .. } | Event::Removed => None,
        Event::Established { qp, .. }
        | Event::ConnectFailed { qp, .. }
        | Event::Disconnected { qp, .. } => Some(*qp),
        Event::Completion(completion) => Some(completion.qp),
    }
}
