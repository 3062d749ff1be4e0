//! Tests of the answer.

use super::*;
use crate::interval::Interval;
use crate::rows::tests::sample;
use crate::rows::{Least, OverDelay};

fn point(delay_us: f64, p50_us: f64, low: f64, high: f64) -> OverDelay {
    OverDelay {
        delay_us,
        p50_us,
        baseline_ratio: Some(f64::midpoint(low, high)),
        baseline_ratio_interval: Some(Interval { low, high }),
    }
}

/// Returns the rows of a WRITE as they would be measured: with small deviations from whole
/// numbers.
fn write() -> Vec<Row> {
    let v1 = Row {
        op: "write",
        size: Some(8 << 10),
        round_trips: Some(1.98),
        interrupts_responder: Some(2.03),
        interrupts_requester: Some(1.0),
        registrations: Some(1.0),
        conveyance: "v1-inv",
        baseline: Some("v1-inv"),
        p50_us: Some(40.2),
        latency_over_delay: Some(vec![
            point(0.0, 40.2, 1.0, 1.0),
            point(2000.0, 8100.0, 1.0, 1.0),
            point(1000.0, 4100.0, 1.0, 1.0),
        ]),
        ..sample()
    };
    let v2 = Row {
        conveyance: "v2-ddp-cont",
        round_trips: Some(1.01),
        interrupts_responder: Some(0.98),
        registrations: Some(0.0),
        p50_us: Some(22.9),
        baseline_ratio: Some(0.57),
        baseline_ratio_interval: Some(Interval {
            low: 0.55,
            high: 0.58,
        }),
        latency_over_delay: Some(vec![point(1000.0, 2050.0, 0.49, 0.51)]),
        ..v1.clone()
    };
    vec![v1, v2]
}

#[test]
fn the_sentences_say_what_was_measured() {
    assert_eq!(
        sentences(&write()),
        [
            "An 8 KiB WRITE takes 2 round trips by v1-inv (receives of 4 KiB), 1 by v2-ddp-cont (4 KiB).",
            "Version 2 needs fewer round trips for 8 KiB WRITE.",
        ]
    );
}

#[test]
fn counts_that_are_not_whole_stay_so() {
    let mut rows = write();
    rows[1].round_trips = Some(1.48);
    rows[1].interrupts_responder = Some(1.31);
    let said = sentences(&rows).join("\n");
    assert!(
        said.contains("(receives of 4 KiB), 1.5 by v2-ddp-cont"),
        "{said}"
    );
    assert!(said.contains("as many for 8 KiB WRITE."), "{said}");
    let text = table(&rows).unwrap();
    assert!(text.contains(" 1/1.3 "), "{text}");
    rows[1].round_trips = Some(3.0);
    assert!(sentences(&rows)[1].contains("more for 8 KiB WRITE."));
}

#[test]
fn a_count_keeps_its_sign() {
    assert_eq!(count(Some(-2.95)), "-3");
    assert_eq!(count(Some(-0.04)), "0");
}

#[test]
fn round_trips_that_are_too_inexact_are_not_told() {
    let mut rows = write();
    rows[0].round_trips = None;
    let said = sentences(&rows).join(" ");
    assert!(!said.contains("round trip"), "{said}");
    assert!(legend(&rows).concat().contains("standard error"));
    assert!(legend(&rows)[0].contains("receives like Linux's"));
    rows[0].conditions.inline_bytes = Some(16 << 10);
    assert!(!legend(&rows)[0].contains("Linux"));
}

#[test]
fn what_version_2_costs_is_said_as_well() {
    let mut rows = write();
    rows[1].baseline_ratio = Some(1.13);
    rows[1].baseline_ratio_interval = Some(Interval {
        low: 1.08,
        high: 1.2,
    });
    rows[1].interrupts_responder = Some(12.3);
    rows[1].sends = Some(18.0);
    let said = sentences(&rows);
    assert_eq!(
        said[2..],
        [
            "Version 2 takes longer for 8 KiB WRITE (1.13).",
            "It wakes more for 8 KiB WRITE (13.3 times, on an adapter up to 18; version 1 3).",
        ]
    );
}

#[test]
fn without_round_trips_or_delays_only_what_is_known_is_said() {
    let mut rows = write();
    for row in &mut rows {
        row.round_trips = None;
        row.latency_over_delay = None;
        row.interrupts_responder = None;
    }
    let alone = "An 8 KiB WRITE by v2-ddp-cont takes, beside v1-inv, 0.57 of the time \
                 (0.55 to 0.58) here.";
    assert_eq!(sentences(&rows), [alone]);
    assert!(table(&rows).unwrap().contains(" -"));
}

