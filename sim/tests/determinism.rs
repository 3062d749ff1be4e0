//! Tests that the same seed gives the same log, byte for byte: twice in one process, and in another
//! process. (`sim/same-logs` compares builds, in CI.)

use std::process::Command;

use rpcrdma_sim::{Plan, simulate};

/// The environment variable that makes a process print a log.
const ASKED: &str = "RPCRDMA_SIM_TEST_SEED";
/// Seeds with different kinds of faults.
const SEEDS: [u64; 6] = [0, 1, 2, 3, 17, 1234];
/// Seeds with several server loops, and how many.
const SEEDS_OF_LOOPS: [(u64, usize); 3] = [(5, 2), (8, 3), (6, 4)];

/// Computes FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn logs() -> String {
    let several = SEEDS_OF_LOOPS.map(|(seed, loops)| {
        assert_eq!(Plan::new(seed).loops, loops, "seed {seed}");
        simulate(seed, true).log
    });
    let logs = SEEDS.map(|seed| simulate(seed, true).log);
    logs.concat() + &several.concat()
}

#[test]
fn a_seed_is_the_same_run_in_this_process_and_in_another() {
    let here = logs();
    if std::env::var_os(ASKED).is_some() {
        println!("digest {:016x} of {} bytes", digest(&here), here.len());
        return;
    }
    assert!(here == logs(), "two runs in one process");
    let name = "a_seed_is_the_same_run_in_this_process_and_in_another";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ASKED, "1")
        .output()
        .unwrap();
    let there = String::from_utf8(output.stdout).unwrap();
    let expected = format!("digest {:016x} of {} bytes", digest(&here), here.len());
    assert!(there.contains(&expected), "{expected}, but there:\n{there}");
}

#[test]
fn other_seeds_are_other_runs() {
    assert_ne!(simulate(5, true).log, simulate(6, true).log);
}
