//! Benchmarks that print ratios.
//!
//! A time means little on a machine that is shared, or is not the reader's. So each benchmark here
//! stands beside a yardstick of the same run, usually a plain copy of as many bytes, and what it
//! prints last is how many yardsticks it takes.

#![forbid(unsafe_code)]

pub mod calls;

use std::time::{Duration, Instant};

use criterion::Criterion;

/// Pairs of turns that each ratio is the median of.
const TURNS: usize = 31;
/// How long one turn takes, about.
const TURN: Duration = Duration::from_millis(2);

/// Measures `subject` beside `yardstick`: times by Criterion for both, then their ratio from turns
/// that alternate, so that whatever else the machine does hits both.
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
    // Neither left out by a filter, nor run once to see that it works (`cargo test --benches`).
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

/// How often the one fits into the other: the median over alternating turns.
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

/// Seconds per call, over about one turn's time.
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
        // So that looking at the clock costs little beside what is measured.
        batch = calls;
    }
}
