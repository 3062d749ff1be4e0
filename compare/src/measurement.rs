//! Measures one operation over all variants. In each round, the TCP baseline and the variants take
//! turns, for latency in slices of a few milliseconds. Other work on the machine then affects all
//! of them, and ratios are computed within a turn.

use std::time::Duration;

use rpcrdma_programs::workload::{Direction, Workload};
use rpcrdma_setup::{Context, Failure};

use crate::benchmark_target::{BenchTarget, Budget, WARM_UP};
use crate::interval::{Interval, Rounds};
use crate::latency::{Latency, median, spread};
use crate::rows::{Mode, Row};
use crate::tcp_baseline::{Kind, TcpBaseline};
use crate::usage::Both;
use crate::variant::Variant;

/// The number of rounds per operation: many short ones, so that a disturbance affects baseline and
/// variants alike. The number is odd, so the median is a measured value.
pub(crate) const ROUNDS: u32 = 9;
/// The number of turns for latency in each round, if the time allows. The shorter a turn, the more
/// alike are the conditions for all: ratios of long turns vary with other work on the machine.
const SLICES: u32 = 6;
/// The number of additional rounds, for latency alone, to distinguish variants on a busy machine.
const MORE_ROUNDS: u32 = 2 * ROUNDS;
/// The standard error of a ratio to the baseline that is small enough to stop.
const EXACT: f64 = 0.04;
/// The minimum length of a slice. It begins with calls that are not timed.
const SLICE: Duration = Duration::from_millis(3);
/// The minimum and maximum number of baseline exchanges in a round.
const BASELINE_COUNT: (u32, u32) = (4, 100_000);
/// The bytes of a raw stream that determine its speed.
const STREAM_PROBE: u32 = 8 << 20;
const MIB: f64 = 1_048_576.0;

/// The operation and conditions of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement<'a> {
    /// The operation.
    pub(crate) op: &'a dyn Workload,
    /// Whether both sides sleep or spin.
    pub(crate) mode: Mode,
    /// The link's delay.
    pub(crate) delay: Duration,
    /// Whether a delay or rate was added to the link. No ratio to the baseline is computed then.
    pub(crate) slowed: bool,
    /// Whether ratios to the baseline must be exact, which takes longer on a busy machine.
    pub(crate) exact: bool,
}

/// The results of one variant so far.
struct Tally {
    latency: Latency,
    /// The medians of turns, in microseconds.
    medians: Rounds,
    /// The medians of turns divided by the TCP baseline's.
    floor_ratios: Rounds,
    /// The medians of turns divided by those of the transfer mode that all are compared with.
    baseline_ratios: Rounds,
    /// The medians of turns divided by those of version 1 without remote invalidation.
    v1_ratios: Rounds,
    /// The medians of turns divided by those of version 1 with receives as long as those for placement.
    long_ratios: Rounds,
    did: Both,
    calls: u64,
    streamed: u64,
    stream_time: Duration,
    stream_ratios: Vec<f64>,
}

impl Tally {
    fn new() -> Self {
        Self {
            latency: Latency::new(),
            medians: Rounds::default(),
            floor_ratios: Rounds::default(),
            baseline_ratios: Rounds::default(),
            v1_ratios: Rounds::default(),
            long_ratios: Rounds::default(),
            did: Both::default(),
            calls: 0,
            streamed: 0,
            stream_time: Duration::ZERO,
            stream_ratios: Vec::new(),
        }
    }

    /// Begins the next round.
    fn begin_round(&mut self) {
        for rounds in [
            &mut self.medians,
            &mut self.floor_ratios,
            &mut self.baseline_ratios,
            &mut self.v1_ratios,
            &mut self.long_ratios,
        ] {
            rounds.begin();
        }
    }

    /// Returns whether the ratio to the baseline, if there is one, is exact enough.
    fn is_exact(&self) -> bool {
        let error = self.baseline_ratios.error();
        error.is_none_or(|error| error < EXACT)
    }

    fn ops_per_s(&self) -> Option<f64> {
        (self.streamed > 0).then(|| self.streamed as f64 / self.stream_time.as_secs_f64())
    }
}

