//! A client's transport over the model of TCP.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use onc_rpc::{CALL, Message, peek_start};
use rdma::{Counters, Poller, Pool, Time};
use rdma_sim::NodeId;
use rpc_transport::{
    ClientTransport, ClientTransportEvent, ConnectionId, ConnectionLost, PollSource, ReplyRoom,
};
use rpcrdma_gateway::reduction::MAX_ITEMS;
use rpcrdma_gateway::{Origin, Outgoing};

use super::stream::{Arrival, EndNumber, Network};

/// The connections of a host to servers.
pub(super) struct StreamClient {
    network: Network,
    node: NodeId,
    /// The address of the host. Its port is that of every connection or, if it is 0, each has another one.
    address: SocketAddr,
    pool: Pool,
    /// The connections, each with whether it is established.
    ends: BTreeMap<EndNumber, bool>,
}

impl StreamClient {
    pub(super) fn new(network: &Network, node: NodeId, address: SocketAddr, pool: Pool) -> Self {
        Self {
            network: network.clone(),
            node,
            address,
            pool,
            ends: BTreeMap::new(),
        }
    }

    fn connect_from(&mut self, port: u16, remote: SocketAddr) -> ConnectionId {
        let local = SocketAddr::new(self.address.ip(), port);
        let end = self.network.connect((self.node, local), remote);
        self.ends.insert(end, false);
        ConnectionId(end)
    }

    fn ended(&mut self, end: EndNumber, reason: &'static str) -> ClientTransportEvent {
        self.network.close(end);
        let lost = ConnectionLost {
            reason: reason.to_owned(),
            retry: true,
            busy: false,
            was_established: self.ends.remove(&end).unwrap_or_default(),
        };
        let conn = ConnectionId(end);
        ClientTransportEvent::Disconnected { conn, lost }
    }
}

impl PollSource for StreamClient {
    fn attach(&mut self, _: Poller) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn poll(&mut self, now: Time) -> bool {
        self.next_deadline().is_some_and(|at| at <= now)
    }

    fn arm(&mut self) -> bool {
        let now = self.network.now();
        self.next_deadline().is_none_or(|at| at > now)
    }

    fn next_deadline(&self) -> Option<Time> {
        let arrivals = self.ends.keys().map(|end| self.network.next_arrival(*end));
        arrivals.flatten().min()
    }

    fn set_busy_poll(&mut self, _: bool) {}
}

impl ClientTransport for StreamClient {
    fn open(&mut self, remote: SocketAddr, _: u32, _: Time) -> ConnectionId {
        self.connect_from(self.address.port(), remote)
    }

    fn submit(&mut self, conn: ConnectionId, _: u32, message: Message, _: &ReplyRoom, _: Time) {
        self.network.send(conn.0, &message);
    }

    fn cancel(&mut self, _: ConnectionId, _: u32) {}

    fn reply(&mut self, conn: ConnectionId, _: u64, message: Option<Message>, _: Time) {
        if let Some(message) = message {
            self.network.send(conn.0, &message);
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn close(&mut self, conn: ConnectionId) {
        self.network.close(conn.0);
        self.ends.remove(&conn.0);
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        let mut ends = self.ends.keys();
        let (end, what) = ends.find_map(|end| Some((*end, self.network.take(*end)?)))?;
        let conn = ConnectionId(end);
        Some(match what {
            Arrival::Connected => {
                self.ends.insert(end, true);
                ClientTransportEvent::Connected(conn)
            }
            Arrival::Record(record) => {
                let message = Message::from_payload(record);
                match peek_start(&message) {
                    Some((xid, CALL)) => ClientTransportEvent::Call {
                        conn,
                        token: u64::from(xid),
                        message,
                    },
                    Some((xid, _)) => ClientTransportEvent::Reply { conn, xid, message },
                    None => self.ended(end, "a record without an XID"),
                }
            }
            Arrival::End(reason) => self.ended(end, reason),
        })
    }
}

impl Outgoing for StreamClient {
    fn open_for(&mut self, remote: SocketAddr, origin: Origin, _: Time) -> ConnectionId {
        let port = match origin.is_rdma {
            true => 0,
            false => origin.address.port(),
        };
        self.connect_from(port, remote)
    }

    fn local_address(&self, conn: ConnectionId) -> Option<SocketAddr> {
        self.network.addresses(conn.0).map(|(local, _)| local)
    }

    fn max_items(&self, _: ConnectionId) -> usize {
        MAX_ITEMS
    }

    fn plan(&mut self, _: ConnectionId, _: &Message, _: &ReplyRoom) -> Option<String> {
        Some("one record over TCP".to_owned())
    }

    fn traces_calls_of_server(&self) -> bool {
        false
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Drop for StreamClient {
    fn drop(&mut self) {
        for end in self.ends.keys() {
            self.network.close(*end);
        }
    }
}
