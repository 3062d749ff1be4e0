//! Text tables for a terminal of 100 columns.

use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::{show_amount, show_size};

use crate::interval::Shown;
use crate::rows::{Mode, Row};

const MIB: f64 = 1_048_576.0;

/// Formats a measured value with about three significant digits; `-` if there is none.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => NONE.into(),
        Some(value) if value.abs() < 10.0 => format!("{value:.2}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// Formats a count per operation, without decimals if it is whole.
pub(crate) fn count(value: Option<f64>) -> String {
    match value {
        Some(value) if (value - value.round()).abs() < 0.005 => format!("{value:.0}"),
        other => number(other),
    }
}

/// Formats the size of a row's operation.
pub(crate) fn size(row: &Row) -> String {
    match row.size {
        Some(size) if size.trailing_zeros() >= 10 => show_size(size),
        Some(size) if size >= 1 << 20 => format!("{:.1} MiB", size as f64 / MIB),
        Some(size) => show_size(size),
        None => String::new(),
    }
}

/// Formats the operation of a row, with what is peculiar to its mode.
pub(crate) fn op(row: &Row) -> String {
    match row.mode {
        Mode::Blocking => row.op.to_owned(),
        Mode::Busy => format!("{} busy", row.op),
    }
}

/// Formats a ratio with its interval; `-` if there is none.
pub(crate) fn ratio(shown: Option<Shown>) -> String {
    shown.map_or_else(|| NONE.to_owned(), |shown| shown.cell())
}

/// Returns the heading of the column with the ratios to the baseline.
pub(crate) fn against(rows: &[Row]) -> String {
    let baseline = rows.iter().find_map(|row| row.baseline);
    format!("x {}", baseline.unwrap_or("v1-inv"))
}

/// A column of tables with a line for each row.
pub(crate) struct Column {
    heading: Heading,
    cell: fn(&Row) -> String,
    shown: Where,
}

/// Where a column is shown.
enum Where {
    Everywhere,
    /// Where a row has a value.
    Known,
    /// Where rows have different values.
    Different,
}

enum Heading {
    Is(&'static str),
    Of(fn(&[Row]) -> String),
}

impl Column {
    const fn new(heading: &'static str, cell: fn(&Row) -> String) -> Self {
        Self {
            heading: Heading::Is(heading),
            cell,
            shown: Where::Everywhere,
        }
    }

    const fn optional(heading: &'static str, cell: fn(&Row) -> String) -> Self {
        Self {
            shown: Where::Known,
            ..Self::new(heading, cell)
        }
    }

    const fn different(heading: &'static str, cell: fn(&Row) -> String) -> Self {
        Self {
            shown: Where::Different,
            ..Self::new(heading, cell)
        }
    }

    const fn headed(heading: fn(&[Row]) -> String, cell: fn(&Row) -> String) -> Self {
        Self {
            heading: Heading::Of(heading),
            ..Self::new("", cell)
        }
    }

    fn is_shown(&self, rows: &[Row]) -> bool {
        let mut cells = rows.iter().map(self.cell);
        match self.shown {
            Where::Everywhere => true,
            Where::Known => cells.any(|cell| cell != NONE),
            Where::Different => cells
                .next()
                .is_some_and(|first| cells.any(|cell| cell != first)),
        }
    }
}

/// The cell of a value that does not exist.
const NONE: &str = "-";

pub(crate) const OP: Column = Column::new("op", op);
pub(crate) const SIZE: Column = Column::new("size", size);
pub(crate) const VIA: Column = Column::new("via", |row| row.conveyance.to_owned());
pub(crate) const CLIENTS: Column =
    Column::different("clients", |row| row.clients.unwrap_or(1).to_string());
/// The number of operations in flight, or of those that arrive in a second.
pub(crate) const PACE: Column = Column::headed(
    |rows| match rows.iter().any(|row| row.arrivals_per_s.is_some()) {
        true => "per s".to_owned(),
        false => "in flight".to_owned(),
    },
    |row| match (row.in_flight, row.arrivals_per_s) {
        (Some(calls), _) => calls.to_string(),
        (None, rate) => number(rate),
    },
);
pub(crate) const P50: Column = Column::new("p50 µs", |row| number(row.p50_us));
pub(crate) const P99: Column = Column::new("p99 µs", |row| number(row.p99_us));
pub(crate) const P999: Column = Column::new("p99.9", |row| number(row.p999_us));
pub(crate) const AGAINST: Column = Column::headed(against, |row| ratio(row.beside_baseline()));
pub(crate) const BARE: Column = Column::new("baseline", |row| number(row.floor_p50_us));
pub(crate) const X_BARE: Column = Column::new("x baseline", |row| {
    ratio(row.shown(row.floor_ratio, row.floor_ratio_interval))
});
pub(crate) const OPS_PER_S: Column = Column::new("ops/s", |row| number(row.ops_per_s));
pub(crate) const MIB_PER_S: Column = Column::new("MiB/s", |row| number(row.mib_per_s));
pub(crate) const RAW: Column = Column::new("baseline", |row| number(row.raw_stream_mib_per_s));
pub(crate) const X_RAW: Column = Column::new("x baseline", |row| {
    ratio(row.shown(row.stream_ratio, row.stream_ratio_interval))
});
pub(crate) const CPU: Column = Column::new("CPU µs", |row| number(row.cpu_us));
pub(crate) const TRIPS: Column = Column::new("trips", |row| number(row.round_trips));
pub(crate) const CREDITS: Column = Column::new("credits", |row| {
    row.credits
        .map_or_else(|| NONE.to_owned(), |credits| credits.to_string())
});
pub(crate) const SENDS: Column = Column::new("Sends", |row| count(row.sends));
pub(crate) const READS: Column = Column::new("Reads", |row| count(row.rdma_reads));
pub(crate) const WRITES: Column = Column::new("Writes", |row| count(row.rdma_writes));
pub(crate) const REGISTRATIONS: Column = Column::new("reg", |row| count(row.registrations));
pub(crate) const INVALIDATIONS: Column = Column::new("inv", |row| count(row.invalidations));
pub(crate) const INTERRUPTS: [Column; 2] = [
    Column::new("intr c", |row| number(row.interrupts_requester)),
    Column::new("intr s", |row| number(row.interrupts_responder)),
];
pub(crate) const SYSTEM_CALLS: [Column; 2] = [
    Column::optional("sys c", |row| number(row.system_calls_requester)),
    Column::optional("sys s", |row| number(row.system_calls_responder)),
];
pub(crate) const GRANTS: Column = Column::optional("GRANTs", |row| count(row.grants));
pub(crate) const RESENT: Column = Column::optional("resent", |row| number(row.retransmissions));
pub(crate) const COPIED: Column = Column::new("copied B", |row| number(row.copied_bytes));
pub(crate) const RECEIVES: Column = Column::optional("receives", |row| {
    row.receives_taken_responder
        .map_or_else(|| NONE.to_owned(), show_amount)
});
pub(crate) const WIRE: Column = Column::new("wire B", |row| number(row.wire_bytes));

/// Formats a table with a line for each row, whose first three columns say what it is of.
pub(crate) fn with_columns(rows: &[Row], columns: &[Column]) -> String {
    let shown = columns.iter().filter(|column| column.is_shown(rows));
    let shown: Vec<&Column> = shown.collect();
    let headings = shown.iter().map(|column| match column.heading {
        Heading::Is(heading) => heading.to_owned(),
        Heading::Of(heading) => heading(rows),
    });
    let mut table = Table::with_columns(3, headings.collect()).narrow();
    for row in rows {
        table.push_line(shown.iter().map(|column| (column.cell)(row)).collect());
    }
    table.render()
}

/// Formats the table of latency, beside the baseline and beside the TCP baseline.
pub(crate) fn latency(rows: &[Row]) -> String {
    let columns = [OP, SIZE, VIA, P50, P99, P999, AGAINST, BARE, X_BARE];
    with_columns(rows, &columns)
}

/// Formats the table of throughput, beside a stream over the TCP baseline, and of the work of processors.
pub(crate) fn throughput(rows: &[Row]) -> String {
    let [client, server] = SYSTEM_CALLS;
    let columns = [
        OP, SIZE, VIA, OPS_PER_S, MIB_PER_S, RAW, X_RAW, CPU, client, server,
    ];
    with_columns(rows, &columns)
}

/// Formats the table of costs: round trips, device work, wake-ups, bytes.
pub(crate) fn costs(rows: &[Row]) -> String {
    let [client, server] = INTERRUPTS;
    let columns = [
        OP,
        SIZE,
        VIA,
        TRIPS,
        SENDS,
        READS,
        WRITES,
        REGISTRATIONS,
        INVALIDATIONS,
        client,
        server,
        COPIED,
        WIRE,
    ];
    with_columns(rows, &columns)
}

/// Formats the table of messages that only grant credits, or returns `None` if no row can have any.
/// No reply waits for them, so they are kept apart from what it waits for.
pub(crate) fn grants(rows: &[Row]) -> Option<String> {
    let mut table = Table::new(3, ["op", "size", "via", "GRANTs", "intr by GRANTs"]);
    let counted = rows.iter().filter(|row| row.grants.is_some());
    let mut any = false;
    for row in counted {
        any = true;
        table.push([
            op(row),
            size(row),
            row.conveyance.to_owned(),
            count(row.grants),
            count(row.grant_interrupts),
        ]);
    }
    any.then(|| table.render())
}

/// The relative variation of the baseline and the raw stream from round to round above which there
/// is a warning.
pub(crate) const QUIET: f64 = 0.1;

/// Returns whether other work disturbed the measurement of a row: the TCP baseline beside it moved.
pub(crate) fn is_disturbed(row: &Row) -> bool {
    row.floor_spread.is_some_and(|spread| spread > QUIET)
}

/// Returns a warning if the variation of the figures exceeds that of an idle machine: for latencies
/// that of the baseline, and, if `throughput` is shown, for that the raw stream's.
pub(crate) fn noise(rows: &[Row], throughput: bool) -> Option<String> {
    let stream = match throughput {
        true => worst(rows, |row| row.raw_stream_spread),
        false => None,
    };
    let moved = [
        (
            "the latency of the TCP baseline",
            worst(rows, |row| row.floor_spread),
        ),
        ("the throughput of the TCP baseline", stream),
    ];
    let moved: Vec<String> = moved
        .into_iter()
        .filter_map(|(what, worst)| {
            let (spread, row) = worst?;
            let beside = match row.size {
                Some(_) => format!("{} {}", op(row), size(row)),
                None => op(row),
            };
            let percent = spread * 100.0;
            Some(format!("{what} moved by {percent:.0} % beside {beside}"))
        })
        .collect();
    (!moved.is_empty()).then(|| {
        let moved = moved.join(",\n");
        format!(
            "DISTURBED by other work: from round to round,\n{moved}.\n\
             Figures of that kind can be wrong by as much or more: measure again when it is quiet."
        )
    })
}

/// Returns the row with the largest variation, if that exceeds an idle machine's.
fn worst(rows: &[Row], spread: impl Fn(&Row) -> Option<f64>) -> Option<(f64, &Row)> {
    rows.iter()
        .filter_map(|row| Some((spread(row)?, row)))
        .filter(|(spread, _)| *spread > QUIET)
        .max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::sample;

    #[test]
    fn tables_fit_the_terminal_and_columns_line_up() {
        let mut wide = sample();
        wide.op = "readdirplus";
        wide.conveyance = "v2-ddp-cont";
        wide.size = Some((3 << 20) / 2);
        wide.p50_us = Some(1_234_567.0);
        wide.p99_us = wide.p50_us;
        wide.p999_us = wide.p50_us;
        wide.baseline_ratio_interval = wide.floor_ratio_interval;
        wide.stream_ratio = Some(0.97);
        wide.stream_ratio_interval = wide.floor_ratio_interval;
        wide.raw_stream_mib_per_s = Some(12_345.0);
        wide.copied_bytes = Some(123_456_789.0);
        wide.wire_bytes = wide.copied_bytes;
        for text in [
            latency(&[sample(), wide.clone()]),
            throughput(&[sample(), wide.clone()]),
            costs(&[sample(), wide.clone()]),
        ] {
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 3);
            let end = lines[0].chars().count();
            assert!(
                lines.iter().all(|line| line.chars().count() == end),
                "{text}"
            );
            assert!(end <= 100, "{text}");
        }
    }

    #[test]
    fn a_busy_machine_is_told_of_with_its_worst_figures() {
        assert_eq!(noise(&[sample()], true), None);
        let (mut some, mut more) = (sample(), sample());
        some.floor_spread = Some(0.15);
        more.floor_spread = Some(0.42);
        (more.op, more.size) = ("null", None);
        let said = noise(&[sample(), some.clone(), more], true).unwrap();
        assert!(
            said.contains("the latency of the TCP baseline moved by 42 % beside null.\n"),
            "{said}"
        );
        assert!(!said.contains("throughput"), "{said}");
        some.raw_stream_spread = Some(0.3);
        let said = noise(&[sample(), some.clone()], true).unwrap();
        for part in [
            "baseline moved by 15 % beside read 1 MiB,\n",
            "the throughput of the TCP baseline moved by 30 % beside read 1 MiB.\n",
        ] {
            assert!(said.contains(part), "{said}");
        }
        some.floor_spread = None;
        assert_eq!(noise(&[some], false), None, "throughput is not shown");
    }

    #[test]
    fn columns_that_no_row_has_are_left_out() {
        let mut row = sample();
        assert!(throughput(&[row.clone()]).contains(" sys c sys s\n"));
        (row.system_calls_requester, row.system_calls_responder) = (None, None);
        assert!(!throughput(&[row.clone()]).contains("sys"));
        let both = throughput(&[sample(), row]);
        assert!(
            both.contains("sys c") && both.trim_end().ends_with("-"),
            "{both}"
        );
    }

    #[test]
    fn grants_have_a_table_of_their_own_where_there_can_be_any() {
        assert_eq!(grants(&[sample()]), None);
        let mut wg = sample();
        wg.conveyance = "wg";
        wg.grants = Some(0.25);
        let text = grants(&[sample(), wg]).unwrap();
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["read", "1", "MiB", "wg", "0.25", "-"]);
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn throughput_alone_can_be_what_moved() {
        let mut row = sample();
        row.raw_stream_spread = Some(0.11);
        let said = noise(&[row], true).unwrap();
        assert!(
            said.contains("throughput of the TCP baseline moved by 11 %"),
            "{said}"
        );
        assert!(!said.contains("latency"), "{said}");
    }

    #[test]
    fn numbers_keep_three_digits_and_none_is_a_dash() {
        assert_eq!(number(None), "-");
        assert_eq!(number(Some(1.304)), "1.30");
        assert_eq!(number(Some(12345.6)), "12346");
        assert_eq!(count(Some(2.001)), "2");
        assert_eq!(count(Some(0.5)), "0.50");
    }
}
