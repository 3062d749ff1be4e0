//! The program of this crate has the extension in its commands.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

use serde_json::Value;

fn said(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_@name@"));
    let output = command.args(words).env_remove("RUST_LOG").output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn compare_has_a_row_of_the_extension() {
    let via = "@via@,@via@+@name@";
    let words = ["compare", "--device", "sim", "--ops", "null", "--via", via, "--json", "-"];
    let rows: Value = serde_json::from_str(&said(&words)).unwrap();
    let rows = rows.as_array().unwrap();
    let modes: Vec<_> = rows.iter().map(|row| row["transfer_mode"].clone()).collect();
    assert_eq!(modes, ["@via@", "@via@+@name@"]);
    for row in rows {
        assert_eq!(row["round_trips"].as_f64(), Some(1.0), "{row:#}");
    }
}

#[test]
fn seeds_run_with_the_extension() {
    let found = said(&["sim", "--seeds", "0..24", "--rpcrdma", "@sim@", "--with", "@name@"]);
    assert!(found.contains("no violation"), "{found}");
}
