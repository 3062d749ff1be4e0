//! Tests of `lint`: faults that are planted in captures of this project's own traffic are found, and
//! nothing is found where there is none. Counts are those that `compare` counts for the same calls.
#![allow(
    clippy::unwrap_used,
    reason = "a test may panic; the lint exempts test functions, but not their helpers"
)]

mod common;
#[path = "lint/frames.rs"]
mod frames;
#[path = "lint/planted.rs"]
mod planted;
#[path = "lint/traffic.rs"]
mod traffic;

use std::fs;
use std::path::Path;

use common::{Proto, Server, options, run};
use frames::{Fpdu, UNTAGGED, fpdus, opcode, seal};
use rpcrdma_reading::{MessageKind, OperationKind, Outcome, Version};
use serde_json::Value;
use traffic::{Traffic, WAYS, collect, text};

#[test]
fn traffic_of_each_version_is_read_whole_and_breaks_no_rule() {
    let traffic = Traffic::new(&WAYS);
    for (file, version) in &traffic.captures {
        let all = collect(&fs::read(file).unwrap());
        let at = file.display();
        assert!(all.breaches.is_empty(), "{at}: {:#?}", all.breaches);
        assert!(all.lost.is_empty(), "{at}: {:?}", all.lost);
        assert_eq!(all.connections.len(), 1, "{at}");
        assert!(all.connections[0].is_set_up, "{at}");
        assert_eq!(all.connections[0].version, Some(*version), "{at}");
        assert!(all.calls.len() > 3, "{at}");
        for call in &all.calls {
            assert_eq!(call.outcome, Outcome::Replied, "{at}: {call:#?}");
            // Its grants count messages.
            if *version == Version::TwoWg {
                assert_eq!(call.granted, None, "{at}: {call:#?}");
            }
            assert!(
                call.procedure.is_some_and(|it| it.name().is_some()),
                "{at}: {call:#?}"
            );
            assert!(
                call.replied.is_some_and(|at| at > call.started),
                "{at}: {call:#?}"
            );
            assert!(
                call.operations.iter().all(|it| it.is_complete),
                "{at}: {call:#?}"
            );
            let kinds: Vec<MessageKind> = call.messages.iter().map(|it| it.kind).collect();
            assert_eq!(kinds.first(), Some(&MessageKind::Call), "{at}: {call:#?}");
            assert!(kinds.contains(&MessageKind::Reply), "{at}: {call:#?}");
        }
    }
}

/// A WRITE of version 1 has its data fetched, and a READ has it written.
#[test]
fn a_call_has_its_messages_operations_and_memory() {
    let traffic = Traffic::new(&WAYS[..1]);
    let calls = |name: &str, procedure: &str| {
        let file = traffic.named(name).next().unwrap();
        let calls = collect(&fs::read(file).unwrap()).calls;
        let calls = calls.into_iter().filter(|call| {
            call.procedure.is_some_and(|it| it.to_string() == procedure)
                && !call.segments.is_empty()
        });
        calls.collect::<Vec<_>>()
    };
    for (name, procedure, kind) in [
        ("put", "NFS3 WRITE", OperationKind::Read),
        ("get", "NFS3 READ", OperationKind::Write),
    ] {
        let calls = calls(name, procedure);
        assert!(!calls.is_empty(), "{name}");
        let mut moved = 0;
        for call in &calls {
            assert!(
                call.operations.iter().all(|it| it.kind == kind),
                "{call:#?}"
            );
            moved += call.operations.iter().map(|it| it.octets).sum::<u64>();
            let rounds = 1 + u32::from(kind == OperationKind::Read);
            assert_eq!(call.round_trips(), rounds, "{call:#?}");
            assert_eq!(call.registrations(), 1, "{call:#?}");
            let [segment] = call.segments[..] else {
                panic!("{call:#?}");
            };
            assert_eq!(call.operations[0].handle, segment.handle, "{call:#?}");
            let reply = call.messages.last().unwrap();
            assert_eq!(reply.invalidates, Some(segment.handle), "{call:#?}");
        }
        // The round-up may be moved as well.
        assert!((308_192..=308_292).contains(&moved), "{name}: {moved}");
    }
}

// -------------------------------------------------------------------------------------------------
// The command

fn lint(file: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let file = text(file);
    let finished = run([&["lint"], more, &[&file]].concat());
    (finished.status.code(), finished.stdout, finished.stderr)
}

#[test]
fn the_command_tells_what_is_broken_by_its_status() {
    let traffic = Traffic::new(&WAYS[..1]);
    let file = traffic.named("put").next().unwrap();
    let (status, said, _) = lint(file, &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("No rule is broken."), "{said}");
    assert!(said.contains("longer receives"), "{said}");
    assert!(
        said.lines().all(|line| line.chars().count() <= 100),
        "{said}"
    );

    let mut bytes = fs::read(file).unwrap();
    let all = fpdus(&bytes);
    let reads = all.iter().filter(|it| opcode(&bytes[it.at..]) == 1);
    let reads: Vec<Fpdu> = reads.copied().collect();
    for fpdu in &reads {
        bytes[fpdu.at + UNTAGGED + 16] ^= 1;
        seal(&mut bytes, fpdu);
    }
    let damaged = file.with_extension("damaged");
    fs::write(&damaged, &bytes).unwrap();
    let (status, said, _) = lint(&damaged, &[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("error unknown_handle (RFC 8166, 3.4.5)"),
        "{said}"
    );

    let (status, said, _) = lint(&damaged, &["--json", "--all"]);
    assert_eq!(status, Some(1), "{said}");
    let json: Value = serde_json::from_str(&said).unwrap();
    let broken = json["report"]["broken"].as_array().unwrap();
    let found = broken
        .iter()
        .find(|it| it["id"] == "unknown_handle")
        .unwrap();
    assert_eq!(found["count"], reads.len());
    let packets = found["places"].as_array().unwrap().iter();
    let packets: Vec<u64> = packets.map(|it| it["packet"].as_u64().unwrap()).collect();
    let planted: Vec<u64> = reads.iter().map(|it| it.packet).collect();
    assert_eq!(packets, planted);

    let other = file.with_extension("txt");
    for content in ["", "no capture"] {
        fs::write(&other, content).unwrap();
        let (status, _, said) = lint(&other, &[]);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("neither a pcap nor a pcapng file"), "{said}");
    }
    let (status, _, said) = lint(Path::new("no/such/file"), &[]);
    assert_eq!(status, Some(2), "{said}");
}

