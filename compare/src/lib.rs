//! Measures what each transport and protocol variant for NFS costs on this machine: `rpcrdma
//! compare` as a library.
//!
//! A [`Comparison`] starts a server process for each [`Variant`] (NFS over TCP, and over
//! versions 1 and 2 of RPC-over-RDMA with their features), connects to each, and measures the same
//! operations on all of them in rounds in which they take turns. A process that echoes over bare
//! TCP takes its turn as well: the TCP baseline (*floor* in options and rows), with which the
//! others are compared. The result, [`Measured`], is a list of [`Row`]s, with text tables, a
//! comparison with the predictions of `explain`, and a [`Report`], which is a page with figures.
//! With the device `sim`, everything is counted in a simulation instead.
//!
//! Servers are separate processes, because the cost of a call depends on whether client and server
//! share a processor and memory. The measuring program is started again for that: with the
//! arguments in [`Options::child`], it passes the argument after them to [`serve_child`].
//!
//! ```no_run
//! use rpcrdma_compare::{Comparison, OpName, Options, serve_child};
//!
//! fn main() -> Result<(), rpcrdma_setup::Failure> {
//!     let words: Vec<String> = std::env::args().collect();
//!     if let [_, first, served] = &words[..]
//!         && first == "serve"
//!     {
//!         return serve_child(served);
//!     }
//!     let options = Options {
//!         ops: vec![OpName::Null, OpName::Read],
//!         child: vec!["serve".to_owned()],
//!         ..Options::default()
//!     };
//!     let measured = Comparison::new(options)?.measure(false, &|_| (), |_| ())?;
//!     for row in &measured.rows {
//!         println!("{} over {}: {:?} µs", row.op, row.conveyance, row.p50_us);
//!     }
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]

mod benchmark_target;
mod calibration;
mod child;
mod differences;
mod explain;
mod latency;
mod measurement;
mod network;
mod op;
mod options;
mod prediction;
mod processor;
mod reference;
mod report;
mod rows;
mod sample_tree;
mod served;
mod server_process;
mod simulated;
mod table;
mod targets;
mod tcp_baseline;
mod tree;
mod trips;
mod usage;
mod variant;

use std::fmt;
use std::thread;
use std::time::Duration;

use nfs_binding::server::MAX_TRANSFER;
use rdma::middleware::Rate;
use rpcrdma_setup::costs::Costs;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::{Context, Failure};

use benchmark_target::Budget;
pub use latency::Latency;
use measurement::Measurement;
use network::Network;
pub use network::end_delay;
pub use op::{LONG, Op, Target};
pub use options::{OpName, Options, inline_size};
pub use reference::{Changes, Reference};
pub use report::Report;
pub use rows::{Conditions, Mode, OverDelay, Row, Split};
pub use server_process::serve_child;
pub use simulated::operation;
use targets::Setting;
use tcp_baseline::TcpBaseline;
pub use variant::Variant;

/// A validated description of what to measure.
#[derive(Clone, Debug)]
pub struct Comparison {
    options: Options,
    ops: Vec<Op>,
}

/// The results of a comparison.
#[derive(Debug)]
pub struct Measured {
    /// One row for each operation, size, transport or variant, and mode.
    pub rows: Vec<Row>,
    /// A sentence that describes the measurement.
    pub summary: String,
    /// A warning about disturbance by other work on this machine, if that was considerable.
    pub noise: Option<String>,
    /// The cost model that was used, if costs were measured or given.
    pub costs: Option<Costs>,
    comparison: Comparison,
    network: Option<Network>,
    processors: Option<(usize, usize)>,
}

/// Shows the user what is being measured now.
type Show<'a> = &'a dyn Fn(&dyn fmt::Display);

impl Comparison {
    /// Checks the options and returns the comparison that they describe.
    ///
    /// # Errors
    /// An option is invalid, or options contradict each other.
    pub fn new(options: Options) -> Result<Self, Failure> {
        let options = options.distinct();
        let ops = ops(&options)?;
        if options.device == DeviceName::Sim {
            simulated::check(&options, &ops)?;
        }
        Ok(Self { options, ops })
    }

