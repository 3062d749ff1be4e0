//! The simulated server host.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use nfs_binding::fs::FileSystem;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use rdma::{Device, Pool};
use rdma_sim::{Fabric, Host, NodeId, Path, SimDevice};
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{Armed, Server, ServerOptions};
use rpcrdma_callbacks::{Orders, Totals};

use crate::probe::Probe;

/// The maximum number of turns of the server's loop before other hosts get their turn.
const TURNS: usize = 10_000;
/// The export's path.
pub(crate) const EXPORT: &str = "/sim";

/// A server host, from its start to its crash.
pub(crate) struct ServerHost {
    server: Server,
    pub(crate) port: Rc<RefCell<RdmaServer>>,
    node: NodeId,
    pub(crate) pool: Pool,
    /// The causal path of each waiting job, in order.
    jobs: VecDeque<Path>,
    /// The number of jobs that were passed to workers.
    taken: u64,
}

/// The error of a server that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("no server: {0}")]
pub(crate) struct NoServer(String);

impl ServerHost {
    pub(crate) fn start(
        fabric: &Fabric,
        host: Host,
        listen: SocketAddr,
        options: RdmaServerOptions,
        disk: Arc<dyn FileSystem>,
        callbacks: Option<Totals>,
        wrap: impl FnOnce(SimDevice) -> Box<dyn Device>,
    ) -> Result<Self, NoServer> {
        let failed = |error: &dyn std::error::Error| NoServer(error.to_string());
        let pool = host.pool.clone();
        let device = fabric.host(host).map_err(|error| failed(&error))?;
        let node = device.node();
        let export = Export {
            path: EXPORT.to_owned(),
            backend: disk,
            options: ExportOptions::for_server(false),
        };
        // The key stays the same, so that handles survive a restart.
        let key = HandleKey::from_bytes([0x5a; 16]);
        let nfs = NfsServer::new(vec![export], key).map_err(|error| failed(&error))?;
        let mut port = RdmaServer::new(wrap(device), options);
        port.listen(listen).map_err(|error| failed(&error))?;
        let options = ServerOptions {
            callbacks: callbacks.is_some(),
            ..ServerOptions::default()
        };
        let orders = Orders::counting(callbacks.unwrap_or_default());
        let service = Box::new(Probe::with_orders(nfs, orders));
        let mut server = Server::simulated(service, options, fabric.clock());
        let port = Rc::new(RefCell::new(port));
        server
            .add_transport(Rc::clone(&port) as Rc<RefCell<_>>)
            .map_err(|error| failed(&error))?;
        fabric.turn_at(node, fabric.now());
        Ok(Self {
            server,
            port,
            node,
            pool,
            jobs: VecDeque::new(),
            taken: 0,
        })
    }

    /// Runs the host's turn. Returns the number of jobs that were passed to workers.
    pub(crate) fn turn(&mut self, fabric: &Fabric) -> usize {
        let before = self.jobs.len();
        for _ in 0..TURNS {
            let progress = self.server.step();
            while self.taken < self.server.stats().jobs {
                self.taken += 1;
                self.jobs.push_back(fabric.path(self.node));
            }
            if progress {
                continue;
            }
            match self.server.arm() {
                Armed::Awake => {}
                Armed::Until(deadline) => {
                    if let Some(at) = deadline {
                        fabric.turn_at(self.node, at);
                    }
                    return self.jobs.len() - before;
                }
            }
        }
        fabric.turn_at(self.node, fabric.now());
        self.jobs.len() - before
    }

    /// Completes the oldest job, for which the disk is ready.
    pub(crate) fn finish_job(&mut self, fabric: &Fabric) {
        if let Some(path) = self.jobs.pop_front() {
            fabric.set_path(self.node, path);
        }
        if self.server.run_job() {
            fabric.turn_at(self.node, fabric.now());
        }
    }
}
