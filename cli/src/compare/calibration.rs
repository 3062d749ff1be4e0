//! What everything costs here, measured before anything is predicted.
//!
//! Each figure is a difference, or a slope, of latencies that are measured in turns: READs, WRITEs and long
//! calls of two sizes by ways of which one takes what the other does not. None of the sizes is one that is
//! compared unless somebody asks for it. What cannot be told apart is not: what registration takes for each
//! page is in the rates of RDMA Reads and Writes, what an RDMA Read waits for at the peer in the link's delay.

use std::hint::black_box;
use std::time::{Duration, Instant};

use conveyance::Parameter;
use rpc_transport::rdma::CostModel;

use crate::args::{CompareArgs, Conveyance};
use crate::compare::floor::Floor;
use crate::compare::latency::{Latency, median};
use crate::compare::op::{LONG, Op};
use crate::compare::rig::{Budget, Rig};
use crate::compare::rows::Mode;
use crate::compare::set::{self, Setting};
use crate::costs::{Costs, CostsArg};
use crate::failure::{Context, Failure};

/// The two sizes between which slopes are taken.
const SHORT: u32 = 24 << 10;
const LARGE: u32 = 768 << 10;
/// Rounds, of which the median counts for each figure.
const ROUNDS: u32 = 15;
/// Timed calls of each kind in a round.
const CALLS: u32 = 6;
/// Of which latency counts: other work on the machine makes calls longer and none shorter.
const PERCENT: f64 = 25.0;
/// Exchanges of the floor in a round, for what an interrupt takes.
const EXCHANGES: u32 = 100;
/// Bytes that are copied to see how fast that goes.
const COPIED: usize = 1 << 20;

/// Where figures come from, as it is said to users.
pub(crate) const SOURCE: &str = "measured";

/// Latencies of one round, microseconds. `sent`: placed by Sends, in as many as it takes.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    null: f64,
    /// READ of [`SHORT`] and [`LARGE`] bytes.
    read_sent: [f64; 2],
    read_written: [f64; 2],
    /// WRITE likewise.
    write_sent: [f64; 2],
    write_read: [f64; 2],
    /// WRITE of [`SHORT`] where the client invalidates by itself.
    write_invalidated: f64,
    /// A call and a reply of [`LONG`] bytes in many Sends, how many these are; and in as few as can be.
    many: f64,
    many_sends: f64,
    few: f64,
    /// A bare exchange of both sides that sleep, and that spin.
    asleep: f64,
    awake: Option<f64>,
}

impl Round {
    /// What everything costs by this round. Differences that noise has made negative are none.
    fn solve(&self, copy_rate: u64) -> CostModel {
        let span = f64::from(LARGE - SHORT);
        // Microseconds a byte.
        let slope = |[short, large]: [f64; 2]| ((large - short) / span).max(1e-6);
        let at_zero = |both: [f64; 2]| both[0] - slope(both) * f64::from(SHORT);
        let rate = |slope: f64| (1e6 / slope) as u64;
        let sent = (slope(self.read_sent) + slope(self.write_sent)) / 2.0;
        let registration = (at_zero(self.read_written) - at_zero(self.read_sent)).max(0.0);
        let fetching = (at_zero(self.write_read) - at_zero(self.write_sent)).max(0.0);
        let turnaround = (fetching - registration).max(0.0);
        let interrupt = self.awake.map_or(0.0, |awake| (self.asleep - awake) / 2.0);
        let interrupt = interrupt.clamp(0.0, turnaround);
        let link_delay = (turnaround - interrupt) / 2.0;
        let invalidation = self.write_invalidated - self.write_read[0] - interrupt;
        // The model has messages overlap with their bytes, so that the longer of both is what shows; the
        // bytes of `few` show in it.
        let bytes = 2.0 * f64::from(LONG) * sent;
        let per_message = (self.many - self.few + bytes) / (self.many_sends - 2.0).max(1.0);
        let per_message = per_message.max(0.0);
        let call = self.null - 2.0 * (link_delay + interrupt + per_message);
        let time = |us: f64| Duration::from_nanos((us.max(0.0) * 1e3) as u64);
        CostModel {
            link_delay: time(link_delay),
            rate: rate(sent),
            read_rate: rate(slope(self.write_read)),
            write_rate: rate(slope(self.read_written)),
            per_message: time(per_message),
            registration: time(registration),
            registration_page: Duration::ZERO,
            invalidation: time(invalidation),
            interrupt: time(interrupt),
            read_turnaround: Duration::ZERO,
            copy_rate,
            call: time(call),
        }
    }
}

