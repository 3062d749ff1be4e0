//! Detection of calls that wait for memory which no other call will release.
//!
//! A call waits for memory as long as another call in progress can release some. If none can for
//! five seconds, the waiting call fails, because a new connection would not provide more memory.

use std::time::Duration;

use rdma::Time;
use rpcrdma_connection::Connection;

use super::RdmaClient;
use crate::rdma::end::End;

/// The time after which calls fail that wait for memory which no call in progress can release.
/// Until then the user may still release memory of replies.
const STUCK: Duration = Duration::from_secs(5);

/// The state while calls wait for memory and no call in progress can release any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    since: Time,
    /// The time at which this state was last confirmed.
    seen: Time,
    /// The number of replies delivered by then. Another reply ends this state.
    replies: u64,
}

impl RdmaClient {
    /// Retries the calls that wait for memory. After [`STUCK`] without memory, the first waiting
    /// call of each connection fails, because others may wait for the memory that it holds.
    #[cold]
    pub(super) fn retry_calls(&mut self) {
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

    /// Returns whether a call in progress will release its memory, or a reply has not been taken by
    /// the user yet.
    fn is_under_way(&self) -> bool {
        !self.driver.events.is_empty() || self.any(Connection::has_calls_under_way)
    }

    fn any(&self, condition: fn(&Connection) -> bool) -> bool {
        let mut links = self.driver.links.values();
        links.any(|link| condition(&link.connection))
    }

    /// Returns whether calls of any connection have waited for memory for [`STUCK`] while no call
    /// in progress could release any, so that they would wait for ever.
    fn is_stuck(&mut self) -> bool {
        if self.is_under_way() {
            self.stuck = None;
            return false;
        }
        if !self.any(Connection::calls_wait_for_memory) {
            // Perhaps for the moment only: a time-out may have ended the connection, and the same
            // calls are made over the next one.
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
