//! Tests of `compare --gateway`.

mod common;

use common::{Finished, Running, compare_place, is_iwarp, rpcrdma};
use serde_json::Value;

#[track_caller]
fn compare(args: &[&str]) -> Finished {
    let mut words = rpcrdma();
    words.args(["compare", "--gateway"]).args(compare_place());
    Running::start(words.args(args)).finish()
}

#[track_caller]
fn figure(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {row:#}"))
}

#[test]
fn options_without_meaning_are_refused_with_what_to_do() {
    for (args, said) in [
        (&["--html", "x.html"][..], "--json FILE writes the rows"),
        (&["--run", "tree"], "or leave --gateway out"),
        (&["--against", "then.json"], "or leave --gateway out"),
        (&["--capture", "x.pcapng"], "`rpcrdma gateway` has it"),
        (&["--trace", "x.json"], "`rpcrdma gateway` has it"),
        (&["--via", "tcp,v2"], "TCP alone is measured in any case"),
        (
            &["--in-flight", "4"],
            "`rpcrdma load` puts load on a gateway",
        ),
        (&["--receives", "4k"], "--inline"),
        (&["--full"], "--via, --ops and --sizes"),
        (
            &["--no-trips", "--delay", "2ms"],
            "--no-trips: leave it out",
        ),
    ] {
        let finished = compare(args);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        assert!(finished.stderr.contains(said), "{args:?}: {finished:#?}");
    }
}

/// A WRITE of 8 KiB takes one round trip between the gateways where Sends place it, and two by RDMA Reads.
#[test]
fn hops_and_round_trips_are_what_they_must_be() {
    let args = [
        "--via",
        "v1-inv,v2-ddp-cont",
        "--ops",
        "null,write",
        "--sizes",
        "8k",
        "--count",
        "90",
        "--time",
        "20ms",
        "--json",
        "-",
    ];
    let finished = compare(&args).ok();
    assert!(!finished.stderr.contains("WARN"), "{finished:#?}");
    let rows: Vec<Value> = serde_json::from_str(&finished.stdout).expect("rows as JSON");
    // Operation, variant, round trips, Sends, RDMA Reads, registrations.
    let wanted = [
        ("null", "v1-inv", [1.0, 2.0, 0.0, 0.0]),
        ("null", "v2-ddp-cont", [1.0, 2.0, 0.0, 0.0]),
        ("write", "v1-inv", [2.0, 2.0, 1.0, 1.0]),
        ("write", "v2-ddp-cont", [1.0, 2.0, 0.0, 0.0]),
    ];
    assert_eq!(rows.len(), wanted.len(), "{rows:#?}");
    for (row, (op, via, counts)) in rows.iter().zip(wanted) {
        assert_eq!(
            (&row["op"], &row["transfer_mode"]),
            (&op.into(), &via.into())
        );
        let keys = [
            "counted_round_trips",
            "sends",
            "rdma_reads",
            "registrations",
        ];
        assert_eq!(keys.map(|key| figure(row, key)), counts, "{row:#}");
        // A machine that is busy all the time shows no slope.
        if let Some(clock) = row["round_trips"].as_f64() {
            assert!((clock - counts[0]).abs() < 0.6, "{row:#}");
        }
        for key in [
            "p50_us",
            "tcp_p50_us",
            "rdma_p50_us",
            "hops_ratio",
            "ops_per_s",
            "delayed_tcp_ratio",
        ] {
            assert!(figure(row, key) > 0.0, "{key}: {row:#}");
        }
        // The added delay passes twice for each round trip.
        assert!(
            figure(row, "delayed_p50_us") > 2000.0 * counts[0],
            "{row:#}"
        );
        assert!(figure(row, "delayed_tcp_p50_us") > 2000.0, "{row:#}");
        match is_iwarp() {
            true => {
                let calls = figure(row, "system_calls");
                assert!(calls <= 1.25 * figure(row, "hops_system_calls"), "{row:#}");
                let copied = figure(row, "copied_bytes");
                assert!(copied <= 1.25 * figure(row, "hops_copied_bytes"), "{row:#}");
            }
            // Such a device has memory of its own, and what its library does is not known.
            false => assert!(row["system_calls"].is_null(), "{row:#}"),
        }
    }
}

#[test]
fn tables_say_what_exceeds_what_is_wanted() {
    let args = [
        "--via",
        "wg-ddp",
        "--ops",
        "getattr",
        "--count",
        "9",
        "--time",
        "9ms",
        "--no-trips",
    ];
    let finished = compare(&args).ok();
    for said in [
        "NFSv3 over TCP to a gateway, RPC-over-RDMA to another one, TCP to the server; one call at a time",
        "op      size between p50 µs",
        "Of the sum of its hops, a call through two gateways takes at most: processor time",
    ] {
        let flat = finished.stdout.replace('\n', " ");
        assert!(flat.contains(said), "{said}: {finished:#?}");
    }
    assert!(
        !finished.stdout.contains("Round trips"),
        "none were measured"
    );
}