/// Each figure's median.
fn medians(models: &[CostModel]) -> CostModel {
    let time = |of: fn(&CostModel) -> Duration| {
        let all = models.iter().map(|model| of(model).as_nanos() as f64);
        Duration::from_nanos(median(all.collect()).unwrap_or(0.0) as u64)
    };
    let rate = |of: fn(&CostModel) -> u64| {
        let all = models.iter().map(|model| of(model) as f64);
        (median(all.collect()).unwrap_or(0.0) as u64).max(1)
    };
    CostModel {
        link_delay: time(|model| model.link_delay),
        rate: rate(|model| model.rate),
        read_rate: rate(|model| model.read_rate),
        write_rate: rate(|model| model.write_rate),
        per_message: time(|model| model.per_message),
        registration: time(|model| model.registration),
        registration_page: time(|model| model.registration_page),
        invalidation: time(|model| model.invalidation),
        interrupt: time(|model| model.interrupt),
        read_turnaround: time(|model| model.read_turnaround),
        copy_rate: rate(|model| model.copy_rate),
        call: time(|model| model.call),
    }
}

/// Whether anything that is compared has more than one way over RDMA to go, so that costs decide.
fn decides(args: &CompareArgs, ops: &[Op]) -> bool {
    let rdma = args.via.iter().filter(|via| via.version().is_some());
    let moves = |op: &Op| op.size().is_some();
    args.save_costs.is_some() || (rdma.count() > 1 && ops.iter().any(moves))
}

/// What everything costs: as given, and measured for the rest, if it decides anything.
///
/// # Errors
/// A server does not start, or a call fails.
pub(crate) fn costs(
    setting: &Setting<'_>,
    floor: &mut Floor,
    ops: &[Op],
) -> Result<Option<Costs>, Failure> {
    let args = setting.args;
    let given = CostsArg::load(args.costs.as_ref())?;
    if !decides(args, ops) {
        return Ok(None);
    }
    let delay = setting.delay;
    if Parameter::ALL
        .into_iter()
        .all(|parameter| given.is_given(parameter))
    {
        return Ok(Some(given.with_added(delay, args.rate.map(|rate| rate.0))));
    }
    let measured = Costs::of(measure(setting, floor)?, SOURCE);
    // A rate that was added was measured as well.
    Ok(Some(given.or(&measured).with_added(delay, None)))
}

/// Client and servers by which Sends are taken wherever they can be.
fn measure(setting: &Setting<'_>, floor: &mut Floor) -> Result<CostModel, Failure> {
    use Conveyance::{V1, V1Inv, V2Cont, V2DdpCont};
    let dear = CostModel {
        registration: Duration::from_secs(1),
        read_turnaround: Duration::from_secs(1),
        copy_rate: 1_000,
        ..CostModel::default()
    };
    let args = CompareArgs {
        via: vec![V1, V1Inv, V2Cont, V2DdpCont],
        costs: Some(CostsArg::from(&Costs::of(dear, "for Sends"))),
        ..setting.args.clone()
    };
    let [short, large] = [SHORT, LARGE];
    let ops = [Op::Read(large), Op::Write(large), Op::LongBoth(LONG)];
    let setting = Setting {
        args: &args,
        delay: Duration::ZERO,
        mode: Mode::Blocking,
        ops: &ops,
        ..*setting
    };
    let mut rigs = set::rigs(&setting)?;
    let [v1, v1_inv, cont, both] = &mut rigs[..] else {
        return Err(Failure::work("not all of the servers are there"));
    };
    let two = std::thread::available_parallelism().map_or(1, usize::from) > 1;
    let mut models = Vec::new();
    for _ in 0..ROUNDS {
        let (many, many_sends) = sends(cont, Op::LongBoth(LONG))?;
        let round = Round {
            null: one(both, Op::Null)?,
            read_sent: [one(both, Op::Read(short))?, one(both, Op::Read(large))?],
            read_written: [one(v1_inv, Op::Read(short))?, one(v1_inv, Op::Read(large))?],
            write_sent: [one(both, Op::Write(short))?, one(both, Op::Write(large))?],
            write_read: [
                one(v1_inv, Op::Write(short))?,
                one(v1_inv, Op::Write(large))?,
            ],
            write_invalidated: one(v1, Op::Write(short))?,
            many,
            many_sends,
            few: one(both, Op::LongBoth(LONG))?,
            asleep: exchange(floor, false)?,
            awake: two.then(|| exchange(floor, true)).transpose()?,
        };
        models.push(round.solve(copy_rate()));
    }
    Ok(medians(&models))
}

