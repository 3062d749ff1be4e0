//! Calls that wait for memory which nobody is going to give back.
//!
//! A call waits for memory as long as another call can give some back. If no call under way can for
//! five seconds, the waiting call fails, because a new connection would not bring more memory.

use std::time::Duration;

use rdma::Time;
use rpcrdma_connection::Connection;

use super::RdmaClient;

/// How long calls wait for memory that no call under way can give back. The user may still give back
/// some that replies came in.
const STUCK: Duration = Duration::from_secs(5);

/// Calls wait for memory, and no call has been under way that could have given back any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    since: Time,
    /// When that was found last.
    seen: Time,
    /// Replies delivered by then: another one ends it.
    replies: u64,
}

impl RdmaClient {
    /// Looks again whether there is memory for calls that wait for some. If there has been none for
    /// long, the calls that wait first fail: what they hold themselves may be what others wait for.
    #[cold]
    pub(super) fn retry(&mut self) {
        let give_up = self.is_stuck();
        for qp in self.driver.take_waiting() {
            if let Some(link) = self.driver.links.get_mut(&qp) {
                if give_up {
                    link.connection.give_up_waiting();
                }
                link.connection.retry();
                self.run(qp);
            }
        }
        if self.is_under_way() {
            self.stuck = None;
        }
    }

    /// Returns whether there is a call that will give back its memory, or a reply that the user has yet
    /// to take.
    fn is_under_way(&self) -> bool {
        !self.driver.events.is_empty() || self.any(Connection::has_calls_under_way)
    }

    fn any(&self, condition: fn(&Connection) -> bool) -> bool {
        let mut links = self.driver.links.values();
        links.any(|link| condition(&link.connection))
    }

    /// Returns whether calls have waited for memory for long, over however many connections, and nothing
    /// has been under way that could have given back any: they would wait for ever.
    fn is_stuck(&mut self) -> bool {
        if self.is_under_way() {
            self.stuck = None;
            return false;
        }
        if !self.any(Connection::calls_wait_for_memory) {
            // Perhaps for the moment only: a time-out may have ended the connection, and the same calls
            // are made over the next one.
            return false;
        }
        let (now, replies) = (self.driver.now, self.driver.replies);
        let new = Stuck {
            since: now,
            seen: now,
            replies,
        };
        let stuck = self.stuck.get_or_insert(new);
        if stuck.replies != replies || now.since(stuck.seen) >= STUCK {
            *stuck = new;
        }
        stuck.seen = now;
        now.since(stuck.since) >= STUCK
    }
}
