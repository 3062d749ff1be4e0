//! `rpcrdma gateway` between this project's clients and server, as processes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use common::gateway::Gateway;
use common::{Finished, Proto, Server, rpcrdma, run};

/// Two gateways from TCP to a server's TCP, over RDMA between them.
fn pair(server: &Server, options: &str, last: &[&str]) -> (Gateway, Gateway) {
    let last = Gateway::start("rdma:127.0.0.1:0", &format!("tcp:{}", server.tcp), last);
    let first = Gateway::start(
        "tcp:127.0.0.1:0",
        &last.listen,
        &["-o", options, "--explain"],
    );
    (first, last)
}

fn tcp(command: &[&str]) -> Finished {
    run([command, &["-o", "proto=tcp"]].concat()).ok()
}

#[test]
fn files_pass_two_gateways_and_the_report_names_what_was_done() {
    let server = Server::start(["--memory=64M:insecure"]);
    let (first, last) = pair(&server, "rpcrdma=2wg", &["--rpcrdma", "2wg"]);
    let url = |name: &str| format!("nfs://{}/memory/{name}", first.address);
    let program = env!("CARGO_MANIFEST_DIR").to_owned() + "/src/lib.rs";
    tcp(&["put", &program, &url("lib.rs")]);
    let read = tcp(&["cat", &url("lib.rs")]).stdout;
    assert_eq!(read, std::fs::read_to_string(&program).unwrap());
    let direct = run([
        "cat",
        &server.url(Proto::Tcp, "/memory/lib.rs"),
        "-o",
        "proto=tcp",
    ]);
    assert_eq!(direct.ok().stdout, read);
    let report = first.end();
    let write = report
        .lines()
        .find(|line| line.starts_with("explain: NFSv3 WRITE: call "));
    assert!(
        write.is_some_and(|line| line.contains("item 0 placed")),
        "{report}"
    );
    assert!(
        report
            .lines()
            .any(|line| line.starts_with("explained: 1 call ")),
        "{report}"
    );
    last.end();
}

/// `serve` says the same of them (`bad_input`).
#[test]
fn addresses_that_it_cannot_listen_on_are_named_with_advice() {
    let of = |listen: &str| run(["gateway", "--listen", listen, "--to", "tcp:127.0.0.1"]);
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    for proto in ["tcp", "rdma"] {
        let advice = format!("use --listen {proto}:127.0.0.1:PORT");
        let refused = of(&format!("{proto}:127.0.0.1:{port}"));
        let message = refused.fails_with(&["in use", &advice]).stderr;
        assert_eq!(message.matches("cannot listen").count(), 1, "{message}");
    }
    let nowhere = "neither an address nor a name of one";
    of("tcp:no-such-host.invalid").fails_with(&["--listen tcp:no-such-host.invalid", nowhere]);
    of("rdma:192.0.2.1").fails_with(&["192.0.2.1", "this machine does not have that address"]);
}

