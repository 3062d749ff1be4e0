//! Measures round trips by time alone: the additional latency of an operation over a longer link,
//! divided by the additional round-trip time.
//!
//! The latency that is compared is that of the fastest tenth of calls, which are the least
//! disturbed: each call waits for the link as often as the protocol requires, while other work on
//! the machine, or its emulation, makes some calls longer and none shorter. If half of the calls
//! are disturbed, medians measure the disturbance and not the link.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::Failure;

use crate::benchmark_target::BenchTarget;
use crate::interval;
use crate::latency::Latency;
use crate::measurement::{baseline_of, variants};
use crate::network::Network;
use crate::rows::{Mode, OverDelay, Row};
use crate::targets::{self, Setting};
use crate::variant::Variant;

/// The delay of the shorter link in each direction, if none was given.
pub(crate) const DELAY: Duration = Duration::from_millis(1);
/// The number of calls per operation and link. The link takes most of their time.
const COUNT: u32 = 21;
/// The number of calls where neither the user gave one nor the network makes the delay: in fifteen turns,
/// a disturbed one or two change neither ratio nor interval.
const USUAL_COUNT: u32 = 45;
/// The number of calls over one link before the other has its turn.
pub(crate) const TURN: u32 = 3;
/// The number of calls in a turn if a command changes the network's delay, which takes longer than
/// some calls and disturbs those right after it.
const LONG_TURN: u32 = 7;
/// The percentile of latency that is compared.
const UNDISTURBED: f64 = 10.0;
/// The ratio of the longer delay to the shorter one.
const LONGER: u32 = 2;
/// The ratio if the network makes the delay. Such networks are often on emulated or busy machines,
/// whose disturbances last as long as the delay of a short link. And after waiting 10 ms, such a
/// machine is slower by a millisecond or two than after 1 ms, because other work has replaced its
/// caches.
const LONGER_NETWORK: u32 = 30;
/// The least difference of the two delays in each direction. A smaller one vanishes in the noise.
const LEAST: Duration = Duration::from_millis(1);
/// The standard error, in round trips, above which no figure is given: it would tell one round trip
/// from two by chance.
pub(crate) const INEXACT: f64 = 0.25;
/// The standard error, in round trips, at which measuring stops. A busy machine needs more calls to
/// reach it.
const ERROR: f64 = 0.03;
/// The maximum number of calls per operation and link.
const MAX_COUNT: u32 = 210;
/// The maximum number of calls if the network makes the delay: each call lasts longer there, and is
/// worth more.
const MAX_COUNT_NETWORK: u32 = 105;

/// Returns the least time that one operation of one target takes over both links, if it takes two
/// round trips.
pub(crate) fn time(network: Option<&Network>, delay: Duration, asked: Option<u32>) -> Duration {
    let calls = calls_in_turn(network, asked);
    let (fewest, _) = turns(asked, calls);
    let delays: Duration = delays(network, delay).iter().sum();
    // The first call of a turn is not timed.
    delays * 4 * fewest * (calls + 1)
}

/// Returns the number of calls in a turn. Turns are short if the user gave a number of calls, which
/// is exceeded by less than a turn.
fn calls_in_turn(network: Option<&Network>, asked: Option<u32>) -> u32 {
    match (network, asked) {
        (Some(_), None) => LONG_TURN,
        _ => TURN,
    }
}

/// A short link and a long one. Either this program makes them with device middleware, each with
/// its own targets, or the network is each of them in turn, with the same targets.
struct Links<'a> {
    /// The delays in each direction.
    delays: [Duration; 2],
    network: Option<&'a Network>,
    benches: Vec<Vec<BenchTarget>>,
    /// The number of calls in a turn.
    calls: u32,
}

impl<'a> Links<'a> {
    fn new(setting: &Setting<'a>, delay: Duration) -> Result<Self, Failure> {
        let delays = delays(setting.network, delay);
        let benches = match setting.network {
            Some(_) => vec![targets::start_targets(setting)?],
            None => delays
                .map(|delay| targets::start_targets(&Setting { delay, ..*setting }))
                .into_iter()
                .collect::<Result<_, _>>()?,
        };
        Ok(Self {
            delays,
            network: setting.network,
            benches,
            calls: calls_in_turn(setting.network, setting.options.count),
        })
    }

