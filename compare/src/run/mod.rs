//! `compare --run`: what an application gains. A command runs in a mount over each transport and
//! variant, in turn.
//!
//! Each run has a server process of its own, with an empty file system in memory, and a new mount in
//! another process. So nothing is cached, nothing is left of the run before, and the processor time of
//! server, mount and command can be told apart. What was to be prepared is prepared through another
//! mount before. The time is that of the command alone, from its start to its end; it contains sending
//! everything that was written, since closing a file waits for that.
//!
//! Round trips are the slope of that time over the delay of the link: those that the command had to wait
//! for, one after the other. For that, every run is repeated over a longer link.

mod mount_process;
mod preset;
mod row;
mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use rpcrdma_host::CongestionControl;
use rpcrdma_setup::columns::Table;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::units::count;
use rpcrdma_setup::{Context, Failure};

use crate::child::ChildProcess;
use crate::environment::Environment;
use crate::measurement::rotated;
use crate::network::Network;
use crate::options::Options;
use crate::served::{Attach, Listening, PROCEDURES, Task, USAGE};
use crate::summary::{self, Carried};
use crate::targets::{self, Surroundings};
use crate::usage::{Both, Usage};
use crate::variant::Variant;

pub(crate) use mount_process::serve as serve_mount;
use mount_process::{MountProcess, MountUsage};
pub(crate) use preset::{Phase, Preset};
pub use row::RunRow;
use row::remark;
#[cfg(test)]
pub(crate) use row::tests;
pub(crate) use row::{cells, sentences};
pub use workload::end_command;
use workload::{Workload, children_cpu_ns};

/// The minimum and maximum difference between the delays of the two links that round trips are
/// measured with, each way. Below, it would vanish in the noise; above, it would take too long. Without
/// a delay, the shorter of the two has the minimum: a link with any delay needs timers, which take a
/// time that is no round trip.
const LONGER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// The mount options that the transport or variant decides.
const DECIDED: [&str; 14] = [
    "clientaddr",
    "device",
    "features",
    "mounthost",
    "mountport",
    "mountproto",
    "nfsvers",
    "port",
    "proto",
    "rdma",
    "registration",
    "rpcrdma",
    "tcp",
    "vers",
];

/// The command of a comparison, and how often it runs. It complements [`Options`], whose operations, sizes
/// and times do not matter here.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The command, for `/bin/sh`, or the name of a preset.
    pub command: String,
    /// A command that makes what the other one needs. It is not timed.
    pub prepare: Option<String>,
    /// The number of times that the command runs over each transport or variant.
    pub runs: u32,
    /// The mount options (those of nfs(5)), separated by commas.
    pub mount_options: String,
}

impl RunOptions {
    /// The default number of runs.
    pub const RUNS: u32 = 5;

    /// Returns the names of the presets. Another command is given to the shell.
    #[must_use]
    pub fn presets() -> Vec<&'static str> {
        Workload::presets()
    }

    /// Returns the transports and variants that are compared by default: TCP, and each version of
    /// RPC-over-RDMA, with all features, and version 1 with receives as long as these have.
    #[must_use]
    pub fn via() -> Vec<Variant> {
        vec![
            Variant::Tcp,
            Variant::V1Inv,
            Variant::V1Long,
            Variant::V2DdpCont,
            Variant::WgDdp,
        ]
    }
}

/// A validated description of a command and of how to run it.
#[derive(Clone, Debug)]
pub struct Runs {
    options: Options,
    run: RunOptions,
    workload: Workload,
}

/// The results for a command.
#[derive(Debug)]
pub struct MeasuredRuns {
    /// One row for each transport or variant.
    pub rows: Vec<RunRow>,
    /// A sentence that describes the measurement: the command, the device and the link.
    pub summary: String,
    /// A sentence about the machine and the build of this program.
    pub machine: String,
}

/// One run.
#[derive(Clone, Debug, Default)]
struct Sample {
    elapsed: Duration,
    command_cpu_ns: u64,
    mount: MountUsage,
    server: Usage,
    procedures: BTreeMap<String, u64>,
    registration: Option<&'static str>,
}

