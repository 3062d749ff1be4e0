//! Operations on the TCP sockets of connections.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

use mio::net::TcpStream;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg};
use smallvec::SmallVec;

use super::mpa;
use rdma::ConnectError;
use rpcrdma_host::{bound_send_buffer, keep_alive};

/// MSS that every path supports (RFC 9293, section 3.7.1), for systems that do not report it.
const DEFAULT_MSS: u32 = 536;

/// Maximum length in bytes of a write that is copied into one piece.
pub(super) const SHORT: usize = 512;

/// Prepares a connected socket.
pub(super) fn prepare(socket: &TcpStream) {
    // Messages are sent when they are posted. This fails only on a socket that has already failed.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    if let Err(error) = keep_alive(socket) {
        tracing::debug!(%error, "no keep-alive");
    }
    bound_send_buffer(socket);
}

/// Returns the maximum ULPDU length for the path (RFC 5044, section 4.5).
pub(super) fn max_ulpdu(socket: &TcpStream, limit: Option<u16>) -> usize {
    let mss = socket2::SockRef::from(socket).tcp_mss();
    let mss = mss.unwrap_or(DEFAULT_MSS);
    let mss = limit.map_or(mss, |limit| mss.min(u32::from(limit)));
    mpa::max_ulpdu(mss as usize)
}

/// Writes at most [`SHORT`] bytes. Copying them into one piece costs less than a system call with
/// several pieces.
pub(super) fn send_short(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut bytes = SmallVec::<[u8; SHORT]>::new();
    for slice in slices {
        bytes.extend_from_slice(slice);
    }
    send_one(socket, &bytes)
}

/// Writes one buffer, without a signal if the peer is gone.
pub(super) fn send_one(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// Reads the available bytes without waiting. Bypasses the C library, in which a read is a
/// cancellation point that makes reads slower in a process with threads.
pub(super) fn receive(socket: &TcpStream, bytes: &mut [u8]) -> Result<usize, Errno> {
    let (received, _) = rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT)?;
    Ok(received)
}

/// Reads the available bytes into several places, also bypassing the C library. The socket is
/// non-blocking.
pub(super) fn receive_scattered(
    socket: &TcpStream,
    places: &mut [IoSliceMut<'_>],
) -> Result<usize, Errno> {
    rustix::io::readv(socket, places)
}

/// Writes several pieces, without a signal if the peer is gone.
pub(super) fn send(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?;
    Ok(sent)
}

/// Makes the close of the socket a reset.
pub(super) fn set_reset_on_close(socket: &TcpStream) {
    // If this fails, the socket is closed normally.
    if let Err(error) = set_socket_linger(socket, Some(Duration::ZERO)) {
        tracing::debug!(%error, "no SO_LINGER");
    }
}

/// Returns the reason why TCP did not connect.
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
