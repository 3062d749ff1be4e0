//! Noticing that the other end of a TCP connection is gone.
//!
//! A machine that loses its power or its network says no goodbye. Without data to send, nothing
//! would ever be heard of it, and its connection would stay; with data, TCP sends it again for a
//! quarter of an hour.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_user_timeout,
};

/// How long a connection may be silent before the peer is asked for a sign of life.
const IDLE: Duration = Duration::from_secs(60);
/// Time between such questions.
const INTERVAL: Duration = Duration::from_secs(15);
/// Questions without an answer that end the connection.
const PROBES: u32 = 4;
/// How long data may stay unacknowledged, or find no room at the peer: as long as silence may last.
const USER_TIMEOUT: Duration = Duration::from_secs(120);

/// Has the system end a TCP connection, with an error, whose peer has been gone for two minutes:
/// that answers no keep-alive probes (RFC 9293, section 3.8.4), or takes no data (RFC 5482).
///
/// # Errors
/// The socket is no TCP socket, or is dead already.
pub fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    set_tcp_keepidle(socket, IDLE)?;
    set_tcp_keepintvl(socket, INTERVAL)?;
    set_tcp_keepcnt(socket, PROBES)?;
    // It also overrides the number of probes, if they would take longer.
    set_tcp_user_timeout(socket, USER_TIMEOUT.as_millis() as u32)?;
    set_socket_keepalive(socket, true)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use rustix::net::sockopt::{
        socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl, tcp_user_timeout,
    };

    use super::*;

    #[test]
    fn both_ways_of_dying_take_equally_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(socket_keepalive(&socket), Ok(false));
        keep_alive(&socket).unwrap();
        assert_eq!(socket_keepalive(&socket), Ok(true));
        let probing = tcp_keepintvl(&socket).unwrap() * tcp_keepcnt(&socket).unwrap();
        let silent = tcp_keepidle(&socket).unwrap() + probing;
        assert_eq!(silent, Duration::from_secs(120));
        assert_eq!(tcp_user_timeout(&socket), Ok(120_000));
    }

    #[test]
    fn other_sockets_are_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(keep_alive(&socket).is_err());
    }
}
