//! The rows of a measurement by the clock: over each variant a server process, with connections of
//! its own for each number in flight, so that what they count is of nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use rpcrdma_programs::workload::{Pace, Prepared, Until, Workload, drive};
use rpcrdma_setup::Failure;
use rpcrdma_setup::access::Mounted;

use super::{Point, describe, points, row};
use crate::benchmark_target::{BenchTarget, WARM_UP};
use crate::interval::Rounds;
use crate::latency::Latency;
use crate::measurement::{ROUNDS, baseline_of, rotated};
use crate::options::Options;
use crate::rows::Row;
use crate::schedule::Schedule;
use crate::targets::{self, Setting};
use crate::usage::{Both, Usage};

const MIB: f64 = 1_048_576.0;
/// The least number of operations of a turn, as a multiple of those in flight.
const FILLED: u64 = 4;

/// The clients of one server.
struct Clients {
    bench: BenchTarget,
    each: Vec<(Mounted, Prepared)>,
    /// Bytes that the receives of the server have taken at most so far, when it was last asked.
    receives_taken: Option<u64>,
}

/// The results of one variant so far.
#[derive(Default)]
struct Tally {
    latency: Latency,
    /// The medians of rounds, in microseconds, and those divided by the baseline's.
    medians: Rounds,
    ratios: Rounds,
    did: Both,
    operations: u64,
    elapsed: Duration,
}

/// Measures each operation at each pace, over all variants in turns.
///
/// # Errors
/// A server does not start, an operation fails, or operations arrive faster than they end.
pub(crate) fn rows(
    setting: &Setting<'_>,
    ops: &[Arc<dyn Workload>],
    show: &dyn Fn(&dyn std::fmt::Display),
) -> Result<(Vec<Row>, String), Failure> {
    let options = setting.options;
    let points = points(options);
    let mut schedule = Schedule::new(show);
    for op in ops {
        for &point in &points {
            let what = format_args!("measuring {op}, {}", describe(point));
            schedule.add_figures(what, options.via.len(), options.time);
        }
    }
    let (mut rows, mut device) = (Vec::new(), None);
    for op in ops {
        for &point in &points {
            schedule.begin_next();
            // Clients prepare what they need.
            let setting = Setting {
                ops: &[],
                ..*setting
            };
            let mut all = Vec::new();
            for bench in targets::start_targets(&setting)? {
                all.push(Clients::new(bench, point.clients, &**op)?);
            }
            let name = |clients: &Clients| clients.bench.mounted().reached.device_name();
            device = device.or_else(|| all.iter().find_map(name));
            rows.extend(measure(&setting, &**op, point, &mut all)?);
        }
    }
    Ok((rows, device.unwrap_or_default()))
}

/// Returns when a turn of a client ends. A number of operations that the user gave is exceeded if
/// it would not keep as many in flight as a row says.
fn until(options: &Options, Point { clients, pace }: Point) -> Until {
    let least = match pace {
        Pace::InFlight(1) | Pace::Arrivals(_) => 1,
        Pace::InFlight(calls) => FILLED * u64::from(calls),
    };
    match options.count {
        Some(count) => Until::Count(u64::from(count.div_ceil(ROUNDS * clients)).max(least)),
        None => Until::Elapsed(options.time / ROUNDS),
    }
}

/// Measures one operation by some clients at one pace. The rows are in the order of the variants.
fn measure(
    setting: &Setting<'_>,
    op: &dyn Workload,
    point: Point,
    all: &mut [Clients],
) -> Result<Vec<Row>, Failure> {
    let options = setting.options;
    let busy = setting.mode.is_busy();
    let until = until(options, point);
    let variants = all.iter().map(|clients| clients.bench.variant);
    let baseline = baseline_of(variants);
    let mut tallies: Vec<Tally> = all.iter().map(|_| Tally::default()).collect();
    for round in 0..ROUNDS {
        let mut medians = vec![None; all.len()];
        for index in rotated(all.len(), round) {
            let (clients, tally) = (&mut all[index], &mut tallies[index]);
            if busy {
                clients.bench.resume()?;
            }
            let (median, operations) = clients.turn(point.pace, until, round, tally)?;
            if busy {
                clients.bench.pause()?;
            }
            medians[index] = median.zip(Some(operations));
        }
        let against = all.iter().position(|of| Some(of.bench.variant) == baseline);
        let against = against.and_then(|index| medians[index]);
        for (tally, median) in tallies.iter_mut().zip(medians) {
            tally.medians.begin();
            tally.ratios.begin();
            let Some((p50, operations)) = median else {
                continue;
            };
            tally.medians.push(p50, operations);
            if let Some((other, others)) = against {
                tally.ratios.push(p50 / other, operations.min(others));
            }
        }
    }
    let rows = all.iter().zip(tallies).map(|(clients, tally)| {
        let row = row(op, point);
        let counted = clients.bench.counted(tally.did, tally.operations);
        let ops_per_s =
            (tally.operations > 0).then(|| tally.operations as f64 / tally.elapsed.as_secs_f64());
        let size = row.size.map(|size| size as f64);
        let p50_us = tally.latency.p50_us();
        let baseline_ratio = tally.ratios.value();
        Row {
            op: row.op,
            size: row.size,
            clients: row.clients,
            in_flight: row.in_flight,
            arrivals_per_s: row.arrivals_per_s,
            mode: setting.mode,
            delay_us: options.delay.as_secs_f64() * 1e6,
            p50_us,
            p50_interval_us: tally.medians.interval(p50_us),
            p99_us: tally.latency.p99_us(),
            p999_us: tally.latency.p999_us(),
            histogram: tally.latency.encoded(),
            baseline: baseline.map(|variant| variant.name()),
            baseline_ratio,
            baseline_ratio_interval: tally.ratios.interval(baseline_ratio),
            baseline_ratio_error: tally.ratios.error(),
            ops_per_s,
            mib_per_s: ops_per_s.zip(size).map(|(ops, size)| ops * size / MIB),
            credits: clients.credits(),
            // Those of the connection on which the calls were prepared would be among them.
            receive_memory_requester: None,
            receive_memory_responder: None,
            receives_taken_responder: clients.receives_taken.filter(|_| counted.device.is_some()),
            ..counted
        }
    });
    Ok(rows.collect())
}

