//! A model of TCP between the processes of a run, as transports see it: whole records in their order, and the end of the
//! connection behind them.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use onc_rpc::Message;
use rdma::Time;
use rdma_sim::{Fabric, NodeId, Random};

use crate::journal::Journal;

/// The first port of clients that have another one for each connection.
const FIRST_PORT: u16 = 2000;

/// The number of an end of a connection. None is used again.
pub(super) type EndNumber = u64;

/// Events at one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The connection is established.
    Connected,
    Record(Bytes),
    /// The connection has ended, for this reason.
    End(&'static str),
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    /// The host whose owner takes what arrives.
    node: NodeId,
    peer: EndNumber,
    local: SocketAddr,
    remote: SocketAddr,
    arriving: VecDeque<(Time, Arrival)>,
}

/// A process that accepts connections.
#[derive(Debug)]
struct Listener {
    node: NodeId,
    /// Ends of connections that it has not taken yet.
    accepted: Vec<EndNumber>,
}

struct State {
    fabric: Fabric,
    journal: Rc<RefCell<Journal>>,
    random: Random,
    delay: Duration,
    late: Duration,
    next: EndNumber,
    ends: BTreeMap<EndNumber, End>,
    listeners: BTreeMap<SocketAddr, Listener>,
}

/// The network. Clones are handles to the same one.
#[derive(Clone)]
pub(super) struct Network(Rc<RefCell<State>>);

