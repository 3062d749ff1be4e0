//! Fake devices in one process, with strict checks: every access to memory of the peer is checked
//! against handle, bounds and access right, every Send needs a posted receive that is long enough,
//! and send-queue slots are released only by signaled completions, as in real queues.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use rdma::{
    AcceptOptions, Attributes, Carrier, ClassCosts, Completion, ConnectError, ConnectOptions,
    ConnectRequest, Counters, Device, DeviceError, Disconnect, Event, Failed, ListenerId, Poller,
    Pool, PostError, QpId, Region, RemoteSegment, RequestId, Scatter, SendWr, SharedReceiveQueue,
    SharedReceives, SharedReceivesId, Stag, Success, Time, WhenEmpty, WorkError, WrId,
};

/// Returns the address of every listener.
pub fn address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 20049).into()
}

/// An operation that went over the wire.
#[derive(Debug, Clone)]
pub enum Traffic {
    /// A Send, with the handle it invalidates.
    Send(Bytes, Option<Stag>),
    /// An RDMA Read of this many bytes.
    Read(usize),
    /// An RDMA Write of this many bytes.
    Write(usize),
}

struct Registered {
    region: Region,
    base: u64,
    valid: bool,
}

struct Queued {
    id: WrId,
    wr: SendWr,
    signaled: bool,
}

#[derive(Default)]
struct Qp {
    peer: Option<(usize, QpId)>,
    up: bool,
    /// Whether its owner has disconnected it, and requests that were posted before are not executed yet.
    closing: bool,
    receives: VecDeque<(WrId, Scatter)>,
    /// The shared receive queue to which it is bound, if there is one, and whether a message waits
    /// for a receive of it.
    shared: Option<SharedReceivesId>,
    waits: bool,
    send_queue: VecDeque<Queued>,
    /// Send-queue slots in use: requests that no later signaled completion has released.
    slots: usize,
    /// The number of slots of unsignaled requests that have been executed.
    silent: usize,
    memory: HashMap<Stag, Registered>,
}

#[derive(Default)]
struct Node {
    qps: HashMap<QpId, Qp>,
    shared: HashMap<SharedReceivesId, SharedReceiveQueue>,
    events: VecDeque<Event>,
    listening: bool,
    removed: bool,
    counters: Counters,
}

impl Node {
    /// Checks that a shared receive queue exists, if one is named.
    fn check_shared(&self, receives: Option<SharedReceivesId>) -> Result<(), DeviceError> {
        match receives {
            Some(receives) if !self.shared.contains_key(&receives) => {
                Err(DeviceError::Unknown("shared receive queue"))
            }
            _ => Ok(()),
        }
    }
}

/// A connection request that waits for its answer.
struct Pending {
    from: (usize, QpId),
    at: usize,
}

/// The state that all devices share.
#[derive(Default)]
pub struct World {
    nodes: Vec<Node>,
    pending: HashMap<RequestId, Pending>,
    accepting: HashMap<QpId, Pending>,
    next: u64,
    /// Every Send, RDMA Read and RDMA Write, in order, with the index of the device that posted it.
    pub traffic: Vec<(usize, Traffic)>,
    /// If set, the connection is lost before the operation with this number.
    pub lose_at: Option<usize>,
    /// If set, every attempt to connect fails with this error.
    pub refuse_with: Option<ConnectError>,
    /// If set, no queue pair can be made for a connection request, for this reason.
    pub refuse_queue_pairs: Option<io::ErrorKind>,
    /// Whether graceful disconnects are left unanswered.
    pub deaf: bool,
    /// Whether invalidations fail.
    pub fail_invalidate: bool,
    /// Whether send-queue entries are executed.
    pub running: bool,
    /// The device whose send-queue entries are not executed, as if its peers received nothing.
    pub stalled: Option<usize>,
    /// The number of requests of each device that are refused next, as if there were no memory for a copy.
    pub refuse_posts: HashMap<usize, usize>,
    /// The device of which only one send-queue entry is executed in each poll.
    pub slow: Option<usize>,
    /// The device whose receive queues are full, so that no more receives can be posted.
    pub full: Option<usize>,
    /// Private data that `connect` and `accept` sent, in order.
    pub private_data: Vec<Bytes>,
    /// The minimum number of receives that were left on a queue pair after a message had arrived.
    pub fewest_receives: Option<usize>,
    /// Length of the shortest receive ever posted.
    pub shortest_receive: Option<usize>,
    /// The queue pairs of each call of [`Device::give_back`].
    pub given_back: Vec<Vec<QpId>>,
    /// The number of Sends that found no posted receive.
    pub overruns: usize,
    /// The number of messages that had to wait for a receive of a shared receive queue.
    pub waited: usize,
    /// The handles of rejected RDMA Writes and RDMA Reads. A rejection ends the connection.
    pub refused: Vec<Stag>,
    /// If set, one byte of the next Send of this device is changed: the device, the position modulo
    /// the length of the message, and the bits to flip.
    pub tamper: Option<(usize, usize, u8)>,
}