    /// Performs the measurements. With `details`, a simulation also computes values that no table
    /// shows: latencies over more delays, and their composition. `show` is called with each step.
    /// `complain` is called if the delay of the network cannot be removed, which happens when the
    /// returned value is dropped.
    ///
    /// # Errors
    /// A server process cannot be started, or an operation fails.
    pub fn measure(
        self,
        details: bool,
        show: &dyn Fn(&dyn fmt::Display),
        complain: fn(&Failure),
    ) -> Result<Measured, Failure> {
        let Self { options, ops } = &self;
        if options.device == DeviceName::Sim {
            return Ok(Measured {
                rows: simulated::rows(options, ops, details)?,
                summary: simulated::summary(options),
                noise: None,
                costs: None,
                comparison: self,
                network: None,
                processors: None,
            });
        }
        let network = options.set_delay.as_deref();
        let network = network.map(|command| Network::new(command, options.delay, complain));
        let network = network.transpose()?;
        let processors = if options.pin { processor::pair() } else { None };
        if let Some((client, _)) = processors {
            processor::pin(client)?;
        }
        let setting = self.setting(network.as_ref(), processors);
        let (mut rows, device, costs) = measure(&setting, ops, show)?;
        if let Some(costs) = &costs {
            simulated::predict(options, costs, ops, &mut rows)?;
        }
        Ok(Measured {
            summary: summary(&setting, &device),
            noise: table::noise(&rows),
            rows,
            costs,
            comparison: self,
            network,
            processors,
        })
    }

    /// Returns the default setting of all measurements, which single ones modify.
    fn setting<'a>(
        &'a self,
        network: Option<&'a Network>,
        processors: Option<(usize, usize)>,
    ) -> Setting<'a> {
        let Self { options, ops } = self;
        Setting {
            options,
            mode: if options.busy_poll {
                Mode::Busy
            } else {
                Mode::Blocking
            },
            delay: match network {
                Some(_) => Duration::ZERO,
                None => options.delay,
            },
            network,
            ops,
            processors,
        }
    }
}

impl Measured {
    /// Returns the rows as text tables, with a remark on how to read them.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        let options = &self.comparison.options;
        if options.device == DeviceName::Sim {
            return simulated::text(&self.rows);
        }
        let network = self.network.as_ref();
        let [short, long] = trips::delays(network, trips_delay(options));
        let trips = match options.round_trips {
            false => String::new(),
            true => format!(
                "trips: measured with {short:?} and {long:?} added each way{}. ",
                by(network)
            ),
        };
        vec![
            table::speed(&self.rows),
            table::costs(&self.rows),
            format!("{trips}`rpcrdma compare --help` explains the columns."),
        ]
    }

    /// Returns sentences that say how often the variant that `explain` predicts to be the fastest
    /// was the fastest.
    #[must_use]
    pub fn predictions(&self) -> Vec<String> {
        prediction::report(&self.rows)
    }

    /// Checks that the predicted variant was the fastest, or as fast within the noise, for nine
    /// operations of ten.
    ///
    /// # Errors
    /// Fewer predictions were right, or the noise allows no statement.
    pub fn check_predictions(&self) -> Result<(), Failure> {
        prediction::check(&self.rows)
    }

    /// Performs each operation once more and returns a line with its transfer plan.
    ///
    /// # Errors
    /// A process does not start, or an operation fails.
    pub fn plans(&self) -> Result<Vec<String>, Failure> {
        let Comparison { options, ops } = &self.comparison;
        if options.device == DeviceName::Sim {
            return simulated::plans(options, ops);
        }
        let network = self.network.as_ref();
        explain::plans(&self.comparison.setting(network, self.processors), ops)
    }
}

