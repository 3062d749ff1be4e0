//! Tests of `compare` with several operations in flight, several clients, and arrivals.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;

use std::process::{Command, Stdio};

use common::{Finished, Running, compare_place, is_iwarp, rpcrdma};
use serde_json::Value;

/// The counts of what both sides do for an operation, whatever is in flight.
const ALWAYS: [&str; 4] = [
    "rdma_reads",
    "rdma_writes",
    "registrations",
    "invalidations",
];
/// The greatest number of Sends for an operation that only grant credits.
const MOST_GRANTS: f64 = 0.25;

#[track_caller]
fn compare(args: &[&str]) -> Finished {
    let mut command = rpcrdma();
    command.arg("compare").args(args);
    if !args.contains(&"sim") {
        command.args(compare_place());
    }
    Running::start(&mut command).finish()
}

#[track_caller]
fn rows(args: &[&str]) -> Vec<Value> {
    let finished = compare(&[&["--json", "-"], args].concat()).ok();
    serde_json::from_str(&finished.stdout).expect("rows as JSON")
}

/// Returns a figure, or none where it is null.
#[track_caller]
fn figure(row: &Value, key: &str) -> Option<f64> {
    let value = row.get(key).unwrap_or_else(|| panic!("no {key}: {row:#}"));
    value.as_f64()
}

/// The bounds are those that docs/compare-in-flight.md states.
#[test]
fn counts_with_several_in_flight_are_those_of_the_simulation() {
    if !is_iwarp() {
        return;
    }
    let asked = [
        "--in-flight",
        "1,16",
        "--ops",
        "null,write",
        "--sizes",
        "8k",
        "--via",
        "v1-inv,v2-ddp-cont,wg-ddp",
    ];
    let exact = rows(&[&asked[..], &["--device", "sim"]].concat());
    let timed = rows(&[&asked[..], &["--time", "60ms"]].concat());
    assert_eq!((exact.len(), timed.len()), (12, 12));
    for (exact, timed) in exact.iter().zip(&timed) {
        for key in [
            "op",
            "size",
            "transfer_mode",
            "in_flight",
            "clients",
            "credits",
        ] {
            assert_eq!(exact[key], timed[key], "{key}: {timed:#}");
        }
        let differs = |key, own: f64, other: f64| {
            assert!(
                (own - other).abs() < 0.01,
                "{key}: {own}, not {other}: {timed:#}"
            );
        };
        for key in ALWAYS {
            let both = (figure(timed, key), figure(exact, key));
            let (Some(own), Some(other)) = both else {
                panic!("{key}: {both:?}");
            };
            differs(key, own, other);
        }
        // Sends without grants, of which there are more or fewer.
        let grants = [exact, timed].map(|row| figure(row, "grants").unwrap_or(0.0));
        let sends = |row: &Value, grants| figure(row, "sends").unwrap() - grants;
        differs("sends", sends(timed, grants[1]), sends(exact, grants[0]));
        assert!(
            grants.iter().all(|&grants| grants <= MOST_GRANTS),
            "{grants:?}"
        );
        let is_wg = timed["transfer_mode"] == "wg-ddp";
        assert_eq!(timed["grants"].is_null(), !is_wg);
        // Where several are in flight, fewer interrupts are needed: it depends on the machine how many.
        for row in [exact, timed] {
            for key in ["interrupts_requester", "interrupts_responder"] {
                let most = if is_wg || row["in_flight"] == 1 {
                    2.3
                } else {
                    1.3
                };
                let most = if row["op"] == "write" {
                    most + 1.0
                } else {
                    most
                };
                let got = figure(row, key).unwrap();
                assert!(got > 0.0 && got < most, "{key}: {row:#}");
            }
            for key in [
                "p50_us",
                "p99_us",
                "ops_per_s",
                "wire_bytes",
                "copied_bytes",
            ] {
                assert!(figure(row, key).is_some(), "{key}: {row:#}");
            }
            // What a row of several in flight cannot have is empty.
            for key in [
                "round_trips",
                "predicted_us",
                "latency_over_delay",
                "tcp_baseline_p50_us",
                "receive_memory_requester",
                "receive_memory_responder",
                "arrivals_per_s",
            ] {
                assert!(row[key].is_null(), "{key}: {row:#}");
            }
        }
    }
}

