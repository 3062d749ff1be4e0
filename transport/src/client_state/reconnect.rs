//! Establishing, losing and giving up a client's connections.

use std::time::Duration;

use rdma::Time;
use rdma::trace::{Event, Wait};

use super::ClientState;
use super::connection::{Connection, ConnectionState};
use crate::{CallError, ClientTransport, ConnectionId, ConnectionLost};

/// The time after which a client says again that it has no connection. Each further message takes
/// twice as long.
const REMIND_AFTER: Duration = Duration::from_secs(30);

/// Decides when a client says that calls wait for a connection. All its connections share one, so
/// that the number of connections and of attempts does not matter.
#[derive(Debug, Default)]
pub(super) struct Reminder {
    /// When the client first said so, and how long after that it says so again.
    said: Option<(Time, Duration)>,
}

impl Reminder {
    /// Returns how long there has been no connection if the user should be told now: zero the first
    /// time. To be called when an attempt has failed, so there is no timer of its own.
    fn due(&mut self, now: Time) -> Option<Duration> {
        let Some((since, after)) = &mut self.said else {
            self.said = Some((now, REMIND_AFTER));
            return Some(Duration::ZERO);
        };
        let elapsed = now - *since;
        if elapsed < *after {
            return None;
        }
        while *after <= elapsed {
            *after = after.saturating_mul(2);
        }
        Some(elapsed)
    }

    /// Records a reply, which ends the outage. Returns whether the user was told of this outage.
    pub(super) fn answered(&mut self) -> bool {
        self.said.take().is_some()
    }
}

impl ClientState {
    /// Gives up attempts and outages that take too long, and connects where calls wait.
    pub(super) fn poll_connections(&mut self, transport: &mut dyn ClientTransport, now: Time) {
        for index in 0..self.connections.len() {
            match self.connections[index].state {
                ConnectionState::Connecting { conn, until } if until <= now => {
                    transport.close(conn);
                    let reason = format!("no answer in {:?}", self.options.connect_timeout);
                    self.broken(index, no_answer(reason, false), transport, now);
                }
                ConnectionState::Connected { .. } => continue,
                _ => {}
            }
            if self.connections[index].gives_up(&self.options, now) {
                self.give_up(index, now);
            } else if self.connections[index].is_wanted() {
                self.open_if_due(index, transport, now);
            }
        }
    }

    /// Returns the connection for a new call: those that take calls in turn or, if none is up, all in
    /// turn. Connections that were lost while idle are re-established on the way.
    pub(super) fn choose_connection(
        &mut self,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) -> usize {
        let count = self.connections.len();
        let first = self.next_connection;
        let order = (first..count).chain(0..first);
        let any_replied = self.connections.iter().any(Connection::has_replied);
        let mut chosen = None;
        for index in order {
            if self.connections[index].takes_calls(any_replied) {
                chosen = chosen.or(Some(index));
            } else if self.connections[index].up().is_none()
                && matches!(self.first_connect, Some(Ok(())))
            {
                self.open_if_due(index, transport, now);
            }
        }
        let index = chosen.unwrap_or(first);
        self.next_connection = (index + 1) % count;
        index
    }

    /// Starts to connect, unless there is a connection or an attempt, or a back-off pause has not
    /// ended.
    pub(super) fn open_if_due(
        &mut self,
        index: usize,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        if self.connections[index].may_open(now) && !matches!(self.first_connect, Some(Err(_))) {
            self.open(index, transport, now);
        }
    }

    #[cold]
    pub(super) fn open(&mut self, index: usize, transport: &mut dyn ClientTransport, now: Time) {
        transport.set_tracer(self.tracer.clone());
        let conn = transport.open(self.remote, self.next_xid, now);
        let until = now + self.options.connect_timeout;
        self.connections[index].state = ConnectionState::Connecting { conn, until };
    }

    /// Returns the index of the connection with the transport's id `conn`, or `None` if it was
    /// given up.
    pub(super) fn index_of(&self, conn: ConnectionId) -> Option<usize> {
        self.connections
            .iter()
            .position(|connection| connection.conn() == Some(conn))
    }

