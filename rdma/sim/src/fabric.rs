//! The network between hosts, its clock, and the schedule of turns.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::state::{Node, State, What};
use super::{
    Costs, End, FabricEvent, Faults, MAX_NODES, NodeId, Observer, Path, Random, SimDevice, Step,
};
use rdma::{Attributes, Clock, Counters, DeviceError, Disconnect, Pool, Stag, Time};

/// Purpose number of the first host's generator of handles ([`Random::split`]); further hosts have
/// the following numbers.
const HANDLES: u64 = 1 << 32;

/// The owner of the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The owner of this host's device: it was woken by an interrupt, or a deadline has come.
    Host(NodeId),
    /// An alarm set with [`Fabric::alarm`], with its mark.
    Alarm(u64),
}

/// The properties of a host that joins a fabric.
#[derive(Clone, Debug)]
pub struct Host {
    /// Address of the host. Listeners have addresses of their own.
    pub address: SocketAddr,
    /// Attributes of its device.
    pub attributes: Attributes,
    /// Memory pool of its device.
    pub pool: Pool,
    /// Time from an interrupt to the owner's turn.
    pub interrupt: Duration,
}

/// A network, its hosts and their clock. Clones are handles to the same fabric.
#[derive(Clone)]
pub struct Fabric {
    pub(super) state: Rc<RefCell<State>>,
}

impl Fabric {
    /// Creates a fabric without hosts. All its random choices follow from `seed`.
    #[must_use]
    pub fn new(seed: u64, costs: Costs, faults: Faults) -> Self {
        Self {
            state: Rc::new(RefCell::new(State::new(seed, costs, faults))),
        }
    }

