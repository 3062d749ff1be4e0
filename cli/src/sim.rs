//! The `sim` command: runs seeds of the simulator.

use std::panic;
use std::sync::Arc;
use std::thread;

use rdma::{Clock, Tap};
use rdma_capture::Origin;
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::units::count;
use rpcrdma_sim::{FeaturesOf, Report, Summary, Swarm, TapMaker, VersionsOf, running, sweep};

use crate::args::{ALL, ANY, SimArgs};
use crate::capture;
use crate::granted::Granted;
use crate::interrupt;
use crate::{output, trace};

/// Runs seeds, and prints their failures, each with the line by which this program repeats it.
///
/// # Errors
/// A seed failed, or standard output cannot be written to.
pub(crate) fn run(args: &SimArgs, catalog: &Catalog, program: &str) -> Result<(), Failure> {
    if args.seed.is_none() && args.capture.capture.is_some() {
        return Err(Failure::usage(
            "--capture needs --seed: one run is captured",
        ));
    }
    if args.seed.is_none() && args.trace.trace.is_some() {
        return Err(Failure::usage("--trace needs --seed: one run is traced"));
    }
    let granted = Arc::default();
    let how = How {
        swarm: args.swarm(catalog, &granted)?,
        selection: args.selection(),
        program: program.to_owned(),
    };
    name_seed_on_panic(how.clone());
    match args.seed {
        Some(seed) => one(seed, args, &how, &granted),
        None => many(args, &how, &granted),
    }
}

/// Prints what was granted by the policy that is selected, if one is.
fn print_granted(args: &SimArgs, granted: &Granted) -> Result<(), Failure> {
    match args.has_policy() {
        true => output::line(format_args!("{granted}")),
        false => Ok(()),
    }
}

/// The options that all seeds are run with.
#[derive(Clone, Debug)]
struct How {
    swarm: Swarm,
    /// The options for what a program adds, and for settings.
    selection: String,
    /// The name of this program.
    program: String,
}

/// Returns the command that repeats a seed with a full log.
fn again(seed: u64, how: &How) -> String {
    let How {
        swarm,
        selection,
        program,
    } = how;
    let resizing = if swarm.resizing { " --resizing" } else { "" };
    let features = match swarm.features {
        FeaturesOf::Seed => String::new(),
        FeaturesOf::Turns => format!(" --features {ALL}"),
        FeaturesOf::Only(pairing) => format!(" --features {pairing}"),
    };
    let versions = match swarm.versions {
        VersionsOf::Seed => String::new(),
        VersionsOf::Free => format!(" --rpcrdma {ANY}"),
        VersionsOf::Only(version) => format!(" --rpcrdma {version}"),
    };
    let hostile = if swarm.hostile { " --hostile" } else { "" };
    let relays = if swarm.relays { " --relays" } else { "" };
    format!(
        "{program} sim{resizing}{features}{versions}{hostile}{relays}{selection} --seed {seed} --explain"
    )
}

/// Prints the seed on a panic, which is a failure too and may end the program.
fn name_seed_on_panic(how: How) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        if let Some(seed) = running() {
            output::note(format_args!(
                "seed {seed} panicked; once more: {}",
                again(seed, &how)
            ));
        }
    }));
}

fn one(seed: u64, args: &SimArgs, how: &How, granted: &Granted) -> Result<(), Failure> {
    let capture = capture::open(&args.capture, capture::Clock::Virtual)?;
    let trace = trace::open(&args.trace, Clock::simulated())?;
    if capture.is_some() || trace.is_some() {
        interrupt::handle()?;
    }
    let tap = capture
        .map(|capture| move || Box::new(capture.tap("server", Origin::Messages)) as Box<dyn Tap>);
    let tap = tap.as_ref().map(|tap| tap as TapMaker<'_>);
    let report = rpcrdma_sim::run_observed(how.swarm, seed, args.explain, tap, trace);
    let outcome = match report.violations.len() {
        0 => Ok(()),
        count => Err(Failure::Work(format!(
            "seed {seed}: {count} violations; once more: {}",
            again(seed, how)
        ))),
    };
    let printed = print(&report).and_then(|()| print_granted(args, granted));
    output::ended(outcome, printed)
}

/// Prints the log of a seed, its violations and its totals.
fn print(report: &Report) -> Result<(), Failure> {
    output::bytes(folded(&report.log).as_bytes())?;
    for violation in &report.violations {
        output::line(format_args!("violation {violation}"))?;
    }
    output::line(format_args!(
        "seed {}: {} calls, {} of them without results, {}, {} events in {} s of virtual time",
        report.seed,
        report.calls,
        report.failures,
        count(report.faults, "fault", "faults"),
        report.happenings,
        report.took
    ))
}

/// Writes each run of equal lines as one line with their number. The work requests that the end of
/// a connection flushes are such lines: they have the same time and say the same.
fn folded(log: &str) -> String {
    let mut folded = String::with_capacity(log.len());
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let mut times = 1;
        while lines.next_if_eq(&line).is_some() {
            times += 1;
        }
        folded.push_str(line);
        if times > 1 {
            folded.push_str(&format!(" ({times} times)"));
        }
        folded.push('\n');
    }
    folded
}