impl Sample {
    fn did(&self) -> Usage {
        let both = Both {
            client: self.mount.process,
            server: self.server,
        };
        both.total()
    }
}

/// The runs over one transport or variant.
#[derive(Debug, Default)]
struct Samples {
    /// Samples over the link that the user asked for.
    asked: Vec<Sample>,
    /// Pairs of samples over a shorter and a longer link, from which round trips are computed; empty if
    /// they are not measured. The shorter link can be the one that the user asked for.
    trips: Vec<[Sample; 2]>,
}

/// The delays, each way, of the links that a command runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delays {
    asked: Duration,
    /// The shorter and the longer link for round trips.
    trips: Option<[Duration; 2]>,
}

impl Delays {
    fn new(asked: Duration, round_trips: bool) -> Self {
        let (least, most) = LONGER;
        let shorter = if asked.is_zero() { least } else { asked };
        let longer = shorter + asked.clamp(least, most);
        Self {
            asked,
            trips: round_trips.then_some([shorter, longer]),
        }
    }

    /// Returns the delays of the links that a command runs over in a round, in turn. The order
    /// alternates, so that what gets slower or faster in a round is no link's.
    fn links(self, round: u32) -> Vec<Duration> {
        let mut links = vec![self.asked];
        links.extend(self.trips.into_iter().flatten());
        links.dedup();
        if round % 2 == 1 {
            links.reverse();
        }
        links
    }
}

impl Runs {
    /// Checks the options and returns the description.
    ///
    /// # Errors
    /// An option is invalid, or a preset's program is not installed.
    pub fn new(mut options: Options, run: RunOptions) -> Result<Self, Failure> {
        options.check_distinct()?;
        if options.device == DeviceName::Sim {
            let text = "--run: not with --device sim, where there is nothing to mount";
            return Err(Failure::usage(text));
        }
        options.tuning.check_measured()?;
        MountOptions::parse(&run.mount_options)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        for option in run.mount_options.split(',') {
            let name = option.split('=').next().unwrap_or_default();
            if DECIDED.contains(&name) {
                let text = format!("mount option {name}: not with --run, where --via decides that");
                return Err(Failure::Usage(text));
            }
            if name == "hard" {
                let text =
                    "mount option hard: not with --run, which does not wait for ever for a server";
                return Err(Failure::Usage(text.to_owned()));
            }
        }
        let workload = Workload::new(&run.command, run.prepare.as_deref())?;
        options.decide_congestion()?;
        Ok(Self {
            options,
            run,
            workload,
        })
    }

