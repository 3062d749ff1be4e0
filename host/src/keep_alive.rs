//! Detection of dead peers on TCP connections.
//!
//! A machine that loses its power or network does not close its connections. Without data to send,
//! the loss would never be noticed and the connection would stay; with data, TCP retransmits for a
//! quarter of an hour.
//!
//! TCP keep-alive and a limit on unacknowledged data end such connections. Devices without TCP use
//! empty RDMA Writes for the same purpose (`rdma/rdma-core/src/progress.rs`).

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_user_timeout,
};

/// Time without traffic after which the peer is probed.
const IDLE: Duration = Duration::from_secs(60);
/// Time between probes.
const INTERVAL: Duration = Duration::from_secs(15);
/// Number of unanswered probes after which the connection ends.
const PROBES: u32 = 4;
/// Maximum time that data may stay unacknowledged or find no room at the peer. Equals the time
/// after which a silent connection ends.
const USER_TIMEOUT: Duration = Duration::from_secs(120);

/// Makes the system end a TCP connection with an error when its peer has been unreachable for two
/// minutes: it answers no keep-alive probes (RFC 9293, section 3.8.4), or acknowledges no data (RFC
/// 5482).
///
/// # Errors
/// The error of the operating system if the socket is no TCP socket or has already failed.
pub fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    set_tcp_keepidle(socket, IDLE)?;
    set_tcp_keepintvl(socket, INTERVAL)?;
    set_tcp_keepcnt(socket, PROBES)?;
    // This option also overrides the number of probes, if they would take longer.
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
    fn silent_and_stalled_peers_are_detected_after_the_same_time() {
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
