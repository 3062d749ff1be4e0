//! What the connections need of TCP sockets.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

use mio::net::TcpStream;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg};
use smallvec::SmallVec;

use super::mpa;
use rdma::{ConnectError, bound_send_buffer, keep_alive};

/// MSS that any path has (RFC 9293, section 3.7.1), for systems that do not tell.
const DEFAULT_MSS: u32 = 536;

/// Writes of up to this many bytes are made in one piece.
pub(super) const SHORT: usize = 512;

/// Prepares a connected socket.
pub(super) fn prepare(socket: &TcpStream) {
    // Messages go out when they are posted. It can only fail on a socket that is dead already.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    if let Err(error) = keep_alive(socket) {
        tracing::debug!(%error, "no keep-alive");
    }
    bound_send_buffer(socket);
}

/// Longest ULPDU for the path (RFC 5044, section 4.5).
pub(super) fn max_ulpdu(socket: &TcpStream, limit: Option<u16>) -> usize {
    let mss = socket2::SockRef::from(socket).tcp_mss();
    let mss = mss.unwrap_or(DEFAULT_MSS);
    let mss = limit.map_or(mss, |limit| mss.min(u32::from(limit)));
    mpa::max_ulpdu(mss as usize)
}

/// A write of at most [`SHORT`] bytes. Their copy into one piece costs less than having the system
/// walk through several.
pub(super) fn send_short(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut bytes = SmallVec::<[u8; SHORT]>::new();
    for slice in slices {
        bytes.extend_from_slice(slice);
    }
    send_one(socket, &bytes)
}

/// One write, without a signal when the peer is gone.
pub(super) fn send_one(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// One read: takes what is there and does not wait. Past the C library, in which a read is a point where
/// a thread may be cancelled; a process with threads pays for that.
pub(super) fn receive(socket: &TcpStream, bytes: &mut [u8]) -> Result<usize, Errno> {
    let (received, _) = rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT)?;
    Ok(received)
}

/// One read into several places, likewise: the socket is non-blocking.
pub(super) fn receive_scattered(
    socket: &TcpStream,
    places: &mut [IoSliceMut<'_>],
) -> Result<usize, Errno> {
    rustix::io::readv(socket, places)
}

/// One gathered write, without a signal when the peer is gone.
pub(super) fn send(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?;
    Ok(sent)
}

/// Makes the close of the socket a reset.
pub(super) fn set_reset_on_close(socket: &TcpStream) {
    // Failing, the close is an ordinary one.
    if let Err(error) = set_socket_linger(socket, Some(Duration::ZERO)) {
        tracing::debug!(%error, "no SO_LINGER");
    }
}

/// Why TCP did not connect.
pub(super) fn connect_error(error: &io::Error) -> ConnectError {
    match error.kind() {
        ErrorKind::ConnectionRefused => ConnectError::Refused,
        ErrorKind::TimedOut => ConnectError::TimedOut,
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable => ConnectError::Unreachable(error.to_string()),
        _ => ConnectError::Protocol(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "opens sockets")]
    fn a_prepared_socket_sends_at_once_holds_little_and_notices_that_its_peer_is_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = TcpStream::from_std(socket);
        let buffer = || socket2::SockRef::from(&socket).send_buffer_size().unwrap();
        let before = buffer();
        prepare(&socket);
        assert_ne!(buffer(), before, "the peer is on this host");
        assert!(socket.nodelay().unwrap());
        assert_eq!(rustix::net::sockopt::socket_keepalive(&socket), Ok(true));
    }

    #[test]
    fn reasons_are_told_apart() {
        let of = |errno: Errno| connect_error(&errno.into());
        assert_eq!(of(Errno::CONNREFUSED), ConnectError::Refused);
        assert_eq!(of(Errno::TIMEDOUT), ConnectError::TimedOut);
        for unreachable in [Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::ADDRNOTAVAIL] {
            assert!(matches!(of(unreachable), ConnectError::Unreachable(_)));
        }
        assert!(matches!(of(Errno::CONNRESET), ConnectError::Protocol(_)));
    }
}
