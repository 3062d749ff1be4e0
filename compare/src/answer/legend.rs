//! The legend of the table, for the variants and delays in it.

use rpc_transport::rdma::RdmaOptions;

use super::{DISTURBED, Pair, is_simulated, name, rtt};
use crate::interval::EITHER;
use crate::rows::Row;
use crate::table;
use crate::trips;
use crate::variant::Variant;

/// The length of the receives of Linux, in bytes.
const LINUX_RECEIVES: u32 = RdmaOptions::DEFAULT_INLINE;
/// The part of intervals that miss their value by chance.
const MISSED: f64 = 0.05;

/// Returns remarks on how to read the table, for the variants and delays in `rows`.
pub(crate) fn legend(rows: &[Row]) -> Vec<String> {
    let pairs = Pair::all(rows);
    let Some(first) = pairs.first() else {
        return Vec::new();
    };
    let mut lines = vec![ways(&pairs, first)];
    lines.extend(like_v1(&pairs));
    lines.push(columns(&pairs, first, rows));
    if !first.v1.is_exact() {
        lines.push(intervals(&pairs, rows));
    }
    lines.extend(trips::remark(rows));
    lines.extend(disturbed(&pairs));
    lines
}

/// Returns what the names of transfer modes mean.
fn ways(pairs: &[Pair<'_>], first: &Pair<'_>) -> String {
    let with = match first.v2.conveyance {
        "v2-ddp-cont" => ", data placed by Sends (ddp), messages in several (cont)",
        "v2-ddp" => ", data placed by Sends (ddp)",
        "v2-cont" => ", messages in several Sends (cont)",
        _ => "",
    };
    let long = match pairs.iter().any(|pair| pair.v1_long.is_some()) {
        true => " or as long as version 2's (long)",
        false => "",
    };
    let v1 = match first.v1.conveyance == Variant::V1Inv.name() {
        // With other receives, it is not what Linux has.
        true if first.v1.conditions.inline_bytes == Some(LINUX_RECEIVES) => {
            "with remote invalidation, receives like Linux's (not measured; inv)"
        }
        true => "with remote invalidation (inv)",
        false => "without remote invalidation",
    };
    format!("v1: RFC 8166 {v1}{long}; v2: version-two-01, a draft of 2016{with}.")
}

/// Returns what is to be said of rows that are left out, as they send the same messages as version
/// 1.
fn like_v1(pairs: &[Pair<'_>]) -> Option<String> {
    let left_out = pairs.iter().flat_map(|pair| {
        let rows = pair.variations();
        rows.filter(|row| pair.is_like_v1(row))
    });
    let left_out: Vec<&Row> = left_out.collect();
    let mut names: Vec<&str> = left_out.iter().map(|row| row.conveyance).collect();
    names.sort_unstable();
    names.dedup();
    let ratios = || left_out.iter().filter_map(|row| row.baseline_ratio);
    let (least, most) = (
        ratios().min_by(f64::total_cmp)?,
        ratios().max_by(f64::total_cmp)?,
    );
    Some(format!(
        "No row of {}: sends as {}, {least:.2} to {most:.2} of its time.",
        names.join(", "),
        pairs.first()?.v1.conveyance
    ))
}

fn columns(pairs: &[Pair<'_>], first: &Pair<'_>, rows: &[Row]) -> String {
    let shown = || pairs.iter().flat_map(Pair::rows);
    let error = shown()
        .filter_map(|row| row.round_trips_error)
        .max_by(f64::total_cmp);
    let trips = error.map_or_else(
        || "round trips".to_owned(),
        |error| format!("slope of time over RTT (error to {error:.2})"),
    );
    let link = first.link().filter(|_| first.v1.is_exact());
    let link = link.map_or_else(String::new, |delay| {
        format!(" x RTT {}: over a link with that.", rtt(delay))
    });
    format!(
        "trips: {trips}. wake: of client/server. reg: by the client for a call; \
         other buffers before. {}{}.{link}",
        match is_simulated(rows) {
            true => "copied B: bytes copied, both ends",
            false => "CPU: both ends",
        },
        match first
            .v1
            .conditions
            .device_kind
            .is_some_and(|kind| kind.contains("software"))
        {
            true => " and the software adapter",
            false => "",
        },
    )
}

/// Returns what ratios and their intervals are.
fn intervals(pairs: &[Pair<'_>], rows: &[Row]) -> String {
    let shown = pairs.iter().flat_map(|pair| {
        let rows = pair
            .rows()
            .filter(|row| Some(row.conveyance) != row.baseline);
        rows.flat_map(|row| [row.beside_baseline(), pair.over_link(row)])
    });
    let shown: Vec<_> = shown.flatten().collect();
    let count = shown
        .iter()
        .filter(|shown| shown.interval.is_some())
        .count();
    let missed = (MISSED * count as f64).round();
    let by_chance = match missed >= 1.0 {
        true => format!("; about {missed} of {count} miss by chance"),
        false => String::new(),
    };
    let few = match count < shown.len() {
        true => "; ~: too few turns for one",
        false => "",
    };
    format!(
        "{}: median of paired turns' ratios, its 95 % interval within this run; {EITHER}: it has \
         1{few}{by_chance}.",
        table::against(rows),
    )
}

/// Returns what the mark of disturbed operations means, if there is one.
fn disturbed(pairs: &[Pair<'_>]) -> Option<String> {
    let spreads = pairs.iter().filter(|pair| table::is_disturbed(pair.v1));
    let spreads = spreads.filter_map(|pair| Some((pair.v1.floor_spread?, name(pair.v1))));
    let (spread, worst) = spreads.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "{DISTURBED}: other work moved bare TCP beside it by up to {:.0} % ({worst}): repeat when \
         idle.",
        spread * 100.0
    ))
}
