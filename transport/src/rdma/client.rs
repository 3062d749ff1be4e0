//! RPC-over-RDMA clients.

mod memory;
mod versions;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::task::Waker;

use bytes::Bytes;
use onc_rpc::Message;
use rdma::trace::Tracer;
use rdma::{ConnectError, ConnectOptions, Device, Event as DeviceEvent, Poller, Pool, QpId, Time};
use rpcrdma_connection::{
    BEYOND_CREDITS, CallId, Config, Event, PendingCalls, ReceiveStructure, RequesterCounters,
    ResponderCounters, Role, Side, receive_memory,
};
use rpcrdma_negotiation::KnownServers;
use rpcrdma_v1::PrivateData;

use self::memory::Stuck;
use super::driver::{Driver, Link, Notice, max_segment};
use super::end::{End, observed, private_data};
use super::link_phase::{Closing, Reached};
use super::options::RdmaClientOptions;
use super::{NO_ROOM, shown};
use crate::{
    ClientTransport, ClientTransportEvent, ConnectionId, ConnectionLost, PollSource, ReplyRoom,
    TransportStatistics,
};

/// The connections of RPC-over-RDMA clients to servers, all over one device.
pub struct RdmaClient {
    driver: Driver<ClientTransportEvent>,
    options: RdmaClientOptions,
    /// The queue pairs of the connections, in the order in which the connections were opened: a
    /// handful.
    queue_pairs: Vec<(ConnectionId, QpId)>,
    next_id: u64,
    /// Servers that answered in the version that they were asked for, on some connection.
    have_answered: HashSet<SocketAddr>,
    /// Evidence from earlier connections that servers lack the version that they were asked for.
    known_servers: KnownServers<SocketAddr>,
    /// Whether the device has been removed for good.
    removed: bool,
    /// Set while calls wait for memory and no call in progress can release any.
    stuck: Option<Stuck>,
    /// XID of the next call when a connection was opened most recently.
    next_xid: u32,
    /// The observer of calls on further connections.
    tracer: Option<Tracer>,
}

impl RdmaClient {
    /// Returns a client without connections.
    #[must_use]
    pub fn new(device: Box<dyn Device>, mut options: RdmaClientOptions) -> Self {
        // A responder's Send With Invalidate works on this device.
        options.common.remote_invalidation &= device.attributes().remote_invalidation;
        Self {
            driver: Driver::new(device, None),
            options,
            queue_pairs: Vec::new(),
            next_id: 0,
            have_answered: HashSet::new(),
            known_servers: KnownServers::default(),
            removed: false,
            stuck: None,
            next_xid: 0,
            tracer: None,
        }
    }

    observed!();

    /// Returns the counters of a connection's requester.
    #[must_use]
    pub fn requester_counters(&self, conn: ConnectionId) -> Option<RequesterCounters> {
        let link = self.link(conn)?;
        Some(link.connection.requester_counters().unwrap_or_default())
    }

    /// Returns the counters of a connection's responder, if the connection accepts callbacks.
    #[must_use]
    pub fn callback_counters(&self, conn: ConnectionId) -> Option<ResponderCounters> {
        self.link(conn)?.connection.responder_counters()
    }

    /// Returns what the transport has counted since its creation, and what it holds.
    #[must_use]
    pub fn statistics(&self) -> TransportStatistics {
        self.driver.statistics(Side::Client)
    }

