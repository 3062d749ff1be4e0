//! The device: its state, and the methods of the device model.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::caps::Capabilities;
use super::cm::{Depths, EventChannel, Id, IdKey};
use super::conn::Conn;
use super::context::Context;
use super::memory::Domain;
use super::objects::Channel;
use super::regions::Policy;
use super::shared_queue::SharedQueue;
use super::siblings::{Listener, Membership};
use super::{Options, Registration};
use rdma::{
    AcceptOptions, Attributes, Carrier, ConnectOptions, Counters, Device, DeviceError, Event,
    IdMap, Interest, ListenerId, Poller, Pool, PostError, QpId, Region, RemoteSegment, RequestId,
    Scatter, SendWr, SharedReceivesId, Stag, Time, WrId,
};
use rpcrdma_host::LoopClaim;

/// Tokens of the descriptors for connection manager, completion and asynchronous events.
const CM_TOKEN: usize = 0;
const COMPLETION_TOKEN: usize = 1;
const ASYNC_TOKEN: usize = 2;
/// Token of the mailbox for events and connection requests from siblings.
const MAIL_TOKEN: usize = 3;

/// The object to which a connection manager identifier belongs.
pub(super) enum CmIdOwner {
    Listener(ListenerId),
    Request(RequestId),
    Conn(QpId),
    /// A connection that is over; the peer is being notified.
    Parting,
}

/// A connection request that waits for an answer.
pub(super) struct Waiting {
    pub(super) id: Id,
    pub(super) depths: Depths,
    /// The loop for which its connection counts, if there are several.
    pub(super) claim: Option<LoopClaim>,
}

/// The descriptors that may have events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) cm: bool,
    pub(super) completion: bool,
    pub(super) asynchronous: bool,
}

/// A hardware device or a kernel soft device. See the [module](super).
///
/// Dropping it ends its connections, whatever is posted on them.
pub struct RdmaCore {
    // Fields are dropped in this order: users come before the objects that they use.
    pub(super) conns: HashMap<u64, Conn>,
    /// Shared receive queues. One is removed only when no connection in `conns` is bound to it.
    pub(super) shared: IdMap<SharedReceivesId, SharedQueue>,
    pub(super) requests: HashMap<u64, Waiting>,
    pub(super) listeners: HashMap<u64, Listener>,
    pub(super) targets: HashMap<IdKey, CmIdOwner>,
    pub(super) policy: Policy,
    /// The protection domain of all connections, unless each has its own.
    pub(super) domain: Option<Arc<Domain>>,
    pub(super) channel: Arc<Channel>,
    pub(super) membership: Membership,
    pub(super) cm: Arc<EventChannel>,
    pub(super) context: Arc<Context>,
    pub(super) capabilities: Capabilities,
    pub(super) attributes: Attributes,
    /// Maximum number of the program's requests on a send queue.
    pub(super) send_queue: u32,
    pub(super) options: Options,
    pub(super) counters: Counters,
    pub(super) events: VecDeque<Event>,
    /// Connections with requests that the device has not been given yet.
    pub(super) holding: Vec<QpId>,
    /// Connections whose completion queues are scheduled to be polled.
    pub(super) hot: Vec<QpId>,
    /// Deadlines of connections.
    pub(super) timers: BTreeSet<(Time, u64)>,
    /// Identifiers of connections that are over, with the time until which their peers should
    /// confirm that.
    pub(super) parting: VecDeque<(Time, Id)>,
    /// Time at which to poll for completed requests whose completions are not signaled to the
    /// program, to release their memory.
    pub(super) reap_at: Option<Time>,
    pub(super) look_at_all: Time,
    /// Time at which to probe silent peers; `None` if TCP does that.
    pub(super) probe_at: Option<Time>,
    pub(super) ready: Ready,
    pub(super) busy: bool,
    /// Whether [`Device::arm`] has promised to wake the owner.
    pub(super) asleep: bool,
    /// Whether a completion channel has woken the owner.
    pub(super) woken: bool,
    /// Whether the device was removed.
    pub(super) gone: bool,
    pub(super) now: Time,
}

