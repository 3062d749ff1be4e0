//! Establishing, losing and giving up a client's connections.

use rdma::Time;

use super::ClientState;
use super::lane::ConnectionState;
use crate::{CallError, ClientPort, ConnId, Down};

impl ClientState {
    /// Gives up attempts and outages that take too long, and connects where calls wait.
    pub(super) fn poll_connections(&mut self, port: &mut dyn ClientPort, now: Time) {
        for index in 0..self.connections.len() {
            match self.connections[index].state {
                ConnectionState::Connecting { conn, until } if until <= now => {
                    port.close(conn);
                    let reason = format!("no answer in {:?}", self.options.connect_timeout);
                    self.broken(index, no_answer(reason, false), port, now);
                }
                ConnectionState::Up { .. } => continue,
                _ => {}
            }
            if self.connections[index].gives_up(&self.options, now) {
                self.give_up(index);
            } else if self.connections[index].is_wanted() {
                self.open_if_due(index, port, now);
            }
        }
    }

    /// Returns the connection for a new call: the connected ones in turn or, if none is up, all in
    /// turn. Connections that were lost while idle are re-established on the way.
    pub(super) fn choose_connection(&mut self, port: &mut dyn ClientPort, now: Time) -> usize {
        let count = self.connections.len();
        let first = self.next_connection;
        let order = (first..count).chain(0..first);
        let mut chosen = None;
        for index in order {
            if self.connections[index].up().is_some() {
                chosen = chosen.or(Some(index));
            } else if matches!(self.first_connect, Some(Ok(()))) {
                self.open_if_due(index, port, now);
            }
        }
        let index = chosen.unwrap_or(first);
        self.next_connection = (index + 1) % count;
        index
    }

    /// Starts to connect, unless there is a connection or an attempt, or a back-off pause has not
    /// ended.
    pub(super) fn open_if_due(&mut self, index: usize, port: &mut dyn ClientPort, now: Time) {
        if self.connections[index].may_open(now) && !matches!(self.first_connect, Some(Err(_))) {
            self.open(index, port, now);
        }
    }

    #[cold]
    pub(super) fn open(&mut self, index: usize, port: &mut dyn ClientPort, now: Time) {
        let conn = port.open(self.remote, now);
        let until = now + self.options.connect_timeout;
        self.connections[index].state = ConnectionState::Connecting { conn, until };
    }

    /// Returns the index of the connection with the port's id `conn`, or `None` if it was given up.
    pub(super) fn index_of(&self, conn: ConnId) -> Option<usize> {
        self.connections
            .iter()
            .position(|connection| connection.conn() == Some(conn))
    }

    /// Handles an established connection: sends the calls that wait for it.
    #[cold]
    pub(super) fn up(&mut self, conn: ConnId, port: &mut dyn ClientPort, now: Time) {
        // sim/planted/pending-call.patch names this variable.
        let Some(lane) = self.index_of(conn) else {
            return;
        };
        self.connections[lane].state = ConnectionState::Up { conn };
        if std::mem::replace(&mut self.connections[lane].was_up, true) {
            self.stats.reconnects += 1;
            tracing::info!(server = %self.remote, connection = lane, "connected again");
        } else {
            tracing::info!(server = %self.remote, connection = lane, "connected");
        }
        if self.first_connect.is_none() {
            self.first_connect = Some(Ok(()));
            for other in 0..self.connections.len() {
                self.open_if_due(other, port, now);
            }
        }
        for xid in self.xids_of(Some(lane)) {
            self.send(xid, conn, port, now);
        }
    }

    /// Handles the end of a connection or attempt that this side did not choose.
    #[cold]
    pub(super) fn broken(
        &mut self,
        index: usize,
        down: Down,
        port: &mut dyn ClientPort,
        now: Time,
    ) {
        let no_server = down.retry && self.probe.connection_ended(down.was_up);
        let reason = no_server.then(|| down.reason.clone());
        self.lost(index, down, now);
        if let Some(reason) = reason {
            self.unanswered(&reason, port, now);
        }
    }

    /// Gives up a peer that accepts connections and answers nothing: all calls end. A later call is
    /// tried on new connections.
    #[cold]
    pub(super) fn unanswered(&mut self, reason: &str, port: &mut dyn ClientPort, now: Time) {
        tracing::info!(server = %self.remote, reason, "the server accepts connections but answers no calls: all calls fail");
        let error = CallError::Unanswered {
            server: self.remote.to_string(),
            reason: reason.to_owned(),
        };
        for index in 0..self.connections.len() {
            if let Some(conn) = self.connections[index].conn() {
                port.close(conn);
                self.lost(index, no_answer(reason.to_owned(), true), now);
            }
            self.fail(index, &error);
        }
    }

    /// Records that a connection or attempt has ended.
    pub(super) fn lost(&mut self, index: usize, down: Down, now: Time) {
        let Down {
            reason,
            retry,
            was_up,
        } = down;
        let known = self.connections[index].in_outage();
        self.connections[index].lost(reason.clone(), &self.options, now);
        if retry && !known && self.connections[index].in_outage() && self.first_connect.is_some() {
            // Logged so that the user of a hard mount knows why nothing happens.
            tracing::warn!(server = %self.remote, reason, "no connection, still trying");
        } else {
            tracing::info!(server = %self.remote, connection = index, reason, was_up, "no connection");
        }
        if self.first_connect.is_none() {
            self.first_connect = Some(Err(self.connect_error(&reason)));
        } else if !retry && was_up {
            self.fail(index, &CallError::Protocol(reason));
        } else if !retry {
            self.fail(index, &self.connect_error(&reason));
        } else if self.connections[index].gives_up(&self.options, now) {
            self.give_up(index);
        }
    }

    fn give_up(&mut self, index: usize) {
        let reason = match self.connections[index].reason.as_str() {
            "" => "no answer",
            reason => reason,
        };
        let reason = format!("{reason} (given up after {:?})", self.options.give_up_after);
        tracing::warn!(server = %self.remote, connection = index, reason, "server out of reach: calls end");
        self.fail(index, &self.connect_error(&reason));
    }

    fn fail(&mut self, index: usize, error: &CallError) {
        for xid in self.xids_of(Some(index)) {
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

/// Returns the reason of a connection that this side gives up because the peer is silent.
pub(super) fn no_answer(reason: String, was_up: bool) -> Down {
    let retry = true;
    Down {
        reason,
        retry,
        was_up,
    }
}
