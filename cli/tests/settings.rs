//! Tests of `--set` and `--credits`: each end has what it is told, and impossible values are refused.

mod common;

use serde_json::Value;

use common::{Proto, Server, compare_place, options, run};

/// The commands that have an end of a connection, each with what else it needs.
const COMMANDS: [&[&str]; 13] = [
    &["serve", "--memory"],
    &["ping", "localhost"],
    &["exports", "localhost"],
    &["ls", "nfs://localhost/x"],
    &["stat", "nfs://localhost/x"],
    &["cat", "nfs://localhost/x"],
    &["get", "nfs://localhost/x"],
    &["put", "x", "nfs://localhost/x"],
    &["rm", "nfs://localhost/x"],
    &["mkdir", "nfs://localhost/x"],
    &["mount", "nfs://localhost/x", "/mnt"],
    &["compare"],
    &["explain", "null"],
];

#[test]
fn every_command_lists_the_settings() {
    for command in COMMANDS {
        // Without what it needs otherwise.
        let help = run([command[0], "--set", "help"]).ok().stdout;
        assert!(!help.contains("error"), "{help}");
        for text in [
            "credits=1 to 16384 [client 128, server 64]",
            "inline-send=1 KiB to 256 KiB in steps of 1 KiB [4 KiB]",
            "head=",
            "target=",
            "group-timeout=1ms to 3600s [60s]",
            "patience=",
            "short-items=",
        ] {
            assert!(help.contains(text), "{text}: {help}");
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
    assert!(
        run(["sim", "--set", "help"])
            .ok()
            .stdout
            .contains("credits=")
    );
}

#[test]
fn impossible_settings_are_refused_with_the_bounds() {
    for command in COMMANDS {
        for (more, said) in [
            (
                &["--set", "credits=0"][..],
                "credits: `0` is not possible: write 1 to 16384",
            ),
            (&["--set", "credits"], "write credits=VALUE"),
            (&["--set", "credit=4"], "did you mean credits?"),
            (
                &["--set", "credits=4", "--set", "credits=5"],
                "credits is set to 4 already",
            ),
            (&["--credits", "none"], "there are: all"),
        ] {
            let words = [command, more].concat();
            let refused = run(&words);
            assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:#?}");
            assert!(refused.stderr.contains(said), "{words:?}: {refused:#?}");
        }
    }
    for (words, said) in [
        (
            &["serve", "--memory", "--set", "patience=1s"][..],
            "patience: only for clients",
        ),
        (
            &["ping", "server", "--set", "max-fetched=1M"],
            "max-fetched: only for servers",
        ),
        (
            &["ping", "server", "-o", "proto=tcp", "--set", "credits=4"],
            "--set: only for NFS over RDMA",
        ),
        (
            &["ping", "server", "-o", "proto=tcp", "--credits", "all"],
            "--credits: only for NFS over RDMA",
        ),
        (
            &["compare", "--via", "tcp", "--set", "credits=4"],
            "--set: only for NFS over RDMA",
        ),
        (
            &["sim", "--seed", "1", "--set", "patience=1s"],
            "patience: only for clients",
        ),
        (
            &[
                "serve",
                "--memory",
                "--inline",
                "8k",
                "--set",
                "inline-send=4k",
            ],
            "--inline: --set inline-send is for the same",
        ),
        (
            &[
                "ping",
                "server",
                "-o",
                "inline=8k",
                "--set",
                "max-receive=8k",
            ],
            "mount option inline: --set max-receive is for the same",
        ),
        (
            &[
                "explain",
                "null",
                "--inline",
                "8k",
                "--set",
                "inline-receive=4k",
            ],
            "--inline: --set inline-receive is for the same",
        ),
        (
            &["compare", "--inline", "8k", "--set", "inline-receive=8k"],
            "--inline: --set inline-receive is for the same",
        ),
        (
            &["explain", "null", "--set", "max-fetched=1M"],
            "max-fetched: only for servers",
        ),
        (
            &["ping", "server", "--features", "ddp", "-o", "proto=tcp"],
            "rpcrdma: features: only for NFS over RDMA",
        ),
        (
            &["ping", "server", "--features", "ddp", "-o", "features=cont"],
            "--features ddp: mount option features=cont says otherwise",
        ),
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:#?}");
        assert!(refused.stderr.contains(said), "{words:?}: {refused:#?}");
    }
}

/// Inline thresholds of both ends, and the segments of receives, are what the other end is told.
#[test]
fn both_ends_of_a_connection_have_their_settings() {
    let server = Server::start([
        "--memory",
        "--set",
        "inline-send=64k",
        "--set",
        "inline-receive=32k",
        "--set",
        "target=128k",
    ]);
    let address = server.url(Proto::Rdma, "");
    let address = address.trim_start_matches("nfs://").to_owned();
    let ping = |more: &[&str], version: &str| {
        let ping = ["ping", "-v", "-c", "5", &address];
        let words = ping.iter().chain(more).map(ToString::to_string);
        let options = options(Proto::Rdma, version);
        run(words.chain(options)).ok().stdout
    };
    let wide = ["--set", "inline-send=256k", "--set", "inline-receive=256k"];
    for (more, version, texts) in [
        (
            &[][..],
            "rpcrdma=1",
            ["to the peer: 4096 B", "from the peer: 4096 B"],
        ),
        (
            &wide,
            "rpcrdma=1",
            ["to the peer: 32768 B", "from the peer: 65536 B"],
        ),
        // 1 KiB for the header, and the server's segment for data.
        (
            &["--features", "ddp"],
            "rpcrdma=2",
            ["to the peer: 132096 B", "from the peer: 66560 B"],
        ),
        (
            &["--features", "ddp", "--set", "head=512"],
            "rpcrdma=2",
            ["to the peer: 132096 B", "from the peer: 66048 B"],
        ),
    ] {
        let said = ping(more, version);
        for text in texts {
            assert!(
                said.contains(&format!("inline, {text}")),
                "{more:?}: {said}"
            );
        }
    }
}

fn rows<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
    let words = words.into_iter().map(str::to_owned);
    serde_json::from_str(&run(words).ok().stdout).expect("rows as JSON")
}

/// Longer receives spare version 1 the round trip of an RDMA Read.
#[test]
fn settings_decide_what_a_simulation_counts() {
    let write = |more: &[&str]| {
        let words = [
            "compare", "--device", "sim", "--ops", "write", "--sizes", "8k",
        ];
        let words = words.into_iter().chain(["--via", "v1-inv", "--json", "-"]);
        rows(words.chain(more.iter().copied())).remove(0)
    };
    let usual = write(&[]);
    assert_eq!(usual["round_trips"], 2.0);
    assert!(usual["settings"].is_null());
    let long = write(&["--set", "inline-send=16k", "--set", "inline-receive=16k"]);
    assert_eq!(long["round_trips"], 1.0);
    assert_eq!(long["inline_bytes"], 16384);
    let settings = "--set inline-send=16k --set inline-receive=16k";
    assert_eq!(long["settings"], settings);
}

/// The servers of `compare` are processes of their own, which have the settings as well.
#[test]
fn settings_reach_the_servers_of_a_comparison() {
    let place = compare_place();
    let words = [
        "compare",
        "--via",
        "tcp,v1-inv",
        "--ops",
        "null",
        "--count",
        "9",
    ];
    let words = words.into_iter().chain(["--no-trips", "--json", "-"]);
    let set = ["--set", "inline-receive=16k", "--set", "credits=3"];
    let set = set.into_iter().chain(["--credits", "all"]);
    let rows = rows(words.chain(set).chain(place.iter().map(String::as_str)));
    let of = |mode: &str| {
        let mut rows = rows.iter();
        rows.find(|row| row["transfer_mode"] == mode).unwrap()
    };
    assert!(of("tcp")["settings"].is_null());
    let row = of("v1-inv");
    let settings = "--credits all --set inline-receive=16k --set credits=3";
    assert_eq!(row["settings"], settings);
    // Three credits and six more.
    for end in ["receive_memory_requester", "receive_memory_responder"] {
        assert_eq!(row[end], 9 * 16384, "{end}");
    }
}
