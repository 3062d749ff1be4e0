//! `compare --gateway`: what two gateways cost, and what a version between them brings to a client and a server that
//! speak TCP.
//!
//! A call passes three hops: TCP from the client to the first gateway, RPC-over-RDMA to the last one, and TCP to the server.
//! Each hop is measured alone in the same run, with a client and a server of its own, and what the pair costs is set
//! against the sum. The client and the first gateway share a processor, as they share a host; so do the last gateway and the
//! server. With a delay between the gateways, the pair is set against TCP from client to server over the same delay, and
//! round trips are told by the clock and counted in a capture.
//!
//! There is no simulation of this: its hosts have no TCP.

mod count;
mod measure;
mod pair;
mod process;
mod row;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::{Context, Failure};

use crate::environment::Environment;
use crate::options::{OpName, Options};
use crate::processor;
use crate::rows::Mode;
use crate::schedule::Schedule;
use crate::summary::{self, Carried};
use crate::targets::{self, Setting};
use crate::tcp_baseline::TcpBaseline;
use crate::trips;
use crate::variant::Variant;
use crate::workloads;

pub(crate) use process::serve_relay;
pub use row::GatewayRow;

/// A validated description of a comparison with gateways.
#[derive(Clone, Debug)]
pub struct GatewayComparison {
    environment: Environment,
    options: Options,
    ops: Vec<Arc<dyn Workload>>,
}

/// The results of a comparison with gateways.
#[derive(Debug)]
pub struct MeasuredGateways {
    /// One row for each operation, size and variant between the gateways.
    pub rows: Vec<GatewayRow>,
    /// A sentence that describes the measurement.
    pub summary: String,
    /// A sentence about the machine and the build of this program.
    pub machine: String,
}

impl GatewayComparison {
    /// Returns the options that differ by default from those of a comparison without gateways: each version of
    /// RPC-over-RDMA between the gateways, without features for fewer round trips and with them.
    #[must_use]
    pub fn options() -> Options {
        Options {
            via: vec![
                Variant::V1Inv,
                Variant::V2,
                Variant::V2DdpCont,
                Variant::Wg,
                Variant::WgDdp,
            ],
            ops: vec![OpName::Null, OpName::Getattr, OpName::Read, OpName::Write],
            time: Duration::from_millis(200),
            ..Options::default()
        }
    }

    /// Checks the options and returns the comparison that they describe.
    ///
    /// # Errors
    /// An option is invalid or has no meaning here.
    pub fn new(mut options: Options) -> Result<Self, Failure> {
        check(&options)?;
        options.check_distinct()?;
        options.check_costs()?;
        let ops = workloads(&options.ops, &options.sizes, &options.tuning.catalog)?;
        options.tuning.check_measured()?;
        options.decide_congestion()?;
        Ok(Self {
            environment: Environment::of_machine(options.commit.as_deref()),
            options,
            ops,
        })
    }

    /// Performs the measurements. `show` is called with each step.
    ///
    /// # Errors
    /// A process cannot be started, or an operation fails.
    pub fn measure(self, show: &dyn Fn(&dyn fmt::Display)) -> Result<MeasuredGateways, Failure> {
        let Self {
            environment,
            options,
            ops,
        } = &self;
        let processors = if options.pin { processor::pair() } else { None };
        if let Some((client, _)) = processors {
            processor::pin(client)?;
        }
        // `--rate` applies only to the delayed links (`over_delay`), not to this measurement.
        let near = Options {
            rate: None,
            ..options.clone()
        };
        let setting = Setting {
            options: &near,
            mode: Mode::Blocking,
            delay: Duration::ZERO,
            network: None,
            ops,
            processors,
            congestion: None,
            environment,
        };
        let granted = {
            let (_process, address) = targets::start_baseline(&setting)?;
            let connected = TcpBaseline::connect(address, options.congestion.as_ref());
            let congestion = connected.and_then(|baseline| baseline.congestion());
            congestion.context("cannot connect over TCP")?
        };
        let setting = Setting {
            congestion: Some(granted.name()),
            ..setting
        };
        let delay = delay(options);
        let begun = processor::Ticks::now();
        let mut schedule = Schedule::new(show);
        measure::plan(&mut schedule, &setting);
        if options.round_trips {
            let time = measure::time_over_delay(&setting, delay);
            schedule.add("measuring over a longer link", time);
        }
        let mut rows = measure::rows(&setting, &mut schedule)?;
        if options.round_trips {
            schedule.begin_next();
            let setting = Setting { options, ..setting };
            measure::over_delay(&setting, delay, &mut rows)?;
        }
        let stolen = begun.and_then(|before| processor::Ticks::now()?.stolen_since(before));
        let carried = Carried {
            options: &Options {
                delay: Duration::ZERO,
                ..options.clone()
            },
            device: &options.device.to_string(),
            congestion: Some(granted.name()),
            trips: options.round_trips.then(|| trips::delays(None, delay)),
            ends: measure::ENDS,
        };
        let load = summary::load(options);
        Ok(MeasuredGateways {
            summary: format!(
                "NFSv3 over TCP to a gateway, RPC-over-RDMA to another one, TCP to the server; {load}; {}.",
                carried.describe()
            ),
            machine: summary::machine(environment, processors, stolen),
            rows,
        })
    }
}

