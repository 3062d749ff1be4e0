//! Confidence intervals of medians. An estimate whose interval includes 1 is marked.

use serde::Serialize;

use crate::latency::{error_of_median, median, weighted_median};

/// The confidence of intervals.
const CONFIDENCE: f64 = 0.95;

/// A confidence interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "[f64; 2]")]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl From<Interval> for [f64; 2] {
    fn from(Interval { low, high }: Interval) -> Self {
        [low, high]
    }
}

impl Interval {
    /// Returns the interval of the median of the distribution that independent `values` are drawn
    /// from, whatever that distribution is: between two of the values, counted from both ends. As
    /// many values are below the median as a fair coin shows heads, which gives the probability
    /// that the median is not between them. Returns `None` for fewer than six values, whose
    /// extremes are not far enough apart.
    #[must_use]
    pub fn of_median(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        // The probability of exactly `below` heads, and of at most as many.
        let mut exactly = 0.5f64.powi(i32::try_from(count).ok()?);
        let mut at_most = exactly;
        let mut found = None;
        for below in 0..count / 2 {
            if 1.0 - 2.0 * at_most < CONFIDENCE {
                break;
            }
            found = Some(Self {
                low: values[below],
                high: values[count - 1 - below],
            });
            exactly *= (count - below) as f64 / (below + 1) as f64;
            at_most += exactly;
        }
        found
    }

    /// Returns the interval that contains `value` as well: an estimate that is computed from more than
    /// the values of the interval can be beside it.
    pub(crate) fn with(self, value: f64) -> Self {
        Self {
            low: self.low.min(value),
            high: self.high.max(value),
        }
    }

    /// Returns whether the interval contains a value.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Figures of turns, by round. The turns of a round follow one another in one order, so what disturbs
/// one disturbs the next as well: only rounds are independent.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Vec<Vec<(f64, u64)>>);

impl Rounds {
    /// Begins the next round.
    pub(crate) fn begin(&mut self) {
        self.0.push(Vec::new());
    }

    /// Adds the figure of a turn, with its number of calls, to this round.
    pub(crate) fn push(&mut self, value: f64, calls: u64) {
        if let Some(round) = self.0.last_mut() {
            round.push((value, calls));
        }
    }

    /// Returns the numbers of rounds and of turns that have a figure.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let turns = self.0.iter().map(Vec::len);
        let rounds = turns.clone().filter(|&turns| turns > 0).count();
        (rounds as u32, turns.sum::<usize>() as u32)
    }

    fn medians(&self) -> Vec<f64> {
        self.0.iter().cloned().filter_map(weighted_median).collect()
    }

    /// Returns the median of all turns, each weighted by its number of calls: one that other work
    /// cut short has few.
    pub(crate) fn value(&self) -> Option<f64> {
        weighted_median(self.0.iter().flatten().copied().collect())
    }

    /// Returns the interval of the rounds' medians, extended to an estimate that is not between them.
    pub(crate) fn interval(&self, estimate: Option<f64>) -> Option<Interval> {
        let interval = Interval::of_median(self.medians())?;
        Some(estimate.map_or(interval, |value| interval.with(value)))
    }

    /// Returns the standard error of the median of rounds.
    pub(crate) fn error(&self) -> Option<f64> {
        error_of_median(self.medians())
    }
}

/// Returns the median of ratios of independent turns, with its interval.
pub(crate) fn of_turns(ratios: Vec<f64>) -> (Option<f64>, Option<Interval>) {
    (median(ratios.clone()), Interval::of_median(ratios))
}

/// The verdict on a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Difference {
    /// Less than 1 for certain.
    Less,
    /// More than 1 for certain.
    More,
    /// None that can be told from 1.
    None,
    /// Unknown: too few rounds.
    Unknown,
}

/// The mark in a table of a ratio whose interval includes 1: either can be the greater one. The estimate
/// is shown all the same, as 1 is no better one.
pub(crate) const EITHER: &str = "?";

/// A ratio with its interval, as tables and sentences show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) ratio: f64,
    pub(crate) interval: Option<Interval>,
    /// Whether the ratio was computed and not measured, and needs no interval.
    pub(crate) exact: bool,
}

impl Shown {
    pub(crate) fn difference(&self) -> Difference {
        match (self.interval, self.exact) {
            (Some(interval), _) if interval.contains(1.0) => Difference::None,
            (None, false) => Difference::Unknown,
            _ if self.ratio < 1.0 => Difference::Less,
            _ if self.ratio > 1.0 => Difference::More,
            _ => Difference::None,
        }
    }

    /// Returns the number of decimals: two, or as many as show that what differs from 1 does.
    fn decimals(&self) -> usize {
        let ends = self.interval.map(|Interval { low, high }| [low, high]);
        let is_one = |value: f64, decimals: usize| {
            format!("{value:.decimals$}") == format!("{:.decimals$}", 1.0)
        };
        let hides = |decimals: &usize| {
            let mut values = ends.into_iter().flatten().chain([self.ratio]);
            values.any(|value| is_one(value, *decimals))
        };
        match self.difference() {
            Difference::Less | Difference::More => (2..4).find(|at| !hides(at)).unwrap_or(4),
            Difference::None | Difference::Unknown => 2,
        }
    }