impl Network {
    /// Creates a network with this delay in each direction, and at most so much more for each record.
    pub(super) fn new(
        fabric: &Fabric,
        journal: &Rc<RefCell<Journal>>,
        (delay, late): (Duration, Duration),
        random: Random,
    ) -> Self {
        Self(Rc::new(RefCell::new(State {
            fabric: fabric.clone(),
            journal: Rc::clone(journal),
            random,
            delay,
            late,
            next: 0,
            ends: BTreeMap::new(),
            listeners: BTreeMap::new(),
        })))
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Time {
        self.0.borrow().fabric.now()
    }

    /// Returns the number of ends that were not closed.
    pub(super) fn ends(&self) -> usize {
        self.0.borrow().ends.len()
    }

    /// Accepts connections to this address from now on, on behalf of a host.
    pub(super) fn listen(&self, address: SocketAddr, node: NodeId) {
        let accepted = Vec::new();
        let listener = Listener { node, accepted };
        self.0.borrow_mut().listeners.insert(address, listener);
    }

    /// Accepts no more connections. Those that were not taken end.
    pub(super) fn unlisten(&self, address: SocketAddr) {
        let mut state = self.0.borrow_mut();
        let listener = state.listeners.remove(&address);
        for end in listener.into_iter().flat_map(|it| it.accepted) {
            state.close(end, "the peer is gone");
        }
    }

    /// Starts to connect a host to this address, from a port or, if it is 0, from one of its own. Returns its end.
    pub(super) fn connect(
        &self,
        (node, mut local): (NodeId, SocketAddr),
        remote: SocketAddr,
    ) -> EndNumber {
        let mut state = self.0.borrow_mut();
        let (here, there) = (state.next, state.next + 1);
        state.next += 2;
        if local.port() == 0 {
            local.set_port(FIRST_PORT + (here / 2 % 30_000) as u16);
        }
        let end = |node, peer, local, remote| End {
            node,
            peer,
            local,
            remote,
            arriving: VecDeque::new(),
        };
        state.ends.insert(here, end(node, there, local, remote));
        match state.listeners.get_mut(&remote) {
            Some(listener) => {
                listener.accepted.push(there);
                let node = listener.node;
                state.ends.insert(there, end(node, here, remote, local));
                let connected = state.send(there, Arrival::Connected);
                state.send_after(here, Arrival::Connected, connected);
            }
            None => {
                let answer = state.fabric.now() + state.delay;
                state.send_after(here, Arrival::End("refused"), answer);
            }
        }
        here
    }

    /// Removes the ends of new connections from those that nobody has taken, of which the first arrival is due.
    pub(super) fn accept(&self, address: SocketAddr) -> Vec<EndNumber> {
        let mut state = self.0.borrow_mut();
        let State {
            listeners,
            ends,
            fabric,
            ..
        } = &mut *state;
        let Some(listener) = listeners.get_mut(&address) else {
            return Vec::new();
        };
        let now = fabric.now();
        let is_due = |end: &mut EndNumber| {
            let first = ends.get(end).and_then(|end| end.arriving.front());
            first.is_some_and(|(at, _)| *at <= now)
        };
        listener.accepted.extract_if(.., is_due).collect()
    }

    /// Returns when the next connection arrives at a listener.
    pub(super) fn next_connection(&self, address: SocketAddr) -> Option<Time> {
        let state = self.0.borrow();
        let listener = state.listeners.get(&address)?;
        let each = listener.accepted.iter();
        each.filter_map(|end| state.next_arrival(*end)).min()
    }

    /// Sends a message on a connection, to its other end. It is dropped if that is closed.
    pub(super) fn send(&self, from: EndNumber, message: &Message) {
        let mut bytes = BytesMut::with_capacity(message.stream_len() as usize);
        message.for_each_piece(|piece| bytes.extend_from_slice(piece));
        let mut state = self.0.borrow_mut();
        if let Some(peer) = state.ends.get(&from).map(|end| end.peer) {
            state.send(peer, Arrival::Record(bytes.freeze()));
        }
    }

    /// Tells the other end that nothing more is sent.
    pub(super) fn shut(&self, end: EndNumber) {
        let mut state = self.0.borrow_mut();
        if let Some(peer) = state.ends.get(&end).map(|end| end.peer) {
            state.send(peer, Arrival::End("closed by the peer"));
        }
    }

    /// Removes an end. The other one is told.
    pub(super) fn close(&self, end: EndNumber) {
        self.0.borrow_mut().close(end, "closed by the peer");
    }

    /// Removes what has arrived next at an end by now, and returns it.
    pub(super) fn take(&self, end: EndNumber) -> Option<Arrival> {
        let mut state = self.0.borrow_mut();
        let now = state.fabric.now();
        let arriving = &mut state.ends.get_mut(&end)?.arriving;
        arriving.front().filter(|(at, _)| *at <= now)?;
        arriving.pop_front().map(|(_, what)| what)
    }

    /// Returns when the next arrival at an end is.
    pub(super) fn next_arrival(&self, end: EndNumber) -> Option<Time> {
        self.0.borrow().next_arrival(end)
    }

    /// Returns the addresses of an end that was not closed: its own, and that of the peer.
    pub(super) fn addresses(&self, end: EndNumber) -> Option<(SocketAddr, SocketAddr)> {
        let state = self.0.borrow();
        state.ends.get(&end).map(|end| (end.local, end.remote))
    }

    /// Loses one of the connections with all that is on its way, if there are any. Returns whether there were.
    pub(super) fn lose_one(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let of_connections = state.ends.iter();
        let of_connections = of_connections.filter(|(_, end)| state.ends.contains_key(&end.peer));
        let ends: Vec<EndNumber> = of_connections.map(|(number, _)| *number).collect();
        if ends.is_empty() {
            return false;
        }
        let one = state.random.pick(&ends);
        let peer = state.ends.get(&one).map(|end| end.peer);
        for end in [Some(one), peer].into_iter().flatten() {
            if let Some(end) = state.ends.get_mut(&end) {
                // The owner learns of the connection before it learns of its end.
                end.arriving.retain(|(_, it)| *it == Arrival::Connected);
            }
            state.send(end, Arrival::End("lost"));
        }
        true
    }
}

impl State {
    /// Lets something arrive at an end after the delay of the network. Returns when.
    fn send(&mut self, to: EndNumber, what: Arrival) -> Time {
        let now = self.fabric.now();
        self.send_after(to, what, now)
    }

    /// Lets something that is sent at a time arrive at an end.
    fn send_after(&mut self, to: EndNumber, what: Arrival, sent: Time) -> Time {
        let at = sent + self.delay + self.random.duration(self.late);
        let Some(end) = self.ends.get_mut(&to) else {
            return at;
        };
        let at = end
            .arriving
            .back()
            .map_or(at, |(before, _)| at.max(*before));
        let line = match &what {
            Arrival::Record(record) => format!("a record of {} bytes", record.len()),
            Arrival::Connected => "connected".to_owned(),
            Arrival::End(reason) => (*reason).to_owned(),
        };
        let (node, local, remote) = (end.node, end.local, end.remote);
        end.arriving.push_back((at, what));
        self.fabric.turn_at(node, at);
        let now = self.fabric.now();
        self.journal.borrow_mut().line(
            now,
            format_args!("TCP to {local} from {remote}, at {at}: {line}"),
        );
        at
    }

    fn next_arrival(&self, end: EndNumber) -> Option<Time> {
        let end = self.ends.get(&end)?;
        end.arriving.front().map(|(at, _)| *at)
    }

    fn close(&mut self, end: EndNumber, reason: &'static str) {
        if let Some(end) = self.ends.remove(&end) {
            self.send(end.peer, Arrival::End(reason));
        }
    }
}
