//! The lower-layer connection under a queue pair, as far as this process can tell.

use std::io;
use std::net::SocketAddr;

/// The lower-layer connection under a queue pair. A server needs it to ask the operating system
/// which local user is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// An established TCP connection of this process.
    Tcp {
        /// Address of this end.
        local: SocketAddr,
        /// Address of the peer's end.
        peer: SocketAddr,
    },
    /// A TCP connection of this process that has ended. Its addresses may belong to another
    /// connection by now.
    Ended,
    /// No TCP connection of this process: the connection is made by a device in hardware or in the
    /// kernel, or is simulated. Its addresses have no meaning in the system's table of sockets.
    Device,
}

impl Carrier {
    /// Makes the carrier of a TCP socket from the results of its two address queries. A socket that
    /// was reset no longer has a peer.
    #[must_use]
    pub fn tcp(local: io::Result<SocketAddr>, peer: io::Result<SocketAddr>) -> Self {
        match (local, peer) {
            (Ok(local), Ok(peer)) => Self::Tcp { local, peer },
            _ => Self::Ended,
        }
    }
}
