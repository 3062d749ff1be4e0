//! Tests that run a few seeds; CI runs many more (`.ci/run sim`).

use rpc_transport::rdma::{Choice, Version};
use rpcrdma_sim::{
    ExportChange, FeaturesOf, FloodOf, Hostile, Pairing, Plan, Swarm, VersionsOf, Victim, sweep,
};

const SEEDS: u64 = 120;

#[test]
fn the_first_seeds_find_nothing_and_have_faults() {
    let mut found = Vec::new();
    let summary = sweep(Swarm::default(), 0..SEEDS, 2, |report| {
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

#[test]
fn the_first_seeds_of_the_working_groups_version_find_nothing() {
    let swarm = Swarm {
        versions: VersionsOf::Only(Version::TWO_WG),
        ..Swarm::default()
    };
    let mut found = Vec::new();
    let summary = sweep(swarm, 0..SEEDS, 2, |report| {
        let seed = report.seed;
        found.extend(report.violations.into_iter().map(|what| (seed, what)));
        true
    });
    assert_eq!(found, []);
    assert!(summary.calls > 50 * SEEDS, "{summary:?}");
    assert!(summary.callbacks > SEEDS, "{summary:?}");
}

#[test]
fn the_first_hostile_seeds_find_nothing() {
    let swarm = Swarm {
        hostile: true,
        ..Swarm::default()
    };
    let mut found = Vec::new();
    let summary = sweep(swarm, 0..SEEDS, 2, |report| {
        let seed = report.seed;
        found.extend(report.violations.into_iter().map(|what| (seed, what)));
        true
    });
    assert_eq!(found, []);
    assert!(summary.calls > 100 * SEEDS, "{summary:?}");
}

/// Tests that hostile seeds have every change of the exports, and every kind of client that is not
/// honest, each by itself and with faults; and that one seed in sixteen of the others is hostile as well,
/// and otherwise what it was.
#[test]
fn hostile_seeds_have_disturbers_of_all_kinds() {
    let hostile = Swarm {
        hostile: true,
        ..Swarm::default()
    };
    let plans: Vec<Plan> = (0..400).map(|seed| hostile.plan(seed)).collect();
    let has = |what: &str, of: &dyn Fn(&Plan, &Hostile) -> bool| {
        let with = plans
            .iter()
            .filter_map(|plan| Some((plan, plan.hostile.as_ref()?)));
        let count = with.filter(|(plan, hostile)| of(plan, hostile)).count();
        assert!((10..350).contains(&count), "{what}: {count}");
    };
    let changes: [fn(ExportChange) -> bool; 5] = [
        |change| matches!(change, ExportChange::Repoint(_)),
        |change| change == ExportChange::Swap,
        |change| change == ExportChange::Remove,
        |change| change == ExportChange::ReadOnly,
        |change| change == ExportChange::Key,
    ];
    for (at, is) in changes.into_iter().enumerate() {
        let is = |victim| matches!(victim, Victim::Administrator(change) if is(change));
        has(&format!("change {at}"), &|plan, _| {
            plan.crashes.iter().any(|crash| is(crash.victim))
        });
    }
    has("a tenant", &|_, hostile| hostile.tenant);
    has("a tenant alone", &|_, hostile| {
        hostile.tenant && hostile.quiet == 0 && hostile.flood.is_none()
    });
    has("XIDs again", &|_, hostile| hostile.repeating);
    has("a quiet one", &|_, hostile| hostile.quiet > 0);
    has("few connections", &|_, hostile| hostile.connections < 20);
    has("few replies", &|_, hostile| hostile.replies < 1000);
    has("few jobs", &|_, hostile| hostile.jobs < 100);
    for of in [
        FloodOf::Refusals,
        FloodOf::Changes,
        FloodOf::Data,
        FloodOf::Connections,
    ] {
        has(&format!("{of:?}"), &|_, hostile| {
            hostile.flood.as_ref().is_some_and(|flood| flood.of == of)
        });
    }
    has("lost connections", &|plan, _| plan.faults.lose > 0);
    has("a server that crashes", &|plan, _| {
        let mut crashes = plan.crashes.iter();
        crashes.any(|crash| crash.victim == Victim::ServerProcess)
    });
    let plain: Vec<Plan> = (0..1600).map(Plan::new).collect();
    let share: Vec<&Plan> = plain.iter().filter(|plan| plan.hostile.is_some()).collect();
    assert_eq!(share.len() as u64, 1600 / Swarm::HOSTILE);
    for plan in share {
        assert_eq!(plan.hostile, hostile.plan(plan.seed).hostile);
    }
}

/// Tests that free seeds have every choice of a client, every set of a server, and counts of
/// messages that wrap, and that both ends always have a version in common.
#[test]
fn free_seeds_have_versions_of_all_kinds() {
    let plans = |versions| {
        let swarm = Swarm {
            versions,
            ..Swarm::default()
        };
        (0..400).map(move |seed| swarm.plan(seed))
    };
    let free: Vec<Plan> = plans(VersionsOf::Free).collect();
    let has = |of: &dyn Fn(&Plan) -> bool| free.iter().filter(|plan| of(plan)).count() > 10;
    let only = [Version::ONE, Version::TWO, Version::TWO_WG].map(Choice::Only);
    for choice in only.into_iter().chain([Choice::Auto]) {
        assert!(has(&|plan| plan.version == choice), "{choice}");
    }
    for names in ["1", "2", "2wg", "1,2", "1,2wg", "2,2wg", "1,2,2wg"] {
        let known = rpcrdma_protocols::base();
        let versions = known.known().parse_versions(names).unwrap();
        assert!(has(&|plan| plan.versions == versions), "{names}");
    }
    assert!(has(&|plan| plan.requester.initial_message_count == 0));
    assert!(has(&|plan| plan.requester.initial_message_count != 0));
    for plan in free {
        let counts = [&plan.requester, &plan.responder].map(|end| end.initial_message_count);
        assert_eq!(counts[0], counts[1]);
        let known = plan.requester.protocols.known();
        let mut accepted = known.accepted(&plan.versions);
        assert!(accepted.any(|known| plan.version.allows(known.version())));
    }
    assert!(plans(VersionsOf::Only(Version::TWO_WG)).all(|plan| plan.speaks_wg()));
    let chosen = plans(VersionsOf::Seed).filter(Plan::speaks_wg).count();
    assert!((10..60).contains(&chosen), "{chosen}");
}

/// Tests the variety of seeds: each kind of fault is on in some seeds and off in others, and some
/// seeds have none.
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
        ("starvation", share(&|plan| plan.starve > 0)),
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
        (
            "few receives",
            share(&|plan| plan.attributes.max_recv_wr < 10),
        ),
        (
            "little memory",
            share(&|plan| plan.client_memory < 100 << 10),
        ),
        ("version 1", share(&|plan| !plan.speaks_two())),
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
        (
            "slow loop",
            crashes(|victim| matches!(victim, Victim::LoopPause(_))),
        ),
        ("one loop", share(&|plan| plan.loops == 1)),
        ("two loops", share(&|plan| plan.loops == 2)),
        ("four loops", share(&|plan| plan.loops == 4)),
    ];
    for (what, share) in shares {
        assert!(
            (5..SEEDS as usize * 3 / 4).contains(&share),
            "{what}: {share}"
        );
    }
}

/// Tests that each of the sixteen combinations of features is run equally often, and by default
/// among others.
#[test]
fn seeds_take_turns_at_the_pairings_of_features() {
    let count = |swarm: Swarm, seeds| {
        let mut counts = [0; Pairing::COUNT];
        for seed in 0..seeds {
            if let Some(pairing) = swarm.plan(seed).pairing().and_then(|p| p.number()) {
                counts[pairing] += 1;
            }
        }
        counts
    };
    let plain = count(Swarm::default(), 6400);
    assert!(plain.iter().all(|&count| count >= 200), "{plain:?}");
    let (most, least) = (plain.iter().max(), plain.iter().min());
    // Features that could have been halved are sometimes whole.
    assert!(
        most.zip(least)
            .is_some_and(|(most, least)| most - least <= 80),
        "{plain:?}"
    );
    let turns = Swarm {
        features: FeaturesOf::Turns,
        ..Swarm::default()
    };
    assert_eq!(count(turns, 160), [10; Pairing::COUNT]);
    let pairing: Pairing = "ddp/cont:send".parse().unwrap();
    let only = Swarm {
        features: FeaturesOf::Only(pairing),
        ..Swarm::default()
    };
    assert!((0..100).all(|seed| only.plan(seed).pairing() == Some(pairing)));
}
