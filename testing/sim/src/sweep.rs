//! Many seeds, on all processors.

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rdma::Time;

use crate::{Pairing, Report, Swarm, Violation, simulate_plan};

/// What many seeds did and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Of those, that found something.
    pub failed: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Of those, without results.
    pub failures: u64,
    /// Calls from servers to clients.
    pub callbacks: u64,
    /// Faults that took place.
    pub faults: u64,
    /// Things that happened in fabrics.
    pub happenings: u64,
    /// Of those that spoke version 2, how many ran each [`Pairing`] of features, by its number.
    pub pairings: [u64; Pairing::COUNT],
    /// Real time it took.
    pub took: Duration,
}

impl Summary {
    /// Seeds a second, of real time.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.seeds as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Runs seeds on `threads` threads, hands each report to `each` as it comes, in no order, and ends
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
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || sender.send(run(swarm, seed, false)).is_err() {
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

/// The seed that the calling thread runs: for a panic hook, which is all that a program that aborts
/// gets to run.
#[must_use]
pub fn running() -> Option<u64> {
    RUNNING.get()
}

/// Runs one seed; a panic is something found as well, unless the program aborts at one.
#[must_use]
pub fn run(swarm: Swarm, seed: u64, explain: bool) -> Report {
    RUNNING.set(Some(seed));
    let caught = catch_unwind(AssertUnwindSafe(|| {
        simulate_plan(swarm.plan(seed), explain)
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
