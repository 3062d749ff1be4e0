//! A simulated RDMA device: hosts joined by a network that exists only in this process, on a
//! virtual clock, in one thread, from one seed.
//!
//! A [`Fabric`] is the network and the clock. [`Fabric::host`] creates a host's [`SimDevice`],
//! which is a [`Device`](rdma::Device) like any other. A simulation runs in turns: [`Fabric::next`]
//! advances the clock to the next event and returns the host whose turn it is; the caller steps
//! that host's loop, and [`Fabric::turn_at`] schedules its next step.
//!
//! Several hosts may listen on one address, as the loops of a server do, each with a device of its own:
//! every connection request goes to one of them, at random.
//!
//! [`Costs`] holds the time of each operation, and the link, which can have another delay and rate in each
//! direction, jitter, and losses ([`Noise`]). [`Faults`] holds the faults to inject. Checks are as strict as
//! those of a real device: a Send needs a posted receive that is long enough, every access is checked for
//! handle, bounds and rights, and send queue slots are freed as in real queues. If a shared receive queue is
//! empty, the Send waits, or ends the connection with [`WhenEmpty::EndsConnection`]; the failures of
//! [`WhenEmpty::MayEndConnection`] are not simulated. [`Path`] counts what each event had to wait for,
//! [`Fabric::record_steps`] records when, and an [`Observer`] sees all events.
//!
//! The result does not depend on the machine, the build or the time: hash maps with random keys,
//! real clocks and memory addresses are not used.
//!
//! ```
//! use std::collections::VecDeque;
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use rdma::{ConnectOptions, Device, Event, Pool};
//! use rdma_sim::{Costs, Fabric, Faults, Host, attributes};
//!
//! let fabric = Fabric::new(7, Costs::default(), Faults::default());
//! let host = |address: SocketAddr| {
//!     fabric.host(Host {
//!         address,
//!         attributes: attributes(),
//!         pool: Pool::new(1 << 20),
//!         interrupt: Duration::from_micros(3),
//!     })
//! };
//! let (near, far) = ("10.0.0.1:20049".parse()?, "10.0.0.2:20049".parse()?);
//! let (mut client, mut server) = (host(near)?, host(far)?);
//! server.listen(far)?;
//! let options = ConnectOptions {
//!     private_data: Bytes::from_static(b"hello"),
//!     inbound_reads: 4,
//!     outbound_reads: 4,
//!     timeout: Duration::from_secs(10),
//!     shared_receives: None,
//! };
//! client.connect(far, &options)?;
//! // Everything that happens in the first second of the fabric's own time.
//! while fabric.next(fabric.now() + Duration::from_secs(1)).is_some() {}
//! let mut events = VecDeque::new();
//! server.poll(fabric.now(), &mut events);
//! assert!(matches!(&events[0], Event::ConnectRequest(request) if request.peer == near));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The device hands out one event at a time, and everything that its owner does next inherits that
//! event's history. The counts of `compare --device sim` are therefore those of the chain of events
//! that ends in the reply.

#![forbid(unsafe_code)]

mod arrive;
mod connect;
mod costs;
mod device;
mod end;
mod fabric;
mod fabric_event;
mod link;
mod path;
mod queue_pair;
mod random;
mod send;
mod shared;
mod state;
mod steps;

#[cfg(test)]
mod tests;

pub use costs::{Costs, Faults, Link, Noise, PAGE};
pub use device::SimDevice;
pub use fabric::{Fabric, Host, Turn};
pub use fabric_event::{Access, FabricEvent, Observer};
pub use path::{COUNTED_NODES, MAX_NODES, Path};
pub use random::Random;
pub use steps::{Step, StepId, StepKind, on_path};

use std::fmt;

use rdma::{Attributes, ClassCosts, QpId, SharedReceives, WhenEmpty};

/// Identifies a host of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// Identifies one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The host.
    pub node: NodeId,
    /// The queue pair, whose number is unique in the fabric.
    pub qp: QpId,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host{}", self.0)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/qp{}", self.node, self.qp.0)
    }
}

/// Returns the default attributes of a simulated device.
#[must_use]
pub fn attributes() -> Attributes {
    Attributes {
        name: "sim".to_owned(),
        max_send_wr: 256,
        max_recv_wr: 1024,
        max_gather: 8,
        max_scatter: 32,
        max_region: 1 << 30,
        max_inbound_reads: 32,
        max_outbound_reads: 32,
        costs: ClassCosts::default(),
        max_private_data: 56,
        remote_invalidation: true,
        shared_receives: Some(SharedReceives {
            max_wr: 4096,
            when_empty: WhenEmpty::Waits,
        }),
        keeps_credentials: false,
    }
}
