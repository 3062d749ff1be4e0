//! Tests of the costs of operations with several in flight: what is done for each is the same as for
//! a single one, exactly.

use std::time::Duration;

use onc_rpc::Encoder;
use rdma::Counters;
use rdma_sim::Noise;
use rpc_transport::rdma::Version;
use rpc_transport::{Call, ProgramVersions, Reply, ReplyRoom, Request, Service, ServiceOutcome};
use rpcrdma_programs::workload::{Calls, Failed, Op, Pace, Prepare, Server, Workload};
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_sim::{Load, Loaded, MOST_CLIENTS, Setting, load, measure};

/// Returns settings of this version with these features.
fn setting(version: Version, features: &str) -> Setting {
    let features: RoundTripFeatures = features.parse().expect("features");
    let mut setting = Setting {
        version,
        ..Setting::default()
    };
    for end in [&mut setting.requester, &mut setting.responder] {
        end.protocols = rpcrdma_protocols::standard(&features);
    }
    setting
}

/// Versions 1, 2 and 2 of the working group, with placement where there is any.
fn settings() -> [Setting; 3] {
    [
        setting(Version::ONE, "none"),
        setting(Version::TWO, "ddp+cont"),
        setting(Version::TWO_WG, "ddp"),
    ]
}

fn in_flight(calls: u32) -> Load {
    Load {
        clients: 1,
        pace: Pace::InFlight(calls),
        operations: 256,
    }
}

fn loaded(setting: &Setting, workload: &dyn Workload, of: &Load) -> Loaded {
    load(setting, workload, of).expect("it can be done")
}

/// Returns what both ends did for each operation and does not depend on what was in flight, with the
/// Sends that are no grants: Sends, RDMA Reads and Writes, registrations, invalidations.
fn done(requester: &Counters, responder: &Counters, grants: f64, operations: u64) -> [f64; 5] {
    let both = |of: fn(&Counters) -> u64| (of(requester) + of(responder)) as f64;
    let each = |count: f64| count / operations as f64;
    [
        each(both(|counters| counters.sends)) - grants,
        each(both(|counters| counters.rdma_reads)),
        each(both(|counters| counters.rdma_writes)),
        each(both(|counters| counters.registrations)),
        each(both(|counters| {
            counters.local_invalidations + counters.remote_invalidations
        })),
    ]
}

fn done_by(loaded: &Loaded) -> [f64; 5] {
    let grants = loaded.grants.map_or(0.0, |grants| grants.messages);
    let operations = loaded.latencies.len() as u64;
    done(&loaded.requester, &loaded.responder, grants, operations)
}

#[test]
fn each_operation_costs_as_much_as_one_alone() {
    for setting in settings() {
        for op in [Op::Null, Op::Write(8192), Op::Read(8192)] {
            let one = measure(&setting, &op).expect("it can be done");
            let alone = done(&one.requester, &one.responder, 0.0, 1);
            for calls in [1, 16, 64] {
                let many = loaded(&setting, &op, &in_flight(calls));
                let what = format!("{op} of {:?}, {calls} in flight", setting.version);
                assert_eq!(done_by(&many), alone, "{what}: {many:?}");
                assert_eq!(many.latencies.len(), 256, "{what}");
                let wire = |of: fn(&Counters) -> u64| of(&many.requester) + of(&many.responder);
                let bytes = wire(|counters| counters.wire_bytes_sent);
                let own = one.requester.wire_bytes_sent + one.responder.wire_bytes_sent;
                assert!(bytes >= 256 * own, "{what}: {bytes} bytes, alone {own}");
            }
        }
    }
}

