//! A benchmark target: one transport or variant with its server process and a client in this
//! process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use nfs_binding::client::NfsUrl;
use rpcrdma_programs::workload::{Prepared, Server, Workload};
use rpcrdma_setup::access::{Access, Mounted};
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::{Context, Failure};
use serde::de::DeserializeOwned;

use crate::child::ChildProcess;
use crate::latency::Latency;
use crate::options::Options;
use crate::prepared::Target;
use crate::rows::{Conditions, Row};
use crate::served::USAGE;
use crate::usage::{Both, Usage};
use crate::variant::Variant;

/// The number of calls in flight while throughput is measured.
const IN_FLIGHT: usize = 8;
/// The number of calls between two checks of the clock while throughput is measured.
const LOOK_EVERY: u64 = 8;
/// The number of untimed calls at the start of a round, which replace the other variants' data in
/// the caches.
pub(crate) const WARM_UP: u32 = 8;

/// The length of a repeated measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// The approximate time.
    pub(crate) time: Duration,
    /// The number of repetitions, if given. Each share of it is rounded up.
    pub(crate) count: Option<u32>,
}

impl Budget {
    /// Returns the share of each of `rounds`, with at least one repetition.
    pub(crate) fn share(self, rounds: u32) -> Self {
        Self {
            time: self.time / rounds,
            count: self.count.map(|count| count.div_ceil(rounds)),
        }
    }
}

/// A benchmark target.
pub(crate) struct BenchTarget {
    /// The transport or variant.
    pub(crate) variant: Variant,
    /// The device, if there is one.
    pub(crate) device: Option<String>,
    /// The conditions of the measurement.
    pub(crate) conditions: Conditions,
    /// Whether there are messages that only grant credits.
    has_grants: bool,
    verbs: bool,
    mounted: Mounted,
    /// The access to the server, and its address.
    way: (Access, NfsUrl),
    target: Target,
    /// The gateways between client and server, if there are any.
    gateways: Vec<ChildProcess>,
    server: ChildProcess,
}

