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
            "An 8 KiB WRITE takes 2 round trips by v1-inv, 1 by v2-ddp-cont.",
            "Version 2 needs fewer round trips than version 1 for 8 KiB WRITE.",
        ]
    );
}

#[test]
fn counts_that_are_not_whole_stay_so() {
    let mut rows = write();
    rows[1].round_trips = Some(1.48);
    rows[1].interrupts_responder = Some(1.31);
    let said = sentences(&rows).join("\n");
    assert!(said.contains("by v1-inv, 1.5 by v2-ddp-cont."), "{said}");
    let sentence = "Version 2 needs as many round trips as version 1 for 8 KiB WRITE.";
    assert!(said.contains(sentence), "{said}");
    let text = table(&rows).unwrap();
    assert!(text.contains(" 1/1.3 "), "{text}");
    rows[1].round_trips = Some(3.0);
    assert!(sentences(&rows)[1].contains("more round trips than version 1 for 8 KiB WRITE."));
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
    assert!(
        legend(&rows)[0]
            .contains("receives of Linux's default (inv; Linux itself was not measured)")
    );
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
            "Version 2 wakes both ends more often for 8 KiB WRITE (13.3 times, up to 18 on an adapter; version 1: 3).",
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
    let alone = "Compared with v1-inv, an 8 KiB WRITE by v2-ddp-cont takes 0.57 times as long \
                 (0.55 to 0.58) here.";
    assert_eq!(sentences(&rows), [alone]);
    assert!(table(&rows).unwrap().contains(" -"));
}

/// A link of 1 ms once had 0.78 of version 1's time for NULL, which was noise.
#[test]
fn an_estimate_that_the_interval_does_not_tell_from_1_is_marked() {
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
    assert_eq!(text.matches("0.78? (0.60-1.10)").count(), 2, "{text}");
    let said = legend(&rows).concat();
    assert!(said.contains("; ?: includes 1"), "{said}");
    rows[0].round_trips = None;
    let said = sentences(&rows).concat();
    assert!(
        said.contains("0.78 times as long (0.60 to 1.10, which includes 1) here"),
        "{said}"
    );
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
    let least = |length: u32, taken: u32| {
        Some(Least {
            length,
            credits: 64,
            taken,
            requester: 134 * u64::from(length),
            responder: 70 * u64::from(length),
        })
    };
    let v1 = Row {
        least_receives: least(9 << 10, 1),
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
        least_receives: least(4 << 10, 3),
        ..with(4 << 10, &v2)
    };
    let mut tcp = Row {
        conveyance: "tcp",
        ..v2.clone()
    };
    tcp.conditions.inline_bytes = None;
    vec![tcp, v1, long, cont, v2]
}

/// Each way has the length of its receives beside it, and what a call takes of them; the versions are
/// compared with one another where version 1 has long receives as well.
#[test]
fn no_way_is_said_to_win_by_its_receives_alone() {
    let mut rows = all_ways();
    assert_eq!(
        sentences(&rows),
        [
            "An 8 KiB WRITE takes 2 round trips by v1-inv, 1 by v1-long, v2-ddp-cont, v2-cont and tcp.",
            "Compared with v1-long, an 8 KiB WRITE takes 1.09 (1.08-1.11) times as long by v2-ddp-cont, 1.09 \
             (1.08-1.11) by v2-cont. `--receives 65k` shows placement alone.",
            "Shortest receives for 1 round trip (memory for 64 credits, client + server): 9 KiB by v1-inv \
             (1.2 MiB + 630 KiB; a call takes 1 receive, so 64 calls fit at a time), 4 KiB by v2-cont (536 KiB + 280 KiB; a call \
             takes 3 receives, so 21 calls fit at a time). Receives of 65K take 8.5 MiB + 4.4 MiB.",
        ]
    );
    let text = table(&rows).unwrap();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert_eq!(lines[0][..4], ["op", "size", "via", "recv"]);
    let lengths = lines[1..].iter().map(|line| (line[3], line[4]));
    let wanted = [
        ("tcp", "-"),
        ("v1-inv", "4K"),
        ("v1-long", "65K"),
        ("v2-cont", "4K"),
        ("v2-ddp-cont", "65K"),
    ];
    assert_eq!(lengths.collect::<Vec<_>>(), wanted);
    // A READ is beside it as well: not only what looks best is said.
    let mut both = rows.clone();
    for row in &mut rows {
        row.op = "read";
    }
    rows[4].v1_long_ratio = Some(1.13);
    rows[4].v1_long_ratio_interval = None;
    both.extend(rows.clone());
    let said = sentences(&both).concat();
    assert!(
        said.contains(
            "; an 8 KiB READ takes ~1.13 times as long by v2-ddp-cont, 1.09 (1.08-1.11) by v2-cont. `--receives"
        ),
        "{said}"
    );
    // Without continuation by itself, and where version 1 sends the same with all receives.
    both.retain(|row| row.conveyance != "v2-cont");
    assert!(
        sentences(&both)
            .concat()
            .contains("; an 8 KiB READ takes ~1.13 times as long by v2-ddp-cont. `--receives")
    );
    rows[2].registrations = Some(1.0);
    assert!(!sentences(&rows).concat().contains("Compared with v1-long"));
}

