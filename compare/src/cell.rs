//! Measuring one operation over every conveyance, in rounds in which floor and conveyances take
//! turns, for latency in slices of a few milliseconds each: other work on the machine then hits all of
//! them, and ratios are taken within such a turn.

use std::time::Duration;

use rpcrdma_setup::{Context, Failure};

use crate::conveyance::Conveyance;
use crate::floor::{Floor, Kind};
use crate::latency::{Latency, error_of_median, median, spread, weighted_median};
use crate::op::Op;
use crate::rig::{Budget, Rig, WARM_UP};
use crate::rows::{Mode, Row, Split};
use crate::usage::Both;

/// Rounds per operation: many short ones, so that a disturbance hits floor and conveyances alike.
/// An odd number: the median round is one that was.
const ROUNDS: u32 = 9;
/// Turns that floor and conveyances take for latency in each round, if the time allows. The shorter a
/// turn, the more alike is the machine to all that take one: ratios of long turns move with whatever
/// else runs.
const SLICES: u32 = 6;
/// Further rounds, of latency alone, for conveyances to be told apart on a machine that does other work.
const MORE_ROUNDS: u32 = 2 * ROUNDS;
/// Standard error of a ratio to version 1 with which it is exact enough for that.
const EXACT: f64 = 0.04;
/// What a turn lasts at least: it begins with calls that are not timed.
const SLICE: Duration = Duration::from_millis(3);
/// Fewest and most repetitions of the floor in a round.
const FLOOR_COUNT: (u32, u32) = (4, 100_000);
/// Bytes of a raw stream that find out how fast it is.
const STREAM_PROBE: u32 = 8 << 20;
const MIB: f64 = 1_048_576.0;

/// What is measured, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// The operation.
    pub(crate) op: Op,
    /// Sleeping or spinning.
    pub(crate) mode: Mode,
    /// The link's delay.
    pub(crate) delay: Duration,
    /// Whether a delay or a rate was added to the link. The floor has neither, so that no ratio to
    /// it is taken then.
    pub(crate) slowed: bool,
    /// Whether ratios to version 1 are to be exact: it takes longer where the machine is busy.
    pub(crate) exact: bool,
}

/// What one conveyance did so far.
struct Tally {
    latency: Latency,
    /// Each turn's median over the floor's, and its calls.
    ratios: Vec<(f64, u64)>,
    /// Each turn's median over version 1's, likewise.
    v1_ratios: Vec<(f64, u64)>,
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
            ratios: Vec::new(),
            v1_ratios: Vec::new(),
            did: Both::default(),
            calls: 0,
            streamed: 0,
            stream_time: Duration::ZERO,
            stream_ratios: Vec::new(),
        }
    }

    /// Whether its ratio to version 1 says how they compare, if there is any.
    fn is_exact(&self) -> bool {
        error_of_median(&self.v1_ratios).is_none_or(|error| error < EXACT)
    }

    fn ops_per_s(&self) -> Option<f64> {
        (self.streamed > 0).then(|| self.streamed as f64 / self.stream_time.as_secs_f64())
    }
}

/// The floor's share of a round, and how long its next one should be.
struct FloorTally {
    latency: Latency,
    count: u32,
    /// Each turn's median, microseconds.
    rounds: Vec<f64>,
    stream_count: u32,
    stream_bytes: u64,
    stream_time: Duration,
    /// Each round's bytes per second.
    stream_rounds: Vec<f64>,
}

/// How a round's share of the budget is cut into turns: how many, and each one's share. Whoever asks
/// for a number of calls gets no more of them for that.
fn slices(share: Budget) -> (u32, Budget) {
    let most = (share.time.as_nanos() / SLICE.as_nanos())
        .try_into()
        .unwrap_or(SLICES);
    let slices = match share.count {
        Some(_) => 1,
        None => SLICES.min(most).max(1),
    };
    (slices, share.share(slices))
}

/// A count that takes about `time` when `count` took `took`.
fn repetitions(count: u32, took: Duration, time: Duration) -> u32 {
    let scaled = f64::from(count) * time.as_secs_f64() / took.as_secs_f64().max(1e-9);
    (scaled as u32).clamp(FLOOR_COUNT.0, FLOOR_COUNT.1)
}

/// The way that an operation's data takes.
fn stream_kind(op: Op) -> Option<(Kind, u32)> {
    match op {
        Op::Null | Op::Getattr | Op::LongBoth(_) => None,
        Op::Read(size) | Op::Readdirplus(size) => Some((Kind::FromServer, size)),
        Op::Write(size) | Op::LongCall(size) => Some((Kind::ToServer, size)),
    }
}