/// One fake device.
pub struct FakeDevice {
    world: Rc<RefCell<World>>,
    me: usize,
    attributes: Attributes,
    pool: Pool,
}

/// Returns the default attributes of a fake device. It has no shared receives, so that each
/// connection must have posted what its credits promise.
pub fn attributes() -> Attributes {
    Attributes {
        name: "fake".to_owned(),
        max_send_wr: 256,
        max_recv_wr: 1024,
        max_gather: 8,
        max_scatter: 32,
        max_region: 1 << 30,
        max_inbound_reads: 16,
        max_outbound_reads: 16,
        costs: ClassCosts::default(),
        max_private_data: 56,
        remote_invalidation: true,
        shared_receives: None,
        keeps_credentials: false,
    }
}

/// Returns the attributes of a fake device on which connections share receives.
#[allow(dead_code, reason = "not every test shares")]
pub fn sharing(when_empty: WhenEmpty) -> Attributes {
    Attributes {
        shared_receives: Some(SharedReceives {
            max_wr: 4096,
            when_empty,
        }),
        ..attributes()
    }
}

impl World {
    pub fn new() -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            running: true,
            ..Self::default()
        }))
    }

    /// Returns the number of receives that the queue pairs of a device have.
    #[allow(dead_code, reason = "not every test counts them")]
    pub fn posted_receives(&self, node: usize) -> usize {
        let qps = self.nodes[node].qps.values();
        qps.map(|qp| qp.receives.len()).sum()
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn qp(&mut self, (node, qp): (usize, QpId)) -> Option<&mut Qp> {
        self.nodes[node].qps.get_mut(&qp)
    }

    fn complete(&mut self, at: (usize, QpId), id: WrId, result: Result<Success, Failed>) {
        let qp = at.1;
        let completion = Completion { qp, id, result };
        self.nodes[at.0]
            .events
            .push_back(Event::Completion(completion));
    }

    /// Reports the end of a connection to both ends.
    fn disconnected(&mut self, at: (usize, QpId), reason: Disconnect, other: Disconnect) {
        let peer = self.qp(at).and_then(|qp| qp.peer);
        self.end(at, reason);
        if let Some(peer) = peer {
            self.end(peer, other);
        }
    }

    fn end(&mut self, at: (usize, QpId), reason: Disconnect) {
        let Some(qp) = self.qp(at) else { return };
        if !std::mem::replace(&mut qp.up, false) {
            return;
        }
        let receives = std::mem::take(&mut qp.receives);
        let shared = qp.shared;
        let queue = std::mem::take(&mut qp.send_queue);
        qp.memory
            .values_mut()
            .for_each(|memory| memory.valid = false);
        let flushed = |buf| Failed {
            error: WorkError::Flushed,
            buf,
        };
        self.leave(at, shared);
        for queued in queue {
            let buf = match queued.wr {
                SendWr::Read { sink, .. } => Some(sink.into()),
                _ => None,
            };
            self.complete(at, queued.id, Err(flushed(buf)));
        }
        for (id, buf) in receives {
            self.complete(at, id, Err(flushed(Some(buf))));
        }
        let qp = at.1;
        self.nodes[at.0]
            .events
            .push_back(Event::Disconnected { qp, reason });
    }

    /// Returns whether there is a receive for a message to `to`. With a shared receive queue, takes
    /// it; without one, that is not checked here.
    fn has_receive(&mut self, (node, id): (usize, QpId)) -> bool {
        let node = &mut self.nodes[node];
        let Some(qp) = node.qps.get_mut(&id) else {
            return true;
        };
        let shared = qp.shared.filter(|_| qp.receives.is_empty());
        let Some((name, queue)) = shared.and_then(|id| Some((id, node.shared.get_mut(&id)?)))
        else {
            return true;
        };
        if !qp.waits || queue.next() == Some(id) {
            qp.receives.extend(queue.take(id));
            qp.waits = qp.receives.is_empty();
            self.waited += usize::from(qp.waits);
        }
        if queue.take_low() {
            let id = name;
            node.events.push_back(Event::SharedReceivesLow { id });
        }
        !qp.waits
    }

    /// Makes each queue pair of a device that is bound to a shared receive queue, and not in the middle
    /// of a message, begin one that does not go on. Returns whether all are in the middle of one.
    pub fn begin_messages(&mut self, node: usize) -> bool {
        let qps: Vec<QpId> = self.nodes[node].qps.keys().copied().collect();
        for qp in &qps {
            let _ = self.has_receive((node, *qp));
        }
        let begun = |qp: &QpId| !self.nodes[node].qps[qp].receives.is_empty();
        qps.iter().all(begun)
    }

    /// Lets others have the receives for which a queue pair waits.
    fn leave(&mut self, (node, qp): (usize, QpId), shared: Option<SharedReceivesId>) {
        if let Some(queue) = shared.and_then(|id| self.nodes[node].shared.get_mut(&id)) {
            queue.leave(qp);
        }
    }

    /// Returns the number of posted Sends of a device that have not been executed.
    pub fn posted(&self, node: usize) -> usize {
        let qps = self.nodes[node].qps.values();
        let posted = qps.flat_map(|qp| &qp.send_queue);
        posted
            .filter(|queued| matches!(queued.wr, SendWr::Send { .. }))
            .count()
    }

    /// Ends every connection, as a broken network would.
    pub fn lose_all(&mut self) {
        for node in 0..self.nodes.len() {
            let qps: Vec<QpId> = self.nodes[node].qps.keys().copied().collect();
            for qp in qps {
                let lost = Disconnect::Lost("cable pulled".to_owned());
                self.disconnected((node, qp), lost.clone(), lost);
            }
        }
    }

    /// Ends one connection of a device, as a broken network would.
    #[allow(dead_code, reason = "not every test loses one of several")]
    pub fn lose_one(&mut self, node: usize, conn: u64) {
        let lost = Disconnect::Lost("cable pulled".to_owned());
        self.disconnected((node, QpId(conn)), lost.clone(), lost);
    }

    /// Returns the queue pairs of a device, the oldest first.
    #[allow(dead_code, reason = "not every test looks at them")]
    pub fn queue_pairs(&self, node: usize) -> Vec<QpId> {
        let mut qps: Vec<QpId> = self.nodes[node].qps.keys().copied().collect();
        qps.sort();
        qps
    }

    /// Delivers a forged message on all connections of a device.
    pub fn inject(&mut self, node: usize, message: &[u8], invalidate: Option<Stag>) {
        for at in self.queue_pairs(node).into_iter().map(|qp| (node, qp)) {
            let up = self.qp(at).is_some_and(|qp| qp.up);
            if up && let Err((_, what)) = self.deliver(at, message, invalidate) {
                let ended = Disconnect::Terminated(what.clone());
                self.disconnected(at, ended, Disconnect::PeerError(what));
            }
        }
    }

    /// Returns handle, first offset and length of all memory of a device that its peers can reach.
    pub fn reachable(&self, node: usize) -> Vec<(Stag, u64, usize)> {
        let memory = self.nodes[node].qps.values().flat_map(|qp| &qp.memory);
        let valid = memory.filter(|(_, memory)| memory.valid);
        let mut all: Vec<_> = valid
            .map(|(stag, memory)| (*stag, memory.base, memory.region.len()))
            .collect();
        all.sort();
        all
    }

    /// Removes a device and ends its connections. It accepts no further requests.
    pub fn remove(&mut self, node: usize) {
        self.lose_all();
        self.nodes[node].listening = false;
        self.nodes[node].removed = true;
        self.nodes[node].events.push_back(Event::Removed);
    }

    /// Ends all listeners.
    pub fn stop_listening(&mut self) {
        self.nodes
            .iter_mut()
            .for_each(|node| node.listening = false);
    }

    /// Returns a range of the peer's memory, if the handle, bounds and access right allow the
    /// access.
    fn reach(
        &mut self,
        peer: (usize, QpId),
        stag: Stag,
        offset: u64,
        len: usize,
    ) -> Option<(&mut Region, usize)> {
        let memory = self.qp(peer)?.memory.get_mut(&stag)?;
        let start = usize::try_from(offset.checked_sub(memory.base)?).ok()?;
        let inside = start.checked_add(len)? <= memory.region.len();
        (memory.valid && inside).then_some((&mut memory.region, start))
    }

    /// Executes all send-queue entries of a device.
    fn run(&mut self, node: usize) {
        if self.stalled == Some(node) {
            return;
        }
        let mut qps: Vec<QpId> = self.nodes[node].qps.keys().copied().collect();
        qps.sort();
        for qp in qps {
            while self.running && self.step((node, qp)) && self.slow != Some(node) {}
            let closes = |qp: &mut Qp| qp.closing && qp.send_queue.is_empty();
            if self.qp((node, qp)).is_some_and(closes) {
                self.disconnected((node, qp), Disconnect::Local, Disconnect::Remote);
            }
        }
    }

    fn step(&mut self, at: (usize, QpId)) -> bool {
        let lose = self.lose_at == Some(self.traffic.len());
        let Some(qp) = self.qp(at) else { return false };
        let Some(peer) = qp.peer.filter(|_| qp.up && !qp.send_queue.is_empty()) else {
            return false;
        };
        let is_send = |queued: &Queued| matches!(queued.wr, SendWr::Send { .. });
        let sends = qp.send_queue.front().is_some_and(is_send);
        if lose {
            let lost = Disconnect::Lost("cable pulled".to_owned());
            self.disconnected(at, lost.clone(), lost);
            return false;
        }
        // A message that finds no receive in a shared receive queue waits, and what is behind it.
        if sends && !self.has_receive(peer) {
            return false;
        }
        let next = self.qp(at).and_then(|qp| qp.send_queue.pop_front());
        let Some(Queued { id, wr, signaled }) = next else {
            return false;
        };
        match self.carry_out(at, peer, wr) {
            Ok(success) => {
                if let Some(qp) = self.qp(at) {
                    match signaled {
                        true => {
                            qp.slots -= 1 + qp.silent;
                            qp.silent = 0;
                        }
                        false => qp.silent += 1,
                    }
                }
                if signaled {
                    self.complete(at, id, Ok(success));
                }
                true
            }
            Err((error, what)) => {
                let failed = Failed { error, buf: None };
                self.complete(at, id, Err(failed));
                self.disconnected(
                    at,
                    Disconnect::Terminated(what.clone()),
                    Disconnect::PeerError(what),
                );
                false
            }
        }
    }

    fn carry_out(
        &mut self,
        at: (usize, QpId),
        peer: (usize, QpId),
        wr: SendWr,
    ) -> Result<Success, (WorkError, String)> {
        match wr {
            SendWr::Send { gather, invalidate } => {
                let mut message = gather.concat();
                if let Some((_, place, bits)) = self.tamper.take_if(|(node, ..)| *node == at.0)
                    && let Some(place) = place.checked_rem(message.len())
                {
                    message[place] ^= bits;
                }
                let sent = Traffic::Send(Bytes::from(message.clone()), invalidate);
                self.traffic.push((at.0, sent));
                self.deliver(peer, &message, invalidate)?;
                Ok(Success::Send)
            }
            SendWr::Write {
                gather,
                stag,
                offset,
            } => {
                let data = gather.concat();
                self.traffic.push((at.0, Traffic::Write(data.len())));
                match self.reach(peer, stag, offset, data.len()) {
                    Some((Region::RemoteWrite(buf), start)) => {
                        buf[start..start + data.len()].copy_from_slice(&data);
                        Ok(Success::Write)
                    }
                    _ => Err(self.refuse(stag, "Write refused")),
                }
            }
            SendWr::Read {
                mut sink,
                stag,
                offset,
            } => {
                self.traffic.push((at.0, Traffic::Read(sink.len())));
                let len = sink.len();
                match self.reach(peer, stag, offset, len) {
                    Some((Region::RemoteRead(bytes), start)) => {
                        sink.copy_from_slice(&bytes[start..start + len]);
                        Ok(Success::Read { sink })
                    }
                    _ => Err(self.refuse(stag, "Read refused")),
                }
            }
            SendWr::Invalidate { .. } if self.fail_invalidate => {
                Err((WorkError::LocalProtection, "told to fail".to_owned()))
            }
            SendWr::Invalidate { stag } => {
                let memory = self.qp(at).and_then(|qp| qp.memory.get_mut(&stag));
                match memory {
                    Some(memory) if memory.valid => memory.valid = false,
                    _ => return Err((WorkError::LocalProtection, "no such handle".to_owned())),
                }
                Ok(Success::Invalidate)
            }
        }
    }

    fn refuse(&mut self, stag: Stag, what: &str) -> (WorkError, String) {
        self.refused.push(stag);
        (WorkError::RemoteAccess, what.to_owned())
    }

    fn deliver(
        &mut self,
        peer: (usize, QpId),
        message: &[u8],
        invalidate: Option<Stag>,
    ) -> Result<(), (WorkError, String)> {
        let operation = |what: &str| (WorkError::RemoteOperation, what.to_owned());
        let Some(qp) = self.qp(peer) else {
            return Err(operation("no peer"));
        };
        if let Some(stag) = invalidate {
            match qp.memory.get_mut(&stag) {
                Some(memory) if memory.valid => memory.valid = false,
                _ => return Err(operation("invalidation refused")),
            }
        }
        let Some((id, mut buf)) = qp.receives.pop_front() else {
            self.overruns += 1;
            return Err(operation("no receive"));
        };
        let shared = qp.shared;
        let left = match shared.and_then(|id| self.nodes[peer.0].shared.get(&id)) {
            Some(queue) => queue.len(),
            None => self.qp(peer).map_or(0, |qp| qp.receives.len()),
        };
        self.fewest_receives = Some(self.fewest_receives.map_or(left, |least| least.min(left)));
        if !buf.fill(message) {
            let error = WorkError::LocalLength;
            let buf = Some(buf);
            self.complete(peer, id, Err(Failed { error, buf }));
            return Err(operation("receive too short"));
        }
        self.nodes[peer.0].counters.receives += 1;
        let received = Success::Receive {
            buf,
            invalidated: invalidate,
        };
        self.complete(peer, id, Ok(received));
        Ok(())
    }
}