    /// Runs the command. `show` is called with each step; `complain`, if the delay of the network
    /// cannot be removed.
    ///
    /// # Errors
    /// A process cannot be started, nothing can be mounted, or the command fails: then with its exit
    /// status and the end of what it printed.
    pub fn measure(
        &self,
        show: &dyn Fn(&dyn fmt::Display),
        complain: fn(&Failure),
    ) -> Result<MeasuredRuns, Failure> {
        let options = &self.options;
        let network = options.set_delay.as_deref();
        let network = network.map(|command| Network::new(command, options.delay, complain));
        let network = network.transpose()?;
        let delays = Delays::new(options.delay, options.round_trips);
        let mut samples: Vec<Samples> = options.via.iter().map(|_| Samples::default()).collect();
        let runs = delays.links(0).len() * options.via.len();
        let all = self.run.runs * runs as u32;
        let mut number = 0;
        let once = |variant: Variant, delay, run| {
            let sample = self.once(variant, delay, network.as_ref());
            sample.map_err(|failure| match failure {
                Failure::Work(text) => {
                    Failure::Work(format!("over {}, run {run}: {text}", variant.name()))
                }
                other => other,
            })
        };
        // The machine's caches have nothing of the command before its first run, which would be
        // that of the first variant.
        let begun = Instant::now();
        if let Some(&first) = options.via.first() {
            let name = self.workload.name();
            let all = count(all.into(), "run", "runs");
            show(&format_args!("running {name} once, untimed, before {all}"));
            once(first, delays.asked, 1)?;
        }
        // Runs over longer links take longer than this one.
        let least = begun.elapsed() * all;
        let begun = Instant::now();
        for run in 1..=self.run.runs {
            for index in rotated(options.via.len(), run - 1) {
                let (variant, samples) = (options.via[index], &mut samples[index]);
                // The links take turns as well, so that a disturbance affects all.
                let mut over = BTreeMap::new();
                for delay in delays.links(run - 1) {
                    let left = match number {
                        0 => format!(", at least {} s", least.as_secs() + 1),
                        done => {
                            let left = begun.elapsed() * (all - done) / done;
                            format!(", about {} s left", left.as_secs() + 1)
                        }
                    };
                    number += 1;
                    show(&format_args!(
                        "running {} over {} (run {number} of {all}{left})",
                        self.workload.name(),
                        variant.name()
                    ));
                    over.insert(delay, once(variant, delay, run)?);
                }
                let over = |delay| over.get(&delay).cloned();
                samples.asked.extend(over(delays.asked));
                if let Some([shorter, longer]) = delays.trips {
                    let both = over(shorter).zip(over(longer));
                    samples.trips.extend(both.map(<[Sample; 2]>::from));
                }
            }
        }
        let congestion = options.congestion.as_ref().map(CongestionControl::name);
        let environment = Environment::of_machine(options.commit.as_deref());
        let surroundings = Surroundings {
            // The command decides where it runs.
            processors: None,
            congestion,
            environment: &environment,
        };
        let rows = row::rows(&self.workload, options, surroundings, delays, &samples)?;
        Ok(MeasuredRuns {
            rows,
            summary: self.summary(congestion, delays.trips),
            machine: summary::machine(&environment, None, None),
        })
    }

    /// Runs the command once over a link with a delay.
    fn once(
        &self,
        variant: Variant,
        delay: Duration,
        network: Option<&Network>,
    ) -> Result<Sample, Failure> {
        let options = &self.options;
        let added = match network {
            Some(network) => {
                network.set(delay)?;
                Duration::ZERO
            }
            None => delay,
        };
        let task = Task::Serve(targets::served(options, variant, added, false)?);
        let mut server = ChildProcess::start(variant.name(), &options.child, &task)?;
        let listening: Listening = server.answer()?;
        // Traffic of a verbs device may take another way.
        if let Some(network) = network
            && options.device == DeviceName::Iwarp
        {
            network.check_connecting(listening.address, delay)?;
        }
        let attach = Attach {
            variant: variant.name().to_owned(),
            device: options.device.to_string(),
            registration: options.registration.to_string(),
            server: listening.address,
            delay: added,
            rate: options.rate,
            inline: options.inline,
            crc: options.crc,
            congestion: options.congestion.as_ref().map(ToString::to_string),
            costs: options.costs.as_ref().map(ToString::to_string),
            tuning: options.tuning.words(),
            mount_options: self.run.mount_options.clone(),
        };
        let perform = |phase, mount: &MountProcess| {
            self.workload.perform(phase, &mount.at.path, &options.child)
        };
        if self.workload.prepares() {
            // A mount of its own, so that the timed one begins with empty caches.
            let mount = MountProcess::start(&attach, &options.child)?;
            perform(Phase::Prepare, &mount)?;
            mount.end()?;
        }
        let mut mount = MountProcess::start(&attach, &options.child)?;
        let mut state = |mount: &mut MountProcess| {
            let (client, server_usage): (_, Usage) = (mount.usage()?, server.ask(USAGE)?);
            let procedures: BTreeMap<String, u64> = server.ask(PROCEDURES)?;
            Ok::<_, Failure>((client, server_usage, procedures, children_cpu_ns()?))
        };
        let before = state(&mut mount)?;
        let begun = Instant::now();
        perform(Phase::Run, &mount)?;
        let elapsed = begun.elapsed();
        let after = state(&mut mount)?;
        let registration = mount.at.registration();
        mount.end()?;
        let mut procedures = after.2;
        for (name, count) in &mut procedures {
            *count -= before.2.get(name).copied().unwrap_or(0);
        }
        Ok(Sample {
            elapsed,
            command_cpu_ns: after.3.saturating_sub(before.3),
            mount: MountUsage {
                process: after.0.process - before.0.process,
                calls: after.0.calls - before.0.calls,
                rpc_bytes: after.0.rpc_bytes - before.0.rpc_bytes,
            },
            server: after.1 - before.1,
            procedures,
            registration,
        })
    }

