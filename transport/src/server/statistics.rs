//! Statistics of a server, for other threads.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{Server, ServerGroup, ServerStats};
use crate::call_counts::CallCounts;
use crate::{ProcedureCounts, TransportStatistics};

/// The counts of one loop of a server since it began, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct LoopStatistics {
    /// The counters of the loop.
    pub server: ServerStats,
    /// The calls that were executed, if they are counted ([`crate::ServerOptions::count_calls`]).
    pub procedures: Vec<ProcedureCounts>,
    /// The calls that were answered without the service, by reason ([`crate::ErrorReply::name`]), if
    /// calls are counted.
    pub refusals: Vec<(&'static str, u64)>,
    /// Calls that workers execute, or that wait for one.
    pub jobs: usize,
    /// Calls that wait because there are as many jobs as there may be.
    pub held: usize,
    /// System calls by which the loop has waited for events.
    pub wait_calls: u64,
    /// Each of its transports.
    pub transports: Vec<TransportStatistics>,
}

/// The state of a reply cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyCacheStatistics {
    /// Cached replies.
    pub entries: usize,
    /// The maximum number of cached replies.
    pub most_entries: usize,
    /// Bytes of memory of cached replies.
    pub bytes: usize,
    /// The maximum number of bytes.
    pub most_bytes: usize,
}

impl ServerGroup {
    /// Has each loop tell what it has counted and what it holds, on its own thread, between two of its
    /// turns. The loops count for themselves alone, so a call costs no more while nobody asks. Returns
    /// `None` for a loop that has not answered `within` this time, for example because it has ended.
    #[must_use]
    pub fn statistics(&self, within: Duration) -> Vec<Option<LoopStatistics>> {
        let until = Instant::now() + within;
        // All are asked before the first answer is awaited.
        let ask = |member| {
            let (asked, answer) = mpsc::channel();
            let question = move |server: &Server| {
                // Fails if nobody waits any more.
                let _ = asked.send(server.statistics());
            };
            self.shared.ask(member, Box::new(question));
            answer
        };
        let answers: Vec<_> = (0..self.loops()).map(ask).collect();
        let left = || until.saturating_duration_since(Instant::now());
        let answers = answers.into_iter();
        answers.map(|it| it.recv_timeout(left()).ok()).collect()
    }

    /// Returns the state of the reply cache.
    #[must_use]
    pub fn reply_cache(&self) -> ReplyCacheStatistics {
        let cache = &self.shared.cache;
        let ((entries, bytes), (most_entries, most_bytes)) = (cache.size(), cache.limits());
        ReplyCacheStatistics {
            entries,
            most_entries,
            bytes,
            most_bytes,
        }
    }
}

impl Server {
    /// Returns what this loop has counted and what it holds.
    #[must_use]
    pub fn statistics(&self) -> LoopStatistics {
        let counts = self.counts.as_deref();
        let transports = self.transports.iter();
        LoopStatistics {
            server: self.stats,
            procedures: counts.map_or_else(Vec::new, CallCounts::procedures),
            refusals: counts.map_or_else(Vec::new, CallCounts::refusals),
            jobs: self.running.len(),
            held: self.held.len(),
            wait_calls: self.poll_loop.system_calls(),
            transports: transports
                .map(|it| it.transport.borrow().statistics())
                .collect(),
        }
    }

    /// Answers the questions of other threads.
    #[inline]
    pub(super) fn answer_questions(&self) {
        for question in self.member.questions() {
            question(self);
        }
    }
}
