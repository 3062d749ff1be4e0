//! The server of a run with relays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdma::Time;
use rdma_sim::{Fabric, NodeId, Random};
use rpc_transport::rdma::RdmaServer;
use rpc_transport::{ConnectionId, PollSource, ServerTransport, ServerTransportEvent};

use super::calls::Exchange;
use crate::server::STEPS;

/// The numbers of a client and of one of its calls.
pub(super) type CallOf = (usize, usize);

/// A call that the server has received.
#[derive(Clone, Copy)]
struct Received {
    conn: ConnectionId,
    token: u64,
    call: CallOf,
}

/// An open connection.
#[derive(Default)]
struct Connection {
    /// The client whose calls come by it.
    client: Option<usize>,
    /// The indexes of the calls that have come by it.
    arrived: BTreeSet<usize>,
    /// The indexes of the calls whose replies were sent.
    given: BTreeSet<usize>,
    is_finishing: bool,
}

/// A server that answers each call after a while.
pub(super) struct Answerer {
    pub(super) node: NodeId,
    port: RdmaServer,
    /// The calls of each client.
    exchanges: Vec<Vec<Exchange>>,
    random: Random,
    longest: Duration,
    received: Vec<Received>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Number of arrivals of each call.
    arrived: BTreeMap<CallOf, u64>,
    /// The calls that were answered, on whichever connection.
    executed: BTreeSet<CallOf>,
    /// Calls that are to be answered at a time, by their places in `received`, until somebody takes them.
    pub(super) due: Vec<(Time, usize)>,
    /// Violations found, not yet reported.
    pub(super) wrong: Vec<String>,
}

impl Answerer {
    pub(super) fn new(
        node: NodeId,
        port: RdmaServer,
        exchanges: Vec<Vec<Exchange>>,
        random: Random,
        longest: Duration,
    ) -> Self {
        Self {
            node,
            port,
            exchanges,
            random,
            longest,
            received: Vec::new(),
            connections: BTreeMap::new(),
            arrived: BTreeMap::new(),
            executed: BTreeSet::new(),
            due: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Returns whether a call was answered, on whichever connection.
    pub(super) fn has_executed(&self, call: CallOf) -> bool {
        self.executed.contains(&call)
    }

    /// Returns how often each call has arrived.
    pub(super) fn arrived(&self) -> &BTreeMap<CallOf, u64> {
        &self.arrived
    }

    /// Answers a call, unless its connection has ended or is ending.
    pub(super) fn answer(&mut self, at: usize, fabric: &Fabric) {
        let Received { conn, token, call } = self.received[at];
        let connection = self.connections.get_mut(&conn);
        if let Some(connection) = connection.filter(|it| !it.is_finishing) {
            let (client, index) = call;
            connection.given.insert(index);
            self.executed.insert(call);
            let reply = self.exchanges[client][index].reply();
            self.port.reply(conn, token, Some(reply), fabric.now());
            fabric.turn_at(self.node, fabric.now());
        }
    }

    /// Closes every connection gracefully: the replies that were made leave first. Returns the client of each
    /// that was not being closed already, with the indexes of its calls that were answered on it.
    pub(super) fn finish(&mut self, fabric: &Fabric) -> Vec<(usize, BTreeSet<usize>)> {
        let mut given = Vec::new();
        for connection in self.connections.values_mut() {
            let was_finishing = std::mem::replace(&mut connection.is_finishing, true);
            if let Some(client) = connection.client.filter(|_| !was_finishing) {
                given.push((client, connection.given.clone()));
            }
        }
        fabric.turn_at(self.node, fabric.now());
        given
    }

    pub(super) fn turn(&mut self, fabric: &Fabric) {
        let now = fabric.now();
        for _ in 0..STEPS {
            let mut progress = self.port.poll(now);
            while let Some(event) = self.port.next_event() {
                progress = true;
                self.handle(event, now);
            }
            let finishing = self.connections.iter().filter(|(_, it)| it.is_finishing);
            for (&conn, _) in finishing {
                self.port.finish(conn, now);
            }
            if progress {
                self.port.flush();
            } else if self.port.arm() {
                if let Some(at) = self.port.next_deadline() {
                    fabric.turn_at(self.node, at);
                }
                return;
            }
        }
        fabric.turn_at(self.node, now);
    }

    fn handle(&mut self, event: ServerTransportEvent, now: Time) {
        match event {
            ServerTransportEvent::Connected { conn, .. } => {
                self.connections.insert(conn, Connection::default());
            }
            ServerTransportEvent::Call {
                conn,
                token,
                message,
            } => {
                let origin = Exchange::origin(&message);
                let exchange = origin.and_then(|(client, index)| {
                    let exchange = self.exchanges.get(client)?.get(index)?;
                    Some(((client, index), exchange))
                });
                let Some((call, exchange)) = exchange else {
                    return self.wrong.push("a call that no client has made".to_owned());
                };
                if !exchange.is_call(&message) {
                    self.wrong.push(format!("call {call:?} was changed"));
                }
                self.arrived_on(conn, call);
                *self.arrived.entry(call).or_default() += 1;
                let at = now + self.random.duration(self.longest);
                self.due.push((at, self.received.len()));
                self.received.push(Received { conn, token, call });
            }
            ServerTransportEvent::Disconnected { conn, .. } => {
                self.connections.remove(&conn);
            }
            ServerTransportEvent::Reply { .. } | ServerTransportEvent::Failed { .. } => {
                self.wrong
                    .push("a reply, and nothing was called".to_owned());
            }
            ServerTransportEvent::Lost { reason } => self.wrong.push(reason),
        }
    }

    /// Checks that a connection has the calls of one client, each once.
    fn arrived_on(&mut self, conn: ConnectionId, (client, index): CallOf) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return self
                .wrong
                .push("a call of a connection that has ended".to_owned());
        };
        let owner = *connection.client.get_or_insert(client);
        if owner != client {
            let what = format!("a call of client {client} on the connection of client {owner}");
            self.wrong.push(what);
        }
        if !connection.arrived.insert(index) {
            let what = format!("call {index} of client {client} twice on one connection");
            self.wrong.push(what);
        }
    }
}
