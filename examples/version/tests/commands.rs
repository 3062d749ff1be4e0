//! The program speaks the version in every command, with servers that have it and with others.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn third(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_third"));
    command
        .args(words)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    third(words).output().unwrap()
}

fn said(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A server, which ends with the test.
struct Server {
    process: Child,
    /// Host and port.
    place: String,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        let mut command = third(&["serve", "--memory", "--port", "0", "--tcp-port", "0"]);
        let mut process = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let place = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some(place) = line.strip_prefix("listening rdma ") {
                break place.split(' ').next().unwrap().to_owned();
            }
        };
        Self { process, place }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

#[test]
fn a_client_finds_the_version_that_it_and_the_server_have() {
    for (served, wanted, spoken) in [
        (
            "1,2,2wg,third",
            "auto",
            "version third: the server answered in it",
        ),
        ("third", "third", "version third"),
        ("1,2,2wg", "auto", "version 2wg: the server answered in it"),
        ("third,1", "1", "version 1"),
    ] {
        let server = Server::start(&["--rpcrdma", served]);
        let choice = format!("rpcrdma={wanted}");
        let ping = ["ping", "-v", "-c", "20", "-o", &choice, &server.place];
        let said = said(&ping);
        assert!(said.contains(spoken), "{served} {wanted}: {said}");
    }
    let server = Server::start(&["--rpcrdma", "1"]);
    let refused = run(&["ping", "-o", "rpcrdma=third", &server.place]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

#[test]
fn compare_has_its_row_by_the_clock_and_in_the_simulation() {
    let all = [
        "compare", "--via", "v2,third", "--ops", "null", "--json", "-",
    ];
    for how in [&["--device", "sim"][..], &["--count", "9", "--no-trips"]] {
        let rows: Vec<Value> = serde_json::from_str(&said(&[&all[..], how].concat())).unwrap();
        let of = |mode: &str| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row["transfer_mode"] == mode).unwrap();
            ["sends", "rdma_reads", "registrations"].map(|key| row[key].as_f64().unwrap())
        };
        assert_eq!(of("third"), of("v2"));
        assert_eq!(of("third"), [2.0, 0.0, 0.0]);
    }
}

/// Returns whether a capture has an RPC call of NFS in a message of this version: the header begins
/// with the XID of the call and the version.
fn has_call(captured: &[u8], version: u32) -> bool {
    let call = [0, 2, 100_003].map(u32::to_be_bytes).concat();
    let mut calls = captured.windows(call.len()).enumerate();
    calls.any(|(at, bytes)| {
        bytes == call && at >= 80 && {
            let xid = &captured[at - 4..at];
            let header = [xid, &version.to_be_bytes()].concat();
            let before = &captured[at - 80..at - 4];
            before.windows(header.len()).any(|window| window == header)
        }
    })
}

/// Clients of many seeds may choose, and ask for it first. Most servers accept it.
#[test]
fn seeds_speak_it() {
    let name = format!("third-{}.pcapng", std::process::id());
    let capture = std::env::temp_dir().join(name);
    let path = capture.to_str().unwrap();
    let spoken = (0..32).filter(|seed| {
        said(&["sim", "--seed", &seed.to_string(), "--capture", path]);
        let captured = std::fs::read(&capture).unwrap();
        std::fs::remove_file(&capture).unwrap();
        has_call(&captured, 3)
    });
    let spoken = spoken.count();
    assert!((5..30).contains(&spoken), "{spoken}");
    for (words, versions) in [
        (&[][..], "version 2"),
        (&["--rpcrdma", "third"], "version third"),
    ] {
        let all = said(&[&["sim", "--seeds", "0..200"], words].concat());
        assert!(all.contains(&format!("\n{versions}")), "{all}");
        assert!(all.ends_with("\nno violation\n"), "{all}");
    }
    assert!(said(&["sim", "--help"]).contains("third"));
}

#[test]
fn options_know_it_by_its_name() {
    let refused = run(&["ping", "-o", "rpcrdma=fourth", "localhost"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("third"), "{text}");
    for command in ["compare", "serve"] {
        assert!(said(&[command, "--help"]).contains("third"), "{command}");
    }
}