/// Measures one cell over each of `rigs`; rows are in their order.
///
/// # Errors
/// An operation failed, or a process is gone.
pub(crate) fn measure(
    cell: Cell,
    floor: &mut Floor,
    rigs: &mut [Rig],
    budget: Budget,
) -> Result<Vec<Row>, Failure> {
    let (op, busy) = (cell.op, cell.mode.is_busy());
    let share = budget.share(ROUNDS);
    let mut tallies: Vec<Tally> = rigs.iter().map(|_| Tally::new()).collect();
    let mut floors = FloorTally {
        latency: Latency::new(),
        count: WARM_UP,
        rounds: Vec::new(),
        stream_count: 0,
        stream_bytes: 0,
        stream_time: Duration::ZERO,
        stream_rounds: Vec::new(),
    };
    // Any rig will do: the RPC messages are the same over all of them.
    let Some(first) = rigs.first_mut() else {
        return Ok(Vec::new());
    };
    first.resume()?;
    let sizes = first.message_sizes(op)?;
    if busy {
        first.pause()?;
    }
    let more = match cell.exact && budget.count.is_none() {
        true => MORE_ROUNDS,
        false => 0,
    };
    for round in 0..ROUNDS + more {
        let further = round >= ROUNDS;
        if further && tallies.iter().all(Tally::is_exact) {
            break;
        }
        // Nobody is always the first after the floor, or the last.
        let first = round as usize;
        let order: Vec<usize> = (0..rigs.len()).map(|n| (n + first) % rigs.len()).collect();
        let (turns, slice) = slices(share);
        for _ in 0..turns {
            turn(
                cell,
                (&mut *floor, &mut floors, sizes),
                (&mut *rigs, &mut tallies),
                &order,
                slice,
            )?;
        }
        if further {
            continue;
        }
        let raw_rate = match stream_kind(op) {
            Some(kind) => Some(stream_round(floor, &mut floors, kind, busy, share.time)?),
            None => None,
        };
        for &index in &order {
            let (rig, tally) = (&mut rigs[index], &mut tallies[index]);
            if busy {
                rig.resume()?;
            }
            let (ended, elapsed) = rig.stream(op, share.time)?;
            if busy {
                rig.pause()?;
            }
            tally.streamed += ended;
            tally.stream_time += elapsed;
            if let (Some(raw_rate), Some(size)) = (raw_rate, op.size()) {
                let rate = ended as f64 * f64::from(size) / elapsed.as_secs_f64();
                tally.stream_ratios.push(rate / raw_rate);
            }
        }
    }
    let rows = rigs.iter().zip(tallies);
    Ok(rows
        .map(|(rig, tally)| row(cell, rig, tally, &floors))
        .collect())
}

/// One turn of the floor and of each conveyance, in that order.
fn turn(
    cell: Cell,
    (floor, floors, sizes): (&mut Floor, &mut FloorTally, (u32, u32)),
    (rigs, tallies): (&mut [Rig], &mut [Tally]),
    order: &[usize],
    slice: Budget,
) -> Result<(), Failure> {
    let busy = cell.mode.is_busy();
    let floor_us = floor_round(floor, floors, sizes, busy, slice)?;
    let mut medians = vec![None; rigs.len()];
    for &index in order {
        let (rig, tally) = (&mut rigs[index], &mut tallies[index]);
        if busy {
            rig.resume()?;
        }
        let mut latency = Latency::new();
        let (did, calls) = rig.one_at_a_time(cell.op, slice, &mut latency)?;
        if busy {
            rig.pause()?;
        }
        medians[index] = latency.p50_us().map(|p50| (p50, calls));
        tally.latency.merge(&latency);
        tally.did = tally.did + did;
        tally.calls += calls;
    }
    let v1 = rigs.iter().position(|rig| rig.conveyance == Conveyance::V1);
    let v1 = v1.and_then(|v1| medians[v1]);
    for (tally, median) in tallies.iter_mut().zip(medians) {
        let Some((p50, calls)) = median else {
            continue;
        };
        tally.ratios.push((p50 / floor_us, calls));
        tally
            .v1_ratios
            .extend(v1.map(|(v1, v1_calls)| (p50 / v1, calls.min(v1_calls))));
    }
    Ok(())
}

