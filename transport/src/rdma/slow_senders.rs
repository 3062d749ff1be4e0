//! Detection of peers that begin messages and do not finish them while shared receives are short.
//!
//! Each connection holds at most one receive for a message in progress, which nobody else can use.
//! While there is memory for others, nothing is done about them. When it gets tight, every message in
//! progress must be complete within [`LIMIT`], or its connection is ended. Devices whose messages
//! arrive as a whole report none in progress ([`rdma::Device::receiving`]).

use std::time::Duration;

use rdma::{IdMap, QpId, Time};

/// The interval at which queue pairs are checked for messages that have begun and not ended.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(250);
/// The maximum duration of a message while others wait for receives. A receive of 64 KiB is filled in
/// time at a quarter of a Mbit/s.
pub(super) const LIMIT: Duration = Duration::from_secs(2);

/// The queue pairs that were in the middle of a message at the last check, each with the time at
/// which the message was first seen.
#[derive(Debug, Default)]
pub(super) struct SlowSenders {
    /// The time of the last check.
    checked: Option<Time>,
    begun: IdMap<QpId, Begun>,
}

/// A message in progress.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Number of messages of its connection that were complete before it.
    after: u64,
    /// The time at which it was first seen.
    since: Time,
}

impl SlowSenders {
    /// Returns whether a check is due.
    pub(super) fn is_due(&self, now: Time) -> bool {
        let last = self.checked;
        last.is_none_or(|last| now.since(last) >= CHECK_EVERY)
    }

    /// Considers the queue pairs that are in the middle of a message, each with the number of
    /// messages that were complete before. Returns those whose message has taken too long.
    pub(super) fn check(
        &mut self,
        now: Time,
        receiving: impl Iterator<Item = (QpId, u64)>,
    ) -> Vec<QpId> {
        self.checked = Some(now);
        let before = std::mem::take(&mut self.begun);
        let mut slow = Vec::new();
        for (qp, after) in receiving {
            let same = before.get(&qp).filter(|begun| begun.after == after);
            let since = same.map_or(now, |begun| begun.since);
            if now.since(since) >= LIMIT {
                slow.push(qp);
            }
            self.begun.insert(qp, Begun { after, since });
        }
        slow
    }

    /// Forgets all messages: there are receives for others.
    pub(super) fn clear(&mut self) {
        self.checked = None;
        self.begun = IdMap::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_takes_too_long_is_found_and_one_after_another_is_not() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut senders = SlowSenders::default();
        assert!(senders.is_due(at(0)));
        let (slow, busy) = (QpId(1), QpId(2));
        for step in 0..8 {
            let now = at(250 * step);
            let receiving = [(slow, 5), (busy, step)];
            assert!(senders.check(now, receiving.into_iter()).is_empty());
            assert!(!senders.is_due(now + CHECK_EVERY / 2));
            assert!(senders.is_due(now + CHECK_EVERY));
        }
        let receiving = [(slow, 5), (busy, 8)];
        assert_eq!(senders.check(at(2000), receiving.into_iter()), [slow]);
        // One that was not in the middle of a message once begins anew.
        assert!(senders.check(at(2250), [(busy, 8)].into_iter()).is_empty());
        assert!(senders.check(at(4000), [(slow, 5)].into_iter()).is_empty());
        senders.clear();
        assert!(senders.check(at(9000), [(slow, 5)].into_iter()).is_empty());
    }
}
