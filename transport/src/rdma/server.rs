//! RPC-over-RDMA servers.

use std::io;
use std::net::SocketAddr;
use std::task::Waker;

use onc_rpc::Message;
use rdma::trace::{self, Trace, Tracer};
use rdma::{
    AcceptOptions, Carrier, ConnectRequest, Device, DeviceError, Ending, Event as DeviceEvent,
    Poller, Pool, QpId, Time,
};
use rpcrdma_connection::{
    AgreedFeatures, CallId, Config, Connection, Event, RequesterCounters, ResponderCounters, Role,
    Side,
};
use rpcrdma_negotiation::VersionDecision;
use rpcrdma_v1::PrivateData;

use super::driver::{Driver, Notice, max_segment};
use super::end::{End, observed, private_data};
use super::link_phase::Reached;
use super::options::RdmaServerOptions;
use super::receive_memory::{Share, Wish, share};
use super::receive_pool::COPIED;
use super::{NO_ROOM, shown};
use crate::{
    Admission, CallError, ConnectionId, Place, PollSource, ReducedArguments, ReplyRoom,
    ServerTransport, ServerTransportEvent, TransportStatistics,
};

/// Listeners and connections of an RPC-over-RDMA server, all over one device.
pub struct RdmaServer {
    driver: Driver<ServerTransportEvent>,
    options: RdmaServerOptions,
    admission: Option<Admission>,
    reduced_arguments: ReducedArguments,
    trace: Option<Trace>,
}

/// Returns the id of a connection. A device never reuses the number of a queue pair.
fn conn_of(qp: QpId) -> ConnectionId {
    ConnectionId(qp.0)
}

fn qp_of(conn: ConnectionId) -> QpId {
    QpId(conn.0)
}

/// Returns the private data of the rejection of a client for which the device has no queue pair because of this
/// error: [`NO_ROOM`] if the system has no memory for it at present.
fn reason(error: &DeviceError) -> &'static [u8] {
    let DeviceError::System { source, .. } = error else {
        return &[];
    };
    match source.kind() {
        // ENOMEM, and EAGAIN for memory that would have to be locked.
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => NO_ROOM,
        _ => &[],
    }
}

impl RdmaServer {
    /// Returns a server that does not listen yet.
    #[must_use]
    pub fn new(device: Box<dyn Device>, options: RdmaServerOptions) -> Self {
        let mut driver = Driver::new(device, Some(options.progress_timeout));
        driver.give_back_after = options.give_back_after;
        Self {
            driver,
            options,
            admission: None,
            reduced_arguments: ReducedArguments::ANY,
            trace: None,
        }
    }

    /// Listens on `address`, in addition to earlier ones. Returns the address with the actual port,
    /// if port 0 was given.
    ///
    /// # Errors
    /// The error of the device.
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, DeviceError> {
        let listener = self.driver.device.listen(address)?;
        self.driver.device.local_address(listener)
    }

    observed!();

    /// Returns the counters of a connection's responder.
    #[must_use]
    pub fn responder_counters(&self, conn: ConnectionId) -> Option<ResponderCounters> {
        let connection = self.connection(conn)?;
        Some(connection.responder_counters().unwrap_or_default())
    }

    /// Returns the counters of a connection's requester, if the connection allows callbacks.
    #[must_use]
    pub fn callback_counters(&self, conn: ConnectionId) -> Option<RequesterCounters> {
        self.connection(conn)?.requester_counters()
    }

    /// Returns the version that a connection speaks, and why, once its client's first message has
    /// arrived.
    #[must_use]
    pub fn decision(&self, conn: ConnectionId) -> Option<VersionDecision> {
        self.connection(conn)?.decision()
    }

    /// Returns the features that may be used on a connection at present, and why.
    #[must_use]
    pub fn features(&self, conn: ConnectionId) -> Option<AgreedFeatures> {
        self.connection(conn)?.features()
    }

    fn connection(&self, conn: ConnectionId) -> Option<&Connection> {
        let link = self.driver.links.get(&qp_of(conn))?;
        Some(&link.connection)
    }

    /// Drops the calls of a connection that has ended which the server's owner has not taken. Their client makes
    /// them again. If they were kept, one that connects again and again would fill the memory of an owner that
    /// takes no events, because it has all the jobs that it may have.
    fn forget_calls(&mut self, ended: ConnectionId) {
        self.driver.events.retain(
            |event| !matches!(event, ServerTransportEvent::Call { conn, .. } if *conn == ended),
        );
    }

