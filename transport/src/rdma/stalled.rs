//! Peers that leave RDMA Reads unanswered, or take nothing of what they are sent.
//!
//! A call whose Reads are not answered, and a reply that stays in the send queue, hold memory. Both show in
//! the same way: a work request that is to complete does not, and none that came after it can.

use std::time::Duration;

use rdma::{Account, Time};

/// How often connections are looked through while work is under way on any, at least.
const LOOK: Duration = Duration::from_secs(1);
/// How long a peer may do nothing while its connection holds memory that others want.
const IN_THE_WAY: Duration = Duration::from_secs(2);

/// Progress of a connection at the last check.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// When a completion was last seen (or waiting began), and the number of completions then. `None` while
    /// no signaled work request is outstanding.
    seen: Option<(Time, u64)>,
}

impl Progress {
    /// Records the state of a connection: whether signaled work requests are outstanding (`awaited`), and
    /// how many have completed. Returns since when none has completed, and whether the connection blocks
    /// others ([`Account::is_in_the_way`]); `None` if none is outstanding.
    pub(super) fn look(
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
        Some((since, account.is_in_the_way()))
    }
}

/// When to look for such peers on a port's connections. They are looked through once in a while, so that
/// a reply costs no more than a glance at whether that is planned.
#[derive(Debug)]
pub(super) struct Stalled {
    limit: Duration,
    next_look: Option<Time>,
}

impl Stalled {
    /// Doing nothing for as long as that at most.
    pub(super) fn new(limit: Duration) -> Self {
        let next_look = None;
        Self { limit, next_look }
    }

    /// Work is under way.
    pub(super) fn expect(&mut self, now: Time) {
        if self.next_look.is_none() {
            self.next_look = Some(now + LOOK.min(self.limit / 4));
        }
    }

    /// When to look next.
    pub(super) fn next_look(&self) -> Option<Time> {
        self.next_look
    }

    /// Whether that is now.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next_look.is_some_and(|at| at <= now)
    }

    /// Checks each connection. `waits` returns since when it has made no progress, and whether it blocks
    /// others. `end` is called for each connection that has exceeded its timeout, with that timeout.
    pub(super) fn look<C>(
        &mut self,
        now: Time,
        connections: impl Iterator<Item = C>,
        mut waits: impl FnMut(&mut C, Time) -> Option<(Time, bool)>,
        mut end: impl FnMut(C, Duration),
    ) {
        self.next_look = None;
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
                self.expect(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rdma::Budget;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_peer_that_completes_nothing_is_ended_and_sooner_when_it_is_in_the_way() {
        let budget = Budget::new(16 << 20, 4);
        let accounts = [budget.account(), budget.account()];
        let mut stalled = Stalled::new(Duration::from_secs(30));
        let mut progress = [Progress::default(); 2];
        let mut look = |now, completed: [u64; 2]| {
            let mut ended = Vec::new();
            stalled.expect(now);
            stalled.look(
                now,
                0..2,
                |at, now| progress[*at].look(true, completed[*at], &accounts[*at], now),
                |at, limit| ended.push((at, limit.as_secs())),
            );
            assert_eq!(
                stalled.next_look(),
                Some(now + LOOK).filter(|_| ended.len() < 2)
            );
            ended
        };
        assert!(look(at(0), [0, 0]).is_empty());
        assert!(look(at(29), [0, 1]).is_empty());
        assert_eq!(look(at(30), [0, 1]), [(0, 30)]);
        assert!(look(at(31), [1, 1]).is_empty());
        accounts[0].charge(12 << 20);
        assert!(look(at(32), [1, 2]).is_empty());
        assert_eq!(look(at(33), [1, 2]), [(0, 2)]);
        assert!(
            look(at(60), [2, 2]).is_empty(),
            "the other has nothing that is wanted"
        );
        assert_eq!(look(at(62), [2, 2]), [(0, 2), (1, 30)]);
    }
}
