//! `rpcrdma gateway` between this project's clients and server, as processes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::Write;
use std::process::Stdio;

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
        report.lines().any(|line| line.starts_with("explained: ")),
        "{report}"
    );
    last.end();
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
}
