//! Builds figures from rows.

use rpcrdma_setup::units::show_size;

use super::bars::{BarChart, Panel};
use super::figure::Figure;
use super::lines::{Line, LineChart};
use crate::latency::exceeded_by_one_in;
use crate::rows::{Mode, Row};

/// The size of the READ and WRITE that represents short ones, bytes.
const SHORT: u64 = 8192;
/// The parts of a latency, and the numbers of their colours.
const PARTS: [(&str, usize); 5] = [
    ("link", 1),
    ("interrupts", 4),
    ("registration", 5),
    ("copies", 2),
    ("the rest", 0),
];

/// The points of a distribution: the latency that one call in so many exceeds. The first is the least one.
const ONE_IN: [u32; 8] = [1, 2, 4, 10, 20, 100, 1_000, 10_000];
/// The minimum number of calls beyond a point of a distribution.
const BEYOND: u64 = 10;

/// The rows of one operation of one size.
pub(crate) struct Group<'a> {
    pub(crate) op: &'a str,
    pub(crate) size: Option<u64>,
    pub(crate) rows: Vec<&'a Row>,
}

impl Group<'_> {
    /// Returns the name for a heading.
    pub(crate) fn name(&self) -> String {
        match self.size {
            Some(size) => format!("{} {}", self.op.to_uppercase(), show_size(size)),
            None => self.op.to_uppercase(),
        }
    }
}

/// Returns the rows that figures show, by operation and size. Copies of trees are left out; if both
/// modes were measured, only the main one is shown.
pub(crate) fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let main = rows.first().map_or(Mode::Blocking, |row| row.mode);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows {
        if row.mode != main || row.op.ends_with("-tree") {
            continue;
        }
        let known = groups
            .iter_mut()
            .find(|group| (group.op, group.size) == (row.op, row.size));
        match known {
            Some(group) => group.rows.push(row),
            None => groups.push(Group {
                op: row.op,
                size: row.size,
                rows: vec![row],
            }),
        }
    }
    groups
}

/// The colours of the variants. TCP has the colour of the reference.
pub(crate) struct Palette<'a>(Vec<&'a str>);

impl<'a> Palette<'a> {
    pub(crate) fn of(rows: &'a [Row]) -> Self {
        let mut names = vec!["tcp"];
        for row in rows {
            if !names.contains(&row.conveyance) {
                names.push(row.conveyance);
            }
        }
        Self(names)
    }

    pub(crate) fn series(&self, conveyance: &str) -> usize {
        self.0
            .iter()
            .position(|&name| name == conveyance)
            .unwrap_or(0)
    }
}