    /// Returns the targets over the short link (0) or the long one (1).
    fn over(&mut self, link: usize) -> Result<&mut [BenchTarget], Failure> {
        match self.network {
            Some(network) => {
                network.set(self.delays[link])?;
                Ok(&mut self.benches[0])
            }
            None => Ok(&mut self.benches[link]),
        }
    }
}

/// Returns the delays in each direction of the two links that are measured for a link of `delay`.
pub(crate) fn delays(network: Option<&Network>, delay: Duration) -> [Duration; 2] {
    let longer = match network {
        Some(_) => LONGER_NETWORK,
        None => LONGER,
    };
    let more = delay.saturating_mul(longer - 1).max(LEAST);
    [delay, delay.saturating_add(more)]
}

/// Returns a remark if round trips of some rows were measured, but not exactly enough to be shown.
pub(crate) fn remark(rows: &[Row]) -> Option<String> {
    let is_inexact = |row: &Row| row.latency_over_delay.is_some() && row.round_trips.is_none();
    rows.iter()
        .any(is_inexact)
        .then(|| format!("Round trips are `-` where their standard error exceeds {INEXACT}."))
}

/// Measures `ops` over a link of `delay` and a longer one, and stores the slope in those of `rows`
/// that have the setting's mode, unless it is too inexact, and its standard error.
///
/// # Errors
/// An operation failed.
pub(crate) fn measure(
    setting: &Setting<'_>,
    delay: Duration,
    ops: &[Arc<dyn Workload>],
    rows: &mut [Row],
) -> Result<(), Failure> {
    let mut links = Links::new(setting, delay)?;
    let benches = &links.benches[0];
    let variants: Vec<&str> = benches.iter().map(|bench| bench.variant.name()).collect();
    let baseline = baseline_of(self::variants(benches)).map(Variant::name);
    let baseline = variants.iter().position(|&name| Some(name) == baseline);
    let asked = setting.options.count;
    let calls = links.calls;
    let (fewest, most) = turns(asked, calls);
    let delays = links.delays;
    let longer = delays[1].saturating_sub(delays[0]);
    for op in ops.iter().map(|op| &**op) {
        let none = || [Latency::new(), Latency::new()];
        let mut latencies: Vec<[Latency; 2]> = variants.iter().map(|_| none()).collect();
        // The medians of turns over both links.
        let mut medians: Vec<[Vec<f64>; 2]> = vec![Default::default(); variants.len()];
        // The links take turns, so that a disturbance affects both.
        let exact = |latencies: &[[Latency; 2]]| {
            let errors = latencies.iter().map(|both| error(both, longer));
            errors.fold(0.0, f64::max) < ERROR
        };
        for turns in 0..most {
            if turns >= fewest && exact(&latencies) {
                break;
            }
            for link in [0, 1] {
                let tallies = latencies.iter_mut().zip(&mut medians);
                for (bench, (latencies, medians)) in links.over(link)?.iter_mut().zip(tallies) {
                    let mut times = Latency::new();
                    turn(bench, op, calls, setting.mode, &mut times)?;
                    medians[link].push(times.p50_us().unwrap_or(f64::NAN));
                    latencies[link].merge(&times);
                    let least = latencies[link].extremes_us().map(|it| it.0);
                    if let Some((network, least)) = setting.network.zip(least) {
                        network.check(op, least, delays[link])?;
                    }
                }
            }
        }
        let ratios = |index: usize, link: usize| {
            let against = &medians[baseline?][link];
            let own = medians[index][link].iter();
            Some(own.zip(against).map(|(own, other)| own / other).collect())
        };
        for (index, (&variant, both)) in variants.iter().zip(latencies).enumerate() {
            let (round_trips, round_trips_error) = found(&both, longer);
            let [short, long] = both;
            let delays = delays.map(|delay| delay.as_secs_f64() * 1e6);
            let points = delays.into_iter().zip([short.p50_us(), long.p50_us()]);
            let over_delay: Vec<OverDelay> = points
                .enumerate()
                .filter_map(|(link, (delay_us, p50))| {
                    let (baseline_ratio, baseline_ratio_interval) =
                        interval::of_turns(ratios(index, link).unwrap_or_default());
                    p50.map(|p50_us| OverDelay {
                        delay_us,
                        p50_us,
                        baseline_ratio,
                        baseline_ratio_interval,
                    })
                })
                .collect();
            let size = op.size().map(u64::from);
            let measured = (op.name(), size, variant, setting.mode);
            let of_op = rows
                .iter_mut()
                .filter(|row| (row.op, row.size, row.conveyance, row.mode) == measured);
            for row in of_op {
                row.round_trips = round_trips;
                row.round_trips_error = round_trips_error;
                let own = row.p50_us.map(|p50_us| OverDelay {
                    delay_us: row.delay_us,
                    p50_us,
                    baseline_ratio: row.baseline_ratio,
                    baseline_ratio_interval: row.baseline_ratio_interval,
                });
                // Skipped if it is one of the two delays, which were measured with more calls.
                let other = own.filter(|own| !delays.contains(&own.delay_us));
                row.latency_over_delay =
                    Some(other.into_iter().chain(over_delay.clone()).collect());
            }
        }
    }
    Ok(())
}