/// One turn of the ping-pong; its median, microseconds.
fn floor_round(
    floor: &mut Floor,
    floors: &mut FloorTally,
    sizes: (u32, u32),
    busy: bool,
    share: Budget,
) -> Result<f64, Failure> {
    let what = "the raw TCP ping-pong";
    let mut warm_up = Latency::new();
    floor
        .ping_pong(sizes, busy, WARM_UP, &mut warm_up)
        .context(what)?;
    let took = Duration::from_secs_f64(warm_up.mean_us() / 1e6);
    floors.count = match share.count {
        Some(count) => count,
        None => repetitions(1, took, share.time),
    };
    let mut latency = Latency::new();
    floor
        .ping_pong(sizes, busy, floors.count, &mut latency)
        .context(what)?;
    floors.latency.merge(&latency);
    let p50 = latency.p50_us().filter(|&p50| p50 > 0.0);
    let p50 = p50.ok_or_else(|| Failure::Work(format!("{what} measured nothing")))?;
    floors.rounds.push(p50);
    Ok(p50)
}

/// One round of the stream; bytes per second.
fn stream_round(
    floor: &mut Floor,
    floors: &mut FloorTally,
    (kind, size): (Kind, u32),
    busy: bool,
    time: Duration,
) -> Result<f64, Failure> {
    let what = "the raw TCP stream";
    if floors.stream_count == 0 {
        let count = (STREAM_PROBE / size.max(1)).clamp(FLOOR_COUNT.0, FLOOR_COUNT.1);
        let took = floor.stream(kind, size, busy, count).context(what)?;
        floors.stream_count = repetitions(count, took, time);
    }
    let took = floor
        .stream(kind, size, busy, floors.stream_count)
        .context(what)?;
    let bytes = u64::from(floors.stream_count) * u64::from(size);
    floors.stream_bytes += bytes;
    floors.stream_time += took;
    floors.stream_count = repetitions(floors.stream_count, took, time);
    let rate = bytes as f64 / took.as_secs_f64();
    floors.stream_rounds.push(rate);
    Ok(rate)
}

fn row(cell: Cell, rig: &Rig, tally: Tally, floors: &FloorTally) -> Row {
    let per_call = |count: u64| (tally.calls > 0).then(|| count as f64 / tally.calls as f64);
    let rdma = rig.device.is_some();
    let device = |count: u64| per_call(count).filter(|_| rdma);
    let total = tally.did.total();
    let size = cell.op.size().map(f64::from);
    let raw_rate = floors.stream_bytes as f64 / floors.stream_time.as_secs_f64() / MIB;
    let ops_per_s = tally.ops_per_s();
    Row {
        op: cell.op.name(),
        size: cell.op.size().map(u64::from),
        conveyance: rig.conveyance.name(),
        device: rig.device.clone(),
        mode: cell.mode,
        delay_us: cell.delay.as_secs_f64() * 1e6,
        conditions: rig.conditions,
        count: tally.calls,
        p50_us: tally.latency.p50_us(),
        p99_us: tally.latency.p99_us(),
        v1_ratio_error: error_of_median(&tally.v1_ratios),
        v1_ratio: weighted_median(tally.v1_ratios),
        predicted_us: None,
        plan: None,
        latency_over_delay: None,
        split: Split::default(),
        mib_per_s: ops_per_s.zip(size).map(|(ops, size)| ops * size / MIB),
        ops_per_s,
        cpu_us: per_call(total.cpu_ns).map(|nanos| nanos / 1e3),
        round_trips: None,
        sends: device(total.sends),
        rdma_reads: device(total.rdma_reads),
        rdma_writes: device(total.rdma_writes),
        registrations: device(total.registrations),
        invalidations: device(total.invalidations),
        interrupts_requester: per_call(tally.did.client.interrupts),
        interrupts_responder: per_call(tally.did.server.interrupts),
        copied_bytes: per_call(total.copied_bytes),
        wire_bytes: per_call(total.wire_bytes_sent).filter(|_| rig.counts_wire()),
        floor_p50_us: floors.latency.p50_us(),
        floor_spread: spread(floors.rounds.clone()),
        floor_ratio: weighted_median(tally.ratios).filter(|_| !cell.slowed),
        raw_stream_mib_per_s: (floors.stream_bytes > 0).then_some(raw_rate),
        raw_stream_spread: spread(floors.stream_rounds.clone()),
        stream_ratio: median(tally.stream_ratios).filter(|_| !cell.slowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(repetitions(1, Duration::from_secs(9), ms(1)), FLOOR_COUNT.0);
        assert_eq!(repetitions(1, Duration::ZERO, ms(100)), FLOOR_COUNT.1);
    }
}
