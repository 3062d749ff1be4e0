//! The server of a run with relays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onc_rpc::Message;
use rdma::Time;
use rdma_sim::{Fabric, NodeId, Random};
use rpc_transport::{CallError, ConnectionId, ServerTransport, ServerTransportEvent};

use super::callbacks::Called;
use super::calls::{Exchange, is_system_error};
use crate::server::STEPS;

/// The time that replies, and replies of clients to calls, have when the server closes a connection gracefully.
const LINGER: Duration = Duration::from_secs(10);

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
    /// The time by which it has to have ended, once it is being closed gracefully.
    until: Option<Time>,
}

/// The rules of the server.
pub(super) struct Rules {
    /// The maximum time that it takes for a call.
    pub(super) longest: Duration,
    /// Whether a client may make a call again on the same connection, as the relay has refused it.
    pub(super) may_be_refused: bool,
    /// Whether a call to a client may fail.
    pub(super) may_fail: bool,
}

/// A server that answers each call after a while.
pub(super) struct Answerer {
    pub(super) node: NodeId,
    port: Box<dyn ServerTransport>,
    rules: Rules,
    /// Its calls to clients, if it makes any.
    pub(super) called: Option<Called>,
    /// The calls of each client.
    exchanges: Vec<Vec<Exchange>>,
    random: Random,
    received: Vec<Received>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Number of arrivals of each call.
    arrived: BTreeMap<CallOf, u64>,
    /// The calls that were answered, on whichever connection.
    executed: BTreeSet<CallOf>,
    /// Calls that are to be answered at a time, by their places in `received`, until somebody takes them.
    pub(super) due: Vec<(Time, usize)>,
    /// Calls whose clients are to be called at a time, by their places in `received`, until somebody takes them.
    pub(super) due_calls: Vec<(Time, usize)>,
    /// Violations found, not yet reported.
    pub(super) wrong: Vec<String>,
}

impl Answerer {
    pub(super) fn new(
        node: NodeId,
        port: Box<dyn ServerTransport>,
        exchanges: Vec<Vec<Exchange>>,
        random: Random,
        (rules, called): (Rules, Option<Called>),
    ) -> Self {
        Self {
            node,
            port,
            rules,
            called,
            exchanges,
            random,
            received: Vec::new(),
            connections: BTreeMap::new(),
            arrived: BTreeMap::new(),
            executed: BTreeSet::new(),
            due: Vec::new(),
            due_calls: Vec::new(),
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
        if let Some(connection) = connection.filter(|it| it.until.is_none()) {
            let (client, index) = call;
            connection.given.insert(index);
            self.executed.insert(call);
            let reply = self.exchanges[client][index].reply();
            self.port.reply(conn, token, Some(reply), fabric.now());
            fabric.turn_at(self.node, fabric.now());
        }
    }

    /// Returns whether no call to a client is waited for.
    pub(super) fn is_settled(&self) -> bool {
        self.called
            .as_ref()
            .is_none_or(|called| !called.is_waiting())
    }

    /// Calls the client of a call that has arrived, unless its connection has ended or is ending.
    pub(super) fn call_client(&mut self, at: usize, fabric: &Fabric) {
        let Received { conn, call, .. } = self.received[at];
        let connection = self.connections.get(&conn);
        let is_open = connection.is_some_and(|it| it.until.is_none());
        let Some(called) = self.called.as_mut().filter(|_| is_open) else {
            return;
        };
        let Some(exchange) = called.call(conn, call.0) else {
            return;
        };
        let (xid, now) = (exchange.xid, fabric.now());
        let (message, room) = (exchange.call(0), exchange.room(0));
        if let Err(error) = self.port.call(conn, xid, message, &room, now) {
            called.end(conn, xid);
            if !self.rules.may_fail {
                let what = format!("cannot call client {}: {error}", call.0);
                self.wrong.push(what);
            }
        }
        fabric.turn_at(self.node, now);
    }

    /// Handles the end of a call to a client.
    fn called_back(&mut self, conn: ConnectionId, xid: u32, reply: Result<&Message, &CallError>) {
        let exchange = self
            .called
            .as_mut()
            .and_then(|called| called.end(conn, xid));
        let Some(exchange) = exchange else {
            let what = format!("the end of callback {xid:#x}, which was not made");
            return self.wrong.push(what);
        };
        match reply {
            Ok(reply) if exchange.is_reply(reply) => {
                if let Some(called) = &mut self.called {
                    called.answered += 1;
                }
            }
            Ok(reply) if self.rules.may_fail && is_system_error(reply) => {}
            Ok(_) => self
                .wrong
                .push(format!("another reply to callback {xid:#x}")),
            Err(_) if self.rules.may_fail => {}
            Err(error) => {
                let what = format!("callback {xid:#x} failed: {error}");
                self.wrong.push(what);
            }
        }
    }

    /// Closes every connection gracefully: the replies that were made leave first. Returns the client of each
    /// that was not being closed already, with the indexes of its calls that were answered on it.
    pub(super) fn finish(&mut self, fabric: &Fabric) -> Vec<(usize, BTreeSet<usize>)> {
        let (mut given, until) = (Vec::new(), fabric.now() + LINGER);
        for connection in self.connections.values_mut() {
            if connection.until.is_some() {
                continue;
            }
            connection.until = Some(until);
            if let Some(client) = connection.client {
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
            self.finish_connections(now);
            if progress {
                self.port.flush();
            } else if self.port.arm() {
                let ends = self.connections.values().filter_map(|it| it.until);
                if let Some(at) = self.port.next_deadline().into_iter().chain(ends).min() {
                    fabric.turn_at(self.node, at);
                }
                return;
            }
        }
        fabric.turn_at(self.node, now);
    }

    /// Goes on with closing connections, and ends those that have taken too long.
    fn finish_connections(&mut self, now: Time) {
        let finishing = |(conn, it): (&ConnectionId, &Connection)| Some((*conn, it.until?));
        let finishing: Vec<_> = self.connections.iter().filter_map(finishing).collect();
        for (conn, until) in finishing {
            if until > now {
                self.port.finish(conn, now);
                continue;
            }
            self.port.close(conn);
            self.connections.remove(&conn);
            if let Some(called) = &mut self.called {
                called.disconnected(conn);
            }
        }
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
                let after = |random: &mut Random| now + random.duration(self.rules.longest);
                self.due
                    .push((after(&mut self.random), self.received.len()));
                if self.called.is_some() && self.random.below(2) == 0 {
                    let at = after(&mut self.random);
                    self.due_calls.push((at, self.received.len()));
                }
                self.received.push(Received { conn, token, call });
            }
            ServerTransportEvent::Disconnected { conn, .. } => {
                self.connections.remove(&conn);
                if let Some(called) = &mut self.called {
                    called.disconnected(conn);
                }
            }
            ServerTransportEvent::Reply { conn, xid, message } => {
                self.called_back(conn, xid, Ok(&message));
            }
            ServerTransportEvent::Failed { conn, xid, error } => {
                self.called_back(conn, xid, Err(&error));
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
        if !connection.arrived.insert(index) && !self.rules.may_be_refused {
            let what = format!("call {index} of client {client} twice on one connection");
            self.wrong.push(what);
        }
    }
}
