//! The state that all devices of a fabric share: hosts and scheduled events.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::queue_pair::{Packet, QueuePair, Request};
use super::{
    Costs, End, FabricEvent, Faults, NodeId, Observer, Path, Random, Step, StepId, StepKind,
};
use rdma::{
    Attributes, Clock, ConnectError, Counters, Disconnect, Event, ListenerId, QpId, RequestId,
    Setup, SharedReceiveQueue, SharedReceivesId, Tap, Time, WorkError,
};

/// Purpose number of the generator for the link ([`Random::split`]).
const NOISE: u64 = 1 << 33;

/// A host.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) attributes: Attributes,
    /// Time from an interrupt to the owner's turn.
    pub(super) interrupt: Duration,
    /// Incarnation of the host, which changes with every crash. Scheduled events of earlier
    /// incarnations are ignored.
    pub(super) life: u64,
    pub(super) alive: bool,
    pub(super) qps: BTreeMap<QpId, QueuePair>,
    /// Its shared receive queues.
    pub(super) shared: BTreeMap<SharedReceivesId, SharedReceiveQueue>,
    pub(super) events: VecDeque<(Event, Path)>,
    pub(super) listeners: BTreeMap<ListenerId, SocketAddr>,
    pub(super) counters: Counters,
    /// Whether the owner sleeps, so that the next event wakes it.
    pub(super) armed: bool,
    /// Whether the owner was woken but has not had its turn yet. Events that become visible
    /// meanwhile wait for the same interrupt.
    pub(super) waking: bool,
    /// Time and number of the owner's next turn.
    pub(super) turn: Option<(Time, u64)>,
    /// Time until which the owner's processor is busy.
    pub(super) busy: Time,
    /// The clock of the owner's work, if one is wanted ([`Fabric::host_clock`](crate::Fabric::host_clock)).
    pub(super) clock: Option<Clock>,
    /// Time until which the device is transmitting.
    pub(super) sending: Time,
    /// Path of the event that the owner is handling.
    pub(super) path: Path,
    /// Generator of handles and tagged offsets. They depend only on how many regions the host has
    /// registered before.
    pub(super) handles: Random,
}

/// A scheduled event.
#[derive(Debug)]
pub(super) enum What {
    Turn(NodeId, u64),
    Alarm(u64),
    /// A send queue may continue.
    Pump(End),
    Arrive {
        to: End,
        number: u64,
        packet: Packet,
        path: Path,
    },
    /// A request is done.
    Done(End, u64),
    /// The peer refused a request.
    Failed {
        at: End,
        number: u64,
        error: WorkError,
        reason: Disconnect,
    },
    Tell {
        node: NodeId,
        life: u64,
        event: Event,
        path: Path,
    },
    /// The end of a connection is noticed.
    Over(End, Disconnect),
    Request {
        request: Request,
        path: Path,
    },
    NotConnected(End, ConnectError, Path),
    Answer {
        to: End,
        from: End,
        private_data: Bytes,
        reads: u32,
        path: Path,
    },
    Ready(End, Path),
    /// A packet of a host with a tap has left it.
    Show(End, Packet),
}

#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) at: Time,
    serial: u64,
    /// Boxed, because the queue moves its entries.
    pub(super) what: Box<What>,
}

impl Ord for Scheduled {
    /// The greatest entry is the next to happen: the earliest one, and among equals the one
    /// scheduled first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Scheduled {}

/// A queue pair's completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Send,
    Receive,
    /// Both queues: an event that no other event of the connection may overtake, and that overtakes
    /// none.
    Both,
}

pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) now: Time,
    pub(super) random: Random,
    /// A generator from which no number is drawn, only generators for single purposes.
    pub(super) seed: Random,
    /// Decides the jitter and the losses of the link.
    pub(super) noise: Random,
    /// Packets that were sent again.
    pub(super) retransmissions: u64,
    pub(super) costs: Costs,
    pub(super) faults: Faults,
    queue: BinaryHeap<Scheduled>,
    serial: u64,
    pub(super) nodes: Vec<Node>,
    next_id: u64,
    pub(super) requests: BTreeMap<RequestId, (NodeId, Request)>,
    pub(super) observer: Option<Rc<RefCell<dyn Observer>>>,
    /// The steps of all paths, if they are recorded.
    pub(super) steps: Option<Vec<Step>>,
    /// Observers of each host's packets.
    pub(super) taps: BTreeMap<NodeId, Box<dyn Tap>>,
}

impl State {
    pub(super) fn new(seed: u64, costs: Costs, faults: Faults) -> Self {
        Self {
            clock: Clock::simulated(),
            now: Time::ZERO,
            random: Random::new(seed),
            seed: Random::new(seed),
            noise: Random::new(seed).split(NOISE),
            retransmissions: 0,
            costs,
            faults,
            queue: BinaryHeap::new(),
            serial: 0,
            nodes: Vec::new(),
            next_id: 0,
            requests: BTreeMap::new(),
            observer: None,
            steps: None,
            taps: BTreeMap::new(),
        }
    }

    /// Returns a number that is unique in this fabric.
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn note(&self, what: &FabricEvent<'_>) {
        if let Some(observer) = &self.observer {
            observer.borrow_mut().event(self.now, what);
        }
    }

    /// Returns a path with one more step, if steps are recorded.
    pub(super) fn stepped(
        &mut self,
        mut path: Path,
        node: NodeId,
        (start, end): (Time, Time),
        what: StepKind,
    ) -> Path {
        if let Some(steps) = &mut self.steps
            && let Ok(number) = u32::try_from(steps.len())
        {
            let after = path.last;
            steps.push(Step {
                after,
                node,
                start,
                end,
                what,
            });
            path.last = Some(StepId(number));
        }
        path
    }

    /// Shows a packet to the tap of an end's host, if there is one, now or when the packet has
    /// left.
    pub(super) fn show_sent(&mut self, left: Time, end: End, packet: &Packet) {
        if packet.frame().is_some() && self.taps.contains_key(&end.node) {
            self.at(left, What::Show(end, packet.clone()));
        }
    }

    /// Shows a packet that has left now.
    pub(super) fn show(&mut self, end: End, packet: &Packet) {
        let now = self.now;
        if let (Some(tap), Some(frame)) = (self.taps.get_mut(&end.node), packet.frame()) {
            tap.sent(now, end.qp, frame);
        }
    }

    /// Shows a packet that has arrived now.
    pub(super) fn show_received(&mut self, end: End, packet: &Packet) {
        let now = self.now;
        if let (Some(tap), Some(frame)) = (self.taps.get_mut(&end.node), packet.frame()) {
            tap.received(now, end.qp, frame);
        }
    }

    /// Shows a connection to the tap of an end's host, if there is one.
    pub(super) fn show_setup(&mut self, end: End, request: &Request, reply: &[u8]) {
        let (now, initiator) = (self.now, request.from == end);
        let asked = self.nodes[request.from.node.0].address;
        let (local, peer) = match initiator {
            true => (asked, request.to),
            false => (request.to, asked),
        };
        if let Some(tap) = self.taps.get_mut(&end.node) {
            let setup = Setup {
                initiator,
                local,
                peer,
                request: &request.private_data,
                reply,
            };
            tap.established(now, end.qp, &setup);
        }
    }

    /// Shows the end of a connection to the tap of an end's host, if there is one.
    pub(super) fn show_end(&mut self, end: End) {
        let now = self.now;
        if let Some(tap) = self.taps.get_mut(&end.node) {
            tap.ended(now, end.qp);
        }
    }

