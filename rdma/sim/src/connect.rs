//! Establishment of connections.

use bytes::Bytes;

use super::queue_pair::{Request, Stage};
use super::state::{State, Stream, What};
use super::{End, NodeId, Path};
use rdma::{ConnectError, ConnectRequest, Disconnect, Event, ListenerId, RequestId};

impl State {
    /// Handles the arrival of a connection request. If several hosts listen on the address, as the
    /// loops of one server do, one of them gets it at random.
    pub(super) fn requested(&mut self, request: Request, path: Path) {
        let (from, to) = (request.from, request.to);
        let private_data = request.private_data.clone();
        let here = |node: &super::state::Node| {
            let mut listeners = node.listeners.iter();
            let found = listeners.find(|(_, address)| **address == to);
            found.map(|(listener, _)| *listener)
        };
        let nodes = self.nodes.iter().enumerate();
        let found: Vec<(NodeId, ListenerId)> = nodes
            .filter(|(_, node)| node.alive)
            .filter_map(|(at, node)| Some((NodeId(at), here(node)?)))
            .collect();
        let chosen = match &found[..] {
            [] => None,
            // No random number is drawn, so that fabrics without such hosts keep their schedules.
            [only] => Some(*only),
            several => Some(self.random.pick(several)),
        };
        let back = self.now + self.costs.down.delay;
        let Some((node, listener)) = chosen else {
            // A running host refuses the request; a host that is down does not answer.
            let mut nodes = self.nodes.iter();
            if nodes.any(|node| node.alive && node.address.ip() == to.ip()) {
                let error = ConnectError::Refused;
                self.at(back, What::NotConnected(from, error, path.crossed()));
            }
            return;
        };
        let id = RequestId(self.id());
        self.requests.insert(id, (node, request));
        let event = Event::ConnectRequest(ConnectRequest {
            listener,
            request: id,
            peer: self.nodes[from.node.0].address,
            private_data,
        });
        self.tell_at(self.now, node, event, path);
    }

    /// Reports a failed connection attempt: refused, rejected or not answered.
    pub(super) fn not_connected(&mut self, end: End, error: ConnectError, path: Path) {
        let Some(qp) = self.qp(end) else { return };
        if !matches!(qp.stage, Stage::Connecting(_) | Stage::Accepted) {
            return;
        }
        qp.stage = Stage::Down;
        self.show_end(end);
        self.flush(end, path);
        let qp = end.qp;
        let event = Event::ConnectFailed { qp, error };
        self.tell(end, Stream::Both, event, path);
    }

    /// Handles the arrival of an acceptance at the connecting end.
    pub(super) fn answered(
        &mut self,
        to: End,
        from: End,
        private_data: Bytes,
        reads: u32,
        path: Path,
    ) {
        let asked = self.qp(to).and_then(|qp| match &qp.stage {
            Stage::Connecting(request) => Some(request.clone()),
            _ => None,
        });
        let (Some(request), Some(qp)) = (asked, self.qp(to)) else {
            // The requester no longer waits for the answer; the accepting side must not wait
            // forever.
            let at = self.now + self.link(to.node).delay;
            let error = ConnectError::TimedOut;
            return self.at(at, What::NotConnected(from, error, path.crossed()));
        };
        qp.stage = Stage::Up;
        qp.peer = Some(from);
        qp.max_reading = reads;
        let cut = qp.cut;
        let at = self.now + self.link(to.node).delay;
        self.show_setup(to, &request, &private_data);
        // Later packets must not arrive before this one.
        if let Some(qp) = self.qp(to) {
            qp.arrival = at;
        }
        self.at(at, What::Ready(from, path.crossed()));
        let event = Event::Established {
            qp: to.qp,
            private_data,
        };
        self.tell(to, Stream::Both, event, path);
        if cut {
            // The other side was gone before its answer arrived.
            self.cut(to, Disconnect::Lost("the peer does not answer".to_owned()));
        }
        self.may_lose(to);
    }

    /// Handles the confirmation of the connecting side, which establishes the connection at the
    /// accepting side.
    pub(super) fn ready(&mut self, end: End, path: Path) {
        let Some(qp) = self
            .qp(end)
            .filter(|qp| matches!(qp.stage, Stage::Accepted))
        else {
            return;
        };
        qp.stage = Stage::Up;
        let (peer, cut) = (qp.peer, qp.cut);
        let event = Event::Established {
            qp: end.qp,
            private_data: Bytes::new(),
        };
        self.tell(end, Stream::Both, event, path);
        // The other side may have gone or dropped the connection in between.
        let alive = peer.is_some_and(|peer| self.qp(peer).is_some_and(|qp| qp.is_up()));
        if !alive && !cut {
            self.end(end, Disconnect::Lost("reset".to_owned()));
        }
        self.may_lose(end);
    }
}
