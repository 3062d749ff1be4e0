//! One of a client's connections, across losses and reconnects.

use std::time::Duration;

use rdma::Time;

use crate::{ClientOptions, ConnectionId};

/// The time within which the end of a new connection counts as a refusal.
const MOMENT: Duration = Duration::from_secs(1);
/// The pause between attempts to connect is at most the time after which calls give up, divided by
/// this.
const GIVES_UP: u32 = 4;
/// The number of refusals in a row of which the user is told.
const REFUSALS: u32 = 3;

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// Not connected. The next attempt is made when a call needs it, but not before `retry_at`.
    Disconnected {
        /// The end of the back-off pause.
        retry_at: Time,
    },
    /// An attempt to connect is in progress.
    Connecting {
        /// The transport's id of the attempt.
        conn: ConnectionId,
        /// The time at which the attempt is given up.
        until: Time,
    },
    /// Connected.
    Connected {
        /// The transport's id of the connection.
        conn: ConnectionId,
    },
}

/// One of a client's connections (`nconnect`).
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: ConnectionState,
    /// The number of pending calls assigned to this connection.
    pub(crate) waiting: usize,
    /// Whether a reply has arrived since the connection was established. A server that is full may
    /// accept a connection and close it with the first call.
    replied: bool,
    /// The number of refusals ([`Connection::is_refused`]) since the last reply.
    refusals: u32,
    /// The time at which the connection was established last.
    established_at: Time,
    /// See [`Connection::was_silent`].
    was_silent: bool,
    /// Whether the connection was ever up. If so, the next attempt counts as a reconnect.
    pub(crate) was_established: bool,
    /// Whether to stay connected although no call needs the connection.
    pub(crate) keep: bool,
    /// Whether to connect although no call needs the connection: the server had no room for the first one.
    pub(crate) try_again: bool,
    /// The reason why the last connection or attempt ended, in words for the user.
    pub(crate) reason: String,
    /// The pause before the next attempt if the present one fails.
    backoff: Duration,
    /// The time since which calls have been waiting without any reply.
    outage: Option<Time>,
}

