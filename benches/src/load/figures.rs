//! From rounds to the figures that are printed.

use std::time::Duration;

use hdrhistogram::Histogram;
use rpcrdma_setup::Failure;
use serde::Serialize;

use super::op::Op;
use super::processor_time::{ThreadTime, Used};

/// The longest latency that is recorded: a minute, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// The significant digits of latencies: a resolution of 1 %.
const DIGITS: u8 = 2;
/// The share of its time from which on a client is said to be the limit.
const LIMITING: f64 = 0.9;
/// The least processor time of a server for one call, in seconds: one system call takes more.
const LEAST_WORK: f64 = 100e-9;
/// The probability with which a 95 % interval does not contain the median.
const OUTSIDE: f64 = 0.05;

/// A histogram of latencies.
pub(super) struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Self(histogram.expect("the constant bounds are valid: 1 <= 2 * 1 <= LONGEST, digits to 5"))
    }
}

impl Latency {
    pub(super) fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for step in other.0.iter_recorded() {
            let (value, count) = (step.value_iterated_to(), step.count_at_value());
            self.0.saturating_record_n(value, count);
        }
    }

    fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// One round of one operation on one server.
pub(super) struct Round {
    pub(super) calls: u64,
    pub(super) elapsed: Duration,
    pub(super) latency: Latency,
    /// Processor time of the server, if its process is known.
    pub(super) server: Option<Used>,
    /// Time of the client's threads.
    pub(super) client: ThreadTime,
    pub(super) threads: usize,
}

impl Round {
    fn calls_per_second(&self) -> f64 {
        self.calls as f64 / seconds(self.elapsed)
    }

    /// Returns the calls for each second of the server's processor time.
    fn calls_per_server_second(&self) -> Option<f64> {
        Some(self.calls as f64 / seconds(self.server?.time))
    }

    /// Checks that `pid`, whose processor time is in the round, can have answered its calls.
    ///
    /// # Errors
    /// The process used too little processor time to be the server.
    pub(super) fn check_server(&self, pid: u32) -> Result<(), Failure> {
        let Some(Used { time, .. }) = self.server else {
            return Ok(());
        };
        if time.as_secs_f64() >= LEAST_WORK * self.calls as f64 {
            return Ok(());
        }
        Err(Failure::Work(format!(
            "process {pid} used {time:?} of processor time for {} calls: is it the server?",
            self.calls
        )))
    }

    fn client_share(&self, of: Duration) -> f64 {
        of.as_secs_f64() / seconds(self.elapsed) / self.threads as f64
    }
}

/// Returns a time that numbers can be divided by.
fn seconds(time: Duration) -> f64 {
    time.max(Duration::from_nanos(1)).as_secs_f64()
}

/// The figures of one operation on one server: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub target: String,
    /// The operation.
    pub op: Op,
    /// Bytes of file data in each call.
    pub size: u32,
    /// Calls in the rounds that count.
    pub calls: u64,
    /// All calls of the operation, those included that are made before the rounds.
    pub calls_made: u64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Latency of half of the calls, microseconds.
    pub p50_us: f64,
    /// Latency of 99 % of the calls, microseconds.
    pub p99_us: f64,
    /// Processors that the server used. `None`: its process is not known.
    pub server_processors: Option<f64>,
    /// Processor time of the server for each call, microseconds.
    pub server_us: Option<f64>,
    /// Calls for each second of the server's processor time.
    pub calls_per_server_s: Option<f64>,
    /// Whether a thread of the server ended in a round, so that its processor time was counted in
    /// ticks of 10 ms.
    pub server_in_ticks: bool,
    /// Share of the time in which the client's threads were on a processor.
    pub client_share: f64,
    /// Processor time of the client's threads for each call, microseconds.
    pub client_us: f64,
    /// Whether the client's threads were on a processor or waited for one nearly all the time, so
    /// that the server could have done more.
    pub client_limited: bool,
    /// `calls_per_server_s` over that of the first server: the median of the ratios of the rounds.
    pub ratio: Option<f64>,
    /// The 95 % interval of `ratio`. There is none of less than six rounds.
    pub ratio_interval: Option<(f64, f64)>,
    /// `calls_per_s` over that of the first server.
    pub rate_ratio: f64,
}

/// Computes a row. `first` are the rounds of the first server.
pub(super) fn row(target: &str, op: Op, calls_made: u64, rounds: &[Round], first: &[Round]) -> Row {
    let over_rounds = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let server = |figure: &dyn Fn(f64, &Round) -> f64| {
        let figures = rounds.iter().map(|round| {
            let used = seconds(round.server?.time);
            Some(figure(used, round))
        });
        figures.collect::<Option<Vec<f64>>>().map(median)
    };
    let pairs = || rounds.iter().zip(first);
    let ratios = pairs().map(|(own, other)| {
        Some(own.calls_per_server_second()? / other.calls_per_server_second()?)
    });
    let ratios: Option<Vec<f64>> = ratios.collect();
    let rates = pairs().map(|(own, other)| own.calls_per_second() / other.calls_per_second());
    let busy = over_rounds(&|round| {
        let ThreadTime { running, waiting } = round.client;
        round.client_share(running + waiting)
    });
    Row {
        target: target.to_owned(),
        op,
        size: op.size(),
        calls: rounds.iter().map(|round| round.calls).sum(),
        calls_made,
        calls_per_s: over_rounds(&Round::calls_per_second),
        p50_us: over_rounds(&|round| round.latency.quantile_us(0.5)),
        p99_us: over_rounds(&|round| round.latency.quantile_us(0.99)),
        server_processors: server(&|used, round| used / seconds(round.elapsed)),
        server_us: server(&|used, round| used * 1e6 / round.calls as f64),
        calls_per_server_s: server(&|used, round| round.calls as f64 / used),
        server_in_ticks: rounds
            .iter()
            .any(|round| round.server.is_some_and(|used| used.in_ticks)),
        client_share: over_rounds(&|round| round.client_share(round.client.running)),
        client_us: over_rounds(&|round| {
            round.client.running.as_secs_f64() * 1e6 / round.calls as f64
        }),
        client_limited: busy >= LIMITING,
        ratio: ratios.clone().map(median),
        ratio_interval: ratios.and_then(interval),
        rate_ratio: median(rates.collect()),
    }
}