/// The baseline's results, and the length of its next turns.
struct BaselineTally {
    latency: Latency,
    count: u32,
    /// The median of each turn, microseconds.
    rounds: Vec<f64>,
    stream_count: u32,
    stream_bytes: u64,
    stream_time: Duration,
    /// The stream rate of each round, bytes per second.
    stream_rounds: Vec<f64>,
}

/// Divides a round's share of the budget into slices. Returns their number and the budget of each.
/// Slices do not increase a fixed number of calls.
pub(crate) fn slices(share: Budget) -> (u32, Budget) {
    let most = (share.time.as_nanos() / SLICE.as_nanos())
        .try_into()
        .unwrap_or(SLICES);
    let slices = match share.count {
        Some(_) => 1,
        None => SLICES.min(most).max(1),
    };
    (slices, share.share(slices))
}

/// Returns the count that takes about `time`, given that `count` took `took`.
fn repetitions(count: u32, took: Duration, time: Duration) -> u32 {
    let scaled = f64::from(count) * time.as_secs_f64() / took.as_secs_f64().max(1e-9);
    (scaled as u32).clamp(BASELINE_COUNT.0, BASELINE_COUNT.1)
}

/// Returns the order in which `count` targets have their turns in a round. It rotates, so that none
/// is always first or last.
pub(crate) fn rotated(count: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..count).map(move |n| (n + round as usize) % count)
}

/// Returns the direction and size of an operation's data, if it is a stream in one direction.
fn stream_kind(op: &dyn Workload) -> Option<(Kind, u32)> {
    let kind = match op.direction()? {
        Direction::FromServer => Kind::FromServer,
        Direction::ToServer => Kind::ToServer,
    };
    Some((kind, op.size()?))
}

/// Measures one operation over each of the targets; the rows are in their order.
///
/// # Errors
/// An operation failed, or a process has ended.
pub(crate) fn measure(
    measurement: Measurement<'_>,
    baseline: &mut TcpBaseline,
    benches: &mut [BenchTarget],
    budget: Budget,
) -> Result<Vec<Row>, Failure> {
    let (op, busy) = (measurement.op, measurement.mode.is_busy());
    let share = budget.share(ROUNDS);
    let mut tallies: Vec<Tally> = benches.iter().map(|_| Tally::new()).collect();
    let mut baselines = BaselineTally {
        latency: Latency::new(),
        count: WARM_UP,
        rounds: Vec::new(),
        stream_count: 0,
        stream_bytes: 0,
        stream_time: Duration::ZERO,
        stream_rounds: Vec::new(),
    };
    // The RPC messages are the same for all targets, so any will do.
    let Some(first) = benches.first_mut() else {
        return Ok(Vec::new());
    };
    first.resume()?;
    let sizes = first.message_sizes(op)?;
    if busy {
        first.pause()?;
    }
    let more = match measurement.exact && budget.count.is_none() {
        true => MORE_ROUNDS,
        false => 0,
    };
    for round in 0..ROUNDS + more {
        let further = round >= ROUNDS;
        if further && tallies.iter().all(Tally::is_exact) {
            break;
        }
        let order: Vec<usize> = rotated(benches.len(), round).collect();
        tallies.iter_mut().for_each(Tally::begin_round);
        let (turns, slice) = slices(share);
        for _ in 0..turns {
            turn(
                measurement,
                (&mut *baseline, &mut baselines, sizes),
                (&mut *benches, &mut tallies),
                &order,
                slice,
            )?;
        }
        if further {
            continue;
        }
        let raw_rate = match stream_kind(op) {
            Some(kind) => Some(stream_round(
                baseline,
                &mut baselines,
                kind,
                busy,
                share.time,
            )?),
            None => None,
        };
        for &index in &order {
            let (bench, tally) = (&mut benches[index], &mut tallies[index]);
            if busy {
                bench.resume()?;
            }
            let (ended, elapsed) = bench.stream(op, share.time)?;
            if busy {
                bench.pause()?;
            }
            tally.streamed += ended;
            tally.stream_time += elapsed;
            if let (Some(raw_rate), Some(size)) = (raw_rate, op.size()) {
                let rate = ended as f64 * f64::from(size) / elapsed.as_secs_f64();
                tally.stream_ratios.push(rate / raw_rate);
            }
        }
    }
    let baseline = baseline_of(variants(benches));
    let rows = benches.iter().zip(tallies);
    Ok(rows
        .map(|(bench, tally)| row(measurement, bench, tally, baseline, &baselines))
        .collect())
}

