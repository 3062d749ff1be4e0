//! Tests of `load`, with servers of this project.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Instant;

use common::{Finished, Proto, Running, Server, device, patience, rpcrdma, run};
use serde_json::Value;

/// Returns the mount options by which the servers are reached.
fn options(way: &str) -> String {
    match way {
        "tcp" => "proto=tcp".to_owned(),
        version => format!("rpcrdma={version},device={}", device()),
    }
}

fn url(server: &Server, way: &str) -> String {
    let proto = if way == "tcp" {
        Proto::Tcp
    } else {
        Proto::Rdma
    };
    server.url(proto, "/data")
}

#[track_caller]
fn load(server: &Server, way: &str, args: &[&str]) -> Finished {
    let mut words = vec![
        "load".to_owned(),
        "-o".to_owned(),
        options(way),
        url(server, way),
    ];
    words.extend(args.iter().map(|&word| word.to_owned()));
    run(words)
}

#[track_caller]
fn rows(finished: Finished) -> Vec<Value> {
    let json: Value = serde_json::from_str(&finished.ok().stdout).expect("JSON");
    json["rows"].as_array().expect("rows").clone()
}

/// A short run of several connections and threads.
const SHORT: [&str; 12] = [
    "-c",
    "3",
    "-n",
    "5",
    "--threads",
    "2",
    "-t",
    "10ms",
    "-r",
    "5",
    "--json",
    "-",
];

#[test]
fn calls_are_made_by_every_transport_and_nothing_is_left() {
    let place = tempfile::tempdir().expect("a directory");
    let server = Server::of(place.path());
    let pid = server.pid().to_string();
    for way in ["tcp", "1", "2", "2wg"] {
        let words = [&SHORT[..], &["--server-pid", &pid]].concat();
        let rows = rows(load(&server, way, &words));
        let made: Vec<_> = rows
            .iter()
            .map(|row| (row["op"].clone(), row["size"].clone()))
            .collect();
        let expected = [
            ("getattr", None),
            ("read", Some(4096)),
            ("write", Some(8192)),
        ];
        assert_eq!(
            made,
            expected.map(|(op, size)| (Value::from(op), Value::from(size)))
        );
        for row in &rows {
            let of = |key: &str| {
                row[key]
                    .as_f64()
                    .unwrap_or_else(|| panic!("{way}: no {key}: {row}"))
            };
            // Every call of a round is counted even in the shortest one, and more are made before.
            assert!(of("calls") >= 5.0 * 15.0, "{way}: {row}");
            assert!(of("calls_made") > of("calls"), "{way}: {row}");
            assert!(
                of("server_us") > 0.0 && of("p99_us") >= of("p50_us"),
                "{way}: {row}"
            );
        }
        let left = fs::read_dir(place.path()).expect("a directory").count();
        assert_eq!(left, 0, "{way}");
    }
}

/// Regression test: the directory for the calls stayed on the server.
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let place = tempfile::tempdir().expect("a directory");
    let server = Server::of(place.path());
    let mut load = rpcrdma();
    load.args(["load", "-o", "proto=tcp", &url(&server, "tcp")]);
    load.args(["--ops", "write", "-t", "20ms", "-r", "1000"]);
    let client = Running::start(&mut load);
    let entries = || fs::read_dir(place.path()).expect("a directory").count();
    let start = Instant::now();
    while entries() == 0 {
        assert!(start.elapsed() < patience(), "nothing is made");
        thread::yield_now();
    }
    client.interrupt();
    let ended = client.finish();
    assert_eq!(ended.status.signal(), Some(2), "{ended:#?}");
    assert_eq!(entries(), 0, "{ended:#?}");
}

