//! The legend of the table, for the variants and delays in it.

use rpc_transport::rdma::RdmaOptions;

use super::{Pair, is_simulated, rtt};
use crate::interval::EITHER;
use crate::rows::Row;
use crate::table;
use crate::trips;
use crate::variant::Variant;

/// The length of the receives of Linux, in bytes.
pub(crate) const LINUX_RECEIVES: u32 = RdmaOptions::DEFAULT_INLINE;
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
        true => " or of v2-ddp's (long)",
        false => "",
    };
    let v1 = match first.v1.conveyance == Variant::V1Inv.name() {
        // With other receives, it is not what Linux has.
        true if first.v1.conditions.inline_bytes == Some(LINUX_RECEIVES) => {
            "remote invalidation, receives of Linux's default (inv; Linux itself was not measured)"
        }
        true => "remote invalidation (inv)",
        false => "no remote invalidation",
    };
    format!("v1: RFC 8166, {v1}{long}; v2: version-two-01, a draft of 2016{with}.")
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
    let of_which = names.into_iter().map(|name| {
        let rows = left_out.iter().filter(|row| row.conveyance == name);
        let operations = rows.map(|row| {
            format!("{} {}", table::op(row), table::size(row))
                .trim_end()
                .to_owned()
        });
        format!("{name} ({})", operations.collect::<Vec<_>>().join(", "))
    });
    let of_which: Vec<String> = of_which.collect();
    let ratios = || left_out.iter().filter_map(|row| row.baseline_ratio);
    let (least, most) = (
        ratios().min_by(f64::total_cmp)?,
        ratios().max_by(f64::total_cmp)?,
    );
    Some(format!(
        "Left out: {}, with the same messages as {} and {least:.2} to {most:.2} times as long.",
        of_which.join(", "),
        pairs.first()?.v1.conveyance
    ))
}

/// Returns what the columns of counts and processor time have.
fn columns(pairs: &[Pair<'_>], first: &Pair<'_>, rows: &[Row]) -> String {
    let shown = || pairs.iter().flat_map(Pair::rows);
    let error = shown()
        .filter_map(|row| row.round_trips_error)
        .max_by(f64::total_cmp);
    // The conditions have the delays between which that is.
    let trips = error.map_or_else(
        || "round trips".to_owned(),
        |error| format!("slope (error to {error:.2})"),
    );
    let link = first.link().filter(|_| first.v1.is_exact());
    let link = link.map_or_else(String::new, |delay| {
        format!(" x RTT {}: over a link with that.", rtt(delay))
    });
    let device = first.v1.conditions.device_kind;
    let is_software = device.is_some_and(|kind| kind.contains("software"));
    let simulated = is_simulated(rows);
    format!(
        "trips: {trips}. {}. reg: by the client{}. {}{}.{link}",
        match simulated {
            true => "wake c/s: interrupts",
            false => "wake c/s: over TCP all, over RDMA with a completion",
        },
        match is_software {
            true => " (software: nearly free)",
            false => "",
        },
        match simulated {
            true => "copied B: bytes copied, both ends",
            false => "CPU: mean, both ends",
        },
        match is_software {
            true => ", RDMA with the software adapter",
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
        true => format!("; by chance, about {missed} of {count} miss the true ratio"),
        false => String::new(),
    };
    let few = match count < shown.len() {
        true => "; ~: too few turns for one",
        false => "",
    };
    let range = |of: fn(&Row) -> Option<u32>| {
        let values = || rows.iter().filter_map(of);
        let (least, most) = (values().min()?, values().max()?);
        Some(match least == most {
            true => most.to_string(),
            false => format!("{least} to {most}"),
        })
    };
    let of = match (range(|row| row.rounds), range(|row| row.turns)) {
        (Some(rounds), Some(turns)) => {
            format!("{turns} turns' ratios, 95 % by rank of {rounds} rounds")
        }
        _ => "paired turns' ratios, 95 % interval".to_owned(),
    };
    format!(
        "{}: median of {of}, not of p50s; {EITHER}: includes 1{few}{by_chance}.",
        table::against(rows),
    )
}
