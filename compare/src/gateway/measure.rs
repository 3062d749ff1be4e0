//! The measurement: TCP alone, each variant alone, and each between gateways, in turns; then over two links with
//! different delays.

use std::time::Duration;

use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::Failure;

use super::count;
use super::pair;
use super::row::{CostOfCall, GatewayRow};
use crate::benchmark_target::{BenchTarget, Budget};
use crate::interval::{Rounds, of_turns};
use crate::latency::Latency;
use crate::measurement::{ROUNDS, rotated, slices};
use crate::rows::Conditions;
use crate::schedule::Schedule;
use crate::served::TRIPS;
use crate::targets::{self, Setting};
use crate::trips;
use crate::usage::Usage;
use crate::variant::Variant;

const MIB: f64 = 1_048_576.0;
/// The value of `delayed_by`: the processes that delay the link between the gateways.
pub(super) const ENDS: &str = "both gateways";

/// The processes of one variant.
struct Both {
    variant: Variant,
    /// The variant from client to server.
    alone: BenchTarget,
    /// The variant between two gateways.
    pair: BenchTarget,
}

/// The results of one target so far.
#[derive(Default)]
struct Tally {
    latency: Latency,
    medians: Rounds,
    did: Usage,
    calls: u64,
    streamed: u64,
    stream_time: Duration,
}

impl Tally {
    fn cost(&self) -> CostOfCall {
        let each = |count: u64| count as f64 / self.calls.max(1) as f64;
        CostOfCall {
            cpu_us: each(self.did.cpu_ns) / 1e3,
            system_calls: each(self.did.system_calls),
            copied_bytes: each(self.did.copied_bytes),
        }
    }

    fn ops_per_s(&self) -> Option<f64> {
        (self.streamed > 0).then(|| self.streamed as f64 / self.stream_time.as_secs_f64())
    }
}

/// Adds the steps of [`rows`] to a schedule.
pub(super) fn plan(schedule: &mut Schedule<'_>, setting: &Setting<'_>) {
    let options = setting.options;
    let targets = 1 + 2 * options.via.len();
    for op in setting.ops {
        schedule.add_figures(format_args!("measuring {op}"), 2 * targets, options.time);
    }
}

/// Measures everything without delay. The rows are in the order of the operations, and of the variants of each.
///
/// # Errors
/// A process does not start, or an operation fails.
pub(super) fn rows(
    setting: &Setting<'_>,
    schedule: &mut Schedule<'_>,
) -> Result<Vec<GatewayRow>, Failure> {
    let options = setting.options;
    let budget = Budget {
        time: options.time,
        count: options.count,
    };
    let mut tcp = targets::bench(setting, Variant::Tcp)?;
    let started = options.via.iter().map(|&variant| {
        Ok(Both {
            variant,
            alone: targets::bench(setting, variant)?,
            pair: pair::start(setting, variant, false)?,
        })
    });
    let mut all = started.collect::<Result<Vec<_>, Failure>>()?;
    let mut rows = Vec::new();
    for op in setting.ops.iter().map(|op| &**op) {
        schedule.begin_next();
        rows.extend(measure(op, budget, &mut tcp, &mut all)?);
    }
    Ok(rows)
}