/// Servers that take turns have their own figures, and ratios to the first one.
#[test]
fn servers_take_turns() {
    let place = tempfile::tempdir().expect("a directory");
    let (one, other) = (Server::of(place.path()), Server::of(place.path()));
    let beside = format!("v2 {} {} {}", other.pid(), options("2"), url(&other, "2"));
    let pid = one.pid().to_string();
    let words = [
        "--server-pid",
        &pid,
        "--name",
        "a name of 20 letters",
        "--beside",
        &beside,
        "-t",
        "5ms",
        "-r",
        "6",
        "--ops",
        "read,getattr",
    ];
    let text = load(&one, "tcp", &words).ok().stdout;
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert!(text.find("read 4 KiB") < text.find("getattr"), "{text}");
    assert!(text.contains("latency includes queueing"), "{text}");
    let words = [&words[..], &["--sizes", "1k,64k", "--json", "-"]].concat();
    let rows = rows(load(&one, "tcp", &words));
    assert_eq!(rows.len(), 6);
    for rows in rows.chunks(2) {
        assert_eq!(
            (&rows[0]["ratio"], &rows[0]["rate_ratio"]),
            (&1.0.into(), &1.0.into())
        );
        let of = |key: &str| rows[1][key].as_f64().expect("a number");
        let ends = rows[1]["ratio_interval"].as_array().expect("an interval");
        let [low, high] = [0, 1].map(|end| ends[end].as_f64().expect("a number"));
        assert!(
            low > 0.0 && low <= of("ratio") && of("ratio") <= high,
            "{rows:?}"
        );
        assert!(of("server_us") > 0.0, "{rows:?}");
    }
}

/// A server that ends during the run is a failure and no endless wait.
#[test]
fn a_server_that_ends_is_a_failure() {
    let place = tempfile::tempdir().expect("a directory");
    let server = Server::of(place.path());
    let options = format!("{},soft,timeo=10,retrans=1", options("tcp"));
    let mut command = rpcrdma();
    command.args(["load", "-t", "10s", "-o", &options, &url(&server, "tcp")]);
    let mut running = Running::start(&mut command);
    // It has begun when there are files in its directory.
    let made = || {
        let own = fs::read_dir(place.path()).expect("a directory").next();
        let files = own.and_then(|own| fs::read_dir(own.ok()?.path()).ok());
        files.is_some_and(|files| files.count() > 0)
    };
    while !made() && running.is_running() {
        thread::yield_now();
    }
    server.kill();
    running.finish().fails_with(&["no reply"]);
}

#[test]
fn a_server_that_refuses_is_a_failure() {
    let place = tempfile::tempdir().expect("a directory");
    let server = Server::start(["--export", &format!("data={}:ro", place.path().display())]);
    load(&server, "tcp", &SHORT).fails_with(&["cannot make a directory"]);
}

#[test]
fn wrong_input_is_explained() {
    let url = "nfs://127.0.0.1:1/memory";
    for (args, status, said) in [
        (&["-o", "proto=tcp", url][..], 1, "cannot connect"),
        (&["-o", "proto=tpc", url], 2, "proto=tpc"),
        (&["-o", "nconnect=2", url], 2, "--connections"),
        (&["-o", "ro", url], 2, "has to be written"),
        (&["-r", "4", url], 2, "--rounds"),
        (&["-c", "0", url], 2, "--connections"),
        (&["-c", "1", "--threads", "2", url], 2, "threads"),
        (&["-t", "0", url], 2, "time"),
        (&["--ops", "tree", url], 2, "only for compare"),
        (&["--ops", "frobnicate", url], 2, "getattr"),
        (&["--ops", "read,read", url], 2, "read 4 KiB is there twice"),
        (&["--sizes", "17M", url], 2, "--sizes"),
        (&["--server-pid", "0", url], 2, "--server-pid"),
        (&["--server-pid", "8388609", url], 1, "8388609"),
        (&["--beside", "x y", url], 2, "NAME PID OPTIONS URL"),
        (
            &["--beside", &format!("server - - {url}"), url],
            2,
            "two servers have this name",
        ),
        (&["127.0.0.1"], 2, "nfs://"),
        (&[], 2, "nfs://"),
    ] {
        let finished = run([&["load"], args].concat());
        assert_eq!(
            finished.status.code(),
            Some(status),
            "{args:?}: {finished:#?}"
        );
        let text = &finished.stderr;
        assert!(
            text.contains(said) && !text.contains("panicked"),
            "{args:?}: {text}"
        );
    }
}
