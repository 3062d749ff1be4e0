//! The simulated server: a process with one or several loops, each with a host of the fabric as its
//! device.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nfs_binding::server::NfsServer;
use rdma::trace::Trace;
use rdma::{Device, Pool};
use rdma_sim::{Fabric, Host, NodeId, Path, SimDevice};
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions, for_another_end};
use rpc_transport::{Armed, Server, ServerGroup, ServerOptions, Service};
use rpcrdma_programs::callbacks::{Orders, Totals};
use rpcrdma_programs::{Beside, Probe};

use crate::exports::Exports;
use crate::plan::Hostile;

/// The maximum number of steps of a loop before other hosts get their turn.
pub(crate) const STEPS: usize = 10_000;

/// How far a loop gets in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// The maximum number of steps.
    pub(crate) steps: usize,
    /// The pause before the next turn of a loop that could go on.
    pub(crate) pause: Duration,
}

impl Default for Slice {
    fn default() -> Self {
        Self {
            steps: STEPS,
            pause: Duration::ZERO,
        }
    }
}

/// A server process, from its start to its crash.
pub(crate) struct ServerHost {
    /// The loops, in the order of their hosts.
    pub(crate) loops: Vec<ServerLoop>,
    /// The memory of all loops.
    pub(crate) pool: Pool,
}

/// A loop of a server, with a device of its own.
pub(crate) struct ServerLoop {
    server: Server,
    pub(crate) port: Rc<RefCell<RdmaServer>>,
    pub(crate) node: NodeId,
    /// The number of calls whose bulk data arrived apart from the rest ([`Probe`]).
    pub(crate) placed: Arc<AtomicU64>,
    /// The causal path of each waiting job, in order.
    jobs: VecDeque<Path>,
    /// The number of jobs that were passed to workers.
    taken: u64,
}

/// Makes the service that comes before the one of a loop.
pub(crate) type Before = Box<dyn Fn(Loop) -> Box<dyn Service>>;

/// The programs of a server beside NFS and [`Probe`].
#[derive(Default)]
pub(crate) struct Programs {
    /// The counts of callbacks, if the server makes them.
    pub(crate) callbacks: Option<Totals>,
    /// Further services, of the first loop.
    pub(crate) others: Vec<Box<dyn Service>>,
    /// The service before the one of each loop.
    pub(crate) before: Option<Before>,
    /// The observer of calls, if they are traced.
    pub(crate) trace: Option<Trace>,
}

/// The parts of a loop that is being started.
pub(crate) struct Loop {
    pub(crate) fabric: Fabric,
    pub(crate) node: NodeId,
    /// Its service.
    pub(crate) service: Box<dyn Service>,
    /// Its transport.
    pub(crate) port: Rc<RefCell<RdmaServer>>,
}

/// The error of a server that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("no server: {0}")]
pub(crate) struct NoServer(String);

impl ServerHost {
    /// Starts a server with a loop for each of `hosts`, which have one pool. All loops listen on
    /// the address of the first host.
    pub(crate) fn start(
        fabric: &Fabric,
        hosts: Vec<Host>,
        options: &RdmaServerOptions,
        exports: &Exports,
        limits: Option<&Hostile>,
        mut programs: Programs,
        mut wrap: impl FnMut(SimDevice) -> Box<dyn Device>,
    ) -> Result<Self, NoServer> {
        let failed = |error: &dyn std::error::Error| NoServer(error.to_string());
        let first = hosts.first().map(|host| (host.address, host.pool.clone()));
        let (listen, pool) = first.ok_or_else(|| NoServer("it has no loop".to_owned()))?;
        let nfs = NfsServer::new(exports.list(), exports.key()).map_err(|error| failed(&error))?;
        let mut server_options = ServerOptions {
            callbacks: programs.callbacks.is_some(),
            ..ServerOptions::default()
        };
        if let Some(limits) = limits {
            server_options.max_connections = limits.connections;
            server_options.reply_cache_entries = limits.replies;
            server_options.max_jobs = limits.jobs;
        }
        let orders = Orders::counting(programs.callbacks.take().unwrap_or_default());
        let group = ServerGroup::new(hosts.len(), &server_options);
        // The loops are one server.
        let grants = for_another_end(&options.common.grants);
        let mut loops = Vec::new();
        for (index, host) in hosts.into_iter().enumerate() {
            let device = fabric.host(host).map_err(|error| failed(&error))?;
            let node = device.node();
            let mut options = RdmaServerOptions {
                budget: options.budget.part(),
                ..options.clone()
            };
            options.common.grants = Arc::clone(&grants);
            let mut port = RdmaServer::new(wrap(device), options);
            port.listen(listen).map_err(|error| failed(&error))?;
            let nfs = Beside::new(nfs.clone(), std::mem::take(&mut programs.others));
            let service = Probe::with_orders(nfs, orders.clone());
            let placed = service.placed();
            let port = Rc::new(RefCell::new(port));
            let mut service: Box<dyn Service> = Box::new(service);
            if let Some(before) = &programs.before {
                service = before(Loop {
                    fabric: fabric.clone(),
                    node,
                    service,
                    port: Rc::clone(&port),
                });
            }
            let (mut options, clock) = (server_options.clone(), fabric.clock());
            let trace = programs.trace.clone();
            options.trace = trace.map(|trace| trace.with_clock(fabric.host_clock(node)));
            let mut server = Server::simulated_in_group(&group, index, service, options, clock);
            server
                .add_transport(Rc::clone(&port) as Rc<RefCell<_>>)
                .map_err(|error| failed(&error))?;
            fabric.turn_at(node, fabric.now());
            loops.push(ServerLoop {
                server,
                port,
                node,
                placed,
                jobs: VecDeque::new(),
                taken: 0,
            });
        }
        Ok(Self { loops, pool })
    }

    /// Returns the hosts of the loops that others have woken, except that of `current`, which
    /// notices by itself.
    pub(crate) fn woken(&self, current: usize) -> impl Iterator<Item = NodeId> {
        let others = self.loops.iter().enumerate();
        let others = others.filter(move |(at, _)| *at != current);
        others.filter_map(|(_, woken)| woken.server.is_woken().then_some(woken.node))
    }

    /// Returns the number of replies that each loop has been handed by others and has not taken.
    pub(crate) fn handed_replies(&self) -> impl Iterator<Item = usize> {
        self.loops.iter().map(|at| at.server.handed_replies())
    }

    /// Returns the number of retransmissions at all loops that wait for replies of other loops.
    pub(crate) fn waiting_for_others(&self) -> usize {
        let waiting = self.loops.iter().map(|at| at.server.waiting_for_others());
        waiting.sum()
    }
}

impl ServerLoop {
    /// Runs the loop's turn. Returns the number of jobs that were passed to workers.
    pub(crate) fn turn(&mut self, fabric: &Fabric, slice: Slice) -> usize {
        let before = self.jobs.len();
        for _ in 0..slice.steps {
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
        fabric.turn_at(self.node, fabric.now() + slice.pause);
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
