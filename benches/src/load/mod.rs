//! Load on servers of NFS version 3, over TCP and over RDMA.
//!
//! A [`Plan`] names one or more servers. [`run`] makes a test file on each, and then calls in
//! rounds in which the servers take turns, so that other work on the machine affects all of them.
//! [`text`] and [`json`] show the outcome.
//!
//! Over TCP, calls are encoded once and replies are checked without decoding them, so that the
//! client needs a fraction of a server's processor time. Over RDMA, the client is this project's
//! own library, and over the iwarp device the client does the work of an RNIC as well.

mod figures;
mod fixture;
mod library;
mod op;
mod processor_time;
mod report;
mod target;
mod tcp;
mod wire;
mod worker;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use rpcrdma_setup::{Context, Failure};

use figures::{Latency, Round};
use fixture::Fixture;
use processor_time::ThreadTime;
use worker::{Job, Worker};

pub use figures::Row;
pub use fixture::CALLS as FIXTURE_CALLS;
pub use op::{FILE_SIZE, Op, READ_SIZE, WRITE_SIZE};
pub use report::{json, text};
pub use target::{Target, parse_pid};

/// The share of a round that is made before the rounds that count, to fill caches.
const WARM_UP: u32 = 4;

/// The time after the end of a round that a server has for its last replies.
const PATIENCE: Duration = Duration::from_secs(20);

/// The measurement to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers. Ratios are to the first one.
    pub targets: Vec<Target>,
    /// The operations.
    pub ops: Vec<Op>,
    /// Connections to each server.
    pub connections: usize,
    /// Calls in flight on each connection.
    pub in_flight: usize,
    /// Threads of the client among which the connections are divided.
    pub threads: usize,
    /// The time of one operation on one server in one round.
    pub time: Duration,
    /// The number of rounds.
    pub rounds: u32,
}

impl Plan {
    /// Checks the plan without calling a server.
    ///
    /// # Errors
    /// A mount option cannot be used, a process does not exist, two servers have the same name, or
    /// a number is zero.
    pub fn check(&self) -> Result<(), Failure> {
        if self.targets.is_empty() || self.ops.is_empty() {
            return Err(Failure::usage("there is nothing to measure"));
        }
        if self.in_flight == 0 || self.threads == 0 || self.rounds == 0 || self.time.is_zero() {
            return Err(Failure::usage(
                "calls, threads, rounds and time are at least 1",
            ));
        }
        if self.threads > self.connections {
            let (threads, connections) = (self.threads, self.connections);
            let text = format!("{threads} threads have no use for {connections} connections");
            return Err(Failure::Usage(text));
        }
        target::check_all(&self.targets)
    }
}

/// The result of the measurement.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures: for each operation, those of each server.
    pub rows: Vec<Row>,
}

/// Makes the calls of a plan.
///
/// # Errors
/// The plan is wrong, a server cannot be reached, or a call fails.
pub fn run(plan: &Plan) -> Result<Outcome, Failure> {
    plan.check()?;
    let mut servers: Vec<Server> = Vec::new();
    for (index, target) in plan.targets.iter().enumerate() {
        let made = Server::new(plan, target, index).context(&target.name);
        match made {
            Ok(server) => servers.push(server),
            Err(failure) => {
                return end(servers, Err(failure));
            }
        }
    }
    let measured = measure(plan, &mut servers);
    end(servers, measured)
}

/// Checks and removes the test files. The failure of the measurement counts first.
fn end(servers: Vec<Server>, measured: Result<Outcome, Failure>) -> Result<Outcome, Failure> {
    let mut outcome = measured;
    for Server {
        target, fixture, ..
    } in servers
    {
        let checked = match &outcome {
            Ok(_) => fixture.check().context(&target.name),
            Err(_) => Ok(()),
        };
        let removed = fixture.remove().context(&target.name);
        outcome = outcome.and_then(|outcome| checked.and(removed).map(|()| outcome));
    }
    outcome
}

fn measure(plan: &Plan, servers: &mut [Server]) -> Result<Outcome, Failure> {
    // Of each operation, of each server, the rounds and the number of all calls.
    let mut rounds: Vec<Vec<(Vec<Round>, u64)>> = Vec::new();
    for _ in &plan.ops {
        rounds.push(servers.iter().map(|_| (Vec::new(), 0)).collect());
    }
    for number in 0..=plan.rounds {
        for (&op, rounds) in plan.ops.iter().zip(&mut rounds) {
            let mut turns: Vec<_> = servers.iter().zip(rounds).collect();
            // The order changes, so that what gets slower or faster in a round is no server's.
            if number % 2 == 1 {
                turns.reverse();
            }
            for (server, (rounds, made)) in turns {
                let warming_up = number == 0;
                let time = if warming_up {
                    plan.time / WARM_UP
                } else {
                    plan.time
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
    for (&op, rounds) in plan.ops.iter().zip(&rounds) {
        for (server, (own, made)) in servers.iter().zip(rounds) {
            let first = rounds.first().map_or(own, |(first, _)| first);
            rows.push(figures::row(&server.target.name, op, *made, own, first));
        }
    }
    Ok(Outcome { rows })
}

/// A server with its test file, and the threads that call it.
struct Server {
    target: Target,
    fixture: Fixture,
    workers: Vec<Worker>,
}

impl Server {
    fn new(plan: &Plan, target: &Target, index: usize) -> Result<Self, Failure> {
        let fixture = Fixture::create(target.mount()?, index)?;
        let mut server = Self {
            target: target.clone(),
            fixture,
            workers: Vec::new(),
        };
        match server.connect(plan) {
            Ok(()) => Ok(server),
            Err(failure) => {
                // The failure that counts is the first one.
                drop(server.fixture.remove());
                Err(failure)
            }
        }
    }

    fn connect(&mut self, plan: &Plan) -> Result<(), Failure> {
        // Random, because a server may remember the XIDs of an earlier run.
        let first = RandomState::new().build_hasher().finish() as u32;
        let apart = u32::MAX / u32::try_from(plan.connections).context("--connections")?;
        let mut xids = (0..plan.connections as u32)
            .map(|connection| first.wrapping_add(apart.wrapping_mul(connection)));
        for thread in 0..plan.threads {
            let more = usize::from(thread < plan.connections % plan.threads);
            let job = Job {
                target: self.target.clone(),
                server: self.fixture.server(),
                file: self.fixture.file,
                data: self.fixture.data.clone(),
                first_xids: xids
                    .by_ref()
                    .take(plan.connections / plan.threads + more)
                    .collect(),
                in_flight: plan.in_flight,
            };
            self.workers.push(Worker::start(job)?);
        }
        self.workers
            .iter()
            .try_for_each(|worker| worker.part().map(drop))
    }

    /// Measures one operation once.
    fn round(&self, op: Op, time: Duration) -> Result<Round, Failure> {
        let used = || self.target.pid.map(processor_time::of_process).transpose();
        let before = used().context("the server's process")?;
        let start = Instant::now();
        for worker in &self.workers {
            worker.order(op, start + time)?;
        }
        let (mut calls, mut latency) = (0, Latency::default());
        let mut client = ThreadTime::default();
        for worker in &self.workers {
            let part = worker.part()?;
            calls += part.calls;
            latency.add(&part.latency);
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
