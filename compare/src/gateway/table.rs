//! Tables and sentences of `compare --gateway`.

use std::collections::BTreeMap;

use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::show_size;

use super::row::{GatewayRow, MOST, multiple};
use crate::table::{count, number, ratio};

fn size(row: &GatewayRow) -> String {
    row.size.map(show_size).unwrap_or_default()
}

/// Returns the name of a row's operation, with its size.
fn operation(row: &GatewayRow) -> String {
    match row.size {
        Some(size) => format!("{} of {}", row.op, show_size(size)),
        None => row.op.to_owned(),
    }
}

fn of_row(row: &GatewayRow) -> [String; 3] {
    [row.op.to_owned(), size(row), row.transfer_mode.to_owned()]
}

/// Returns a table with three columns that name a row, and those of `headings`.
fn table<const N: usize>(
    rows: &[GatewayRow],
    headings: [&str; N],
    cells: impl Fn(&GatewayRow) -> [String; N],
) -> String {
    let named = ["op", "size", "between"].into_iter().chain(headings);
    let mut table = Table::with_columns(3, named.map(str::to_owned).collect()).narrow();
    for row in rows {
        table.push_line(of_row(row).into_iter().chain(cells(row)).collect());
    }
    table.render()
}

/// Returns a cost, the sum of the hops' and the quotient.
fn cost(of: Option<(f64, f64)>) -> [String; 3] {
    let times = of.map(|of| format!("{:.2}", multiple(of)));
    [
        count(of.map(|(own, _)| own)),
        count(of.map(|(_, hops)| hops)),
        times.unwrap_or_else(|| "-".to_owned()),
    ]
}

/// Returns the tables: latency and throughput beside the hops', what a call costs, and what a delay shows if that was
/// measured.
pub(super) fn tables(rows: &[GatewayRow]) -> Vec<String> {
    let latency = table(
        rows,
        ["p50 µs", "tcp", "alone", "x hops", "ops/s", "tcp", "alone"],
        |row| {
            [
                number(row.p50_us),
                number(row.tcp_p50_us),
                number(row.rdma_p50_us),
                ratio(row.beside_hops()),
                number(row.ops_per_s),
                number(row.tcp_ops_per_s),
                number(row.rdma_ops_per_s),
            ]
        },
    );
    let headings = [
        "CPU µs", "hops", "x", "sys", "hops", "x", "copied B", "hops", "x",
    ];
    let costs = table(rows, headings, |row| {
        let [cpu, system_calls, copied] = row.costs().map(|(_, of)| cost(of));
        let [a, b, c] = cpu;
        let [d, e, f] = system_calls;
        let [g, h, i] = copied;
        [a, b, c, d, e, f, g, h, i]
    });
    let mut all = vec![latency, costs];
    if rows.iter().any(|row| row.delay_us.is_some()) {
        let headings = [
            "p50 µs", "tcp", "x tcp", "trips", "counted", "tcp", "Sends", "Reads", "Writes", "reg",
        ];
        all.push(table(rows, headings, |row| {
            [
                number(row.delayed_p50_us),
                number(row.delayed_tcp_p50_us),
                ratio(row.beside_tcp()),
                number(row.round_trips),
                count(row.counted_round_trips),
                number(row.tcp_round_trips),
                count(Some(row.sends)),
                count(Some(row.rdma_reads)),
                count(Some(row.rdma_writes)),
                count(Some(row.registrations)),
            ]
        }));
    }
    all
}

/// Returns what was found, and how to read the tables.
pub(super) fn sentences(rows: &[GatewayRow]) -> Vec<String> {
    let mut out = vec![costs_sentence(rows)];
    out.extend(trips_sentence(rows));
    out.push(
        "between: the variant between the gateways. tcp, alone: TCP alone, and the variant alone, each from a client to \
         a server. hops: twice the former and the latter, which is what a call passes. x hops: latency over that sum. \
         CPU, sys, copied: processor time, system calls and copied bytes of client, gateways and server for a call, so \
         of 1 MiB for MiB; x: over the sum of the hops'. In the last table, there is a delay between the gateways and, \
         in the columns tcp, between client and server. trips: round trips by the clock; counted: between the gateways, \
         in a capture. More: docs/compare-gateway.md."
            .to_owned(),
    );
    out
}

