//! A relay of a run: a process with a device for each side.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use rdma::Pool;
use rdma_sim::{Fabric, Host, NodeId};
use rpc_transport::Armed;
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpcrdma_gateway::{Relay, RelayOptions};

/// The maximum number of steps before other hosts get their turn.
const STEPS: usize = 10_000;

/// The configuration of a relay, kept for its successors.
#[derive(Clone)]
pub(super) struct Place {
    /// The host of the device for clients, at the address that it listens on, and the one for the server.
    pub(super) hosts: [Host; 2],
    pub(super) incoming: RdmaServerOptions,
    pub(super) outgoing: RdmaClientOptions,
    pub(super) options: RelayOptions,
}

impl Place {
    /// Returns the memory of both devices.
    pub(super) fn pool(&self) -> &Pool {
        &self.hosts[0].pool
    }

    fn listen(&self) -> SocketAddr {
        self.hosts[0].address
    }
}

/// A relay, from its start to its end.
pub(super) struct RelayHost {
    relay: Relay,
    pub(super) nodes: [NodeId; 2],
}

impl RelayHost {
    pub(super) fn start(fabric: &Fabric, place: &Place) -> io::Result<Self> {
        let [incoming, outgoing] = place.hosts.clone().map(|host| fabric.host(host));
        let (incoming, outgoing) = (incoming.map_err(other)?, outgoing.map_err(other)?);
        let nodes = [incoming.node(), outgoing.node()];
        let mut server = RdmaServer::new(Box::new(incoming), place.incoming.clone());
        server.listen(place.listen()).map_err(other)?;
        let client = RdmaClient::new(Box::new(outgoing), place.outgoing.clone());
        let client = Rc::new(RefCell::new(client));
        let mut relay = Relay::simulated(place.options.clone(), client, fabric.clock())?;
        relay.listen(Rc::new(RefCell::new(server)))?;
        fabric.turn_at(nodes[0], fabric.now());
        Ok(Self { relay, nodes })
    }

    pub(super) fn turn(&mut self, fabric: &Fabric) {
        let node = self.nodes[0];
        for _ in 0..STEPS {
            if self.relay.step() {
                continue;
            }
            match self.relay.arm() {
                Armed::Awake => {}
                Armed::Until(deadline) => {
                    if let Some(at) = deadline {
                        fabric.turn_at(node, at);
                    }
                    return;
                }
            }
        }
        fabric.turn_at(node, fabric.now());
    }

    /// Returns the number of clients, and servers, that it is connected to.
    pub(super) fn pairs(&self) -> usize {
        self.relay.pairs()
    }

    /// Returns the number of calls that it could not pass on, or whose replies it could not.
    pub(super) fn failed(&self) -> u64 {
        let stats = self.relay.stats();
        stats.failed + stats.misplaced + stats.garbage
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
