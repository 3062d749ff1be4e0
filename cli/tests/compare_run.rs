//! Tests of `compare --run`. Those that mount say on standard error that they were left out where
//! `/dev/fuse` is missing.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;

use common::fuse::{is_usable, until};
use common::{Finished, Running, compare_costs, compare_place, is_iwarp, rpcrdma};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Runs a command over versions 1 and 2.
#[track_caller]
fn compare(command: &str, args: &[&str]) -> Finished {
    let mut words = rpcrdma();
    words.args(["compare", "--run", command, "--runs", "3"]);
    words.args(compare_place()).args(compare_costs()).args(args);
    if !args.contains(&"--via") {
        words.args(["--via", "v1,v2-ddp-cont"]);
    }
    Running::start(&mut words).finish()
}

#[track_caller]
fn rows(command: &str, args: &[&str]) -> Vec<Value> {
    let finished = compare(command, &[&["--json", "-"], args].concat()).ok();
    assert!(!finished.stderr.contains("WARN"), "{finished:#?}");
    serde_json::from_str(&finished.stdout).expect("rows as JSON")
}

#[track_caller]
fn figure(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {row:#}"))
}

#[test]
fn a_command_that_cannot_run_is_a_usage_error_or_names_what_to_install() {
    let usage = |command: &str, args: &[&str], said: &str| {
        let finished = compare(command, args);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        assert!(finished.stderr.contains(said), "{finished:#?}");
    };
    usage(" ", &[], "--run: there is no command");
    usage("ls", &["-o", "proto=tcp"], "mount option proto");
    usage("ls", &["-o", "wsise=1k"], "did you mean");
    usage(
        "tree",
        &["--prepare", "touch x"],
        "--prepare: not with the preset tree",
    );
    usage("ls", &["--ops", "null"], "--ops");
    usage("ls", &["--no-pin"], "--no-pin");
    usage("ls", &["--via", "v1,v1"], "v1 is there twice");
    let mut words = rpcrdma();
    words.args(["compare", "--run", "ls", "--device", "sim"]);
    let finished = Running::start(&mut words).finish();
    assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
    assert!(
        finished.stderr.contains("--run: not with --device sim"),
        "{finished:#?}"
    );
    let mut words = rpcrdma();
    words.args(["compare", "--run", "fio"]).env("PATH", "/none");
    let finished = Running::start(&mut words).finish();
    finished.fails_with(&["the program fio is not installed", "tree, random, log"]);
}

#[test]
fn a_network_that_delays_nothing_is_an_error() {
    if is_iwarp() {
        let finished = compare("true", &["--delay", "50ms", "--set-delay", "true"]);
        finished.fails_with(&["a TCP connection took", "does not delay this traffic"]);
    }
}

#[test]
fn a_signal_to_compare_alone_ends_the_command_too() {
    if !is_usable() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let path = started.display();
    let command = format!("sleep 1000 & echo $! >{path}.new; mv {path}.new {path}; wait");
    let mut words = rpcrdma();
    words.args(["compare", "--run", &command, "--via", "v1"]);
    words.args(compare_place()).args(compare_costs());
    let comparing = Running::start(&mut words);
    until("a command", || started.exists());
    let sleep: i32 = fs::read_to_string(&started)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let sleep = Pid::from_raw(sleep).unwrap();
    let pid = Pid::from_raw(i32::try_from(comparing.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let finished = comparing.finish();
    assert_eq!(finished.status.signal(), Some(Signal::TERM.as_raw()));
    assert!(!finished.stderr.contains("failed"), "{finished:#?}");
    until("the end of what the command has started", || {
        // The first process of a container may not reap it.
        let stat = fs::read_to_string(format!("/proc/{}/stat", sleep.as_raw_nonzero()));
        stat.map_or(true, |stat| {
            let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
            state.is_none_or(|state| state.starts_with('Z'))
        })
    });
}

#[test]
fn rows_have_what_was_counted_and_timed() {
    if !is_usable() {
        return;
    }
    let rows = rows("log", &["--delay", "200us"]);
    let [v1, v2] = &rows[..] else {
        panic!("{rows:#?}");
    };
    assert_eq!(
        (&v1["transfer_mode"], &v2["transfer_mode"]),
        (&"v1".into(), &"v2-ddp-cont".into())
    );
    for row in [v1, v2] {
        assert_eq!(figure(row, "runs"), 3.0);
        // Each transaction is synced: it has at least one WRITE, and waits for a round trip.
        assert!(figure(&row["procedures"], "WRITE") >= 150.0, "{row:#}");
        assert!(figure(row, "operations") >= 150.0);
        assert!(figure(row, "round_trips") > 100.0, "{row:#}");
        let elapsed = figure(row, "elapsed_s");
        // 150 round trips of 400 us.
        assert!(elapsed > 0.06, "{row:#}");
        assert!(figure(row, "elapsed_min_s") <= elapsed && elapsed <= figure(row, "elapsed_max_s"));
        for process in ["cpu_command_s", "cpu_mount_s", "cpu_server_s"] {
            let cpu = figure(row, process);
            assert!(cpu > 0.0 && cpu < 60.0, "{process}: {row:#}");
        }
        assert_eq!(row["delay_us"], 200.0);
        // The mount copies what the kernel gives it, and the transport copies short messages once more.
        let copied = figure(row, "copied_bytes");
        assert!(copied >= figure(row, "rpc_bytes"), "{row:#}");
    }
    // What does not fit inline goes by chunks in version 1, and by Sends in version 2.
    assert!(figure(v1, "registrations") > 0.0 && figure(v1, "rdma_reads") > 0.0);
    assert_eq!(figure(v2, "rdma_reads"), 0.0, "{v2:#}");
    assert_eq!(v1["baseline_ratio"], 1.0);
    assert_eq!(v1["v1_ratio"], 1.0, "the old key");
}

#[test]
fn a_command_finds_what_was_prepared_and_nothing_else() {
    if !is_usable() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let html = dir.path().join("report.html");
    let finished = compare(
        "test \"$(ls)\" = there && cat there && pwd >>\"$WHERE\" && touch left",
        &[
            "--prepare",
            "echo text >there",
            "--no-trips",
            "--via",
            "tcp,wg-ddp",
            "-o",
            "nconnect=2,actimeo=0",
            "--html",
            html.to_str().unwrap(),
        ],
    );
    // WHERE is not set: the command fails, and says why.
    finished.fails_with(&["over tcp, run 1: the command failed", "exit status"]);
    let mut words = rpcrdma();
    let place = dir.path().join("where");
    words
        .env("WHERE", &place)
        .args(["compare", "--runs", "2", "--via", "tcp,wg-ddp"]);
    words.args(["--prepare", "echo text >there", "--no-trips"]);
    words.args([
        "--run",
        "test \"$(ls)\" = there && cat there && pwd >>\"$WHERE\" && touch left",
    ]);
    words.arg("--html").arg(&html).args(compare_place());
    let finished = Running::start(&mut words).finish().ok();
    // How long it takes, before it begins.
    for said in ["once, untimed, before 4 runs", "(run 1 of 4, at least "] {
        assert!(finished.stderr.contains(said), "{finished:#?}");
    }
    assert!(
        finished.stdout.contains("NFS calls over tcp: "),
        "{finished:#?}"
    );
    assert!(
        fs::read_to_string(&html)
            .unwrap()
            .contains("NFS operations")
    );
    let places = fs::read_to_string(&place).unwrap();
    // Two runs over each of two, and an untimed one before.
    assert_eq!(places.lines().count(), 5, "{places}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for place in places.lines() {
        assert!(
            !mounts.contains(place) && !fs::exists(place).unwrap(),
            "{place} is left"
        );
    }
}

#[test]
fn a_failed_command_is_shown_with_its_status_and_output() {
    if !is_usable() {
        return;
    }
    compare("echo to nobody; cat missing", &["--no-trips"])
        .fails_with(&["over v1, run 1: the command failed", "exit status: 1"]);
    let finished = compare("cat missing; exit 7", &["--no-trips"]);
    assert!(finished.stderr.contains("exit status: 7"), "{finished:#?}");
    assert!(
        finished.stderr.contains("missing: No such file"),
        "{finished:#?}"
    );
    compare("sleep 15 & true", &["--no-trips"]).fails_with(&["left a process behind"]);
}
