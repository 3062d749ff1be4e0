//! Statistics of repeated measurements.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// The maximum recorded time: a minute, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// The number of significant digits: a resolution of 0.1 %.
const DIGITS: u8 = 3;

/// A histogram of durations, with their exact extremes and mean.
#[derive(Clone, Debug)]
pub struct Latency {
    nanos: Histogram<u64>,
    /// The least and the greatest duration, nanoseconds.
    least: u64,
    most: u64,
    /// The sum of all durations, nanoseconds.
    sum: u128,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// Returns an empty histogram.
    pub fn new() -> Self {
        let nanos = Histogram::new_with_bounds(1, LONGEST, DIGITS)
            .expect("the constant bounds are valid: 1 <= 2 * 1 <= LONGEST, digits 0 to 5");
        Self {
            nanos,
            least: u64::MAX,
            most: 0,
            sum: 0,
        }
    }

    /// Records one duration.
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.saturating_record(nanos);
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
        self.sum += u128::from(nanos);
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so no value can be out of range.
        for step in other.nanos.iter_recorded() {
            self.nanos
                .saturating_record_n(step.value_iterated_to(), step.count_at_value());
        }
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
        self.sum += other.sum;
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// Returns the duration in microseconds that `percent` of all durations do not exceed, or
    /// `None` for an empty histogram.
    pub fn percentile_us(&self, percent: f64) -> Option<f64> {
        // The histogram knows the upper end of a small range.
        let nanos = || self.nanos.value_at_percentile(percent);
        (self.count() > 0).then(|| nanos().clamp(self.least, self.most) as f64 / 1e3)
    }

    /// Returns the median in microseconds.
    pub fn p50_us(&self) -> Option<f64> {
        self.percentile_us(50.0)
    }

    /// Returns the 99th percentile in microseconds.
    pub fn p99_us(&self) -> Option<f64> {
        self.percentile_us(99.0)
    }

    /// Returns the percentile 99.9 in microseconds.
    pub fn p999_us(&self) -> Option<f64> {
        self.percentile_us(99.9)
    }

    /// Returns the histogram of nanoseconds in the compressed encoding of HdrHistogram (V2 with
    /// DEFLATE, in base64), which its programs and libraries read; `None` if it is empty.
    pub fn encoded(&self) -> Option<String> {
        if self.count() == 0 {
            return None;
        }
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.nanos, &mut bytes);
        written.ok().map(|_| STANDARD.encode(bytes))
    }

    /// Returns the minimum and the maximum in microseconds.
    pub fn extremes_us(&self) -> Option<(f64, f64)> {
        (self.count() > 0).then(|| (self.least as f64 / 1e3, self.most as f64 / 1e3))
    }

    /// Returns the mean in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64 / 1e3
    }

    /// Returns the counts in buckets that double in width, as (upper bound in microseconds, count),
    /// from the first to the last bucket that is not empty.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let mut out: Vec<(f64, u64)> = self
            .nanos
            .iter_log(1_000, 2.0)
            .map(|step| {
                let upper = (step.value_iterated_to() + 1) as f64 / 1e3;
                (upper, step.count_since_last_iteration())
            })
            .collect();
        let first = out.iter().position(|&(_, count)| count > 0).unwrap_or(0);
        out.drain(..first);
        out
    }
}

/// Returns, for each `n` of `one_in`, the latency in microseconds that one call in `n` exceeds (for 1, the
/// minimum). `encoded` is the text from [`Latency::encoded`]. Omits each `n` for which fewer than `beyond`
/// calls exceed it. Empty if `encoded` cannot be decoded.
pub(crate) fn exceeded_by_one_in(encoded: &str, one_in: &[u32], beyond: u64) -> Vec<(f64, f64)> {
    let read = |bytes: Vec<u8>| Deserializer::new().deserialize(&mut &bytes[..]).ok();
    let Some(nanos): Option<Histogram<u64>> = STANDARD.decode(encoded).ok().and_then(read) else {
        return Vec::new();
    };
    let known = one_in
        .iter()
        .filter(|&&n| nanos.len() >= beyond.saturating_mul(n.into()));
    known
        .map(|&n| {
            let n = f64::from(n);
            let nanos = nanos.value_at_quantile(1.0 - 1.0 / n);
            (n, nanos as f64 / 1e3)
        })
        .collect()
}

/// Returns the median: the middle value, or the mean of the two middle ones.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    })
}

/// Returns the interquartile range divided by the median, or `None` for fewer than four values.
pub(crate) fn spread(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    if quarter == 0 {
        return None;
    }
    let range = values[values.len() - 1 - quarter] - values[quarter];
    median(values)
        .filter(|&median| median > 0.0)
        .map(|median| range / median)
}

/// Returns the weighted median: half of the total weight is on values that are not greater.
pub(crate) fn weighted_median(mut values: Vec<(f64, u64)>) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values
        .iter()
        .map(|&(_, weight)| weight)
        .sum::<u64>()
        .div_ceil(2);
    let mut sum = 0;
    values.into_iter().find_map(|(value, weight)| {
        sum += weight;
        (weight > 0 && sum >= half).then_some(value)
    })
}