    /// Returns the share of a new connection in the memory for receives, or `None` if none is left.
    fn share(&self) -> Option<Share> {
        let common = &self.options.common;
        if self.driver.shares_receives() {
            // The pool decides how many receives it posts for the new connection.
            return Some(Share {
                credits: common.credits,
                callbacks: common.callbacks.credits,
                placing: true,
                groups: true,
                longer: true,
                memory: 0,
            });
        }
        let most = self.driver.most_receives();
        // Where there is not enough for all, half are for callbacks.
        let callbacks = common.callbacks.credits.min(most / 2);
        let credits = common.credits.min(most - callbacks).max(1);
        let allows = self.options.allows();
        let links = self.driver.links.values();
        let plain = common.plain_receives(allows);
        let receives = common.receives(allows);
        share(
            self.options.max_receive_memory,
            links.map(|link| link.receive_memory).sum(),
            &plain,
            (receives != plain).then_some(&receives),
            common.max_receive_size,
            Wish {
                credits,
                callbacks,
                protocols: &common.protocols,
                versions: &self.options.versions,
            },
        )
    }

    /// Returns the configuration of a new connection with this share.
    fn config(&self, share: &Share, pool: Pool, peer: SocketAddr) -> Config {
        let versions = self.options.versions.clone();
        let allows = self.options.allows();
        let device = &*self.driver.device;
        let mut common = self.options.common.clone();
        let receives = match share.placing {
            true => common.receives(allows),
            false => common.plain_receives(allows),
        };
        if !share.longer {
            let size = u32::try_from(receives.size()).unwrap_or(u32::MAX);
            common.max_receive_size = common.max_receive_size.min(size);
        }
        let most_reads = device.attributes().max_outbound_reads;
        common.outbound_reads = common.outbound_reads.min(most_reads);
        let max_segment = max_segment(device, common.max_segment);
        let mut config = Config::new(Role::Server { versions }, common, pool);
        config.receives = receives;
        config.may_place = share.placing;
        config.may_hold_calls = share.groups;
        config.credits = share.credits;
        config.callbacks = share.callbacks;
        config.max_fetched = self.options.max_fetched;
        config.peer = Some(peer);
        config.reduced_arguments = self.reduced_arguments;
        config.max_segment = max_segment;
        config
    }

    /// Accepts a connection, or rejects it: for lack of a place or of memory with [`NO_ROOM`].
    fn requested(&mut self, request: ConnectRequest) -> Result<(), DeviceError> {
        if self.driver.links.len() >= self.options.max_connections {
            self.driver.device.reject(request.request, NO_ROOM)?;
            return Err(DeviceError::Limit("connections"));
        }
        let Some(share) = self.share() else {
            self.driver.device.reject(request.request, NO_ROOM)?;
            return Err(DeviceError::Limit("memory for receives"));
        };
        let account = self.options.budget.account();
        let pool = self.driver.device.pool().charged_to(&account);
        let mut config = self.config(&share, pool, request.peer);
        let options = AcceptOptions {
            private_data: private_data(&config.options),
            inbound_reads: config.options.inbound_reads,
            outbound_reads: config.options.outbound_reads,
        };
        let credits = config.credits;
        let structure = || config.options.longest_receives(self.options.allows());
        let limit = self.options.max_receive_memory;
        let shared = match self.driver.shared_receives(structure, limit) {
            Ok(shared) => shared,
            Err(error) => {
                self.driver.device.reject(request.request, NO_ROOM)?;
                return Err(error);
            }
        };
        config.longest_uncounted = shared.is_some().then_some(COPIED);
        // Once the queue pair is made, the request cannot be rejected with a reason any more.
        let Ok(prepared) = self.driver.first_receives(&config) else {
            self.driver.device.reject(request.request, NO_ROOM)?;
            return Err(DeviceError::Limit("memory for receive buffers"));
        };
        // Last of all, because another connection may have to make room.
        let (address, now) = (request.peer.ip(), self.driver.now);
        let place = self.admission.as_ref();
        let place = place.map(|admission| admission.admit(address, now));
        if matches!(place, Some(None)) {
            self.driver.device.reject(request.request, NO_ROOM)?;
            if self.admission.as_ref().is_some_and(Admission::is_closed) {
                let peer = request.peer;
                tracing::debug!(%peer, "this server is ending: refusing a new connection");
                return Ok(());
            }
            return Err(DeviceError::Limit("connections"));
        }
        let device = &mut self.driver.device;
        let qp = match device.prepare_accept(request.request, shared) {
            Ok(qp) => qp,
            Err(error) => {
                // This fails if the request no longer exists, and then the peer needs no answer.
                let _ = device.reject(request.request, reason(&error));
                return Err(error);
            }
        };
        let ends = (conn_of(qp), qp, request.peer);
        let tracer = (self.trace.as_ref()).map(|it| it.open(trace::End::Responder, request.peer));
        config.trace.clone_from(&tracer);
        let mut link = self.driver.link(ends, config, prepared, Some(account));
        link.receive_memory = share.memory;
        link.tracer = tracer;
        link.place = place.flatten();
        if let Some(place) = &link.place {
            place.belongs_to(link.conn);
        }
        // Receives are posted before the client can send anything: it may use its first credit at
        // once.
        self.driver.add(link);
        let links = &self.driver.links;
        if links.get(&qp).is_none_or(|link| link.phase.is_closing()) {
            self.give_up(qp);
            return Err(DeviceError::Limit("memory for receive buffers"));
        }
        if let Err(error) = self.driver.device.accept(qp, &options) {
            self.give_up(qp);
            return Err(error);
        }
        let peer = PrivateData::find(&request.private_data);
        tracing::debug!(peer = %request.peer, private_data = %shown(peer), credits, "accepted");
        self.driver.handle(qp, Event::Established { peer });
        Ok(())
    }