    /// Returns the connections, established or being established.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.queue_pairs.iter().map(|(conn, _)| *conn)
    }

    /// Returns the maximum number of bytes that shared receives take once there is another
    /// connection: as much as a receive for each message that servers may send, within the limit of all.
    fn receive_limit(&self, receives: &ReceiveStructure) -> usize {
        let common = &self.options.common;
        let messages = common.credits.saturating_add(common.callbacks.credits);
        let messages =
            messages.saturating_add(common.spare_receives.saturating_add(BEYOND_CREDITS));
        let connections = self.driver.links.len() + 1;
        let each = receive_memory(receives).saturating_mul(connections);
        let most = self.options.max_receive_memory;
        each.saturating_mul(messages as usize).min(most)
    }

    /// Returns the number of further receives of this structure that the limit of all connections leaves.
    fn receives_left(&self, receives: &ReceiveStructure) -> u32 {
        let taken = usize::try_from(self.driver.receive_memory()).unwrap_or(usize::MAX);
        let left = self.options.max_receive_memory.saturating_sub(taken);
        let count = left / receive_memory(receives).max(1);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns the configuration of a new connection to this server.
    fn config(&self, remote: &SocketAddr) -> Config {
        let common = self.options.common.clone();
        let role = Role::Client {
            versions: self.options.version,
            evidence: self.known_servers.evidence(remote),
            patience: self.options.patience,
            last_xid: self.next_xid,
        };
        let max_segment = max_segment(&*self.driver.device, common.max_segment);
        let pool = self.driver.device.pool().clone();
        let mut config = Config::new(role, common, pool);
        config.max_segment = max_segment;
        config.peer = Some(*remote);
        if self.driver.shares_receives() {
            // The pool decides how many receives it posts for the connection.
            return config;
        }
        // Every reply, and every callback, must find a receive.
        let left = self.receives_left(&config.receives);
        let most = self.driver.most_receives();
        let most = most.min(left.saturating_sub(BEYOND_CREDITS));
        config.callbacks = config.callbacks.min(most.saturating_sub(1));
        config.credits = config.credits.min(most - config.callbacks).max(1);
        let further = most.saturating_sub(config.credits + config.callbacks);
        config.spare_receives = config.spare_receives.min(further);
        config
    }

    fn qp_of(&self, conn: ConnectionId) -> Option<QpId> {
        let mut found = self.queue_pairs.iter();
        found.find_map(|(known, qp)| (*known == conn).then_some(*qp))
    }

    fn link(&self, conn: ConnectionId) -> Option<&Link> {
        self.driver.links.get(&self.qp_of(conn)?)
    }

    fn link_mut(&mut self, conn: ConnectionId) -> Option<&mut Link> {
        let qp = self.qp_of(conn)?;
        self.driver.links.get_mut(&qp)
    }

    /// Removes a connection and destroys its queue pair. All memory registered for its calls goes
    /// back to the pool.
    fn remove(&mut self, qp: QpId) -> Option<Link> {
        let gone = self.driver.remove(qp)?;
        self.queue_pairs.retain(|(_, known)| *known != qp);
        self.driver.destroy(qp);
        Some(gone)
    }

    /// Starts to connect. The new connection takes over the unstarted calls and the `tracer` of another.
    /// `asked_again` is [`Link::asked_again`].
    fn connect(
        &mut self,
        (conn, remote): (ConnectionId, SocketAddr),
        calls: PendingCalls,
        asked_again: bool,
        tracer: Option<Tracer>,
    ) {
        let common = &self.options.common;
        let choice = self.options.version;
        let receives = common.longest_receives(|version| choice.allows(version));
        let limit = self.receive_limit(&receives);
        let own = common.receives(|version| choice.allows(version));
        let shared_receives = match self.driver.shared_receives(|| receives, limit) {
            Ok(shared) => shared,
            Err(error) => return self.not_opened(conn, error.to_string()),
        };
        if shared_receives.is_none() && self.receives_left(&own) <= BEYOND_CREDITS {
            let most = self.options.max_receive_memory;
            let reason =
                format!("the receives of other connections take the {most} bytes for them");
            return self.not_opened(conn, reason);
        }
        let options = ConnectOptions {
            private_data: private_data(common),
            inbound_reads: common.inbound_reads,
            outbound_reads: common.outbound_reads,
            timeout: self.options.connect_timeout,
            shared_receives,
        };
        let device = &mut self.driver.device;
        let qp = match device.connect(remote, &options) {
            Ok(qp) => qp,
            Err(error) => return self.not_opened(conn, error.to_string()),
        };
        let mut config = self.config(&remote);
        config.trace.clone_from(&tracer);
        self.queue_pairs.push((conn, qp));
        let mut link = self
            .driver
            .link((conn, qp, remote), config, Vec::new(), None);
        link.connection.resume(calls);
        link.asked_again = asked_again;
        link.tracer = tracer;
        self.driver.add(link);
        let link = self.driver.links.get(&qp);
        if let Some(Closing::Failed(reason)) = link.and_then(|link| link.phase.closing()) {
            let reason = reason.clone();
            self.remove(qp);
            self.not_opened(conn, reason);
        }
    }

    /// Reports that a connection attempt could not be started.
    fn not_opened(&mut self, conn: ConnectionId, reason: String) {
        let lost = ConnectionLost {
            reason,
            retry: !self.removed,
            busy: false,
            was_established: false,
        };
        let event = ClientTransportEvent::Disconnected { conn, lost };
        self.driver.events.push_back(event);
    }

    /// Reports the end of a connection, unless its user closed it.
    fn disconnected(&mut self, gone: &Link, lost: ConnectionLost) {
        if !matches!(gone.phase.closing(), Some(Closing::ByUser)) {
            let conn = gone.conn;
            let event = ClientTransportEvent::Disconnected { conn, lost };
            self.driver.events.push_back(event);
        }
    }

    fn established(&mut self, qp: QpId, private_data: &Bytes) {
        let Some(link) = self.driver.links.get_mut(&qp) else {
            return;
        };
        let peer = PrivateData::find(private_data);
        tracing::debug!(server = %link.peer, private_data = %shown(peer), "connected");
        link.phase.reach(Reached::Established);
        self.options.met.insert(link.peer);
        self.driver.handle(qp, Event::Established { peer });
        self.run(qp);
        // A connection that could not begin to speak any version will not be able to next time.
        let reason = match self.driver.links.get(&qp) {
            Some(link) if link.connection.decision().is_none() => match link.phase.closing() {
                Some(Closing::Failed(reason)) => reason.clone(),
                _ => return,
            },
            _ => return,
        };
        if let Some(gone) = self.remove(qp) {
            let lost = ConnectionLost {
                reason,
                retry: false,
                busy: false,
                was_established: false,
            };
            self.disconnected(&gone, lost);
        }
    }
}

