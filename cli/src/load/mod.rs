//! The `load` command: calls to servers that run already, whoever's they are.
//!
//! The servers have turns in rounds, so that other work on the machine affects all of them. The client
//! is this project's own library. Over the iwarp device it does the work of an RNIC as well.

mod figures;
mod processor_time;
mod report;
mod scratch;
mod target;
mod worker;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs_copy::Interrupt;
use rdma::Clock;
use rdma::trace::Trace;
use rpcrdma_compare::{Latency, OpName, workloads};
use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::catalog::{Catalog, Tuning};
use rpcrdma_setup::{Context, Failure};

use crate::args::LoadArgs;
use crate::interrupt::Interruptible;
use crate::{output, trace};
use figures::{Round, Row};
use processor_time::ThreadTime;
use scratch::Scratch;
use worker::{Job, Worker};

pub(crate) use target::{Target, parse_pid};

/// The share of a round that is made before the rounds that count, to fill caches.
const WARM_UP: u32 = 4;

/// The time after the end of a round that a server has for its last replies.
const PATIENCE: Duration = Duration::from_secs(20);

/// The measurement to make.
struct Plan {
    /// The servers. Ratios are to the first one.
    targets: Vec<Target>,
    ops: Vec<Arc<dyn Workload>>,
    /// The settings and policies of this end of all connections.
    tuning: Tuning,
    /// The observer of calls, if they are traced.
    trace: Option<Trace>,
    /// Connections to each server.
    connections: u32,
    /// Calls in flight on each connection.
    in_flight: u32,
    /// Threads of the client among which the connections are divided.
    threads: u32,
    /// The time of one operation on one server in one round.
    time: Duration,
    rounds: u32,
}

/// Makes calls to servers.
///
/// # Errors
/// The arguments are wrong, a server cannot be reached, or a call fails.
pub(crate) fn run(args: &LoadArgs, catalog: &Catalog) -> Result<(), Failure> {
    let plan = Plan::new(args, catalog)?;
    // Each connection takes a descriptor. Where there are too few, connecting fails and says so.
    drop(rpc_transport::limits::raise_descriptors());
    let rows = plan.perform()?;
    let json = match &args.json {
        Some(file) => Some((file, report::json(&plan, &rows)?)),
        None => None,
    };
    if let Some((file, json)) = &json {
        if file.as_os_str() == "-" {
            return output::bytes(json.as_bytes());
        }
        fs::write(file, json).context(file.display())?;
    }
    output::bytes(report::text(&plan, &rows).as_bytes())
}

impl Plan {
    fn new(args: &LoadArgs, catalog: &Catalog) -> Result<Self, Failure> {
        let first = Target {
            name: args.name.clone(),
            pid: args.server_pid,
            options: args.options.join(","),
            url: args.url.clone(),
        };
        let mut ops: Vec<Arc<dyn Workload>> = Vec::new();
        for &name in &args.ops {
            let sizes = match (&args.sizes[..], name) {
                ([], OpName::Read) => &[4 << 10][..],
                ([], _) => &[8 << 10],
                (given, _) => given,
            };
            let more = workloads(&[name], sizes, catalog)?;
            if more.is_empty() {
                return Err(Failure::usage("--ops tree: only for compare"));
            }
            ops.extend(more);
        }
        for (index, op) in ops.iter().enumerate() {
            let is_same = |other: &Arc<dyn Workload>| other.to_string() == op.to_string();
            if ops[..index].iter().any(is_same) {
                return Err(Failure::Usage(format!("--ops: {op} is there twice")));
            }
        }
        let plan = Self {
            targets: [first].into_iter().chain(args.beside.clone()).collect(),
            ops,
            tuning: args.tuning.tuning(catalog)?,
            trace: None,
            connections: args.connections.into(),
            in_flight: args.calls.into(),
            threads: args.threads.into(),
            time: args.time.0,
            rounds: args.rounds,
        };
        if plan.time.is_zero() {
            return Err(Failure::usage("--time: a round takes some time"));
        }
        if plan.threads > plan.connections {
            let (threads, connections) = (plan.threads, plan.connections);
            let text = format!("{threads} threads have no use for {connections} connections");
            return Err(Failure::Usage(text));
        }
        target::check_all(&plan.targets, &plan.tuning)?;
        let trace = trace::open(&args.trace, Clock::monotonic())?;
        Ok(Self { trace, ..plan })
    }

    /// Makes the calls. Returns for each operation the figures of each server.
    fn perform(&self) -> Result<Vec<Row>, Failure> {
        // What was made on the servers is removed also after a signal, which ends connecting and the rounds; a
        // second one ends the process at once.
        let interruptible = Interruptible::new()?;
        let mut servers: Vec<Server<'_>> = Vec::new();
        for (index, target) in self.targets.iter().enumerate() {
            match Server::new(self, target, index, &interruptible.interrupt()) {
                Ok(server) => servers.push(server),
                Err(failure) => return end(servers, Err(failure.at(&target.name))),
            }
        }
        let measured = self.measure(&mut servers, &interruptible);
        end(servers, measured)
    }

