//! A few seeds, with every run of the tests; CI runs many more (`.ci/run sim`).

use rpcrdma_sim::{Plan, Victim, sweep};

const SEEDS: u64 = 120;

#[test]
fn the_first_seeds_find_nothing_and_have_faults() {
    let mut found = Vec::new();
    let summary = sweep(0..SEEDS, 2, |report| {
        let seed = report.seed;
        found.extend(report.violations.into_iter().map(|what| (seed, what)));
        true
    });
    assert_eq!(found, []);
    assert_eq!((summary.seeds, summary.failed), (SEEDS, 0));
    assert!(summary.calls > 50 * SEEDS, "{summary:?}");
    assert!(summary.faults > SEEDS, "{summary:?}");
    assert!(summary.failures > 0, "{summary:?}");
    assert!(summary.callbacks > SEEDS, "{summary:?}");
}

/// A swarm: each kind of fault is on in some seeds and off in others, and some have none.
#[test]
fn seeds_differ_in_what_goes_wrong() {
    let plans: Vec<Plan> = (0..SEEDS).map(Plan::new).collect();
    let share = |of: &dyn Fn(&Plan) -> bool| plans.iter().filter(|plan| of(plan)).count();
    let crashes = |victim: fn(Victim) -> bool| {
        share(&|plan| plan.crashes.iter().any(|crash| victim(crash.victim)))
    };
    let shares = [
        ("nothing", share(&Plan::is_calm)),
        ("loss", share(&|plan| plan.faults.lose > 0)),
        (
            "registration",
            share(&|plan| plan.faults.fail_registration > 0),
        ),
        (
            "late completions",
            share(&|plan| !plan.faults.late_completion.is_zero()),
        ),
        (
            "late reads",
            share(&|plan| !plan.faults.late_read.is_zero()),
        ),
        ("version 2", share(&|plan| plan.speaks_two())),
        ("callbacks", share(&|plan| plan.callbacks)),
        ("one credit", share(&|plan| plan.responder.credits == 1)),
        (
            "a short queue",
            share(&|plan| plan.attributes.max_send_wr == 2),
        ),
        ("power", crashes(|victim| victim == Victim::ServerPower)),
        ("process", crashes(|victim| victim == Victim::ServerProcess)),
        ("memory", crashes(|victim| victim == Victim::ServerMemory)),
        (
            "client",
            crashes(|victim| matches!(victim, Victim::Client(_))),
        ),
        (
            "slow reader",
            crashes(|victim| matches!(victim, Victim::ClientPause(_))),
        ),
    ];
    for (what, share) in shares {
        assert!(
            (5..SEEDS as usize * 3 / 4).contains(&share),
            "{what}: {share}"
        );
    }
}