    fn summary(&self, congestion: Option<&str>, trips: Option<[Duration; 2]>) -> String {
        let options = &self.options;
        let carried = Carried {
            options,
            device: &options.device.to_string(),
            congestion,
            trips,
            ends: summary::ENDS,
        };
        let mounted = match self.run.mount_options.as_str() {
            "" => String::new(),
            options => format!(" -o {options}"),
        };
        format!(
            "`{}` in a mount{mounted}, {} over each transport, in turn; {}.",
            self.workload.name(),
            count(self.run.runs.into(), "time", "times"),
            carried.describe(),
        )
    }
}

/// Does a part of a preset in the current directory.
///
/// # Errors
/// The error of the operating system, or data that is not what was written.
pub(crate) fn perform(preset: Preset, phase: Phase) -> Result<(), Failure> {
    let at = std::env::current_dir().context("cannot find the current directory")?;
    preset.perform(phase, &at).context(preset.name())
}

impl MeasuredRuns {
    /// Returns the rows as a text table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut lines = cells(&self.rows).into_iter();
        let Some(headings) = lines.next() else {
            return String::new();
        };
        let mut table = Table::new(1, headings.each_ref().map(String::as_str)).narrow();
        lines.for_each(|line| table.push(line));
        table.render()
    }

    /// Returns what was found, in sentences that are computed from the rows.
    #[must_use]
    pub fn answer(&self) -> Vec<String> {
        let mut out = sentences(&self.rows);
        out.extend(remark(&self.rows));
        out
    }

    /// Returns remarks on how to read the table.
    #[must_use]
    pub fn legend(&self) -> Vec<String> {
        vec![
            "seconds: from the start of the command to its end, the median of all runs, and the least \
             and the most. x: the time divided by that of version 1, the median of the rounds' \
             ratios, and the least and the greatest; `?` where some rounds have it shorter and some \
             longer, `~` a ratio of fewer than five. trips: round trips that the command \
             waited for, the slope of its time over added delay. NFS ops, MiB: calls of the mount, and \
             the bytes of calls and replies. Reads, Writes, reg: RDMA Reads and Writes, and memory \
             registrations, of both sides."
                .to_owned(),
            "CPU seconds of the command with its child processes, of the process that serves the \
             mount, and of the server. What the kernel does for FUSE is in these, by whoever asks it to."
                .to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests_of_links {
    use super::*;

    #[test]
    fn round_trips_are_measured_between_two_links_with_a_delay() {
        let ms = Duration::from_millis;
        let trips = |delay| Delays::new(delay, true).trips.unwrap();
        assert_eq!(trips(ms(0)), [ms(1), ms(2)]);
        assert_eq!(trips(ms(1)), [ms(1), ms(2)]);
        assert_eq!(
            trips(Duration::from_micros(50)),
            [Duration::from_micros(50), Duration::from_micros(1050)]
        );
        assert_eq!(trips(ms(50)), [ms(50), ms(70)]);
        let count = |delay, round_trips| Delays::new(delay, round_trips).links(0).len();
        assert_eq!(
            [count(ms(0), true), count(ms(1), true), count(ms(0), false)],
            [3, 2, 1]
        );
        let links = |round| Delays::new(ms(0), true).links(round);
        assert_eq!(links(0), [ms(0), ms(1), ms(2)]);
        assert_eq!(links(1), [ms(2), ms(1), ms(0)]);
        assert_eq!(links(2), links(0));
    }
}
