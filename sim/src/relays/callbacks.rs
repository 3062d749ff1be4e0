//! Calls of the server to clients, each made once on one connection.

use std::collections::BTreeMap;

use rdma_sim::Random;
use rpc_transport::ConnectionId;

use super::calls::Exchange;

/// The maximum number of calls on a connection that are not answered.
const MOST_OUTSTANDING: usize = 4;

/// The content of all calls to clients, which both ends know.
#[derive(Clone)]
pub(super) struct Callbacks {
    random: Random,
}

impl Callbacks {
    pub(super) fn new(random: Random) -> Self {
        Self { random }
    }

    /// Returns the call with this index to a client.
    pub(super) fn nth(&self, client: usize, index: usize) -> Exchange {
        let mut random = self.random.split((client as u64) << 32 | index as u64);
        Exchange::callback(client, index, &mut random)
    }
}

/// The calls that the server makes.
pub(super) struct Called {
    pub(super) callbacks: Callbacks,
    /// The number of calls to each client.
    made: BTreeMap<usize, usize>,
    /// The calls of each connection that are not answered: XID, client and index.
    outstanding: BTreeMap<ConnectionId, BTreeMap<u32, (usize, usize)>>,
    /// The number of calls that were answered.
    pub(super) answered: u64,
}

impl Called {
    pub(super) fn new(callbacks: Callbacks) -> Self {
        Self {
            callbacks,
            made: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            answered: 0,
        }
    }

    /// Returns the number of calls to a client.
    pub(super) fn made(&self, client: usize) -> usize {
        self.made.get(&client).copied().unwrap_or_default()
    }

    /// Returns whether a call is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.outstanding.values().any(|calls| !calls.is_empty())
    }

    /// Records a call on a client's connection, and returns it. `None` if enough are outstanding there.
    pub(super) fn call(&mut self, conn: ConnectionId, client: usize) -> Option<Exchange> {
        let outstanding = self.outstanding.entry(conn).or_default();
        if outstanding.len() >= MOST_OUTSTANDING {
            return None;
        }
        let made = self.made.entry(client).or_default();
        let index = *made;
        *made += 1;
        let exchange = self.callbacks.nth(client, index);
        outstanding.insert(exchange.xid, (client, index));
        Some(exchange)
    }

    /// Records the end of a call. Returns it, or `None` if there was none with this XID on the connection.
    pub(super) fn end(&mut self, conn: ConnectionId, xid: u32) -> Option<Exchange> {
        let (client, index) = self.outstanding.get_mut(&conn)?.remove(&xid)?;
        Some(self.callbacks.nth(client, index))
    }

    /// Records the end of a connection, and of its calls with it.
    pub(super) fn disconnected(&mut self, conn: ConnectionId) {
        self.outstanding.remove(&conn);
    }
}
