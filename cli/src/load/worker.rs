//! The threads that make the calls.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use nfs_binding::client::{Follow, NfsUrl};
use nfs_copy::Interrupt;
use rdma::trace::Trace;
use rpc_transport::Runtime;
use rpcrdma_compare::Latency;
use rpcrdma_programs::workload::{Pace, Prepared, Server, Until, Workload, drive};
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::catalog::Tuning;
use rpcrdma_setup::mount_options::MAX_NCONNECT;
use rpcrdma_setup::{Context, Failure};

use super::PATIENCE;
use super::processor_time::{ThreadTime, of_this_thread};
use super::target::Target;

/// The server and the connections of a worker.
pub(super) struct Job {
    pub(super) target: Target,
    pub(super) tuning: Tuning,
    /// The observer of calls, if they are traced.
    pub(super) trace: Option<Trace>,
    /// The directory for what the calls need.
    pub(super) url: NfsUrl,
    pub(super) ops: Vec<Arc<dyn Workload>>,
    /// The number of the first of the connections among those of all workers.
    pub(super) first: u32,
    pub(super) connections: u32,
    /// Calls in flight on each connection.
    pub(super) in_flight: u32,
    /// The handle that ends connecting.
    pub(super) interrupt: Interrupt,
}

/// The work of one worker in a round.
#[derive(Default)]
pub(super) struct Part {
    /// Calls that succeeded.
    pub(super) calls: u64,
    /// Their latencies.
    pub(super) latency: Latency,
    /// The time of the thread.
    pub(super) time: ThreadTime,
}

/// A round: the index of the operation, and the time.
type Order = (usize, Duration);

/// A thread with connections to one server. It ends when it is dropped.
pub(super) struct Worker {
    orders: Option<Sender<Order>>,
    parts: Receiver<Result<Part, Failure>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread, which connects.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn start(job: Job) -> Result<Self, Failure> {
        let (orders, taken) = channel();
        let (given, parts) = channel();
        let thread = thread::Builder::new()
            .name(format!("load {}", job.target.name))
            .spawn(move || work(&job, &taken, &given))
            .context("cannot start a thread")?;
        Ok(Self {
            orders: Some(orders),
            parts,
            thread: Some(thread),
        })
    }

    /// Starts a round.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) fn order(&self, op: usize, time: Duration) -> Result<(), Failure> {
        let sent = self.orders.as_ref().map(|orders| orders.send((op, time)));
        match sent {
            Some(Ok(())) => Ok(()),
            // It has said why.
            _ => self.part().map(drop),
        }
    }

    /// Waits until the thread has connected, or for the end of a round.
    ///
    /// # Errors
    /// A connection or a call failed.
    pub(super) fn part(&self) -> Result<Part, Failure> {
        let part = self.parts.recv();
        part.unwrap_or_else(|_| Err(Failure::work("a thread ended early")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has said so.
            drop(thread.join());
        }
    }
}

/// Connections that share a device. Calls go over each in turn, so that on average as many are in
/// flight on one as on another.
struct Group {
    mounted: Mounted,
    /// The operations.
    prepared: Vec<Prepared>,
    in_flight: u32,
}

/// Connections of one thread to one server.
struct Connections {
    runtime: Runtime,
    groups: Vec<Group>,
}

impl Connections {
    fn new(job: &Job) -> Result<Self, Failure> {
        let runtime = Runtime::new().context("cannot set up polling")?;
        let (mut groups, mut left) = (Vec::new(), job.connections);
        while left > 0 {
            let connections = left.min(MAX_NCONNECT);
            left -= connections;
            let mut access = job.target.access(&job.tuning)?;
            access.mount.nconnect = connections;
            access.trace.clone_from(&job.trace);
            access.interrupt = Some(job.interrupt.clone());
            let mounted = access.mount_with(&runtime, &job.url)?;
            let mut prepared = Vec::new();
            runtime.block_on(async {
                let directory = mounted.mount.resolve(&mounted.path, Follow::Yes).await;
                let directory = directory.context(&job.url)?.handle;
                let client = &mounted.reached.client;
                let server = Server::new(client, Some(directory), job.first + left);
                for op in &job.ops {
                    let made = Prepared::new(&**op, server).await;
                    prepared.push(made.map_err(Failure::work)?);
                }
                Ok::<_, Failure>(())
            })?;
            groups.push(Group {
                mounted,
                prepared,
                in_flight: connections * job.in_flight,
            });
        }
        Ok(Self { runtime, groups })
    }

    /// Makes calls for this time, and waits for the last replies.
    ///
    /// # Errors
    /// A call failed, or the server does not answer.
    fn round(&self, (op, time): Order) -> Result<Part, Failure> {
        let latency = RefCell::new(Latency::new());
        let before = of_this_thread()?;
        let start = Instant::now();
        let now = &|| start.elapsed();
        let groups = self.groups.iter().map(|group| {
            let (client, prepared) = (&group.mounted.reached.client, &group.prepared[op]);
            let pace = (Pace::InFlight(group.in_flight), Until::Elapsed(time));
            let record = |time| latency.borrow_mut().record(time);
            drive(client, prepared, pace, 0, now, record)
        });
        let all = self.runtime.timeout(time + PATIENCE, try_join_all(groups));
        let ended = self.runtime.block_on(all);
        let ended = ended.map_err(|_| Failure::Work(format!("no reply for {PATIENCE:?}")))?;
        let calls = ended.map_err(Failure::work)?.into_iter().sum();
        Ok(Part {
            calls,
            latency: latency.into_inner(),
            time: of_this_thread()?.since(before),
        })
    }
}

/// Connects, and works until there are no more orders or a call fails.
fn work(job: &Job, orders: &Receiver<Order>, parts: &Sender<Result<Part, Failure>>) {
    let connections = match Connections::new(job) {
        Ok(connections) => connections,
        Err(failure) => {
            // Nobody waits for the failure of a thread that was dropped.
            drop(parts.send(Err(failure)));
            return;
        }
    };
    if parts.send(Ok(Part::default())).is_err() {
        return;
    }
    for order in orders {
        let part = connections.round(order);
        let failed = part.is_err();
        if parts.send(part).is_err() || failed {
            return;
        }
    }
}
