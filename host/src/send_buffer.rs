//! The size of a TCP connection's send buffer between two sockets of the same host.
//!
//! Between such sockets no data is in flight: the sender's buffer holds data that waits for the
//! receiver to read it. The system lets the buffer grow to megabytes, so that the sender never
//! waits, and wakes the receiver for one segment after the other. A quarter of the receiver's time
//! goes there, and data queued behind, such as the next call, waits for all of it. With a bounded
//! buffer the sender waits now and then, and the receiver always finds data and hardly sleeps.
//! Streams of 1 MiB READs and WRITEs are 1.3 to 2 times as fast, over TCP and over the iwarp device
//! alike.
//!
//! Between hosts the buffer has to hold the data in flight, and the system knows best how much that
//! is.
//!
//! The TCP baseline of `compare` keeps the system's choice: its writes block, and with a bounded
//! buffer they are no faster.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use socket2::SockRef;

/// Number of bytes requested from the system, which doubles it and lets data fill nearly all of the
/// result. That is less than a READ or WRITE of 1 MiB, because one that fits the buffer is handed
/// over without waiting and gains nothing. If `net.core.wmem_max` allows less (208 KiB by default),
/// the gain is smaller.
const BYTES: usize = 384 << 10;

/// Bounds the send buffer of a connected TCP socket whose peer has the same address or a loopback
/// address; leaves other sockets alone. This only affects speed, so an error is logged and
/// otherwise ignored.
pub fn bound_send_buffer(socket: &impl AsFd) {
    if let Err(error) = bound(SockRef::from(socket)) {
        tracing::debug!(%error, "send buffer not bounded");
    }
}

fn bound(socket: SockRef<'_>) -> io::Result<()> {
    let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
    match (local.as_socket(), peer.as_socket()) {
        (Some(local), Some(peer)) if is_one_host(local.ip(), peer.ip()) => {
            socket.set_send_buffer_size(BYTES)
        }
        _ => Ok(()),
    }
}

/// Returns whether both ends of a connection with these addresses are on the same host.
fn is_one_host(local: IpAddr, peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || peer == local.to_canonical()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_send_buffer_is_bounded_within_one_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let size = || SockRef::from(&socket).send_buffer_size().unwrap();
        // A size other than the system's choice, which depends on its settings.
        SockRef::from(&socket).set_send_buffer_size(4096).unwrap();
        let small = size();
        bound_send_buffer(&socket);
        assert!(small < size() && size() <= 2 * BYTES, "{small}, {}", size());
        // A socket that is not connected has no peer on any host.
        let before = SockRef::from(&listener).send_buffer_size().unwrap();
        bound_send_buffer(&listener);
        assert_eq!(SockRef::from(&listener).send_buffer_size().unwrap(), before);
    }

    #[test]
    fn one_host_is_recognised_by_its_addresses() {
        let same = |local: &str, peer: &str| {
            let [local, peer] = [local, peer].map(|ip| ip.parse().unwrap());
            is_one_host(local, peer)
        };
        assert!(same("127.0.0.1", "127.0.0.1"));
        assert!(same("127.0.0.1", "127.0.0.2"));
        assert!(same("::1", "::1"));
        assert!(same("192.0.2.1", "192.0.2.1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(same("::ffff:127.0.0.1", "::ffff:127.0.0.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(!same("fe80::1", "fe80::2"));
    }
}
