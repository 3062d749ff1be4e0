//! Traces of calls on the virtual clock: their parts add up exactly, and show what each way of moving a call
//! costs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma::Clock;
use rdma::trace::{Record, Sink, Trace, Track};
use rpc_transport::rdma::Version;
use rpcrdma_programs::workload::Op;
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_sim::{CopyCosts, Measured, Setting, Swarm, measure, run_observed};
use rpcrdma_trace::read::{Call, Contents, read};
use rpcrdma_trace::{Options, Procedure, TraceFile};
use tempfile::TempDir;

/// Less than the pause of a measurement before the call that is measured, nanoseconds.
const PAUSE: u64 = 900_000_000;

const CLIENT: &str = "calls to";
const SERVER: &str = "calls of";

fn name((program, _, procedure): Procedure) -> Option<&'static str> {
    match (program, procedure) {
        (100_003, 1) => Some("GETATTR"),
        (100_003, 6) => Some("READ"),
        (100_003, 7) => Some("WRITE"),
        _ => None,
    }
}

/// Returns what `work` has traced.
fn traced(work: impl FnOnce(Trace)) -> (Contents, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trace");
    let options = Options {
        process: "test".to_owned(),
        virtual_time: true,
        size: 1 << 30,
        name,
    };
    let file = TraceFile::create(&path, options).unwrap();
    work(Trace::new(file.sink(), Clock::simulated()));
    let summary = file.finish(None).unwrap();
    assert_eq!(summary.lost, 0);
    let bytes = std::fs::read(path).unwrap();
    (read(&bytes).unwrap(), bytes)
}

/// The measured call of an operation, as both ends saw it.
struct Both {
    measured: Measured,
    client: Call,
    server: Call,
}

fn both(setting: &Setting, op: Op, name: &str) -> Both {
    let mut measured = None;
    let (contents, _) = traced(|trace| {
        let setting = Setting {
            trace: Some(trace),
            copies: CopyCosts::NONE,
            ..setting.clone()
        };
        measured = Some(measure(&setting, &op).unwrap());
    });
    // It follows a pause.
    let calls = |of: &str| {
        let calls = contents.calls.iter();
        let mut calls = calls.filter(|call| call.track.starts_with(of));
        let mut ended = u64::MAX;
        let measured = calls.find(|call| {
            let before = std::mem::replace(&mut ended, call.time.1);
            call.time.0.saturating_sub(before) > PAUSE
        });
        let measured = measured.cloned().expect("a call after the pause");
        assert_eq!(measured.name, name);
        measured
    };
    Both {
        measured: measured.unwrap(),
        client: calls(CLIENT),
        server: calls(SERVER),
    }
}

/// Returns the parts as one sequence along the call: the requester's, with the responder's in the place of
/// "network and server", and the network before and behind.
fn along(both: &Both) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    for (name, since, until) in &both.client.parts {
        if name == "network and server" {
            let (arrived, replied) = both.server.time;
            parts.push(("network, call".to_owned(), arrived - since));
            let server = both.server.parts.iter();
            parts.extend(server.map(|(name, since, until)| (name.clone(), until - since)));
            parts.push(("network, reply".to_owned(), until - replied));
        } else {
            parts.push((name.clone(), until - since));
        }
    }
    parts
}

fn settings() -> Vec<(&'static str, Setting)> {
    let version = |version| Setting {
        version,
        ..Setting::default()
    };
    let two = |features: &str| {
        let features: RoundTripFeatures = features.parse().unwrap();
        let mut setting = version(Version::TWO);
        setting.requester.protocols = rpcrdma_protocols::standard(&features);
        setting.responder.protocols = rpcrdma_protocols::standard(&features);
        setting
    };
    let mut no_invalidation = version(Version::ONE);
    no_invalidation.requester.remote_invalidation = false;
    vec![
        ("v1", no_invalidation),
        ("v1-inv", version(Version::ONE)),
        ("v2", two("none")),
        ("v2-ddp", two("ddp")),
        ("v2-cont", two("cont")),
        ("v2-ddp-cont", two("ddp+cont")),
        ("wg", version(Version::TWO_WG)),
    ]
}

