//! Runs many seeds on all processors.

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rdma::Time;
use rdma::trace::Trace;

use crate::relays;
use crate::{Pairing, Plan, Report, Swarm, TapMaker, Violation, simulate_plan};

/// The result of many seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of seeds that were run.
    pub seeds: u64,
    /// The number of seeds that failed.
    pub failed: u64,
    /// The number of calls that ended.
    pub calls: u64,
    /// The number of calls that ended without results.
    pub failures: u64,
    /// The number of calls from servers to clients.
    pub callbacks: u64,
    /// The number of calls that waited for memory for their replies, at relays.
    pub waits: u64,
    /// The number of faults that happened.
    pub faults: u64,
    /// The number of events in fabrics.
    pub happenings: u64,
    /// The number of runs of each [`Pairing`] of features, by its number.
    pub pairings: [u64; Pairing::COUNT],
    /// The duration in real time.
    pub took: Duration,
}

impl Summary {
    /// Returns the number of seeds per second of real time.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.seeds as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Runs seeds on `threads` threads. Passes each report to `each`, in no particular order, and ends
/// early when that returns false.
pub fn sweep(
    swarm: Swarm,
    seeds: Range<u64>,
    threads: usize,
    mut each: impl FnMut(Report) -> bool,
) -> Summary {
    let start = Instant::now();
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let mut summary = Summary::default();
    thread::scope(|scope| {
        let (sender, reports) = mpsc::channel();
        for _ in 0..threads.max(1) {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let after = |seed: u64| (seed < seeds.end).then(|| seed + 1);
                    let seed = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
                    let Ok(seed) = seed else { return };
                    if sender.send(run(swarm, seed, false)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for report in reports {
            summary.seeds += 1;
            summary.failed += u64::from(!report.violations.is_empty());
            summary.calls += report.calls;
            summary.failures += report.failures;
            summary.callbacks += report.callbacks;
            summary.waits += report.waits;
            summary.faults += report.faults;
            summary.happenings += report.happenings;
            if let Some(number) = report.pairing {
                summary.pairings[number] += 1;
            }
            if !each(report) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    summary.took = start.elapsed();
    summary
}

thread_local! {
    /// The seed that this thread runs.
    static RUNNING: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Returns the seed that the calling thread runs, for a panic hook, which is the last code that
/// runs in a program that aborts on panics.
#[must_use]
pub fn running() -> Option<u64> {
    RUNNING.get()
}

/// Runs one seed. A panic is reported as a violation, unless the program aborts on panics.
#[must_use]
pub fn run(swarm: Swarm, seed: u64, explain: bool) -> Report {
    run_observed(swarm, seed, explain, None, None)
}

/// Runs one seed as [`run`] does. With `tap`, a new one observes the server's traffic after each of
/// its starts. `trace` observes the calls of all hosts, with their own clocks. The run is the same.
#[must_use]
pub fn run_observed(
    swarm: Swarm,
    seed: u64,
    explain: bool,
    tap: Option<TapMaker<'_>>,
    trace: Option<Trace>,
) -> Report {
    RUNNING.set(Some(seed));
    let caught = catch_unwind(AssertUnwindSafe(|| {
        if swarm.relays {
            return relays::simulate(seed, &swarm, explain);
        }
        let plan = Plan {
            trace,
            ..swarm.plan(seed)
        };
        simulate_plan(plan, explain, tap)
    }));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let violation = Violation {
            at: Time::ZERO,
            what: format!("panicked: {}", text.unwrap_or("for no reason given")),
        };
        Report {
            seed,
            violations: vec![violation],
            ..Report::default()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seeds_are_run_and_no_others() {
        let mut run = Vec::new();
        sweep(Swarm::default(), u64::MAX - 2..u64::MAX, 3, |report| {
            run.push(report.seed);
            run.len() < 10
        });
        run.sort();
        assert_eq!(run, [u64::MAX - 2, u64::MAX - 1]);
    }
}
