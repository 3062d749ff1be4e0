//! The congestion control of TCP connections.
//!
//! Measurements depend on it: bbr paces transmission even on the loopback interface, which reno and
//! cubic do not.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use socket2::{Domain, Protocol, Socket, Type};

/// The maximum length of a name: the kernel's `TCP_CA_NAME_MAX` less the terminating zero.
const LONGEST: usize = 15;

/// A congestion control algorithm of the kernel, by its name: `cubic`, `reno`, `bbr`, ...
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionControl(String);

impl CongestionControl {
    /// Returns the algorithm that the system gives to new connections.
    ///
    /// # Errors
    /// The error of the operating system if it has no such setting.
    pub fn of_system() -> io::Result<Self> {
        Self::of(fresh()?)
    }

    /// Returns the algorithm of a TCP connection.
    ///
    /// # Errors
    /// The error of the operating system if the socket is no TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        Ok(Self(tcp_congestion(socket)?))
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Makes a socket use this algorithm for what it sends. Call this before the socket is
    /// connected: a connection that has used bbr keeps its pacing. Connections that a listening
    /// socket accepts inherit its algorithm.
    ///
    /// # Errors
    /// The error of the operating system: `ENOENT` if it has no such algorithm, `EPERM` if only
    /// privileged processes may choose it (`net.ipv4.tcp_allowed_congestion_control`).
    pub fn set(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(set_tcp_congestion(socket, &self.0)?)
    }

    /// Tries the algorithm on a socket of its own.
    ///
    /// # Errors
    /// The errors of [`CongestionControl::set`].
    pub fn check(&self) -> io::Result<()> {
        self.set(fresh()?)
    }

    /// Returns whether an error of [`CongestionControl::check`] says that this process may not
    /// choose the algorithm.
    #[must_use]
    pub fn is_refused(error: &io::Error) -> bool {
        Errno::from_io_error(error) == Some(Errno::PERM)
    }
}

/// Returns a new TCP socket.
fn fresh() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))
}

/// Begins to connect to `remote`, with this congestion control or else the system's. The socket
/// does not block, and is connected when it is writable.
///
/// # Errors
/// The error of the operating system, also that of [`CongestionControl::set`].
pub fn begin_connect(
    remote: SocketAddr,
    congestion: Option<&CongestionControl>,
) -> io::Result<TcpStream> {
    connecting(remote, congestion, |_| Ok(()))
}

/// Begins to connect to `remote` like [`begin_connect`], from this port of the host. When the socket is
/// closed, the connection is reset, so that the port is free for the next connection at once: it does
/// not stay in TIME_WAIT, and data that has not left is discarded.
///
/// # Errors
/// The error of the operating system, among others `AddrInUse` and `AddrNotAvailable` if another socket
/// or an earlier connection to `remote` has the port, and `PermissionDenied` if this process may not
/// use it.
pub fn begin_connect_from(
    port: u16,
    remote: SocketAddr,
    congestion: Option<&CongestionControl>,
) -> io::Result<TcpStream> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    connecting(remote, congestion, |socket| {
        // The port may have connections to other hosts, and some in TIME_WAIT.
        socket.set_reuse_address(true)?;
        // With those of Linux's client too, which has this option.
        socket.set_reuse_port(true)?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.bind(&SocketAddr::new(any, port).into())
    })
}

fn connecting(
    remote: SocketAddr,
    congestion: Option<&CongestionControl>,
    prepare: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(remote), kind, Some(Protocol::TCP))?;
    if let Some(congestion) = congestion {
        congestion.set(&socket)?;
    }
    prepare(&socket)?;
    match socket.connect(&remote.into()) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CongestionControl {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        match (1..=LONGEST).contains(&name.len()) && name.bytes().all(is_name) {
            true => Ok(Self(name.to_owned())),
            false => Err(format!("{name:?} is not the name of a congestion control")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_use_what_they_were_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let of = |socket: &TcpStream| CongestionControl::of(socket).unwrap();
        let system = CongestionControl::of_system().unwrap();
        let socket = begin_connect(address, None).unwrap();
        assert_eq!(of(&socket), system);
        assert_eq!(of(&listener.accept().unwrap().0), system);
        // Every kernel has it, and everybody may choose it.
        let reno: CongestionControl = "reno".parse().unwrap();
        let socket = begin_connect(address, Some(&reno)).unwrap();
        assert_eq!(of(&socket), reno);
        assert_eq!(of(&listener.accept().unwrap().0), system);
        reno.set(&listener).unwrap();
        let _socket = begin_connect(address, None).unwrap();
        assert_eq!(of(&listener.accept().unwrap().0), reno);
    }

    #[test]
    fn what_the_kernel_lacks_is_an_error() {
        let none: CongestionControl = "no-such-one".parse().unwrap();
        let error = none.check().unwrap_err();
        assert!(!CongestionControl::is_refused(&error), "{error}");
        let reno: CongestionControl = "reno".parse().unwrap();
        assert!(reno.set(UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }

    #[test]
    fn names_are_short_words() {
        for name in ["", "sixteen-letters-", "two words", "nul\0", "a/b"] {
            assert!(name.parse::<CongestionControl>().is_err(), "{name:?}");
        }
    }

    /// Two connections to one server cannot have a port together, and it is free as soon as the first one is
    /// closed, by whichever end.
    #[test]
    fn a_port_that_was_asked_for_is_free_again_when_its_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        for server_first in [true, false, true, false] {
            let first = begin_connect_from(port, address, None).unwrap();
            let (mut accepted, peer) = listener.accept().unwrap();
            assert_eq!(peer.port(), port);
            let second = begin_connect_from(port, address, None).unwrap_err();
            assert_eq!(second.kind(), io::ErrorKind::AddrNotAvailable);
            match server_first {
                true => drop((accepted, first)),
                false => {
                    drop(first);
                    // A system may let a port in TIME_WAIT be used again on the loopback interface. So the reset
                    // itself is looked for: without it, this would be the end of the stream.
                    let end = accepted.read(&mut [0]).unwrap_err();
                    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
                }
            }
        }
        let listening = begin_connect_from(address.port(), address, None).unwrap_err();
        assert_eq!(listening.kind(), io::ErrorKind::AddrInUse);
    }
}
