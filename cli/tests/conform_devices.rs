//! Tests of `conform --device`: this project's own server and client, judged over the iwarp device. The lab does the
//! same over verbs devices (the lane `conform-verbs`).

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

mod common;

use std::fs;
use std::path::Path;

use serde_json::Value;

use common::{Finished, Proto, Server, is_iwarp, run};

/// Returns the entries of a report whose verdict is this.
fn of_verdict<'a>(report: &'a Value, verdict: &str) -> Vec<&'a Value> {
    let entries = report["entries"].as_array().unwrap().iter();
    entries.filter(|it| it["verdict"] == verdict).collect()
}

/// Checks that a judgement has no deviation, and returns its report.
fn passed(done: &Finished, json: &Path) -> Value {
    let summary = done.stdout.lines().last().unwrap();
    assert!(summary.contains(" cases passed, 0 deviations"), "{done:?}");
    serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap()
}

#[test]
fn our_server_passes_over_a_device() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [json, capture] = ["report.json", "cases.pcapng"].map(|name| dir.path().join(name));
    let server = Server::start(["--memory=64M"]);
    let words = [
        "conform",
        "--device",
        "iwarp",
        "--strict",
        &server.url(Proto::Rdma, "/memory"),
        "--json",
        json.to_str().unwrap(),
        "--capture",
        capture.to_str().unwrap(),
    ];
    let report = passed(&run(words).ok(), &json);
    assert_eq!(report["about"]["device"], "iwarp");
    let found = of_verdict(&report, "passed");
    for group in ["rfc8166/", "rfc8797/", "rpcrdma2-07/", "rpcrdma2-01/"] {
        let is_of = |it: &&&Value| it["address"].as_str().unwrap().starts_with(group);
        let count = found.iter().filter(is_of).count();
        assert!(count >= 10, "{group}: {count}");
    }
    assert!(found.len() >= 690, "{}", found.len());
    assert!(fs::metadata(capture).unwrap().len() > 100_000);
}

#[test]
fn our_client_passes_over_a_device_and_hidden_headers_are_not_applicable() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    let base = [
        "conform",
        "--listen",
        "127.0.0.1:0",
        "--device",
        "iwarp",
        "--strict",
        "--run",
        "own",
        "--json",
        json.to_str().unwrap(),
    ];
    // Chunks, the end of a connection, misused memory, and one version each with invalidation, with parts, and with
    // placed data.
    let only = [
        "rfc5040",
        "rfc8166/4.2",
        "rfc8166/4.4.1",
        "rfc8166/8.1",
        "rfc8166/3.4.6",
        "rpcrdma2-07/6.5",
        "rpcrdma2-07/6.3.9",
        "xcharext-02/2.1",
        "send-placement-00/6.2",
    ];
    let only = only.iter().flat_map(|it| ["--only", it]);
    let words: Vec<&str> = base.into_iter().chain(only).collect();
    let report = passed(&run(words).ok(), &json);
    let passed = of_verdict(&report, "passed");
    assert!(passed.len() >= 20, "{passed:#?}");
    let left = of_verdict(&report, "not-applicable");
    let framing = left.iter().find(|it| it["address"] == "rfc5040/4/1001");
    let why = framing.unwrap().to_string();
    assert!(
        why.contains("the device checks the headers of RDMA"),
        "{why}"
    );
}

#[test]
fn a_device_is_chosen_by_an_option_of_its_own() {
    let server = Server::start(["--memory=16M"]);
    let url = server.url(Proto::Rdma, "/memory");
    let wrong = |words: &[&str], why: &str| {
        let done = run([&["conform"], words].concat());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(done.stderr.contains(why), "{done:?}");
    };
    wrong(&["-o", "device=verbs", &url], "by --device");
    wrong(&["--registration", "windows", &url], "--device");
    wrong(&["--device", "sim", &url], "no device `sim`");
    let words = ["--device", "iwarp", "--registration", "windows", &url];
    wrong(&words, "only verbs devices have a choice");
    let words = ["--device=iwarp", "--registration=windows", "--run=own"];
    let words = [&words[..], &["--listen", "127.0.0.1:0"]].concat();
    wrong(&words, "only verbs devices have a choice");
}
