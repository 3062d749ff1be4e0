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
    /// Whether a relay may refuse a call: a client then makes it again on the same connection, and one to a client has
    /// failed.
    pub(super) may_be_refused: bool,
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
    /// The connections that were open when a call to their client failed, with the reason: each has to end.
    pub(super) doubtful: BTreeMap<ConnectionId, String>,
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
            doubtful: BTreeMap::new(),
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
            self.doubt(conn, format!("cannot call client {}: {error}", call.0));
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
            Ok(reply) if is_system_error(reply) => {
                self.doubt(conn, format!("SYSTEM_ERR to callback {xid:#x}"));
            }
            Ok(_) => self
                .wrong
                .push(format!("another reply to callback {xid:#x}")),
            Err(error) => self.doubt(conn, format!("callback {xid:#x} failed: {error}")),
        }
    }

    /// Records the failure of a call to a client. The server may learn of the end of the connection only after it.
    fn doubt(&mut self, conn: ConnectionId, what: String) {
        let connection = self.connections.get(&conn);
        let is_open = connection.is_some_and(|it| it.until.is_none());
        if is_open && !self.rules.may_be_refused {
            self.doubtful.entry(conn).or_insert(what);
        }
    }

    /// Records the end of a connection.
    fn ended(&mut self, conn: ConnectionId) {
        self.connections.remove(&conn);
        self.doubtful.remove(&conn);
        if let Some(called) = &mut self.called {
            called.disconnected(conn);
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
            self.ended(conn);
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
            ServerTransportEvent::Disconnected { conn, .. } => self.ended(conn),
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::SocketAddr;
    use std::rc::Rc;

    use onc_rpc::{Encoder, REPLY};
    use rdma::Pool;
    use rdma_sim::{Costs, Faults, Host};
    use rpc_transport::{ClientTransport, ClientTransportEvent, PollSource};
    use rpcrdma_host::Budget;

    use super::super::callbacks::Callbacks;
    use super::super::stream::Network;
    use super::super::stream_client::StreamClient;
    use super::super::stream_server::StreamServer;
    use super::*;
    use crate::journal::{Conditions, Journal};

    /// A server, and a client that has made a call over TCP.
    struct Ends {
        fabric: Fabric,
        server: Answerer,
        client: StreamClient,
        node: NodeId,
        conn: ConnectionId,
        /// The tokens of the server's calls that have arrived at the client.
        called: Vec<u64>,
    }

    fn connected(may_be_refused: bool) -> Ends {
        let fabric = Fabric::new(1, Costs::default(), Faults::default());
        let addresses: [SocketAddr; 2] = [1, 2].map(|host| ([10, 0, 0, host], 2049).into());
        let [server, node] = addresses.map(|address| {
            let host = Host {
                address,
                attributes: rdma_sim::attributes(),
                pool: Pool::new(1 << 20),
                interrupt: Duration::ZERO,
            };
            fabric.host(host).unwrap().node()
        });
        let conditions = Conditions {
            loops: 0,
            calm: true,
            offers: true,
            impatient: false,
            first_message: 0,
            speaks_wg: false,
        };
        let journal = Rc::new(RefCell::new(Journal::new(false, conditions)));
        let delays = (Duration::from_micros(1), Duration::ZERO);
        let network = Network::new(&fabric, &journal, delays, Random::new(1));
        let pool = Pool::new(1 << 20);
        let [to, from] = addresses;
        let memory = (pool.clone(), Budget::default());
        let port = StreamServer::listen(&network, (server, to), memory);
        let exchange = Exchange::nth(0, 0, false, &mut Random::new(1));
        let rules = Rules {
            longest: Duration::ZERO,
            may_be_refused,
        };
        let called = Called::new(Callbacks::new(Random::new(2)));
        let rules = (rules, Some(called));
        let exchanges = vec![vec![exchange]];
        let server = Answerer::new(server, Box::new(port), exchanges, Random::new(3), rules);
        let mut client = StreamClient::new(&network, node, from, pool);
        let conn = client.open(to, 1, Time::ZERO);
        let (call, room) = (exchange.call(1), exchange.room(1));
        client.submit(conn, exchange.xid, call, &room, Time::ZERO);
        let mut ends = Ends {
            fabric,
            server,
            client,
            node,
            conn,
            called: Vec::new(),
        };
        ends.settle();
        ends
    }

    impl Ends {
        /// Lets everything arrive that is on its way.
        fn settle(&mut self) {
            let until = self.fabric.now() + Duration::from_millis(1);
            while self.fabric.next(until).is_some() {
                self.server.turn(&self.fabric);
                while let Some(event) = self.client.next_event() {
                    if let ClientTransportEvent::Call { token, .. } = event {
                        self.called.push(token);
                    }
                }
                if let Some(at) = self.client.next_deadline() {
                    self.fabric.turn_at(self.node, at);
                }
            }
            assert_eq!(self.server.wrong, [""; 0]);
        }

        /// Has the server call the client, whose answer is SYSTEM_ERR.
        fn fail(&mut self) {
            self.server.call_client(0, &self.fabric);
            self.settle();
            let token = self.called.pop().unwrap();
            let mut refusal = Encoder::new();
            refusal.u32(token as u32).u32(REPLY);
            refusal.u32(0).u32(0).u32(0).u32(5);
            let now = self.fabric.now();
            self.client
                .reply(self.conn, token, Some(refusal.finish()), now);
            self.settle();
            assert!(self.server.is_settled());
        }
    }

    #[test]
    fn a_connection_on_which_a_call_to_a_client_has_failed_must_end() {
        let mut ends = connected(false);
        ends.fail();
        assert_eq!(ends.server.doubtful.len(), 1);
        ends.client.close(ends.conn);
        ends.settle();
        assert!(ends.server.doubtful.is_empty());
    }

    #[test]
    fn relays_without_memory_refuse_calls_to_clients() {
        let mut ends = connected(true);
        ends.fail();
        assert!(ends.server.doubtful.is_empty());
    }
}
