//! One of a client's connections, over all the times it is lost and made again.

use std::time::Duration;

use rdma::Time;

use crate::{ClientOptions, ConnId};

/// Where a lane stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No connection. The next attempt is made when a call needs it, but not before `retry_at`.
    Down {
        /// End of the back-off.
        retry_at: Time,
    },
    /// An attempt is under way.
    Connecting {
        /// Its connection.
        conn: ConnId,
        /// When it is given up.
        until: Time,
    },
    /// Connected.
    Up {
        /// The connection.
        conn: ConnId,
    },
}

/// One of a client's connections.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) state: State,
    /// Calls that belong to it.
    pub(crate) waiting: usize,
    /// Whether there ever was a connection: the next is a reconnection.
    pub(crate) was_up: bool,
    /// Whether there is to be a connection although no call needs it.
    pub(crate) keep: bool,
    /// Why the last connection or attempt ended, for the user.
    pub(crate) reason: String,
    /// Pause before the next attempt if this one fails.
    backoff: Duration,
    /// Since when calls have been waiting without one reply.
    outage: Option<Time>,
}

impl Lane {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            state: State::Down { retry_at: now },
            waiting: 0,
            was_up: false,
            keep: false,
            reason: String::new(),
            backoff: Duration::ZERO,
            outage: None,
        }
    }

    /// Its connection or attempt, if there is one.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match self.state {
            State::Down { .. } => None,
            State::Connecting { conn, .. } | State::Up { conn } => Some(conn),
        }
    }

    /// Its connection, if it is made.
    pub(crate) fn up(&self) -> Option<ConnId> {
        match self.state {
            State::Up { conn } => Some(conn),
            _ => None,
        }
    }

    /// A call was given to it.
    pub(crate) fn assign(&mut self, now: Time) {
        self.waiting += 1;
        if self.up().is_none() && self.outage.is_none() {
            self.outage = Some(now);
        }
    }

    /// One of its calls ended. With the last one there is nothing to be out of service for; the
    /// back-off stays.
    pub(crate) fn release(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.outage = None;
        }
    }

    /// The server answered: the connection works. Being accepted is not enough, because a call
    /// that makes the server drop the connection would otherwise be tried for ever, at full speed.
    /// Returns whether it had been in trouble.
    pub(crate) fn answered(&mut self) -> bool {
        self.outage = None;
        !std::mem::take(&mut self.backoff).is_zero()
    }

    /// The connection or attempt is over.
    pub(crate) fn lost(&mut self, reason: String, options: &ClientOptions, now: Time) {
        self.reason = reason;
        self.state = State::Down {
            retry_at: now + self.backoff,
        };
        let next = self.backoff.saturating_mul(2);
        self.backoff = next.max(options.backoff_min).min(options.backoff_max);
        if self.waiting > 0 && self.outage.is_none() {
            self.outage = Some(now);
        }
    }

    /// Whether calls wait for a connection.
    pub(crate) fn in_outage(&self) -> bool {
        self.outage.is_some()
    }

    /// Ends a pause early: the same server just answered on another connection.
    pub(crate) fn hurry(&mut self, now: Time) {
        if let State::Down { retry_at } = &mut self.state {
            *retry_at = now.min(*retry_at);
        }
    }

    /// Whether there should be a connection: calls wait for it, or it is kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting > 0 || (self.keep && self.was_up)
    }

    /// Whether an attempt may be made now.
    pub(crate) fn may_open(&self, now: Time) -> bool {
        matches!(self.state, State::Down { retry_at } if retry_at <= now)
    }

    /// Whether its calls have waited without a connection for as long as they may.
    pub(crate) fn gives_up(&self, options: &ClientOptions, now: Time) -> bool {
        self.up().is_none() && self.give_up_at(options).is_some_and(|at| at <= now)
    }

    /// When something is to be done.
    pub(crate) fn next_deadline(&self, options: &ClientOptions) -> Option<Time> {
        let act = match self.state {
            State::Up { .. } => return None,
            State::Connecting { until, .. } => until,
            State::Down { .. } if !self.is_wanted() => return None,
            State::Down { retry_at } => retry_at,
        };
        Some(self.give_up_at(options).map_or(act, |at| at.min(act)))
    }

    fn give_up_at(&self, options: &ClientOptions) -> Option<Time> {
        Some(self.outage? + options.give_up_after)
    }
}
