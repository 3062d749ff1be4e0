//! Tests of `sim`, which runs seeds, and of `compare --device sim`, which counts.

mod common;

use common::{Finished, run};
use serde_json::Value;

#[test]
fn a_seed_is_explained_in_the_same_words_each_time() {
    let explained = || run(["sim", "--seed", "17", "--explain"]).ok();
    let first: Finished = explained();
    assert!(first.stdout.contains("seed 17: "), "{first:?}");
    assert!(first.stdout.contains("posts Send of"), "{first:?}");
    assert_eq!(first.stdout, explained().stdout);
    assert_eq!(first.stderr, "");
    // What the end of a connection flushes is counted, and not repeated.
    let lines: Vec<&str> = first.stdout.lines().collect();
    let repeated = lines.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(repeated, None);
    let flushed = "is told: work failed: flushed: the connection ended (";
    assert!(
        lines
            .iter()
            .any(|line| line.contains(flushed) && line.ends_with(" times)"))
    );
    // The plan at the beginning is for people.
    let plan = first.stdout.split("\n\n").next().unwrap();
    assert!(plan.lines().all(|line| line.len() <= 200), "{plan}");
    assert!(!plan.contains("Options {"), "{plan}");
}

#[test]
fn seeds_are_counted_and_their_rate_is_told() {
    let finished = run(["sim", "--seeds", "100..110", "--threads", "2"]).ok();
    assert!(finished.stdout.starts_with("10 seeds in "), "{finished:?}");
    assert!(finished.stdout.contains(" a second: "), "{finished:?}");
    assert!(finished.stdout.contains("no violation"), "{finished:?}");
}