/// The parts that [`super::open`] has assembled.
pub(super) struct Parts {
    pub(super) options: Options,
    pub(super) context: Arc<Context>,
    pub(super) membership: Membership,
    pub(super) cm: Arc<EventChannel>,
    pub(super) channel: Arc<Channel>,
    pub(super) domain: Option<Arc<Domain>>,
    pub(super) policy: Policy,
    pub(super) capabilities: Capabilities,
    pub(super) attributes: Attributes,
    pub(super) send_queue: u32,
}

impl RdmaCore {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            conns: HashMap::new(),
            shared: IdMap::default(),
            requests: HashMap::new(),
            listeners: HashMap::new(),
            targets: HashMap::new(),
            policy: parts.policy,
            domain: parts.domain,
            channel: parts.channel,
            membership: parts.membership,
            cm: parts.cm,
            context: parts.context,
            capabilities: parts.capabilities,
            attributes: parts.attributes,
            send_queue: parts.send_queue,
            options: parts.options,
            counters: Counters::default(),
            events: VecDeque::new(),
            holding: Vec::new(),
            hot: Vec::new(),
            timers: BTreeSet::new(),
            parting: VecDeque::new(),
            reap_at: None,
            look_at_all: Time::ZERO,
            probe_at: None,
            ready: Ready::default(),
            busy: false,
            asleep: false,
            woken: false,
            gone: false,
            now: Time::ZERO,
        }
    }

    /// Returns the device's name, as `rdma link` shows it.
    #[must_use]
    pub fn device_name(&self) -> String {
        self.context.name()
    }

    /// Returns the device's capabilities.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the strategy with which the device offers memory to peers.
    #[must_use]
    pub fn registration(&self) -> Registration {
        self.policy.registration
    }

    /// Returns the number of windows and registrations that the device holds for connections, in
    /// addition to those of its pool.
    #[must_use]
    pub fn held(&self) -> usize {
        self.conns.values().map(|conn| conn.regions.held()).sum()
    }

    /// Sets whether windows are invalidated by work requests or by freeing them. Work requests are
    /// what the specification provides, and need no system call. They are not used on rxe by
    /// default: its kernel driver dereferences a null pointer when a handle is invalidated twice,
    /// which a peer's late Send With Invalidate of a handle that this side gave up would cause.
    pub fn set_invalidate_by_request(&mut self, on: bool) {
        self.policy.invalidate_by_request = on;
    }

    /// Sets whether windows are bound to parts of the pool's registrations. That is the default on
    /// all devices except rxe, which does not check a window's bounds. Lets tests exercise this
    /// mode where rxe is the only device.
    #[doc(hidden)]
    pub fn set_exact_windows(&mut self, on: bool) {
        self.policy.exact_windows = on;
    }

    /// Schedules a connection's completion queues to be polled.
    pub(super) fn look_at(&mut self, qp: QpId) {
        if let Some(conn) = self.conns.get_mut(&qp.0)
            && !std::mem::replace(&mut conn.hot, true)
        {
            self.hot.push(qp);
        }
    }

    /// Schedules a connection's deadline.
    pub(super) fn timer(&mut self, qp: QpId) {
        let conn = self.conns.get(&qp.0);
        if let Some(at) = conn.and_then(|conn| conn.deadline) {
            self.timers.insert((at, qp.0));
        }
        // A connection that is ending must be examined as well.
        self.look_at(qp);
    }
}

impl fmt::Debug for RdmaCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaCore")
            .field("name", &self.attributes.name)
            .field("connections", &self.conns.len())
            .finish_non_exhaustive()
    }
}

impl Device for RdmaCore {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn pool(&self) -> &Pool {
        &self.policy.pool
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        for (token, fd) in [
            (CM_TOKEN, self.cm.fd()),
            (COMPLETION_TOKEN, self.channel.fd()),
        ] {
            poller.watch(fd, token, Interest::Readable)?;
        }
        self.membership.watch(poller, ASYNC_TOKEN, MAIL_TOKEN)?;
        // Events from before the registration are not signaled.
        self.ready = Ready {
            cm: true,
            completion: true,
            asynchronous: true,
        };
        Ok(())
    }

