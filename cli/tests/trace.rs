//! Tests of `--trace`: both ends' files, by themselves and joined, and how they end.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::gateway::Gateway;
use common::{BOTH, Proto, Server, options, run};
use rpcrdma_trace::read::{Call, Contents, read};

fn contents(path: &Path) -> Contents {
    read(&fs::read(path).expect("a file")).expect("whole packets")
}

/// Checks that a call's parts fill it.
#[track_caller]
fn check(call: &Call) {
    let mut at = call.time.0;
    for (_, since, until) in &call.parts {
        assert_eq!(*since, at, "{call:?}");
        at = *until;
    }
    assert_eq!(at, call.time.1, "{call:?}");
}

/// Over RDMA and TCP: the client's call contains the server's in time, as both files have one clock.
#[test]
fn the_files_of_both_ends_are_one_timeline() {
    for proto in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("client"), dir.path().join("server"));
        let server = Server::start(["--memory", ":insecure", "--trace", theirs.to_str().unwrap()]);
        let more = if proto == Proto::Rdma {
            "rpcrdma=1"
        } else {
            ""
        };
        let [o, with] = options(proto, more);
        let url = server.url(proto, "/memory");
        let ping = ["ping", "--op", "write", "-s", "8k", "-c", "20", "--trace"];
        let done = run([&ping[..], &[ours.to_str().unwrap(), &o, &with, &url]].concat()).ok();
        for part in ["calls made", "network and server"] {
            assert!(done.stderr.contains(part), "{done:?}");
        }
        assert!(server.terminate().success());
        let mode = fs::metadata(&ours).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");

        let joined = [fs::read(&ours).unwrap(), fs::read(&theirs).unwrap()].concat();
        let joined = read(&joined).unwrap();
        let writes = |of: &str| -> Vec<Call> {
            let calls = joined.calls.iter().cloned();
            calls
                .filter(|call| call.track.starts_with(of) && call.name == "WRITE")
                .collect()
        };
        let (made, served) = (writes("calls to"), writes("calls of"));
        assert!(
            made.len() >= 20 && made.len() == served.len(),
            "{} {}",
            made.len(),
            served.len()
        );
        for call in &made {
            check(call);
            let same = served
                .iter()
                .find(|it| it.xid == call.xid)
                .expect("the same call");
            check(same);
            assert!(call.time.0 <= same.time.0 && same.time.1 <= call.time.1);
            assert!(call.time_of("network and server") > 0);
            assert!(same.time_of("service") > 0, "{same:?}");
        }
        assert_eq!(joined.processes.len(), 2);
        let read = served.iter().any(|call| call.time_of("RDMA Read") > 0);
        assert_eq!(read, proto == Proto::Rdma);
        let counted = joined
            .counts
            .iter()
            .any(|(_, name, ..)| name == "credits granted");
        assert_eq!(counted, proto == Proto::Rdma);
    }
}

/// Over RDMA and TCP on either side: the four spans of a relayed call contain one another in time, and have one XID.
#[test]
fn a_relayed_call_has_spans_at_both_sides_of_the_gateway() {
    for (from, to) in [
        (Proto::Rdma, Proto::Tcp),
        (Proto::Tcp, Proto::Rdma),
        (Proto::Rdma, Proto::Rdma),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["client", "gateway", "server"].map(|name| dir.path().join(name));
        let [ours, between, theirs] = paths.each_ref().map(|path| path.to_str().unwrap());
        let server = Server::start(["--memory", ":insecure", "--trace", theirs]);
        let (scheme, address) = match to {
            Proto::Rdma => ("rdma", server.rdma),
            Proto::Tcp => ("tcp", server.tcp),
        };
        let listen = match from {
            Proto::Rdma => "rdma:127.0.0.1:0",
            Proto::Tcp => "tcp:127.0.0.1:0",
        };
        let gateway = Gateway::start(
            listen,
            &format!("{scheme}:{address}"),
            &["--trace", between],
        );
        let [o, with] = options(from, "");
        let url = format!("nfs://{}/memory", gateway.address);
        let ping = ["ping", "--op", "write", "-s", "8k", "-c", "20", "--trace"];
        run([&ping[..], &[ours, &o, &with, &url]].concat()).ok();
        gateway.end();
        assert!(server.terminate().success());

        let writes = |path: &Path, of: &str| -> Vec<Call> {
            let calls = contents(path).calls.into_iter();
            calls
                .filter(|call| call.track.starts_with(of) && call.name == "WRITE")
                .collect()
        };
        let made = writes(&paths[0], "calls to");
        let sides = [
            writes(&paths[1], "calls of"),
            writes(&paths[1], "calls to"),
            writes(&paths[2], "calls of"),
        ];
        assert!(made.len() >= 20, "{}", made.len());
        for call in &made {
            check(call);
            let mut outer = call;
            for side in &sides {
                let mut same = side.iter().filter(|it| it.xid == call.xid);
                let (Some(inner), None) = (same.next(), same.next()) else {
                    panic!("not one span of the call {call:?} in {side:?}");
                };
                check(inner);
                assert!(
                    outer.time.0 <= inner.time.0 && inner.time.1 <= outer.time.1,
                    "{outer:?} {inner:?}"
                );
                assert_eq!(inner.end, None, "{inner:?}");
                // The viewer's arrows lead along all of them.
                let is_joined = inner.flows.iter().any(|flow| outer.flows.contains(flow));
                assert!(is_joined, "{outer:?} {inner:?}");
                outer = inner;
            }
        }
        let [arrived, passed, _] = &sides;
        let time =
            |calls: &[Call], part: &str| calls.iter().map(|it| it.time_of(part)).sum::<u64>();
        assert!(time(arrived, "relayed") >= time(passed, "network and server"));
        assert!(time(passed, "network and server") > 0);
        assert_eq!(time(arrived, "service") + time(passed, "service"), 0);
    }
}

#[test]
fn a_simulated_comparison_shows_what_each_transfer_mode_costs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let file = path.to_str().unwrap();
    let command = [
        "compare",
        "--device",
        "sim",
        "--ops",
        "write",
        "--sizes",
        "8k",
        "--via",
        "v1,v2-ddp",
        "--trace",
        file,
    ];
    run(command).ok();
    let contents = contents(&path);
    let fetched = |mode: &str| {
        let server = format!("{mode} write 8 KiB: calls of");
        let mut calls = contents.calls.iter();
        calls.any(|call| call.track.starts_with(&server) && call.time_of("RDMA Read") > 0)
    };
    assert!(fetched("v1") && !fetched("v2-ddp"));
    contents.calls.iter().for_each(check);
}

#[test]
fn a_seed_is_traced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    run(["sim", "--seed", "3", "--trace", path.to_str().unwrap()]).ok();
    assert!(!contents(&path).calls.is_empty());
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("there");
    fs::write(&there, "mine").unwrap();
    let there = there.to_str().unwrap();
    run(["sim", "--seed", "3", "--trace", there]).fails_with(&["--trace", "it exists"]);
    assert_eq!(fs::read(there).unwrap(), b"mine");
    // Nothing was traced before the command failed.
    let new = dir.path().join("new");
    let failed = run([
        "put",
        there,
        "nfs://127.0.0.1:1/x",
        "--trace",
        new.to_str().unwrap(),
    ]);
    assert!(!failed.status.success() && !new.exists(), "{failed:?}");
    for wrong in [
        &["sim", "--trace", "x"][..],
        &["explain", "--trace", "x", "null"],
    ] {
        let output = run(wrong.iter().copied());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
