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
//! [`Runs`] are the same for an application: a command that runs in a mount over each variant.
//!
//! Servers are separate processes, because the cost of a call depends on whether client and server
//! share a processor and memory. The measuring program is started again for that: with the
//! arguments in [`Options::child`], it passes the argument after them to [`serve_child`].
//!
//! ```no_run
//! use rpcrdma_compare::{Comparison, OpName, Options, catalog, serve_child};
//!
//! fn main() -> Result<(), rpcrdma_setup::Failure> {
//!     let words: Vec<String> = std::env::args().collect();
//!     if let [_, first, served] = &words[..]
//!         && first == "serve"
//!     {
//!         return serve_child(served, &catalog());
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

mod answer;
mod benchmark_target;
mod calibration;
mod child;
mod depth;
mod differences;
mod environment;
mod explain;
mod gateway;
mod greeting;
mod interval;
mod json;
mod ladders;
mod latency;
mod least;
mod measurement;
mod network;
mod options;
mod orders;
mod prediction;
mod prepared;
mod processor;
mod receives;
mod reference;
mod remote;
mod report;
mod rows;
mod run;
mod sample_tree;
mod schedule;
mod served;
mod server_process;
mod simulated;
mod simulated_costs;
mod simulation_settings;
mod summary;
mod table;
mod targets;
mod task;
mod tcp_baseline;
mod tree;
mod trips;
mod usage;
mod variant;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rpcrdma_programs::workload::{LONG, Op, Workload};
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::costs::Costs;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::{Context, Failure};

use benchmark_target::Budget;
use calibration::Calibration;
pub use environment::Environment;
pub use gateway::{GatewayComparison, GatewayRow, MeasuredGateways};
pub use interval::Interval;
pub use json::{rows_json, run_rows_json};
pub use ladders::LadderFigure;
pub use latency::Latency;
use measurement::Measurement;
use network::Network;
pub use network::end_delay;
pub use options::{OpName, Options};
pub use prepared::MAX_RECORD;
pub use reference::{Changes, Reference};
pub use remote::{REMOTE_PORT, RemoteServer, serve_remote};
pub use report::{Figure, Report, RunReport};
pub use rows::{Conditions, Least, Mode, OverDelay, Row, Split};
pub use run::{MeasuredRuns, RunOptions, RunRow, Runs, end_command};
use schedule::Schedule;
pub use simulated_costs::help as simulated_costs_help;
pub use simulation_settings::{catalog, change_simulation, check_for_simulation};
use summary::Carried;
use targets::Setting;
pub use task::serve_child;
use tcp_baseline::TcpBaseline;
pub use variant::{AddedVariant, Variant};

/// A validated description of what to measure.
#[derive(Clone, Debug)]
pub struct Comparison {
    environment: Environment,
    options: Options,
    ops: Vec<Arc<dyn Workload>>,
}

/// The results of a comparison.
#[derive(Debug)]
pub struct Measured {
    /// One row for each operation, size, transport or variant, and mode.
    pub rows: Vec<Row>,
    /// A sentence that describes the measurement: the transports, the device and the link.
    pub summary: String,
    /// A sentence about the machine and the build of this program.
    pub machine: String,
    /// A warning about disturbance by other work on this machine, if that was considerable.
    pub noise: Option<String>,
    /// The cost model that was used, if costs were measured or given.
    pub costs: Option<Costs>,
    comparison: Comparison,
    network: Option<Network>,
    processors: Option<(usize, usize)>,
    congestion: Option<String>,
}

/// Shows the user what is being measured now.
type Show<'a> = &'a dyn Fn(&dyn fmt::Display);

