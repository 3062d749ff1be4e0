//! The device of a simulated host.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;

use super::queue_pair::{Entry, Progress, QueuePair, Registered, Request, Stage};
use super::state::{State, What};
use super::steps::before;
use super::{End, FabricEvent, NodeId, Path, StepKind};
use rdma::{
    AcceptOptions, Attributes, Carrier, ConnectError, ConnectOptions, Counters, Device,
    DeviceError, Event, ListenerId, Poller, Pool, PostError, QpId, Region, RemoteSegment,
    RequestId, Scatter, SendWr, SharedReceiveQueue, SharedReceivesId, Stag, Tap, Time, WrId,
};

/// First port number for listeners that ask for port 0.
const FIRST_PORT: u16 = 49152;

/// The device of a host in a fabric.
pub struct SimDevice {
    state: Rc<RefCell<State>>,
    node: NodeId,
    /// The incarnation of the host to which the device belongs.
    life: u64,
    attributes: Attributes,
    pool: Pool,
}

impl SimDevice {
    pub(super) fn new(
        state: Rc<RefCell<State>>,
        node: NodeId,
        life: u64,
        attributes: Attributes,
        pool: Pool,
    ) -> Self {
        Self {
            state,
            node,
            life,
            attributes,
            pool,
        }
    }

    /// Returns the device's host.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Shows the connections that this host sets up, and the packets that it sends and receives
    /// from now on, to `tap`, until it crashes. A sent packet is shown at the time at which its
    /// last bit leaves.
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        if self.lives() {
            self.state.borrow_mut().taps.insert(self.node, tap);
        }
    }

    fn end(&self, qp: QpId) -> End {
        End {
            node: self.node,
            qp,
        }
    }

    /// Returns whether the host has not crashed since the device was made.
    fn lives(&self) -> bool {
        let state = self.state.borrow();
        let node = &state.nodes[self.node.0];
        node.alive && node.life == self.life
    }
}

impl Device for SimDevice {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn counters(&self) -> Counters {
        self.state.borrow().nodes[self.node.0].counters
    }