#[test]
fn ways_are_in_the_order_of_their_round_trips_and_unknown_ones_are_left_out() {
    let mut rows = all_ways();
    rows[0].round_trips = Some(10.0);
    rows[2].round_trips = None;
    rows[3].round_trips = Some(2.02);
    let said = sentences(&rows).concat();
    assert!(
        said.contains("by v1-inv, 1 by v2-ddp-cont, 2 by v2-cont, 10 by tcp."),
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
        "Left out: v1-long (write 8 KiB), v2-cont (write 8 KiB), with the same messages as v1-inv and 0.98 to 1.03 times as long."
    );
    assert!(!legend(&all_ways()).concat().contains("Left out"));
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
    let added = "A link of RTT 2 ms adds 2.05 to 2.06 ms to NULL";
    assert_eq!(sentences(&rows).last().unwrap(), &format!("{added}."));
    assert!(table(&rows).unwrap().contains(" x RTT 2 ms"));
    // A network that is delayed by a command has no ends that sleep.
    for row in &mut rows {
        row.conditions.delayed_by = Some("client and server".to_owned());
    }
    let said = sentences(&rows);
    assert_eq!(
        said.last().unwrap(),
        &format!("{added} (processes that sleep wake late).")
    );
    assert!(table(&rows).unwrap().contains(" x 2 ms slept"));
    rows[0].round_trips = None;
    assert!(!sentences(&rows).concat().contains("RTT 2 ms adds"));
}

/// Regression test: without a longer link, there was a column with a dash in every row.
#[test]
fn a_link_that_was_not_measured_has_no_column() {
    let mut rows = write();
    assert!(table(&rows).unwrap().contains("RTT"));
    for row in &mut rows {
        row.latency_over_delay = None;
    }
    let text = table(&rows).unwrap();
    assert!(!text.contains("RTT"), "{text}");
    assert!(text.lines().next().unwrap().ends_with("x v1-inv"), "{text}");
}

/// A reader must see which figures other work has disturbed, and by how much, before all others.
#[test]
fn disturbed_operations_are_named_first() {
    let mut rows = write();
    for row in &mut rows {
        row.floor_spread = Some(0.1);
    }
    assert!(!sentences(&rows).concat().contains("DISTURBED"));
    let mut null = write();
    for (row, null) in rows.iter_mut().zip(&mut null) {
        row.floor_spread = Some(0.11);
        (null.op, null.size, null.floor_spread) = ("null", None, Some(0.29));
    }
    rows.extend(null);
    assert_eq!(
        sentences(&rows)[0],
        "DISTURBED by other work: the TCP baseline varied by over 10 % beside 8 KiB WRITE (11 %), NULL (29 %)."
    );
}

/// The time of an operation that moves no data says more about the machine than about a protocol.
#[test]
fn what_times_consist_of_is_said() {
    let mut rows = write();
    for row in &mut rows {
        (row.op, row.size, row.round_trips) = ("null", None, Some(1.0));
        (row.p50_us, row.floor_p50_us) = (Some(58.7), Some(54.1));
        row.conditions.environment.virtual_machine = Some(true);
    }
    let said = sentences(&rows).concat();
    let wanted = "NULL takes 59 µs and the TCP baseline 54 µs, mostly to wake up (virtual machine)";
    assert!(
        said.contains(&format!(
            "{wanted}; an adapter changes times, not round trips."
        )),
        "{said}"
    );
    for row in &mut rows {
        row.conditions.device_kind = Some("RDMA device of the machine, by verbs");
    }
    let said = sentences(&rows).concat();
    assert!(said.contains(&format!("{wanted}.")), "{said}");
    let said = legend(&rows).concat();
    assert!(!said.contains("adapter"), "{said}");
    // What the TCP baseline does not take as well is no waking up, and neither is what it takes alone.
    for floor in [20.0, 70.0] {
        rows[0].floor_p50_us = Some(floor);
        let said = sentences(&rows).concat();
        let wanted = format!("NULL takes 59 µs and the TCP baseline {floor} µs (virtual machine).");
        assert!(said.contains(&wanted), "{said}");
    }
    for row in &mut rows {
        row.size = Some(1 << 20);
    }
    assert!(!sentences(&rows).concat().contains("wake up"));
}

/// The ratio is not that of the medians beside it, and a reader can tell what it is made of.
#[test]
fn ratios_are_said_to_be_of_turns() {
    let mut rows = write();
    let wanted = "x v1-inv: median of 54 turns' ratios, 95 % by rank of 9 rounds, not of p50s; ";
    let said = legend(&rows).concat();
    assert!(said.contains(wanted), "{said}");
    // A row that was measured in fewer of them.
    (rows[1].rounds, rows[1].turns) = (Some(8), Some(47));
    let wanted = "median of 47 to 54 turns' ratios, 95 % by rank of 8 to 9 rounds, not of p50s; ";
    let said = legend(&rows).concat();
    assert!(said.contains(wanted), "{said}");
    rows.iter_mut().for_each(|row| row.turns = None);
    assert!(
        legend(&rows)
            .concat()
            .contains("median of paired turns' ratios, 95 % interval")
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
    // The longest cells that a quiet machine has.
    for row in &mut rows {
        row.baseline_ratio = Some(1.011);
        let (low, high) = (1.002, 1.025);
        row.baseline_ratio_interval = Some(Interval { low, high });
    }
    rows.iter_mut()
        .skip(2)
        .for_each(|row| row.conditions.inline_bytes = Some(65 << 10));
    let text = table(&rows).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[0].ends_with("x RTT 2 ms"), "{text}");
    assert!(lines[0].contains(" CPU µs "), "{text}");
    let line = lines[2].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        line.ends_with("1.011 (1.002-1.025) 0.50 (0.49-0.51)"),
        "{text}"
    );
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}