impl FakeDevice {
    pub fn new(world: &Rc<RefCell<World>>, attributes: Attributes, pool: Pool) -> Self {
        let mut shared = world.borrow_mut();
        shared.nodes.push(Node::default());
        Self {
            world: Rc::clone(world),
            me: shared.nodes.len() - 1,
            attributes,
            pool,
        }
    }
}

impl Device for FakeDevice {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn counters(&self) -> Counters {
        self.world.borrow().nodes[self.me].counters
    }

    fn attach(&mut self, _poller: Poller) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _local: usize, _closed: bool) {}

    fn set_busy_poll(&mut self, _on: bool) {}

    fn poll(&mut self, _now: Time, events: &mut VecDeque<Event>) {
        let mut world = self.world.borrow_mut();
        world.run(self.me);
        events.append(&mut world.nodes[self.me].events);
    }

    fn arm(&mut self) -> bool {
        self.world.borrow().nodes[self.me].events.is_empty()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn listen(&mut self, _address: SocketAddr) -> Result<ListenerId, DeviceError> {
        self.world.borrow_mut().nodes[self.me].listening = true;
        Ok(ListenerId(0))
    }

    fn local_address(&self, _listener: ListenerId) -> Result<SocketAddr, DeviceError> {
        Ok(address())
    }

    fn carrier(&self, _: QpId) -> Carrier {
        Carrier::Device
    }

    fn close_listener(&mut self, _listener: ListenerId) {
        self.world.borrow_mut().nodes[self.me].listening = false;
    }

    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        let mut world = self.world.borrow_mut();
        if world.nodes[self.me].removed {
            return Err(DeviceError::Unknown("device: it was removed"));
        }
        world.nodes[self.me].check_shared(options.shared_receives)?;
        let qp = QpId(world.id());
        let bound = Qp {
            shared: options.shared_receives,
            ..Qp::default()
        };
        world.nodes[self.me].qps.insert(qp, bound);
        world.private_data.push(options.private_data.clone());
        if let Some(error) = world.refuse_with.clone() {
            world.nodes[self.me].qps.remove(&qp);
            world.nodes[self.me]
                .events
                .push_back(Event::ConnectFailed { qp, error });
            return Ok(qp);
        }
        let listener = world.nodes.iter().position(|node| node.listening);
        let Some(at) = listener.filter(|_| remote == address()) else {
            let error = ConnectError::Refused;
            world.nodes[self.me].qps.remove(&qp);
            world.nodes[self.me]
                .events
                .push_back(Event::ConnectFailed { qp, error });
            return Ok(qp);
        };
        let request = RequestId(world.id());
        let from = (self.me, qp);
        world.pending.insert(request, Pending { from, at });
        world.nodes[at]
            .events
            .push_back(Event::ConnectRequest(ConnectRequest {
                listener: ListenerId(0),
                request,
                peer: (Ipv4Addr::LOCALHOST, 1023).into(),
                private_data: options.private_data.clone(),
            }));
        Ok(qp)
    }

    fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        let mut world = self.world.borrow_mut();
        world.nodes[self.me].check_shared(receives)?;
        if let Some(kind) = world.refuse_queue_pairs {
            let (what, source) = ("cannot make a queue pair".to_owned(), kind.into());
            return Err(DeviceError::System { what, source });
        }
        let pending = world
            .pending
            .remove(&request)
            .ok_or(DeviceError::Unknown("request"))?;
        let qp = QpId(world.id());
        let bound = Qp {
            shared: receives,
            ..Qp::default()
        };
        world.nodes[pending.at].qps.insert(qp, bound);
        world.accepting.insert(qp, pending);
        Ok(qp)
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        let mut world = self.world.borrow_mut();
        let pending = world
            .accepting
            .remove(&qp)
            .ok_or(DeviceError::Unknown("queue pair"))?;
        let (from, me) = (pending.from, (self.me, qp));
        world.private_data.push(options.private_data.clone());
        for (at, peer, private_data) in [
            (me, from, Bytes::new()),
            (from, me, options.private_data.clone()),
        ] {
            let Some(end) = world.qp(at) else { continue };
            (end.peer, end.up) = (Some(peer), true);
            let qp = at.1;
            let established = Event::Established { qp, private_data };
            world.nodes[at.0].events.push_back(established);
        }
        // Whoever asked may be gone by now.
        if world.qp(from).is_none() {
            world.end(me, Disconnect::Remote);
        }
        Ok(())
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        let mut world = self.world.borrow_mut();
        let pending = world
            .pending
            .remove(&request)
            .ok_or(DeviceError::Unknown("request"))?;
        let (node, qp) = pending.from;
        world.nodes[node].qps.remove(&qp);
        let private_data = Bytes::copy_from_slice(private_data);
        let error = ConnectError::Rejected { private_data };
        world.nodes[node]
            .events
            .push_back(Event::ConnectFailed { qp, error });
        Ok(())
    }

    fn disconnect(&mut self, qp: QpId) {
        let mut world = self.world.borrow_mut();
        world.run(self.me);
        if world.deaf {
            return;
        }
        if world.stalled == Some(self.me)
            && let Some(qp) = world.qp((self.me, qp))
        {
            qp.closing = true;
            return;
        }
        world.disconnected((self.me, qp), Disconnect::Local, Disconnect::Remote);
    }

    fn abort(&mut self, qp: QpId) {
        let lost = Disconnect::Lost("reset".to_owned());
        let mut world = self.world.borrow_mut();
        world.disconnected((self.me, qp), Disconnect::Local, lost);
    }

    fn destroy(&mut self, qp: QpId) {
        let mut world = self.world.borrow_mut();
        let lost = Disconnect::Lost("reset".to_owned());
        world.disconnected((self.me, qp), Disconnect::Local, lost);
        let node = &mut world.nodes[self.me];
        node.qps.remove(&qp);
        node.events.retain(|event| match event {
            Event::Completion(completion) => completion.qp != qp,
            Event::Disconnected { qp: at, .. } => *at != qp,
            _ => true,
        });
    }

    fn give_back(&mut self, quiet: &[QpId]) -> usize {
        self.world.borrow_mut().given_back.push(quiet.to_vec());
        0
    }

    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        let mut world = self.world.borrow_mut();
        // Neither handles nor offsets are small numbers, so that none of them can be left out.
        let stag = Stag((world.id() as u32).wrapping_mul(0x9e37_79b1));
        let base = world.id().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        let node = &mut world.nodes[self.me];
        let up = node.qps.get_mut(&qp).filter(|qp| qp.up);
        let Some(end) = up.filter(|_| region.len() <= self.attributes.max_region) else {
            return Err((DeviceError::Unknown("queue pair"), region));
        };
        let length = region.len() as u32;
        let valid = true;
        end.memory.insert(
            stag,
            Registered {
                region,
                base,
                valid,
            },
        );
        node.counters.registrations += 1;
        Ok(RemoteSegment {
            stag,
            length,
            offset: base,
        })
    }

    fn reclaim(&mut self, qp: QpId, stag: Stag) -> Result<Region, DeviceError> {
        let mut world = self.world.borrow_mut();
        let end = world
            .qp((self.me, qp))
            .ok_or(DeviceError::Unknown("queue pair"))?;
        match end.memory.get(&stag) {
            None => Err(DeviceError::Unknown("handle")),
            Some(memory) if memory.valid => Err(DeviceError::StillRegistered(stag)),
            Some(_) => end
                .memory
                .remove(&stag)
                .map(|memory| memory.region)
                .ok_or(DeviceError::Unknown("handle")),
        }
    }

    fn post_receive(
        &mut self,
        qp: QpId,
        id: WrId,
        buf: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let mut world = self.world.borrow_mut();
        let len = buf.len();
        let max = match world.full == Some(self.me) {
            true => 0,
            false => self.attributes.max_recv_wr,
        };
        let Some(end) = world.qp((self.me, qp)) else {
            return Err((PostError::Unknown, buf));
        };
        if end.shared.is_some() {
            return Err((PostError::Bound, buf));
        }
        if end.receives.len() >= max {
            return Err((PostError::QueueFull, buf));
        }
        if buf.count() > self.attributes.max_scatter {
            return Err((PostError::TooManyElements, buf));
        }
        end.receives.push_back((id, buf));
        let least = world.shortest_receive;
        world.shortest_receive = Some(least.map_or(len, |least| least.min(len)));
        Ok(())
    }

    fn create_shared_receives(&mut self) -> Result<SharedReceivesId, DeviceError> {
        let limits = self.attributes.shared_receives;
        let limits = limits.ok_or(DeviceError::Limit("shared receive queues"))?;
        let mut world = self.world.borrow_mut();
        let id = SharedReceivesId(world.id());
        let queue = SharedReceiveQueue::new(limits.max_wr, self.attributes.max_scatter);
        world.nodes[self.me].shared.insert(id, queue);
        Ok(id)
    }

    fn post_shared_receive(
        &mut self,
        receives: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let mut world = self.world.borrow_mut();
        match world.nodes[self.me].shared.get_mut(&receives) {
            Some(queue) => queue.post(id, receive),
            None => Err((PostError::Unknown, receive)),
        }
    }

    fn arm_shared_receives(
        &mut self,
        receives: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError> {
        let mut world = self.world.borrow_mut();
        let node = &mut world.nodes[self.me];
        node.check_shared(Some(receives))?;
        if let Some(queue) = node.shared.get_mut(&receives) {
            queue.arm(below);
            if queue.take_low() {
                let id = receives;
                node.events.push_back(Event::SharedReceivesLow { id });
            }
        }
        Ok(())
    }

    fn posted_shared_receives(&self, receives: SharedReceivesId) -> usize {
        let world = self.world.borrow();
        let queue = world.nodes[self.me].shared.get(&receives);
        queue.map_or(0, SharedReceiveQueue::len)
    }

    fn withdraw_shared_receive(&mut self, receives: SharedReceivesId) -> Option<Scatter> {
        let mut world = self.world.borrow_mut();
        let queue = world.nodes[self.me].shared.get_mut(&receives);
        let withdrawn = queue.and_then(SharedReceiveQueue::withdraw);
        withdrawn.map(|(_, receive)| receive)
    }

    fn receiving(&self, receives: SharedReceivesId, qps: &mut Vec<QpId>) {
        let world = self.world.borrow();
        let bound = world.nodes[self.me].qps.iter();
        let holding = bound
            .filter(|(_, qp)| qp.shared == Some(receives) && !qp.receives.is_empty())
            .map(|(id, _)| *id);
        qps.extend(holding);
    }

    fn destroy_shared_receives(&mut self, receives: SharedReceivesId) -> Result<(), DeviceError> {
        let mut world = self.world.borrow_mut();
        let node = &mut world.nodes[self.me];
        node.check_shared(Some(receives))?;
        if node.qps.values().any(|qp| qp.shared == Some(receives)) {
            return Err(DeviceError::Bound);
        }
        node.shared.remove(&receives);
        Ok(())
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let mut world = self.world.borrow_mut();
        let max = self.attributes.max_send_wr;
        let (elements, room) = match &wr {
            SendWr::Send { gather, .. } | SendWr::Write { gather, .. } => {
                (gather.len(), self.attributes.max_gather)
            }
            _ => (0, 0),
        };
        let Some(end) = world.qp((self.me, qp)) else {
            return Err((PostError::Unknown, wr));
        };
        if !end.up {
            return Err((PostError::NotConnected, wr));
        }
        if elements > room {
            return Err((PostError::TooManyElements, wr));
        }
        if end.slots >= max {
            return Err((PostError::QueueFull, wr));
        }
        if let Some(left) = world
            .refuse_posts
            .get_mut(&self.me)
            .filter(|left| **left > 0)
        {
            *left -= 1;
            return Err((PostError::QueueFull, wr));
        }
        let counters = &mut world.nodes[self.me].counters;
        let mut always = false;
        match &wr {
            SendWr::Send { invalidate, .. } => {
                counters.sends += 1;
                counters.sends_with_invalidate += u64::from(invalidate.is_some());
            }
            SendWr::Write { .. } => counters.rdma_writes += 1,
            SendWr::Read { .. } => {
                counters.rdma_reads += 1;
                always = true;
            }
            SendWr::Invalidate { .. } => {
                counters.local_invalidations += 1;
                always = true;
            }
        }
        if let Some(end) = world.qp((self.me, qp)) {
            end.slots += 1;
            let signaled = signaled || always;
            end.send_queue.push_back(Queued { id, wr, signaled });
        }
        Ok(())
    }
}
