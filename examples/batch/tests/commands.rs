//! The commands have batches, and the figure says what they bring.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Stdio};

/// Returns what a program writes; it has to succeed.
fn said(program: &str, words: &str) -> String {
    let mut command = Command::new(program);
    let command = command.args(words.split(' ').filter(|word| !word.is_empty()));
    let output = command.env_remove("RUST_LOG").stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whole clients and servers with faults: lost connections, crashes, short memory.
#[test]
fn seeds_run_with_batches_in_both_versions() {
    for version in ["any", "2wg"] {
        let words = format!("sim --seeds 0..24 --rpcrdma {version} --with batch");
        let found = said(env!("CARGO_BIN_EXE_batch"), &words);
        assert!(found.contains("no violation"), "{version}: {found}");
    }
}

/// With one call in flight there is nothing to put together, and nothing that it costs.
#[test]
fn a_call_by_itself_costs_what_it_does_without_batches() {
    let words = "compare --device sim --ops null --via v2,v2+batch,wg,wg+batch --json -";
    let rows = said(env!("CARGO_BIN_EXE_batch"), words);
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let rows = rows["rows"].as_array().or(rows.as_array()).unwrap();
    let latency = |mode: &str| {
        let row = rows.iter().find(|row| row["transfer_mode"] == mode);
        row.unwrap()["p50_us"].as_f64().unwrap()
    };
    for version in ["v2", "wg"] {
        let batched = format!("{version}+batch");
        assert_eq!(
            latency(version).to_bits(),
            latency(&batched).to_bits(),
            "{version}"
        );
    }
}

#[test]
fn batches_take_fewer_sends_and_interrupts() {
    let figure = said(env!("CARGO_BIN_EXE_batch-figure"), "");
    let of = |what: &str| -> Vec<f64> {
        let line = figure.lines().find_map(|line| line.strip_prefix(what));
        let numbers = line.unwrap().split_whitespace();
        numbers.filter_map(|word| word.parse().ok()).collect()
    };
    for version in ["2", "2wg"] {
        for in_flight in [4.0, 16.0, 64.0] {
            let single = of(&format!("{version}, {in_flight} in flight, one by one"));
            let batched = of(&format!("{version}, {in_flight} in flight, batched"));
            // Time, Sends and interrupts of a call: all calls in flight in one Send, and all replies.
            assert!(batched[0] < 1.02 * single[0], "{figure}");
            assert!((single[1] - 2.0).abs() < 0.01, "{figure}");
            assert!((batched[1] - 2.0 / in_flight).abs() < 0.01, "{figure}");
            assert!(batched[2] < 0.6 * single[2], "{figure}");
        }
    }
}