    fn measure(
        &self,
        servers: &mut [Server<'_>],
        interruptible: &Interruptible,
    ) -> Result<Vec<Row>, Failure> {
        let interrupt = interruptible.interrupt();
        // Of each operation, of each server, the rounds and the number of all calls.
        let mut rounds: Vec<Vec<(Vec<Round>, u64)>> = Vec::new();
        for _ in &self.ops {
            rounds.push(servers.iter().map(|_| (Vec::new(), 0)).collect());
        }
        for number in 0..=self.rounds {
            for (op, rounds) in rounds.iter_mut().enumerate() {
                let mut turns: Vec<_> = servers.iter().zip(rounds).collect();
                // The order changes, so that what gets slower or faster in a round is no server's.
                if number % 2 == 1 {
                    turns.reverse();
                }
                for (server, (rounds, made)) in turns {
                    if interrupt.is_set() {
                        return Err(interruptible.failure("load"));
                    }
                    let warming_up = number == 0;
                    let time = match warming_up {
                        true => self.time / WARM_UP,
                        false => self.time,
                    };
                    let round = server.round(op, time).context(&server.target.name)?;
                    *made += round.calls;
                    if !warming_up {
                        let pid = server.target.pid.unwrap_or_default();
                        round.check_server(pid).context(&server.target.name)?;
                        rounds.push(round);
                    }
                }
            }
        }
        let mut rows = Vec::new();
        for (op, rounds) in self.ops.iter().zip(&rounds) {
            for (server, (own, made)) in servers.iter().zip(rounds) {
                let first = rounds.first().map_or(own, |(first, _)| first);
                rows.push(figures::row(&server.target.name, &**op, *made, own, first));
            }
        }
        Ok(rows)
    }
}

/// Removes what was made on the servers. The failure of the measurement counts first.
fn end<T>(servers: Vec<Server<'_>>, measured: Result<T, Failure>) -> Result<T, Failure> {
    let mut outcome = measured;
    for Server {
        target,
        scratch,
        workers,
    } in servers
    {
        // Files are closed before they are removed.
        drop(workers);
        let removed = scratch.remove().context(&target.name);
        outcome = outcome.and_then(|outcome| removed.map(|()| outcome));
    }
    outcome
}

/// A server with a directory for what the calls need, and the threads that call it.
struct Server<'a> {
    target: &'a Target,
    scratch: Scratch,
    workers: Vec<Worker>,
}

impl<'a> Server<'a> {
    fn new(
        plan: &Plan,
        target: &'a Target,
        index: usize,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let scratch = Scratch::create(target, &plan.tuning, index, interrupt.clone())?;
        let mut server = Self {
            target,
            scratch,
            workers: Vec::new(),
        };
        match server.connect(plan, interrupt) {
            Ok(()) => Ok(server),
            Err(failure) => end(vec![server], Err(failure)),
        }
    }

    fn connect(&mut self, plan: &Plan, interrupt: &Interrupt) -> Result<(), Failure> {
        let mut first = 0;
        for thread in 0..plan.threads {
            let more = u32::from(thread < plan.connections % plan.threads);
            let connections = plan.connections / plan.threads + more;
            let job = Job {
                target: self.target.clone(),
                tuning: plan.tuning.clone(),
                trace: (plan.trace.clone()).map(|trace| trace.labelled(&self.target.name)),
                url: self.scratch.url.clone(),
                ops: plan.ops.clone(),
                first,
                connections,
                in_flight: plan.in_flight,
                interrupt: interrupt.clone(),
            };
            first += connections;
            self.workers.push(Worker::start(job)?);
        }
        self.workers
            .iter()
            .try_for_each(|worker| worker.part().map(drop))
    }

    /// Measures one operation once.
    fn round(&self, op: usize, time: Duration) -> Result<Round, Failure> {
        let used = || self.target.pid.map(processor_time::of_process).transpose();
        let before = used().context("the server's process")?;
        let start = Instant::now();
        for worker in &self.workers {
            worker.order(op, time)?;
        }
        let (mut calls, mut latency) = (0, Latency::new());
        let mut client = ThreadTime::default();
        for worker in &self.workers {
            let part = worker.part()?;
            calls += part.calls;
            latency.merge(&part.latency);
            client += part.time;
        }
        let elapsed = start.elapsed();
        let after = used().context("the server's process")?;
        let server = after
            .zip(before)
            .map(|(after, before)| after.since(&before));
        Ok(Round {
            calls,
            elapsed,
            latency,
            server,
            client,
            threads: self.workers.len(),
        })
    }
}
