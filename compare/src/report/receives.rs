//! Figures of `--receives`: round trips and time over the memory for receives.

use rpcrdma_setup::units::show_amount;

use super::Figure;
use super::figures::Palette;
use super::lines::{Line, LineChart};
use crate::receives::{Swept, memory};
use crate::rows::Row;

/// A value that is drawn: its name, its key, and itself.
type Drawn = (&'static str, &'static str, fn(&Row) -> Option<f64>);

const VALUES: [Drawn; 2] = [
    ("round trips", "round_trips", |row| row.round_trips),
    ("median latency, µs", "p50_us", |row| row.p50_us),
];

/// Draws round trips and time over the memory for receives, for each operation and size.
pub(crate) fn over_memory(rows: &[Row], palette: &Palette<'_>) -> Vec<Figure> {
    let mut out = Vec::new();
    for swept in Swept::all(rows) {
        for (what, column, value) in VALUES {
            let lines = swept.modes().into_iter().map(|mode| {
                let points = swept.of(mode);
                let points = points.filter_map(|row| Some((memory(row)? as f64, value(row)?)));
                let mut points: Vec<_> = points.collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Line {
                    name: mode.to_owned(),
                    series: palette.series(mode),
                    dashed: false,
                    points,
                }
            });
            let lines: Vec<_> = lines.filter(|line| !line.points.is_empty()).collect();
            if lines.is_empty() {
                continue;
            }
            let chart = LineChart {
                title: &format!("{}: {what} over memory", swept.name()),
                x_label: "bytes of receives for a connection, both ends, logarithmic",
                y_label: &format!("{what}, logarithmic"),
                word: Some(|bytes| show_amount(bytes as u64).replace("iB", "")),
                lines,
            };
            out.push(chart.figure(["receive_memory_bytes", column]));
        }
    }
    out
}