    pub(super) fn node(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.0]
    }

    pub(super) fn qp(&mut self, end: End) -> Option<&mut QueuePair> {
        self.nodes[end.node.0].qps.get_mut(&end.qp)
    }

    pub(super) fn at(&mut self, at: Time, what: What) {
        self.serial += 1;
        let (at, serial) = (at.max(self.now), self.serial);
        let what = Box::new(what);
        self.queue.push(Scheduled { at, serial, what });
    }

    /// Returns the next scheduled event that is not after `until`, and advances the clock to it.
    pub(super) fn pop(&mut self, until: Time) -> Option<What> {
        if self.queue.peek()?.at > until {
            return None;
        }
        let next = self.queue.pop()?;
        self.now = next.at;
        self.clock.advance_to(next.at);
        for clock in self.nodes.iter().filter_map(|node| node.clock.as_ref()) {
            clock.advance_to(next.at);
        }
        Some(*next.what)
    }

    /// Makes the owner of a host busy for `duration`, and returns the time at which it will be
    /// free.
    pub(super) fn work(&mut self, node: NodeId, duration: Duration) -> Time {
        let now = self.now;
        let node = self.node(node);
        node.busy = node.busy.max(now) + duration;
        if let Some(clock) = &node.clock {
            clock.advance_to(node.busy);
        }
        node.busy
    }

    pub(super) fn turn_at(&mut self, node: NodeId, at: Time) {
        let at = at.max(self.nodes[node.0].busy).max(self.now);
        if self.nodes[node.0]
            .turn
            .is_some_and(|(earlier, _)| earlier <= at)
        {
            return;
        }
        let number = self.id();
        self.nodes[node.0].turn = Some((at, number));
        self.at(at, What::Turn(node, number));
    }

    /// Reports an event to the owner of a queue pair, in the order of `stream`.
    pub(super) fn tell(&mut self, end: End, stream: Stream, event: Event, path: Path) {
        let late = self.faults.late_completion;
        let at = self.now + self.random.duration(late);
        let Some(qp) = self.qp(end) else { return };
        let at = match stream {
            Stream::Send => at.max(qp.told_sent),
            Stream::Receive => at.max(qp.told_received),
            Stream::Both => at.max(qp.told_sent).max(qp.told_received),
        };
        if stream != Stream::Receive {
            qp.told_sent = at;
        }
        if stream != Stream::Send {
            qp.told_received = at;
        }
        self.tell_at(at, end.node, event, path);
    }

    pub(super) fn tell_at(&mut self, at: Time, node: NodeId, event: Event, path: Path) {
        let life = self.nodes[node.0].life;
        let what = What::Tell {
            node,
            life,
            event,
            path,
        };
        self.at(at, what);
    }

    /// Makes an event visible to the owner.
    pub(super) fn visible(&mut self, id: NodeId, life: u64, event: Event, mut path: Path) {
        let qp = qp_of(&event);
        if let Some(qp) = qp
            && self.nodes[id.0].life == life
        {
            self.may_lose(End { node: id, qp });
        }
        let node = &mut self.nodes[id.0];
        let gone = match event {
            Event::SharedReceivesLow { id } => !node.shared.contains_key(&id),
            _ => qp.is_some_and(|qp| !node.qps.contains_key(&qp)),
        };
        if node.life != life || gone {
            return;
        }
        if std::mem::take(&mut node.armed) {
            node.counters.interrupts += 1;
            node.waking = true;
            let latency = node.interrupt;
            let late = self.random.duration(self.faults.late_wake);
            self.note(&FabricEvent::Interrupt(id));
            self.turn_at(id, self.now + latency + late);
        }
        let node = &self.nodes[id.0];
        if node.waking {
            let woken = node.turn.map_or(self.now, |(at, _)| at);
            path = path.interrupted(id);
            path = self.stepped(path, id, (self.now, woken), StepKind::Interrupt);
        }
        self.node(id).events.push_back((event, path));
    }
}

/// Returns the queue pair to which an event belongs.
pub(super) fn qp_of(event: &Event) -> Option<QpId> {
    match event {
        Event::ConnectRequest(_) | Event::SharedReceivesLow { .. } | Event::Removed => None,
        Event::Established { qp, .. }
        | Event::ConnectFailed { qp, .. }
        | Event::Disconnected { qp, .. } => Some(*qp),
        Event::Completion(completion) => Some(completion.qp),
    }
}
