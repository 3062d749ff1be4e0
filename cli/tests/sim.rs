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
