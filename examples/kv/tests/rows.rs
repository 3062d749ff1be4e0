//! The calls are rows of `compare`, and each version places their values.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn run(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv"));
    let command = command.args(words.split(' '));
    let output = command.env_remove("RUST_LOG").stdin(Stdio::null()).output();
    output.unwrap()
}

fn rows(words: &str) -> Vec<Value> {
    let output = run(&format!("compare --json - {words}"));
    assert!(output.status.success(), "{words}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn values_are_placed_by_every_version() {
    const VALUE: f64 = 65_536.0;
    let via = "v1,v2,v2-ddp,wg,wg-ddp";
    for in_flight in ["", " --in-flight 1"] {
        let words = format!("--device sim --ops kv-put,kv-get --sizes 64k --via {via}{in_flight}");
        let rows = rows(&words);
        for mode in via.split(',') {
            let of = |op: &str, key: &str| {
                let row = rows
                    .iter()
                    .find(|row| row["transfer_mode"] == mode && row["op"] == op);
                row.unwrap()[key].as_f64().unwrap()
            };
            // A PUT is read from a chunk and a GET written to one, or neither is: if Sends place the
            // values, or if wg carries an argument in several Sends.
            let by_chunks = [
                ("kv-put", matches!(mode, "v1" | "v2")),
                ("kv-get", matches!(mode, "v1" | "v2" | "wg")),
            ];
            for (op, by_chunks) in by_chunks {
                let [reads, writes] = ["rdma_reads", "rdma_writes"].map(|key| of(op, key));
                let chunks = f64::from(u8::from(by_chunks));
                assert_eq!(reads + writes, chunks, "{words}: {mode} {op}");
                assert_eq!(reads > 0.0, by_chunks && op == "kv-put", "{mode} {op}");
                assert_eq!(of(op, "registrations"), chunks, "{words}: {mode} {op}");
                assert!(of(op, "copied_bytes") < VALUE / 8.0, "{words}: {mode} {op}");
                assert!(of(op, "wire_bytes") > VALUE, "{words}: {mode} {op}");
            }
        }
    }
}

#[test]
fn calls_are_rows_by_the_clock_with_the_same_counts() {
    let words = "--ops kv,kv-put,kv-get --sizes 1k,64k --via v1,wg-ddp --in-flight 4 --clients 2";
    let simulated = rows(&format!("{words} --device sim"));
    let measured = rows(&format!("{words} --time 20ms"));
    assert_eq!((simulated.len(), measured.len()), (12, 12));
    for (simulated, measured) in simulated.iter().zip(&measured) {
        for key in ["op", "size", "transfer_mode"] {
            assert_eq!(simulated[key], measured[key]);
        }
        for key in ["sends", "rdma_reads", "rdma_writes", "registrations"] {
            let [simulated, measured] = [simulated, measured].map(|row| row[key].as_f64().unwrap());
            assert!(
                (simulated - measured).abs() < 0.3,
                "{key}: {simulated} {measured}"
            );
        }
    }
}

#[test]
fn sizes_that_no_value_can_have_are_left_out() {
    let sizes = |words: &str| -> Vec<u64> {
        let rows = rows(&format!("--device sim --ops kv-get --via wg {words}"));
        rows.iter()
            .map(|row| row["size"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(sizes("--sizes 5,1M,64k"), [5, 65_536]);
    let refused = run("compare --device sim --ops kv-get --sizes 1M,65k");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("kv-get can have none of them"), "{said}");
}

#[test]
fn seeds_run_as_in_the_command() {
    let output = run("sim --seeds 0..8");
    assert!(output.status.success(), "{output:?}");
}
