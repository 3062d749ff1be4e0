//! The ends of connections of the model of TCP that a transport has.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rdma::Time;
use rdma_sim::NodeId;

use super::stream::{Arrival, EndNumber, Network};

/// The ends of a transport, each with the state that the transport has of it, and its listener, if it has one. All are
/// closed when this value is dropped.
pub(super) struct StreamEnds<T> {
    network: Network,
    listener: Option<SocketAddr>,
    states: BTreeMap<EndNumber, T>,
}

impl<T> StreamEnds<T> {
    /// Returns the ends of a transport that connects.
    pub(super) fn new(network: &Network) -> Self {
        Self {
            network: network.clone(),
            listener: None,
            states: BTreeMap::new(),
        }
    }

    /// Returns the ends of a transport that listens on an address of a host.
    pub(super) fn listen(network: &Network, node: NodeId, address: SocketAddr) -> Self {
        network.listen(address, node);
        let mut ends = Self::new(network);
        ends.listener = Some(address);
        ends
    }

    /// Returns the network.
    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    /// Takes the connections that have arrived at the listener, each with this state.
    pub(super) fn accept(&mut self, state: impl Fn() -> T) {
        let accepted = self.listener.map(|address| self.network.accept(address));
        for end in accepted.into_iter().flatten() {
            self.states.insert(end, state());
        }
    }

    /// Adds an end, or replaces the state of one.
    pub(super) fn insert(&mut self, end: EndNumber, state: T) {
        self.states.insert(end, state);
    }

    /// Returns the state of an end that was not closed.
    pub(super) fn get(&self, end: EndNumber) -> Option<&T> {
        self.states.get(&end)
    }

    /// Returns the state of an end that was not closed.
    pub(super) fn get_mut(&mut self, end: EndNumber) -> Option<&mut T> {
        self.states.get_mut(&end)
    }

    /// Closes an end. Returns its state.
    pub(super) fn close(&mut self, end: EndNumber) -> Option<T> {
        self.network.close(end);
        self.states.remove(&end)
    }

    /// Removes what has arrived next at any end by now, and returns it.
    pub(super) fn take(&mut self) -> Option<(EndNumber, Arrival)> {
        let mut ends = self.states.keys();
        ends.find_map(|end| Some((*end, self.network.take(*end)?)))
    }

    /// Returns when something arrives next, at an end or at the listener.
    pub(super) fn next_arrival(&self) -> Option<Time> {
        let arrivals = self.states.keys();
        let arrivals = arrivals.filter_map(|end| self.network.next_arrival(*end));
        let listener = self.listener;
        let connection = listener.and_then(|address| self.network.next_connection(address));
        arrivals.chain(connection).min()
    }

    /// Returns whether something has arrived by this time.
    pub(super) fn has_arrivals(&self, now: Time) -> bool {
        self.next_arrival().is_some_and(|at| at <= now)
    }

    /// Returns whether nothing has arrived by now, so that the transport's owner may wait.
    pub(super) fn may_wait(&self) -> bool {
        !self.has_arrivals(self.network.now())
    }
}

impl<T> Drop for StreamEnds<T> {
    fn drop(&mut self) {
        if let Some(address) = self.listener {
            self.network.unlisten(address);
        }
        for &end in self.states.keys() {
            self.network.close(end);
        }
    }
}
