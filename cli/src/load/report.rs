//! The tables and the JSON.

use rpcrdma_compare::Interval;
use rpcrdma_setup::columns::{Table, wrap};
use rpcrdma_setup::{Context, Failure};
use serde::Serialize;

use super::Plan;
use super::figures::Row;

/// The longest line of the tables, characters.
const WIDTH: usize = 100;

/// The document that `--json` writes.
#[derive(Serialize)]
struct Document<'a> {
    connections: u32,
    calls_in_flight: u32,
    threads: u32,
    rounds: u32,
    round_s: f64,
    rows: &'a [Row],
}

/// Returns the result as JSON.
///
/// # Errors
/// A figure is not a number.
pub(super) fn json(plan: &Plan, rows: &[Row]) -> Result<String, Failure> {
    let document = Document {
        connections: plan.connections,
        calls_in_flight: plan.in_flight,
        threads: plan.threads,
        rounds: plan.rounds,
        round_s: plan.time.as_secs_f64(),
        rows,
    };
    let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
    Ok(text + "\n")
}

/// Returns the result as text: a table for each operation, and what has to be known about it.
#[must_use]
pub(super) fn text(plan: &Plan, rows: &[Row]) -> String {
    let conditions = format!(
        "{} and {} in flight on each, {}, medians of {} rounds of {:?}",
        count(plan.connections, "connection"),
        count(plan.in_flight, "call"),
        count(plan.threads, "client thread"),
        plan.rounds,
        plan.time,
    );
    let mut out = wrap(&conditions, WIDTH);
    out.push('\n');
    let several = plan.targets.len() > 1;
    for op in &plan.ops {
        let mut table = Table::new(
            1,
            [
                &op.to_string(),
                "calls/s",
                "p50 µs",
                "p99 µs",
                "server %",
                "client %",
                "server µs",
                "ratio",
                "95 % interval",
            ]
            .map(|heading| heading),
        );
        for (index, row) in rows
            .iter()
            .filter(|row| (row.op, row.size) == (op.name(), op.size()))
            .enumerate()
        {
            let ratio = |figure: Option<String>| match several && index > 0 {
                true => figure.unwrap_or_else(none),
                false => String::new(),
            };
            let mark = if row.client_limited { "*" } else { "" };
            table.push([
                row.target.clone(),
                format!("{:.0}", row.calls_per_s),
                format!("{:.1}", row.p50_us),
                format!("{:.1}", row.p99_us),
                figure(row.server_processors, |used| format!("{:.0}", used * 100.0)),
                format!("{:.0}{mark}", row.client_share * 100.0),
                figure(row.server_us, |used| format!("{used:.2}")),
                ratio(row.ratio.map(|ratio| format!("{ratio:.2}"))),
                ratio(
                    row.ratio_interval
                        .map(|Interval { low, high }| format!("{low:.2} to {high:.2}")),
                ),
            ]);
        }
        out.push('\n');
        out.push_str(&table.render());
    }
    for note in notes(plan, rows) {
        out.push('\n');
        out.push_str(&wrap(&note, WIDTH));
        out.push('\n');
    }
    out
}

/// Returns what the reader of the tables has to know.
fn notes(plan: &Plan, rows: &[Row]) -> Vec<String> {
    let mut notes = vec![
        "Closed loop: each connection always has its operations in flight, so that latency includes \
         queueing. p50, p99: medians of those of the rounds."
            .to_owned(),
    ];
    if plan.targets.iter().any(|target| target.pid.is_some()) {
        notes.push(
            "server %: of one processor; server µs: processor time of the server for each call."
                .to_owned(),
        );
    } else {
        notes
            .push("The processor time of a server is measured if its process is given.".to_owned());
    }
    let in_ticks = rows.iter().filter(|row| row.server_in_ticks);
    let mut in_ticks: Vec<&str> = in_ticks.map(|row| row.target.as_str()).collect();
    in_ticks.sort_unstable();
    in_ticks.dedup();
    if !in_ticks.is_empty() {
        notes.push(format!(
            "Threads of {} ended in some rounds, in which processor time is counted in ticks of 10 ms.",
            in_ticks.join(", ")
        ));
    }
    if let [first, _, ..] = plan.targets.as_slice() {
        notes.push(format!(
            "ratio: calls for each second of the server's processor time, over those of {} in the \
             same round; the median, and the interval that contains it with 95 % probability{}.",
            first.name,
            match plan.rounds {
                0..6 => ", for which there are too few rounds: it takes six",
                _ => "",
            },
        ));
    }
    if rows.iter().any(|row| row.client_limited) {
        notes.push(
            "*: the client was the limit: its threads were on a processor, or waited for one, \
             nearly all the time (a low share with this mark: other work had the processor). The \
             server could have answered more calls per second. Its time for each call is that at \
             this rate."
                .to_owned(),
        );
    }
    notes
}

fn none() -> String {
    "-".to_owned()
}

fn figure(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(none, show)
}

fn count(number: u32, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}