    fn attach(&mut self, _: Poller) -> io::Result<()> {
        let text = "a simulated device has no part in a poll loop of the operating system";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn set_busy_poll(&mut self, _: bool) {}

    /// Returns one event at a time, so that the owner's next actions are attributed to that event.
    fn poll(&mut self, _: Time, events: &mut VecDeque<Event>) {
        if !self.lives() {
            return;
        }
        let mut state = self.state.borrow_mut();
        let node = state.node(self.node);
        let Some((event, path)) = node.events.pop_front() else {
            return;
        };
        node.path = path;
        if let Event::ConnectFailed { qp, .. } = &event {
            node.qps.remove(qp);
        }
        let cost = state.costs.completion;
        state.work(self.node, cost);
        if let Some(qp) = super::state::qp_of(&event) {
            state.note(&FabricEvent::Taken(self.end(qp), &event));
        }
        events.push_back(event);
    }

    fn arm(&mut self) -> bool {
        if !self.lives() {
            return true;
        }
        let mut state = self.state.borrow_mut();
        let node = state.node(self.node);
        node.armed = node.events.is_empty();
        node.armed
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn listen(&mut self, mut address: SocketAddr) -> Result<ListenerId, DeviceError> {
        if !self.lives() {
            return Err(DeviceError::Unknown("host"));
        }
        let mut state = self.state.borrow_mut();
        let listener = ListenerId(state.id());
        let node = state.node(self.node);
        if address.port() == 0 {
            let used = |port: &u16| node.listeners.values().any(|at| at.port() == *port);
            let free = (FIRST_PORT..=u16::MAX).find(|port| !used(port));
            address.set_port(free.ok_or(DeviceError::Limit("ports"))?);
        } else if node.listeners.values().any(|&at| at == address) {
            return Err(DeviceError::Limit("listeners of one address"));
        }
        node.listeners.insert(listener, address);
        Ok(listener)
    }

    fn local_address(&self, listener: ListenerId) -> Result<SocketAddr, DeviceError> {
        let state = self.state.borrow();
        let address = state.nodes[self.node.0].listeners.get(&listener);
        address.copied().ok_or(DeviceError::Unknown("listener"))
    }

    fn carrier(&self, _: QpId) -> Carrier {
        Carrier::Device
    }

    fn close_listener(&mut self, listener: ListenerId) {
        let mut state = self.state.borrow_mut();
        state.node(self.node).listeners.remove(&listener);
    }

    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        check_private_data(&self.attributes, options.private_data.len())?;
        if !self.lives() {
            return Err(DeviceError::Unknown("host"));
        }
        let mut state = self.state.borrow_mut();
        state
            .node(self.node)
            .check_shared(options.shared_receives)?;
        let qp = QpId(state.id());
        let end = self.end(qp);
        state.note(&FabricEvent::Connecting(end, &options.private_data));
        let cost = state.costs.post;
        let path = state.node(self.node).path;
        let begun = state.work(self.node, cost);
        let (delay, ignore) = (state.link(self.node).delay, state.faults.ignore_request);
        let inbound = options.inbound_reads.min(self.attributes.max_inbound_reads);
        let outbound = options
            .outbound_reads
            .min(self.attributes.max_outbound_reads);
        let shared = options.shared_receives;
        let request = Request {
            from: end,
            to: remote,
            private_data: options.private_data.clone(),
            inbound_reads: inbound,
            outbound_reads: outbound,
        };
        let mut pair = QueuePair::new(Stage::Connecting(request.clone()));
        pair.shared = shared;
        state.node(self.node).qps.insert(qp, pair);
        if !state.random.chance(ignore) {
            let path = path.crossed();
            state.at(begun + delay, What::Request { request, path });
        }
        let what = What::NotConnected(end, ConnectError::TimedOut, path);
        state.at(begun + options.timeout, what);
        Ok(qp)
    }

    fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        let mut state = self.state.borrow_mut();
        state.node(self.node).check_shared(receives)?;
        let unknown = || DeviceError::Unknown("connection request");
        let known = state.requests.get(&request);
        known
            .filter(|(at, _)| *at == self.node)
            .ok_or_else(unknown)?;
        let (_, wanted) = state.requests.remove(&request).ok_or_else(unknown)?;
        let qp = QpId(state.id());
        let mut pair = QueuePair::new(Stage::Prepared(wanted));
        pair.shared = receives;
        state.node(self.node).qps.insert(qp, pair);
        Ok(qp)
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        check_private_data(&self.attributes, options.private_data.len())?;
        let mut state = self.state.borrow_mut();
        let end = self.end(qp);
        let (inbound, outbound) = (
            options.inbound_reads.min(self.attributes.max_inbound_reads),
            options
                .outbound_reads
                .min(self.attributes.max_outbound_reads),
        );
        let unknown = DeviceError::Unknown("queue pair");
        let pair = state.qp(end).ok_or(unknown)?;
        let Stage::Prepared(request) = &pair.stage else {
            return Err(DeviceError::Unknown("prepared queue pair"));
        };
        let request = request.clone();
        let (to, reads) = (request.from, request.outbound_reads.min(inbound).max(1));
        pair.max_reading = outbound.min(request.inbound_reads).max(1);
        pair.peer = Some(to);
        pair.stage = Stage::Accepted;
        let path = state.node(self.node).path;
        let cost = state.costs.post;
        let begun = state.work(self.node, cost);
        state.show_setup(end, &request, &options.private_data);
        let (delay, detection) = (state.link(self.node).delay, state.costs.detection);
        let what = What::Answer {
            to,
            from: end,
            private_data: options.private_data.clone(),
            reads,
            path: path.crossed(),
        };
        state.at(begun + delay, what);
        // The connecting side may be gone before it receives the answer.
        let late = begun + detection + state.costs.round_trip();
        let what = What::NotConnected(end, ConnectError::TimedOut, path);
        state.at(late, what);
        Ok(())
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        check_private_data(&self.attributes, private_data.len())?;
        let mut state = self.state.borrow_mut();
        let known = state.requests.get(&request);
        let rejected = known
            .filter(|(at, _)| *at == self.node)
            .map(|(_, it)| it.from);
        let from = rejected.ok_or(DeviceError::Unknown("connection request"))?;
        state.requests.remove(&request);
        let private_data = Bytes::copy_from_slice(private_data);
        let path = state.node(self.node).path.crossed();
        let at = state.now + state.link(self.node).delay;
        let error = ConnectError::Rejected { private_data };
        state.at(at, What::NotConnected(from, error, path));
        Ok(())
    }