impl Comparison {
    /// Checks the options and returns the comparison that they describe.
    ///
    /// # Errors
    /// An option is invalid, or options contradict each other.
    pub fn new(mut options: Options) -> Result<Self, Failure> {
        options.check_distinct()?;
        options.check_costs()?;
        depth::prepare(&mut options)?;
        receives::prepare(&mut options)?;
        let ops = workloads(&options.ops, &options.sizes, &options.tuning.catalog)?;
        if options.device == DeviceName::Sim {
            simulated::check(&options, &ops)?;
        } else {
            options.tuning.check_measured()?;
            options.decide_congestion()?;
        }
        let mut environment = Environment::of_machine(options.commit.as_deref());
        if let Some(host) = options.server {
            if options.device == DeviceName::Sim {
                return Err(Failure::usage("--server: not with --device sim"));
            }
            environment.server = Some(greeting::describe(host, summary::kind(&options.device))?);
        }
        Ok(Self {
            environment,
            options,
            ops,
        })
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
        let Self { options, ops, .. } = &self;
        if options.device == DeviceName::Sim {
            let mut rows;
            if depth::is_asked_for(options) {
                rows = depth::simulated::rows(options, ops)?;
            } else {
                rows = receives::in_turn(options, |step| simulated::rows(step, ops, details))?;
                least::add(options, ops, &mut rows)?;
            }
            return Ok(Measured {
                rows,
                summary: simulated::summary(options)?,
                machine: format!("{}.", self.environment.program()),
                noise: None,
                costs: None,
                comparison: self,
                network: None,
                processors: None,
                congestion: None,
            });
        }
        let network = options.set_delay.as_deref();
        let network = network.map(|command| Network::new(command, options.delay, complain));
        let network = network.transpose()?;
        // The other processor of the pair would be one of another host.
        let pin = options.pin && options.server.is_none();
        let processors = if pin { processor::pair() } else { None };
        if let Some((client, _)) = processors {
            processor::pin(client)?;
        }
        let setting = self.setting(network.as_ref(), processors, None);
        let (_floor_process, address) = targets::start_baseline(&setting)?;
        let mut floor = TcpBaseline::connect(address, options.congestion.as_ref())
            .context("cannot connect to the floor process")?;
        // A route can have a congestion control that sockets do not choose (ip-route(8), `congctl`).
        let granted = floor.congestion().context("the floor's connection")?;
        let setting = Setting {
            congestion: Some(granted.name()),
            ..setting
        };
        let (mut device, mut costs) = (String::new(), None);
        let begun = processor::Ticks::now();
        let mut measured = |step: &Options| {
            if depth::is_asked_for(step) {
                let rows;
                (rows, device) = depth::clock::rows(&setting, ops, show)?;
                depth::check_delayed(network.as_ref(), &rows, options.delay)?;
                return Ok(rows);
            }
            let setting = Setting {
                options: step,
                ..setting
            };
            let show = |what: &dyn fmt::Display| match options.receives.is_empty() {
                true => show(what),
                false => show(&format_args!("{}: {what}", receives::name(step))),
            };
            let mut rows;
            (rows, device, costs) = measure(&setting, &mut floor, ops, &show)?;
            if let Some(costs) = &costs {
                simulated::predict(step, costs, ops, &mut rows)?;
            }
            Ok(rows)
        };
        let mut rows = receives::in_turn(options, &mut measured)?;
        if !depth::is_asked_for(options) {
            least::add(options, ops, &mut rows)?;
        }
        let stolen = begun.and_then(|before| processor::Ticks::now()?.stolen_since(before));
        Ok(Measured {
            summary: summary(&setting, &device),
            machine: summary::machine(&self.environment, processors, stolen),
            // The sentences below the short table say what was disturbed, and by how much.
            noise: table::noise(&rows, options.full)
                .filter(|_| options.full || answer::cells(&rows).is_none()),
            rows,
            costs,
            comparison: self,
            network,
            processors,
            congestion: Some(granted.to_string()),
        })
    }

    /// Returns the default setting of all measurements, which single ones modify.
    fn setting<'a>(
        &'a self,
        network: Option<&'a Network>,
        processors: Option<(usize, usize)>,
        congestion: Option<&'a str>,
    ) -> Setting<'a> {
        let Self {
            environment,
            options,
            ops,
        } = self;
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
            congestion,
            environment,
        }
    }
}