/// Returns the reason why connecting failed. `met` says whether a connection to the server was
/// established before.
fn not_connected(error: &ConnectError, met: bool) -> ConnectionLost {
    // InfiniBand fills private data up with zeroes.
    let no_room = matches!(error, ConnectError::Rejected { private_data } if private_data.starts_with(NO_ROOM));
    let retry = match error {
        _ if no_room => true,
        // The peer does not want this client, or speaks another protocol. If it was met before, it has no
        // room at present, or was stopped in the middle of the set-up.
        ConnectError::Rejected { .. } | ConnectError::Protocol(_) => met,
        _ => true,
    };
    ConnectionLost {
        reason: match no_room {
            true => {
                "rejected by the peer, which has no room for a connection at present".to_owned()
            }
            false => error.to_string(),
        },
        retry,
        busy: no_room,
        was_established: false,
    }
}

impl End for RdmaClient {
    type Event = ClientTransportEvent;

    fn driver(&mut self) -> &mut Driver<ClientTransportEvent> {
        &mut self.driver
    }

    fn run(&mut self, qp: QpId) {
        while let Some(notice) = self.driver.run(qp) {
            match notice {
                Notice::Decided(decision) => self.decided(qp, &decision),
                Notice::Misjudged => self.misjudged(qp),
            }
        }
    }

