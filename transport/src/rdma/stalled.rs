//! Detection of stalled peers: those that leave RDMA Reads unanswered, do not receive what is sent to
//! them, or grant no credits for it.
//!
//! Something is awaited from a peer while one of these is outstanding:
//!
//! * Signaled work requests. They complete when the peer answers RDMA Reads and receives messages. For
//!   this, every work request is signaled while the connection holds memory beyond its guaranteed part
//!   ([`rpcrdma_host::Budget`]).
//! * Replies that wait for credits of the peer (version-two-07, section 4.2.1).
//! * Calls that wait for memory, while copies of their connection's messages hold memory that other
//!   connections wait for.
//!
//! The peer is stalled if meanwhile no work request completes, and no message that waited for credits
//! leaves.

use std::time::Duration;

use rdma::Time;
use rpcrdma_host::Account;

/// The longest time between two checks while work is in progress on any connection.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The maximum time without progress while the connection holds memory that others wait for.
const IN_THE_WAY: Duration = Duration::from_secs(2);

/// Progress of a connection at the last check.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The time at which progress was last seen or waiting began, and the amount of progress then.
    /// `None` while nothing is awaited.
    seen: Option<(Time, u64)>,
}

impl Progress {
    /// Records the state of a connection. `awaited` says whether something is awaited from the
    /// peer: completions of work requests, credits for replies, or memory. `completed` counts what
    /// shows progress, since the beginning: signaled work requests that have completed, and
    /// messages that have got credits. Returns since when that number has not risen, and whether
    /// the connection blocks others ([`Account::blocks_others`]); `None` if nothing is awaited.
    pub(super) fn check(
        &mut self,
        awaited: bool,
        completed: u64,
        account: &Account,
        now: Time,
    ) -> Option<(Time, bool)> {
        let before = self.seen;
        self.seen = match before {
            _ if !awaited => None,
            Some((_, last)) if last == completed => before,
            Some(_) => {
                account.prove();
                Some((now, completed))
            }
            None => Some((now, completed)),
        };
        let (since, _) = self.seen?;
        Some((since, account.blocks_others()))
    }
}

/// Schedules checks of a server's connections for peers that make no progress. While a check is planned, a
/// reply costs only the test whether it is.
#[derive(Debug)]
pub(super) struct ProgressChecks {
    /// The maximum time without progress of a peer.
    limit: Duration,
    /// Whether a check is planned.
    planned: bool,
}

impl ProgressChecks {
    /// Returns checks for peers that make no progress for longer than `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        let planned = false;
        Self { limit, planned }
    }

    /// Records that work is in progress. Returns the time of the next check if it has to be
    /// planned.
    #[inline]
    pub(super) fn expect(&mut self, now: Time) -> Option<Time> {
        let planned = std::mem::replace(&mut self.planned, true);
        (!planned).then(|| now + CHECK_EVERY.min(self.limit / 4))
    }

    /// Checks each connection. `waits` returns since when it has made no progress, and whether it
    /// blocks others. `end` is called for each connection that has exceeded its time-out, with that
    /// time-out. Returns the time of the next check, if any connection needs one.
    pub(super) fn check<C>(
        &mut self,
        now: Time,
        connections: impl Iterator<Item = C>,
        mut waits: impl FnMut(&mut C, Time) -> Option<(Time, bool)>,
        mut end: impl FnMut(C, Duration),
    ) -> Option<Time> {
        self.planned = false;
        let mut next = None;
        for mut connection in connections {
            let Some((since, in_the_way)) = waits(&mut connection, now) else {
                continue;
            };
            let limit = match in_the_way {
                true => self.limit.min(IN_THE_WAY),
                false => self.limit,
            };
            if now.since(since) >= limit {
                end(connection, limit);
            } else {
                next = next.or(self.expect(now));
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_host::Budget;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_peer_that_completes_nothing_is_ended_and_sooner_when_it_is_in_the_way() {
        let budget = Budget::new(16 << 20, 4);
        let accounts = [budget.account(), budget.account()];
        let mut checks = ProgressChecks::new(Duration::from_secs(30));
        let mut progress = [Progress::default(); 2];
        let mut check = |now, completed: [u64; 2]| {
            let mut ended = Vec::new();
            checks.expect(now);
            let next = checks.check(
                now,
                0..2,
                |at, now| progress[*at].check(true, completed[*at], &accounts[*at], now),
                |at, limit| ended.push((at, limit.as_secs())),
            );
            assert_eq!(next, Some(now + CHECK_EVERY).filter(|_| ended.len() < 2));
            ended
        };
        assert!(check(at(0), [0, 0]).is_empty());
        assert!(check(at(29), [0, 1]).is_empty());
        assert_eq!(check(at(30), [0, 1]), [(0, 30)]);
        assert!(check(at(31), [1, 1]).is_empty());
        accounts[0].charge(12 << 20);
        assert!(check(at(32), [1, 2]).is_empty());
        assert_eq!(check(at(33), [1, 2]), [(0, 2)]);
        assert!(
            check(at(60), [2, 2]).is_empty(),
            "the other has nothing that is wanted"
        );
        assert_eq!(check(at(62), [2, 2]), [(0, 2), (1, 30)]);
    }
}
