//! Metrics of servers and mounts, and `mountstats`, as a user meets them.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use common::fuse::{is_usable, left_out, mounted, until};
use common::{Proto, Running, Server, options, rpcrdma, run};

/// The maximum number of calls that `ping` makes before those that it counts, of which there are no fewer.
const WARM_UP: f64 = 100.0;

/// Values by name and labels.
type Values = BTreeMap<String, f64>;

/// Returns what is at `/metrics` of an address.
fn scrape(address: &str) -> Values {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let values = body.lines().filter(|line| !line.starts_with('#'));
    let values = values.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    values.collect()
}

/// Returns the address of metrics from the lines of a server.
fn address_of(lines: &[String]) -> String {
    let found = lines
        .iter()
        .find_map(|line| line.strip_prefix("metrics http://"));
    found.unwrap().strip_suffix("/metrics").unwrap().to_owned()
}

/// Returns the address of a server's port for a transport.
fn address_for(server: &Server, proto: Proto) -> String {
    match proto {
        Proto::Rdma => server.rdma.to_string(),
        Proto::Tcp => server.tcp.to_string(),
    }
}

/// Returns the sum of all samples whose names begin like this and contain each of `labels`.
fn sum(values: &Values, name: &str, labels: &[&str]) -> f64 {
    let found = values.iter().filter(|(key, _)| {
        key.split('{').next() == Some(name) && labels.iter().all(|label| key.contains(label))
    });
    found.map(|(_, value)| value).sum()
}

fn calls(values: &Values, procedure: &str, result: &str) -> f64 {
    let procedure = format!("procedure=\"{procedure}\"");
    let result = format!("result=\"{result}\"");
    sum(values, "rpcrdma_server_calls_total", &[&procedure, &result])
}

#[test]
fn a_server_tells_what_it_has_done() {
    let server = Server::start(["--memory", "--metrics", "0", "--threads", "2"]);
    let address = address_of(&server.lines);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let before = scrape(&address);
    assert_eq!(
        sum(&before, "rpcrdma_server_calls_received_total", &[]),
        0.0
    );
    assert_eq!(before["rpcrdma_server_loops"], 2.0);
    for proto in common::BOTH {
        let target = address_for(&server, proto);
        let words = ["ping", "-c", "10", target.as_str()];
        run(words
            .map(str::to_owned)
            .into_iter()
            .chain(options(proto, "")))
        .ok();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, vec![7; 300_000]).unwrap();
    let url = server.url(Proto::Rdma, "/memory/file");
    let with = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        run(words.chain(options(Proto::Rdma, "")))
    };
    with(&["put", file.to_str().unwrap(), &url]).ok();
    with(&["cat", &url]).ok();
    let none = server.url(Proto::Rdma, "/memory/none");
    with(&["cat", &none]).fails_with(&["no such file"]);
    // Loops are asked at most ten times a second.
    until("the last call", || {
        calls(&scrape(&address), "LOOKUP", "NFS3ERR_NOENT") >= 1.0
    });
    let after = scrape(&address);
    assert_eq!(
        calls(&after, "NULL", "ok"),
        2.0 * (10.0 + 10.0f64.min(WARM_UP))
    );
    let executed = sum(&after, "rpcrdma_server_calls_total", &[]);
    let received = after["rpcrdma_server_calls_received_total"];
    assert_eq!(executed, received, "none was refused or sent again");
    let times = sum(&after, "rpcrdma_server_call_duration_seconds_count", &[]);
    assert_eq!(times, executed);
    let moved = |way: &str, direction: &str| {
        let labels = [
            format!("way=\"{way}\""),
            format!("direction=\"{direction}\""),
        ];
        sum(
            &after,
            "rpcrdma_moved_bytes_total",
            &[&labels[0], &labels[1]],
        )
    };
    let data = |direction| moved("chunk", direction) + moved("placed", direction);
    assert_eq!((data("received"), data("sent")), (300_000.0, 300_000.0));
    assert_eq!(sum(&after, "rpcrdma_server_loops_silent", &[]), 0.0);
    let limit = "rpcrdma_server_memory_limit_bytes{use=\"calls\"}";
    assert!(after[limit] > 0.0);
}

#[test]
fn scraping_disturbs_no_calls_and_counters_never_fall() {
    let server = Server::start(["--memory", "--metrics", "0"]);
    let address = address_of(&server.lines);
    let target = address_for(&server, Proto::Rdma);
    let words = ["ping", "-c", "20000", "-q", target.as_str()];
    let words = words
        .map(str::to_owned)
        .into_iter()
        .chain(options(Proto::Rdma, ""));
    let mut load = Running::start(rpcrdma().args(words));
    let mut last = Values::new();
    let mut scrapes = 0;
    while load.is_running() {
        let now = scrape(&address);
        for (name, value) in &last {
            let grows = ["_total", "_count", "_bucket", "_sum"];
            if grows
                .iter()
                .any(|end| name.split('{').next().unwrap().ends_with(end))
            {
                assert!(now[name] >= *value, "{name}: {value}, then {}", now[name]);
            }
        }
        let ended = sum(&now, "rpcrdma_server_calls_total", &[]);
        let timed = sum(&now, "rpcrdma_server_call_duration_seconds_count", &[]);
        assert_eq!(ended, timed, "a scrape is between two turns");
        last = now;
        scrapes += 1;
    }
    load.finish().ok();
    assert!(scrapes > 2);
    // A scrape right after another one shows the same.
    let all = 20_000.0 + WARM_UP;
    until("all calls", || {
        calls(&scrape(&address), "NULL", "ok") == all
    });
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(["serve", "--memory", "--metrics", &port]).fails_with(&["metrics", &port, "in use"]);
    let usage = run(["serve", "--memory", "--metrics", "somewhere"]);
    assert_eq!(usage.status.code(), Some(2), "{usage:#?}");
}