impl Clients {
    /// Connects the clients of a benchmark target. What a client needs for its calls is prepared
    /// over the target's own connection.
    fn new(bench: BenchTarget, count: u32, op: &dyn Workload) -> Result<Self, Failure> {
        let each = (0..count).map(|number| {
            let mounted = bench.further_client()?;
            Ok((mounted, bench.prepare(op, number)?))
        });
        Ok(Self {
            each: each.collect::<Result<_, Failure>>()?,
            bench,
            receives_taken: None,
        })
    }

    /// Has its turn at being measured, after operations that do not count. Returns the median
    /// latency in microseconds, and the number of operations.
    fn turn(
        &mut self,
        pace: Pace,
        until: Until,
        round: u32,
        tally: &mut Tally,
    ) -> Result<(Option<f64>, u64), Failure> {
        let warm_up = match pace {
            Pace::InFlight(calls) => calls.max(WARM_UP),
            Pace::Arrivals(_) => WARM_UP,
        };
        let at_once = match pace {
            Pace::InFlight(calls) => calls,
            Pace::Arrivals(_) => 1,
        };
        let mut ignored = Latency::new();
        let warm_up = Until::Count(u64::from(warm_up));
        self.perform(Pace::InFlight(at_once), warm_up, round, &mut ignored)?;
        let before = self.usage()?;
        let start = Instant::now();
        let mut latency = Latency::new();
        let operations = self.perform(pace, until, round, &mut latency)?;
        tally.elapsed += start.elapsed();
        tally.did = tally.did + (self.usage()? - before);
        tally.operations += operations;
        tally.latency.merge(&latency);
        Ok((latency.p50_us(), operations))
    }

    /// Performs operations by all clients. Returns their number.
    fn perform(
        &self,
        pace: Pace,
        until: Until,
        round: u32,
        latency: &mut Latency,
    ) -> Result<u64, Failure> {
        let start = Instant::now();
        let now = &|| start.elapsed();
        let clients = self
            .each
            .iter()
            .zip(0..)
            .map(|((mounted, prepared), number)| async move {
                let mut latency = Latency::new();
                let record = |time| latency.record(time);
                let rpc = &mounted.reached.client;
                // Arrivals of each round are at times of their own.
                let seed = u64::from(round) << 32 | number;
                let made = drive(rpc, prepared, (pace, until), seed, now, record).await;
                made.map(|operations| (operations, latency))
            });
        let runtime = &self.bench.mounted().reached.runtime;
        let parts = runtime.block_on(try_join_all(clients));
        let mut operations = 0;
        for (made, times) in parts.map_err(Failure::work)? {
            operations += made;
            latency.merge(&times);
        }
        Ok(operations)
    }

    /// Returns the usage counters of the clients and of the server.
    fn usage(&mut self) -> Result<Both, Failure> {
        let Both { client, server } = self.bench.usage()?;
        self.receives_taken = Some(server.receives_taken);
        let each = self.each.iter().map(|(mounted, _)| {
            let reached = &mounted.reached;
            Usage {
                // Those of the process, and of the loop of all clients, are in the other figure.
                cpu_ns: 0,
                ..Usage::now(&reached.counters(), reached.grants_sent(), 0)
            }
        });
        let client = each.fold(client, |sum, own| sum + own);
        Ok(Both { client, server })
    }

    /// Returns the greatest number of credits that a connection took at the same time.
    fn credits(&self) -> Option<u32> {
        let each = self.each.iter();
        each.filter_map(|(mounted, _)| mounted.reached.most_credits())
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_more_operations_than_are_in_flight() {
        let options = Options {
            count: Some(9),
            ..Options::default()
        };
        for (pace, count) in [
            (Pace::InFlight(1), 1),
            (Pace::InFlight(64), 256),
            (Pace::Arrivals(100.0), 1),
        ] {
            let point = Point { clients: 1, pace };
            assert_eq!(until(&options, point), Until::Count(count));
        }
        let more = Options {
            count: Some(9000),
            ..options
        };
        let point = Point {
            clients: 2,
            pace: Pace::InFlight(64),
        };
        assert_eq!(until(&more, point), Until::Count(500));
    }
}
