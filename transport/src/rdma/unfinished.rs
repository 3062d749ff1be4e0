//! Messages that come in several transmissions, and for how long they may be incomplete.
//!
//! What has come of one is kept, and the receives that it came in are not used again, until the rest is
//! there (rtrext-00, section 4.2). The documents set no limit; a peer that begins messages and finishes
//! none would hold that memory for as long as it keeps its connection.

use std::time::Duration;

use rdma::Time;

/// When to look for such messages on a port's connections. They are looked through once in a while, so
/// that a transmission costs no more than a note of the time.
#[derive(Debug)]
pub(super) struct Unfinished {
    limit: Duration,
    next_look: Option<Time>,
}

impl Unfinished {
    /// Incomplete for as long as that at most.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            next_look: None,
        }
    }

    /// A message arrived on a connection, which has been `collecting` since then; whether it is now.
    pub(super) fn seen(&mut self, since: &mut Option<Time>, collecting: bool, now: Time) {
        if !collecting {
            *since = None;
        } else if since.is_none() {
            *since = Some(now);
            self.next_look.get_or_insert(now + self.limit);
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

    /// Looks through `connections`, each of which has been collecting since a time, and has those ended
    /// that have done so for too long.
    pub(super) fn look<C>(
        &mut self,
        now: Time,
        connections: impl Iterator<Item = C>,
        since: impl Fn(&C) -> Option<Time>,
        mut end: impl FnMut(C, Duration),
    ) {
        self.next_look = None;
        for connection in connections {
            let Some(due) = since(&connection).map(|since| since + self.limit) else {
                continue;
            };
            if due <= now {
                end(connection, self.limit);
            } else {
                self.next_look = Some(self.next_look.map_or(due, |at| at.min(due)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn only_a_message_that_stays_incomplete_is_due() {
        let mut unfinished = Unfinished::new(Duration::from_secs(10));
        let mut connections = [None, None, None];
        unfinished.seen(&mut connections[0], true, at(0));
        unfinished.seen(&mut connections[1], true, at(3));
        unfinished.seen(&mut connections[2], true, at(4));
        // More of the same message does not put it off; its last transmission does.
        unfinished.seen(&mut connections[1], true, at(9));
        unfinished.seen(&mut connections[0], false, at(9));
        let mut ended = Vec::new();
        let mut look = |unfinished: &mut Unfinished, now| {
            assert!(unfinished.is_due(now));
            let all = connections.iter().enumerate();
            unfinished.look(now, all, |(_, since)| **since, |(n, _), _| ended.push(n));
            std::mem::take(&mut ended)
        };
        assert!(!unfinished.is_due(at(9)));
        assert!(look(&mut unfinished, at(10)).is_empty());
        assert_eq!(unfinished.next_look(), Some(at(13)));
        assert_eq!(look(&mut unfinished, at(13)), [1]);
        assert_eq!(unfinished.next_look(), Some(at(14)));
        assert_eq!(look(&mut unfinished, at(14)), [1, 2]);
        assert_eq!(unfinished.next_look(), None);
    }
}
