//! A relay of a run: a process with a device for each side.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use rdma::Pool;
use rdma_sim::{Fabric, Host, NodeId};
use rpc_transport::rdma::{RdmaClient, RdmaServer, RdmaServerOptions};
use rpc_transport::{Armed, ServerTransport};
use rpcrdma_gateway::{Outgoing, Relay, RelayOptions};
use rpcrdma_host::Budget;

use super::hop::Hop;
use super::stream::Network;
use super::stream_client::StreamClient;
use super::stream_server::StreamServer;

/// The maximum number of steps before other hosts get their turn.
const STEPS: usize = 10_000;

/// The number of connections of clients for which a relay has memory: those of three, and their successors while
/// the calls of earlier ones are still in progress.
pub(super) const CONNECTIONS: usize = 6;

/// The configuration of a relay, kept for its successors.
#[derive(Clone)]
pub(super) struct Place {
    /// The host of the device for clients, at the address that it listens on, and the one for the server.
    pub(super) hosts: [Host; 2],
    /// The hop from clients, and the one to the server.
    pub(super) hops: [Hop; 2],
    pub(super) network: Network,
    /// The memory for its calls and replies, bytes, if it is short.
    pub(super) budget: Option<usize>,
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
        let (network, pool, [from, to]) = (&place.network, place.pool(), &place.hops);
        let outgoing: Rc<RefCell<dyn Outgoing>> = match to.client() {
            Some(options) => Rc::new(RefCell::new(RdmaClient::new(Box::new(outgoing), options))),
            None => {
                let address = place.hosts[1].address;
                let client = StreamClient::new(network, nodes[1], address, pool.clone());
                Rc::new(RefCell::new(client))
            }
        };
        let budget = place.budget.map(|it| Budget::new(it, CONNECTIONS));
        let budget = budget.unwrap_or_default();
        let incoming: Rc<RefCell<dyn ServerTransport>> = match from.server() {
            Some(options) => {
                let options = RdmaServerOptions { budget, ..options };
                let mut server = RdmaServer::new(Box::new(incoming), options);
                server.listen(place.listen()).map_err(other)?;
                Rc::new(RefCell::new(server))
            }
            None => {
                let at = (nodes[0], place.listen());
                let memory = (pool.clone(), budget);
                Rc::new(RefCell::new(StreamServer::listen(network, at, memory)))
            }
        };
        let mut relay = Relay::simulated(place.options.clone(), outgoing, fabric.clock())?;
        relay.listen(incoming)?;
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
        self.relay.stats().failed
    }

    /// Returns the number of calls that waited for memory for their replies.
    pub(super) fn waited(&self) -> u64 {
        self.relay.stats().waited
    }

    /// Returns the number of messages that it found to be wrong.
    pub(super) fn refused(&self) -> u64 {
        let stats = self.relay.stats();
        stats.misplaced + stats.garbage
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