#[test]
fn one_in_flight_takes_the_time_of_one_alone() {
    for setting in settings() {
        for op in [Op::Null, Op::Write(8192)] {
            let one = measure(&setting, &op).expect("it can be done");
            let many = loaded(&setting, &op, &in_flight(1));
            let mut times = many.latencies.clone();
            times.sort_unstable();
            let median = times[times.len() / 2];
            // The processor has handled the reply before when the next call begins.
            let more = median.saturating_sub(one.latency);
            let less = one.latency.saturating_sub(median);
            let costs = setting.costs.completion + setting.costs.post;
            assert!(
                more <= 2 * costs && less <= 2 * costs,
                "{op}: {median:?}, {one:?}"
            );
            assert_eq!(many.credits, 1, "{op}");
            let interrupts = many.requester.interrupts + many.responder.interrupts;
            let alone = one.requester_interrupts + one.responder_interrupts;
            // One Send in many is reported, and one message in many is a grant, which no reply waits
            // for.
            let least = 256 * u64::from(alone);
            assert!((least..least + 32).contains(&interrupts), "{op}: {many:?}");
        }
    }
}

#[test]
fn more_in_flight_take_fewer_interrupts_and_more_credits() {
    for setting in settings() {
        let of = |calls| loaded(&setting, &Op::Null, &in_flight(calls));
        let (one, many) = (of(1), of(16));
        assert_eq!(many.credits, 16);
        assert!(many.responder.interrupts < one.responder.interrupts);
        assert!(many.elapsed < one.elapsed);
        assert_eq!(many, of(16), "it is the same each time");
    }
}

#[test]
fn several_clients_share_a_server() {
    let setting = setting(Version::TWO, "ddp");
    let of = |clients| Load {
        clients,
        operations: 64,
        ..in_flight(4)
    };
    let (one, many) = (
        loaded(&setting, &Op::Write(8192), &of(1)),
        loaded(&setting, &Op::Write(8192), &of(MOST_CLIENTS)),
    );
    assert_eq!(many.latencies.len(), 64 * MOST_CLIENTS as usize);
    assert_eq!(many.credits, 4, "of each connection");
    assert_eq!(done_by(&many), done_by(&one));
    let refused = load(&setting, &Op::Null, &of(MOST_CLIENTS + 1)).unwrap_err();
    assert!(refused.to_string().contains("from 1 to 127"), "{refused}");
}

#[test]
fn operations_that_arrive_seldom_wait_for_nothing() {
    let setting = setting(Version::ONE, "none");
    let of = |rate| Load {
        pace: Pace::Arrivals(rate),
        ..in_flight(1)
    };
    let one = measure(&setting, &Op::Null).expect("it can be done");
    let seldom = loaded(&setting, &Op::Null, &of(100.0));
    let waited = seldom
        .latencies
        .iter()
        .filter(|took| **took > one.latency + Duration::from_micros(2));
    assert!(waited.count() < 8, "{seldom:?}");
    // 256 of them take about 2.56 s.
    assert!(
        (2.0..3.2).contains(&seldom.elapsed.as_secs_f64()),
        "{:?}",
        seldom.elapsed
    );
    let often = loaded(&setting, &Op::Null, &of(1e9));
    assert!(often.credits > 1, "{often:?}");
    assert!(often.latencies.iter().max() > seldom.latencies.iter().max());
    assert!(often.responder.interrupts < seldom.responder.interrupts);
}

/// A program of a test: it returns the words of its calls.
const MIRROR: u32 = 0x2000_7778;

#[derive(Debug)]
struct Mirrored {
    /// Whether workers answer the calls.
    later: bool,
}

impl Workload for Mirrored {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn service(&self) -> Option<Box<dyn Service>> {
        let Self { later } = *self;
        Some(Box::new(Mirror { later }))
    }

    fn prepare<'a>(&'a self, _: Server<'a>) -> Prepare<'a> {
        let Self { later } = *self;
        Box::pin(async move { Ok(Box::new(Self { later }) as Box<dyn Calls>) })
    }
}

impl Calls for Mirrored {
    fn name(&self) -> &'static str {
        "MIRROR"
    }

    fn call(&self, number: u64) -> Call {
        let mut args = Encoder::new();
        args.u32(number as u32);
        Call {
            prog: MIRROR,
            vers: 1,
            proc: 1,
            args: args.finish(),
            reply: ReplyRoom {
                payload: 4,
                ..ReplyRoom::default()
            },
        }
    }

    fn check(&self, number: u64, reply: &Reply) -> Result<(), Failed> {
        match reply.results().u32() {
            Ok(word) if word == number as u32 => Ok(()),
            other => Err(Failed::new("MIRROR", format!("{other:?}"))),
        }
    }
}