    /// Drops a connection that could not be accepted.
    fn give_up(&mut self, qp: QpId) {
        self.driver.remove(qp);
        self.driver.destroy(qp);
    }
}

impl End for RdmaServer {
    type Event = ServerTransportEvent;

    fn driver(&mut self) -> &mut Driver<ServerTransportEvent> {
        &mut self.driver
    }

    fn run(&mut self, qp: QpId) {
        while let Some(notice) = self.driver.run(qp) {
            let Notice::Decided(decision) = notice else {
                // Only a client misjudges the other end.
                continue;
            };
            if let Some(link) = self.driver.links.get(&qp) {
                tracing::debug!(peer = %link.peer, %decision, "version found");
            }
        }
    }

    #[cold]
    fn connection_changed(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Completion(_) => {}
            DeviceEvent::ConnectRequest(request) => {
                let peer = request.peer;
                if let Err(error) = self.requested(request) {
                    rpcrdma_host::limited!(warn, %peer, %error, "connection not accepted");
                }
            }
            DeviceEvent::Established { qp, .. } => {
                if let Some(link) = self.driver.links.get_mut(&qp) {
                    link.phase.reach(Reached::Established);
                    let (conn, peer) = (link.conn, link.peer);
                    let event = ServerTransportEvent::Connected { conn, peer };
                    self.driver.events.push_back(event);
                    self.run(qp);
                }
            }
            DeviceEvent::ConnectFailed { qp, error } => {
                if let Some(gone) = self.driver.remove(qp) {
                    tracing::debug!(peer = %gone.peer, %error, "connection not made");
                }
            }
            DeviceEvent::Disconnected { qp, reason } => {
                self.driver.closed(qp);
                self.run(qp);
                let Some(gone) = self.driver.remove(qp) else {
                    return;
                };
                self.driver.destroy(qp);
                self.forget_calls(gone.conn);
                if gone.place.is_some() {
                    // The owner does not know of the connection yet, and would take another place for it.
                    self.driver.events.retain(|event| {
                        !matches!(event, ServerTransportEvent::Connected { conn, .. } if *conn == gone.conn)
                    });
                    return;
                }
                if gone.phase.reached() >= Reached::Established {
                    let (conn, reason) = (gone.conn, gone.end_reason(&reason));
                    let event = ServerTransportEvent::Disconnected { conn, reason };
                    self.driver.events.push_back(event);
                }
            }
            DeviceEvent::Removed => {
                let name = &self.driver.device.attributes().name;
                let reason = format!("device {name} was removed");
                self.driver
                    .events
                    .push_back(ServerTransportEvent::Lost { reason });
            }
            DeviceEvent::SharedReceivesLow { .. } => self.driver.receives_low(),
        }
    }

    #[cold]
    fn retry(&mut self) {
        for qp in self.driver.take_waiting() {
            if let Some(link) = self.driver.links.get_mut(&qp) {
                link.connection.retry();
                self.run(qp);
            }
        }
    }
}