    /// Returns the clock. Only [`Fabric::next`] advances it.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.state.borrow().clock.clone()
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.state.borrow().now
    }

    /// Reports everything that happens from now on to `observer`.
    pub fn watch(&self, observer: Rc<RefCell<dyn Observer>>) {
        self.state.borrow_mut().observer = Some(observer);
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.borrow_mut().faults = faults;
    }

    /// Adds a host, or restarts a crashed one with the same address.
    ///
    /// # Errors
    /// [`DeviceError`] if there are [`MAX_NODES`] hosts already, or the host with this address is
    /// running.
    pub fn host(&self, host: Host) -> Result<SimDevice, DeviceError> {
        let mut state = self.state.borrow_mut();
        let handles = state.seed.split(HANDLES + state.nodes.len() as u64);
        let nodes = &mut state.nodes;
        let known = nodes.iter().position(|node| node.address == host.address);
        let (attributes, pool) = (host.attributes, host.pool);
        let id = match known {
            Some(at) if nodes[at].alive => {
                return Err(DeviceError::Limit("hosts with one address"));
            }
            Some(at) => {
                let node = &mut nodes[at];
                node.alive = true;
                node.attributes = attributes.clone();
                node.interrupt = host.interrupt;
                at
            }
            None if nodes.len() == MAX_NODES => return Err(DeviceError::Limit("hosts")),
            None => {
                let (address, interrupt) = (host.address, host.interrupt);
                nodes.push(Node::new(address, attributes.clone(), interrupt, handles));
                nodes.len() - 1
            }
        };
        let life = nodes[id].life;
        drop(state);
        let (state, node) = (Rc::clone(&self.state), NodeId(id));
        Ok(SimDevice::new(state, node, life, attributes, pool))
    }

    /// Advances the clock to the next turn, if there is one until `until`, and returns its owner.
    /// Executes everything that devices do by themselves up to then.
    pub fn next(&self, until: Time) -> Option<Turn> {
        let mut state = self.state.borrow_mut();
        while let Some(what) = state.pop(until) {
            match what {
                What::Turn(id, number) => {
                    let node = state.node(id);
                    if node.turn.is_some_and(|(_, current)| current == number) {
                        node.turn = None;
                        // The owner is awake now, so events in the meantime need no interrupt.
                        node.armed = false;
                        node.waking = false;
                        return Some(Turn::Host(id));
                    }
                }
                What::Alarm(mark) => return Some(Turn::Alarm(mark)),
                What::Pump(end) => state.pump(end),
                What::Arrive {
                    to,
                    number,
                    packet,
                    path,
                } => state.arrive(to, number, packet, path),
                What::Done(end, number) => state.done(end, number),
                What::Failed {
                    at,
                    number,
                    error,
                    reason,
                } => state.refused(at, number, error, reason),
                What::Tell {
                    node,
                    life,
                    event,
                    path,
                } => state.visible(node, life, event, path),
                What::Over(end, reason) => state.end(end, reason),
                What::Request { request, path } => state.requested(request, path),
                What::NotConnected(end, error, path) => state.not_connected(end, error, path),
                What::Answer {
                    to,
                    from,
                    private_data,
                    reads,
                    path,
                } => state.answered(to, from, private_data, reads, path),
                What::Ready(end, path) => state.ready(end, path),
                What::Show(end, packet) => state.show(end, &packet),
            }
        }
        None
    }

    /// Requests a turn for the host's owner at `at`, or as soon afterwards as its processor is
    /// free. If there are several requests, the earliest one counts.
    pub fn turn_at(&self, node: NodeId, at: Time) {
        self.state.borrow_mut().turn_at(node, at);
    }

    /// Schedules a [`Turn::Alarm`] at `at`.
    pub fn alarm(&self, at: Time, mark: u64) {
        self.state.borrow_mut().at(at, What::Alarm(mark));
    }

    /// Makes the host's processor busy for `duration`, from now or from when it becomes free.
    pub fn work(&self, node: NodeId, duration: Duration) {
        self.state.borrow_mut().work(node, duration);
    }

    /// Returns a clock that counts the host's own work: it is ahead of that of the fabric by the time for
    /// which the host's processor will be busy with what its owner has already done in its turn.
    #[must_use]
    pub fn host_clock(&self, node: NodeId) -> Clock {
        let mut state = self.state.borrow_mut();
        let now = state.now;
        let node = state.node(node);
        let clock = node.clock.get_or_insert_with(Clock::simulated);
        clock.advance_to(now.max(node.busy));
        clock.clone()
    }

    /// Returns the path of the event that the host's owner is handling.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Path {
        self.state.borrow().nodes[node.0].path
    }

    /// Sets the path to which the owner's next actions are attributed: an empty one at the start of
    /// a call, or the path of a job that was deferred.
    pub fn set_path(&self, node: NodeId, path: Path) {
        self.state.borrow_mut().nodes[node.0].path = path;
    }

    /// Records the steps of all paths from now on: what took time, and what it had to wait for.
    pub fn record_steps(&self) {
        self.state.borrow_mut().steps = Some(Vec::new());
    }

    /// Returns the steps that were recorded, and records no more.
    #[must_use]
    pub fn take_steps(&self) -> Vec<Step> {
        self.state.borrow_mut().steps.take().unwrap_or_default()
    }

    /// Returns the handles of a host's regions that its peers can access now.
    #[must_use]
    pub fn reachable(&self, node: NodeId) -> Vec<Stag> {
        let state = self.state.borrow();
        let qps = state.nodes[node.0].qps.values();
        qps.flat_map(|qp| &qp.memory)
            .filter(|(_, memory)| memory.valid)
            .map(|(&stag, _)| stag)
            .collect()
    }

    /// Returns the number of queue pairs of a host.
    #[must_use]
    pub fn queue_pairs(&self, node: NodeId) -> usize {
        self.state.borrow().nodes[node.0].qps.len()
    }

    /// Returns the counters of a host's device, over all its incarnations.
    #[must_use]
    pub fn counters(&self, node: NodeId) -> Counters {
        self.state.borrow().nodes[node.0].counters
    }

    /// Returns the number of packets that the link has lost and devices have sent again.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.state.borrow().retransmissions
    }

    /// Crashes a host, which loses everything in its memory. Its peers notice after a while, and
    /// its [`SimDevice`] has no effect from then on.
    pub fn crash(&self, node: NodeId) {
        let mut state = self.state.borrow_mut();
        state.note(&FabricEvent::Crashed(node));
        let ends = state.nodes[node.0].qps.values();
        let peers: Vec<End> = ends.filter_map(|qp| qp.peer).collect();
        for peer in peers {
            let reason = Disconnect::Lost("the peer does not answer".to_owned());
            state.cut(peer, reason);
        }
        state.requests.retain(|_, (at, _)| *at != node);
        let tap = state.taps.remove(&node);
        let now = state.now;
        let gone = state.node(node);
        gone.life += 1;
        gone.alive = false;
        gone.armed = false;
        gone.waking = false;
        gone.turn = None;
        gone.busy = now;
        gone.path = Path::default();
        gone.listeners.clear();
        let (qps, shared, events) = (
            std::mem::take(&mut gone.qps),
            std::mem::take(&mut gone.shared),
            std::mem::take(&mut gone.events),
        );
        drop(state);
        drop((qps, shared, events, tap));
    }

    /// Loses one of the existing connections, if there are any.
    pub fn lose_one(&self) {
        let mut state = self.state.borrow_mut();
        let mut ends = Vec::new();
        for (at, node) in state.nodes.iter().enumerate() {
            let node_id = NodeId(at);
            let up = node.qps.iter().filter(|(_, qp)| qp.is_up() && !qp.cut);
            ends.extend(up.map(|(&qp, _)| End { node: node_id, qp }));
        }
        if !ends.is_empty() {
            let end = state.random.pick(&ends);
            state.lose(end);
        }
    }
}

impl Node {
    fn new(
        address: SocketAddr,
        attributes: Attributes,
        interrupt: Duration,
        handles: Random,
    ) -> Self {
        Self {
            address,
            attributes,
            interrupt,
            life: 0,
            alive: true,
            qps: Default::default(),
            shared: Default::default(),
            events: Default::default(),
            listeners: Default::default(),
            counters: Counters::default(),
            armed: false,
            waking: false,
            turn: None,
            busy: Time::ZERO,
            clock: None,
            sending: Time::ZERO,
            path: Path::default(),
            handles,
        }
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