/// The figures of version 1 in the round-trip issues document, section 2.2. They assume that the
/// responder invalidates; a requester that invalidates itself has one more interrupt.
#[test]
fn the_simulated_comparison_counts_what_replies_wait_for() {
    let args = ["compare", "--device", "sim", "--sizes", "8k", "--json", "-"];
    let rows: Vec<Value> = serde_json::from_str(&run(args).ok().stdout).unwrap();
    let counts_by = |conveyance: &str, op: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row["op"] == op && row["transfer_mode"] == conveyance);
        let row = row.unwrap();
        let count = |key: &str| row[key].as_f64().unwrap();
        [
            count("round_trips"),
            count("interrupts_requester"),
            count("interrupts_responder"),
            count("registrations"),
        ]
    };
    let counts = |op: &str| counts_by("v1-inv", op);
    assert_eq!(counts("null"), [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(counts("read"), [1.0, 1.0, 1.0, 1.0]);
    assert_eq!(counts("write"), [2.0, 1.0, 2.0, 1.0]);
    assert_eq!(counts_by("v1", "read"), [1.0, 2.0, 1.0, 1.0]);
    assert_eq!(counts_by("v1", "write"), [2.0, 2.0, 2.0, 1.0]);
}

/// Receives of version 2 have at least 4096 bytes, so a smaller size limits what is sent: 2 KiB no
/// longer go inline, and cost what a chunk costs.
#[test]
fn less_than_a_receive_limits_what_is_sent_inline() {
    let write = |inline: &str| {
        let args = [
            "compare", "--device", "sim", "--ops", "write", "--sizes", "2k", "--via", "v1,v2",
            "--inline", inline, "--json", "-",
        ];
        let rows: Vec<Value> = serde_json::from_str(&run(args).ok().stdout).unwrap();
        let counts = |conveyance: &str| {
            let row = rows.iter().find(|row| row["transfer_mode"] == conveyance);
            let count = |key: &str| row.unwrap()[key].as_f64().unwrap();
            ["round_trips", "rdma_reads", "registrations", "inline_bytes"].map(count)
        };
        (counts("v1"), counts("v2"))
    };
    let inline = [1.0, 0.0, 0.0, 4096.0];
    assert_eq!(write("4k"), (inline, inline));
    assert_eq!(write("1k"), (inline, [2.0, 1.0, 1.0, 1024.0]));
    let explain = |inline: &str| {
        let args = [
            "explain",
            "-o",
            "rpcrdma=2,features=none",
            "--inline",
            inline,
            "write:2k",
        ];
        let said = run(args).ok().stdout;
        let chosen = said.lines().skip_while(|line| !line.starts_with("->"));
        chosen.take(2).collect::<Vec<_>>().join(" ")
    };
    assert!(explain("1k").contains("by read chunk"), "{}", explain("1k"));
    assert!(!explain("4k").contains("chunk"), "{}", explain("4k"));
    for wrong in ["1023", "257k"] {
        let finished = run(["explain", "--inline", wrong, "null"]);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
    }
}

/// The gain of longer receives by themselves, and that of continuation with short ones.
#[test]
fn receives_of_several_lengths_are_compared_over_their_memory() {
    let args = [
        "compare",
        "--device",
        "sim",
        "--delay",
        "1ms",
        "--receives",
        "2k..4k,128k",
        "--ops",
        "write",
        "--sizes",
        "64k",
    ];
    let json = run([&args[..], &["--json", "-"]].concat()).ok().stdout;
    let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
    let counts = |conveyance: &str, length: u64| {
        let row = rows.iter().find(|row| {
            row["conveyance"] == conveyance && row["inline_bytes"].as_u64() == Some(length)
        });
        let memory = ["receive_memory_requester", "receive_memory_responder"];
        let memory = memory.map(|key| row?[key].as_u64());
        let count = |key: &str| row?[key].as_f64();
        (count("round_trips"), count("registrations"), memory)
    };
    // A client asks for 128 credits, and a server grants 64. There are six receives beyond.
    let memory = |length| [Some(134 * length), Some(70 * length)];
    let chunk = |length| (Some(2.0), Some(1.0), memory(length));
    let sends = |length| (Some(1.0), Some(0.0), memory(length));
    let long = 128 << 10;
    for via in ["v1-inv", "v2", "v2-ddp"] {
        assert_eq!(counts(via, 4096), chunk(4096), "{via}");
        assert_eq!(counts(via, long), sends(long), "{via}");
    }
    for via in ["v2-cont", "v2-ddp-cont", "wg", "wg-ddp"] {
        assert_eq!(counts(via, 4096), sends(4096), "{via}");
        assert_eq!(counts(via, long), sends(long), "{via}");
    }
    // Receives of version 2 are not so short.
    assert_eq!(counts("v1-inv", 2048), chunk(2048));
    assert_eq!(rows.len(), 1 + 7 + 7);

    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let page_name = page.to_str().unwrap();
    let text = run([&args[..], &["--html", page_name]].concat())
        .ok()
        .stdout;
    for said in [
        "WRITE of 64 KiB: round trips over memory for receives",
        "WRITE of 64 KiB: time, µs, over memory for receives",
        "816.0 KiB by v2-cont, v2-ddp-cont, wg, wg-ddp (receives of 4 KiB)",
        "25.5 MiB by v1-inv, v2, v2-ddp",
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains(said), "{said}: {text}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
}

/// With 64 credits, 1 MiB in 106 messages waits once for credits, and so takes as many round trips as an
/// RDMA Read, and no registration (version-two-07, section 4.2.1.1).
#[test]
fn a_message_that_waits_once_for_credits_is_continued() {
    let rows = |receives: &str| {
        let args = [
            "compare",
            "--device",
            "sim",
            "--delay",
            "1ms",
            "--ops",
            "write",
            "--sizes",
            "1M",
            "--via",
            "wg",
            "--receives",
            receives,
            "--json",
            "-",
        ];
        let rows: Vec<Value> = serde_json::from_str(&run(args).ok().stdout).unwrap();
        let count = |key: &str| rows[0][key].as_f64().unwrap();
        assert!((count("p50_us") / count("predicted_us") - 1.0).abs() < 0.01);
        (count("round_trips"), count("registrations"))
    };
    assert_eq!(rows("10k"), (2.0, 0.0));
    // Two waits would be a round trip more than the RDMA Read.
    assert_eq!(rows("8k"), (2.0, 1.0));
}