/// Returns the minimum and maximum number of turns of `calls` calls. A number of calls that the
/// user gave is rounded up to whole turns, and is [`COUNT`] at most.
pub(crate) fn turns(asked: Option<u32>, calls: u32) -> (u32, u32) {
    match asked {
        Some(count) => {
            let turns = count.min(COUNT).div_ceil(calls);
            (turns, turns)
        }
        None if calls == LONG_TURN => (COUNT.div_ceil(calls), MAX_COUNT_NETWORK.div_ceil(calls)),
        None => (USUAL_COUNT.div_ceil(calls), MAX_COUNT.div_ceil(calls)),
    }
}

/// Makes a few calls over one link.
fn turn(
    bench: &mut BenchTarget,
    op: &dyn Workload,
    calls: u32,
    mode: Mode,
    latency: &mut Latency,
) -> Result<(), Failure> {
    if mode.is_busy() {
        bench.resume()?;
    }
    bench.timed(op, calls, latency)?;
    if mode.is_busy() {
        bench.pause()?;
    }
    Ok(())
}

/// Returns the round trips of an operation and their standard error, from its latencies over two links, of which the
/// second one is longer by `longer` in each direction.
pub(crate) fn found(both: &[Latency; 2], longer: Duration) -> (Option<f64>, Option<f64>) {
    let [near, far] = both
        .each_ref()
        .map(|latency| latency.percentile_us(UNDISTURBED));
    let slope = near.zip(far).map(|(near, far)| slope(near, far, longer));
    known(slope, error(both, longer))
}

/// Returns whether an error of round trips is so small that measuring stops.
pub(crate) fn is_exact(both: &[Latency; 2], longer: Duration) -> bool {
    error(both, longer) < ERROR
}

/// Returns the number of round trips. The delay is longer by `longer` in each direction, so a round
/// trip is longer by twice that.
fn slope(near_us: f64, far_us: f64, longer: Duration) -> f64 {
    (far_us - near_us) / (2.0 * longer.as_secs_f64() * 1e6)
}

/// Returns the slope, unless it is too inexact to be shown, and its standard error, which says how
/// inexact. The error is infinite if there were too few calls to estimate it.
fn known(slope: Option<f64>, error: f64) -> (Option<f64>, Option<f64>) {
    let exact = slope.filter(|_| error <= INEXACT);
    (exact, Some(error).filter(|error| error.is_finite()))
}

/// The minimum number of the fastest calls whose spread is the measure of an error, if there are so many. The spread
/// of two is by chance a tenth of what it usually is, in one of ten measurements.
const SPREAD: f64 = 4.0;

