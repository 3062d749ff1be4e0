//! Tests of runs with relays between clients and a server; CI runs many more seeds (`.ci/run sim-relays`).

use rpc_transport::rdma::Version;
use rpcrdma_sim::{FeaturesOf, Pairing, Report, Swarm, VersionsOf, run, sweep};

const SEEDS: u64 = 96;
const RELAYS: Swarm = Swarm {
    resizing: false,
    features: FeaturesOf::Seed,
    versions: VersionsOf::Seed,
    hostile: false,
    relays: true,
    change: None,
};

/// Runs the first seeds, which must find nothing.
#[track_caller]
fn find_nothing(swarm: Swarm) -> rpcrdma_sim::Summary {
    let mut found = Vec::new();
    let summary = sweep(swarm, 0..SEEDS, 2, |report| {
        let seed = report.seed;
        found.extend(report.violations.into_iter().map(|what| (seed, what)));
        true
    });
    assert_eq!(found, []);
    assert_eq!((summary.seeds, summary.failed), (SEEDS, 0));
    assert!(summary.calls > 3 * SEEDS, "{summary:?}");
    summary
}

#[test]
fn the_first_seeds_find_nothing_and_have_faults() {
    let summary = find_nothing(RELAYS);
    assert!(summary.faults > SEEDS / 4, "{summary:?}");
    assert!(summary.callbacks > SEEDS, "{summary:?}");
    assert!(summary.waits > SEEDS / 10, "{summary:?}");
}

#[test]
fn each_pairing_of_features_is_between_the_relays_in_turn() {
    let summary = find_nothing(Swarm {
        features: FeaturesOf::Turns,
        ..RELAYS
    });
    let each = SEEDS / Pairing::COUNT as u64;
    assert_eq!(summary.pairings, [each; Pairing::COUNT]);
}

#[test]
fn the_working_groups_version_is_between_the_relays() {
    let swarm = Swarm {
        versions: VersionsOf::Only(Version::TWO_WG),
        ..RELAYS
    };
    find_nothing(swarm);
    let log = run(swarm, 0, true).log;
    let middle = log
        .lines()
        .find(|line| line.starts_with("relay 0 to relay 1"));
    assert!(
        middle.is_some_and(|line| line.contains("version 2wg")),
        "{log}"
    );
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let logs = || (0..12).map(|seed| run(RELAYS, seed, true).log);
    let first: Vec<String> = logs().collect();
    assert!(first.iter().all(|log| log.lines().count() > 100));
    assert!(first.iter().eq(logs().collect::<Vec<_>>().iter()));
}

#[test]
fn some_seeds_have_each_kind_of_hop_and_call_and_others_do_not() {
    let logs: Vec<String> = (0..SEEDS).map(|seed| run(RELAYS, seed, true).log).collect();
    for what in [
        "clients to relay 0: TCP",
        "relay 1 to the server: TCP",
        "callbacks true",
        "COMPOUNDs true",
    ] {
        let with = logs.iter().filter(|log| log.contains(what)).count() as u64;
        assert!(with > 5 && with < SEEDS - 5, "{what}: {with} seeds");
    }
}

/// Calls wait for memory in about half of the seeds in which it is short, and in no others.
#[test]
fn calls_wait_for_memory_where_it_is_short() {
    let reports: Vec<_> = (0..SEEDS).map(|seed| run(RELAYS, seed, true)).collect();
    let is_short = |report: &&Report| !report.log.contains("memory of relays [None, None]");
    let (short, ample): (Vec<_>, Vec<_>) = reports.iter().partition(is_short);
    let waiting = short.iter().filter(|report| report.waits > 0).count();
    assert!(waiting > 2, "{waiting} of {} seeds", short.len());
    assert!(ample.iter().all(|report| report.waits == 0));
}

#[test]
fn seeds_have_each_kind_of_fault_and_none() {
    let logs: Vec<String> = (0..SEEDS).map(|seed| run(RELAYS, seed, true).log).collect();
    for fault in [
        "Finish",
        "Lose",
        "Leave(0)",
        "Leave(1)",
        "Kill(0)",
        "Kill(1)",
        "Memory(0)",
        "Memory(1)",
    ] {
        let line = format!("fault: {fault}");
        let with = logs.iter().filter(|log| log.contains(&line)).count();
        assert!(with > 1, "{fault}: {with} seeds");
    }
    assert!(logs.iter().any(|log| !log.contains("fault: ")));
}