impl BenchTarget {
    /// Creates a target from a server process and its mounted export, and creates the objects that
    /// `ops` need there.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) fn new(
        variant: Variant,
        options: &Options,
        server: ChildProcess,
        (mounted, way): (Mounted, (Access, NfsUrl)),
        conditions: Conditions,
        ops: &[Arc<dyn Workload>],
    ) -> Result<Self, Failure> {
        let target = Target::create(&mounted, ops, 0);
        let target = mounted.reached.runtime.block_on(target)?;
        let rdma = variant.version().is_some();
        Ok(Self {
            variant,
            has_grants: variant.has_grants(&options.tuning),
            verbs: rdma && matches!(options.device, DeviceName::Verbs(_)),
            device: rdma.then(|| options.device.to_string()),
            conditions,
            mounted,
            way,
            target,
            gateways: Vec::new(),
            server,
        })
    }

    /// Returns this target with the gateways that its client and its server are connected by. What they use counts as
    /// the server's.
    pub(crate) fn behind(mut self, gateways: Vec<ChildProcess>) -> Self {
        self.gateways = gateways;
        self
    }

    /// Returns a row with the costs per operation of this many operations, and no times.
    pub(crate) fn counted(&self, did: Both, operations: u64) -> Row {
        let each = |count: u64| (operations > 0).then(|| count as f64 / operations as f64);
        let device = |count: u64| each(count).filter(|_| self.device.is_some());
        // What a library of verbs does is not known, and some of it is system calls.
        let calls = |count: u64| each(count).filter(|_| !self.verbs);
        let receives = |usage: Usage| self.device.as_ref().map(|_| usage.receive_memory);
        let total = did.total();
        Row {
            conveyance: self.variant.name(),
            device: self.device.clone(),
            conditions: self.conditions.clone(),
            count: operations,
            cpu_us: each(total.cpu_ns).map(|nanos| nanos / 1e3),
            sends: device(total.sends),
            rdma_reads: device(total.rdma_reads),
            rdma_writes: device(total.rdma_writes),
            registrations: device(total.registrations),
            invalidations: device(total.invalidations),
            interrupts_requester: each(did.client.interrupts),
            interrupts_responder: each(did.server.interrupts),
            grants: device(total.grants).filter(|_| self.has_grants),
            receive_memory_requester: receives(did.client),
            receive_memory_responder: receives(did.server),
            system_calls_requester: calls(did.client.system_calls),
            system_calls_responder: calls(did.server.system_calls),
            copied_bytes: each(total.copied_bytes),
            wire_bytes: each(total.wire_bytes_sent).filter(|_| self.counts_wire()),
            ..Row::default()
        }
    }

    /// Returns whether bytes on the wire are counted. The hardware or kernel of a verbs device does
    /// not report the bytes of RDMA Read responses and of its own framing.
    pub(crate) fn counts_wire(&self) -> bool {
        !self.verbs
    }

    /// Stops the server while others are measured.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn pause(&self) -> Result<(), Failure> {
        self.server.pause()
    }

    /// Continues the server.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        self.server.resume()
    }

    /// Returns the usage counters of the client, and of the server with the gateways before it.
    ///
    /// # Errors
    /// A process has ended.
    pub(crate) fn usage(&mut self) -> Result<Both, Failure> {
        let mut server: Usage = self.server.ask(USAGE)?;
        for gateway in &mut self.gateways {
            server = server + gateway.ask(USAGE)?;
        }
        let reached = &self.mounted.reached;
        let client = Usage {
            receive_memory: reached.receive_memory(),
            ..Usage::now(
                &reached.counters(),
                reached.grants_sent(),
                reached.runtime.system_calls(),
            )
        };
        Ok(Both { client, server })
    }

    /// Asks the gateway that the client is connected to. Returns `None` if there is none.
    ///
    /// # Errors
    /// The gateway's process has ended.
    pub(crate) fn ask_gateway<T: DeserializeOwned>(
        &mut self,
        order: &str,
    ) -> Result<Option<T>, Failure> {
        let first = self.gateways.first_mut();
        first.map(|gateway| gateway.ask(order)).transpose()
    }

    /// Returns the bytes of the RPC call and reply of one `op`.
    ///
    /// # Errors
    /// The operation failed.
    pub(crate) fn message_sizes(&mut self, op: &dyn Workload) -> Result<(u32, u32), Failure> {
        let before = self.mounted.reached.client.stats();
        let op = self.target.ready(op)?;
        self.mounted.reached.runtime.block_on(op.perform())?;
        let after = self.mounted.reached.client.stats();
        let bytes = |after: u64, before: u64| u32::try_from(after - before);
        let call = bytes(after.bytes_sent, before.bytes_sent).context("call length")?;
        let reply = bytes(after.bytes_received, before.bytes_received).context("reply length")?;
        Ok((call, reply))
    }

    /// Repeats `op`, one call at a time, and records the time of each. Returns the usage of both
    /// processes meanwhile, and the number of calls.
    ///
    /// # Errors
    /// An operation failed.
    pub(crate) fn one_at_a_time(
        &mut self,
        op: &dyn Workload,
        budget: Budget,
        latency: &mut Latency,
    ) -> Result<(Both, u64), Failure> {
        let runtime = self.mounted.reached.runtime.clone();
        let ready = self.target.ready(op)?;
        for _ in 0..WARM_UP {
            runtime.block_on(ready.perform())?;
        }
        let before = self.usage()?;
        let ready = self.target.ready(op)?;
        let calls: u64 = runtime.block_on(async {
            let start = Instant::now();
            let mut last = start;
            let mut calls = 0;
            loop {
                ready.perform().await?;
                let now = Instant::now();
                latency.record(now - last);
                last = now;
                calls += 1;
                let enough = match budget.count {
                    Some(count) => calls >= u64::from(count),
                    None => now - start >= budget.time,
                };
                if enough {
                    return Ok::<_, Failure>(calls);
                }
            }
        })?;
        Ok((self.usage()? - before, calls))
    }

    /// Repeats `op`, one call at a time, after one that is not timed.
    ///
    /// # Errors
    /// An operation failed.
    pub(crate) fn timed(
        &mut self,
        op: &dyn Workload,
        count: u32,
        latency: &mut Latency,
    ) -> Result<(), Failure> {
        let ready = self.target.ready(op)?;
        self.mounted.reached.runtime.block_on(async {
            ready.perform().await?;
            for _ in 0..count {
                let start = Instant::now();
                ready.perform().await?;
                latency.record(start.elapsed());
            }
            Ok(())
        })
    }

    /// Repeats `op` with several calls in flight. Returns the number of calls and the time.
    ///
    /// # Errors
    /// An operation failed.
    pub(crate) fn stream(
        &mut self,
        op: &dyn Workload,
        time: Duration,
    ) -> Result<(u64, Duration), Failure> {
        let ready = self.target.ready(op)?;
        self.mounted.reached.runtime.block_on(async {
            let mut flying = FuturesUnordered::new();
            for _ in 0..IN_FLIGHT {
                flying.push(ready.perform());
            }
            let start = Instant::now();
            let mut ended = 0;
            while let Some(result) = flying.next().await {
                result?;
                ended += 1;
                if ended % LOOK_EVERY == 0 && start.elapsed() >= time {
                    break;
                }
                flying.push(ready.perform());
            }
            let elapsed = start.elapsed();
            // Calls that are still outstanding are not counted, but awaited, so that they do not
            // disturb the next round.
            while let Some(result) = flying.next().await {
                result?;
            }
            Ok((ended, elapsed))
        })
    }

    /// Connects one more client, with a device of its own, which the runtime of this target drives.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(crate) fn further_client(&self) -> Result<Mounted, Failure> {
        let (access, url) = &self.way;
        access.mount_with(&self.mounted.reached.runtime, url)
    }

    /// Prepares an operation for the client with this number.
    ///
    /// # Errors
    /// The server refuses a call.
    pub(crate) fn prepare(&self, op: &dyn Workload, number: u32) -> Result<Prepared, Failure> {
        let reached = &self.mounted.reached;
        let server = Server::new(&reached.client, Some(self.mounted.mount.root()), number);
        let prepared = reached.runtime.block_on(Prepared::new(op, server));
        prepared.map_err(Failure::work)
    }

    /// Returns the mounted export, for copying trees.
    pub(crate) fn mounted(&self) -> &Mounted {
        &self.mounted
    }
}
