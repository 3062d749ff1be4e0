//! The end of connections.

use super::queue_pair::{Packet, Stage};
use super::state::{State, Stream, What};
use super::{End, FabricEvent, Path};
use rdma::{Completion, ConnectError, Disconnect, Event, Failed, WorkError};

impl State {
    /// Stops all traffic to and from `end`. Its owner notices after the detection time.
    pub(super) fn cut(&mut self, end: End, reason: Disconnect) {
        let detection = self.costs.detection;
        let at = self.now + self.random.duration(detection);
        if let Some(qp) = self.qp(end) {
            qp.cut = true;
            self.at(at, What::Over(end, reason));
        }
    }

    /// Loses the connection with the configured probability. Called at each event of a connection;
    /// returns whether it was lost.
    pub(super) fn may_lose(&mut self, end: End) -> bool {
        let lost = self.random.chance(self.faults.lose)
            && self.qp(end).is_some_and(|qp| qp.is_up() && !qp.cut);
        if lost {
            self.lose(end);
        }
        lost
    }

    /// Loses a connection in the network.
    pub(super) fn lose(&mut self, end: End) {
        self.note(&FabricEvent::Lost(end));
        let peer = self.qp(end).and_then(|qp| qp.peer);
        for end in [Some(end), peer].into_iter().flatten() {
            self.cut(end, Disconnect::Lost("connection lost".to_owned()));
        }
    }

    /// Ends one end of a connection. The other end is not notified.
    pub(super) fn end(&mut self, end: End, reason: Disconnect) {
        let path = self.nodes[end.node.0].path;
        let Some(qp) = self.qp(end) else { return };
        match qp.stage {
            Stage::Up => {}
            // The peer notices because no answer comes.
            Stage::Accepted => {
                let error = ConnectError::TimedOut;
                return self.not_connected(end, error, path);
            }
            _ => return,
        }
        qp.stage = Stage::Down;
        self.show_end(end);
        self.flush(end, path);
        let qp = end.qp;
        self.tell(end, Stream::Both, Event::Disconnected { qp, reason }, path);
    }

    /// Fails all outstanding requests, and invalidates all registrations.
    pub(super) fn flush(&mut self, end: End, path: Path) {
        self.note(&FabricEvent::Over(end));
        let Some(qp) = self.qp(end) else { return };
        let receives = std::mem::take(&mut qp.receives);
        let queue = std::mem::take(&mut qp.queue);
        qp.started = 0;
        qp.held.clear();
        let shared = qp.shared;
        for memory in qp.memory.values_mut() {
            memory.valid = false;
        }
        if let Some(shared) = shared {
            self.leave_shared(end, shared);
        }
        for entry in queue {
            let buf = entry.progress.memory();
            let error = WorkError::Flushed;
            let result = Err(Failed { error, buf });
            let completion = Completion {
                qp: end.qp,
                id: entry.id,
                result,
            };
            self.tell(end, Stream::Send, Event::Completion(completion), path);
        }
        for (id, buf) in receives {
            let failed = Failed {
                error: WorkError::Flushed,
                buf: Some(buf),
            };
            let completion = Completion {
                qp: end.qp,
                id,
                result: Err(failed),
            };
            self.tell(end, Stream::Receive, Event::Completion(completion), path);
        }
    }

    /// Closes a connection gracefully at the owner's request: the peer is notified as soon as all
    /// posted requests are done. A connection that is not established is aborted.
    pub(super) fn close(&mut self, end: End) {
        self.note(&FabricEvent::Closed(end));
        match self.qp(end).filter(|qp| qp.is_up()) {
            Some(qp) => {
                qp.closing = true;
                self.close_when_drained(end);
            }
            None => self.abort(end),
        }
    }

    pub(super) fn close_when_drained(&mut self, end: End) {
        let Some(qp) = self.qp(end) else { return };
        if qp.is_up() && qp.closing && qp.queue.is_empty() {
            let path = self.nodes[end.node.0].path;
            self.transmit(end, 0, 0, Packet::Fin, path);
        }
    }

    /// Aborts a connection at the owner's request.
    pub(super) fn abort(&mut self, end: End) {
        let path = self.nodes[end.node.0].path;
        let Some(qp) = self.qp(end) else { return };
        match &qp.stage {
            Stage::Up => {
                self.note(&FabricEvent::Aborted(end));
                self.transmit(end, 0, 0, Packet::Reset, path);
                self.end(end, Disconnect::Local);
                return;
            }
            Stage::Down => return,
            // If the acceptance still arrives, it fails at the accepting side.
            Stage::Connecting(_) => {}
            Stage::Prepared(request) => {
                let peer = request.from;
                self.reset_request(end, peer, path);
            }
            Stage::Accepted => {
                let peer = qp.peer;
                self.reset_initiator(end, peer);
            }
        }
        if let Some(qp) = self.qp(end) {
            qp.stage = Stage::Down;
        }
        self.show_end(end);
        self.flush(end, path);
        let (qp, reason) = (end.qp, Disconnect::Local);
        self.tell(end, Stream::Both, Event::Disconnected { qp, reason }, path);
    }

    /// Fails the attempt of `peer`, whose request `end` will not answer.
    fn reset_request(&mut self, end: End, peer: End, path: Path) {
        let error = ConnectError::Protocol("reset".to_owned());
        let at = self.now + self.link(end.node).delay;
        self.at(at, What::NotConnected(peer, error, path.crossed()));
    }

    /// Ends the connection at its initiator, whose request was accepted and whose confirmation has not
    /// arrived.
    fn reset_initiator(&mut self, end: End, peer: Option<End>) {
        let Some(peer) = peer else { return };
        // The reset must not overtake the acceptance, which leaves when the host's processor is free.
        let left = self.nodes[end.node.0].busy.max(self.now);
        let reason = Disconnect::Lost("reset".to_owned());
        self.at(left + self.link(end.node).delay, What::Over(peer, reason));
    }

    /// Frees a queue pair at the owner's request. No further event of it is reported.
    pub(super) fn destroy(&mut self, end: End) {
        let path = self.nodes[end.node.0].path;
        if self.qp(end).is_some_and(|qp| qp.is_up()) {
            self.note(&FabricEvent::Aborted(end));
            self.transmit(end, 0, 0, Packet::Reset, path);
            self.show_end(end);
        }
        self.note(&FabricEvent::Over(end));
        let node = self.node(end.node);
        let gone = node.qps.remove(&end.qp);
        let qp = Some(end.qp);
        node.events
            .retain(|(event, _)| super::state::qp_of(event) != qp);
        if let Some(shared) = gone.as_ref().and_then(|qp| qp.shared) {
            self.leave_shared(end, shared);
        }
        match gone.map(|qp| (qp.stage, qp.peer)) {
            Some((Stage::Prepared(request), _)) => self.reset_request(end, request.from, path),
            Some((Stage::Accepted, peer)) => self.reset_initiator(end, peer),
            _ => {}
        }
    }
}