#[test]
fn the_parts_of_a_call_add_up_to_its_latency() {
    let ops = [
        (Op::Getattr, "GETATTR"),
        (Op::Read(8 << 10), "READ"),
        (Op::Write(8 << 10), "WRITE"),
        (Op::Read(1 << 20), "READ"),
        (Op::Write(1 << 20), "WRITE"),
    ];
    for (mode, setting) in settings() {
        for (op, name) in ops {
            let both = both(&setting, op, name);
            let what = format!("{mode} {name}: {:?}\n{:?}", both.client, both.server);
            for call in [&both.client, &both.server] {
                let mut at = call.time.0;
                for (_, since, until) in &call.parts {
                    assert_eq!(*since, at, "no gap; {what}");
                    at = *until;
                }
                assert_eq!(at, call.time.1, "nothing is missing; {what}");
            }
            let along: Duration = along(&both)
                .iter()
                .map(|(_, nanos)| Duration::from_nanos(*nanos))
                .sum();
            // The measurement ends when the client's last turn begins, and the trace after what that turn
            // does first: it takes a completion for each message of the reply, and between two of them it may
            // post receives.
            let costs = &setting.costs;
            let messages = u32::try_from(both.measured.requester.receives).unwrap();
            let last_turn = along - both.measured.latency;
            let fits = (1..=messages).any(|taken| {
                let posted = 0..2 * messages - 1;
                let mut posted =
                    posted.map(|posted| taken * costs.completion + posted * costs.post);
                posted.any(|work| work == last_turn)
            });
            assert!(fits && messages > 0, "{last_turn:?}: {what}");
            if messages == 1 {
                assert_eq!(last_turn, costs.completion, "{what}");
            }
        }
    }
}

#[test]
fn a_write_placed_by_a_send_lacks_the_round_trip_of_the_rdma_read() {
    let settings = settings();
    let write = |mode: &str| {
        let (_, setting) = settings.iter().find(|(name, _)| *name == mode).unwrap();
        (both(setting, Op::Write(8 << 10), "WRITE"), setting)
    };
    let (v1, setting) = write("v1");
    let fetched = v1.server.time_of("RDMA Read");
    assert!(Duration::from_nanos(fetched) >= setting.costs.round_trip());
    assert_eq!(v1.client.longest, "network and server");
    assert_eq!(v1.server.longest, "RDMA Read");
    let cost = setting.costs.register + setting.costs.register_page * 2;
    assert_eq!(
        v1.client.time_of("registers memory"),
        cost.as_nanos() as u64
    );
    assert!(v1.client.time_of("invalidates memory") > 0);

    let (placed, _) = write("v2-ddp");
    for absent in ["RDMA Read", "registers memory", "invalidates memory"] {
        assert_eq!(
            placed.client.time_of(absent) + placed.server.time_of(absent),
            0
        );
    }
    let shorter =
        (v1.client.time.1 - v1.client.time.0) - (placed.client.time.1 - placed.client.time.0);
    assert!(shorter > fetched, "{shorter} {fetched}");
}

#[test]
fn arrows_lead_from_one_end_to_the_other_and_back() {
    let both = both(&Setting::default(), Op::Write(8 << 10), "WRITE");
    assert_eq!(both.client.xid, both.server.xid);
    assert_eq!(both.client.flows.len(), 2);
    let sorted = |call: &Call| {
        let mut flows = call.flows.clone();
        flows.sort_unstable();
        flows
    };
    assert_eq!(sorted(&both.client), sorted(&both.server));
}

/// A sink that counts the records of each XID, and the tracks that are not closed.
#[derive(Default)]
struct Counting(Mutex<HashMap<u32, u32>>, AtomicU32);

impl Sink for Counting {
    fn open(&self, _: Track) -> u32 {
        self.1.fetch_add(1, Ordering::Relaxed);
        0
    }

    fn close(&self, _: u32) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }

    fn record(&self, record: Record) {
        *self.0.lock().unwrap().entry(record.xid).or_default() += 1;
    }
}

/// A trace costs some time for each event.
#[test]
fn a_call_has_few_events_at_both_ends_together() {
    for (op, most) in [(Op::Null, 8), (Op::Getattr, 9), (Op::Write(8 << 10), 17)] {
        let counting = Arc::new(Counting::default());
        let setting = Setting {
            trace: Some(Trace::new(Arc::clone(&counting) as _, Clock::simulated())),
            ..Setting::default()
        };
        measure(&setting, &op).unwrap();
        assert_eq!(counting.1.load(Ordering::Relaxed), 0, "tracks are left");
        let counts = counting.0.lock().unwrap();
        // The calls that connect and prepare are of all kinds.
        let last = counts.iter().max_by_key(|(xid, _)| **xid).unwrap();
        assert!(*last.1 <= most, "{op:?}: {last:?}");
    }
}

#[test]
fn a_run_with_faults_is_traced_and_stays_the_same() {
    for seed in 0..12 {
        let run = |trace| run_observed(Swarm::default(), seed, false, None, trace);
        let plain = run(None);
        let mut report = None;
        let (contents, bytes) = traced(|trace| report = Some(run(Some(trace))));
        let report = report.unwrap();
        assert_eq!(report.violations, []);
        assert_eq!(
            (report.calls, report.happenings, report.took),
            (plain.calls, plain.happenings, plain.took)
        );
        let made = contents.calls.iter();
        let made = made.filter(|call| call.track.starts_with(CLIENT)).count();
        assert!(made as u64 >= report.calls, "{made} of {}", report.calls);
        let (_, again) = traced(|trace| drop(run(Some(trace))));
        assert!(
            bytes == again,
            "seed {seed}: the same run writes the same bytes"
        );
    }
}