/// A link of 1 ms once had 0.78 of version 1's time for NULL, which was noise.
#[test]
fn a_difference_that_the_interval_does_not_exclude_is_said_to_be_none() {
    let mut rows = write();
    let wide = Some(Interval {
        low: 0.6,
        high: 1.1,
    });
    rows[1].baseline_ratio = Some(0.78);
    rows[1].baseline_ratio_interval = wide;
    let point = &mut rows[1].latency_over_delay.as_mut().unwrap()[0];
    (point.baseline_ratio, point.baseline_ratio_interval) = (Some(0.78), wide);
    let text = table(&rows).unwrap();
    assert_eq!(text.matches("1? (0.60-1.10)").count(), 2, "{text}");
    let said = legend(&rows).concat();
    assert!(said.contains("; 1?: it has 1"), "{said}");
    rows[0].round_trips = None;
    let said = sentences(&rows).concat();
    assert!(
        !text.contains("0.78") && !said.contains("0.78"),
        "{text}{said}"
    );
    assert!(said.contains("the same time within the interval (0.60 to 1.10) here"));
}

/// Returns the rows of that WRITE by all ways, with receives of their usual lengths.
fn all_ways() -> Vec<Row> {
    let [v1, v2] = <[Row; 2]>::try_from(write()).unwrap();
    let with = |length: u64, row: &Row| {
        let mut row = row.clone();
        row.conditions.inline_bytes = Some(length as u32);
        row.receive_memory_requester = Some(134 * length);
        row.receive_memory_responder = Some(70 * length);
        row
    };
    let least = |length: u32| {
        Some(Least {
            length,
            requester: 134 * u64::from(length),
            responder: 70 * u64::from(length),
        })
    };
    let v1 = Row {
        least_receives: least(9 << 10),
        ..v1
    };
    let v2 = Row {
        v1_long_ratio: Some(1.09),
        v1_long_ratio_interval: Some(Interval {
            low: 1.08,
            high: 1.11,
        }),
        ..with(65 << 10, &v2)
    };
    let long = Row {
        conveyance: "v1-long",
        ..v2.clone()
    };
    let cont = Row {
        conveyance: "v2-cont",
        least_receives: least(4 << 10),
        ..with(4 << 10, &v2)
    };
    let mut tcp = Row {
        conveyance: "tcp",
        ..v2.clone()
    };
    tcp.conditions.inline_bytes = None;
    vec![tcp, v1, long, cont, v2]
}

/// Each way is named with what it has for receives, and TCP with what it is here; with receives of
/// one length, the versions are compared with one another.
#[test]
fn no_way_is_said_to_win_by_its_receives_alone() {
    let mut rows = all_ways();
    assert_eq!(
        sentences(&rows),
        [
            "An 8 KiB WRITE takes 2 round trips by v1-inv (receives of 4 KiB), 1 by v1-long and \
             v2-ddp-cont (65 KiB), v2-cont (4 KiB), TCP, on which this software iWARP runs: an adapter \
             would differ.",
            "With equal receives of 65 KiB, versions 1 and 2 both take 1 round trip, version 2 1.09 of \
             the time (1.08 to 1.11).",
            "Least receives for 1 round trip (memory of a connection, client + server): 9 KiB by version 1 \
             (1.2 MiB + 630 KiB), 4 KiB by v2-cont (536 KiB + 280 KiB); 65 KiB take 8.5 MiB + 4.4 MiB.",
        ]
    );
    rows[2].round_trips = Some(2.03);
    let said = sentences(&rows).concat();
    assert!(
        said.contains("version 1 takes 2 round trips and version 2 1, version 2 1.09"),
        "{said}"
    );
    assert!(said.contains("; 2 has fewer for 8 KiB WRITE."), "{said}");
    let text = table(&rows).unwrap();
    assert_eq!(text.lines().count(), 6, "{text}");
    // Receives of another length do not answer the question, and an adapter runs on no TCP.
    rows[2].conditions.inline_bytes = Some(32 << 10);
    for row in &mut rows {
        row.conditions.device_kind = Some("RDMA device of the machine, by verbs");
    }
    let said = sentences(&rows).concat();
    assert!(!said.contains("With equal receives of"), "{said}");
    assert!(
        said.contains("v2-cont (4 KiB), TCP, 2 by v1-long (32 KiB)."),
        "{said}"
    );
}