/// Returns the delay each way of the link between the gateways.
fn delay(options: &Options) -> Duration {
    match options.delay {
        Duration::ZERO => trips::DELAY,
        delay => delay,
    }
}

/// Checks that options mean something here.
fn check(options: &Options) -> Result<(), Failure> {
    let tcp = options.via.contains(&Variant::Tcp);
    let refused = [
        (
            options.device == DeviceName::Sim,
            "--device sim: the simulation has no TCP for clients and servers; measure with iwarp, or check gateways \
             with `rpcrdma sim --relays`",
        ),
        (
            tcp,
            "--via tcp: name what is to pass between the gateways; TCP alone is measured in any case",
        ),
        (
            options.server.is_some(),
            "--server: leave it out, as client, gateways and server are all on this machine",
        ),
        (
            options.set_delay.is_some(),
            "--set-delay: it would also delay TCP to the gateways; --delay delays what passes between them alone",
        ),
        (
            options.busy_poll,
            "--busy-poll: leave it out, as a client, two gateways and a server would spin on two processors",
        ),
        (
            options.full,
            "--full: say what to measure with --via, --ops and --sizes",
        ),
        (
            !options.receives.is_empty(),
            "--receives: give all receives of version 2 one length with --inline",
        ),
        (
            !options.in_flight.is_empty() || !options.arrivals.is_empty() || options.clients != [1],
            "--in-flight, --clients and --arrivals: leave them out; `rpcrdma load` puts load on a gateway",
        ),
        (
            options.ops.contains(&OpName::Tree),
            "--ops tree: name single calls; `rpcrdma put -r` copies trees through a gateway",
        ),
        (
            options.exact || options.save_costs,
            "--check-explain and --save-costs: these are for `rpcrdma compare` without gateways",
        ),
        (
            !options.round_trips && options.slows(),
            "--no-trips: leave it out, as only the link that round trips are measured over has --delay and --rate",
        ),
        (
            options.capture.is_some(),
            "--capture: `rpcrdma gateway --capture FILE` writes what passes over RDMA",
        ),
        (
            options.trace.is_some(),
            "--trace: `rpcrdma gateway --trace FILE` writes a timeline of calls",
        ),
    ];
    match refused.into_iter().find(|(given, _)| *given) {
        Some((_, text)) => Err(Failure::Usage(format!("{text} (--gateway)"))),
        None => Ok(()),
    }
}

impl MeasuredGateways {
    /// Returns the rows as text tables.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        table::tables(&self.rows)
    }

    /// Returns what was found, in sentences that are computed from the rows.
    #[must_use]
    pub fn answer(&self) -> Vec<String> {
        table::sentences(&self.rows)
    }
}

#[cfg(test)]
mod tests_of_options {
    use super::*;

    #[test]
    fn options_without_meaning_are_refused_with_what_to_do_instead() {
        let refused = |change: fn(&mut Options)| {
            let mut options = GatewayComparison::options();
            change(&mut options);
            let made = GatewayComparison::new(options);
            made.map(drop).map_err(|failure| failure.to_string())
        };
        assert_eq!(refused(|_| ()), Ok(()));
        type Change = fn(&mut Options);
        let with: [(Change, &str); 12] = [
            (|it| it.device = DeviceName::Sim, "sim --relays"),
            (|it| it.via.push(Variant::Tcp), "name what is to pass"),
            (
                |it| it.server = Some(([192, 0, 2, 1], 1).into()),
                "all on this machine",
            ),
            (
                |it| it.set_delay = Some("true".to_owned()),
                "--delay delays",
            ),
            (|it| it.busy_poll = true, "leave it out"),
            (|it| it.full = true, "--via, --ops and --sizes"),
            (|it| it.receives = vec![4096], "--inline"),
            (|it| it.clients = vec![2], "rpcrdma load"),
            (|it| it.ops.push(OpName::Tree), "name single calls"),
            (|it| it.exact = true, "without gateways"),
            (
                |it| (it.round_trips, it.delay) = (false, trips::DELAY),
                "--no-trips: leave it out",
            ),
            (|it| it.via.push(Variant::V2), "v2 is there twice"),
        ];
        for (change, said) in with {
            let text = refused(change).unwrap_err();
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