fn many(args: &SimArgs, how: &How, granted: &Granted) -> Result<(), Failure> {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(processors, usize::from);
    let mut written = Ok(());
    let summary = sweep(how.swarm, args.seeds.clone(), threads, |report| {
        // Threads still report the seeds that they run when the output has ended.
        if written.is_ok() {
            written = found(&report, how);
        }
        written.is_ok()
    });
    let outcome = match summary.failed {
        0 => Ok(()),
        failed => Err(Failure::Work(format!("{failed} seeds found violations"))),
    };
    let printed = written
        .and_then(|()| print_granted(args, granted))
        .and_then(|()| print_summary(&summary, how.swarm));
    output::ended(outcome, printed)
}

/// Prints the totals of many seeds.
fn print_summary(summary: &Summary, swarm: Swarm) -> Result<(), Failure> {
    output::line(format_args!(
        "{} seeds in {:.1} s, {:.0} a second: {} calls, {} of them without results, {} callbacks, \
         {} faults, {} events",
        summary.seeds,
        summary.took.as_secs_f64(),
        summary.rate(),
        summary.calls,
        summary.failures,
        summary.callbacks,
        summary.faults,
        summary.happenings
    ))?;
    pairings(summary, swarm)?;
    match summary.failed {
        0 => output::line("no violation"),
        _ => Ok(()),
    }
}

/// Prints how often each combination of features was run.
fn pairings(summary: &Summary, swarm: Swarm) -> Result<(), Failure> {
    let counts = summary.pairings.iter();
    let (least, most) = (counts.clone().min(), counts.max());
    let is_free =
        swarm.features == FeaturesOf::Seed && !matches!(swarm.versions, VersionsOf::Only(_));
    if swarm.relays && is_free {
        let text = "each of three hops in a version, and with a pairing of features, of its own";
        return output::line(text);
    }
    // Between relays is what is asked for; clients and server choose for themselves.
    let places = match swarm.relays {
        true => "between the relays of all of them",
        false => "in all of them",
    };
    match (swarm.features, swarm.versions, least, most) {
        (FeaturesOf::Only(pairing), ..) => {
            output::line(format_args!("features {pairing} {places}"))
        }
        (_, VersionsOf::Only(version), ..) => {
            output::line(format_args!("version {version} {places}"))
        }
        (_, VersionsOf::Free, ..) => output::line("versions chosen by each seed"),
        (.., Some(0)) => output::line(
            "none of the 16 pairings of features, which are in the last 32 of every 64 seeds",
        ),
        (.., Some(least), Some(most)) => output::line(format_args!(
            "version 2 with each of the 16 pairings of features: {least} to {most} seeds"
        )),
        _ => Ok(()),
    }
}

fn found(report: &Report, how: &How) -> Result<(), Failure> {
    let Some(violation) = report.violations.first() else {
        return Ok(());
    };
    output::line(format_args!("seed {}: {violation}", report.seed))?;
    output::line(format_args!("  once more: {}", again(report.seed, how)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_differ_in_nothing_become_one() {
        let log = "1 a\n1 b\n1 b\n1 b\n2 b\n1 b\n\n";
        assert_eq!(folded(log), "1 a\n1 b (3 times)\n2 b\n1 b\n\n");
        assert_eq!(folded(""), "");
    }
}
