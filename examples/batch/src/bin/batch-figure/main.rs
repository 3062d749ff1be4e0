//! Measures what the example extension saves: NULL calls of a real client to a real server, one by one
//! and in batches. The simulation's counts and times are exact; `--iwarp` measures over the software
//! iWARP device.

#![forbid(unsafe_code)]

mod ends;

use std::error::Error;
use std::process::Command;

use rpc_transport::rdma::Version;

use ends::{Cost, Ends};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const VERSIONS: [Version; 2] = [Version::TWO, Version::TWO_WG];
/// The number of messages that each end accepts in one transmission.
const TAKES: u32 = 64;

/// Returns the cost of a call: of so many calls, less what it costs to connect and to make a third of
/// them.
fn per_call(calls: u32, run: impl Fn(u32) -> Outcome<Cost>) -> Outcome<[f64; 3]> {
    let (few, many) = (run(calls / 3)?, run(calls)?);
    let calls = f64::from(calls - calls / 3);
    let time = many.time.saturating_sub(few.time).as_secs_f64() * 1e6;
    let counts = [many.sends - few.sends, many.interrupts - few.interrupts];
    Ok([
        counts[0] as f64 / calls,
        counts[1] as f64 / calls,
        time / calls,
    ])
}

/// Returns the number of system calls of a run by both ends, which are threads of one process, or `None`
/// without `strace`.
fn system_calls(ends: &Ends, calls: u32) -> Option<f64> {
    let of = |calls: u32| {
        let strace = Command::new("strace")
            .args(["-f", "-c", "-U", "calls,name"])
            .arg(std::env::current_exe().ok()?)
            .args(["--run", ends.version.name()])
            .args([ends.takes, ends.in_flight, calls].map(|number| number.to_string()))
            .output()
            .ok()?;
        let table = String::from_utf8(strace.stderr).ok()?;
        let total = table.lines().rev().find(|line| line.ends_with("total"))?;
        total.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (few, many) = (of(calls / 3)?, of(calls)?);
    Some((many - few) / f64::from(calls - calls / 3))
}

/// Makes calls over the software iWARP device and prints nothing, for `strace`.
fn run(words: &[String]) -> Outcome<()> {
    let [version, numbers @ ..] = words else {
        return Err("--run VERSION TAKES IN_FLIGHT CALLS".into());
    };
    let version = VERSIONS.into_iter().find(|it| it.name() == version);
    let numbers: Vec<u32> = numbers
        .iter()
        .map(|number| number.parse())
        .collect::<Result<_, _>>()?;
    let (Some(version), &[takes, in_flight, calls]) = (version, &numbers[..]) else {
        return Err("--run VERSION TAKES IN_FLIGHT CALLS".into());
    };
    let ends = Ends {
        version,
        takes,
        in_flight,
    };
    ends.over_iwarp(calls).map(drop)
}

#[expect(clippy::print_stdout, reason = "what this program is for")]
fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let iwarp = match words.first().map(String::as_str) {
        Some("--run") => return run(&words[1..]),
        Some("--iwarp") => true,
        _ => false,
    };
    let (device, more) = match iwarp {
        true => ("software iWARP", "  system calls"),
        false => ("the simulation", ""),
    };
    println!("a NULL call, by {device:<17}  time    Sends  interrupts{more}");
    for version in VERSIONS {
        for in_flight in [1, 4, 16, 64] {
            for (how, takes) in [("one by one", 1), ("batched", TAKES)] {
                let ends = Ends {
                    version,
                    takes,
                    in_flight,
                };
                let [sends, interrupts, time] = match iwarp {
                    true => per_call(60_000, |calls| ends.over_iwarp(calls))?,
                    false => per_call(2880, |calls| ends.simulated(calls))?,
                };
                let calls = iwarp.then(|| system_calls(&ends, 6000)).flatten();
                let calls = calls.map_or_else(String::new, |calls| format!("{calls:>14.2}"));
                let what = format!("{}, {in_flight} in flight, {how}", version.name());
                println!("{what:<29} {time:>8.2} µs {sends:>6.3} {interrupts:>11.3}{calls}");
            }
        }
    }
    Ok(())
}
