//! The change of one row against that of an earlier report, and whether it is more than chance.
//!
//! The interval of a change follows from those of both runs: the squares of the distances from estimate
//! to end are added, on a logarithmic scale (the method of variance estimates recovery). It has what
//! differs between rounds of a run, but not what differs between runs alone: where memory lies, which
//! the rounds of a run have in common, changes latencies by some percent. So a measured change counts
//! only if all of the interval is beyond [`BETWEEN_RUNS`].

use super::{Fields, describe, number, text, value};
use crate::interval::{Interval, Shown};
use crate::trips::INEXACT;

/// The counts that are compared.
const COUNTS: [&str; 9] = [
    "round_trips",
    "sends",
    "rdma_reads",
    "rdma_writes",
    "registrations",
    "invalidations",
    "interrupts_requester",
    "interrupts_responder",
    "copied_bytes",
];
/// The maximum difference of a count, relative to the greater value, or absolute.
const SLACK: f64 = 0.1;
/// The count that the clock measures, except in a simulation, and the key of its standard error.
const BY_CLOCK: (&str, &str) = ("round_trips", "round_trips_error");
/// The least difference of round trips by the clock that counts: they are whole numbers in truth.
const TRIPS_SLACK: f64 = 0.5;
/// The distance, in standard errors, beyond which a difference of round trips is more than chance.
const TRIPS_ERRORS: f64 = 3.0;
/// The change of a measured time, relative to the earlier one, that two runs of one build can differ by.
const BETWEEN_RUNS: f64 = 0.05;

/// The probability that one or more of all rows are told to differ by chance.
const FALSE_ALARM: f64 = 0.05;
/// The half-width of a confidence interval of 95 %, in standard errors.
const INTERVAL_ERRORS: f64 = 1.96;

/// The change of one row.
#[derive(Debug)]
pub(crate) struct Change {
    /// Operation, size and mode.
    pub(crate) what: String,
    pub(crate) conveyance: String,
    pub(crate) then_us: Option<f64>,
    pub(crate) now_us: Option<f64>,
    /// The new value divided by the earlier one: of the ratios to the TCP baseline if both reports
    /// have them, otherwise of the latencies.
    pub(crate) ratio: Option<Shown>,
    /// Counts that changed, in words.
    pub(crate) counts: Vec<String>,
    /// Whether a count is greater than before.
    pub(super) costs_more: bool,
    /// Whether the row was measured under the same conditions.
    pub(super) alike: bool,
    /// The number of rows that are tested together.
    pub(super) among: usize,
}

/// The outcome of the test of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Slower,
    Faster,
    /// No change that is more than chance.
    Same,
    /// There is no interval, or the conditions differ.
    Untested,
}

impl Change {
    /// Formats the change for a table.
    pub(crate) fn percent(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        match self.ratio {
            None => "-".to_owned(),
            Some(Shown {
                ratio,
                interval: Some(Interval { low, high }),
                ..
            }) => format!(
                "{:+.1} % ({:+.1} to {:+.1})",
                percent(ratio),
                percent(low),
                percent(high)
            ),
            Some(shown) => format!("{:+.1} %", percent(shown.ratio)),
        }
    }

    /// Tests whether the time changed, as one of several rows.
    pub(crate) fn outcome(&self) -> Outcome {
        let (ends, slack) = match self.ratio {
            Some(Shown {
                ratio, exact: true, ..
            }) => ((ratio, ratio), 0.001),
            Some(Shown {
                ratio,
                interval: Some(Interval { low, high }),
                ..
            }) => {
                // Of many tests, each at 95 %, some would fail by chance. This bound of the normal
                // distribution's tail holds for all of them together.
                let errors = (2.0 * (self.among as f64 / FALSE_ALARM).ln()).sqrt();
                let wider = |end: f64| ratio * (end / ratio).powf(errors / INTERVAL_ERRORS);
                ((wider(low), wider(high)), BETWEEN_RUNS)
            }
            _ => return Outcome::Untested,
        };
        match ends {
            _ if !self.alike => Outcome::Untested,
            (low, _) if low > 1.0 + slack => Outcome::Slower,
            (_, high) if high < 1.0 / (1.0 + slack) => Outcome::Faster,
            _ => Outcome::Same,
        }
    }

    /// Returns the outcome in a word, for a table.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.outcome() {
            Outcome::Slower => "slower",
            Outcome::Faster => "faster",
            Outcome::Same => "none",
            Outcome::Untested => "not tested",
        }
    }
}

/// Returns the change of a row. `alike` says whether it was measured under the same conditions.
pub(super) fn change(then: &Fields, now: &Fields, alike: bool) -> Change {
    let both = |key| number(then, key).zip(number(now, key));
    let (then_us, now_us) = (number(then, "p50_us"), number(now, "p50_us"));
    let with_interval = |key, interval| {
        let (then, now) = (estimate(then, key, interval), estimate(now, key, interval));
        now.zip(then).map(|(now, then)| divided(now, then))
    };
    let alone = || {
        let ratio = both("tcp_baseline_ratio").or_else(|| both("p50_us"));
        let ratio = ratio.filter(|(was, _)| *was > 0.0);
        ratio.map(|(was, is)| Shown {
            ratio: is / was,
            interval: None,
            exact: text(now, "device") == "sim",
        })
    };
    let beside_tcp = "tcp_baseline_ratio";
    let ratio = match both(beside_tcp) {
        Some(_) => with_interval(beside_tcp, "tcp_baseline_ratio_interval"),
        None => with_interval("p50_us", "p50_interval_us"),
    };
    let mut counts = Vec::new();
    let mut costs_more = false;
    for key in COUNTS {
        let Some((was, is)) = both(key) else {
            continue;
        };
        if (was - is).abs() > slack(key, then, now, was.abs().max(is.abs())) {
            costs_more |= is > was && alike;
            counts.push(format!("{key} {was:.2} → {is:.2}"));
        }
    }
    Change {
        what: describe(now),
        conveyance: text(now, "transfer_mode").to_owned(),
        then_us,
        now_us,
        ratio: ratio.or_else(alone),
        counts,
        costs_more,
        alike,
        among: 1,
    }
}

/// Returns the difference of a count that is not yet a change.
fn slack(key: &str, then: &Fields, now: &Fields, greater: f64) -> f64 {
    let (by_clock, error) = BY_CLOCK;
    if key != by_clock || text(now, "device") == "sim" {
        return (greater * SLACK).max(SLACK);
    }
    // A slope without its error has at most the one with which it is still shown.
    let error = |row| number(row, error).unwrap_or(INEXACT);
    TRIPS_SLACK.max(TRIPS_ERRORS * error(then).hypot(error(now)))
}

/// Returns an estimate and the two ends of its interval.
fn estimate(row: &Fields, key: &str, interval: &str) -> Option<[f64; 3]> {
    let ends = value(row, interval)?.as_array()?;
    let [low, high] = [ends.first()?.as_f64()?, ends.get(1)?.as_f64()?];
    Some([number(row, key)?, low, high]).filter(|all| all.iter().all(|&value| value > 0.0))
}

/// Returns the ratio of two estimates with its interval.
fn divided(now: [f64; 3], then: [f64; 3]) -> Shown {
    let [[now, now_low, now_high], [then, then_low, then_high]] = [now, then];
    let distance = |one: f64, other: f64| one.ln().hypot(other.ln()).exp();
    let ratio = now / then;
    Shown {
        ratio,
        interval: Some(Interval {
            low: ratio / distance(now / now_low, then_high / then),
            high: ratio * distance(now_high / now, then / then_low),
        }),
        exact: false,
    }
}
