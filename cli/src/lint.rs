//! The `lint` command: what a capture breaks, and what it costs needlessly.

use std::fs::File;
use std::path::Path;

use rpcrdma_reading::Summary;
use rpcrdma_reading::lint::{Counts, Finding, Lint, Place, Report, Savings};
use rpcrdma_setup::Failure;
use rpcrdma_setup::columns::{Table, wrap};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::units::{count, show_size};
use serde_json::json;

use crate::args::LintArgs;
use crate::output;

/// Number of places of a finding that are named.
const PLACES: usize = 3;
/// Number of places that are named with `--all`: enough for anybody, and bounded.
const ALL_PLACES: usize = 1_000_000;
/// Width of lines, and how far explanations are indented.
const WIDTH: usize = 100;
const INDENT: usize = 4;

/// The remark where nothing was found that could be read.
pub(crate) const NO_CONNECTION: &str = "No packet of RPC-over-RDMA was found: versions 1 and 2 over iWARP or RoCE version 2 are \
     looked for, in whole frames.";

/// Reads a capture and prints what is found in it.
///
/// # Errors
/// The capture cannot be read, or breaks a rule.
pub(crate) fn run(args: &LintArgs) -> Result<(), Failure> {
    let costs = CostsArg::load(args.costs.as_ref())?;
    let name = args.capture.display();
    let unreadable = |error: &dyn std::fmt::Display| Failure::Usage(format!("{name}: {error}"));
    let file = File::open(&args.capture).map_err(|error| unreadable(&error))?;
    let places = if args.all { ALL_PLACES } else { PLACES };
    let mut lint = Lint::new(places, &costs.model());
    let summary = rpcrdma_reading::read(file, &mut lint).map_err(|error| unreadable(&error))?;
    let report = lint.report();
    let printed = match args.json {
        true => output::json(&as_json(&summary, &report)),
        false => output::line(text(&args.capture, &summary, &report).trim_end()),
    };
    let work = match report.is_clean() {
        true => Ok(()),
        // The report says it.
        false => Err(Failure::Told(1)),
    };
    output::ended(work, printed)
}

/// Returns the remark about a file that is damaged or cut off.
pub(crate) fn not_to_the_end(summary: &Summary) -> Option<String> {
    let reason = summary.ended.as_ref()?;
    Some(format!("Not read to the end: {reason}."))
}

fn as_json(summary: &Summary, report: &Report) -> serde_json::Value {
    json!({
        "packets": summary.packets,
        "connections": summary.connections,
        "skipped": summary.skipped,
        "repeated": summary.repeated,
        "ended": summary.ended.as_ref().map(ToString::to_string),
        "report": report,
    })
}

fn text(file: &Path, summary: &Summary, report: &Report) -> String {
    let connections = u64::from(summary.connections);
    let mut out = format!(
        "{}: {}, {} of RPC-over-RDMA, {}\n",
        file.display(),
        count(summary.packets, "packet", "packets"),
        count(connections, "connection", "connections"),
        count(report.calls, "call", "calls"),
    );
    let lost = report.first_lost.as_ref().map(|first| {
        format!(
            "The capture lacks something in {} places. The first: {first}.",
            report.lost
        )
    });
    let remarks = [
        not_to_the_end(summary),
        (summary.connections == 0).then(|| NO_CONNECTION.to_owned()),
        (report.unanswered > 0).then(|| {
            format!(
                "{} without a reply.",
                count(report.unanswered, "call", "calls")
            )
        }),
        lost,
    ];
    for remark in remarks.into_iter().flatten() {
        out.push_str(&wrap(&remark, WIDTH));
        out.push('\n');
    }
    let sections = [
        ("Rules that are broken", &report.broken),
        ("To know of", &report.notes),
        ("Costs needlessly", &report.needless),
    ];
    for (heading, findings) in sections {
        if findings.is_empty() {
            continue;
        }
        out.push_str(&format!("\n{heading}:\n"));
        findings
            .iter()
            .for_each(|finding| out.push_str(&shown(finding)));
    }
    if report.broken.is_empty() && summary.connections > 0 {
        out.push_str("\nNo rule is broken.\n");
    }
    if report.savings.calls > 0 {
        out.push('\n');
        out.push_str(&savings(&report.savings));
    }
    out
}

/// Returns the lines about a finding.
fn shown(finding: &Finding) -> String {
    let severity = finding
        .severity
        .map_or_else(String::new, |it| format!("{it} "));
    let mut out = format!("  {severity}{} ({})\n", finding.id, finding.section);
    let mut add = |text: &str| {
        for line in wrap(text, WIDTH - INDENT).lines() {
            out.push_str(&format!("{:INDENT$}{line}\n", ""));
        }
    };
    add(&format!("{}.", finding.sentence));
    let times = count(finding.count, "time", "times");
    let places: Vec<String> = finding.places.iter().map(place).collect();
    let rest = match finding.count > finding.places.len() as u64 {
        true => ", ...",
        false => "",
    };
    add(&format!("{times}: {}{rest}", places.join("; ")));
    if let Some(instead) = finding.instead {
        add(&format!("Instead: {instead}."));
    }
    out
}

fn place(place: &Place) -> String {
    let Place {
        packet,
        xid,
        detail,
        ..
    } = place;
    let xid = xid.map_or_else(String::new, |xid| format!(" XID {xid:#010x}"));
    let detail = match detail.is_empty() {
        true => String::new(),
        false => format!(" ({detail})"),
    };
    format!("packet {packet}{xid}{detail}")
}

/// Returns the table of what calls took, and would have taken.
fn savings(savings: &Savings) -> String {
    let header = [
        "way",
        "receives",
        "calls",
        "trips",
        "interrupts",
        "registr.",
        "RDMA ops",
        "µs/call",
        "memory",
    ];
    let mut table = Table::new(1, header);
    let mut line = |name: &str, receive: String, calls: u64, counts: &Counts, memory: u64| {
        let time = counts.nanoseconds as f64 / 1e3 / savings.calls as f64;
        table.push([
            name.to_owned(),
            receive,
            calls.to_string(),
            counts.round_trips.to_string(),
            counts.interrupts.to_string(),
            counts.registrations.to_string(),
            counts.operations.to_string(),
            format!("{time:.1}"),
            show_size(memory),
        ]);
    };
    line(
        "as captured",
        "-".into(),
        savings.calls,
        &savings.counts,
        savings.memory,
    );
    for other in &savings.alternatives {
        let receive = show_size(other.receive);
        line(
            other.name,
            receive,
            other.calls,
            &other.counts,
            other.memory,
        );
    }
    let mut out = format!(
        "What {} took, and would have taken:\n{}",
        count(savings.calls, "call", "calls"),
        table.render()
    );
    let explained = "Calls: moved in that way; the others stay as they were. Memory: receives of both ends of \
         all connections. Times are estimates by the cost model (--costs).";
    out.push_str(&wrap(explained, WIDTH));
    out.push('\n');
    for other in &savings.alternatives {
        out.push_str(&wrap(&format!("{}: {}.", other.name, other.set), WIDTH));
        out.push('\n');
    }
    out
}