/// Data that a client was told is written is there, whichever gateway is killed in the middle.
#[test]
fn a_gateway_is_killed_under_load_and_its_successor_goes_on() {
    let content: Vec<u8> = (0..40_000_000u32).map(|n| (n / 7) as u8).collect();
    let half = content.len() / 2;
    for kills_first in [true, false] {
        let server = Server::start(["--memory=64M:insecure"]);
        let (mut first, mut last) = pair(&server, "rpcrdma=2", &[]);
        let url = format!("nfs://{}/memory/file", first.address);
        let mut put = rpcrdma()
            .args(["put", "-", &url, "-o", "proto=tcp"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = put.stdin.take().unwrap();
        // It has read this much, and most of that is on its way.
        input.write_all(&content[..half]).unwrap();
        let to = match kills_first {
            true => last.listen.clone(),
            false => format!("tcp:{}", server.tcp),
        };
        let gateway = if kills_first { &mut first } else { &mut last };
        gateway.child.kill().unwrap();
        gateway.child.wait().unwrap();
        let successor = Gateway::start(&gateway.listen, &to, &[]);
        input.write_all(&content[half..]).unwrap();
        drop(input);
        assert!(put.wait().unwrap().success(), "{kills_first}");
        let direct = server.url(Proto::Tcp, "/memory/file");
        let back = tempfile::NamedTempFile::new().unwrap();
        let to = back.path().to_str().unwrap();
        tcp(&["get", &direct, to]);
        assert!(
            std::fs::read(back.path()).unwrap() == content,
            "{kills_first}"
        );
        drop(successor);
    }
}

/// Returns a record of RPC over TCP that consists of these words.
fn record(words: &[u32]) -> Vec<u8> {
    let length = 0x8000_0000 | (4 * words.len() as u32);
    let all = [&[length], words].concat();
    all.into_iter().flat_map(u32::to_be_bytes).collect()
}

#[test]
fn a_client_beyond_the_limit_is_closed_at_once_and_the_log_says_so() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp:{}", server.local_addr().unwrap());
    let mut gateway = Gateway::start_logged("tcp:127.0.0.1:0", &to, &["--connections", "1"]);
    let connect = || {
        let stream = TcpStream::connect(gateway.address).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        stream
    };
    // NULL of NFS. Its client is not idle until it is answered.
    let call = record(&[7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
    let mut first = connect();
    first.write_all(&call).unwrap();
    let (mut passed, _) = server.accept().unwrap();
    let mut arrived = vec![0; call.len()];
    passed.read_exact(&mut arrived).unwrap();
    assert_eq!(arrived, call);
    match connect().read(&mut [0; 4]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the second client is not closed: {other:?}"),
    }
    let reply = record(&[7, 1, 0, 0, 0, 0]);
    passed.write_all(&reply).unwrap();
    let mut answer = vec![0; reply.len()];
    first.read_exact(&mut answer).unwrap();
    assert_eq!(answer, reply);
    // The first client is idle now, so that another one replaces it, half a second after its last call.
    std::thread::sleep(Duration::from_millis(600));
    let mut third = connect();
    third.write_all(&call).unwrap();
    let (mut passed, _) = server.accept().unwrap();
    passed.read_exact(&mut arrived).unwrap();
    passed.write_all(&reply).unwrap();
    third.read_exact(&mut answer).unwrap();
    assert_eq!(answer, reply);
    let mut log = gateway.child.stderr.take().unwrap();
    gateway.end();
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    for words in [
        "no room for another client",
        "connections=1",
        "replaced=1",
        "refused=1",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn more_connections_than_there_are_resources_for_are_refused() {
    for (args, words) in [
        (
            ["--connections", "4000000000", "--drain", "1s"],
            "ulimit -n",
        ),
        (
            ["--connections", "300", "--memory-limit", "24M"],
            "raise --memory-limit",
        ),
        (["--connections", "0", "--drain", "1s"], "a number from 1"),
    ] {
        let between = [
            "gateway",
            "--listen",
            "rdma:127.0.0.1:0",
            "--to",
            "tcp:127.0.0.1",
        ];
        let refused = run([&between[..], &args[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains(words), "{refused:#?}");
    }
}

#[test]
fn options_without_effect_are_refused() {
    for (args, words) in [
        (
            &[
                "--listen",
                "tcp:127.0.0.1:0",
                "--to",
                "tcp:127.0.0.1",
                "--rpcrdma",
                "2",
            ][..],
            "--rpcrdma",
        ),
        (
            &[
                "--listen",
                "tcp:127.0.0.1:0",
                "--to",
                "tcp:127.0.0.1",
                "-o",
                "rpcrdma=2",
            ],
            "rpcrdma",
        ),
        (
            &[
                "--listen",
                "tcp:127.0.0.1:0",
                "--to",
                "rdma:127.0.0.1",
                "-o",
                "rsize=4k",
            ],
            "rsize=4k",
        ),
        (
            &[
                "--listen",
                "tcp:127.0.0.1:0",
                "--to",
                "tcp:127.0.0.1",
                "--capture",
                "file",
            ],
            "--capture",
        ),
        (
            &["--listen", "udp:127.0.0.1", "--to", "tcp:127.0.0.1"],
            "udp",
        ),
    ] {
        let refused = run([&["gateway"], args].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains(words), "{refused:#?}");
    }
    // What is for RDMA has no effect where there is none, and what is for clients over RDMA none for others.
    let of_clients = [
        ["--rpcrdma", "2"],
        ["--features", "ddp"],
        ["--inline", "4k"],
        ["--device", "verbs"],
        ["--registration", "per-call"],
        ["--crc", "off"],
    ];
    let of_rdma = [
        ["--delay", "1ms"],
        ["--rate", "1g"],
        ["--costs", "interrupt=1us"],
        ["--set", "credits=7"],
    ];
    for (to, options) in [
        ("rdma:127.0.0.1", &of_clients[..]),
        ("tcp:127.0.0.1", &of_clients[..]),
        ("tcp:127.0.0.1", &of_rdma[..]),
        ("tcp:127.0.0.1", &[["-o", "inline=4k"]][..]),
    ] {
        for option in options {
            let between = ["gateway", "--listen", "tcp:127.0.0.1:0", "--to", to];
            let refused = run([&between[..], &option[..]].concat());
            assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
            let says = [option[0], "only for"].map(|word| refused.stderr.contains(word));
            assert_eq!(says, [true, true], "{refused:#?}");
        }
    }
}
