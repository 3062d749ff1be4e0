//! ONC RPC over TCP with record marking (RFC 5531, section 11): the baseline that RDMA is compared
//! with.

mod client;
mod progress;
mod server;
mod set;
mod stream;

pub use client::TcpClient;
pub use server::TcpServer;

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use rdma::middleware::Shaper;
use rdma::{Budget, Pool};

/// Longest record taken by default: the longest NFS READ or WRITE in use (1 MiB), and room for a
/// header.
pub const DEFAULT_MAX_RECORD: u32 = (1 << 20) + (1 << 16);
/// What a port's pool hands out at a time by default, bytes.
const DEFAULT_POOL: usize = 1 << 30;
/// How long a record may stand still by default: TCP has sent what was lost many times by then.
const DEFAULT_RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a peer may leave replies alone by default: long enough for TCP to send several times what was
/// lost.
const DEFAULT_REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls of one connection that a server works on at a time by default.
const DEFAULT_MAX_CALLS: usize = 256;
/// Connections that a server takes at a time by default.
const DEFAULT_MAX_CONNECTIONS: usize = 1024;

/// Options of a [`TcpClient`] or [`TcpServer`].
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// Where long records are received into. A quarter of it may be promised to peers that have
    /// announced a record and not sent it; beyond that, they get memory as they send, which costs
    /// copies.
    pub pool: Pool,
    /// Server: what the calls and replies of all connections may take. Ports may share one.
    pub budget: Budget,
    /// Longest record taken, bytes. A peer that sends a longer one loses its connection.
    pub max_record: u32,
    /// An added link that records go out through, for measurements. All connections of the port
    /// share it.
    pub link: Option<Shaper>,
    /// Whether there are calls from server to client (RFC 5531 leaves open who calls): a client that
    /// takes none drops them, a server that makes none drops a peer that sends replies.
    pub callbacks: bool,
    /// Server: how long a record that has begun may go without progress (16 KiB, or its end), before
    /// the connection is closed. (A client has its calls' time-outs.) While memory is short, the timeout is
    /// two seconds for connections that hold more than their guaranteed memory.
    pub record_timeout: Duration,
    /// Server: the same of replies that wait for their peer to take them.
    pub reply_timeout: Duration,
    /// Server: calls of one connection that are worked on at a time. The connection is not read
    /// from when there are as many.
    pub max_calls: usize,
    /// Server: connections at a time. Further ones are closed at once.
    pub max_connections: usize,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            pool: Pool::new(DEFAULT_POOL),
            budget: Budget::default(),
            max_record: DEFAULT_MAX_RECORD,
            link: None,
            callbacks: false,
            record_timeout: DEFAULT_RECORD_TIMEOUT,
            reply_timeout: DEFAULT_REPLY_TIMEOUT,
            max_calls: DEFAULT_MAX_CALLS,
            max_connections: DEFAULT_MAX_CONNECTIONS,
        }
    }
}

/// Counts of a port since it was made. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Records handed in for sending.
    pub sends: u64,
    /// Records received.
    pub receives: u64,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received, those that found nothing included.
    pub receive_calls: u64,
    /// Bytes handed to TCP, record marks included.
    pub wire_bytes_sent: u64,
    /// Bytes taken from TCP, likewise.
    pub wire_bytes_received: u64,
    /// Bytes copied in user space: short records, the beginnings of long ones, and what came of
    /// those that got their memory bit by bit ([`TcpOptions::pool`]).
    pub copied_bytes: u64,
    /// Times a wait for something to happen was ended by something happening.
    pub interrupts: u64,
}

/// A connection whose peer does not take what it is sent, is not read from when this many bytes of
/// replies are waiting.
const MAX_QUEUED: usize = 8 << 20;

/// Prepares a connected socket.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    // Records are handed over whole: there is nothing to wait for.
    socket.set_nodelay(true)?;
    rdma::bound_send_buffer(socket);
    Ok(rdma::keep_alive(socket)?)
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_keepalive, socket_send_buffer_size};

    use super::*;

    #[test]
    fn a_prepared_socket_sends_at_once_holds_little_and_notices_that_its_peer_is_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = TcpStream::from_std(socket);
        let before = socket_send_buffer_size(&socket).unwrap();
        prepare(&socket).unwrap();
        let after = socket_send_buffer_size(&socket).unwrap();
        assert_ne!(after, before, "the peer is on this host");
        assert!(socket.nodelay().unwrap());
        assert_eq!(socket_keepalive(&socket), Ok(true));
    }
}