    /// Formats the ratio for a table: `0.57 (0.55-0.60)`, or `0.92? (0.84-1.01)` if the interval
    /// includes 1, or `~0.57` without an interval.
    pub(crate) fn cell(&self) -> String {
        let (ratio, digits) = (self.ratio, self.decimals());
        match (self.interval, self.difference()) {
            (Some(Interval { low, high }), _) if low == 1.0 && high == 1.0 => "1".to_owned(),
            (Some(Interval { low, high }), Difference::None) => {
                format!("{ratio:.2}{EITHER} ({low:.2}-{high:.2})")
            }
            (Some(Interval { low, high }), _) => {
                format!("{ratio:.digits$} ({low:.digits$}-{high:.digits$})")
            }
            (None, Difference::Unknown) => format!("~{ratio:.2}"),
            (None, _) => format!("{ratio:.2}"),
        }
    }

    /// Formats the ratio for a sentence about times: `0.57 times as long (0.55 to 0.60)`.
    pub(crate) fn times_as_long(&self) -> String {
        let ratio = self.ratio;
        match (self.interval, self.difference()) {
            (Some(Interval { low, high }), Difference::None) => {
                format!("{ratio:.2} times as long ({low:.2} to {high:.2}, which includes 1)")
            }
            (Some(Interval { low, high }), _) => {
                let digits = self.decimals();
                format!("{ratio:.digits$} times as long ({low:.digits$} to {high:.digits$})")
            }
            (None, Difference::Unknown) => format!("about {ratio:.2} times as long"),
            (None, _) => format!("{ratio:.2} times as long"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> Option<[f64; 2]> {
        Interval::of_median((1..=count).map(f64::from).collect()).map(Into::into)
    }

    /// The ranks are those of tables of the sign test, for a two-sided level of 5 %.
    #[test]
    fn intervals_are_between_the_ranks_of_the_sign_test() {
        assert_eq!(of(5), None);
        assert_eq!(of(6), Some([1.0, 6.0]));
        assert_eq!(of(8), Some([1.0, 8.0]));
        assert_eq!(of(9), Some([2.0, 8.0]));
        assert_eq!(of(12), Some([3.0, 10.0]));
        assert_eq!(of(20), Some([6.0, 15.0]));
        assert_eq!(of(27), Some([8.0, 20.0]));
        assert!(of(1000).is_some_and(|[low, high]| low > 460.0 && high < 540.0));
    }

    /// Of samples of nine from a skewed distribution, at least 95 of 100 intervals contain its median.
    #[test]
    fn nineteen_of_twenty_intervals_contain_the_median() {
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
            -(1.0 - uniform).ln()
        };
        let samples = 4000;
        let met = (0..samples)
            .filter(|_| {
                let values = (0..9).map(|_| next()).collect();
                Interval::of_median(values).unwrap().contains(2f64.ln())
            })
            .count();
        let share = met as f64 / f64::from(samples);
        assert!((0.95..0.972).contains(&share), "{share}");
    }

    #[test]
    fn turns_of_a_round_are_not_independent() {
        let rounds = |turns| {
            let mut rounds = Rounds::default();
            for round in 0..9 {
                rounds.begin();
                (0..turns).for_each(|_| rounds.push(f64::from(round), 1));
            }
            rounds
        };
        assert!(rounds(1).error().unwrap() > 1.0);
        assert_eq!(rounds(6).error(), rounds(1).error());
        assert_eq!(rounds(6).interval(None), rounds(1).interval(None));
        assert_eq!(rounds(1).interval(Some(8.5)).unwrap().high, 8.5);
        assert_eq!(rounds(6).counts(), (9, 54));
        assert_eq!(rounds(0).counts(), (0, 0));
        assert_eq!(
            (
                rounds(0).value(),
                rounds(0).error(),
                rounds(0).interval(None)
            ),
            (None, None, None)
        );
    }

    #[test]
    fn an_estimate_whose_interval_includes_1_is_marked() {
        let shown = |ratio, interval: Option<(f64, f64)>, exact| Shown {
            ratio,
            interval: interval.map(|(low, high)| Interval { low, high }),
            exact,
        };
        let less = shown(0.57, Some((0.551, 0.6)), false);
        assert_eq!(less.difference(), Difference::Less);
        assert_eq!(less.cell(), "0.57 (0.55-0.60)");
        let noise = shown(0.78, Some((0.6, 1.1)), false);
        assert_eq!(noise.difference(), Difference::None);
        assert_eq!(noise.cell(), "0.78? (0.60-1.10)");
        assert_eq!(
            noise.times_as_long(),
            "0.78 times as long (0.60 to 1.10, which includes 1)"
        );
        // Two decimals would show 1 as an end of an interval that excludes it.
        let close = shown(0.9904, Some((0.9812, 0.9976)), false);
        assert_eq!(close.cell(), "0.990 (0.981-0.998)");
        let closest = shown(1.0004, Some((1.0002, 1.0031)), false);
        assert_eq!(closest.cell(), "1.0004 (1.0002-1.0031)");
        let few = shown(0.78, None, false);
        assert_eq!(
            (few.difference(), &*few.cell()),
            (Difference::Unknown, "~0.78")
        );
        let counted = shown(1.2, None, true);
        assert_eq!(
            (counted.difference(), &*counted.cell()),
            (Difference::More, "1.20")
        );
        assert_eq!(shown(1.0, Some((1.0, 1.0)), false).cell(), "1");
    }
}
