//! The commands have the policy, and rows say what it brings.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs the program with these words. Returns its exit status, standard output and standard error.
fn run(words: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_credits"));
    let command = command.args(words.split(' ')).env_remove("RUST_LOG");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Returns what a command writes to standard output; it has to succeed.
fn said(words: &str) -> String {
    let (status, said, error) = run(words);
    assert_eq!(status, Some(0), "{words}: {error}");
    said
}

/// Returns the rows of a comparison of both policies.
fn rows(words: &str) -> Vec<Value> {
    let words = format!("compare --credits all,by-queue --json - {words}");
    serde_json::from_str(&said(&words)).unwrap()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key}: {row:#}"))
}

/// Returns the row of a transfer mode with so many clients.
fn row<'a>(rows: &'a [Value], mode: &str, clients: u64) -> &'a Value {
    let mut rows = rows.iter();
    let found = rows.find(|row| row["transfer_mode"] == mode && row["clients"] == clients);
    found.unwrap_or_else(|| panic!("{mode}, {clients}"))
}

/// Whole clients and servers with faults: no rule of flow control is broken, and nobody waits for ever.
#[test]
fn seeds_run_with_the_policy() {
    for version in ["any", "2wg"] {
        let found = said(&format!(
            "sim --seeds 0..60 --rpcrdma {version} --credits by-queue"
        ));
        assert!(found.contains("no violation"), "{version}: {found}");
        let granted = found
            .lines()
            .find(|line| line.starts_with("servers granted"));
        let granted = granted.unwrap_or_else(|| panic!("{version}: {found}"));
        let words = granted.split_ascii_whitespace();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let [least, most, raised, lowered] = numbers[..] else {
            panic!("{granted}");
        };
        let fewest = if version == "2wg" { 3 } else { 1 };
        assert!(least >= fewest && most > least, "{granted}");
        assert!(raised > 0 && lowered > 0, "{granted}");
    }
}

/// A longer queue leaves more for each client.
#[test]
fn the_length_of_the_queue_is_a_setting() {
    let most = |queue: u64| {
        let words = "compare --device sim --ops null --via wg --in-flight 32 --clients 4 --json -";
        let words = format!("{words} --credits by-queue --set queue={queue}");
        let rows: Vec<Value> = serde_json::from_str(&said(&words)).unwrap();
        number(&rows[0], "receives_taken_responder")
    };
    assert!(most(16) < most(64), "{} {}", most(16), most(64));
}

/// Without version 1, rows are compared with those of the first policy.
#[test]
fn the_first_policy_is_the_baseline() {
    for clock in ["--device sim", "--time 30ms --no-pin"] {
        let rows = rows(&format!("{clock} --ops null --via wg"));
        assert!(rows.len() >= 2);
        for row in &rows {
            assert_eq!(row["baseline"], "wg:all");
            assert!(number(row, "baseline_ratio") > 0.0, "{clock}: {row:#}");
        }
    }
}

/// The receives of the server take less memory the more clients there are, and the server does as much.
#[test]
fn many_clients_take_less_memory_and_wait_no_longer() {
    let measure = "--device sim --ops write --sizes 4k --in-flight 32 --clients 1,16,64";
    for mode in ["v1-long", "wg-ddp"] {
        let rows = rows(&format!("{measure} --via {mode}"));
        let of = |policy: &str, clients| row(&rows, &format!("{mode}:{policy}"), clients);
        for (key, least, most) in [
            ("ops_per_s", 0.95, 1.1),
            ("p50_us", 0.8, 1.1),
            ("receives_taken_responder", 0.9, 1.1),
        ] {
            let ratio = number(of("by-queue", 1), key) / number(of("all", 1), key);
            assert!((least..=most).contains(&ratio), "{mode}, {key}: {ratio}");
        }
        for (clients, most) in [(16, 0.5), (64, 0.8)] {
            let [all, own] = ["all", "by-queue"].map(|policy| of(policy, clients));
            let ratio = |key| number(own, key) / number(all, key);
            for (key, least, most) in [
                ("ops_per_s", 1.0, f64::INFINITY),
                ("p50_us", 0.0, 1.0),
                ("receives_taken_responder", 0.0, most),
                ("copied_bytes", 0.0, 1.0),
            ] {
                let found = ratio(key);
                assert!(
                    (least..=most).contains(&found),
                    "{mode}, {clients}, {key}: {found}"
                );
            }
        }
    }
}

/// Rows by the clock have the policies beside each other as well.
#[test]
fn policies_are_compared_by_the_clock() {
    let words = "--ops null --via wg --in-flight 8 --clients 1,3 --time 30ms --no-pin";
    let rows = rows(words);
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert!(number(row, "p50_us") > 0.0 && number(row, "receives_taken_responder") > 0.0);
    }
    let found = said("compare --device sim --ops null --clients 1,2 --via wg:by-queue,wg");
    assert!(
        found.contains("wg:by-queue") && found.contains("clients"),
        "{found}"
    );
}

#[test]
fn help_and_errors_say_what_there_is() {
    assert!(said("serve --help").contains("by-queue"));
    for (words, wanted) in [
        ("serve --memory --credits all,by-queue", "one policy"),
        ("compare --via wg:quick", "there are: all, by-queue"),
        ("compare --via tcp:all", "of RPC-over-RDMA"),
    ] {
        let (status, _, error) = run(words);
        assert_eq!(status, Some(2), "{words}: {error}");
        assert!(error.contains(wanted), "{words}: {error}");
    }
}
