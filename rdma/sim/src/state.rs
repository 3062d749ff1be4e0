//! What all devices of a fabric share: hosts, and what is going to happen.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::queue_pair::{Packet, QueuePair, Request};
use super::{Costs, End, Faults, Happening, NodeId, Observer, Path, Random};
use rdma::{
    Attributes, Clock, ConnectError, Counters, Disconnect, Event, Frame, ListenerId, QpId,
    RequestId, Tap, Time, WorkError,
};

/// A host.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) attributes: Attributes,
    /// From an interrupt to the owner's turn.
    pub(super) interrupt: Duration,
    /// Changes with every crash: what an earlier life left behind means nothing.
    pub(super) life: u64,
    pub(super) alive: bool,
    pub(super) qps: BTreeMap<QpId, QueuePair>,
    pub(super) events: VecDeque<(Event, Path)>,
    pub(super) listeners: BTreeMap<ListenerId, SocketAddr>,
    pub(super) counters: Counters,
    /// The owner sleeps, and the next event wakes it.
    pub(super) armed: bool,
    /// The owner was woken, and has not had its turn yet: what becomes visible meanwhile waits for
    /// that interrupt as well.
    pub(super) waking: bool,
    /// The owner's next turn, and its number.
    pub(super) turn: Option<(Time, u64)>,
    /// The owner's processor is busy until then.
    pub(super) busy: Time,
    /// The device sends until then.
    pub(super) sending: Time,
    /// What led to what the owner does now.
    pub(super) path: Path,
    /// Handles and tagged offsets of its regions come from a generator of their own: they depend on
    /// how many regions were registered before, and on nothing else that happened.
    pub(super) handles: Random,
}

/// Something that is going to happen.
#[derive(Debug)]
pub(super) enum What {
    Turn(NodeId, u64),
    Alarm(u64),
    /// A send queue may go on.
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
    /// A connection's end is noticed.
    Over(End, Disconnect),
    Request {
        from: End,
        to: SocketAddr,
        request: Request,
        private_data: Bytes,
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
}

#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) at: Time,
    serial: u64,
    /// Apart, because the queue moves its entries about.
    pub(super) what: Box<What>,
}

impl Ord for Scheduled {
    /// The greatest is what happens first: the earliest, and of those the one that was scheduled
    /// first.
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

/// Which of a queue pair's completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Send,
    Receive,
    /// Neither: an event that nothing of the connection may overtake, nor be overtaken by.
    Both,
}

pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) now: Time,
    pub(super) random: Random,
    /// A generator from which no number is drawn: those for single purposes are split off it.
    pub(super) seed: Random,
    pub(super) costs: Costs,
    pub(super) faults: Faults,
    queue: BinaryHeap<Scheduled>,
    serial: u64,
    pub(super) nodes: Vec<Node>,
    next_id: u64,
    pub(super) requests: BTreeMap<RequestId, (NodeId, Request)>,
    pub(super) observer: Option<Rc<RefCell<dyn Observer>>>,
    /// Observers of the packets of each host.
    pub(super) taps: BTreeMap<NodeId, Box<dyn Tap>>,
}

impl State {
    pub(super) fn new(seed: u64, costs: Costs, faults: Faults) -> Self {
        Self {
            clock: Clock::simulated(),
            now: Time::ZERO,
            random: Random::new(seed),
            seed: Random::new(seed),
            costs,
            faults,
            queue: BinaryHeap::new(),
            serial: 0,
            nodes: Vec::new(),
            next_id: 0,
            requests: BTreeMap::new(),
            observer: None,
            taps: BTreeMap::new(),
        }
    }

    /// A number that nothing else in this fabric has.
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn note(&self, what: &Happening<'_>) {
        if let Some(observer) = &self.observer {
            observer.borrow_mut().happened(self.now, what);
        }
    }

    /// Shows a packet to the tap of an end's host, if it has one: `<dyn Tap>::sent` or
    /// `<dyn Tap>::received`.
    pub(super) fn show(
        &mut self,
        how: fn(&mut (dyn Tap + 'static), Time, QpId, Frame<'_>),
        at: Time,
        end: End,
        packet: &Packet,
    ) {
        if let (Some(tap), Some(frame)) = (self.taps.get_mut(&end.node), packet.frame()) {
            how(&mut **tap, at, end.qp, frame);
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

    /// The next thing that happens, if that is not after `until`; moves the clock there.
    pub(super) fn pop(&mut self, until: Time) -> Option<What> {
        if self.queue.peek()?.at > until {
            return None;
        }
        let next = self.queue.pop()?;
        self.now = next.at;
        self.clock.advance_to(next.at);
        Some(*next.what)
    }

    /// The owner of a host is busy for so long.
    pub(super) fn work(&mut self, node: NodeId, duration: Duration) -> Time {
        let now = self.now;
        let node = self.node(node);
        node.busy = node.busy.max(now) + duration;
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

    /// Lets the owner of a queue pair know of something, in the order of `stream`.
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

    /// An event becomes visible.
    pub(super) fn visible(&mut self, id: NodeId, life: u64, event: Event, mut path: Path) {
        let qp = qp_of(&event);
        if let Some(qp) = qp
            && self.nodes[id.0].life == life
        {
            self.may_lose(End { node: id, qp });
        }
        let node = &mut self.nodes[id.0];
        let gone = qp.is_some_and(|qp| !node.qps.contains_key(&qp));
        if node.life != life || gone {
            return;
        }
        let wakes = std::mem::take(&mut node.armed);
        if wakes {
            node.counters.interrupts += 1;
            node.waking = true;
        }
        if node.waking {
            path = path.interrupted(id);
        }
        node.events.push_back((event, path));
        if wakes {
            let latency = self.nodes[id.0].interrupt;
            let late = self.random.duration(self.faults.late_wake);
            self.note(&Happening::Interrupt(id));
            self.turn_at(id, self.now + latency + late);
        }
    }
}

/// The queue pair that an event is of.
pub(super) fn qp_of(event: &Event) -> Option<QpId> {
    match event {
        Event::ConnectRequest(_) | Event::Removed => None,
        Event::Established { qp, .. }
        | Event::ConnectFailed { qp, .. }
        | Event::Disconnected { qp, .. } => Some(*qp),
        Event::Completion(completion) => Some(completion.qp),
    }
}
