//! Measures the parameters of the cost model on this machine, before anything is predicted.
//!
//! None of the sizes used here is among those compared by default.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rpc_transport::rdma::{CostModel, RdmaOptions};
use rpcrdma_programs::workload::{LONG, Op, Workload};
use rpcrdma_setup::costs::{Costs, CostsArg};
use rpcrdma_setup::{Context, Failure};
use transfer_plan::CostParameter;

use crate::benchmark_target::{BenchTarget, Budget};
use crate::differences::{Differences, LARGE, Moved, PLAIN, Round, SHORT};
use crate::latency::Latency;
use crate::options::{Options, inline_size};
use crate::rows::Mode;
use crate::targets::{self, Setting};
use crate::tcp_baseline::TcpBaseline;
use crate::variant::Variant;

/// The maximum number of rounds (the median over rounds counts), and the minimum, which applies
/// when the rounds take long.
const ROUNDS: u32 = 45;
const LONG_ENOUGH: [(u32, Duration); 2] =
    [(15, Duration::from_secs(5)), (5, Duration::from_secs(15))];
/// The number of timed calls of each kind in a round.
const CALLS: u32 = 6;
/// The percentile of latency that counts. It is low, because other work on the machine makes calls
/// longer and never shorter.
const PERCENT: f64 = 25.0;
/// The number of exchanges with the TCP baseline in a round, for measuring the cost of an
/// interrupt.
const EXCHANGES: u32 = 100;

/// The source of these figures, as shown to users.
pub(crate) const SOURCE: &str = "measured";

/// The time that measuring takes if nothing else runs on the machine.
pub(crate) const TIME: Duration = Duration::from_secs(6);

/// The source of the cost model.
pub(crate) enum Calibration {
    /// No cost model is needed, because nothing is predicted.
    None,
    /// The user gave all costs.
    Given(Costs),
    /// The costs that the user did not give must be measured.
    Measured {
        /// The costs that the user gave.
        given: Costs,
    },
}

impl Calibration {
    /// Returns the source for these options. Nothing is predicted where no compared operation has
    /// more than one possible transfer mode.
    ///
    /// # Errors
    /// The file with the given costs cannot be read.
    pub(crate) fn of(setting: &Setting<'_>, ops: &[Arc<dyn Workload>]) -> Result<Self, Failure> {
        let options = setting.options;
        let given = CostsArg::load(options.costs.as_ref())?;
        let rdma = options.via.iter().filter(|via| via.version().is_some());
        let decides = rdma.count() > 1 && ops.iter().any(|op| op.size().is_some());
        let predicts = options.predict && decides;
        if !options.save_costs && !predicts {
            return Ok(Self::None);
        }
        let mut all = CostParameter::ALL.into_iter();
        match all.all(|parameter| given.is_given(parameter)) {
            true => Ok(Self::Given(given.with_added(setting.delay, options.rate))),
            false => Ok(Self::Measured { given }),
        }
    }

    /// Returns the cost model, after measuring what has to be measured.
    ///
    /// # Errors
    /// A server does not start, or a call fails.
    pub(crate) fn costs(
        self,
        setting: &Setting<'_>,
        baseline: &mut TcpBaseline,
    ) -> Result<Option<Costs>, Failure> {
        match self {
            Self::None => Ok(None),
            Self::Given(costs) => Ok(Some(costs)),
            Self::Measured { given } => {
                let measured = Costs::of(measure(setting, baseline)?, SOURCE).with_unfound();
                // The link's added rate was part of the measurement.
                Ok(Some(given.or(&measured).with_added(setting.delay, None)))
            }
        }
    }
}

