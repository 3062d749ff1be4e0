//! Benchmarks that print ratios.
//!
//! An absolute time means little on a shared machine, or on another machine than the reader's. So
//! each benchmark here is compared with a yardstick in the same run, usually a plain copy of the
//! same number of bytes, and the last line that it prints is the time in units of the yardstick.

#![forbid(unsafe_code)]

pub mod calls;
pub mod nfs;

use std::time::{Duration, Instant};

use criterion::Criterion;

/// The number of pairs of turns, whose median ratio counts.
const TURNS: usize = 31;
/// The approximate length of one turn.
const TURN: Duration = Duration::from_millis(2);

/// Benchmarks `subject` and `yardstick`: first the times of both by Criterion, then their ratio
/// from alternating turns, so that other work on the machine affects both.
pub fn against<Y, S>(
    c: &mut Criterion,
    group: &str,
    (yardstick_name, mut yardstick): (&str, impl FnMut() -> Y),
    (subject_name, mut subject): (&str, impl FnMut() -> S),
) {
    let mut group = c.benchmark_group(group);
    group.warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_millis(600));
    group.sample_size(20);
    let mut wanted = false;
    group.bench_function(yardstick_name, |b| {
        wanted = true;
        b.iter(&mut yardstick);
    });
    group.bench_function(subject_name, |b| b.iter(&mut subject));
    group.finish();
    // Skipped if a filter excludes it, or if it only runs once as a test (`cargo test --benches`).
    let given = |flag: &str| std::env::args().any(|arg| arg == flag);
    if wanted && given("--bench") && !given("--test") {
        let ratio = ratio(&mut yardstick, &mut subject);
        announce(subject_name, ratio, yardstick_name);
    }
}

#[expect(clippy::print_stdout, reason = "what a benchmark is for")]
fn announce(subject: &str, ratio: f64, yardstick: &str) {
    println!("ratio: {subject} = {ratio:.3} x {yardstick}\n");
}

/// Returns the time of `subject` divided by that of `yardstick`: the median over alternating turns.
fn ratio<Y, S>(mut yardstick: impl FnMut() -> Y, mut subject: impl FnMut() -> S) -> f64 {
    let mut ratios: Vec<f64> = (0..TURNS)
        .map(|_| {
            let known = turn(&mut yardstick);
            turn(&mut subject) / known
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[TURNS / 2]
}

/// Returns the seconds per call, measured over about one turn.
fn turn<T>(mut call: impl FnMut() -> T) -> f64 {
    let (start, mut calls, mut batch) = (Instant::now(), 0u32, 1u32);
    loop {
        for _ in 0..batch {
            std::hint::black_box(call());
        }
        calls += batch;
        let elapsed = start.elapsed();
        if elapsed >= TURN {
            return elapsed.as_secs_f64() / f64::from(calls);
        }
        // With this, reading the clock costs little compared with the calls.
        batch = calls;
    }
}