/// Measures one operation.
fn measure(
    op: &dyn Workload,
    budget: Budget,
    tcp: &mut BenchTarget,
    all: &mut [Both],
) -> Result<Vec<GatewayRow>, Failure> {
    let share = budget.share(ROUNDS);
    let (turns, slice) = slices(share);
    // TCP, and for each variant that alone, and the pair.
    let count = 1 + 2 * all.len();
    let mut tallies: Vec<Tally> = (0..count).map(|_| Tally::default()).collect();
    let mut ratios: Vec<Rounds> = all.iter().map(|_| Rounds::default()).collect();
    for round in 0..ROUNDS {
        let mut benches: Vec<&mut BenchTarget> = vec![&mut *tcp];
        for Both { alone, pair, .. } in all.iter_mut() {
            benches.extend([alone, pair]);
        }
        tallies.iter_mut().for_each(|tally| tally.medians.begin());
        ratios.iter_mut().for_each(Rounds::begin);
        let order: Vec<usize> = rotated(count, round).collect();
        for _ in 0..turns {
            let mut medians = vec![None; count];
            for &index in &order {
                let mut latency = Latency::new();
                let (did, calls) = benches[index].one_at_a_time(op, slice, &mut latency)?;
                let tally = &mut tallies[index];
                if let Some(p50) = latency.p50_us() {
                    medians[index] = Some((p50, calls));
                    tally.medians.push(p50, calls);
                }
                tally.latency.merge(&latency);
                tally.did = tally.did + did.total();
                tally.calls += calls;
            }
            for (index, ratios) in ratios.iter_mut().enumerate() {
                let (alone, pair) = (medians[1 + 2 * index], medians[2 + 2 * index]);
                if let (Some(tcp), Some(alone), Some(pair)) = (medians[0], alone, pair) {
                    let hops = 2.0 * tcp.0 + alone.0;
                    ratios.push(pair.0 / hops, pair.1.min(alone.1).min(tcp.1));
                }
            }
        }
        for &index in &order {
            let (ended, elapsed) = benches[index].stream(op, share.time)?;
            tallies[index].streamed += ended;
            tallies[index].stream_time += elapsed;
        }
    }
    let (of_tcp, of_variants) = tallies.split_at(1);
    let rows = all.iter().zip(ratios).zip(of_variants.chunks_exact(2));
    Ok(rows
        .map(|((both, ratios), tallies)| {
            row(op, both, &ratios, [&of_tcp[0], &tallies[0], &tallies[1]])
        })
        .collect())
}

/// Returns a row without what a longer link shows, of the tallies of TCP alone, the variant alone and the pair.
fn row(
    op: &dyn Workload,
    both: &Both,
    ratios: &Rounds,
    [tcp, alone, pair]: [&Tally; 3],
) -> GatewayRow {
    let counts = both.pair.counts_wire();
    let [of_tcp, of_alone, own] = [tcp, alone, pair].map(Tally::cost);
    let hops = |of: fn(CostOfCall) -> f64| 2.0 * of(of_tcp) + of(of_alone);
    let each = |count: u64| count as f64 / pair.calls.max(1) as f64;
    let p50_us = pair.latency.p50_us();
    let ops_per_s = pair.ops_per_s();
    let size = op.size().map(u64::from);
    let hops_ratio = ratios.value();
    GatewayRow {
        op: op.name(),
        size,
        transfer_mode: both.variant.name(),
        device: both.pair.device.clone().unwrap_or_default(),
        conditions: Conditions {
            delayed_by: None,
            ..both.alone.conditions.clone()
        },
        count: pair.calls,
        p50_us,
        p50_interval_us: pair.medians.interval(p50_us),
        p99_us: pair.latency.p99_us(),
        tcp_p50_us: tcp.latency.p50_us(),
        rdma_p50_us: alone.latency.p50_us(),
        hops_ratio,
        hops_ratio_interval: ratios.interval(hops_ratio),
        ops_per_s,
        tcp_ops_per_s: tcp.ops_per_s(),
        rdma_ops_per_s: alone.ops_per_s(),
        mib_per_s: ops_per_s
            .zip(size)
            .map(|(ops, size)| ops * size as f64 / MIB),
        cpu_us: own.cpu_us,
        hops_cpu_us: hops(|of| of.cpu_us),
        // What a library of verbs does is not known, and some of it is system calls.
        system_calls: counts.then_some(own.system_calls),
        hops_system_calls: counts.then(|| hops(|of| of.system_calls)),
        copied_bytes: own.copied_bytes,
        hops_copied_bytes: hops(|of| of.copied_bytes),
        sends: each(pair.did.sends),
        rdma_reads: each(pair.did.rdma_reads),
        rdma_writes: each(pair.did.rdma_writes),
        registrations: each(pair.did.registrations),
        ..GatewayRow::default()
    }
}

/// Returns the least time that [`over_delay`] takes.
pub(super) fn time_over_delay(setting: &Setting<'_>, delay: Duration) -> Duration {
    let of_one = trips::time(None, delay, setting.options.count);
    let measured = 1 + setting.options.via.len();
    of_one * u32::try_from(measured * setting.ops.len()).unwrap_or(u32::MAX)
}