/// Draws latency over size, for each operation with several sizes.
pub(crate) fn over_size(groups: &[Group<'_>], palette: &Palette<'_>) -> Vec<Figure> {
    let mut out = Vec::new();
    for op in ["read", "write"] {
        let of_op: Vec<&Row> = groups
            .iter()
            .filter(|group| group.op == op)
            .flat_map(|group| group.rows.iter().copied())
            .collect();
        let mut lines = lines(&of_op, palette, |row| {
            row.size
                .zip(row.p50_us)
                .map(|(size, p50)| (size as f64, p50))
                .into_iter()
                .collect()
        });
        if lines.iter().all(|line| line.points.len() < 2) {
            continue;
        }
        let mut baseline: Vec<(f64, f64)> = of_op
            .iter()
            .filter_map(|row| Some((row.size? as f64, row.floor_p50_us?)))
            .collect();
        baseline.sort_by(|a, b| a.0.total_cmp(&b.0));
        baseline.dedup_by(|a, b| a.0 == b.0);
        if baseline.len() > 1 {
            lines.push(Line {
                name: "TCP baseline".to_owned(),
                series: 0,
                dashed: true,
                points: baseline,
            });
        }
        let chart = LineChart {
            title: &format!("{}: latency over size", op.to_uppercase()),
            x_label: "bytes of data, logarithmic",
            y_label: "median latency, µs, logarithmic",
            word: Some(|bytes| show_size(bytes as u64).replace("iB", "")),
            lines,
        };
        out.push(chart.figure(["bytes", "p50_us"]));
    }
    out
}

/// Draws latency over the delay of the link for READ and WRITE alone, each size in a figure of its own:
/// these are what the transfer modes differ in. Where neither was measured, it draws the other operations.
pub(crate) fn over_delay(groups: &[Group<'_>], palette: &Palette<'_>) -> Vec<Figure> {
    let mut out = Vec::new();
    let moves_data = |group: &Group<'_>| matches!(group.op, "read" | "write");
    let all = !groups.iter().any(moves_data);
    for group in chosen(groups).filter(|group| all || moves_data(group)) {
        let lines = lines(&group.rows, palette, |row| {
            let points = row.latency_over_delay.iter().flatten();
            points.map(|point| (point.delay_us, point.p50_us)).collect()
        });
        if lines.iter().all(|line| line.points.len() < 2) {
            continue;
        }
        let chart = LineChart {
            title: &format!("{}: latency over link delay", group.name()),
            x_label: "delay of the link each way, µs",
            y_label: "median latency, µs",
            word: None,
            lines,
        };
        out.push(chart.figure(["delay_us", "p50_us"]));
    }
    out
}

/// Draws the distribution of all latencies, which simulations have none of, up to where ten calls are left.
pub(crate) fn distributions(groups: &[Group<'_>], palette: &Palette<'_>) -> Vec<Figure> {
    let mut out = Vec::new();
    for group in chosen(groups) {
        let lines = lines(&group.rows, palette, |row| {
            let encoded = row.histogram.as_deref();
            encoded.map_or_else(Vec::new, |text| exceeded_by_one_in(text, &ONE_IN, BEYOND))
        });
        if lines.iter().all(|line| line.points.len() < 2) {
            continue;
        }
        let chart = LineChart {
            title: &format!("{}: distribution of latency", group.name()),
            x_label: "part of the calls that take no longer",
            y_label: "latency, µs, logarithmic",
            word: Some(|one_in| percent(1.0 - 1.0 / one_in)),
            lines,
        };
        out.push(chart.figure(["exceeded_by_one_in", "latency_us"]));
    }
    out
}

/// Formats a part of all calls. None is at the least latency.
fn percent(part: f64) -> String {
    if part <= 0.0 {
        return "least".to_owned();
    }
    // As many digits as tell the parts of `ONE_IN` apart.
    let text = format!("{:.2}", part * 100.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

/// Draws the composition of each latency, which is known in simulations only.
pub(crate) fn split(groups: &[Group<'_>]) -> Vec<Figure> {
    let known = |row: &Row| row.split.link_us.is_some();
    let figures = chosen(groups).filter(|group| group.rows.iter().any(|row| known(row)));
    figures
        .map(|group| {
            let bars = group.rows.iter().map(|row| {
                let parts = [
                    row.split.link_us?,
                    row.split.interrupts_us?,
                    row.split.registration_us?,
                    row.split.copies_us?,
                ];
                let rest = row.p50_us? - parts.iter().sum::<f64>();
                Some(
                    parts
                        .into_iter()
                        .chain([rest])
                        .map(|us| us.max(0.0))
                        .collect(),
                )
            });
            let chart = BarChart {
                title: &format!("{}: what its time is made of", group.name()),
                names: names(group),
                parts: &PARTS,
                panels: vec![Panel {
                    label: "µs".to_owned(),
                    bars: bars.collect(),
                }],
            };
            chart.figure()
        })
        .collect()
}

/// Draws the counts of the events that each operation had to wait for.
pub(crate) fn counts(groups: &[Group<'_>]) -> Vec<Figure> {
    let panel = |group: &Group<'_>, label: &str, of: fn(&Row) -> Option<f64>| Panel {
        label: label.to_owned(),
        bars: group
            .rows
            .iter()
            .map(|row| of(row).map(|value| vec![value.max(0.0)]))
            .collect(),
    };
    let interrupts = |row: &Row| Some(row.interrupts_requester? + row.interrupts_responder?);
    chosen(groups)
        .map(|group| {
            let chart = BarChart {
                title: &format!("{}: costs, counted", group.name()),
                names: names(group),
                parts: &[],
                panels: vec![
                    panel(group, "round trips", |row| row.round_trips),
                    panel(group, "interrupts", interrupts),
                    panel(group, "registrations", |row| row.registrations),
                ],
            };
            chart.figure()
        })
        .collect()
}

fn names(group: &Group<'_>) -> Vec<String> {
    group
        .rows
        .iter()
        .map(|row| row.conveyance.to_owned())
        .collect()
}

/// Selects one short and the longest size of READ and WRITE, and all other operations.
fn chosen<'a, 'b>(groups: &'a [Group<'b>]) -> impl Iterator<Item = &'a Group<'b>> {
    groups.iter().filter(move |group| {
        let sizes = groups
            .iter()
            .filter(|other| other.op == group.op)
            .filter_map(|other| other.size);
        let longest = sizes.clone().max();
        let short = sizes.min_by_key(|size| size.abs_diff(SHORT));
        group.size == longest || group.size == short
    })
}

/// Returns a line for each variant among `rows`.
fn lines(
    rows: &[&Row],
    palette: &Palette<'_>,
    points: impl Fn(&Row) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let more = points(row);
        match lines.iter_mut().find(|line| line.name == row.conveyance) {
            Some(line) => line.points.extend(more),
            None => lines.push(Line {
                name: row.conveyance.to_owned(),
                series: palette.series(row.conveyance),
                dashed: false,
                points: more,
            }),
        }
    }
    lines.retain(|line| !line.points.is_empty());
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}
