//! Runs seeds, and says which found something: `seeds FIRST..END`, or `seeds SEED` for its log.
//! What the libraries trace goes to standard error as `RUST_LOG` says.

use std::process::ExitCode;
use std::time::Instant;

use rpcrdma_sim::simulate;

#[expect(clippy::print_stdout, reason = "this is a program")]
fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let argument = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "0..1000".to_owned());
    let range = argument.split_once("..");
    let parse = |text: &str| text.parse::<u64>().unwrap_or(0);
    let Some((first, end)) = range.map(|(first, end)| (parse(first), parse(end))) else {
        let report = simulate(parse(&argument), true);
        println!("{}", report.log);
        return ExitCode::from(u8::from(!report.violations.is_empty()));
    };
    let start = Instant::now();
    let mut failed = 0;
    let (mut calls, mut failures, mut faults) = (0, 0, 0);
    for seed in first..end {
        let report = simulate(seed, false);
        calls += report.calls;
        failures += report.failures;
        faults += report.faults;
        if let Some(violation) = report.violations.first() {
            failed += 1;
            println!("seed {seed}: {violation}");
        }
    }
    let rate = (end - first) as f64 / start.elapsed().as_secs_f64();
    println!(
        "{} seeds, {failed} failed; {calls} calls, {failures} without results, {faults} faults; \
         {rate:.0} seeds a second",
        end - first
    );
    ExitCode::from(u8::from(failed > 0))
}
