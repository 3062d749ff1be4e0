//! Runs every case of every table. `cargo test -p hostile -- TEXT` runs those whose names contain
//! the text; `-- --list` only lists the cases.

#![allow(clippy::print_stdout, reason = "it is its own harness")]

use std::process::ExitCode;
use std::time::Instant;

use hostile::cases::{BEHIND_GATEWAY, Case, TABLES, Table};
use hostile::rig::SERVER;
use hostile::{Wrong, client, server, wrong};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The minimum number of cases, as a check of the tables.
const FEWEST: usize = 100;

/// The results so far.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    /// The maximum memory that this process had allocated, and the case in which it had.
    highest: (usize, String),
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list = args.iter().any(|arg| arg == "--list");
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|text| name.contains(*text));
    let (started, mut tally) = (Instant::now(), Tally::default());
    for table in TABLES.iter().chain(&BEHIND_GATEWAY) {
        if list {
            for case in (table.cases)(&[0; 32]) {
                println!("{}: test", name(table, &case));
            }
        } else if let Err(what) = run(table, &is_wanted, &mut tally) {
            tally.failed.push(format!("{}: {what}", table.name));
        }
    }
    if list {
        return ExitCode::SUCCESS;
    }
    let count = tally.passed + tally.failed.len();
    if wanted.is_empty() && count < FEWEST {
        tally.failed.push(format!("only {count} cases"));
    }
    for failed in &tally.failed {
        println!("FAILED {failed}");
    }
    println!(
        "hostile peers: {} cases passed, {} failed, in {:.1} s",
        tally.passed,
        tally.failed.len(),
        started.elapsed().as_secs_f64()
    );
    println!("memory bound: {}", SERVER.explain());
    println!(
        "highest seen: {:.1} MiB, in \"{}\"",
        mib(tally.highest.0),
        tally.highest.1
    );
    match tally.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn name(table: &Table, case: &Case) -> String {
    format!("{}: {} ({})", table.name, case.name(), case.section())
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs the selected cases of a table with one server.
fn run(table: &Table, is_wanted: &dyn Fn(&str) -> bool, tally: &mut Tally) -> Result<(), Wrong> {
    let mut fixture = table.fixture()?;
    let mut cases = (table.cases)(&fixture.bystander.file());
    for at in 0..cases.len() {
        let case = &cases[at];
        let name = name(table, case);
        if !is_wanted(&name) {
            continue;
        }
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let started = Instant::now();
        let ended = match case {
            Case::Client(case) => client::run(case, &mut fixture),
            Case::Server(case) => server::run(case, &mut fixture),
        };
        let peak = MEMORY.peak_usage();
        if peak > tally.highest.0 {
            tally.highest = (peak, name.clone());
        }
        match ended.and_then(|()| {
            within(
                (peak, fixture.bound()),
                peak.saturating_sub(before),
                case.growth() + fixture.passing(),
            )
        }) {
            Ok(()) => {
                tally.passed += 1;
                let (took, grew) = (started.elapsed().as_millis(), (peak - before) >> 10);
                println!("ok     {name}: {took} ms, {grew} KiB");
            }
            Err(what) => {
                println!("FAILED {name}: {what}");
                tally.failed.push(name);
                // A fresh server, so that resources leaked by this case are not attributed to the
                // next.
                fixture = table.fixture()?;
                cases = (table.cases)(&fixture.bystander.file());
            }
        }
    }
    Ok(())
}

/// Checks the memory of the whole process, and its growth in the case.
fn within((peak, bound): (usize, usize), grew: usize, may_grow: usize) -> Result<(), Wrong> {
    if peak > bound {
        return Err(wrong(format!(
            "{peak} bytes allocated, the bound is {bound}"
        )));
    }
    if grew > may_grow {
        return Err(wrong(format!(
            "it cost {grew} bytes, and may cost {may_grow}"
        )));
    }
    Ok(())
}