/// Returns the median. There is at least one value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => f64::NAN,
    }
}

/// Returns the 95 % interval of the median: from the value at a place in their order to that at the
/// same place from the end. It supposes nothing about the distribution: half of all values are
/// below the median, so the number of those below is binomial. `None`: there are too few values.
fn interval(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // The probabilities that exactly, and at most, `left_out` values are below the median.
    let mut exactly = 0.5f64.powi(i32::try_from(count).ok()?);
    let mut at_most = exactly;
    let mut left_out = 0;
    while left_out < count && 2.0 * at_most <= OUTSIDE {
        left_out += 1;
        exactly *= (count + 1 - left_out) as f64 / left_out as f64;
        at_most += exactly;
    }
    let low = left_out.checked_sub(1)?;
    Some((*values.get(low)?, *values.get(count - 1 - low)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(calls: u64, server_ms: Option<u64>, running_ms: u64) -> Round {
        let mut latency = Latency::default();
        for us in 1..=100 {
            latency.record(Duration::from_micros(us));
        }
        Round {
            calls,
            elapsed: Duration::from_secs(1),
            latency,
            server: server_ms.map(|ms| Used {
                time: Duration::from_millis(ms),
                in_ticks: false,
            }),
            client: ThreadTime {
                running: Duration::from_millis(running_ms),
                waiting: Duration::ZERO,
            },
            threads: 1,
        }
    }

    #[test]
    fn ratios_are_of_rounds_of_the_same_time() {
        // The second round is half as fast for both, so its ratio is that of the others.
        let ours = [(4000, 500), (2000, 500), (4000, 500)];
        let theirs = [(1000, 250), (500, 250), (1000, 250)];
        let rounds = |of: [(u64, u64); 3]| of.map(|(calls, ms)| round(calls, Some(ms), 100));
        let row = row("ours", Op::Read, 11, &rounds(ours), &rounds(theirs));
        assert_eq!((row.ratio, row.rate_ratio), (Some(2.0), 4.0));
        assert_eq!(
            (row.calls, row.calls_made, row.calls_per_s),
            (10_000, 11, 4000.0)
        );
        assert_eq!(row.server_us, Some(125.0));
        assert_eq!(row.calls_per_server_s, Some(8000.0));
        assert_eq!(row.server_processors, Some(0.5));
        assert_eq!((row.client_share, row.client_us), (0.1, 25.0));
        assert!((49.0..=51.0).contains(&row.p50_us), "{}", row.p50_us);
        assert!((98.0..=100.0).contains(&row.p99_us), "{}", row.p99_us);
    }

    #[test]
    fn without_a_process_there_is_no_ratio() {
        let (known, unknown) = ([round(1, Some(1), 1)], [round(1, None, 1)]);
        assert_eq!(row("a", Op::Read, 0, &known, &unknown).ratio, None);
        let row = row("a", Op::Read, 0, &unknown, &known);
        assert_eq!((row.ratio, row.server_us), (None, None));
    }

    #[test]
    fn rounds_in_ticks_are_marked() {
        let mut rounds = [round(1, Some(1), 1), round(1, Some(1), 1)];
        assert!(!row("a", Op::Read, 0, &rounds, &[]).server_in_ticks);
        rounds[1].server.as_mut().unwrap().in_ticks = true;
        assert!(row("a", Op::Read, 0, &rounds, &[]).server_in_ticks);
    }

    #[test]
    fn a_process_that_did_next_to_nothing_is_not_the_server() {
        let worked = |calls, server_ms| round(calls, server_ms, 1).check_server(7);
        worked(10_000, Some(1)).unwrap();
        worked(10_000, None).unwrap();
        for (calls, server_ms) in [(10_001, 1), (1, 0)] {
            let failure = worked(calls, Some(server_ms)).unwrap_err().to_string();
            assert!(failure.contains("process 7"), "{failure}");
        }
    }

    #[test]
    fn a_client_that_never_sleeps_is_the_limit() {
        let limited = |running| {
            let rounds = [round(1, None, running)];
            row("a", Op::Write, 0, &rounds, &rounds).client_limited
        };
        assert!(limited(950));
        assert!(!limited(800));
        let mut waits = round(1, None, 500);
        waits.client.waiting = Duration::from_millis(450);
        assert!(row("a", Op::Write, 0, &[waits], &[]).client_limited);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    /// The places in a table of the sign test's confidence intervals.
    #[test]
    fn intervals_leave_out_as_many_as_they_may() {
        let between = |count: u32| interval((1..=count).map(f64::from).collect());
        assert_eq!(between(5), None);
        assert_eq!(between(6), Some((1.0, 6.0)));
        assert_eq!(between(8), Some((1.0, 8.0)));
        assert_eq!(between(9), Some((2.0, 8.0)));
        assert_eq!(between(15), Some((4.0, 12.0)));
        assert_eq!(between(25), Some((8.0, 18.0)));
    }
}