impl Connection {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            state: ConnectionState::Disconnected { retry_at: now },
            waiting: 0,
            replied: false,
            refusals: 0,
            established_at: now,
            was_silent: false,
            was_established: false,
            keep: false,
            try_again: false,
            reason: String::new(),
            backoff: Duration::ZERO,
            outage: None,
        }
    }

    /// Returns the transport's id of the connection or attempt, if there is one.
    pub(crate) fn conn(&self) -> Option<ConnectionId> {
        match self.state {
            ConnectionState::Disconnected { .. } => None,
            ConnectionState::Connecting { conn, .. } | ConnectionState::Connected { conn } => {
                Some(conn)
            }
        }
    }

    /// Returns the transport's id of the connection if it is up.
    pub(crate) fn up(&self) -> Option<ConnectionId> {
        match self.state {
            ConnectionState::Connected { conn } => Some(conn),
            _ => None,
        }
    }

    /// Returns whether the connection is up and a reply has arrived on it.
    pub(crate) fn has_replied(&self) -> bool {
        self.up().is_some() && self.replied
    }

    /// Returns whether the connection is up and can take another call. A connection without a reply
    /// so far takes only one call if `any_replied`, that is, if another connection is known to work.
    pub(crate) fn takes_calls(&self, any_replied: bool) -> bool {
        self.up().is_some() && (self.replied || !any_replied || self.waiting == 0)
    }

    /// Returns whether calls wait for this connection.
    pub(crate) fn has_calls(&self) -> bool {
        self.waiting > 0
    }

    /// Records that the server did not admit the connection. Returns whether this has happened so
    /// often in a row that the server must be full. It happens once or twice in an outage as well:
    /// the attempts of one connection can fail before the other connections are seen to have ended.
    pub(crate) fn refused(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals >= REFUSALS
    }

    /// Records that the connection is established.
    pub(crate) fn established(&mut self, conn: ConnectionId, now: Time) {
        self.state = ConnectionState::Connected { conn };
        self.replied = false;
        self.try_again = false;
        self.established_at = now;
    }

    /// Returns whether the end of the connection or attempt now shows that the server does not admit it:
    /// it was not up, or only for a moment and without a reply.
    pub(crate) fn is_refused(&self, now: Time) -> bool {
        let is_new = now - self.established_at < MOMENT;
        self.up().is_none() || (is_new && !self.replied)
    }

    /// Records that a call was assigned to this connection.
    pub(crate) fn assign(&mut self, now: Time) {
        self.waiting += 1;
        if self.up().is_none() && self.outage.is_none() {
            self.outage = Some(now);
        }
    }

    /// Records that one of the connection's calls ended. If it was the last, the outage ends,
    /// because no call waits; the back-off stays.
    pub(crate) fn release(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.outage = None;
        }
    }

    /// Records a reply, which proves that the connection works. An accepted connection alone proves
    /// nothing: a call that makes the server drop the connection would otherwise be retried for
    /// ever at full speed. Returns whether there had been an outage.
    pub(crate) fn answered(&mut self) -> bool {
        self.outage = None;
        self.refusals = 0;
        self.replied = true;
        !std::mem::take(&mut self.backoff).is_zero()
    }

    /// Records that the connection or attempt has ended.
    pub(crate) fn lost(&mut self, reason: String, options: &ClientOptions, now: Time) {
        self.reason = reason;
        self.was_silent = self.waiting > 0 && !self.replied && !self.is_refused(now);
        self.state = ConnectionState::Disconnected {
            retry_at: now + self.backoff,
        };
        let next = self.backoff.saturating_mul(2);
        // At least one attempt must be made before a call gives up. Otherwise calls could fail
        // although the server has long been back.
        let most = (options.give_up_after / GIVES_UP).max(options.backoff_min);
        self.backoff = next
            .max(options.backoff_min)
            .min(options.backoff_max.min(most));
        if self.waiting > 0 && self.outage.is_none() {
            self.outage = Some(now);
        }
    }

    /// Returns whether the last connection was up for a while and its calls were not answered, and no attempt
    /// was begun since: the server can be reached, and does not answer.
    pub(crate) fn was_silent(&self) -> bool {
        self.was_silent && self.conn().is_none()
    }

    /// Returns whether an outage goes on: calls have been waiting since the connection was lost.
    pub(crate) fn in_outage(&self) -> bool {
        self.outage.is_some()
    }

    /// Ends a back-off pause early, because the same server just answered on another connection.
    pub(crate) fn hurry(&mut self, now: Time) {
        if let ConnectionState::Disconnected { retry_at } = &mut self.state {
            *retry_at = now.min(*retry_at);
        }
    }

    /// Returns whether there should be a connection: calls wait for it, it is to be kept up, or it is the first
    /// one and the server had no room for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting > 0 || (self.keep && self.was_established) || self.try_again
    }

    /// Returns whether an attempt to connect may start now.
    pub(crate) fn may_open(&self, now: Time) -> bool {
        matches!(self.state, ConnectionState::Disconnected { retry_at } if retry_at <= now)
    }

    /// Returns whether the calls of this connection have waited without a connection for the
    /// maximum time.
    pub(crate) fn gives_up(&self, options: &ClientOptions, now: Time) -> bool {
        self.up().is_none() && self.give_up_at(options).is_some_and(|at| at <= now)
    }

    /// Returns when this connection next needs attention.
    pub(crate) fn next_deadline(&self, options: &ClientOptions) -> Option<Time> {
        let act = match self.state {
            ConnectionState::Connected { .. } => return None,
            ConnectionState::Connecting { until, .. } => until,
            ConnectionState::Disconnected { .. } if !self.is_wanted() => return None,
            ConnectionState::Disconnected { retry_at } => retry_at,
        };
        Some(self.give_up_at(options).map_or(act, |at| at.min(act)))
    }

    fn give_up_at(&self, options: &ClientOptions) -> Option<Time> {
        Some(self.outage? + options.give_up_after)
    }
}
