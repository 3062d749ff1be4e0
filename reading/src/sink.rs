//! Receivers of what is read.

use crate::call::{At, Call, Connection, ConnectionId, Message};
use crate::rules::Breach;
use rpcrdma_chunks::Side;

/// Receives what a capture shows, in the order in which it is known: a call when it has ended, so
/// that a reader holds no more than the calls in progress.
pub trait Sink {
    /// A connection carries RPC-over-RDMA, or more is known of it than before.
    fn connection(&mut self, connection: &Connection) {
        let _ = connection;
    }

    /// A call has ended.
    fn call(&mut self, connection: &Connection, call: Call) {
        let _ = (connection, call);
    }

    /// A message that belongs to no call: properties, grants, what cannot be decoded.
    fn other(&mut self, connection: &Connection, message: Message) {
        let _ = (connection, message);
    }

    /// A whole Send, with its octets and its last packet, after whatever it belongs to was told.
    fn sent(&mut self, connection: &Connection, from: Side, at: At, octets: &[u8]) {
        let _ = (connection, from, at, octets);
    }

    /// A rule is broken.
    fn breach(&mut self, connection: &Connection, breach: Breach) {
        let _ = (connection, breach);
    }

    /// Part of a connection cannot be read.
    fn lost(&mut self, connection: &Connection, lost: Lost) {
        let _ = (connection, lost);
    }
}

/// A part of a connection that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The first packet that can be read again, or the last one before the end.
    pub at: At,
    /// The reason.
    pub reason: String,
}

/// All that a capture shows, up to a number of calls.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The connections, by their numbers.
    pub connections: Vec<Connection>,
    /// The calls, in the order of their ends.
    pub calls: Vec<Call>,
    /// The messages that belong to no call.
    pub others: Vec<(ConnectionId, Message)>,
    /// The rules that are broken.
    pub breaches: Vec<Breach>,
    /// The parts that cannot be read.
    pub lost: Vec<(ConnectionId, Lost)>,
    /// Number of calls, messages and breaches that were left out.
    pub left_out: u64,
    limit: usize,
}

impl Collected {
    /// Collects up to `limit` elements in each list.
    #[must_use]
    pub fn up_to(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    fn room(&mut self, len: usize) -> bool {
        let room = len < self.limit;
        self.left_out += u64::from(!room);
        room
    }
}

impl Sink for Collected {
    fn connection(&mut self, connection: &Connection) {
        let index = connection.id.0 as usize;
        match self.connections.get_mut(index) {
            Some(known) => *known = connection.clone(),
            // They come in the order of their numbers.
            None => self.connections.push(connection.clone()),
        }
    }

    fn call(&mut self, _: &Connection, call: Call) {
        if self.room(self.calls.len()) {
            self.calls.push(call);
        }
    }

    fn other(&mut self, connection: &Connection, message: Message) {
        if self.room(self.others.len()) {
            self.others.push((connection.id, message));
        }
    }

    fn breach(&mut self, _: &Connection, breach: Breach) {
        if self.room(self.breaches.len()) {
            self.breaches.push(breach);
        }
    }

    fn lost(&mut self, connection: &Connection, lost: Lost) {
        if self.room(self.lost.len()) {
            self.lost.push((connection.id, lost));
        }
    }
}