    /// Handles an established connection: sends the calls that wait for it.
    #[cold]
    pub(super) fn connected(
        &mut self,
        conn: ConnectionId,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        let Some(index) = self.index_of(conn) else {
            return;
        };
        self.connections[index].established(conn, now);
        if std::mem::replace(&mut self.connections[index].was_established, true) {
            self.stats.reconnects += 1;
            tracing::info!(server = %self.remote, connection = index, "connected again");
        } else {
            tracing::info!(server = %self.remote, connection = index, "connected");
        }
        if self.first_connect.is_none() {
            self.first_connect = Some(Ok(()));
            for other in 0..self.connections.len() {
                self.open_if_due(other, transport, now);
            }
        }
        for xid in self.xids_of(Some(index)) {
            self.send(xid, conn, transport, now);
        }
    }

    /// Handles the end of a connection or attempt that this side did not choose.
    #[cold]
    pub(super) fn broken(
        &mut self,
        index: usize,
        lost: ConnectionLost,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        let no_server = lost.retry && self.has_no_server(index, &lost);
        // After a protocol error, `lost` fails the calls.
        let protocol_error = lost.was_established && !lost.retry;
        if !protocol_error && !self.connections[index].has_replied() {
            self.tell_shortfall(index, &lost, now);
            self.reassign_calls(index, lost.was_established, transport, now);
        }
        let reason = no_server.then(|| lost.reason.clone());
        self.lost(index, lost, now);
        if let Some(reason) = reason {
            self.unanswered(&reason, transport, now);
        }
    }

    /// Returns whether the end of a connection or attempt shows that there is no RPC server. A connection
    /// that ends without calls shows nothing: servers with too many connections close such ones.
    fn has_no_server(&mut self, index: usize, lost: &ConnectionLost) -> bool {
        if lost.was_established && !self.connections[index].has_calls() {
            return false;
        }
        // The reply may come on one that is still up. If none comes, there is a time limit for it.
        let mut connections = self.connections.iter().enumerate();
        let others_may_answer =
            connections.any(|(other, one)| other != index && one.has_calls() && one.up().is_some());
        let mut connections = self.connections.iter().enumerate();
        let another_is_up = connections.any(|(other, one)| other != index && one.up().is_some());
        let ended = lost.was_established;
        self.probe.connection_ended(ended, another_is_up) && !others_may_answer
    }

    /// Warns once if a connection cannot be made while others work: the server probably admits no more,
    /// and the user who asked for `nconnect` would wonder about the throughput.
    #[cold]
    fn tell_shortfall(&mut self, index: usize, lost: &ConnectionLost, now: Time) {
        let connection = &mut self.connections[index];
        if self.shortfall_told || !connection.is_refused(now) || !connection.refused() {
            return;
        }
        if self.connections.iter().any(Connection::has_replied) {
            self.shortfall_told = true;
            let (nconnect, reason) = (self.connections.len(), &lost.reason);
            tracing::warn!(server = %self.remote, nconnect, reason, "not all connections can be made: calls use those that work");
        }
    }

    /// Says that the server answers again, after the user was told that there was no connection.
    #[cold]
    pub(super) fn tell_end_of_outage(&self) {
        tracing::warn!(server = %self.remote, "the server answers again");
    }

    /// Moves the calls of a connection or attempt that ended without a reply to connections that work,
    /// if there are any. The server may be full: then every further attempt would end like this one,
    /// while the other connections go on.
    ///
    /// A call that makes the server drop connections must not end all of them again and again.
    /// Therefore a call moves from an established connection at most as often as there are other
    /// connections.
    #[cold]
    fn reassign_calls(
        &mut self,
        from: usize,
        was_established: bool,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        let mut to: Vec<_> = (0..self.connections.len())
            .filter(|&index| index != from && self.connections[index].has_replied())
            .collect();
        to.sort_by_key(|&index| self.connections[index].waiting);
        let mut to = to.into_iter().cycle();
        let most = self.connections.len() - 1;
        for xid in self.xids_of(Some(from)) {
            let Some(pending) = self.pending.get_mut(&xid) else {
                continue;
            };
            let Some(index) = to.next().filter(|_| pending.times_moved < most) else {
                continue;
            };
            // A call has no part in it if a connection could not be established.
            pending.times_moved += usize::from(was_established);
            pending.index = index;
            self.connections[from].release();
            self.connections[index].assign(now);
            if let Some(conn) = self.connections[index].up() {
                self.send(xid, conn, transport, now);
            }
        }
    }

