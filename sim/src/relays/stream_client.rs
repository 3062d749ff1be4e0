//! A client's transport over the model of TCP.

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
use super::stream_ends::StreamEnds;

/// The connections of a host to servers.
pub(super) struct StreamClient {
    /// The connections, each with whether it is established.
    ends: StreamEnds<bool>,
    node: NodeId,
    /// The address of the host. Its port is that of every connection or, if it is 0, each has another one.
    address: SocketAddr,
    pool: Pool,
}

impl StreamClient {
    pub(super) fn new(network: &Network, node: NodeId, address: SocketAddr, pool: Pool) -> Self {
        Self {
            ends: StreamEnds::new(network),
            node,
            address,
            pool,
        }
    }

    fn connect_from(&mut self, port: u16, remote: SocketAddr) -> ConnectionId {
        let local = SocketAddr::new(self.address.ip(), port);
        let network = self.ends.network();
        let end = network.connect((self.node, local), remote);
        self.ends.insert(end, false);
        ConnectionId(end)
    }

    fn ended(&mut self, end: EndNumber, reason: &'static str) -> ClientTransportEvent {
        let lost = ConnectionLost {
            reason: reason.to_owned(),
            retry: true,
            busy: false,
            was_established: self.ends.close(end).unwrap_or_default(),
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
        self.ends.has_arrivals(now)
    }

    fn arm(&mut self) -> bool {
        self.ends.may_wait()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.ends.next_arrival()
    }

    fn set_busy_poll(&mut self, _: bool) {}
}

impl ClientTransport for StreamClient {
    fn open(&mut self, remote: SocketAddr, _: u32, _: Time) -> ConnectionId {
        self.connect_from(self.address.port(), remote)
    }

    fn submit(&mut self, conn: ConnectionId, _: u32, message: Message, _: &ReplyRoom, _: Time) {
        self.ends.network().send(conn.0, &message);
    }

    fn cancel(&mut self, _: ConnectionId, _: u32) {}

    fn reply(&mut self, conn: ConnectionId, _: u64, message: Option<Message>, _: Time) {
        if let Some(message) = message {
            self.ends.network().send(conn.0, &message);
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn close(&mut self, conn: ConnectionId) {
        self.ends.close(conn.0);
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        let (end, what) = self.ends.take()?;
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
        self.ends
            .network()
            .addresses(conn.0)
            .map(|(local, _)| local)
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
