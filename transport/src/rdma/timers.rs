//! The deadlines of a client's or a server's connections.

use std::collections::BTreeSet;

use rdma::{QpId, Time};

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Time to retry what waits for memory.
    Memory,
    /// Time to give back memory that only earlier traffic needed.
    GiveBack,
    /// Time to consider the number of shared receives.
    Receives,
    /// Time to check connections for peers that make no progress.
    Progress,
    /// A time-out of this connection's protocol state
    /// ([`Connection::poll_timeout`](rpcrdma_connection::Connection::poll_timeout)).
    Connection(QpId),
    /// A connection whose graceful disconnect has taken too long is aborted.
    Linger(QpId),
}

/// All deadlines, ordered by time.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Time, Timer)>);

impl Timers {
    /// Sets a deadline, beside others for the same purpose.
    pub(super) fn set(&mut self, at: Time, timer: Timer) {
        self.0.insert((at, timer));
    }

    /// Returns the first deadline.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes and returns a timer whose deadline has come by `now`.
    #[inline]
    pub(super) fn expired(&mut self, now: Time) -> Option<Timer> {
        let (at, timer) = *self.0.first()?;
        (at <= now).then(|| {
            self.0.pop_first();
            timer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_expire_in_order_of_time_and_each_once() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut timers = Timers::default();
        timers.set(at(5), Timer::Linger(QpId(1)));
        timers.set(at(3), Timer::Memory);
        timers.set(at(3), Timer::Memory);
        timers.set(at(9), Timer::Connection(QpId(1)));
        assert_eq!((timers.next(), timers.expired(at(2))), (Some(at(3)), None));
        assert_eq!(timers.expired(at(5)), Some(Timer::Memory));
        assert_eq!(timers.expired(at(5)), Some(Timer::Linger(QpId(1))));
        assert_eq!(timers.expired(at(8)), None);
        assert_eq!(timers.expired(at(9)), Some(Timer::Connection(QpId(1))));
        assert_eq!((timers.next(), timers.expired(at(99))), (None, None));
    }
}
