//! A server's transport over the model of TCP.

use std::io;
use std::net::SocketAddr;

use onc_rpc::{Message, REPLY, peek_start};
use rdma::{Carrier, Poller, Pool, Time};
use rdma_sim::NodeId;
use rpc_transport::{
    CallError, ConnectionId, PollSource, ReplyRoom, ServerTransport, ServerTransportEvent,
};
use rpcrdma_host::{Account, Budget};

use super::stream::{Arrival, EndNumber, Network};
use super::stream_ends::StreamEnds;

/// A connection of a client.
struct Connection {
    account: Account,
    is_finishing: bool,
}

/// A listener of a host, with its connections.
pub(super) struct StreamServer {
    connections: StreamEnds<Connection>,
    pool: Pool,
    budget: Budget,
}

impl StreamServer {
    /// Listens on an address of a host.
    pub(super) fn listen(
        network: &Network,
        (node, address): (NodeId, SocketAddr),
        (pool, budget): (Pool, Budget),
    ) -> Self {
        Self {
            connections: StreamEnds::listen(network, node, address),
            pool,
            budget,
        }
    }

    /// Returns the event of an arrival, unless it is dropped.
    fn event_of(&mut self, end: EndNumber, what: Arrival) -> Option<ServerTransportEvent> {
        let conn = ConnectionId(end);
        match what {
            Arrival::Connected => {
                let (_, peer) = self.connections.network().addresses(end)?;
                Some(ServerTransportEvent::Connected { conn, peer })
            }
            Arrival::Record(record) => {
                let message = Message::from_payload(record);
                match peek_start(&message) {
                    Some((xid, REPLY)) => Some(ServerTransportEvent::Reply { conn, xid, message }),
                    _ if self.is_finishing(conn) => None,
                    // No token is needed for the reply.
                    _ => Some(ServerTransportEvent::Call {
                        conn,
                        token: 0,
                        message,
                    }),
                }
            }
            Arrival::End(reason) => {
                self.close(conn);
                let reason = reason.to_owned();
                Some(ServerTransportEvent::Disconnected { conn, reason })
            }
        }
    }

    fn is_finishing(&self, conn: ConnectionId) -> bool {
        let connection = self.connections.get(conn.0);
        connection.is_none_or(|it| it.is_finishing)
    }
}

impl PollSource for StreamServer {
    fn attach(&mut self, _: Poller) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn poll(&mut self, now: Time) -> bool {
        self.connections.accept(|| Connection {
            account: self.budget.account(),
            is_finishing: false,
        });
        self.connections.has_arrivals(now)
    }

    fn arm(&mut self) -> bool {
        self.connections.may_wait()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.connections.next_arrival()
    }

    fn set_busy_poll(&mut self, _: bool) {}
}

impl ServerTransport for StreamServer {
    fn reply(&mut self, conn: ConnectionId, _: u64, message: Option<Message>, _: Time) {
        if let Some(message) = message {
            self.connections.network().send(conn.0, &message);
        }
    }

    fn call(
        &mut self,
        conn: ConnectionId,
        _: u32,
        message: Message,
        _: &ReplyRoom,
        _: Time,
    ) -> Result<(), CallError> {
        if self.is_finishing(conn) {
            let reason = "closed".to_owned();
            return Err(CallError::Disconnected { reason });
        }
        self.connections.network().send(conn.0, &message);
        Ok(())
    }

    /// The owners of this transport drop a late reply by themselves.
    fn cancel_call(&mut self, _: ConnectionId, _: u32) {}

    fn close(&mut self, conn: ConnectionId) {
        self.connections.close(conn.0);
    }

    fn finish(&mut self, conn: ConnectionId, _: Time) -> bool {
        // What was sent before arrives before this.
        if let Some(connection) = self.connections.get_mut(conn.0)
            && !std::mem::replace(&mut connection.is_finishing, true)
        {
            self.connections.network().shut(conn.0);
        }
        true
    }

    fn pool(&self, conn: ConnectionId) -> Pool {
        match self.connections.get(conn.0) {
            Some(connection) => self.pool.charged_to(&connection.account),
            None => self.pool.clone(),
        }
    }

    fn carrier(&self, conn: ConnectionId) -> Carrier {
        match self.connections.network().addresses(conn.0) {
            Some((local, peer)) => Carrier::Tcp { local, peer },
            None => Carrier::Ended,
        }
    }

    fn is_rdma(&self) -> bool {
        false
    }

    fn next_event(&mut self) -> Option<ServerTransportEvent> {
        loop {
            let (end, what) = self.connections.take()?;
            let event = self.event_of(end, what);
            if event.is_some() {
                return event;
            }
        }
    }
}
