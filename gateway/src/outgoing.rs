//! Connections to the server.

use std::io;
use std::net::SocketAddr;

use onc_rpc::Message;
use rdma::{Counters, Time};
use rpc_transport::rdma::{RdmaClient, Version, VersionAction};
use rpc_transport::{ClientTransport, ConnectionId, ReplyRoom, TcpClient};

use crate::reduction::MAX_ITEMS;

/// The reserved ports from which clients of NFS connect: those of Linux by default (`sunrpc.min_resvport`
/// and `max_resvport`).
const RESERVED: std::ops::RangeInclusive<u16> = 665..=1023;
/// The first port that is not reserved.
const FIRST_UNRESERVED: u16 = 1024;

/// The client on whose behalf a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub address: SocketAddr,
    /// Whether the client has come by RDMA. Its port says nothing then: Linux's server takes all RDMA
    /// connections as from a reserved port.
    pub is_rdma: bool,
    /// Whether a reserved port may be tried for it ([`RelayOptions::reserved_ports`](crate::RelayOptions::reserved_ports)).
    pub may_reserve: bool,
}

impl Origin {
    /// Returns whether the connection for the client comes from a reserved port where that is permitted.
    /// A client over TCP that has none itself does not get one: the server would trust it like the kernel
    /// of its host.
    fn is_trusted(&self) -> bool {
        self.may_reserve && (self.is_rdma || self.address.port() < FIRST_UNRESERVED)
    }
}

/// A transport of connections to servers, each for one client.
pub trait Outgoing: ClientTransport {
    /// Starts to connect, as [`ClientTransport::open`] does, for this client.
    fn open_for(&mut self, remote: SocketAddr, origin: Origin, now: Time) -> ConnectionId;

    /// Returns this end's address of a connection, if it has one that says something.
    fn local_address(&self, conn: ConnectionId) -> Option<SocketAddr>;

    /// Returns how many items may be held apart in a call, and offered chunks for in its reply. A server of
    /// version 1 has not agreed to more than one (RFC 8267, section 6.4.2). No smaller number follows a larger one.
    fn max_items(&self, conn: ConnectionId) -> usize;

    /// Returns how a call would be transferred, in words, once that is known.
    fn plan(&mut self, conn: ConnectionId, call: &Message, room: &ReplyRoom) -> Option<String>;

    /// Returns whether the transport records the events of calls of the server
    /// ([`ClientTransport::set_tracer`]). Otherwise the relay records what it sees of them.
    fn traces_calls_of_server(&self) -> bool;

    /// Returns the counters of the device, or of TCP where they mean the same.
    fn counters(&self) -> Counters;
}

impl Outgoing for RdmaClient {
    fn open_for(&mut self, remote: SocketAddr, _: Origin, now: Time) -> ConnectionId {
        // The XIDs of the client are not known yet. Those of the transport's own messages are drawn anew
        // for each connection from the XID of the first call that is submitted before it is established.
        self.open(remote, 0, now)
    }

    fn local_address(&self, _: ConnectionId) -> Option<SocketAddr> {
        None
    }

    fn max_items(&self, conn: ConnectionId) -> usize {
        match self.decision(conn).map(|decision| decision.action) {
            // It may become version 1.
            None | Some(VersionAction::Use(Version::ONE)) => 1,
            Some(_) => MAX_ITEMS,
        }
    }

    fn plan(&mut self, conn: ConnectionId, call: &Message, room: &ReplyRoom) -> Option<String> {
        let considered = self.considered_call_of(conn, call, room);
        let chosen = considered.into_iter().find(|mode| mode.chosen);
        chosen.map(|mode| mode.plan)
    }

    fn traces_calls_of_server(&self) -> bool {
        true
    }

    fn counters(&self) -> Counters {
        Self::counters(self)
    }
}

impl Outgoing for TcpClient {
    fn open_for(&mut self, remote: SocketAddr, origin: Origin, now: Time) -> ConnectionId {
        for port in ports(origin, fastrand::usize(..)) {
            match self.open_from(remote, port) {
                Ok(conn) => return conn,
                // In use, or with an earlier connection to the server that is in TIME_WAIT.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
                    ) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    rpcrdma_host::limited!(
                        warn,
                        "reserved ports are not permitted here: the server must take others (`insecure`)"
                    );
                    break;
                }
                // Whatever it is, an attempt without a port meets it as well, and reports it.
                Err(_) => break,
            }
        }
        self.open(remote, 0, now)
    }

    fn local_address(&self, conn: ConnectionId) -> Option<SocketAddr> {
        self.local_address_of(conn)
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
        let tcp = Self::counters(self);
        Counters {
            interrupts: tcp.interrupts,
            copied_bytes: tcp.copied_bytes,
            wire_bytes_sent: tcp.wire_bytes_sent,
            wire_bytes_received: tcp.wire_bytes_received,
            system_calls: tcp.send_calls + tcp.receive_calls,
            ..Counters::default()
        }
    }
}

/// Returns the ports to try in turn: that of the client, by which a server finds the replies that it has
/// kept for it, and then reserved ones from a random one on, if the client may have one.
fn ports(origin: Origin, random: usize) -> impl Iterator<Item = u16> {
    let own = Some(origin.address.port()).filter(|port| !origin.is_rdma && *port > 0);
    let count = RESERVED.len();
    let reserved = match origin.is_trusted() {
        true => count,
        false => 0,
    };
    let reserved =
        (0..reserved).filter_map(move |n| RESERVED.clone().nth((random % count + n) % count));
    own.into_iter()
        .chain(reserved.filter(move |port| Some(*port) != own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(port: u16, is_rdma: bool) -> Origin {
        Origin {
            address: ([127, 0, 0, 1], port).into(),
            is_rdma,
            may_reserve: true,
        }
    }

    #[test]
    fn the_clients_port_comes_first_and_a_reserved_one_is_not_lent() {
        let tried = |port, is_rdma| ports(origin(port, is_rdma), 7).collect::<Vec<_>>();
        let reserved = tried(700, false);
        assert_eq!(reserved[..2], [700, 672]);
        assert_eq!(reserved.len(), RESERVED.len(), "each once");
        assert_eq!(tried(40_000, false), [40_000]);
        let over_rdma = tried(40_000, true);
        assert_eq!(over_rdma.len(), RESERVED.len());
        assert!(over_rdma.iter().all(|port| *port < FIRST_UNRESERVED));
        let without = Origin {
            may_reserve: false,
            ..origin(40_000, true)
        };
        assert_eq!(ports(without, 7).count(), 0);
    }
}
