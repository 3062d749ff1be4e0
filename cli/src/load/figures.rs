//! From rounds to the figures that are printed.

use std::time::Duration;

use rpcrdma_compare::{Interval, Latency};
use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::Failure;
use serde::Serialize;

use super::processor_time::{ThreadTime, Used};

/// The share of its time from which on a client is said to be the limit.
const LIMITING: f64 = 0.9;
/// The least processor time of a server for one call, in seconds: one system call takes more.
const LEAST_WORK: f64 = 100e-9;

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
pub(super) struct Row {
    /// The server.
    pub(super) target: String,
    /// The name of the operation.
    pub(super) op: &'static str,
    /// Bytes of data that it moves.
    pub(super) size: Option<u32>,
    /// Calls in the rounds that count.
    pub(super) calls: u64,
    /// All calls of the operation, those included that are made before the rounds.
    pub(super) calls_made: u64,
    /// Calls per second.
    pub(super) calls_per_s: f64,
    /// Latency of half of the calls, microseconds.
    pub(super) p50_us: f64,
    /// Latency of 99 % of the calls, microseconds.
    pub(super) p99_us: f64,
    /// Processors that the server used. `None`: its process is not known.
    pub(super) server_processors: Option<f64>,
    /// Processor time of the server for each call, microseconds.
    pub(super) server_us: Option<f64>,
    /// Calls for each second of the server's processor time.
    pub(super) calls_per_server_s: Option<f64>,
    /// Whether a thread of the server ended in a round, so that its processor time was counted in
    /// ticks of 10 ms.
    pub(super) server_in_ticks: bool,
    /// Share of the time in which the client's threads were on a processor.
    pub(super) client_share: f64,
    /// Processor time of the client's threads for each call, microseconds.
    pub(super) client_us: f64,
    /// Whether the client's threads were on a processor or waited for one nearly all the time, so
    /// that the server could have done more.
    pub(super) client_limited: bool,
    /// `calls_per_server_s` over that of the first server: the median of the ratios of the rounds.
    pub(super) ratio: Option<f64>,
    /// The 95 % interval of `ratio`. There is none of less than six rounds.
    pub(super) ratio_interval: Option<Interval>,
    /// `calls_per_s` over that of the first server.
    pub(super) rate_ratio: f64,
}

/// Computes a row. `first` are the rounds of the first server.
pub(super) fn row(
    target: &str,
    op: &dyn Workload,
    calls_made: u64,
    rounds: &[Round],
    first: &[Round],
) -> Row {
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
        op: op.name(),
        size: op.size(),
        calls: rounds.iter().map(|round| round.calls).sum(),
        calls_made,
        calls_per_s: over_rounds(&Round::calls_per_second),
        p50_us: over_rounds(&|round| round.latency.p50_us().unwrap_or(f64::NAN)),
        p99_us: over_rounds(&|round| round.latency.p99_us().unwrap_or(f64::NAN)),
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
        ratio_interval: ratios.and_then(Interval::of_median),
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

#[cfg(test)]
mod tests {
    use rpcrdma_programs::workload::Op;

    use super::*;

    fn round(calls: u64, server_ms: Option<u64>, running_ms: u64) -> Round {
        let mut latency = Latency::new();
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
        let row = row("ours", &Op::Read(1), 11, &rounds(ours), &rounds(theirs));
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
        assert_eq!(row("a", &Op::Read(1), 0, &known, &unknown).ratio, None);
        let row = row("a", &Op::Read(1), 0, &unknown, &known);
        assert_eq!((row.ratio, row.server_us), (None, None));
    }

    #[test]
    fn rounds_in_ticks_are_marked() {
        let mut rounds = [round(1, Some(1), 1), round(1, Some(1), 1)];
        assert!(!row("a", &Op::Read(1), 0, &rounds, &[]).server_in_ticks);
        rounds[1].server.as_mut().unwrap().in_ticks = true;
        assert!(row("a", &Op::Read(1), 0, &rounds, &[]).server_in_ticks);
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
            row("a", &Op::Write(1), 0, &rounds, &rounds).client_limited
        };
        assert!(limited(950));
        assert!(!limited(800));
        let mut waits = round(1, None, 500);
        waits.client.waiting = Duration::from_millis(450);
        assert!(row("a", &Op::Write(1), 0, &[waits], &[]).client_limited);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
