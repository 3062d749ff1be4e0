//! The answer of a comparison: a short table of version 1 and the best variant of version 2, beside
//! TCP, and sentences that are computed from it.

mod legend;
mod sentences;
#[cfg(test)]
mod tests;

use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::{show_amount, show_size};

use crate::interval::Shown;
use crate::rows::{Mode, Row};
use crate::summary::ENDS;
use crate::table;
use crate::table::number;
use crate::variant::Variant;

pub(crate) use legend::{LINUX_RECEIVES, legend};
pub(crate) use sentences::sentences;

/// The variants of version 2, best first: the first one that was measured is compared with
/// version 1.
const BEST: [Variant; 4] = [
    Variant::V2DdpCont,
    Variant::V2Ddp,
    Variant::V2Cont,
    Variant::V2,
];
/// The largest distance from a whole number at which a measured count is shown as that number.
const WHOLE: f64 = 0.1;

/// The rows of one operation: by version 1, which is the baseline, by a variant of version 2, and, if
/// they were measured, by version 1 with receives as long as those of version 2, by version 2 with
/// continuation alone, and over TCP.
struct Pair<'a> {
    v1: &'a Row,
    v2: &'a Row,
    v1_long: Option<&'a Row>,
    v2_cont: Option<&'a Row>,
    tcp: Option<&'a Row>,
}

impl<'a> Pair<'a> {
    /// Returns the pair of each operation that was measured by both, in the order of `rows`.
    fn all(rows: &'a [Row]) -> Vec<Self> {
        let rows = || rows.iter().filter(|row| row.mode == Mode::Blocking);
        let best = BEST
            .map(Variant::name)
            .into_iter()
            .find(|&name| rows().any(|row| row.conveyance == name));
        let Some(best) = best else {
            return Vec::new();
        };
        let is_v1 = |row: &&Row| {
            let plain = row.conveyance.split([':', '+']).next();
            [Variant::V1, Variant::V1Inv]
                .map(|it| Some(it.name()))
                .contains(&plain)
        };
        let v1 = rows().filter(|row| row.baseline == Some(row.conveyance));
        let v1 = v1.filter(is_v1);
        v1.filter_map(|v1| {
            let same = |name: &'static str| {
                rows().find(|row| row.conveyance == name && (row.op, row.size) == (v1.op, v1.size))
            };
            let [tcp, v1_long, v2_cont] = [Variant::Tcp, Variant::V1Long, Variant::V2Cont]
                .map(|variant| same(variant.name()));
            same(best).map(|v2| Self {
                v1,
                v2,
                v1_long,
                v2_cont: v2_cont.filter(|row| row.conveyance != best),
                tcp,
            })
        })
        .collect()
    }

    /// Returns whether a row sends the same messages as version 1 does.
    fn is_like_v1(&self, row: &Row) -> bool {
        let work = |row: &Row| {
            [
                row.sends,
                row.rdma_reads,
                row.rdma_writes,
                row.registrations,
            ]
            .map(count)
        };
        work(row) == work(self.v1)
    }

    /// Returns the rows for which only their differences from version 1 count.
    fn variations(&self) -> impl Iterator<Item = &'a Row> + use<'a> {
        [self.v1_long, self.v2_cont].into_iter().flatten()
    }

    /// Returns the rows, in the order of the table.
    fn rows(&self) -> impl Iterator<Item = &'a Row> + use<'a> {
        let [long, cont] =
            [self.v1_long, self.v2_cont].map(|row| row.filter(|row| !self.is_like_v1(row)));
        let rows = [self.tcp, Some(self.v1), long, cont, Some(self.v2)];
        rows.into_iter().flatten()
    }

    /// Returns the shortest delay, in microseconds, that is longer than that of the rows and was
    /// measured.
    fn link(&self) -> Option<f64> {
        let points = self.v1.latency_over_delay.iter().flatten();
        let delays = points.map(|point| point.delay_us);
        let longer = delays.filter(|&delay| delay > self.v1.delay_us);
        longer.min_by(f64::total_cmp)
    }

    /// Returns the ratio of one of the rows to the baseline over a link with that delay.
    fn over_link(&self, row: &Row) -> Option<Shown> {
        let delay = self.link()?;
        let mut points = row.latency_over_delay.iter().flatten();
        let point = points.find(|point| point.delay_us == delay)?;
        row.shown(point.baseline_ratio, point.baseline_ratio_interval)
    }
}

