//! Tests of `conform --listen` on this project's own client.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use common::{Running, is_iwarp, patience, rpcrdma, run};

const LISTEN: [&str; 3] = ["conform", "--listen", "127.0.0.1:0"];

#[test]
fn our_client_passes_by_each_operation() {
    if !is_iwarp() {
        // The messages of the cases are iWARP's.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [junit, json, capture] =
        ["report.xml", "report.json", "cases.pcapng"].map(|name| dir.path().join(name));
    let files = [&junit, &json, &capture].map(|path| path.to_str().unwrap());
    let options = [
        "--strict",
        "--run",
        "own",
        "--junit",
        files[0],
        "--json",
        files[1],
        "--capture",
        files[2],
        // A plain server, a lost connection, a folder of long replies, and one longer than 4096 bytes by RDMA2_MSG.
        "--only",
        "rfc8166/3.5.1",
        "--only",
        "rfc8166/4.2",
        "--only",
        "rfc8166/4.3",
        "--only",
        "rtrext-00/9.3/1001",
    ];
    let done = run([&LISTEN[..], &options].concat()).ok();
    let summary = done.stdout.lines().last().unwrap();
    assert!(summary.contains(" cases passed, 0 deviations"), "{summary}");
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let entries = report["entries"].as_array().unwrap();
    assert!(entries.len() >= 12, "{}", entries.len());
    for operation in ["read", "write", "list"] {
        let is_of = |it: &&Value| {
            it["sends"]
                .as_str()
                .unwrap()
                .ends_with(&format!("({operation})"))
        };
        let passed = entries
            .iter()
            .filter(is_of)
            .filter(|it| it["verdict"] == "passed");
        assert!(passed.count() >= 1, "{operation}: {entries:#?}");
    }
    let xml = fs::read_to_string(junit).unwrap();
    assert_eq!(xml.matches("<testcase ").count(), entries.len());
    assert!(fs::metadata(capture).unwrap().len() > 10_000);
}

#[test]
fn our_client_is_told_each_version() {
    if !is_iwarp() {
        return;
    }
    let options = [
        "--strict",
        "--run",
        "own",
        "--only",
        "rpcrdma2-07/6.6",
        "--only",
        "rpcrdma2-07/5.2.2",
        "--only",
        "rpcrdma2-07/5.2.6",
        "--only",
        "rpcrdma2-01/rfc8166-4.3",
    ];
    let done = run([&LISTEN[..], &options].concat()).ok();
    let summary = done.stdout.lines().last().unwrap();
    assert!(summary.contains(" cases passed, 0 deviations"), "{summary}");
    let lines = |of: &str| done.stdout.lines().filter(|it| it.starts_with(of)).count();
    assert!(lines("ok      rpcrdma2-07/") >= 7, "{done:?}");
    assert!(lines("ok      rpcrdma2-01/") >= 4, "{done:?}");
    assert_eq!(lines("n/a"), 0, "{done:?}");
}

#[test]
fn the_first_message_of_a_client_tells_its_version() {
    if !is_iwarp() {
        return;
    }
    let built = env!("CARGO_BIN_EXE_rpcrdma");
    let ping = |version: &str| {
        let command = format!("ping={built} ping -o rpcrdma={version} --count=1 {{address}}");
        let options = [
            "--run",
            &command,
            "--only",
            "rfc8166/3.5.1",
            "--only",
            "rpcrdma2-07/6.6.1/1001",
            "--only",
            "rpcrdma2-01/rfc8166-3.5.1",
        ];
        let done = run([&LISTEN[..], &options].concat()).ok();
        let results = done.stdout.lines().map(|line| &line[..3]);
        results.take(3).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ping("1"), "ok  n/a n/a");
    assert_eq!(ping("2wg"), "n/a ok  n/a");
    assert_eq!(ping("{version}"), "ok  ok  ok ");
}

#[test]
fn wrong_output_of_the_client_is_a_deviation() {
    if !is_iwarp() {
        return;
    }
    let built = env!("CARGO_BIN_EXE_rpcrdma");
    let command = format!(
        "read={built} cat -o rpcrdma=1 nfs://{{address}}/conform/file | tr '\\000' '\\001'"
    );
    let options = ["--run", &command, "--only", "rfc8166/4.3.2/1001"];
    let done = run([&LISTEN[..], &options].concat());
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(
        done.stdout.contains("of what the client shows is wrong"),
        "{done:?}"
    );
}

#[test]
fn an_interrupt_leaves_a_report_of_the_cases_before() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [reading, json] = ["reading", "report.json"].map(|name| dir.path().join(name));
    let read = format!("read=touch {}; exec sleep 60", reading.display());
    let mut command = rpcrdma();
    command.args(LISTEN).args(["--run", "own", "--run", &read]);
    command.arg("--json").arg(&json);
    let mut running = Running::start(&mut command);
    let start = Instant::now();
    while !reading.exists() {
        assert!(start.elapsed() < patience(), "nothing reads");
        assert!(running.is_running(), "it has ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
    running.interrupt();
    let ended = running.finish();
    assert_eq!(ended.status.signal(), Some(2), "{ended:#?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let entries = report["entries"].as_array().unwrap();
    assert!(!entries.is_empty());
    let is_passed = |it: &Value| it["verdict"] == "passed";
    assert!(entries.iter().all(is_passed), "{entries:#?}");
    assert!(report["lost"].is_string(), "{report:#?}");
}

#[test]
fn a_client_that_does_not_connect_could_not_be_tested() {
    let options = ["--run", "echo {operation} {port} fails >&2; exit 3"];
    let done = run([&LISTEN[..], &options].concat());
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(done.stderr.contains("exit status 3: ping "), "{done:?}");
    assert!(!done.stderr.contains("ping 0 fails"), "{done:?}");
}

#[test]
fn cases_of_clients_are_listed_apart_and_with_the_others() {
    let clients = run([&LISTEN[..], &["--list"]].concat()).ok().stdout;
    assert!(clients.lines().count() >= 50, "{clients}");
    let is_of_client = |line: &str| {
        let address = line.split(' ').next().unwrap();
        let number = address.rsplit('/').next().unwrap();
        number.parse::<u32>().unwrap() > 1000
    };
    assert!(clients.lines().all(is_of_client), "{clients}");
    let all = run(["conform", "--list", "--only", "rfc8166/4.2.2"])
        .ok()
        .stdout;
    assert!(
        all.contains("rfc8166/4.2.2/1001 MUST: rdma_vers (ping): one"),
        "{all}"
    );
    let none = run([&LISTEN[..], &["--only", "rfc8166/4.2.1/1"]].concat());
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    let advice = "type rpcrdma conform --only rfc8166/4.2.1/1 nfs://";
    assert!(none.stderr.contains(advice), "{none:?}");
}