    #[cold]
    fn connection_changed(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Completion(_) => {}
            DeviceEvent::Established { qp, private_data } => self.established(qp, &private_data),
            DeviceEvent::ConnectFailed { qp, error } => {
                if let Some(gone) = self.remove(qp) {
                    let met = self.options.met.contains(&gone.peer);
                    self.disconnected(&gone, not_connected(&error, met));
                }
            }
            DeviceEvent::Disconnected { qp, reason } => {
                self.driver.closed(qp);
                self.run(qp);
                // `run` removes it on a reconnect.
                if let Some(gone) = self.remove(qp) {
                    if let Some(decision) = gone.connection.decision() {
                        let worked = gone.phase.reached() == Reached::Replied;
                        self.known_servers.ended(&gone.peer, &decision, worked);
                    }
                    let lost = ConnectionLost {
                        reason: gone.end_reason(&reason),
                        retry: true,
                        busy: false,
                        was_established: true,
                    };
                    self.disconnected(&gone, lost);
                }
            }
            DeviceEvent::ConnectRequest(request) => {
                // A client does not listen.
                if let Err(error) = self.driver.device.reject(request.request, &[]) {
                    tracing::debug!(%error, "connection request not rejected");
                }
            }
            DeviceEvent::Removed => self.removed = true,
            DeviceEvent::SharedReceivesLow { .. } => self.driver.receives_low(),
        }
    }

    fn retry(&mut self) {
        self.retry_calls();
    }
}

impl PollSource for RdmaClient {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        self.driver.device.attach(poller)
    }

    fn set_waker(&mut self, waker: Waker) {
        self.driver.asked.set_waker(waker);
    }

    fn ready(&mut self, local: usize, closed: bool) {
        self.driver.device.ready(local, closed);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.progress(now)
    }

    fn flush(&mut self) {
        if self.driver.is_in_turn() {
            self.end_turn();
        }
        self.driver.device.flush();
    }

    fn arm(&mut self) -> bool {
        self.driver.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.driver.next_deadline()
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.driver.device.set_busy_poll(on);
    }
}

impl ClientTransport for RdmaClient {
    fn open(&mut self, remote: SocketAddr, next_xid: u32, now: Time) -> ConnectionId {
        self.driver.now = now;
        self.next_xid = next_xid;
        let conn = ConnectionId(self.next_id);
        self.next_id += 1;
        let tracer = self.tracer.clone();
        self.connect((conn, remote), PendingCalls::default(), false, tracer);
        conn
    }

    fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.tracer = tracer;
    }

    fn submit(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    ) {
        self.driver.now = now;
        // A connection that is not here has ended, and the event that says so ends this call too.
        if let Some(qp) = self.qp_of(conn)
            && let Some(link) = self.driver.links.get_mut(&qp)
        {
            if let Err(error) = link.connection.call(xid, message, room) {
                let error = error.into();
                let event = ClientTransportEvent::Failed { conn, xid, error };
                self.driver.events.push_back(event);
            }
            let together = link.connection.sends_together();
            self.run_in_turn(qp, together);
        }
    }

    fn cancel(&mut self, conn: ConnectionId, xid: u32) {
        if let Some(qp) = self.qp_of(conn)
            && let Some(link) = self.driver.links.get_mut(&qp)
        {
            link.connection.cancel(xid);
            self.run(qp);
        }
    }

    fn reply(&mut self, conn: ConnectionId, token: u64, message: Option<Message>, now: Time) {
        self.driver.now = now;
        // A connection that is not here has ended, and its server has been told so.
        if let Some(qp) = self.qp_of(conn)
            && let Some(link) = self.driver.links.get_mut(&qp)
        {
            link.connection.reply(now, CallId(token), message);
            let together = link.connection.sends_together();
            self.run_in_turn(qp, together);
        }
    }

    fn pool(&self) -> &Pool {
        self.driver.device.pool()
    }

    fn close(&mut self, conn: ConnectionId) {
        self.driver.events.retain(|event| event.conn() != conn);
        let Some(qp) = self.qp_of(conn) else {
            return;
        };
        match self.driver.links.get_mut(&qp) {
            Some(link) if link.phase.reached() >= Reached::Established => {
                // No event follows, whatever the connection is ending for.
                link.phase.close_by_user();
                self.driver.close(qp);
            }
            _ => {
                self.remove(qp);
            }
        }
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        self.driver.events.pop_front()
    }
}