/// Returns the transfer mode that all are compared with, if it is among the targets.
pub(crate) fn baseline_of(variants: impl Iterator<Item = Variant>) -> Option<Variant> {
    Variant::baseline(&variants.collect::<Vec<_>>())
}

/// Returns the variants of some targets.
pub(crate) fn variants(benches: &[BenchTarget]) -> impl Iterator<Item = Variant> {
    benches.iter().map(|bench| bench.variant)
}

/// Runs one turn of the baseline and of each variant, in that order.
fn turn(
    measurement: Measurement<'_>,
    (baseline, baselines, sizes): (&mut TcpBaseline, &mut BaselineTally, (u32, u32)),
    (benches, tallies): (&mut [BenchTarget], &mut [Tally]),
    order: &[usize],
    slice: Budget,
) -> Result<(), Failure> {
    let busy = measurement.mode.is_busy();
    let floor_us = baseline_round(baseline, baselines, sizes, busy, slice)?;
    let mut medians = vec![None; benches.len()];
    for &index in order {
        let (bench, tally) = (&mut benches[index], &mut tallies[index]);
        if busy {
            bench.resume()?;
        }
        let mut latency = Latency::new();
        let (did, calls) = bench.one_at_a_time(measurement.op, slice, &mut latency)?;
        if busy {
            bench.pause()?;
        }
        medians[index] = latency.p50_us().map(|p50| (p50, calls));
        tally.latency.merge(&latency);
        tally.did = tally.did + did;
        tally.calls += calls;
    }
    let of = |wanted: Variant| {
        let at = benches.iter().position(|bench| bench.variant == wanted)?;
        medians[at]
    };
    let against = baseline_of(variants(benches)).and_then(of);
    let [v1, long] = [Variant::V1, Variant::V1Long].map(of);
    for (tally, &median) in tallies.iter_mut().zip(&medians) {
        let Some((p50, calls)) = median else {
            continue;
        };
        tally.medians.push(p50, calls);
        tally.floor_ratios.push(p50 / floor_us, calls);
        for (ratios, against) in [
            (&mut tally.baseline_ratios, against),
            (&mut tally.v1_ratios, v1),
            (&mut tally.long_ratios, long),
        ] {
            if let Some((other, other_calls)) = against {
                ratios.push(p50 / other, calls.min(other_calls));
            }
        }
    }
    Ok(())
}

/// Runs one turn of the ping-pong. Returns its median, microseconds.
fn baseline_round(
    baseline: &mut TcpBaseline,
    baselines: &mut BaselineTally,
    sizes: (u32, u32),
    busy: bool,
    share: Budget,
) -> Result<f64, Failure> {
    let what = "the raw TCP ping-pong";
    let mut warm_up = Latency::new();
    baseline
        .ping_pong(sizes, busy, WARM_UP, &mut warm_up)
        .context(what)?;
    let took = Duration::from_secs_f64(warm_up.mean_us() / 1e6);
    baselines.count = match share.count {
        Some(count) => count,
        None => repetitions(1, took, share.time),
    };
    let mut latency = Latency::new();
    baseline
        .ping_pong(sizes, busy, baselines.count, &mut latency)
        .context(what)?;
    baselines.latency.merge(&latency);
    let p50 = latency.p50_us().filter(|&p50| p50 > 0.0);
    let p50 = p50.ok_or_else(|| Failure::Work(format!("{what} measured nothing")))?;
    baselines.rounds.push(p50);
    Ok(p50)
}

/// Runs one round of the stream. Returns bytes per second.
fn stream_round(
    baseline: &mut TcpBaseline,
    baselines: &mut BaselineTally,
    (kind, size): (Kind, u32),
    busy: bool,
    time: Duration,
) -> Result<f64, Failure> {
    let what = "the raw TCP stream";
    if baselines.stream_count == 0 {
        let count = (STREAM_PROBE / size.max(1)).clamp(BASELINE_COUNT.0, BASELINE_COUNT.1);
        let took = baseline.stream(kind, size, busy, count).context(what)?;
        baselines.stream_count = repetitions(count, took, time);
    }
    let took = baseline
        .stream(kind, size, busy, baselines.stream_count)
        .context(what)?;
    let bytes = u64::from(baselines.stream_count) * u64::from(size);
    baselines.stream_bytes += bytes;
    baselines.stream_time += took;
    baselines.stream_count = repetitions(baselines.stream_count, took, time);
    let rate = bytes as f64 / took.as_secs_f64();
    baselines.stream_rounds.push(rate);
    Ok(rate)
}