/// What calls take.
fn one(rig: &mut Rig, op: Op) -> Result<f64, Failure> {
    let mut latency = Latency::new();
    rig.timed(op, CALLS, &mut latency)?;
    found(&latency)
}

/// The same, and the Sends of each, both ways.
fn sends(rig: &mut Rig, op: Op) -> Result<(f64, f64), Failure> {
    let mut latency = Latency::new();
    let budget = Budget {
        time: Duration::ZERO,
        count: Some(CALLS),
    };
    let (did, calls) = rig.one_at_a_time(op, budget, &mut latency)?;
    let sends = did.total().sends as f64 / calls.max(1) as f64;
    Ok((found(&latency)?, sends))
}

fn exchange(floor: &mut Floor, busy: bool) -> Result<f64, Failure> {
    let mut latency = Latency::new();
    let exchanged = floor.ping_pong((100, 100), busy, EXCHANGES, &mut latency);
    exchanged.context("the raw TCP ping-pong")?;
    found(&latency)
}

fn found(latency: &Latency) -> Result<f64, Failure> {
    let found = latency.percentile_us(PERCENT);
    found.ok_or_else(|| Failure::work("costs: nothing was measured"))
}

/// Bytes a second.
fn copy_rate() -> u64 {
    let (from, mut to) = (vec![1_u8; COPIED], vec![0_u8; COPIED]);
    let copied = |to: &mut Vec<u8>| {
        let start = Instant::now();
        black_box(&mut *to).copy_from_slice(black_box(&from));
        start.elapsed().as_secs_f64().max(1e-9)
    };
    // The first finds the pages.
    copied(&mut to);
    let fastest = (0..4)
        .map(|_| copied(&mut to))
        .fold(f64::INFINITY, f64::min);
    (COPIED as f64 / fastest) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies as they follow from known costs come back as these costs.
    #[test]
    fn a_round_is_solved_for_what_it_was_made_of() {
        let (sent, read, written) = (0.001, 0.0005, 0.0004);
        let (delay, interrupt, message, registration, call) = (4.0, 15.0, 2.0, 6.0, 20.0);
        let null = call + 2.0 * (delay + interrupt + message);
        let line =
            |at_zero: f64, slope: f64| [SHORT, LARGE].map(|size| at_zero + slope * f64::from(size));
        let turnaround = 2.0 * delay + interrupt;
        let write_read = line(null + 9.0 + registration + turnaround, read);
        let long = 2.0 * f64::from(LONG);
        let round = Round {
            null,
            read_sent: line(null + 5.0, sent),
            read_written: line(null + 5.0 + registration, written),
            write_sent: line(null + 9.0, sent),
            write_read,
            write_invalidated: write_read[0] + 3.0 + interrupt,
            many: null + (34.0 - 2.0) * message + long * sent,
            many_sends: 34.0,
            few: null + long * sent,
            asleep: 50.0,
            awake: Some(20.0),
        };
        let model = round.solve(7);
        let near = |time: Duration, us: f64| (time.as_secs_f64() * 1e6 - us).abs() < 0.01;
        assert!(near(model.link_delay, delay), "{model:?}");
        assert!(near(model.interrupt, interrupt), "{model:?}");
        assert!(near(model.registration, registration), "{model:?}");
        assert!(near(model.invalidation, 3.0), "{model:?}");
        // Its bytes go at the same time.
        let per_message = message + long * sent / 32.0;
        assert!(near(model.per_message, per_message), "{model:?}");
        let rates = [model.rate, model.read_rate, model.write_rate];
        assert_eq!(rates.map(|rate| rate / 1_000_000), [1000, 2000, 2500]);
        assert_eq!(model.copy_rate, 7);
        let still = Round {
            awake: None,
            ..round
        };
        assert!(
            near(still.solve(7).link_delay, turnaround / 2.0),
            "one processor"
        );
        // Nothing but noise.
        let flat = Round {
            null: 10.0,
            ..Round::default()
        };
        let model = flat.solve(7);
        assert_eq!((model.registration, model.link_delay), Default::default());
        let call = model.call.as_secs_f64() * 1e6;
        assert!((9.0..=10.0).contains(&call), "{call}");
        assert_eq!(medians(&[model, round.solve(7), model]), model);
    }
}