/// Returns the greatest multiple of each cost, and which rows cost more than is wanted.
fn costs_sentence(rows: &[GatewayRow]) -> String {
    let mut greatest = Vec::new();
    let mut beyond = Vec::new();
    let kinds = rows.first().map(|row| row.costs().len()).unwrap_or(0);
    for kind in 0..kinds {
        let found = rows.iter().filter_map(|row| {
            let (name, of) = row.costs()[kind];
            of.map(|of| (name, multiple(of), row))
        });
        let of_rows: Vec<_> = found.collect();
        let most = of_rows
            .iter()
            .max_by(|one, other| one.1.total_cmp(&other.1));
        if let Some((name, times, row)) = most {
            let (op, via) = (operation(row), row.transfer_mode);
            greatest.push(format!("{name} {times:.2} ({op} by {via})"));
        }
        let over = of_rows.iter().filter(|(_, times, _)| *times > MOST);
        beyond.extend(over.map(|(name, times, row)| {
            format!(
                "{name} of {} by {} ({times:.2})",
                operation(row),
                row.transfer_mode
            )
        }));
    }
    let verdict = match beyond.is_empty() {
        true => format!("Nothing exceeds the {MOST} that are wanted at most."),
        false => format!("More than the wanted {MOST}: {}.", beyond.join(", ")),
    };
    format!(
        "Of the sum of its hops, a call through two gateways takes at most: {}. {verdict}",
        greatest.join(", ")
    )
}

/// Returns the round trips between the gateways, by operation. Those that were counted are named if the clock agrees
/// within a quarter.
fn trips_sentence(rows: &[GatewayRow]) -> Option<String> {
    let mut said: Vec<String> = Vec::new();
    // The rows that have both, and those of them that differ.
    let mut compared = 0_usize;
    let mut differing = Vec::new();
    let mut rest = rows;
    while let Some(first) = rest.first() {
        let named = (first.op, first.size);
        let end = rest.iter().position(|row| (row.op, row.size) != named);
        let (of_op, others) = rest.split_at(end.unwrap_or(rest.len()));
        let mut by_trips: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for row in of_op {
            let Some(counted) = row.counted_round_trips else {
                continue;
            };
            let of_count = by_trips.entry(count(Some(counted))).or_default();
            of_count.push(row.transfer_mode);
            let Some(clock) = row.round_trips else {
                continue;
            };
            compared += 1;
            if (clock - counted).abs() > 0.25 {
                let (op, via) = (operation(row), row.transfer_mode);
                differing.push(format!("{op} by {via} ({clock:.2})"));
            }
        }
        if !by_trips.is_empty() {
            let each = by_trips
                .iter()
                .map(|(trips, via)| format!("{trips} by {}", via.join(", ")));
            let each: Vec<String> = each.collect();
            said.push(format!("{}: {}", operation(first), each.join("; ")));
        }
        rest = others;
    }
    let clock = match differing.is_empty() {
        true if compared == 0 => "The clock was exact for none of them.".to_owned(),
        true => "The clock agrees within a quarter wherever it was exact.".to_owned(),
        false => format!("By the clock, others: {}.", differing.join(", ")),
    };
    (!said.is_empty()).then(|| {
        format!(
            "Round trips between the gateways, counted: {}. {clock}",
            said.join(". ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::sample;
    use super::*;

    #[test]
    fn tables_fit_a_terminal() {
        let rows = [
            sample(),
            GatewayRow {
                transfer_mode: "v2-ddp-cont",
                ..sample()
            },
        ];
        let tables = tables(&rows);
        assert_eq!(tables.len(), 3);
        for line in tables.iter().flat_map(|table| table.lines()) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn what_costs_more_than_is_wanted_is_named() {
        let within = costs_sentence(&[sample()]);
        assert!(
            within.contains("system calls 0.90 (write of 1 MiB by v1-inv)"),
            "{within}"
        );
        assert!(within.ends_with("Nothing exceeds the 1.25 that are wanted at most."));
        let beyond = GatewayRow {
            system_calls: Some(13.0),
            ..sample()
        };
        let said = costs_sentence(&[sample(), beyond]);
        assert!(
            said.ends_with(
                "More than the wanted 1.25: system calls of write of 1 MiB by v1-inv (1.30)."
            ),
            "{said}"
        );
    }

    #[test]
    fn round_trips_that_the_clock_does_not_confirm_are_named() {
        let other = GatewayRow {
            transfer_mode: "v2-ddp-cont",
            counted_round_trips: Some(1.0),
            round_trips: Some(1.5),
            ..sample()
        };
        let said = trips_sentence(&[sample(), other]).unwrap();
        assert!(
            said.contains("counted: write of 1 MiB: 1 by v2-ddp-cont; 2 by v1-inv. By the clock, others: write of 1 MiB by v2-ddp-cont (1.50)."),
            "{said}"
        );
        assert!(
            trips_sentence(&[sample()])
                .unwrap()
                .contains("The clock agrees")
        );
        let inexact = GatewayRow {
            round_trips: None,
            ..sample()
        };
        let said = trips_sentence(&[inexact]).unwrap();
        assert!(
            said.ends_with("The clock was exact for none of them."),
            "{said}"
        );
        let none = GatewayRow {
            counted_round_trips: None,
            ..sample()
        };
        assert_eq!(trips_sentence(&[none]), None);
    }
}