struct Mirror {
    later: bool,
}

impl Service for Mirror {
    fn programs(&self) -> &[ProgramVersions] {
        &[ProgramVersions {
            prog: MIRROR,
            low: 1,
            high: 1,
        }]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        let mut word = Encoder::new();
        word.u32(request.args().u32().unwrap_or(0));
        let answer = Ok(word.finish());
        match self.later {
            true => ServiceOutcome::Later(Box::new(|| answer)),
            false => ServiceOutcome::Done(answer),
        }
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

#[test]
fn a_program_of_ones_own_is_measured_like_nfs() {
    for setting in settings() {
        for later in [false, true] {
            let mirrored = Mirrored { later };
            let one = measure(&setting, &mirrored).expect("it can be done");
            assert_eq!((one.round_trips, one.requester.sends), (1.0, 1));
            let many = loaded(&setting, &mirrored, &in_flight(16));
            assert_eq!(done_by(&many), [2.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }
}

/// Returns a setting with this noise, and with this seed for it.
fn noisy(noise: Noise, seed: u64) -> Setting {
    let mut setting = setting(Version::TWO, "ddp+cont");
    (setting.costs.noise, setting.seed) = (noise, seed);
    setting
}

/// Nothing is done more often because messages are late: the counts are those without jitter.
#[test]
fn jitter_changes_times_alone_and_is_that_of_the_seed() {
    let noise = Noise {
        jitter: Duration::from_micros(50),
        ..Noise::default()
    };
    let run = |noise, seed| loaded(&noisy(noise, seed), &Op::Getattr, &in_flight(1));
    let (still, one) = (run(Noise::default(), 1), run(noise, 1));
    assert_eq!(one, run(noise, 1));
    assert_ne!(one.latencies, run(noise, 2).latencies);
    assert_eq!(
        still,
        run(Noise::default(), 2),
        "a seed decides noise alone"
    );
    assert_eq!(
        (one.requester, one.responder),
        (still.requester, still.responder)
    );
    assert_eq!(one.retransmissions, 0);
    // Each way is delayed by 25 µs on the average, and by less than 50.
    let base = still.latencies[0];
    let late = one
        .latencies
        .iter()
        .map(|latency| latency.saturating_sub(base));
    let late: Vec<Duration> = late.collect();
    assert!(late.iter().all(|late| *late < 2 * noise.jitter), "{late:?}");
    let mean = late.iter().sum::<Duration>() / late.len() as u32;
    assert!(
        mean.abs_diff(noise.jitter) < Duration::from_micros(5),
        "{mean:?}"
    );
}

/// Every call ends, after a retransmission or more if one of its packets was lost, and what the ends did
/// is the same as without losses.
#[test]
fn calls_whose_packets_are_lost_take_longer_and_end() {
    let noise = Noise {
        loss: 50_000,
        retransmit: Duration::from_millis(10),
        ..Noise::default()
    };
    let lossy = loaded(&noisy(noise, 1), &Op::Getattr, &in_flight(1));
    let still = loaded(&noisy(Noise::default(), 1), &Op::Getattr, &in_flight(1));
    let again = lossy
        .latencies
        .iter()
        .map(|latency| latency.as_millis() / 10);
    let waited: u128 = again.sum();
    // One call is in flight, so each lost packet is waited for, and nothing else takes milliseconds.
    assert_eq!(u128::from(lossy.retransmissions), waited);
    assert!((10..60).contains(&waited), "5 % of 512: {waited}");
    assert_eq!(lossy.latencies.len(), 256);
    let counts = |it: &Loaded| [&it.requester, &it.responder].map(|end| (end.sends, end.receives));
    assert_eq!(counts(&lossy), counts(&still));
    let wire = |it: &Loaded| it.requester.wire_bytes_sent + it.responder.wire_bytes_sent;
    assert!(wire(&lossy) > wire(&still));
}
