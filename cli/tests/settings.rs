//! Tests of `--set` and `--credits`: each end has what it is told, and impossible values are refused.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

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
            "up-delay=0s to 10s [5us]",
            "down-rate=1k to unlimited [100g]",
            "loss=0% to 50% [0%]",
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
            &["sim", "--seed", "1", "--set", "sender-copy-rate=1g"],
            "sender-copy-rate: without effect on seeds",
        ),
        (
            &["sim", "--seed", "1", "--set", "retransmit-after=1ms"],
            "retransmit-after: without effect unless loss is set",
        ),
        (
            &["sim", "--seed", "1", "--set", "loss=51%"],
            "loss: `51%` is not possible: write 0% to 50%",
        ),
        (
            &["compare", "--device", "sim", "--set", "jitter=1us"],
            "--set jitter makes a single call one draw of many: add --in-flight 1",
        ),
        (
            &[
                "compare", "--device", "sim", "--costs", "post=1us", "--set", "post=2us",
            ],
            "--set post: not with post in --costs, which sets the same",
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

/// A setting that only a simulation has is refused by everything that is none.
#[test]
fn settings_of_simulations_are_refused_elsewhere() {
    for command in COMMANDS {
        for set in ["loss=1%", "up-delay=1ms", "post=1us", "cold-cache=on"] {
            let refused = run([command, &["--set", set]].concat());
            let name = set.split('=').next().unwrap();
            let said = format!("--set {name}: only for simulations: compare --device sim, and sim");
            assert_eq!(
                refused.status.code(),
                Some(2),
                "{command:?} {set}: {refused:#?}"
            );
            assert!(
                refused.stderr.contains(&said),
                "{command:?} {set}: {refused:#?}"
            );
        }
    }
}

/// Returns the rows of a comparison in the simulation with these settings.
fn simulated(words: &[&str], settings: &[&str]) -> Vec<Value> {
    let words = words.iter().copied();
    let settings = settings.iter().flat_map(|set| ["--set", *set]);
    let all = ["compare", "--device", "sim", "--json", "-"];
    let rows = run(all.into_iter().chain(words).chain(settings))
        .ok()
        .stdout;
    serde_json::from_str(&rows).unwrap()
}

/// A call takes the delay of one direction, and its reply that of the other.
#[test]
fn the_directions_of_a_simulated_link_have_delays_of_their_own() {
    let free = [
        "post=0s",
        "completion=0s",
        "interrupt=0s",
        "up-rate=unlimited",
        "down-rate=unlimited",
    ];
    let copies = ["sender-copy-rate=unlimited", "receiver-copy-rate=unlimited"];
    let delays = ["up-delay=300us", "down-delay=40us"];
    let null = ["--ops", "null", "--via", "v1-inv,v2,wg"];
    for row in simulated(&null, &[&free[..], &copies, &delays].concat()) {
        assert_eq!(row["p50_us"], 340.0, "{row:#}");
        assert_eq!(row["delay_us"], 170.0, "{row:#}");
        let settings = row["settings"].as_str().unwrap();
        assert!(
            settings.contains("--set up-delay=300us --set down-delay=40us"),
            "{settings}"
        );
        let costs = row["costs"].as_str().unwrap();
        assert!(
            costs.starts_with("up-delay=300us,down-delay=40us,rate=unlimited,post=0s"),
            "{costs}"
        );
    }
    // As an option has both.
    let both = simulated(&[&null[..], &["--delay", "7us"]].concat(), &[]);
    let each = simulated(&null, &["up-delay=7us", "down-delay=7us"]);
    for (both, each) in both.iter().zip(&each) {
        for key in ["p50_us", "delay_us", "costs", "rate_bits_per_s"] {
            assert_eq!(both[key], each[key], "{key}");
        }
    }
}

/// The work for an operation depends neither on what the link does nor on the seed.
#[test]
fn noise_of_a_simulated_link_changes_times_and_what_is_sent_again() {
    let words = ["--ops", "getattr", "--via", "v2", "--in-flight", "1,8"];
    let still = simulated(&words, &[]);
    assert!(still.iter().all(|row| row["retransmissions"].is_null()));
    assert_eq!(
        still,
        simulated(&words, &["jitter=0s", "loss=0%"])
            .into_iter()
            .map(|mut row| {
                row["settings"] = Value::Null;
                row
            })
            .collect::<Vec<_>>()
    );
    let noisy = |seed: &str| {
        simulated(
            &words,
            &["jitter=30us", "loss=2%", "retransmit-after=5ms", seed],
        )
    };
    let (one, two) = (noisy("seed=1"), noisy("seed=2"));
    assert_eq!(one, noisy("seed=1"));
    for ((still, one), two) in still.iter().zip(&one).zip(&two) {
        let of = |row: &Value, key: &str| row[key].as_f64().unwrap();
        for key in ["sends", "rdma_reads", "registrations"] {
            assert_eq!(of(one, key), of(still, key), "{key}");
        }
        for key in ["p50_us", "p999_us"] {
            assert!(of(one, key) > of(still, key), "{key}: {one:#}");
        }
        assert!(of(one, "p999_us") > 5_000.0);
        assert_ne!(of(one, "p50_us"), of(two, "p50_us"));
        assert!((0.01..0.1).contains(&of(one, "retransmissions")), "{one:#}");
    }
    let all = [
        "--ops",
        "getattr",
        "--via",
        "v2",
        "--in-flight",
        "1",
        "--set",
        "loss=2%",
    ];
    let text = run([&["compare", "--device", "sim"], &all[..]].concat())
        .ok()
        .stdout;
    assert!(text.contains("resent") && !text.contains("sys c"), "{text}");
}

/// Seeds have it instead of what they would have chosen, and find nothing.
#[test]
fn seeds_have_the_link_that_is_set() {
    let words = [
        "--set",
        "up-delay=3ms",
        "--set",
        "jitter=1ms",
        "--set",
        "loss=1%",
    ];
    let seed = run([&["sim", "--seed", "9", "--explain"], &words[..]].concat())
        .ok()
        .stdout;
    let noise = "jitter 1ms, 10000 packets in a million lost and sent again after 67.108864ms";
    for part in ["link: delay 3ms up and ", noise, " lost packets again"] {
        assert!(seed.contains(part), "{part}: {seed}");
    }
    let all = run([&["sim", "--seeds", "0..100"], &words[..]].concat())
        .ok()
        .stdout;
    assert!(all.ends_with("no violation\n"), "{all}");
}