/// Measures with a client and servers that use Sends wherever possible.
fn measure(setting: &Setting<'_>, baseline: &mut TcpBaseline) -> Result<CostModel, Failure> {
    use Variant::{V1, V1Inv, V2Cont, V2DdpCont};
    let dear = CostModel {
        registration: Duration::from_secs(1),
        read_turnaround: Duration::from_secs(1),
        // With this, eligible data is always placed, and other data never needs a chunk: a message
        // of two Sends has less than half a mebibyte of it.
        copy_rate: 1_000_000,
        ..CostModel::default()
    };
    let options = Options {
        receives: Vec::new(),
        // Shorter messages than the usual ones would make more Sends of what has one or two here.
        inline: setting
            .options
            .inline
            .max(RdmaOptions::DEFAULT_INLINE.into()),
        via: vec![V1, V1Inv, V2Cont, V2DdpCont],
        costs: Some(CostsArg::from(&Costs::of(dear, "for Sends"))),
        ..setting.options.clone()
    };
    // Receives hold less than that.
    let continued = inline_size(options.inline)? + PLAIN;
    let mut ops: Vec<Arc<dyn Workload>> = vec![Arc::new(Op::Null), Arc::new(Op::LongBoth(LONG))];
    for size in [PLAIN, continued, SHORT, LARGE] {
        ops.push(Arc::new(Op::Read(size)));
        ops.push(Arc::new(Op::Write(size)));
    }
    let setting = Setting {
        options: &options,
        delay: Duration::ZERO,
        mode: Mode::Blocking,
        ops: &ops,
        ..*setting
    };
    let mut benches = targets::start_targets(&setting)?;
    let [v1, v1_inv, cont, both] = &mut benches[..] else {
        return Err(Failure::work("not all of the servers are there"));
    };
    // Spinning needs a processor for each side.
    let two =
        setting.processors.is_some() || thread::available_parallelism().map_or(1, usize::from) > 1;
    let mut differences = Vec::new();
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let enough = |(least, time)| round >= least && begun.elapsed() > time;
        if LONG_ENOUGH.into_iter().any(enough) {
            break;
        }
        let mut moved = |op: fn(u32) -> Op| -> Result<Moved, Failure> {
            Ok(Moved {
                plain: one(v1_inv, op(PLAIN))?,
                continued: in_two(cont, op(continued))?,
                sent: [one(both, op(SHORT))?, one(both, op(LARGE))?],
                explicit: [one(v1_inv, op(SHORT))?, one(v1_inv, op(LARGE))?],
            })
        };
        let (read, write) = (moved(Op::Read)?, moved(Op::Write)?);
        let (many, many_sends) = sends(cont, Op::LongBoth(LONG))?;
        let round = Round {
            null: one(both, Op::Null)?,
            continued,
            read,
            write,
            write_invalidated: one(v1, Op::Write(SHORT))?,
            many,
            many_sends,
            few: one(both, Op::LongBoth(LONG))?,
            asleep: exchange(baseline, false)?,
            awake: two.then(|| exchange(baseline, true)).transpose()?,
        };
        differences.push(Differences::of(&round));
    }
    Ok(Differences::medians(&differences).model())
}

/// Returns the latency of `op`, in microseconds.
fn one(bench: &mut BenchTarget, op: Op) -> Result<f64, Failure> {
    let mut latency = Latency::new();
    bench.timed(&op, CALLS, &mut latency)?;
    found(&latency)
}

/// Returns the latency of `op` in microseconds, and its number of Sends in both directions.
fn sends(bench: &mut BenchTarget, op: Op) -> Result<(f64, f64), Failure> {
    let mut latency = Latency::new();
    let budget = Budget {
        time: Duration::ZERO,
        count: Some(CALLS),
    };
    let (did, calls) = bench.one_at_a_time(&op, budget, &mut latency)?;
    let sends = did.total().sends as f64 / calls.max(1) as f64;
    Ok((found(&latency)?, sends))
}

/// Returns the latency of `op` if the message with the data takes two Sends.
fn in_two(bench: &mut BenchTarget, op: Op) -> Result<f64, Failure> {
    let (latency, count) = sends(bench, op)?;
    // The other message takes one Send.
    match (count - 3.0).abs() < 0.5 {
        true => Ok(latency),
        false => Err(Failure::Work(format!(
            "costs: {op} took {count:.1} Sends and not three, so that they cannot be measured; give them with --costs"
        ))),
    }
}

fn exchange(baseline: &mut TcpBaseline, busy: bool) -> Result<f64, Failure> {
    let mut latency = Latency::new();
    let exchanged = baseline.ping_pong((100, 100), busy, EXCHANGES, &mut latency);
    exchanged.context("the raw TCP ping-pong")?;
    found(&latency)
}

fn found(latency: &Latency) -> Result<f64, Failure> {
    let found = latency.percentile_us(PERCENT);
    found.ok_or_else(|| Failure::work("costs: nothing was measured"))
}