/// Longer receives make the table's first alternative, and a capture with them has nothing to save.
#[test]
fn longer_receives_save_what_a_capture_with_them_does_not_take() {
    let traffic = Traffic::new(&WAYS[..2]);
    let mut seen = Vec::new();
    for file in traffic.named("put") {
        let (_, said, _) = lint(file, &["--json"]);
        let json: Value = serde_json::from_str(&said).unwrap();
        let savings = &json["report"]["savings"];
        let number = |of: &Value, key: &str| of["counts"][key].as_u64().unwrap();
        let longer = savings["alternatives"].as_array().unwrap().iter();
        let longer = longer.filter(|it| it["name"] == "longer receives");
        let longer = longer.map(|it| number(it, "round_trips")).next();
        seen.push((number(savings, "round_trips"), longer));
    }
    let [(plain, longer), (long, _)] = seen[..] else {
        panic!("{seen:?}");
    };
    assert!(longer.is_some_and(|longer| longer < plain), "{seen:?}");
    assert!(long < plain, "{seen:?}");
}

// -------------------------------------------------------------------------------------------------
// The same calls, counted by the simulation

/// The calls of a capture by the clock take what the simulation counts for them.
#[test]
fn counts_are_those_of_compare() {
    let folder = tempfile::tempdir().unwrap();
    let modes = ["v1-inv", "v1-long", "v2-cont", "v2-ddp", "wg-ddp"];
    let what = ["--ops", "read,write", "--sizes", "8k"];
    let simulated = run([
        &["compare", "--device", "sim", "--json", "-", "--via"][..],
        &[&modes.join(",")],
        &what,
    ]
    .concat())
    .ok();
    let rows: Vec<Value> = serde_json::from_str(&simulated.stdout).unwrap();
    for mode in modes {
        let file = folder.path().join(format!("{mode}.pcapng"));
        let capture = ["--no-trips", "--time", "5ms", "--count", "5", "--capture"];
        let via = ["compare", "--via", mode];
        run([&via[..], &what, &capture, &[&text(&file)]].concat()).ok();
        let all = collect(&fs::read(&file).unwrap());
        assert!(all.breaches.is_empty(), "{mode}: {:#?}", all.breaches);
        for (op, procedure) in [("read", "NFS3 READ"), ("write", "NFS3 WRITE")] {
            // By the costs of this device, a READ may be written into memory although it could be
            // continued.
            if (mode, op) == ("v2-cont", "read") {
                continue;
            }
            let row = rows
                .iter()
                .find(|row| row["transfer_mode"] == mode && row["op"] == op);
            let row = row.unwrap_or_else(|| panic!("{mode}: no {op}"));
            let calls = all.calls.iter().filter(|call| {
                let length = call.call_length.max(call.reply_length);
                call.procedure.is_some_and(|it| it.to_string() == procedure)
                    && length.is_some_and(|length| length > 8192)
            });
            let mut seen = 0;
            for call in calls {
                seen += 1;
                assert_eq!(
                    row["round_trips"],
                    f64::from(call.round_trips()),
                    "{mode}: {call:#?}"
                );
                let registrations = f64::from(call.registrations());
                assert_eq!(row["registrations"], registrations, "{mode}: {call:#?}");
            }
            assert!(seen >= 5, "{mode}: {seen} calls of {op}");
        }
    }
}

/// Calls of each kind, 100,000 in all. It takes long: `.ci/long lint`.
#[test]
#[ignore = "takes a minute"]
fn a_hundred_thousand_clean_calls_break_no_rule() {
    let folder = tempfile::tempdir().unwrap();
    let mut calls = 0;
    for (n, (way, _)) in WAYS.iter().enumerate() {
        let server = Server::start(["--memory", ":insecure"]);
        let [o, with] = options(Proto::Rdma, way);
        let file = folder.path().join("file");
        fs::write(&file, vec![7; 8192]).unwrap();
        run(["put", &text(&file), &server.url(Proto::Rdma, "/memory/")]).ok();
        // A WRITE goes to a file that is made there.
        for (op, path, size) in [
            ("getattr", "/memory/file", &[][..]),
            ("write", "/memory", &["-s", "8k"]),
            ("read", "/memory/file", &["-s", "8k"]),
        ] {
            let file = text(&folder.path().join(format!("{n}-{op}.pcapng")));
            let url = server.url(Proto::Rdma, path);
            let ping = [
                "ping",
                &o,
                &with,
                "-c",
                "5600",
                "-q",
                "--op",
                op,
                "--capture",
                &file,
                &url,
            ];
            run([&ping[..], size].concat()).ok();
            let (status, said, _) = lint(Path::new(&file), &["--json"]);
            assert_eq!(status, Some(0), "{way} {op}: {said}");
            let json: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(
                json["report"]["notes"],
                Value::Array(Vec::new()),
                "{way} {op}"
            );
            calls += json["report"]["calls"].as_u64().unwrap();
            fs::remove_file(&file).unwrap();
        }
    }
    assert!(calls >= 100_000, "{calls}");
}