impl Measured {
    /// Returns the rows as text tables, with a remark on how to read them.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        let options = &self.comparison.options;
        if self.is_of_receives() {
            return receives::tables(&self.rows);
        }
        if depth::is_asked_for(options) {
            return depth::tables(&self.rows);
        }
        if !options.full
            && let Some(table) = answer::table(&self.rows)
        {
            return vec![table];
        }
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
        let mut parts = vec![
            table::latency(&self.rows),
            table::throughput(&self.rows),
            table::costs(&self.rows),
        ];
        parts.extend(table::grants(&self.rows));
        parts.extend(trips::remark(&self.rows));
        parts.push(format!(
            "{trips}`rpcrdma compare --help` explains the columns."
        ));
        parts
    }

    /// Draws each operation of a simulation as ladders of all transfer modes. There are none of other
    /// measurements, of several calls in flight, and of receives of several lengths.
    ///
    /// # Errors
    /// An operation cannot be simulated.
    pub fn ladders(&self) -> Result<Vec<LadderFigure>, Failure> {
        let Comparison { options, ops, .. } = &self.comparison;
        let is_simulated = options.device == DeviceName::Sim;
        match is_simulated && !depth::is_asked_for(options) && !self.is_of_receives() {
            true => ladders::figures(options, ops),
            false => Ok(Vec::new()),
        }
    }

    /// Returns whether the rows have receives of the lengths that [`Options::receives`] lists.
    #[must_use]
    pub fn is_of_receives(&self) -> bool {
        !self.comparison.options.receives.is_empty()
    }

    /// Returns what was found, in paragraphs that are computed from the rows: round trips, interrupts
    /// and times by version 1 and by version 2. There are none if only one of them was measured.
    #[must_use]
    pub fn answer(&self) -> Vec<String> {
        match self.is_of_receives() {
            _ if depth::is_asked_for(&self.comparison.options) => Vec::new(),
            // One paragraph, so that all of the answer is seen at once on a terminal.
            false => {
                let sentences = answer::sentences(&self.rows);
                let paragraph = (!sentences.is_empty()).then(|| sentences.join(" "));
                paragraph.into_iter().collect()
            }
            true => receives::sentences(&self.rows),
        }
    }

    /// Returns remarks on how to read the short table; none for the full ones, which have their
    /// own.
    #[must_use]
    pub fn legend(&self) -> Vec<String> {
        let options = &self.comparison.options;
        if options.full || depth::is_asked_for(options) {
            return Vec::new();
        }
        let mut lines = answer::legend(&self.rows);
        lines.push("More: `--help`.".to_owned());
        lines
    }

    /// Returns sentences that say how often the variant that `explain` predicts to be the fastest
    /// was the fastest. There are none beside the answer alone, unless they are to be checked.
    #[must_use]
    pub fn predictions(&self) -> Vec<String> {
        let options = &self.comparison.options;
        let shown = options.full && !depth::is_asked_for(options) || options.exact;
        match shown && !self.is_of_receives() {
            true => prediction::report(&self.rows),
            false => Vec::new(),
        }
    }

    /// Returns the table of the costs that predictions went by, where these are shown.
    #[must_use]
    pub fn cost_table(&self) -> Option<String> {
        let options = &self.comparison.options;
        let costs = self.costs.as_ref()?;
        (options.full || options.exact || options.save_costs).then(|| costs.table())
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
        let Comparison { options, ops, .. } = &self.comparison;
        if options.device == DeviceName::Sim {
            return simulated::plans(options, ops);
        }
        let network = self.network.as_ref();
        let congestion = self.congestion.as_deref();
        let setting = self
            .comparison
            .setting(network, self.processors, congestion);
        explain::plans(&setting, ops)
    }
}

/// Returns the requested operations, one for each size that they can have. Those that are no
/// operations of this project are in the catalog.
///
/// # Errors
/// A size or an operation is not possible.
pub fn workloads(
    names: &[OpName],
    of_these: &[u64],
    catalog: &Catalog,
) -> Result<Vec<Arc<dyn Workload>>, Failure> {
    let mut sizes = Vec::new();
    for &size in of_these {
        match u32::try_from(size) {
            Ok(size) if (1..=MAX_RECORD).contains(&size) => sizes.push(size),
            _ => {
                let text = format!("--sizes: {size} is not from 1 to {MAX_RECORD} bytes");
                return Err(Failure::Usage(text));
            }
        }
    }
    let mut ops: Vec<Arc<dyn Workload>> = Vec::new();
    let of_sizes = |op: fn(u32) -> Op| sizes.iter().map(move |&size| Arc::new(op(size)) as Arc<_>);
    for name in names {
        match *name {
            OpName::Null => ops.push(Arc::new(Op::Null)),
            OpName::Getattr => ops.push(Arc::new(Op::Getattr)),
            OpName::Read => ops.extend(of_sizes(Op::Read)),
            OpName::Write => ops.extend(of_sizes(Op::Write)),
            OpName::Readdirplus => ops.push(Arc::new(Op::Readdirplus(LONG))),
            OpName::LongCall => ops.push(Arc::new(Op::LongCall(LONG))),
            OpName::LongBoth => ops.push(Arc::new(Op::LongBoth(LONG))),
            OpName::Tree => {}
            OpName::Added(name) => {
                let known = catalog.workload(name);
                let known = known.map_err(|error| Failure::Usage(format!("--ops: {error}")))?;
                ops.extend(of_its_sizes(known, &sizes)?);
            }
        }
    }
    Ok(ops)
}

