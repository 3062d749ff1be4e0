//! Runs seeds and prints which ones failed: `seeds FIRST..END`, with `--stop` only until the first
//! failure; or `seeds SEED` for its log. `--rpcrdma any`, `--rpcrdma 2wg`, `--hostile` and `--relays` are
//! those of `sim`. The libraries' tracing goes to standard error as `RUST_LOG` says.
#![expect(clippy::print_stdout, reason = "this is a program")]

use std::process::ExitCode;

use rpc_transport::rdma::Version;
use rpcrdma_sim::{Swarm, VersionsOf, run, sweep};

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let mut swarm = Swarm::default();
    let mut stop = false;
    let mut range = (0, 1000);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--rpcrdma" {
            swarm.versions = match arguments.next().as_deref() {
                Some("any") => VersionsOf::Free,
                Some("2wg") => VersionsOf::Only(Version::TWO_WG),
                _ => return usage(),
            };
            continue;
        }
        if argument == "--relays" {
            swarm.relays = true;
            continue;
        }
        if argument == "--hostile" {
            swarm.hostile = true;
            continue;
        }
        let number = |text: &str| text.parse::<u64>().ok();
        let numbers = argument.split_once("..");
        let numbers = numbers.and_then(|(first, end)| number(first).zip(number(end)));
        match (argument.as_str(), numbers, number(&argument)) {
            ("--stop", ..) => stop = true,
            (_, Some(numbers), _) => range = numbers,
            (_, _, Some(seed)) => return one(swarm, seed),
            _ => return usage(),
        }
    }
    many(swarm, range.0..range.1, stop)
}

fn usage() -> ExitCode {
    println!(
        "usage: seeds [--rpcrdma any|2wg] [--hostile] [--relays] [--stop] FIRST..END, or with SEED for its log"
    );
    ExitCode::from(2)
}

fn one(swarm: Swarm, seed: u64) -> ExitCode {
    let report = run(swarm, seed, true);
    print!("{}", report.log);
    for violation in &report.violations {
        println!("seed {seed}: {violation}");
    }
    ExitCode::from(u8::from(!report.violations.is_empty()))
}

fn many(swarm: Swarm, seeds: std::ops::Range<u64>, stop: bool) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let summary = sweep(swarm, seeds, threads, |report| {
        if let Some(violation) = report.violations.first() {
            println!("seed {}: {violation}", report.seed);
        }
        !stop || report.violations.is_empty()
    });
    println!(
        "{} seeds, {} failed; {} calls, {} without results, {} faults; {:.0} seeds a second",
        summary.seeds,
        summary.failed,
        summary.calls,
        summary.failures,
        summary.faults,
        summary.rate()
    );
    ExitCode::from(u8::from(summary.failed > 0))
}
