//! Measures copying a tree to the server and back: calls of many kinds, many in flight.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nfs_copy::{CopyOptions, Report};
use rpcrdma_setup::{Context, Failure};

use crate::benchmark_target::BenchTarget;
use crate::latency::Latency;
use crate::measurement::rotated;
use crate::rows::{Mode, Row};
use crate::sample_tree::{self, Extent};
use crate::usage::Both;

/// The number of copies in each direction over each variant, which take turns.
const ROUNDS: u32 = 3;
/// The time that all copies over one variant take on a quiet machine, without delay.
pub(crate) const TIME: Duration = Duration::from_secs(3);
/// The name of the tree on the server.
const NAME: &[u8] = b"tree";
const MIB: f64 = 1_048_576.0;

/// The results of one direction over one variant.
#[derive(Default)]
struct Tally {
    times: Vec<Duration>,
    did: Both,
}

/// Copies a generated tree to the server and back over each target, and checks the result. Returns
/// a row for each direction. An operation is a copy of the whole tree.
///
/// # Errors
/// A copy failed, or its content differs.
pub(crate) fn measure(
    mode: Mode,
    delay: Duration,
    benches: &mut [BenchTarget],
) -> Result<Vec<Row>, Failure> {
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let source = scratch.path().join("source");
    let extent = sample_tree::make(&source).context("cannot generate a tree to copy")?;
    let mut tallies: Vec<[Tally; 2]> = benches.iter().map(|_| <[Tally; 2]>::default()).collect();
    for round in 0..ROUNDS {
        for index in rotated(benches.len(), round) {
            let (bench, [put, get]) = (&mut benches[index], &mut tallies[index]);
            let back = scratch.path().join("back");
            bench.resume()?;
            timed(bench, put, |bench| put_tree(bench, &source))?;
            timed(bench, get, |bench| get_tree(bench, &back))?;
            sample_tree::check(&back).context("the tree that came back")?;
            fs::remove_dir_all(&back).context("cannot remove the copied tree")?;
            remove_tree(bench)?;
            if mode.is_busy() {
                bench.pause()?;
            }
        }
    }
    let mut rows = Vec::new();
    for (way, op) in ["put-tree", "get-tree"].into_iter().enumerate() {
        for (bench, tallies) in benches.iter().zip(&tallies) {
            rows.push(row(op, mode, delay, bench, &tallies[way], extent));
        }
    }
    Ok(rows)
}

fn timed(
    bench: &mut BenchTarget,
    tally: &mut Tally,
    copy: impl FnOnce(&BenchTarget) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = bench.usage()?;
    let start = Instant::now();
    copy(bench)?;
    tally.times.push(start.elapsed());
    tally.did = tally.did + (bench.usage()? - before);
    Ok(())
}

fn options() -> CopyOptions {
    CopyOptions::default()
}

fn put_tree(bench: &BenchTarget, source: &Path) -> Result<(), Failure> {
    let mounted = bench.mounted();
    let pool = mounted.reached.pool();
    let options = options();
    let mut silent = |_: &_| {};
    let copying = nfs_copy::put(&mounted.mount, pool, source, NAME, &options, &mut silent);
    complete("put", mounted.reached.runtime.block_on(copying))
}

fn get_tree(bench: &BenchTarget, back: &Path) -> Result<(), Failure> {
    let mounted = bench.mounted();
    let options = options();
    let mut silent = |_: &_| {};
    let copying = nfs_copy::get(&mounted.mount, NAME, back, &options, &mut silent);
    complete("get", mounted.reached.runtime.block_on(copying))
}

fn remove_tree(bench: &BenchTarget) -> Result<(), Failure> {
    let mounted = bench.mounted();
    let options = options();
    let mut silent = |_: &_| {};
    let removing = nfs_copy::remove(&mounted.mount, NAME, &options, &mut silent);
    complete("rm", mounted.reached.runtime.block_on(removing))
}

fn complete(what: &str, report: Report) -> Result<(), Failure> {
    match (report.is_complete(), report.problems.first()) {
        (true, _) => Ok(()),
        (false, Some(problem)) => Err(Failure::Work(format!("{what}: {problem}"))),
        (false, None) => Err(Failure::Work(format!("{what}: given up"))),
    }
}

fn row(
    op: &'static str,
    mode: Mode,
    delay: Duration,
    bench: &BenchTarget,
    tally: &Tally,
    extent: Extent,
) -> Row {
    let mut latency = Latency::new();
    tally.times.iter().for_each(|&time| latency.record(time));
    let total: Duration = tally.times.iter().sum();
    let copies = tally.times.len() as f64;
    Row {
        op,
        size: Some(extent.bytes),
        mode,
        delay_us: delay.as_secs_f64() * 1e6,
        p50_us: latency.p50_us(),
        p99_us: latency.p99_us(),
        p999_us: latency.p999_us(),
        histogram: latency.encoded(),
        mib_per_s: Some(extent.bytes as f64 * copies / total.as_secs_f64() / MIB),
        ops_per_s: Some(copies / total.as_secs_f64()),
        ..bench.counted(tally.did, tally.times.len() as u64)
    }
}
