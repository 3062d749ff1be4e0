//! The simulated device: hosts joined by a network that exists only in this process, on a virtual
//! clock, in one thread, from one seed.
//!
//! A [`Fabric`] is the network and the clock. [`Fabric::host`] makes a host's [`SimDevice`], which
//! is a [`Device`](rdma::Device) like any other. Whoever simulates takes turns: [`Fabric::next`]
//! moves the clock to the next thing that happens and says whose turn it is; that host's loop is
//! stepped, and [`Fabric::turn_at`] says when it wants to be stepped again.
//!
//! What an operation costs is in [`Costs`], what goes wrong in [`Faults`]. Everything is checked as
//! strictly as a device could: a Send needs a posted receive that is long enough, every access is
//! held against handle, bounds and right, and slots of a send queue come back only as they do from
//! real queues. [`Path`] counts what each effect had to wait for; an [`Observer`] sees it all.
//!
//! Nothing here depends on the machine, the build or the moment: hash maps with random keys, real
//! clocks and addresses of memory have no part in it.
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
//! };
//! client.connect(far, &options)?;
//! // Everything that happens in the first second of the fabric's own time.
//! while fabric.next(fabric.now() + Duration::from_secs(1)).is_some() {}
//! let mut events = VecDeque::new();
//! server.poll(fabric.now(), &mut events);
//! assert!(matches!(&events[0], Event::ConnectRequest(request) if request.peer == near));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod arrive;
mod connect;
mod costs;
mod device;
mod end;
mod fabric;
mod happening;
mod path;
mod queue_pair;
mod random;
mod send;
mod state;

#[cfg(test)]
mod tests;

pub use costs::{Costs, Faults, PAGE};
pub use device::SimDevice;
pub use fabric::{Fabric, Host, Turn};
pub use happening::{Access, Happening, Observer};
pub use path::{MAX_NODES, Path};
pub use random::Random;

use std::fmt;

use rdma::{Attributes, QpId};

/// A host of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// Its host.
    pub node: NodeId,
    /// Its queue pair. No two of one fabric have the same number.
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

/// What a simulated device can do unless told otherwise.
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
        max_private_data: 56,
        remote_invalidation: true,
    }
}