#[test]
fn several_clients_take_their_own_connections() {
    let rows = rows(&[
        "--device",
        "sim",
        "--clients",
        "3",
        "--in-flight",
        "4",
        "--ops",
        "null",
        "--via",
        "v1-inv,wg",
    ]);
    for row in &rows {
        assert_eq!((&row["clients"], &row["credits"]), (&3.into(), &4.into()));
    }
    assert_eq!(rows.len(), 2);
    let timed = compare(&[
        "--clients",
        "2",
        "--ops",
        "null",
        "--via",
        "tcp,v1-inv",
        "--time",
        "20ms",
    ]);
    let text = timed.ok().stdout;
    for part in [
        "credits",
        "Each of 2 clients has so many operations in flight",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn operations_arrive_at_a_rate() {
    let asked = ["--arrivals", "2000", "--ops", "null", "--via", "v2"];
    for row in [
        &rows(&[&asked[..], &["--device", "sim"]].concat())[0],
        &rows(&[&asked[..], &["--time", "450ms"]].concat())[0],
    ] {
        assert_eq!(row["arrivals_per_s"], 2000.0);
        assert!(row["in_flight"].is_null());
        // Neither 256 arrivals nor those of half a second are exactly as many as the rate says.
        let per_s = figure(row, "ops_per_s").unwrap();
        assert!((1200.0..3000.0).contains(&per_s), "{row:#}");
    }
}

#[test]
fn contradictions_are_refused() {
    for (args, part) in [
        (&["--in-flight", "0"][..], "--in-flight: 0 is not from 1"),
        (
            &["--in-flight", "4", "--arrivals", "5"],
            "not with --arrivals",
        ),
        (&["--arrivals", "0"], "--arrivals: 0 is no rate"),
        (
            &["--clients", "128", "--device", "sim"],
            "--clients: 128 is not from 1 to 127",
        ),
        (&["--in-flight", "4", "--receives", "4k"], "--receives"),
        (&["--in-flight", "4", "--html", "page.html"], "--html"),
        (&["--clients", "2", "--ops", "tree"], "--ops tree"),
        (&["--in-flight", "4,4"], "--in-flight: 4 is there twice"),
    ] {
        let refused = compare(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {refused:?}");
        assert!(
            refused.stderr.contains(part),
            "{args:?}: {}",
            refused.stderr
        );
    }
}

/// The rounds of a comparison.
const ROUNDS: usize = 9;
/// The system calls that `sys c` and `sys s` are made of, by the names that the kernel has for them.
const COUNTED: [&str; 15] = [
    "sendto",
    "sendmsg",
    "recvfrom",
    "recvmsg",
    "read",
    "readv",
    "write",
    "writev",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "getsockopt",
    "timerfd_settime",
];

/// Returns the rows of a comparison, and the system calls of all its processes by their first lines in strace's log, or
/// none where strace is missing or may not trace.
fn traced(words: &[&str]) -> Option<(Vec<Value>, Vec<String>)> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    let command = rpcrdma();
    let strace = || {
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-e"])
            .arg(format!("trace={}", COUNTED.join(",")));
        strace.arg("-o").arg(&file);
        strace
    };
    let probe = strace().arg("true").output().ok()?;
    if !probe.status.success() {
        return None;
    }
    let mut strace = strace();
    strace.arg(command.get_program()).arg("compare").args(words);
    strace.args(["--json", "-"]).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let output = strace.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(&file).unwrap();
    // A call that was interrupted in the log by another process goes on in a line of its own.
    let begin = |line: &&str| {
        let call = line.split_whitespace().nth(1);
        call.is_some_and(|call| {
            COUNTED
                .iter()
                .any(|name| call.starts_with(&format!("{name}(")))
        })
    };
    let calls = log.lines().filter(begin).map(str::to_owned).collect();
    Some((serde_json::from_slice(&output.stdout).unwrap(), calls))
}

/// The calls that rows are of stand in strace's log between two questions to the server what it has used so far.
#[test]
fn system_calls_are_those_that_strace_counts() {
    if !is_iwarp() {
        return;
    }
    for via in ["tcp", "v2"] {
        let ops = ["--ops", "null,read", "--sizes", "4k", "--in-flight", "1,8"];
        let words = [&ops[..], &["--via", via, "--count", "900"]].concat();
        let Some((rows, calls)) = traced(&words) else {
            eprintln!("not compared: strace is missing, or may not trace");
            return;
        };
        let counted = rows.iter().map(|row| {
            let keys = ["system_calls_requester", "system_calls_responder"];
            let each: f64 = keys.map(|key| figure(row, key).unwrap()).iter().sum();
            each * figure(row, "count").unwrap()
        });
        let counted: f64 = counted.sum();
        let asks = |call: &String| call.contains(" write(") && call.contains("\"usage");
        let parts: Vec<&[String]> = calls.split(asks).collect();
        // Before the first question, and between the turns, nothing is measured.
        let traced: usize = parts.iter().skip(1).step_by(2).map(|part| part.len()).sum();
        assert_eq!(parts.len(), 1 + 2 * ROUNDS * rows.len(), "{via}");
        assert!(counted > 4.0 * 900.0, "{via}: {counted}");
        assert!(
            (counted / traced as f64 - 1.0).abs() < 0.02,
            "{via}: counted {counted}, strace {traced}"
        );
    }
}

/// RDMA Writes that arrive together, with the Sends behind them, take one read, and are not copied.
#[test]
fn results_in_chunks_that_arrive_together_share_system_calls() {
    if !is_iwarp() {
        return;
    }
    let asked = ["--ops", "read", "--sizes", "4k,16k", "--in-flight", "16"];
    let more = ["--via", "tcp,v2", "--crc", "off", "--count", "2000"];
    for pair in rows(&[&asked[..], &more].concat()).chunks(2) {
        let [tcp, v2] = [0, 1].map(|at| figure(&pair[at], "system_calls_requester").unwrap());
        assert!(v2 < 1.15 * tcp, "{v2}, TCP {tcp}: {pair:#?}");
        let copied = figure(&pair[1], "copied_bytes").unwrap();
        assert!(copied < 2048.0, "{pair:#?}");
    }
}

/// A call in flight costs each end at least a read, a write and a wait. With several, they are shared.
#[test]
fn system_calls_are_counted_at_each_depth() {
    let asked = ["--ops", "null", "--via", "tcp,v2", "--in-flight", "1,16"];
    let timed = rows(&[&asked[..], &["--time", "60ms"]].concat());
    let keys = ["system_calls_requester", "system_calls_responder"];
    if !is_iwarp() {
        assert!(
            timed
                .iter()
                .any(|row| keys.iter().all(|key| row[key].is_null()))
        );
        return;
    }
    for key in keys {
        let calls: Vec<f64> = timed.iter().map(|row| figure(row, key).unwrap()).collect();
        for at in 0..2 {
            assert!((3.0..8.0).contains(&calls[at]), "{key}: {calls:?}");
            assert!(calls[at + 2] < 0.7 * calls[at], "{key}: {calls:?}");
        }
    }
    let simulated = rows(&[
        "--ops",
        "null",
        "--via",
        "v2",
        "--in-flight",
        "1",
        "--device",
        "sim",
    ]);
    assert!(keys.iter().all(|key| simulated[0][key].is_null()));
}
