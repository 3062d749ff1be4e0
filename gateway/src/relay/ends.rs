//! The beginning and the end of pairs.

use std::net::SocketAddr;
use std::time::Duration;

use rdma::{Carrier, Time};
use rpc_transport::ConnectionId;

use super::Relay;
use crate::outgoing::Origin;
use crate::pair::Pair;
use crate::reduction::Reducer;
use crate::traced::Traced;

/// The time that a reply to the server has to leave before the connection to it is closed.
const REPLY_LEAVES: Duration = Duration::from_secs(1);

impl Relay {
    /// Connects to the server for a client that has connected.
    pub(super) fn connected(
        &mut self,
        (transport, conn): (usize, ConnectionId),
        address: SocketAddr,
        now: Time,
    ) {
        if self.draining {
            return self.incoming[transport].borrow_mut().close(conn);
        }
        let (account, is_rdma, carrier) = {
            let transport = self.incoming[transport].borrow();
            let account = transport.pool(conn).account().cloned();
            (account, transport.is_rdma(), transport.carrier(conn))
        };
        let origin = Origin {
            address,
            is_rdma,
            may_reserve: self.options.reserved_ports,
        };
        let ends = match carrier {
            Carrier::Tcp { local, peer } if !is_rdma => Some((local, peer)),
            _ => None,
        };
        if let Some(&earlier) = ends.and_then(|ends| self.by_ends.get(&ends)) {
            // Its earlier connection has ended, or it could not have another one from the same port. What
            // is left of that pair has the port by which the server knows the client.
            self.close_pair(earlier);
        }
        if !self.make_room(address, now) {
            self.stats.full += 1;
            rpcrdma_host::limited!(warn, client = %address, "no room for another client");
            return self.incoming[transport].borrow_mut().close(conn);
        }
        tracing::info!(client = %address, "client connected");
        self.stats.clients += 1;
        let reducer = Reducer::new(self.options.reducer);
        let mut pair = Pair::new((transport, conn), origin, reducer, account, now);
        let mut outgoing = self.outgoing.borrow_mut();
        if let Some(trace) = &self.options.trace {
            let incoming = self.incoming[transport].borrow();
            let to = (self.options.server, !outgoing.traces_calls_of_server());
            pair.traced = Traced::new(Some(trace), &*incoming, (conn, address), to);
            outgoing.set_tracer(pair.traced.of_server());
        }
        let server = outgoing.open_for(self.options.server, origin, now);
        pair.server = Some(server);
        pair.ends = ends;
        let key = self.pairs.insert(pair);
        self.by_client[transport].insert(conn, key);
        self.by_server.insert(server, key);
        if let Some(ends) = ends {
            self.by_ends.insert(ends, key);
        }
    }

    /// Closes a pair for a client at this address if there are as many as may be. Returns whether there is
    /// room for it.
    fn make_room(&mut self, address: SocketAddr, now: Time) -> bool {
        if self.pairs.len() < self.options.max_pairs {
            return true;
        }
        let idle = self.pairs.iter().filter(|(_, pair)| !pair.is_busy());
        // Where the client is gone, its last calls may still be in progress.
        let rank = |pair: &Pair| (pair.client.is_none(), pair.has_called, pair.used);
        let Some((first, pair)) = idle.min_by_key(|(_, pair)| rank(pair)) else {
            return false;
        };
        let is_fresh = now.since(pair.used) < self.options.fresh;
        if is_fresh && pair.address().ip() == address.ip() {
            return false;
        }
        tracing::info!(client = %pair.address(), "closing an idle client's connection to make room for another");
        self.stats.replaced += 1;
        self.close_pair(first);
        true
    }

    /// Records that the connection to the server is established.
    pub(super) fn reached(&mut self, conn: ConnectionId) {
        let Some(&key) = self.by_server.get(&conn) else {
            return;
        };
        self.pairs[key].traced.reached();
        let (client, server) = (self.pairs[key].address(), self.options.server);
        match self.outgoing.borrow().local_address(conn) {
            Some(local) => {
                let port = local.port();
                let kept = port == client.port();
                tracing::info!(%client, %server, port, kept, "connected to the server");
            }
            None => tracing::info!(%client, %server, "connected to the server"),
        }
    }

    /// Handles the end of a client's connection. What it has asked for is still passed on and waited for,
    /// so that the server has its answer if the client returns.
    pub(super) fn client_gone(&mut self, at: (usize, ConnectionId), reason: &str, now: Time) {
        let (transport, conn) = at;
        let Some(key) = self.by_client[transport].remove(&conn) else {
            return;
        };
        let pair = &mut self.pairs[key];
        tracing::info!(client = %pair.address(), reason, "client gone");
        pair.client = None;
        pair.until = Some(now + self.options.linger);
        let unanswered = pair.end_backward();
        if let Some(server) = pair.server {
            let mut outgoing = self.outgoing.borrow_mut();
            for token in unanswered.into_iter().flat_map(|(_, tokens)| tokens) {
                outgoing.reply(server, token, None, now);
            }
        }
        self.set_timer(key);
        self.close_if_done(key, now);
    }

    /// Handles the end of the connection to the server, or the failure to establish it.
    pub(super) fn server_gone(&mut self, conn: ConnectionId, reason: &str, now: Time) {
        let Some(key) = self.by_server.remove(&conn) else {
            return;
        };
        let pair = &mut self.pairs[key];
        tracing::info!(client = %pair.address(), server = %self.options.server, reason, "server gone");
        pair.server = None;
        self.finish_client(key, now);
    }

