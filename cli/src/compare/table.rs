//! Plain text tables that fit a terminal of 120 columns.

use crate::args::units::show_size;
use crate::columns::Table;
use crate::compare::rows::{Mode, Row};

const MIB: f64 = 1_048_576.0;
/// A measurement with about three significant digits; `-` for none.
fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() < 10.0 => format!("{value:.2}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// A count per operation: whole numbers without decimals.
fn count(value: Option<f64>) -> String {
    match value {
        Some(value) if (value - value.round()).abs() < 0.005 => format!("{value:.0}"),
        other => number(other),
    }
}

fn size(row: &Row) -> String {
    match row.size {
        Some(size) if size.trailing_zeros() >= 10 => show_size(size),
        Some(size) if size >= 1 << 20 => format!("{:.1} MiB", size as f64 / MIB),
        Some(size) => show_size(size),
        None => String::new(),
    }
}

fn op(row: &Row) -> String {
    match row.mode {
        Mode::Blocking => row.op.to_owned(),
        Mode::Busy => format!("{} (busy)", row.op),
    }
}

/// Latency, throughput and processor time beside the floor.
pub(crate) fn speed(rows: &[Row]) -> String {
    let mut table = Table::new(
        3,
        [
            "op",
            "size",
            "via",
            "p50 µs",
            "p99 µs",
            "floor µs",
            "x p50",
            "ops/s",
            "MiB/s",
            "floor MiB/s",
            "x MiB/s",
            "CPU µs",
        ],
    );
    for row in rows {
        table.push([
            op(row),
            size(row),
            row.conveyance.into(),
            number(row.p50_us),
            number(row.p99_us),
            number(row.floor_p50_us),
            number(row.floor_ratio),
            number(row.ops_per_s),
            number(row.mib_per_s),
            number(row.floor_mib_per_s),
            number(row.stream_ratio),
            number(row.cpu_us),
        ]);
    }
    table.render()
}

/// What each operation cost: round trips, device work, interrupts, bytes.
pub(crate) fn costs(rows: &[Row]) -> String {
    let mut table = Table::new(
        3,
        [
            "op", "size", "via", "trips", "Sends", "Reads", "Writes", "reg", "inval", "intr cl",
            "intr srv", "copied B", "wire B",
        ],
    );
    for row in rows {
        table.push([
            op(row),
            size(row),
            row.conveyance.into(),
            number(row.round_trips),
            count(row.sends),
            count(row.rdma_reads),
            count(row.rdma_writes),
            count(row.registrations),
            count(row.invalidations),
            number(row.interrupts_requester),
            number(row.interrupts_responder),
            number(row.copied_bytes),
            number(row.wire_bytes),
        ]);
    }
    table.render()
}

/// How much the floor may move from round to round before that is said.
const QUIET: f64 = 0.1;

/// Says how much the figures move, when that is more than on a quiet machine.
pub(crate) fn noise(rows: &[Row]) -> Option<String> {
    let spreads = rows.iter().filter_map(|row| Some((row.floor_spread?, row)));
    let noisy: Vec<_> = spreads.filter(|(spread, _)| *spread > QUIET).collect();
    let (worst, row) = noisy.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let size = match row.size {
        Some(_) => format!(" {}", size(row)),
        None => String::new(),
    };
    let (op, percent) = (op(row), worst * 100.0);
    Some(format!(
        "This machine was busy: beside {op}{size}, the floor's latency moved by {percent:.0} % from \
         round to round.\nNo time here is more exact than that, and some are less: measure again when it is quiet."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::rows::tests::sample;

    #[test]
    fn tables_fit_the_terminal_and_columns_line_up() {
        let mut wide = sample();
        wide.op = "get-tree";
        wide.mode = Mode::Busy;
        wide.p50_us = Some(1_234_567.0);
        wide.p99_us = wide.p50_us;
        wide.floor_mib_per_s = Some(12_345.0);
        wide.copied_bytes = Some(123_456_789.0);
        wide.wire_bytes = wide.copied_bytes;
        for text in [
            speed(&[sample(), wide.clone()]),
            costs(&[sample(), wide.clone()]),
        ] {
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 3);
            let end = lines[0].chars().count();
            assert!(
                lines.iter().all(|line| line.chars().count() == end),
                "{text}"
            );
            assert!(end <= 120, "{text}");
        }
    }

    #[test]
    fn a_busy_machine_is_told_of_with_its_worst_figure() {
        assert_eq!(noise(&[sample()]), None);
        let (mut some, mut more) = (sample(), sample());
        some.floor_spread = Some(0.15);
        more.floor_spread = Some(0.42);
        (more.op, more.size) = ("null", None);
        let said = noise(&[sample(), some, more]).unwrap();
        assert!(
            said.contains("beside null, the floor's latency moved by 42 %"),
            "{said}"
        );
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