impl PollSource for RdmaServer {
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
        // What is sent together waits for the next poll, which comes before the owner sleeps.
        self.driver.device.flush();
    }

    fn arm(&mut self) -> bool {
        self.driver.arm()
    }

    fn arm_without_owner(&mut self) -> bool {
        self.driver.arm_without_owner()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.driver.next_deadline()
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.driver.device.set_busy_poll(on);
    }
}

impl ServerTransport for RdmaServer {
    fn reply(&mut self, conn: ConnectionId, token: u64, message: Option<Message>, now: Time) {
        self.driver.now = now;
        let qp = qp_of(conn);
        if let Some(link) = self.driver.links.get_mut(&qp) {
            link.connection.reply(now, CallId(token), message);
            let together = link.connection.sends_together();
            self.run_in_turn(qp, together);
            // An unsignaled reply is followed by no event, which would set the timer.
            self.driver.plan_give_back();
        }
    }

    fn close(&mut self, conn: ConnectionId) {
        // Replies of this turn leave before the connection ends.
        if self.driver.is_in_turn() {
            self.end_turn();
        }
        self.driver.close(qp_of(conn));
    }

    fn finish(&mut self, conn: ConnectionId, now: Time) -> bool {
        self.driver.now = now;
        if self.driver.is_in_turn() {
            self.end_turn();
        }
        let qp = qp_of(conn);
        // A call that was not sent would offer its memory as soon as the peer grants a credit.
        let link = self.driver.links.get_mut(&qp);
        if link.is_some_and(|link| link.connection.cancel_unsent()) {
            self.run(qp);
        }
        self.driver.finish(qp)
    }

    fn ending(&self) -> Ending {
        self.driver.device.ending()
    }

    fn call(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    ) -> Result<(), CallError> {
        self.driver.now = now;
        let qp = qp_of(conn);
        let link = self.driver.links.get_mut(&qp);
        let Some(link) = link.filter(|link| !link.phase.is_closing()) else {
            let reason = "the connection is ending".to_owned();
            return Err(CallError::Disconnected { reason });
        };
        link.connection.call(xid, message, room)?;
        let together = link.connection.sends_together();
        self.run_in_turn(qp, together);
        Ok(())
    }

    fn cancel_call(&mut self, conn: ConnectionId, xid: u32) {
        let qp = qp_of(conn);
        if let Some(link) = self.driver.links.get_mut(&qp) {
            link.connection.cancel(xid);
            self.run(qp);
        }
    }

    fn pool(&self, conn: ConnectionId) -> Pool {
        let pool = self.driver.device.pool();
        let link = self.driver.links.get(&qp_of(conn));
        match link.and_then(|link| link.account.as_ref()) {
            Some(account) => pool.charged_to(account),
            None => pool.clone(),
        }
    }

    fn carrier(&self, conn: ConnectionId) -> Carrier {
        self.driver.device.carrier(qp_of(conn))
    }

    fn is_rdma(&self) -> bool {
        true
    }

    fn statistics(&self) -> TransportStatistics {
        self.driver.statistics(Side::Server)
    }

    fn keeps_credentials(&self) -> bool {
        self.driver.device.attributes().keeps_credentials
    }

    fn set_admission(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    fn set_trace(&mut self, trace: Option<Trace>) {
        self.trace = trace;
    }

    fn tracer(&self, conn: ConnectionId) -> Option<Tracer> {
        self.driver.links.get(&qp_of(conn))?.tracer.clone()
    }

    fn take_place(&mut self, conn: ConnectionId) -> Option<Place> {
        self.driver.links.get_mut(&qp_of(conn))?.place.take()
    }

    fn set_reduced_arguments(&mut self, reduced: ReducedArguments) {
        self.reduced_arguments = reduced;
    }

    fn next_event(&mut self) -> Option<ServerTransportEvent> {
        self.driver.events.pop_front()
    }
}
