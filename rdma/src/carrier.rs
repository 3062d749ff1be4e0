//! The lower-layer connection beneath a queue pair, as far as this process can tell.

use std::io;
use std::net::SocketAddr;

/// What is beneath a connection. A server needs it to ask the system which user of this host is at
/// the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A TCP connection of this process, which is up.
    Tcp {
        /// The address of this process' end.
        local: SocketAddr,
        /// The address of the peer's end.
        peer: SocketAddr,
    },
    /// A TCP connection of this process that is over. Its addresses may be another connection's by
    /// now.
    Ended,
    /// No TCP connection of this process: the connection is a device's in hardware or in the kernel,
    /// or a simulated one. What it has for addresses means nothing to the system's table of sockets.
    Device,
}

impl Carrier {
    /// The carrier that a TCP socket is, from what the system says of its two ends. A socket that was
    /// reset has no peer any more.
    #[must_use]
    pub fn tcp(local: io::Result<SocketAddr>, peer: io::Result<SocketAddr>) -> Self {
        match (local, peer) {
            (Ok(local), Ok(peer)) => Self::Tcp { local, peer },
            _ => Self::Ended,
        }
    }
}
