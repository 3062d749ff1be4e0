//! The samples of a server.

use std::time::{Duration, Instant};

use rpc_transport::limits::Limits;
use rpc_transport::{LoopStatistics, ServerGroup};

use crate::families::{
    CACHE_ENTRIES, CACHE_ENTRIES_LIMIT, CACHE_HITS, LOCK_WAITS, LOOPS, MEMORY, MEMORY_LIMIT,
    SERVER_CALLBACKS, SERVER_CALLS, SERVER_CLOSED, SERVER_HELD, SERVER_JOBS, SERVER_MOST,
    SERVER_RECEIVED, SERVER_REFUSED, SERVER_RUNNING, SERVER_TIMES, SILENT, START, SYSTEM_CALLS,
};
use crate::samples::Samples;
use crate::{calls, transport};

/// The time that the loops of a server have to answer. A loop is busy for longer only if the machine is
/// overloaded.
const WITHIN: Duration = Duration::from_secs(1);
/// The minimum age of samples at which the loops are asked again, so that many scrapes cost them no
/// more than a few.
const FRESH: Duration = Duration::from_millis(100);

/// The samples of a server, whose loops are asked for what they have counted.
#[derive(Debug)]
pub struct ServerSamples {
    group: ServerGroup,
    limits: Limits,
    started: u64,
    /// The last answer of each loop.
    answers: Vec<LoopStatistics>,
    last: Option<(Instant, Samples)>,
}

impl ServerSamples {
    /// Returns the samples of the loops of a group. `started` is when the server began, in seconds since
    /// 1970.
    #[must_use]
    pub fn new(group: ServerGroup, limits: Limits, started: u64) -> Self {
        Self {
            answers: vec![LoopStatistics::default(); group.loops()],
            group,
            limits,
            started,
            last: None,
        }
    }

    /// Returns the samples at present, or those of a moment ago.
    pub fn collect(&mut self) -> &Samples {
        let last = match self.last.take() {
            Some(last) if last.0.elapsed() < FRESH => last,
            _ => {
                let samples = self.ask();
                (Instant::now(), samples)
            }
        };
        &self.last.insert(last).1
    }

    fn ask(&mut self) -> Samples {
        let mut silent = 0;
        let answers = self.group.statistics(WITHIN);
        for (known, answer) in self.answers.iter_mut().zip(answers) {
            match answer {
                Some(answer) => *known = answer,
                None => silent += 1,
            }
        }
        let mut samples = Samples::default();
        let mut receives = 0;
        for found in &self.answers {
            add(&mut samples, found);
            let each = found.transports.iter();
            receives += each.map(|it| it.receive_bytes).sum::<u64>();
        }
        samples.add(&START, &[], self.started);
        samples.add(&LOOPS, &[], self.answers.len() as u64);
        samples.add(&SILENT, &[], silent);
        let cache = self.group.reply_cache();
        samples.add(&CACHE_ENTRIES, &[], cache.entries as u64);
        samples.add(&CACHE_ENTRIES_LIMIT, &[], cache.most_entries as u64);
        let limits = &self.limits;
        samples.add(&SERVER_MOST, &[], limits.connections as u64);
        for (used, now, most) in [
            (
                "calls",
                limits.budget.common_in_use() as u64,
                limits.budget.limit(),
            ),
            ("receives", receives, limits.receives),
            ("reply_cache", cache.bytes as u64, cache.most_bytes),
        ] {
            samples.add(&MEMORY, &[used], now);
            samples.add(&MEMORY_LIMIT, &[used], most as u64);
        }
        for (lock, times) in rpcrdma_host::contended_locks() {
            samples.add(&LOCK_WAITS, &[lock], times);
        }
        samples
    }
}

/// Adds the statistics of a loop.
fn add(samples: &mut Samples, found: &LoopStatistics) {
    calls::add(samples, (&SERVER_CALLS, &SERVER_TIMES), &found.procedures);
    let stats = &found.server;
    samples.add(&SERVER_RECEIVED, &[], stats.calls);
    for (reason, count) in &found.refusals {
        samples.add(&SERVER_REFUSED, &[reason], *count);
    }
    samples.add(&SERVER_JOBS, &[], stats.jobs);
    samples.add(&SERVER_RUNNING, &[], found.jobs as u64);
    samples.add(&SERVER_HELD, &[], found.held as u64);
    samples.add(&SERVER_CALLBACKS, &["started"], stats.callbacks);
    samples.add(&SERVER_CALLBACKS, &["answered"], stats.callback_replies);
    samples.add(&SERVER_CLOSED, &["idle"], stats.idle);
    samples.add(&SERVER_CLOSED, &["room"], stats.made_room);
    samples.add(&SERVER_CLOSED, &["no_call"], stats.garbage);
    samples.add(&CACHE_HITS, &["done"], stats.replayed);
    samples.add(&CACHE_HITS, &["in_progress"], stats.joined);
    samples.add(&SYSTEM_CALLS, &["wait"], found.wait_calls);
    for each in &found.transports {
        transport::add(samples, each);
    }
}