/// Formats a count per operation: without decimals if it is close to a whole number, so that the
/// disturbance of a few calls does not hide what the protocol needs.
fn count(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        // Adding 0 makes 0 of -0.
        Some(value) if (value - value.round()).abs() < WHOLE => format!("{}", value.round() + 0.0),
        Some(value) => format!("{value:.1}"),
    }
}

/// Formats the round-trip time of a link with a delay in each direction.
fn rtt(delay_us: f64) -> String {
    let micros = 2.0 * delay_us;
    match micros >= 1000.0 {
        true => format!("{} ms", micros / 1000.0),
        false => format!("{micros} µs"),
    }
}

/// Returns the length of the receives of a row, as options have it: `65K`, or `-` over TCP.
fn receives(row: &Row) -> String {
    match row.conditions.inline_bytes {
        Some(length) if length % 1024 == 0 => format!("{}K", length >> 10),
        Some(length) => length.to_string(),
        None => "-".to_owned(),
    }
}

/// Returns whether the ends of the measured connections made the delay: they sleep before they pass a
/// message on, and the network below knows of no delay.
fn is_slept(row: &Row) -> bool {
    row.conditions.delayed_by.as_deref() == Some(ENDS)
}

/// Returns whether rows are from a simulation, which knows the bytes that are copied and no processor time.
fn is_simulated(rows: &[Row]) -> bool {
    rows.iter().all(Row::is_exact)
}

/// Returns the cells of the table, the headings first: one line for each operation and transfer mode. There is
/// a last column for a longer link if one was measured.
/// Returns `None` if no operation was measured by version 1 and by version 2.
pub(crate) fn cells(rows: &[Row]) -> Option<Vec<Vec<String>>> {
    let pairs = Pair::all(rows);
    let over = match pairs.iter().find_map(Pair::link) {
        Some(delay) if pairs.iter().all(|pair| is_slept(pair.v1)) => {
            Some(format!("x {} slept", rtt(delay)))
        }
        longer => longer.map(|delay| format!("x RTT {}", rtt(delay))),
    };
    let against = table::against(rows);
    let work = if is_simulated(rows) {
        "copied B"
    } else {
        "CPU µs"
    };
    let headings = [
        "op", "size", "via", "recv", "trips", "wake", "reg", work, "p50 µs", &against,
    ];
    let headings = headings.map(str::to_owned).into_iter();
    let mut lines = vec![headings.chain(over.clone()).collect()];
    for pair in &pairs {
        for row in pair.rows() {
            let cells = [
                row.op.to_owned(),
                row.size.map_or_else(String::new, show_size),
                row.conveyance.to_owned(),
                receives(row),
                count(row.round_trips),
                format!(
                    "{}/{}",
                    count(row.interrupts_requester),
                    count(row.interrupts_responder)
                ),
                count(row.registrations),
                number(match is_simulated(rows) {
                    true => row.copied_bytes,
                    false => row.cpu_us,
                }),
                number(row.p50_us),
                table::ratio(row.beside_baseline()),
            ];
            let over = over.is_some().then(|| table::ratio(pair.over_link(row)));
            lines.push(cells.into_iter().chain(over).collect());
        }
    }
    (lines.len() > 1).then_some(lines)
}

/// The number of columns of the table that are flush left: those that name the row.
pub(crate) const NAMES: usize = 3;

/// Formats the table as text, if there is one.
pub(crate) fn table(rows: &[Row]) -> Option<String> {
    let mut lines = cells(rows)?.into_iter();
    let headings = lines.next()?;
    let mut table = Table::with_columns(NAMES, headings).narrow();
    lines.for_each(|line| table.push_line(line));
    Some(table.render())
}

/// Returns the name of the operation as in running text: "8 KiB WRITE".
fn name(row: &Row) -> String {
    let op = row.op.to_uppercase();
    match row.size {
        // The bytes of a tree are what it happens to have.
        Some(size) if row.op.ends_with("-tree") => format!("{} {op}", show_amount(size)),
        Some(size) => format!("{} {op}", show_size(size)),
        None => op,
    }
}