    /// Gives up a peer that accepts connections and answers nothing: all calls end. A later call is
    /// tried on new connections.
    #[cold]
    pub(super) fn unanswered(
        &mut self,
        reason: &str,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        tracing::info!(server = %self.remote, reason, "the server accepts connections but answers no calls: all calls fail");
        let error = CallError::Unanswered {
            server: self.remote.to_string(),
            reason: reason.to_owned(),
        };
        for index in 0..self.connections.len() {
            if let Some(conn) = self.connections[index].conn() {
                transport.close(conn);
                self.lost(index, no_answer(reason.to_owned(), true), now);
            }
            self.fail(index, &error, now);
        }
    }

    /// Records that a connection or attempt has ended.
    pub(super) fn lost(&mut self, index: usize, lost: ConnectionLost, now: Time) {
        let ConnectionLost {
            reason,
            retry,
            busy,
            was_established,
        } = lost;
        self.connections[index].lost(reason.clone(), &self.options, now);
        if self.tracer.is_some() {
            for xid in self.xids_of(Some(index)) {
                self.trace(xid, Event::Waits(Wait::Connection));
            }
        }
        let again = busy && self.first_connect.is_none() && now < self.first_until;
        self.connections[index].try_again = again;
        if again {
            tracing::info!(server = %self.remote, reason, "no connection, still trying");
            return;
        }
        let trying = retry && self.connections[index].in_outage() && self.first_connect.is_some();
        // Logged so that the user of a hard mount knows why nothing happens.
        match trying.then(|| self.reminder.due(now)).flatten() {
            Some(Duration::ZERO) => {
                tracing::warn!(server = %self.remote, reason, "no connection, still trying");
            }
            Some(elapsed) => {
                let seconds = elapsed.as_secs();
                tracing::warn!(server = %self.remote, reason, "no connection for {seconds} s, still trying");
            }
            None => {
                tracing::info!(server = %self.remote, connection = index, reason, was_established, "no connection");
            }
        }
        if self.first_connect.is_none() {
            self.first_connect = Some(Err(self.connect_error(&reason)));
        } else if !retry && was_established {
            self.fail(index, &CallError::Protocol(reason), now);
        } else if !retry {
            self.fail(index, &self.connect_error(&reason), now);
        } else if self.connections[index].gives_up(&self.options, now) {
            self.give_up(index, now);
        }
    }

    fn give_up(&mut self, index: usize, now: Time) {
        let after = self.options.give_up_after;
        if self.connections[index].was_silent() {
            tracing::warn!(server = %self.remote, connection = index, ?after, "the server accepts connections and answers nothing: calls end");
            let server = self.remote.to_string();
            return self.fail(index, &CallError::TimedOut { server, after }, now);
        }
        let reason = match self.connections[index].reason.as_str() {
            "" => "no answer",
            reason => reason,
        };
        let reason = format!("{reason} (given up after {after:?})");
        tracing::warn!(server = %self.remote, connection = index, reason, "server out of reach: calls end");
        self.fail(index, &self.connect_error(&reason), now);
    }

    fn fail(&mut self, index: usize, error: &CallError, now: Time) {
        for xid in self.xids_of(Some(index)) {
            self.end(xid, Err(error.clone()), now);
        }
    }

    fn connect_error(&self, reason: &str) -> CallError {
        CallError::Connect {
            server: self.remote.to_string(),
            reason: reason.to_owned(),
        }
    }
}

/// Returns the reason of a connection that this side gives up because the peer is silent.
pub(super) fn no_answer(reason: String, was_established: bool) -> ConnectionLost {
    let retry = true;
    ConnectionLost {
        reason,
        retry,
        busy: false,
        was_established,
    }
}
