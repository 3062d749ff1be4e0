//! ONC RPC over TCP with record marking (RFC 5531, section 11): the baseline for comparisons with
//! RDMA.

mod client;
mod connections;
mod progress;
mod server;
mod stream;

pub use client::TcpClient;
pub use server::TcpServer;

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use rdma::middleware::Shaper;
use rdma::{Counters, Pool};
use rpcrdma_host::{Budget, CongestionControl, LoopSeat};

use crate::{ConnectionKind, TransportStatistics};

/// The default maximum length of a received record, bytes: the longest READ or WRITE that this project's
/// server allows (1 MiB), and room for headers. A client with a larger `rsize` needs more.
pub const DEFAULT_MAX_RECORD: u32 = (1 << 20) + (1 << 16);
/// The default limit of a transport's memory pool, bytes.
const DEFAULT_POOL: usize = 1 << 30;
/// The default record time-out. TCP has retransmitted lost data many times within this time.
const DEFAULT_RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// The default reply time-out. TCP has retransmitted lost data several times within this time.
const DEFAULT_REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The default maximum number of calls of one connection that a server works on at a time.
const DEFAULT_MAX_CALLS: usize = 256;
/// The default maximum number of connections of a server.
const DEFAULT_MAX_CONNECTIONS: usize = 1024;

/// The options of a [`TcpClient`] or [`TcpServer`].
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// The pool for receiving long records. At most a quarter of it is allocated in advance for
    /// peers that have announced a record and not sent it. Beyond that, peers get memory as they
    /// send, which costs copies.
    pub pool: Pool,
    /// Server: the memory budget for the calls and replies of all connections. Transports may share it.
    pub budget: Budget,
    /// The maximum length of a received record, bytes. A connection that exceeds it is closed.
    pub max_record: u32,
    /// The congestion control of all connections; `None`: the system's.
    pub congestion: Option<CongestionControl>,
    /// A simulated link that outgoing records pass, for measurements. All connections of the
    /// transport share it.
    pub link: Option<Shaper>,
    /// Whether calls from server to client are allowed (RFC 5531 does not say which end may call).
    /// Without this, a client drops such calls, and a server closes a connection that sends
    /// replies.
    pub callbacks: bool,
    /// Server: how long an incomplete record may go without progress (16 KiB, or its end) before
    /// the connection is closed. (A client has the time-outs of its calls.) While memory is short,
    /// the time-out is two seconds for connections that hold more than their guaranteed memory.
    pub record_timeout: Duration,
    /// Server: how long queued replies may go without the peer reading any, before the connection
    /// is closed. The rules are the same as for `record_timeout`.
    pub reply_timeout: Duration,
    /// Server: the maximum number of calls of one connection that are worked on at a time. At the
    /// limit, the connection is not read from. While replies to callbacks are awaited on it, only its
    /// share of `budget` limits the calls that it may have: these replies arrive behind further calls.
    pub max_calls: usize,
    /// Server: the maximum number of connections of this transport, so of one loop. Further ones are closed at
    /// once. [`crate::ServerOptions::max_connections`] limits those of all loops and transports together.
    pub max_connections: usize,
    /// Server: which of the loops that listen on the same socket this one is
    /// ([`TcpServer::listening`]).
    pub seat: Option<LoopSeat>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            pool: Pool::new(DEFAULT_POOL),
            budget: Budget::default(),
            max_record: DEFAULT_MAX_RECORD,
            congestion: None,
            link: None,
            callbacks: false,
            record_timeout: DEFAULT_RECORD_TIMEOUT,
            reply_timeout: DEFAULT_REPLY_TIMEOUT,
            max_calls: DEFAULT_MAX_CALLS,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            seat: None,
        }
    }
}

/// Counters of a transport since its creation. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Records submitted for sending.
    pub sends: u64,
    /// Records received.
    pub receives: u64,
    /// System calls that sent data.
    pub send_calls: u64,
    /// System calls that received data or found none.
    pub receive_calls: u64,
    /// Bytes written to TCP, record marks included.
    pub wire_bytes_sent: u64,
    /// Bytes received from TCP, record marks included.
    pub wire_bytes_received: u64,
    /// Bytes copied in user space: short records, the beginnings of long ones, and records whose
    /// memory was allocated in parts ([`TcpOptions::pool`]).
    pub copied_bytes: u64,
    /// Wake-ups: waits that ended because of a readiness event.
    pub interrupts: u64,
}

impl TcpCounters {
    /// Returns the counters in the form of those of a device, where they mean the same.
    #[must_use]
    pub fn as_device(&self) -> Counters {
        Counters {
            interrupts: self.interrupts,
            copied_bytes: self.copied_bytes,
            wire_bytes_sent: self.wire_bytes_sent,
            wire_bytes_received: self.wire_bytes_received,
            system_calls: self.send_calls + self.receive_calls,
            ..Counters::default()
        }
    }

    /// Returns the statistics of a transport with these counters and this number of connections.
    fn statistics(&self, connections: usize) -> TransportStatistics {
        let connections = match connections {
            0 => Vec::new(),
            count => vec![(ConnectionKind::default(), count as u64)],
        };
        TransportStatistics {
            connections,
            counters: self.as_device(),
            ..TransportStatistics::default()
        }
    }
}

/// The length of queued replies, in bytes, from which on a connection is not read from, because its
/// peer does not read the replies.
const MAX_QUEUED: usize = 8 << 20;

/// Sets the options of a connected socket.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    // Records are handed over whole, so Nagle's algorithm would only delay them.
    socket.set_nodelay(true)?;
    rpcrdma_host::bound_send_buffer(socket);
    Ok(rpcrdma_host::keep_alive(socket)?)
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
