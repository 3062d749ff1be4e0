//! Calls that wait for memory which nobody is going to give back.

use std::time::Duration;

use rdma::Time;

use super::RdmaClient;

/// How long calls wait for memory that nothing under way can give back: whoever took replies may
/// still give some back.
const STUCK: Duration = Duration::from_secs(5);

/// Calls wait for memory, and none has been under way that could have given back any: an answer to
/// any call ends this.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    since: Time,
    /// When that was found last.
    seen: Time,
}

impl RdmaClient {
    /// There may be memory now for what waits for it. If there has been none for long, the calls that
    /// wait first fail: what they hold themselves may be what others wait for.
    #[cold]
    pub(super) fn retry(&mut self) {
        self.retry_at = None;
        let give_up = self.is_stuck();
        for at in 0..self.connections.len() {
            let talk = &mut self.connections[at].talk;
            if give_up && talk.requester.starved() {
                talk.requester.give_up_waiting();
            }
            talk.retry();
            self.run(at);
        }
        if self.is_under_way() {
            self.stuck = None;
        }
    }

    /// Whether there is a call that will give back its memory, or that somebody has yet to take.
    fn is_under_way(&self) -> bool {
        let mut connections = self.connections.iter();
        !self.events.is_empty() || connections.any(|c| c.talk.requester.under_way())
    }

    /// Whether calls have waited for memory for long, over however many connections, and nothing has
    /// been under way that could have given back any: they would wait for ever.
    fn is_stuck(&mut self) -> bool {
        if self.is_under_way() {
            self.stuck = None;
            return false;
        }
        if !self.connections.iter().any(|c| c.talk.requester.starved()) {
            // Perhaps for the moment only: a time-out may have ended the connection, and the same calls
            // come over the next one.
            return false;
        }
        let now = self.now;
        let stuck = self.stuck.get_or_insert(Stuck {
            since: now,
            seen: now,
        });
        if now.since(stuck.seen) >= STUCK {
            stuck.since = now;
        }
        stuck.seen = now;
        now.since(stuck.since) >= STUCK
    }
}