    /// Closes the connection to the server, and then the client's.
    pub(super) fn leave_server(&mut self, key: usize, reason: &str, now: Time) {
        let pair = &mut self.pairs[key];
        rpcrdma_host::limited!(warn, client = %pair.address(), reason, "closing the connection to the server");
        if let Some(server) = pair.server.take() {
            self.by_server.remove(&server);
            self.outgoing.borrow_mut().close(server);
        }
        self.finish_client(key, now);
    }

    /// Closes a client's connection, because of what it has sent, and then the one to the server.
    pub(super) fn refuse_client(&mut self, key: usize, reason: &str, now: Time) {
        let pair = &self.pairs[key];
        let (transport, client) = (pair.transport, pair.client);
        rpcrdma_host::limited!(warn, client = %pair.address(), reason, "closing the client's connection");
        if let Some(conn) = client {
            self.incoming[transport].borrow_mut().close(conn);
            self.client_gone((transport, conn), reason, now);
        }
    }

    /// Closes the connection of a client whose server is gone, once its replies have left. Its unanswered
    /// calls end with that.
    fn finish_client(&mut self, key: usize, now: Time) {
        let pair = &mut self.pairs[key];
        pair.release_all();
        // The client's replies to calls of the server are dropped when they come. The calls are not cancelled: an RDMA
        // Write into the memory that they offered would be refused, and end the connection with replies on their way.
        // `ServerTransport::finish` cancels those that were not sent, and waits for those with memory alone.
        pair.end_backward();
        let tokens = pair.end_forward();
        let Some(client) = pair.client else {
            return self.remove(key);
        };
        pair.until = Some(now + self.options.linger);
        let mut transport = self.incoming[pair.transport].borrow_mut();
        for token in tokens {
            transport.reply(client, token, None, now);
        }
        drop(transport);
        self.finishing.push(key);
        self.set_timer(key);
    }

    /// Goes on with closing clients' connections, each when its last reply has left.
    pub(super) fn finish_clients(&mut self, now: Time) {
        let draining = self.draining;
        let is_finishing = |pair: &Pair| pair.server.is_none() || (draining && pair.has_answered());
        if draining {
            let answered = self.pairs.iter().filter(|(_, pair)| is_finishing(pair));
            self.finishing = answered.map(|(key, _)| key).collect();
        }
        let (pairs, incoming) = (&self.pairs, &self.incoming);
        self.finishing.retain(|&key| {
            let pair = pairs.get(key).filter(|pair| is_finishing(pair));
            let client = pair.and_then(|pair| Some((pair.transport, pair.client?)));
            if let Some((transport, client)) = client {
                incoming[transport].borrow_mut().finish(client, now);
            }
            client.is_some()
        });
    }

    /// Closes the connection to the server of a client that is gone once all of its calls are answered.
    pub(super) fn close_if_done(&mut self, key: usize, now: Time) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        if pair.client.is_some() || !pair.has_answered() {
            return;
        }
        match pair.replied_to_server && pair.server.is_some() {
            // It may not have left yet.
            true => {
                pair.replied_to_server = false;
                pair.until = Some(now + REPLY_LEAVES);
                self.set_timer(key);
            }
            false => self.remove(key),
        }
    }

    /// Handles the time-out of a pair.
    pub(super) fn due(&mut self, key: usize, now: Time) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        pair.timer = None;
        if pair.until.is_none_or(|until| until > now) {
            return self.leave_server(key, "a call was repeated, and is not answered", now);
        }
        if pair.client.is_some() {
            tracing::info!(client = %pair.address(), "closing the client's connection with replies that it has not taken");
        }
        self.close_pair(key);
    }

    /// Closes the client's connection, if it has not ended, and the one to the server.
    fn close_pair(&mut self, key: usize) {
        let pair = &self.pairs[key];
        if let Some(client) = pair.client {
            self.incoming[pair.transport].borrow_mut().close(client);
            self.by_client[pair.transport].remove(&client);
        }
        self.remove(key);
    }

    /// Removes a pair whose client is gone, and closes its connection to the server. Calls that are not answered end with
    /// it.
    fn remove(&mut self, key: usize) {
        let mut pair = self.pairs.remove(key);
        pair.end_backward();
        pair.end_forward();
        if let Some(server) = pair.server {
            self.by_server.remove(&server);
            self.outgoing.borrow_mut().close(server);
        }
        if let Some(timer) = pair.timer {
            self.timers.remove(&(timer, key));
        }
        self.finishing.retain(|&finishing| finishing != key);
        if let Some(ends) = pair.ends
            && self.by_ends.get(&ends) == Some(&key)
        {
            self.by_ends.remove(&ends);
        }
    }

    /// Begins the end that [`Relay::drain`] waits for: no further call is passed on. For a simulation.
    pub fn begin_drain(&mut self) {
        self.draining = true;
        let now = self.poll_loop.clock().now();
        for (_, pair) in &mut self.pairs {
            let tokens = pair.end_waiting();
            if let Some(client) = pair.client {
                let mut transport = self.incoming[pair.transport].borrow_mut();
                for token in tokens {
                    transport.reply(client, token, None, now);
                }
            }
        }
        self.finish_clients(now);
    }
}