#[test]
fn ways_are_in_the_order_of_their_round_trips_and_unknown_ones_are_left_out() {
    let mut rows = all_ways();
    rows[0].round_trips = Some(10.0);
    rows[2].round_trips = None;
    rows[3].round_trips = Some(2.02);
    let said = sentences(&rows).concat();
    assert!(
        said.contains("1 by v2-ddp-cont (65 KiB), 2 by v2-cont (4 KiB), 10 by TCP"),
        "{said}"
    );
    assert!(!said.contains("- by"), "{said}");
}

/// Variants that send the same messages as version 1 have no row, and their times are not kept
/// secret.
#[test]
fn rows_that_tell_nothing_new_are_summed_up() {
    let mut rows = all_ways();
    let same = |row: &Row, ratio: f64| Row {
        registrations: Some(1.0),
        baseline_ratio: Some(ratio),
        ..row.clone()
    };
    rows[2] = same(&rows[2], 0.98);
    rows[3] = same(&rows[3], 1.03);
    assert_eq!(table(&rows).unwrap().lines().count(), 4);
    assert_eq!(
        legend(&rows)[1],
        "No row of v1-long, v2-cont: sends as v1-inv, 0.98 to 1.03 of its time."
    );
    assert!(!legend(&all_ways()).concat().contains("No row of"));
}

/// The time that the link adds is said for each way, so that one which is delayed otherwise shows.
#[test]
fn what_the_link_adds_is_said() {
    let mut rows = all_ways();
    for row in &mut rows {
        (row.op, row.size, row.round_trips) = ("null", None, Some(0.99));
        row.p50_us = Some(50.0);
        row.latency_over_delay = Some(vec![point(1000.0, 2111.0, 1.0, 1.0)]);
    }
    rows[0].p50_us = Some(61.0);
    assert_eq!(
        sentences(&rows).last().unwrap(),
        "RTT 2 ms adds to NULL, in ms: 2.05 (tcp), 2.06 (v1-inv), 2.06 (v1-long), 2.06 (v2-cont), 2.06 \
         (v2-ddp-cont)."
    );
    rows[0].round_trips = None;
    assert!(!sentences(&rows).concat().contains("adds to"));
}

/// A reader must see which figures other work has disturbed.
#[test]
fn disturbed_operations_are_marked() {
    let mut rows = write();
    assert!(!table(&rows).unwrap().contains('*'));
    rows.iter_mut()
        .for_each(|row| row.floor_spread = Some(0.19));
    let text = table(&rows).unwrap();
    assert_eq!(text.matches("write* 8 KiB").count(), 2, "{text}");
    let said = legend(&rows);
    assert!(
        said.last().unwrap().contains("by up to 19 % (8 KiB WRITE)"),
        "{said:?}"
    );
}

#[test]
fn an_operation_by_one_version_has_no_answer() {
    let rows = write();
    assert_eq!(table(&rows[..1]), None);
    assert!(sentences(&rows[1..]).is_empty());
}

/// There is no processor time in a simulation.
#[test]
fn the_table_of_a_simulation_has_copied_bytes() {
    let mut rows = write();
    for row in &mut rows {
        row.device = Some("sim".into());
        row.cpu_us = None;
        row.copied_bytes = Some(360.0);
    }
    let text = table(&rows).unwrap();
    assert!(
        text.contains(" copied B ") && text.contains(" 360 "),
        "{text}"
    );
    let said = legend(&rows).concat();
    assert!(said.contains("copied B: bytes copied, both ends"), "{said}");
}

/// Other operations than those of the answer have the tables of `--full`.
#[test]
fn the_table_has_both_versions_and_fits() {
    let mut rows = write();
    let mut busy = rows[1].clone();
    busy.mode = Mode::Busy;
    rows.push(busy);
    let mut long = write();
    for row in &mut long {
        row.size = Some(1 << 20);
        row.p50_us = Some(1_234_567.0);
        row.interrupts_requester = Some(123.4);
    }
    rows.extend(long);
    let text = table(&rows).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[0].ends_with("x RTT 2 ms"), "{text}");
    assert!(lines[0].contains(" CPU µs "), "{text}");
    let line = lines[2].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        line.ends_with("0.57 (0.55-0.58) 0.50 (0.49-0.51)"),
        "{text}"
    );
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}
