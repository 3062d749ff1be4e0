//! Calls that wait for memory which nobody is going to give back.

use std::time::Duration;

use super::RdmaClient;

/// How long calls wait for memory that nothing under way can give back: whoever took replies may
/// still give some back.
const STUCK: Duration = Duration::from_secs(5);

impl RdmaClient {
    /// There may be memory now for what waits for it. If there has been none for long, the calls that
    /// wait first fail: what they hold themselves may be what others wait for.
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
            self.stuck_since = None;
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
            self.stuck_since = None;
            return false;
        }
        if !self.connections.iter().any(|c| c.talk.requester.starved()) {
            self.stuck_since = None;
            return false;
        }
        let since = *self.stuck_since.get_or_insert(self.now);
        self.now.since(since) >= STUCK
    }
}