/// Returns the standard error of the slope between the fastest tenths over the two links. That of
/// the quantile `q` of `n` values is the square root of `q (1 - q) / n`, divided by the density
/// there. The fastest fifth of the values, which are `m` and at least [`SPREAD`], has the density
/// `(m - 1) / n`, divided by its width. One value alone has no width.
fn error([near, far]: &[Latency; 2], longer: Duration) -> f64 {
    let q = UNDISTURBED / 100.0;
    let of_quantile = |latency: &Latency| {
        let count = latency.count() as f64;
        let fastest = (2.0 * q * count).ceil().max(SPREAD.min(count));
        // The half is rounded up to the last one of these.
        let last = latency.percentile_us(100.0 * (fastest - 0.5) / count);
        let ends = last.zip(latency.extremes_us()).filter(|_| fastest >= 2.0);
        ends.map_or(f64::INFINITY, |(upper, (least, _))| {
            (q * (1.0 - q) / count).sqrt() * (upper - least) * count / (fastest - 1.0)
        })
    };
    of_quantile(near).hypot(of_quantile(far)) / (2.0 * longer.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::sample;

    #[test]
    fn more_calls_make_a_disturbed_figure_more_exact() {
        let delay = Duration::from_millis(1);
        let times = |noise: u64, count: u64| {
            let mut latency = Latency::new();
            (0..count).for_each(|n| latency.record(Duration::from_micros(2000 + noise * (n % 7))));
            latency
        };
        let of = |noise, count| error(&[times(noise, count), times(noise, count)], delay);
        assert!(of(10, 21) < ERROR, "a quiet machine");
        assert!(of(200, 21) > ERROR, "a busy one");
        assert!(of(200, 21) > of(200, 210) && of(200, 210) < ERROR);
        assert!(error(&[Latency::new(), Latency::new()], delay).is_infinite());
        assert!(of(10, 1).is_infinite(), "one call has no spread");
        assert!(
            of(7000, 3) > INEXACT,
            "few calls that differ by more than a round trip"
        );
    }

    #[test]
    fn links_differ_by_more_than_the_noise() {
        for delay in [Duration::from_nanos(250), Duration::from_micros(10)] {
            let [short, long] = delays(None, delay);
            assert!(
                short == delay && long - short >= LEAST,
                "{short:?} {long:?}"
            );
        }
        assert_eq!(delays(None, DELAY), [DELAY, 2 * DELAY]);
    }

    /// Regression test: of nine calls, the two fastest alone said how exact the fastest is. Where these happened to be
    /// equal, the error was 0.
    #[test]
    fn two_equal_calls_do_not_make_a_figure_exact() {
        let delay = Duration::from_millis(1);
        let mut latency = Latency::new();
        for more in [0, 0, 60, 150, 240, 400, 500, 900, 2000] {
            latency.record(Duration::from_micros(2000 + more));
        }
        let found = error(&[latency.clone(), latency], delay);
        // The fourth is 150 µs behind the first, so that three of nine calls are within that.
        let wanted = 0.1 * 150.0 * 3.0 * std::f64::consts::SQRT_2 / 2000.0;
        assert!((found / wanted - 1.0).abs() < 0.02, "{found} {wanted}");
        assert!(found > ERROR);
    }

    #[test]
    fn round_trips_that_are_too_inexact_are_remarked_on() {
        let mut rows = [sample()];
        assert_eq!(remark(&rows), None);
        rows[0].round_trips = None;
        assert!(remark(&rows).unwrap().contains("exceeds 0.25"));
        rows[0].latency_over_delay = None;
        assert_eq!(remark(&rows), None, "not measured");
    }

    #[test]
    fn calls_that_are_disturbed_do_not_count() {
        let mut latency = Latency::new();
        (0..60).for_each(|n| latency.record(Duration::from_micros(9000 + 100 * n)));
        (0..40).for_each(|n| latency.record(Duration::from_micros(2000 + n)));
        let fast = latency.percentile_us(UNDISTURBED).unwrap();
        assert!((2000.0..2020.0).contains(&fast), "{fast}");
    }

    #[test]
    fn long_turns_are_fewer_than_short_ones() {
        assert_eq!(turns(None, TURN), (15, 70));
        assert_eq!(turns(None, LONG_TURN), (3, 15));
        assert_eq!(turns(Some(5), TURN), (2, 2));
        assert_eq!(turns(Some(5000), TURN), (7, 7));
    }

    #[test]
    fn the_error_of_a_slope_is_known_also_if_the_slope_is_withheld() {
        assert_eq!(known(Some(2.1), 0.02), (Some(2.1), Some(0.02)));
        assert_eq!(known(Some(2.9), 0.4), (None, Some(0.4)));
        assert_eq!(known(Some(2.9), f64::INFINITY), (None, None));
    }

    #[test]
    fn two_round_trips_take_four_times_the_added_delay() {
        let ms = Duration::from_millis;
        // 2 round trips and 150 µs of processing, over 1 ms and over 2 ms in each direction.
        assert_eq!(slope(4150.0, 8150.0, ms(1)), 2.0);
        assert_eq!(slope(2050.0, 4050.0, ms(1)), 1.0);
    }
}