fn row(
    measurement: Measurement<'_>,
    bench: &BenchTarget,
    tally: Tally,
    baseline: Option<Variant>,
    baselines: &BaselineTally,
) -> Row {
    let size = measurement.op.size().map(f64::from);
    let raw_rate = baselines.stream_bytes as f64 / baselines.stream_time.as_secs_f64() / MIB;
    let ops_per_s = tally.ops_per_s();
    let baseline_ratio = tally.baseline_ratios.value();
    let v1_long_ratio = tally.long_ratios.value();
    let (rounds, turns) = match baseline {
        Some(_) => tally.baseline_ratios.counts(),
        None => tally.medians.counts(),
    };
    let floor_ratio = tally.floor_ratios.value().filter(|_| !measurement.slowed);
    let stream_ratio = median(tally.stream_ratios.clone()).filter(|_| !measurement.slowed);
    Row {
        op: measurement.op.name(),
        size: measurement.op.size().map(u64::from),
        mode: measurement.mode,
        delay_us: measurement.delay.as_secs_f64() * 1e6,
        p50_us: tally.latency.p50_us(),
        p50_interval_us: tally.medians.interval(tally.latency.p50_us()),
        p99_us: tally.latency.p99_us(),
        p999_us: tally.latency.p999_us(),
        histogram: tally.latency.encoded(),
        baseline: baseline.map(Variant::name),
        baseline_ratio,
        baseline_ratio_interval: tally.baseline_ratios.interval(baseline_ratio),
        rounds: Some(rounds),
        turns: Some(turns),
        baseline_ratio_error: tally.baseline_ratios.error(),
        v1_ratio: tally.v1_ratios.value(),
        v1_ratio_error: tally.v1_ratios.error(),
        v1_long_ratio,
        v1_long_ratio_interval: tally.long_ratios.interval(v1_long_ratio),
        mib_per_s: ops_per_s.zip(size).map(|(ops, size)| ops * size / MIB),
        ops_per_s,
        floor_p50_us: baselines.latency.p50_us(),
        floor_spread: spread(baselines.rounds.clone()),
        floor_ratio,
        floor_ratio_interval: floor_ratio.and(tally.floor_ratios.interval(floor_ratio)),
        raw_stream_mib_per_s: (baselines.stream_bytes > 0).then_some(raw_rate),
        raw_stream_spread: spread(baselines.stream_rounds.clone()),
        stream_ratio,
        stream_ratio_interval: stream_ratio.and(Interval::of_median(tally.stream_ratios)),
        ..bench.counted(tally.did, tally.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_first_once() {
        let orders = [0, 1, 2, 3].map(|round| rotated(3, round).collect::<Vec<_>>());
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
        assert_eq!(rotated(0, 1).count(), 0);
    }

    #[test]
    fn short_turns_are_cut_from_a_round_unless_calls_are_counted() {
        let share = |millis, count| Budget {
            time: Duration::from_millis(millis),
            count,
        };
        let cut = |millis, count| {
            let (slices, slice) = slices(share(millis, count));
            (slices, slice.time.as_millis(), slice.count)
        };
        assert_eq!(cut(22, None), (6, 3, None));
        assert_eq!(cut(9, None), (3, 3, None));
        assert_eq!(cut(1, None), (1, 1, None));
        assert_eq!(cut(0, None), (1, 0, None));
        assert_eq!(cut(22, Some(4)), (1, 22, Some(4)));
    }

    #[test]
    fn repetitions_follow_the_time_and_stay_in_bounds() {
        let ms = Duration::from_millis;
        assert_eq!(repetitions(10, ms(1), ms(50)), 500);
        assert_eq!(
            repetitions(1, Duration::from_secs(9), ms(1)),
            BASELINE_COUNT.0
        );
        assert_eq!(repetitions(1, Duration::ZERO, ms(100)), BASELINE_COUNT.1);
    }
}