    fn disconnect(&mut self, qp: QpId) {
        self.state.borrow_mut().close(self.end(qp));
    }

    fn abort(&mut self, qp: QpId) {
        self.state.borrow_mut().abort(self.end(qp));
    }

    fn destroy(&mut self, qp: QpId) {
        self.state.borrow_mut().destroy(self.end(qp));
    }

    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        let mut state = self.state.borrow_mut();
        let end = self.end(qp);
        if !state.qp(end).is_some_and(|pair| pair.is_up()) {
            return Err((DeviceError::Unknown("queue pair"), region));
        }
        let fail = state.faults.fail_registration;
        let length = u32::try_from(region.len()).ok();
        let Some(length) = length.filter(|_| region.len() <= self.attributes.max_region) else {
            return Err((DeviceError::Limit("length of a region"), region));
        };
        let cost = state.costs.registering(region.len());
        let ready = state.work(self.node, cost);
        if state.random.chance(fail) {
            state.note(&FabricEvent::NotRegistered(end));
            return Err((DeviceError::Limit("registrations"), region));
        }
        let node = state.node(self.node);
        let base = node.handles.next() >> 1;
        node.counters.registrations += 1;
        node.path.count_registration(self.node);
        let path = node.path;
        let kind = StepKind::Registration {
            len: region.len(),
            for_writes: matches!(region, Region::RemoteWrite(_)),
        };
        let times = (before(ready, cost), ready);
        let path = state.stepped(path, self.node, times, kind);
        state.node(self.node).path = path;
        // Zero is never used, so that an unset field does not name a region.
        let mut stag = Stag(0);
        while stag == Stag(0) || state.nodes.iter().any(|node| names(node, stag)) {
            stag = Stag(state.node(self.node).handles.next() as u32);
        }
        state.note(&FabricEvent::Registered(end, stag, region.len()));
        if let Some(pair) = state.qp(end) {
            let valid = true;
            let registered = Registered {
                region,
                base,
                valid,
            };
            pair.memory.insert(stag, registered);
        }
        state.may_lose(end);
        Ok(RemoteSegment {
            stag,
            length,
            offset: base,
        })
    }

    fn reclaim(&mut self, qp: QpId, stag: Stag) -> Result<Region, DeviceError> {
        let mut state = self.state.borrow_mut();
        let unknown = || DeviceError::Unknown("handle");
        let pair = state.qp(self.end(qp)).ok_or_else(unknown)?;
        if pair.memory.get(&stag).ok_or_else(unknown)?.valid {
            return Err(DeviceError::StillRegistered(stag));
        }
        let memory = pair.memory.remove(&stag).ok_or_else(unknown)?;
        Ok(memory.region)
    }

    fn post_receive(
        &mut self,
        qp: QpId,
        id: WrId,
        buf: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let mut state = self.state.borrow_mut();
        let Some(pair) = state.qp(self.end(qp)) else {
            return Err((PostError::Unknown, buf));
        };
        if matches!(pair.stage, Stage::Down) {
            return Err((PostError::NotConnected, buf));
        }
        if pair.shared.is_some() {
            return Err((PostError::Bound, buf));
        }
        if pair.receives.len() >= self.attributes.max_recv_wr {
            return Err((PostError::QueueFull, buf));
        }
        if buf.count() > self.attributes.max_scatter {
            return Err((PostError::TooManyElements, buf));
        }
        pair.receives.push_back((id, buf));
        let cost = state.costs.post;
        state.work(self.node, cost);
        Ok(())
    }

    fn create_shared_receives(&mut self) -> Result<SharedReceivesId, DeviceError> {
        let limits = self.attributes.shared_receives;
        let limits = limits.ok_or(DeviceError::Limit("shared receive queues"))?;
        if !self.lives() {
            return Err(DeviceError::Unknown("host"));
        }
        let mut state = self.state.borrow_mut();
        let id = SharedReceivesId(state.id());
        let queue = SharedReceiveQueue::new(limits.max_wr, self.attributes.max_scatter);
        state.node(self.node).shared.insert(id, queue);
        Ok(id)
    }

    fn post_shared_receive(
        &mut self,
        receives: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        if !self.lives() {
            return Err((PostError::Unknown, receive));
        }
        let mut state = self.state.borrow_mut();
        let Some(queue) = state.node(self.node).shared.get_mut(&receives) else {
            return Err((PostError::Unknown, receive));
        };
        queue.post(id, receive)?;
        state.note(&FabricEvent::ReceivePosted(self.node, receives, id));
        let cost = state.costs.post;
        state.work(self.node, cost);
        state.serve_waiting(self.node, receives);
        Ok(())
    }

    fn arm_shared_receives(
        &mut self,
        receives: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError> {
        let mut state = self.state.borrow_mut();
        let node = state.node(self.node);
        node.check_shared(Some(receives))?;
        if let Some(queue) = node.shared.get_mut(&receives) {
            queue.arm(below);
        }
        let path = node.path;
        state.tell_if_low(self.node, receives, path);
        Ok(())
    }

    fn posted_shared_receives(&self, receives: SharedReceivesId) -> usize {
        let state = self.state.borrow();
        let queue = state.nodes[self.node.0].shared.get(&receives);
        queue.map_or(0, SharedReceiveQueue::len)
    }

    fn withdraw_shared_receive(&mut self, receives: SharedReceivesId) -> Option<Scatter> {
        let mut state = self.state.borrow_mut();
        let queue = state.node(self.node).shared.get_mut(&receives);
        let (id, receive) = queue.and_then(SharedReceiveQueue::withdraw)?;
        state.note(&FabricEvent::ReceiveWithdrawn(self.node, receives, id));
        Some(receive)
    }

    /// Messages arrive as a whole.
    fn receiving(&self, _: SharedReceivesId, _: &mut Vec<QpId>) {}

    fn destroy_shared_receives(&mut self, receives: SharedReceivesId) -> Result<(), DeviceError> {
        let mut state = self.state.borrow_mut();
        let node = state.node(self.node);
        node.check_shared(Some(receives))?;
        if node.qps.values().any(|qp| qp.shared == Some(receives)) {
            return Err(DeviceError::Bound);
        }
        let queue = node.shared.remove(&receives);
        node.events.retain(
            |(event, _)| !matches!(event, Event::SharedReceivesLow { id } if *id == receives),
        );
        drop(state);
        drop(queue);
        Ok(())
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let mut state = self.state.borrow_mut();
        let end = self.end(qp);
        let elements = match &wr {
            SendWr::Send { gather, .. } | SendWr::Write { gather, .. } => gather.len(),
            _ => 0,
        };
        let Some(pair) = state.qp(end) else {
            return Err((PostError::Unknown, wr));
        };
        if !pair.is_up() || pair.closing {
            return Err((PostError::NotConnected, wr));
        }
        if elements > self.attributes.max_gather {
            return Err((PostError::TooManyElements, wr));
        }
        if pair.slots >= self.attributes.max_send_wr {
            return Err((PostError::QueueFull, wr));
        }
        state.note(&FabricEvent::Posted(end, &wr));
        let always = matches!(wr, SendWr::Read { .. } | SendWr::Invalidate { .. });
        count(&mut state.node(self.node).counters, &wr);
        let cost = state.costs.post;
        let posted = state.work(self.node, cost);
        let path: Path = state.node(self.node).path;
        if let Some(pair) = state.qp(end) {
            pair.slots += 1;
            pair.queue.push_back(Entry {
                id,
                signaled: signaled || always,
                progress: Progress::Waiting(wr),
                done: false,
                refused: false,
                held: false,
                posted,
                path,
            });
        }
        state.pump(end);
        state.may_lose(end);
        Ok(())
    }
}

fn count(counters: &mut Counters, wr: &SendWr) {
    match wr {
        SendWr::Send { invalidate, .. } => {
            counters.sends += 1;
            counters.sends_with_invalidate += u64::from(invalidate.is_some());
        }
        SendWr::Write { .. } => counters.rdma_writes += 1,
        SendWr::Read { .. } => counters.rdma_reads += 1,
        SendWr::Invalidate { .. } => counters.local_invalidations += 1,
    }
}

fn names(node: &super::state::Node, stag: Stag) -> bool {
    node.qps.values().any(|qp| qp.memory.contains_key(&stag))
}

fn check_private_data(attributes: &Attributes, len: usize) -> Result<(), DeviceError> {
    match attributes.max_private_data {
        max if len > max => Err(DeviceError::PrivateDataTooLong { len, max }),
        _ => Ok(()),
    }
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDevice")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}