/// Returns a workload that a program adds with the sizes of these that it can have, or as it is.
fn of_its_sizes(
    workload: &Arc<dyn Workload>,
    sizes: &[u32],
) -> Result<Vec<Arc<dyn Workload>>, Failure> {
    if !workload.has_sizes() {
        return Ok(vec![Arc::clone(workload)]);
    }
    let sized: Vec<_> = sizes
        .iter()
        .filter_map(|&size| workload.sized(size))
        .collect();
    if sized.is_empty() {
        let text = format!("--sizes: {} can have none of them", workload.name());
        return Err(Failure::Usage(text));
    }
    Ok(sized)
}

/// The rows, the device's name for itself, and the cost model if costs were measured or given.
type Found = (Vec<Row>, String, Option<Costs>);

fn measure(
    setting: &Setting<'_>,
    floor: &mut TcpBaseline,
    ops: &[Arc<dyn Workload>],
    show: Show<'_>,
) -> Result<Found, Failure> {
    let &Setting { options, mode, .. } = setting;
    let delay = options.delay;
    let budget = Budget {
        time: options.time,
        count: options.count,
    };
    let targets = options.via.len();
    let mut schedule = Schedule::new(show);
    let busy = null_to_spin(setting, ops);
    let calibration = Calibration::of(setting, ops)?;
    let calibrates = matches!(calibration, Calibration::Measured { .. });
    if calibrates {
        schedule.add("measuring what everything costs", calibration::TIME);
    }
    for op in ops {
        // Latency of the baseline and all targets, and throughput of the same.
        schedule.add_figures(
            format_args!("measuring {op}"),
            2 * (targets + 1),
            options.time,
        );
    }
    if options.ops.contains(&OpName::Tree) {
        schedule.add("copying trees", tree::TIME * targets as u32);
    }
    if let Some(op) = busy {
        let what = format_args!("measuring {op}, spinning");
        schedule.add_figures(what, 2 * (targets + 1), options.time);
    }
    if options.round_trips {
        let delay = trips_delay(options);
        let time =
            trips::time(setting.network, delay, options.count) * (targets * ops.len()) as u32;
        schedule.add("measuring round trips", time);
    }

    let measurement = |op, mode| Measurement {
        op,
        mode,
        delay,
        slowed: options.slows(),
        exact: options.exact,
    };
    if calibrates {
        schedule.begin_next();
    }
    let costs = calibration.costs(setting, floor)?;
    let mut rows = Vec::new();
    let mut started = targets::start_targets(setting)?;
    let device = started
        .iter()
        .find_map(|target| target.mounted().reached.device_name());
    for op in ops.iter().map(|op| &**op) {
        schedule.begin_next();
        let what = measurement(op, mode);
        let measured = measurement::measure(what, floor, &mut started, budget)?;
        if let Some(network) = setting.network {
            let mut p50s = measured.iter().filter_map(|row| row.p50_us);
            p50s.try_for_each(|p50| network.check(op, p50, delay))?;
        }
        rows.extend(measured);
    }
    if options.ops.contains(&OpName::Tree) {
        schedule.begin_next();
        rows.extend(tree::measure(mode, delay, &mut started)?);
    }
    drop(started);
    if let Some(op) = busy {
        schedule.begin_next();
        let mode = Mode::Busy;
        let mut started = targets::start_targets(&Setting { mode, ..*setting })?;
        let what = measurement(op, mode);
        let busy = measurement::measure(what, floor, &mut started, budget)?;
        let after = rows
            .iter()
            .take_while(|row: &&Row| row.op == op.name())
            .count();
        rows.splice(after..after, busy);
    }
    if options.round_trips {
        schedule.begin_next();
        trips::measure(setting, trips_delay(options), ops, &mut rows)?;
    }
    Ok((rows, device.unwrap_or_default(), costs))
}

/// Returns NULL if it is also measured spinning. What spinning gains shows best where there is
/// nothing but latency. It needs a processor for each side.
fn null_to_spin<'a>(
    setting: &Setting<'_>,
    ops: &'a [Arc<dyn Workload>],
) -> Option<&'a dyn Workload> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let two = setting.processors.is_some() || processors > 1;
    let spins = setting.options.full && setting.mode == Mode::Blocking && two;
    let mut ops = ops.iter().map(|op| &**op);
    ops.find(|op| spins && op.name() == OpName::Null.name())
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

/// Returns the sentence that describes the measurement.
fn summary(setting: &Setting<'_>, device: &str) -> String {
    let options = setting.options;
    let delays = || trips::delays(setting.network, trips_delay(options));
    let carried = Carried {
        options,
        device,
        congestion: setting.congestion,
        trips: options.round_trips.then(delays),
        ends: summary::ENDS,
    };
    let (protocols, load) = (summary::protocols(options), summary::load(options));
    format!("{protocols}, {load}; {}.", carried.describe())
}