/// Returns the standard error of the median. For `n` values it is about 0.93 times the
/// interquartile range, divided by the square root of `n` (as for a normal distribution). Returns
/// `None` for fewer than four values.
pub(crate) fn error_of_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    if quarter == 0 {
        return None;
    }
    let width = values[values.len() - 1 - quarter] - values[quarter];
    Some(0.93 * width / (values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(micros: impl Iterator<Item = u64>) -> Latency {
        let mut latency = Latency::new();
        micros.for_each(|us| latency.record(Duration::from_micros(us)));
        latency
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let latency = filled(1..=1000);
        let near = |got: Option<f64>, want: f64| (got.unwrap() - want).abs() <= want / 500.0;
        assert!(near(latency.p50_us(), 500.0));
        assert!(near(latency.p99_us(), 990.0));
        assert_eq!(latency.count(), 1000);
        assert_eq!(Latency::new().p50_us(), None);
    }

    #[test]
    fn the_encoded_histogram_is_read_with_every_value() {
        let latency = filled((1..=1000).chain([40_000]));
        let bytes = STANDARD.decode(latency.encoded().unwrap()).unwrap();
        let mut reader = Deserializer::new();
        let read: Histogram<u64> = reader.deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(read, latency.nanos);
        assert_eq!(read.len(), 1001);
        let p999 = read.value_at_percentile(99.9) as f64 / 1e3;
        assert!((p999 - latency.p999_us().unwrap()).abs() < 1.0, "{p999}");
        assert_eq!(Latency::new().encoded(), None);
    }

    #[test]
    fn the_tail_is_read_as_far_as_there_are_durations_enough() {
        let encoded = filled(1..=1000).encoded().unwrap();
        let tail = |beyond| exceeded_by_one_in(&encoded, &[1, 2, 10, 100, 1000], beyond);
        let rounded: Vec<_> = tail(10)
            .into_iter()
            .map(|(n, us)| (n, us.round()))
            .collect();
        // The resolution is one of a thousand.
        assert_eq!(
            rounded,
            [(1.0, 1.0), (2.0, 500.0), (10.0, 900.0), (100.0, 990.0)]
        );
        assert_eq!(tail(1).len(), 5);
        assert!(exceeded_by_one_in("no histogram", &[2], 1).is_empty());
        assert!(exceeded_by_one_in("AAAA", &[2], 1).is_empty());
    }

    #[test]
    fn merging_keeps_every_value() {
        let mut low = filled(1..=10);
        low.merge(&filled(1000..=1010));
        assert_eq!(low.count(), 21);
        assert_eq!(low.extremes_us(), Some((1.0, 1010.0)));
        low.merge(&Latency::new());
        assert_eq!(low.mean_us(), f64::from(55 + 11 * 1005) / 21.0);
    }

    /// Regression test: with one measurement, minimum, median and mean differed.
    #[test]
    fn a_single_value_is_all_that_is_said_of_it() {
        let mut latency = Latency::new();
        latency.record(Duration::from_nanos(280_337));
        assert_eq!(latency.extremes_us(), Some((280.337, 280.337)));
        assert_eq!(latency.mean_us(), 280.337);
        assert_eq!(
            (latency.p50_us(), latency.p99_us()),
            (Some(280.337), Some(280.337))
        );
    }

    #[test]
    fn buckets_hold_each_value_once() {
        let latency = filled([3, 3, 5, 900].into_iter());
        let buckets = latency.buckets();
        assert_eq!(buckets.iter().map(|&(_, count)| count).sum::<u64>(), 4);
        assert_eq!(buckets.first().unwrap().1, 2);
        assert!(buckets.first().unwrap().0 <= 4.1);
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn spread_is_that_of_the_middle_half() {
        let quiet = vec![10.0, 10.0, 10.1, 9.9, 10.0, 900.0, 10.0, 0.1, 10.0];
        assert!(
            spread(quiet).unwrap() < 0.02,
            "two wild rounds are no matter"
        );
        let busy = (1..=9).map(f64::from).collect();
        assert_eq!(spread(busy), Some(4.0 / 5.0));
        assert_eq!(spread(vec![1.0, 2.0, 3.0]), None);
    }

    #[test]
    fn a_median_of_more_values_is_more_exact() {
        let error = |n: u64| error_of_median((0..n).map(|n| (n % 4) as f64).collect());
        assert_eq!(error(3), None);
        assert!(error(16).unwrap() > 0.2 && error(16) > error(64));
        assert_eq!(error_of_median(vec![2.0; 9]), Some(0.0));
    }

    #[test]
    fn a_value_with_more_weight_counts_more() {
        let values = vec![(9.0, 1), (1.0, 10), (8.0, 2), (7.0, 3)];
        assert_eq!(weighted_median(values), Some(1.0));
        assert_eq!(
            weighted_median(vec![(2.0, 1), (1.0, 1), (3.0, 1)]),
            Some(2.0)
        );
        assert_eq!(weighted_median(vec![(1.0, 0)]), None);
    }
}
