//! A session's connections: making them, losing them, giving them up.

use rdma::Time;

use super::Session;
use super::lane::State;
use crate::{CallError, ClientPort, ConnId, Down};

impl Session {
    /// Gives up attempts and outages that take too long, and connects where calls wait.
    pub(super) fn poll_lanes(&mut self, port: &mut dyn ClientPort, now: Time) {
        for lane in 0..self.lanes.len() {
            match self.lanes[lane].state {
                State::Connecting { conn, until } if until <= now => {
                    port.close(conn);
                    let reason = format!("no answer in {:?}", self.options.connect_timeout);
                    self.broken(lane, no_answer(reason, false), port, now);
                }
                State::Up { .. } => continue,
                _ => {}
            }
            if self.lanes[lane].gives_up(&self.options, now) {
                self.give_up(lane);
            } else if self.lanes[lane].is_wanted() {
                self.open_if_due(lane, port, now);
            }
        }
    }

    /// The lane for a new call: connected ones in turn, or, when there is none, all in turn.
    /// Connections that were lost while idle are made again on the way.
    pub(super) fn choose_lane(&mut self, port: &mut dyn ClientPort, now: Time) -> usize {
        let count = self.lanes.len();
        let first = self.next_lane;
        let order = (first..count).chain(0..first);
        let mut chosen = None;
        for lane in order {
            if self.lanes[lane].up().is_some() {
                chosen = chosen.or(Some(lane));
            } else if matches!(self.founded, Some(Ok(()))) {
                self.open_if_due(lane, port, now);
            }
        }
        let lane = chosen.unwrap_or(first);
        self.next_lane = (lane + 1) % count;
        lane
    }

    /// Connects, unless there is a connection or an attempt, or a pause to wait for.
    pub(super) fn open_if_due(&mut self, lane: usize, port: &mut dyn ClientPort, now: Time) {
        if self.lanes[lane].may_open(now) && !matches!(self.founded, Some(Err(_))) {
            self.open(lane, port, now);
        }
    }

    #[cold]
    pub(super) fn open(&mut self, lane: usize, port: &mut dyn ClientPort, now: Time) {
        let conn = port.open(self.remote, now);
        let until = now + self.options.connect_timeout;
        self.lanes[lane].state = State::Connecting { conn, until };
    }

    /// The lane whose connection or attempt this is; none if it was given up.
    pub(super) fn lane_of(&self, conn: ConnId) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.conn() == Some(conn))
    }

    /// A connection is made: sends what waits for it.
    #[cold]
    pub(super) fn up(&mut self, conn: ConnId, port: &mut dyn ClientPort, now: Time) {
        let Some(lane) = self.lane_of(conn) else {
            return;
        };
        self.lanes[lane].state = State::Up { conn };
        if std::mem::replace(&mut self.lanes[lane].was_up, true) {
            self.stats.reconnects += 1;
            tracing::info!(server = %self.remote, lane, "connected again");
        } else {
            tracing::info!(server = %self.remote, lane, "connected");
        }
        if self.founded.is_none() {
            self.founded = Some(Ok(()));
            for other in 0..self.lanes.len() {
                self.open_if_due(other, port, now);
            }
        }
        for xid in self.xids_of(Some(lane)) {
            self.send(xid, conn, port, now);
        }
    }

    /// A connection or attempt is over, for a reason that was not this side's choice.
    #[cold]
    pub(super) fn broken(&mut self, lane: usize, down: Down, port: &mut dyn ClientPort, now: Time) {
        let no_server = down.retry && self.trust.ended(down.was_up);
        let reason = no_server.then(|| down.reason.clone());
        self.lost(lane, down, now);
        if let Some(reason) = reason {
            self.unanswered(&reason, port, now);
        }
    }

    /// Gives up a peer that takes connections and answers nothing: all calls end. A call that
    /// comes later is tried on connections of its own.
    #[cold]
    pub(super) fn unanswered(&mut self, reason: &str, port: &mut dyn ClientPort, now: Time) {
        tracing::info!(server = %self.remote, reason, "connections, but no answers: calls end");
        let error = CallError::Unanswered {
            server: self.remote.to_string(),
            reason: reason.to_owned(),
        };
        for lane in 0..self.lanes.len() {
            if let Some(conn) = self.lanes[lane].conn() {
                port.close(conn);
                self.lost(lane, no_answer(reason.to_owned(), true), now);
            }
            self.fail(lane, &error);
        }
    }

    /// Notes that a connection or attempt is over.
    pub(super) fn lost(&mut self, lane: usize, down: Down, now: Time) {
        let Down {
            reason,
            retry,
            was_up,
        } = down;
        let known = self.lanes[lane].in_outage();
        self.lanes[lane].lost(reason.clone(), &self.options, now);
        if retry && !known && self.lanes[lane].in_outage() && self.founded.is_some() {
            // What a hard mount says, so that nobody wonders why nothing happens.
            tracing::warn!(server = %self.remote, reason, "no connection, still trying");
        } else {
            tracing::info!(server = %self.remote, lane, reason, was_up, "no connection");
        }
        if self.founded.is_none() {
            self.founded = Some(Err(self.connect_error(&reason)));
        } else if !retry && was_up {
            self.fail(lane, &CallError::Protocol(reason));
        } else if !retry {
            self.fail(lane, &self.connect_error(&reason));
        } else if self.lanes[lane].gives_up(&self.options, now) {
            self.give_up(lane);
        }
    }

    fn give_up(&mut self, lane: usize) {
        let reason = match self.lanes[lane].reason.as_str() {
            "" => "no answer",
            reason => reason,
        };
        let reason = format!("{reason} (given up after {:?})", self.options.give_up_after);
        tracing::warn!(server = %self.remote, lane, reason, "server out of reach: calls end");
        self.fail(lane, &self.connect_error(&reason));
    }

    fn fail(&mut self, lane: usize, error: &CallError) {
        for xid in self.xids_of(Some(lane)) {
            self.end(xid, Err(error.clone()));
        }
    }

    fn connect_error(&self, reason: &str) -> CallError {
        CallError::Connect {
            server: self.remote.to_string(),
            reason: reason.to_owned(),
        }
    }
}

/// A connection that is given up here, for the peer's silence.
pub(super) fn no_answer(reason: String, was_up: bool) -> Down {
    let retry = true;
    Down {
        reason,
        retry,
        was_up,
    }
}
