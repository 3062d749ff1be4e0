//! The commands have batches, and rows that say what they bring.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Stdio};

use serde_json::Value;

/// Returns what the program writes; it has to succeed.
fn said(words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batch"));
    let command = command.args(words.split(' '));
    let output = command.env_remove("RUST_LOG").stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the rows of a comparison.
fn rows(words: &str) -> Vec<Value> {
    serde_json::from_str(&said(words)).unwrap()
}

/// Returns a number of the row of a transfer mode with so many calls in flight.
fn number(rows: &[Value], mode: &str, in_flight: f64, key: &str) -> f64 {
    let is_wanted = |row: &&Value| row["transfer_mode"] == mode && row["in_flight"] == in_flight;
    rows.iter().find(is_wanted).unwrap()[key].as_f64().unwrap()
}

/// Whole clients and servers with faults: lost connections, crashes, short memory.
#[test]
fn seeds_run_with_batches_in_both_versions() {
    for version in ["any", "2wg"] {
        let words = format!("sim --seeds 0..24 --rpcrdma {version} --with batch");
        let found = said(&words);
        assert!(found.contains("no violation"), "{version}: {found}");
    }
}

/// With one call in flight there is nothing to put together, and nothing that it costs.
#[test]
fn a_call_by_itself_costs_what_it_does_without_batches() {
    let rows = rows("compare --device sim --ops null --via v2,v2+batch,wg,wg+batch --json -");
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

/// All calls in flight leave in one Send, and all replies; each end is woken once for them. A receive of
/// 4 KiB does not hold 64 calls, which are two of each.
#[test]
fn batches_take_fewer_sends_and_interrupts() {
    let all = "--ops null --via v2,v2+batch,wg,wg+batch --in-flight 4,16,64 --json -";
    let simulated = rows(&format!("compare --device sim {all}"));
    for version in ["v2", "wg"] {
        for in_flight in [4.0, 16.0, 64.0] {
            let of = |mode: &str, key: &str| number(&simulated, mode, in_flight, key);
            let batched = format!("{version}+batch");
            // With a message of its own that grants credits now and then.
            assert!((of(version, "sends") - 2.0).abs() < 0.01, "{version}");
            let parts = if in_flight == 64.0 { 2.0 } else { 1.0 };
            let sends = of(&batched, "sends") * in_flight;
            assert!((sends - 2.0 * parts).abs() < 0.1, "{version}: {sends}");
            for end in ["interrupts_requester", "interrupts_responder"] {
                assert!(
                    of(&batched, end) < 1.05 * parts / in_flight,
                    "{version} {in_flight}"
                );
                assert!(
                    of(&batched, end) < 0.95 * of(version, end),
                    "{version} {in_flight}"
                );
            }
            assert!(of(&batched, "ops_per_s") > 0.98 * of(version, "ops_per_s"));
        }
    }
    // By the clock, the counts are the same.
    let measured = rows(&format!("compare --time 50ms {all}"));
    for row in &measured {
        let (mode, in_flight) = (row["transfer_mode"].as_str().unwrap(), &row["in_flight"]);
        let in_flight = in_flight.as_f64().unwrap();
        let [simulated, measured] =
            [&simulated, &measured].map(|rows| number(rows, mode, in_flight, "sends"));
        assert!(
            (simulated - measured).abs() < 0.05,
            "{mode} {in_flight}: {simulated} {measured}"
        );
    }
}
