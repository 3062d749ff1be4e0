//! An observer of a device that adds what it sees to a capture.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex};

use rdma::middleware::Shaper;
use rdma::{Carrier, Frame, QpId, Setup, Tap, Time};

use crate::capture::{Capture, lock};
use crate::file::{Origin, Sink};
use crate::flow::{Flow, LOCAL, PEER};
use crate::fpdu;
use crate::link::{Link, REQUEST};
use crate::packet::Ends;

/// Addresses of connections whose addresses were gone when their first bytes were seen, from a
/// block for documentation (RFC 5737). The initiator's port is replaced by one of its own.
const NOWHERE: [SocketAddr; 2] = [
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1)),
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 2)),
];

/// A tap that adds the connections of one device to a capture. See [`Capture::tap`].
pub struct CaptureTap {
    capture: Capture,
    interface: u32,
    origin: Origin,
    flows: HashMap<QpId, Flow>,
    /// The connections, if the device is behind an emulated link.
    link: Option<Arc<Mutex<Link>>>,
}

impl Capture {
    /// Creates the observer of a device, which the capture calls `name`.
    #[must_use]
    pub fn tap(&self, name: &str, origin: Origin) -> CaptureTap {
        CaptureTap {
            interface: self.interface(name, origin),
            capture: self.clone(),
            origin,
            flows: HashMap::new(),
            link: None,
        }
    }
}

impl CaptureTap {
    /// Shows connections of a device that shows its streams ([`Origin::Stream`]) with the times at
    /// this side's end of `link`. The device is wrapped in a [`Linked`](rdma::middleware::Linked) with the same link, and the tap,
    /// which is below it, sees other times. Taps above the link need nothing of this.
    #[must_use]
    pub fn behind(mut self, link: Shaper) -> Self {
        let link = Link::new(self.interface, self.origin.comment(), link);
        self.link = Some(self.capture.add_link(link));
        self
    }

    fn show(&mut self, at: Time, qp: QpId, from: usize, frame: Frame<'_>) {
        if self.capture.is_stopped() {
            self.flows.clear();
            return;
        }
        let (flows, comment) = (&mut self.flows, self.origin.comment());
        self.capture.with(self.interface, |sink| {
            let Frame::Stream { carrier, pieces } = frame else {
                // Connections of such devices begin with their set-up. What is seen without it
                // comes after their end.
                if let Some(flow) = flows.get_mut(&qp) {
                    flow.frame(sink, at, from, frame);
                }
                return;
            };
            if let Some(link) = &self.link {
                let ends = |sink: &mut Sink<'_>, initiator| ends(sink, carrier, initiator);
                return lock(link).bytes(sink, (at, qp, from), pieces, ends);
            }
            let flow = flows.entry(qp).or_insert_with(|| {
                let first = pieces.first().copied().unwrap_or_default();
                let seen = first.len().min(REQUEST.len());
                let initiator = match first[..seen] == REQUEST[..seen] {
                    true => from,
                    false => 1 - from,
                };
                let ends = ends(sink, carrier, initiator);
                Flow::open(sink, at, ends, initiator, comment)
            });
            for piece in pieces {
                flow.bytes(sink, at, from, piece);
            }
        });
    }
}

/// Returns the ends of a connection over `carrier`.
fn ends(sink: &mut Sink<'_>, carrier: Carrier, initiator: usize) -> Ends {
    let ends = match carrier {
        Carrier::Tcp { local, peer } => [local, peer],
        _ => {
            let mut ends = NOWHERE;
            ends[initiator].set_port(sink.next_port());
            ends
        }
    };
    Ends::new(ends)
}

impl Drop for CaptureTap {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            self.capture.end_link(link);
        }
    }
}

impl Tap for CaptureTap {
    fn established(&mut self, at: Time, qp: QpId, setup: &Setup<'_>) {
        if self.capture.is_stopped() {
            return;
        }
        let (flows, comment) = (&mut self.flows, self.origin.comment());
        self.capture.with(self.interface, |sink| {
            flows.insert(qp, begin(sink, at, setup, comment));
        });
    }

    fn ended(&mut self, at: Time, qp: QpId) {
        if let Some(link) = &self.link {
            self.capture
                .with(self.interface, |sink| lock(link).ended(sink, at, qp));
        }
        if let Some(flow) = self.flows.remove(&qp)
            && !self.capture.is_stopped()
        {
            self.capture
                .with(self.interface, |sink| flow.close(sink, at));
        }
    }

    fn sent(&mut self, at: Time, qp: QpId, frame: Frame<'_>) {
        self.show(at, qp, LOCAL, frame);
    }

    fn received(&mut self, at: Time, qp: QpId, frame: Frame<'_>) {
        self.show(at, qp, PEER, frame);
    }
}

/// Begins a connection whose set-up is known, all of it at the time of the reply. The initiator
/// gets a port of its own, because devices without TCP give the same one to several connections, or
/// none.
fn begin(sink: &mut Sink<'_>, at: Time, setup: &Setup<'_>, comment: &'static str) -> Flow {
    let initiator = match setup.initiator {
        true => LOCAL,
        false => PEER,
    };
    let mut ends = [setup.local, setup.peer];
    ends[initiator].set_port(sink.next_port());
    let ends = Ends::new(ends);
    let mut flow = Flow::open(sink, at, ends, initiator, comment);
    let request = fpdu::setup(true, setup.request);
    flow.bytes(sink, at, initiator, &request);
    let reply = fpdu::setup(false, setup.reply);
    flow.bytes(sink, at, 1 - initiator, &reply);
    flow
}

impl fmt::Debug for CaptureTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureTap")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