/// Returns the requested operations, one for each size.
fn ops(options: &Options) -> Result<Vec<Op>, Failure> {
    let mut sizes = Vec::new();
    for &size in &options.sizes {
        match u32::try_from(size) {
            Ok(size) if (1..=MAX_TRANSFER).contains(&size) => sizes.push(size),
            _ => {
                let text = format!("--sizes: {size} is not from 1 to {MAX_TRANSFER} bytes");
                return Err(Failure::Usage(text));
            }
        }
    }
    let mut ops = Vec::new();
    for op in &options.ops {
        match op {
            OpName::Null => ops.push(Op::Null),
            OpName::Getattr => ops.push(Op::Getattr),
            OpName::Read => ops.extend(sizes.iter().copied().map(Op::Read)),
            OpName::Write => ops.extend(sizes.iter().copied().map(Op::Write)),
            OpName::Readdirplus => ops.push(Op::Readdirplus(LONG)),
            OpName::LongCall => ops.push(Op::LongCall(LONG)),
            OpName::LongBoth => ops.push(Op::LongBoth(LONG)),
            OpName::Tree => {}
        }
    }
    Ok(ops)
}

/// The rows, the device's name for itself, and the cost model if costs were measured or given.
type Found = (Vec<Row>, String, Option<Costs>);

fn measure(setting: &Setting<'_>, ops: &[Op], show: Show<'_>) -> Result<Found, Failure> {
    let &Setting { options, mode, .. } = setting;
    let delay = options.delay;
    let budget = Budget {
        time: options.time,
        count: options.count,
    };
    let (_floor_process, address) = targets::start_baseline(setting)?;
    let mut floor = TcpBaseline::connect(address).context("cannot connect to the floor process")?;

    let cell = |op, mode| Measurement {
        op,
        mode,
        delay,
        slowed: !setting.delay.is_zero() || options.rate.is_some(),
        exact: options.exact,
    };
    show(&"measuring what everything costs");
    let costs = calibration::costs(setting, &mut floor, ops)?;
    let mut rows = Vec::new();
    let mut start_targets = targets::start_targets(setting)?;
    let device = start_targets
        .iter()
        .find_map(|rig| rig.mounted().reached.device_name());
    for (index, &op) in ops.iter().enumerate() {
        let of = ops.len();
        show(&format_args!("measuring {op} ({} of {of})", index + 1));
        rows.extend(measurement::measure(
            cell(op, mode),
            &mut floor,
            &mut start_targets,
            budget,
        )?);
    }
    if options.ops.contains(&OpName::Tree) {
        show(&"copying trees");
        rows.extend(tree::measure(mode, delay, &mut start_targets)?);
    }
    drop(start_targets);

    // What spinning gains shows best where there is nothing but latency. It needs a processor for
    // each side.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let two = setting.processors.is_some() || processors > 1;
    if mode == Mode::Blocking && ops.contains(&Op::Null) && two {
        let (op, mode) = (Op::Null, Mode::Busy);
        show(&format_args!("measuring {op}, spinning"));
        let mut start_targets = targets::start_targets(&Setting { mode, ..*setting })?;
        let busy = measurement::measure(cell(op, mode), &mut floor, &mut start_targets, budget)?;
        let after = rows
            .iter()
            .take_while(|row: &&Row| row.op == op.name())
            .count();
        rows.splice(after..after, busy);
    }

    if options.round_trips {
        show(&"measuring round trips");
        trips::measure(setting, trips_delay(options), ops, &mut rows)?;
    }
    Ok((rows, device.unwrap_or_default(), costs))
}

/// Returns the shorter link delay, in each direction, with which round trips are measured.
fn trips_delay(options: &Options) -> Duration {
    match options.delay {
        Duration::ZERO => trips::DELAY,
        delay => delay,
    }
}

/// Returns a phrase saying that the network makes the delay, or an empty string.
fn by(network: Option<&Network>) -> &'static str {
    match network {
        Some(_) => " by the network",
        None => "",
    }
}

/// Returns a sentence that describes the measurement.
fn summary(setting: &Setting<'_>, device: &str) -> String {
    let options = setting.options;
    let delay = match options.delay {
        Duration::ZERO => "no added delay".to_owned(),
        delay => format!("{delay:?} added each way{}", by(setting.network)),
    };
    let rate = options.rate.map_or(String::new(), |rate| {
        format!(", {}bit/s each way", Rate(rate))
    });
    let crc = match options.device {
        DeviceName::Iwarp => format!(", CRC {}", if options.crc { "on" } else { "off" }),
        DeviceName::Verbs(_) | DeviceName::Sim => String::new(),
    };
    format!("NFS over TCP and RPC-over-RDMA 1 and 2 (device {device}{crc}), {delay}{rate}.")
}