/// Measures the operations with a delay between the gateways and with a longer one, beside TCP from client to server over
/// the same delays, and adds what that shows to `rows`.
///
/// # Errors
/// A process does not start, an operation fails, or round trips cannot be counted.
pub(super) fn over_delay(
    setting: &Setting<'_>,
    delay: Duration,
    rows: &mut [GatewayRow],
) -> Result<(), Failure> {
    let via = &setting.options.via;
    let delays = trips::delays(None, delay);
    let longer = delays[1].saturating_sub(delays[0]);
    let mut links = Vec::new();
    for (link, delay) in delays.into_iter().enumerate() {
        let setting = Setting { delay, ..*setting };
        let mut benches = vec![targets::bench(&setting, Variant::Tcp)?];
        for &variant in via {
            // The calls over the shorter link are counted.
            benches.push(pair::start(&setting, variant, link == 0)?);
        }
        links.push(benches);
    }
    let (fewest, most) = trips::turns(setting.options.count, trips::TURN);
    let mut made = vec![Vec::new(); via.len()];
    let mut single = Vec::new();
    for (position, op) in setting.ops.iter().enumerate() {
        let measured = measure_over(&**op, &mut links, (fewest, most), longer)?;
        let Over {
            latencies,
            medians,
            calls,
            operations,
        } = measured;
        for (made, calls) in made.iter_mut().zip(&calls[1..]) {
            made.push(*calls);
        }
        single.push(calls[1..].iter().all(|calls| *calls == operations));
        let tcp_round_trips = trips::found(&latencies[0], longer).0;
        for index in 0..via.len() {
            let row = &mut rows[position * via.len() + index];
            let own = &latencies[1 + index];
            (row.round_trips, row.round_trips_error) = trips::found(own, longer);
            row.tcp_round_trips = tcp_round_trips;
            row.conditions.rate_bits_per_s = setting.options.rate;
            row.conditions.delayed_by = Some(ENDS.to_owned());
            row.delay_us = Some(delay.as_secs_f64() * 1e6);
            row.delayed_p50_us = own[0].p50_us();
            row.delayed_tcp_p50_us = latencies[0][0].p50_us();
            let ratios = medians[1 + index].iter().zip(&medians[0]);
            let ratios = ratios.map(|(own, tcp)| own / tcp).collect();
            (row.delayed_tcp_ratio, row.delayed_tcp_ratio_interval) = of_turns(ratios);
        }
    }
    let pairs = links[0].iter_mut().skip(1).zip(made);
    for (index, (pair, made)) in pairs.enumerate() {
        let found: Option<Vec<Option<u32>>> = pair.ask_gateway(TRIPS)?;
        let trips = count::means(&found.unwrap_or_default(), &made)?;
        for (position, trips) in trips.into_iter().enumerate() {
            let row = &mut rows[position * via.len() + index];
            row.counted_round_trips = trips.filter(|_| single[position]);
        }
    }
    Ok(())
}

/// The calls of one operation over two links, by target.
struct Over {
    latencies: Vec<[Latency; 2]>,
    /// The medians of turns over the shorter link.
    medians: Vec<Vec<f64>>,
    /// The RPC calls over the shorter link.
    calls: Vec<u64>,
    /// The operations of each over that link.
    operations: u64,
}

fn measure_over(
    op: &dyn Workload,
    links: &mut [Vec<BenchTarget>],
    (fewest, most): (u32, u32),
    longer: Duration,
) -> Result<Over, Failure> {
    let count = links.first().map_or(0, Vec::len);
    let made = |benches: &[BenchTarget]| -> Vec<u64> {
        let reached = benches.iter().map(|bench| &bench.mounted().reached);
        reached
            .map(|reached| reached.client.stats().calls)
            .collect()
    };
    let before = links
        .first()
        .map(|benches| made(benches))
        .unwrap_or_default();
    let mut over = Over {
        latencies: (0..count)
            .map(|_| [Latency::new(), Latency::new()])
            .collect(),
        medians: vec![Vec::new(); count],
        calls: Vec::new(),
        operations: 0,
    };
    for turn in 0..most {
        let is_exact = |both| trips::is_exact(both, longer);
        if turn >= fewest && over.latencies.iter().all(is_exact) {
            break;
        }
        for (link, benches) in links.iter_mut().enumerate() {
            for (index, bench) in benches.iter_mut().enumerate() {
                let mut times = Latency::new();
                bench.timed(op, trips::TURN, &mut times)?;
                if link == 0 {
                    over.medians[index].push(times.p50_us().unwrap_or(f64::NAN));
                }
                over.latencies[index][link].merge(&times);
            }
        }
        // One call of a turn is not timed.
        over.operations += u64::from(trips::TURN) + 1;
    }
    let after = links
        .first()
        .map(|benches| made(benches))
        .unwrap_or_default();
    over.calls = after
        .into_iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    Ok(over)
}