    fn ready(&mut self, local: usize, _closed: bool) {
        match local {
            CM_TOKEN => self.ready.cm = true,
            COMPLETION_TOKEN => {
                self.ready.completion = true;
                self.woken |= self.asleep;
            }
            ASYNC_TOKEN => self.ready.asynchronous = true,
            MAIL_TOKEN => (self.ready.cm, self.ready.asynchronous) = (true, true),
            _ => {}
        }
        self.asleep = false;
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.busy = on;
    }

    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        self.now = now;
        self.asleep = false;
        self.progress();
        events.append(&mut self.events);
    }

    fn flush(&mut self) {
        self.ring_all();
    }

    fn arm(&mut self) -> bool {
        let armed = self.arm_all();
        self.asleep = armed;
        armed
    }

    fn next_deadline(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let parting = self.parting.front().map(|(at, _)| *at);
        let all = [timer, parting, self.reap_at, self.probe_at];
        all.into_iter().flatten().min()
    }

    fn listen(&mut self, address: SocketAddr) -> Result<ListenerId, DeviceError> {
        self.make_listener(address)
    }

    fn local_address(&self, listener: ListenerId) -> Result<SocketAddr, DeviceError> {
        let known = self.listeners.get(&listener.0);
        let known = known.ok_or(DeviceError::Unknown("listener"))?;
        known.address.ok_or(DeviceError::Unknown("address"))
    }

    fn carrier(&self, _: QpId) -> Carrier {
        Carrier::Device
    }

    fn close_listener(&mut self, listener: ListenerId) {
        self.end_listening(listener);
    }

    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        self.start_connecting(remote, options)
    }

    fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        self.prepare(request, receives)
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        self.answer(qp, options)
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        self.refuse(request, private_data)
    }

    fn disconnect(&mut self, qp: QpId) {
        self.start_disconnecting(qp);
    }

    fn abort(&mut self, qp: QpId) {
        self.end_now(qp);
    }

    fn destroy(&mut self, qp: QpId) {
        self.remove(qp);
    }

    fn give_back(&mut self, quiet: &[QpId]) -> usize {
        let mut freed = rdma::shrink(&mut self.events);
        for qp in quiet {
            freed += self.conns.get_mut(&qp.0).map_or(0, Conn::give_back);
        }
        freed
    }

    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        let Some(conn) = self.conns.get_mut(&qp.0).filter(|conn| !conn.is_ending()) else {
            return Err((DeviceError::Unknown("queue pair"), region));
        };
        let copied = &mut self.counters.copied_bytes;
        let registered = conn
            .regions
            .register(&mut self.policy, &conn.domain, region, copied)?;
        self.counters.registrations += 1;
        self.look_at(qp);
        Ok(registered)
    }

    fn reclaim(&mut self, qp: QpId, stag: Stag) -> Result<Region, DeviceError> {
        let conn = self.conns.get_mut(&qp.0);
        let conn = conn.ok_or(DeviceError::Unknown("queue pair"))?;
        let copied = &mut self.counters.copied_bytes;
        conn.regions
            .reclaim(&self.policy.arenas, &conn.domain, stag, copied)
    }

    fn post_receive(
        &mut self,
        qp: QpId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        self.receive(qp, id, receive)
    }

    fn create_shared_receives(&mut self) -> Result<SharedReceivesId, DeviceError> {
        self.create_shared()
    }

    fn post_shared_receive(
        &mut self,
        receives: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        self.post_shared(receives, id, receive)
    }

    fn arm_shared_receives(
        &mut self,
        receives: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError> {
        self.arm_shared_limit(receives, below)
    }

    fn posted_shared_receives(&self, receives: SharedReceivesId) -> usize {
        self.shared.get(&receives).map_or(0, SharedQueue::posted)
    }

    /// Verbs have no function for this.
    fn withdraw_shared_receive(&mut self, _: SharedReceivesId) -> Option<Scatter> {
        None
    }

    /// Not known to verbs.
    fn receiving(&self, _: SharedReceivesId, _: &mut Vec<QpId>) {}

    fn destroy_shared_receives(&mut self, receives: SharedReceivesId) -> Result<(), DeviceError> {
        self.destroy_shared(receives)
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        self.send(qp, id, wr, signaled)
    }
}