/// Returns the numbers of the line of `/proc/self/mountstats` that begins with `start`.
fn numbers(text: &str, start: &str) -> Vec<u64> {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with(start));
    let words = line
        .unwrap_or_else(|| panic!("{start}\n{text}"))
        .split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_mount_tells_what_it_has_done_and_nfs_utils_reads_it() {
    if !is_usable() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (export, mnt) = (dir.path().join("export"), dir.path().join("mnt"));
    for folder in [&export, &mnt] {
        fs::create_dir(folder).unwrap();
    }
    let server = Server::of(&export);
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let mut words = vec!["mount".to_owned(), server.url(Proto::Rdma, "/data")];
    words.extend([mnt.to_str().unwrap(), "-f", "--metrics", &port].map(str::to_owned));
    words.extend(options(Proto::Rdma, "rpcrdma=1"));
    let mount = Running::start(rpcrdma().args(words).env("XDG_RUNTIME_DIR", dir.path()));
    until("a mount", || mounted(&mnt).is_some());
    fs::write(mnt.join("file"), vec![1; 100_000]).unwrap();
    assert_eq!(fs::read(mnt.join("file")).unwrap().len(), 100_000);
    assert!(fs::metadata(mnt.join("none")).is_err());
    let stats = || {
        let mut command = rpcrdma();
        command
            .arg("mountstats")
            .arg(&mnt)
            .env("XDG_RUNTIME_DIR", dir.path());
        Running::start(&mut command).finish()
    };
    until("the mount's socket", || stats().status.success());
    let text = stats().ok().stdout;
    let values = scrape(&format!("127.0.0.1:{port}"));
    let first = text.lines().next().unwrap();
    let place = format!("mounted on {} with fstype nfs statvers=1.1", mnt.display());
    assert!(first.ends_with(&place), "{first}");
    let write = numbers(&text, "WRITE:");
    assert_eq!(write.len(), 9);
    let written = sum(
        &values,
        "rpcrdma_client_calls_total",
        &["\"WRITE\"", "\"ok\""],
    );
    assert!(written >= 1.0);
    assert_eq!((write[0] as f64, write[8]), (written, 0));
    assert!(write[3] >= 100_000, "{write:?}");
    let lookup = numbers(&text, "LOOKUP:");
    assert!(lookup[8] >= 1, "an error: {lookup:?}");
    let bytes = numbers(&text, "bytes:");
    assert_eq!((bytes[1], bytes[5]), (100_000, 100_000));
    let xprt = numbers(&text, "xprt:");
    assert_eq!(xprt.len(), 27, "as Linux writes it");
    // The data went in read chunks, which are not among the bytes of requests.
    let read_segments = values["rpcrdma_chunk_segments_total{list=\"read\"}"];
    assert!(
        xprt[10] >= 1 && xprt[10] as f64 <= read_segments,
        "{xprt:?}"
    );
    let registered = values["rpcrdma_registered_bytes_total"];
    assert!(registered >= xprt[13] as f64 + 100_000.0, "{xprt:?}");
    let caps = text
        .lines()
        .find(|line| line.contains("caps:"))
        .unwrap_or_default();
    assert!(caps.contains("wtmult=4096,"), "{caps}");
    assert_eq!(values["rpcrdma_mount_written_bytes_total"], 100_000.0);
    assert!(values["rpcrdma_mount_requests_total{request=\"write\"}"] >= 1.0);
    let nfs_utils = Path::new("/usr/sbin/mountstats");
    if nfs_utils.exists() {
        let file = dir.path().join("stats");
        fs::write(&file, &text).unwrap();
        for words in [
            &["mountstats"][..],
            &["mountstats", "--xprt"],
            &["mountstats", "--raw"],
            &["iostat"],
        ] {
            let mut command = Command::new(nfs_utils);
            let shown = Running::start(command.args(words).arg("--file").arg(&file))
                .finish()
                .ok();
            assert!(shown.stdout.contains(mnt.to_str().unwrap()), "{shown:#?}");
            if words.contains(&"--raw") {
                // It prints what it has understood.
                assert_eq!(numbers(&shown.stdout, "WRITE:"), write);
                assert_eq!(numbers(&shown.stdout, "xprt:"), xprt);
            }
        }
    } else {
        let _ = left_out("nfs-utils");
    }
    run(["mountstats", dir.path().to_str().unwrap()]).fails_with(&["nothing is mounted"]);
    run(["umount", mnt.to_str().unwrap()]).ok();
    mount.finish().ok();
    assert!(
        stats()
            .fails_with(&["nothing is mounted"])
            .stdout
            .is_empty()
    );
}
