//! Shared receive queues.
//!
//! A message that finds no receive waits, with everything that arrives behind it on its connection,
//! until a receive is posted: as on InfiniBand, where the sender tries again without end. Waiting
//! has no cost of its own. Where devices acknowledge Sends and Writes ([`Costs::acknowledged`]),
//! the sender's requests are not done before they are executed.
//!
//! [`Costs::acknowledged`]: super::Costs::acknowledged

use super::queue_pair::{Arrival, Packet};
use super::state::{Node, State, What};
use super::{End, FabricEvent, NodeId, Path};
use rdma::{
    DeviceError, Disconnect, Event, QpId, Scatter, SharedReceiveQueue, SharedReceivesId, WhenEmpty,
    WrId,
};

impl Node {
    /// Checks that a shared receive queue exists, if one is named.
    pub(super) fn check_shared(
        &self,
        receives: Option<SharedReceivesId>,
    ) -> Result<(), DeviceError> {
        match receives {
            Some(receives) if !self.shared.contains_key(&receives) => {
                Err(DeviceError::Unknown("shared receive queue"))
            }
            _ => Ok(()),
        }
    }

    fn makes_senders_wait(&self) -> bool {
        let shared = self.attributes.shared_receives;
        shared.is_some_and(|shared| shared.when_empty != WhenEmpty::EndsConnection)
    }
}

impl State {
    /// Handles a packet that has arrived: executes it, or holds it if it must wait.
    pub(super) fn arrived(&mut self, to: End, arrival: Arrival) {
        let Some(qp) = self.qp(to) else { return };
        let waits = match &arrival.packet {
            // Neither is a part of the stream of requests behind the message that waits.
            Packet::FinAck | Packet::Reset => false,
            _ => !qp.held.is_empty() || !self.has_receive(to, &arrival),
        };
        match waits {
            true => self.hold(to, arrival),
            false => self.execute(to, arrival),
        }
    }

    /// Returns whether a packet at the head of its connection can be executed. If it is a message
    /// of a bound queue pair, takes a receive for it.
    fn has_receive(&mut self, to: End, arrival: &Arrival) -> bool {
        let Packet::Message { bytes, .. } = &arrival.packet else {
            return true;
        };
        let Some(shared) = self.qp(to).and_then(|qp| qp.shared) else {
            return true;
        };
        if self.take_shared(to, shared, arrival.path) || !self.nodes[to.node.0].makes_senders_wait()
        {
            return true;
        }
        self.note(&FabricEvent::Waits(to, bytes.len()));
        false
    }

    /// Takes a receive from a shared receive queue for the message that is at the head of `end`.
    /// Returns false if there is none for it; `end` waits from then on, or ends.
    fn take_shared(&mut self, end: End, shared: SharedReceivesId, path: Path) -> bool {
        let node = self.node(end.node);
        let Some(queue) = node.shared.get_mut(&shared) else {
            return false;
        };
        let taken: Option<(WrId, Scatter)> = queue.take(end.qp);
        let id = taken.as_ref().map(|(id, _)| *id);
        if let Some(qp) = node.qps.get_mut(&end.qp) {
            qp.receives.extend(taken);
        }
        if let Some(id) = id {
            self.note(&FabricEvent::ReceiveTaken(end, shared, id));
        }
        self.tell_if_low(end.node, shared, path);
        id.is_some()
    }

    /// Holds a packet until everything before it has been executed.
    fn hold(&mut self, to: End, arrival: Arrival) {
        // A graceful end of the peer is over for the peer, whose requests have all been sent.
        if matches!(arrival.packet, Packet::Fin) {
            self.transmit(to, 0, 0, Packet::FinAck, arrival.path);
        }
        if arrival.packet.is_acknowledged()
            && let Some(entry) = self
                .qp(arrival.from)
                .and_then(|qp| qp.entry(arrival.number))
        {
            entry.held = true;
        }
        if let Some(qp) = self.qp(to) {
            qp.held.push_back(arrival);
        }
    }

    /// Lets queue pairs go on that wait for receives which are posted now, in the order in which
    /// they began to wait.
    pub(super) fn serve_waiting(&mut self, node: NodeId, shared: SharedReceivesId) {
        while let Some(qp) = self.next_waiting(node, shared) {
            let end = End { node, qp };
            self.resume(end);
        }
    }

    fn next_waiting(&self, node: NodeId, shared: SharedReceivesId) -> Option<QpId> {
        self.nodes[node.0].shared.get(&shared)?.next()
    }

    /// Executes the packets that an end holds, up to a message for which there is no receive.
    fn resume(&mut self, end: End) {
        let acknowledgement = self.now + self.link(end.node).delay;
        while let Some(arrival) = self.qp(end).and_then(|qp| qp.held.pop_front()) {
            if !self.has_receive(end, &arrival) {
                if let Some(qp) = self.qp(end) {
                    qp.held.push_front(arrival);
                }
                return;
            }
            let (from, number) = (arrival.from, arrival.number);
            if arrival.packet.is_acknowledged()
                && let Some(entry) = self.qp(from).and_then(|qp| qp.entry(number))
                && std::mem::take(&mut entry.held)
                && self.costs.acknowledged
            {
                self.at(acknowledgement, What::Done(from, number));
            }
            match arrival.packet {
                // It was answered when it arrived.
                Packet::Fin => self.end(end, Disconnect::Remote),
                _ => self.execute(end, arrival),
            }
        }
    }

    /// Removes a queue pair from those that wait, because its connection has ended.
    pub(super) fn leave_shared(&mut self, end: End, shared: SharedReceivesId) {
        if let Some(queue) = self.node(end.node).shared.get_mut(&shared) {
            queue.leave(end.qp);
        }
    }

    /// Reports that a shared receive queue is low, if its owner asked for that.
    pub(super) fn tell_if_low(&mut self, node: NodeId, shared: SharedReceivesId, path: Path) {
        let queue = self.node(node).shared.get_mut(&shared);
        if queue.is_some_and(SharedReceiveQueue::take_low) {
            let event = Event::SharedReceivesLow { id: shared };
            self.tell_at(self.now, node, event, path);
        }
    }
}
