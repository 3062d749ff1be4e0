//! Runs every case of every table. `cargo test -p hostile -- TEXT` runs those whose names contain
//! the text; `-- --list` only lists the cases.
//!
//! Each table has a process of its own, as memory is that of a process, and several run at a time, as most of
//! them wait most of the time: RUST_TEST_THREADS, or [`AT_A_TIME`].

#![allow(clippy::print_stdout, reason = "it is its own harness")]

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hostile::cases::{BEHIND_GATEWAY, Case, GATEWAY_SERVERS, TABLES, Table};
use hostile::rig::SERVER;
use hostile::{Wrong, client, server, wrong};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The minimum number of cases, as a check of the tables.
const FEWEST: usize = 100;
/// The number of tables that run at a time by default.
const AT_A_TIME: usize = 4;

/// The option that names the table of a process.
const OF_TABLE: &str = "--table=";
/// The beginnings of the lines by which a process says what a case came to.
const PASSED: &str = "ok     ";
const FAILED: &str = "FAILED ";
/// The beginning of the last line of a process: the most memory that it had allocated, in bytes, and the case in
/// which it had.
const HIGHEST: &str = "highest ";

/// The results so far.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    /// The maximum memory that a process had allocated, and the case in which it had.
    highest: (usize, String),
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    if let Some(table) = args.iter().find_map(|arg| arg.strip_prefix(OF_TABLE)) {
        return run_table(table, &wanted);
    }
    if args.iter().any(|arg| arg == "--list") {
        for table in tables() {
            for case in (table.cases)(&[0; 32]) {
                println!("{}: test", name(table, &case));
            }
        }
        return ExitCode::SUCCESS;
    }
    let started = Instant::now();
    let mut tally = run_all(&wanted);
    let count = tally.passed + tally.failed.len();
    if wanted.is_empty() && count < FEWEST {
        tally.failed.push(format!("only {count} cases"));
    } else if count == 0 {
        tally
            .failed
            .push(format!("no case has {wanted:?} in its name"));
    }
    for failed in &tally.failed {
        println!("{FAILED}{failed}");
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

fn tables() -> impl Iterator<Item = &'static Table> {
    static ALL: [&[Table]; 3] = [&TABLES, &BEHIND_GATEWAY, &GATEWAY_SERVERS];
    ALL.iter().copied().flatten()
}

fn name(table: &Table, case: &Case) -> String {
    format!("{}: {} ({})", table.name, case.name(), case.section())
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs the selected cases of all tables.
fn run_all(wanted: &[&String]) -> Tally {
    let threads = std::env::var("RUST_TEST_THREADS").ok();
    let threads = threads.and_then(|text| text.parse().ok());
    let names: Vec<&str> = tables().map(|table| table.name).collect();
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(AT_A_TIME).clamp(1, names.len()) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) = follow(name, wanted, &tally) {
                        add(&tally, |tally| tally.failed.push(format!("{name}: {what}")));
                    }
                }
            });
        }
    });
    tally
        .into_inner()
        .unwrap_or_else(|error| error.into_inner())
}

/// Runs a table in a process, shows what it says, and counts its cases.
fn follow(table: &str, wanted: &[&String], tally: &Mutex<Tally>) -> Result<(), Wrong> {
    let program = std::env::current_exe().map_err(wrong)?;
    let mut command = Command::new(program);
    command.arg(format!("{OF_TABLE}{table}")).args(wanted);
    let mut process = command.stdout(Stdio::piped()).spawn().map_err(wrong)?;
    let (mut failed, mut is_whole) = (0, false);
    let said = process.stdout.take().map(BufReader::new);
    for line in said.into_iter().flat_map(BufRead::lines) {
        let line = line.map_err(wrong)?;
        if let Some(highest) = line.strip_prefix(HIGHEST) {
            let (bytes, case) = highest.split_once(' ').unwrap_or_default();
            let highest = (bytes.parse().map_err(wrong)?, case.to_owned());
            add(tally, |tally| {
                if tally.highest.0 < highest.0 {
                    tally.highest = highest;
                }
            });
            is_whole = true;
            continue;
        }
        println!("{line}");
        if line.starts_with(PASSED) {
            add(tally, |tally| tally.passed += 1);
        } else if let Some(case) = line.strip_prefix(FAILED) {
            failed += 1;
            add(tally, |tally| tally.failed.push(case.to_owned()));
        }
    }
    let status = process.wait().map_err(wrong)?;
    match is_whole && status.success() == (failed == 0) {
        true => Ok(()),
        false => Err(wrong(format!("its process ended with {status}"))),
    }
}

fn add(tally: &Mutex<Tally>, change: impl FnOnce(&mut Tally)) {
    // A thread that panicked has left whole numbers and texts.
    change(&mut tally.lock().unwrap_or_else(|error| error.into_inner()));
}

/// Runs the selected cases of the table with this name, in this process.
fn run_table(table: &str, wanted: &[&String]) -> ExitCode {
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|text| name.contains(*text));
    let mut tally = Tally::default();
    let found = tables().find(|it| it.name == table);
    let found = found.ok_or_else(|| wrong("there is no such table"));
    if let Err(what) = found.and_then(|table| run(table, &is_wanted, &mut tally)) {
        println!("{FAILED}{table}: {what}");
        tally.failed.push(table.to_owned());
    }
    println!("{HIGHEST}{} {}", tally.highest.0, tally.highest.1);
    match tally.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs the selected cases of a table with one server.
fn run(table: &Table, is_wanted: &dyn Fn(&str) -> bool, tally: &mut Tally) -> Result<(), Wrong> {
    let mut fixture = table.fixture()?;
    let mut cases = (table.cases)(&fixture.bystander.file());
    // Tables are made of others by filters, and one that leaves nothing would pass.
    if cases.is_empty() {
        return Err(wrong("the table has no cases"));
    }
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
                let (took, grew) = (started.elapsed().as_millis(), (peak - before) >> 10);
                println!("{PASSED}{name}: {took} ms, {grew} KiB");
            }
            Err(what) => {
                println!("{FAILED}{name}: {what}");
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
