//! Determines the origin of a call, as far as the system knows it.
//!
//! An AUTH_SYS credential is only the client's own claim. For a peer on this host the kernel knows
//! which user owns the socket at the other end. The server asks the kernel once for each
//! connection, before it executes the first call.
//!
//! Only the owner of an established socket counts. A socket that was closed after its call was sent
//! has no owner any more (kernels before 6.16 show user 0 for it), and somebody else may reuse its
//! addresses; such a peer is an unknown user of this host. It never counts as another host, because
//! a user of this host could otherwise pass for one.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use rdma::Carrier;
use rustix::io::Errno;

mod netlink;
mod own_address;
mod sock_diag;

/// The place that a call comes from: another host, or a user of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerOrigin {
    /// The call came over TCP from another host or from another network namespace of this host.
    OverTcp,
    /// The call came over RDMA from another host, or through a device whose connections are not in
    /// the system's table of sockets. Callers in the same process (simulations, tests) count as
    /// well.
    #[default]
    OverRdma,
    /// The call came from a process in this host's network namespace, over TCP or over software
    /// RDMA. A connection that ended before its origin was looked up is also reported here, with an
    /// unknown user.
    ThisHost {
        /// The user who owns the other end of the connection, or `None` if the system does not
        /// tell.
        user: Option<u32>,
    },
}

impl fmt::Display for PeerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverTcp | Self::OverRdma => write!(f, "another host"),
            Self::ThisHost { user: Some(user) } => write!(f, "this host, user {user}"),
            Self::ThisHost { user: None } => write!(f, "this host, unknown user"),
        }
    }
}

impl PeerOrigin {
    /// Determines the origin of a connection. `carrier` returns the lower-layer connection that
    /// carries it at present. `carrier` is called again after the lookup of the socket's owner,
    /// because the addresses of a connection that ended meanwhile may belong to another one.
    pub(crate) fn find(is_rdma: bool, carrier: impl Fn() -> Carrier) -> Self {
        let before = carrier();
        let Carrier::Tcp { local, peer } = before else {
            return match before {
                Carrier::Device => Self::OverRdma,
                Carrier::Tcp { .. } | Carrier::Ended => Self::ThisHost { user: None },
            };
        };
        if !own_address::is_own(peer) {
            return match is_rdma {
                true => Self::OverRdma,
                false => Self::OverTcp,
            };
        }
        let user = match sock_diag::owner(peer, local) {
            Ok(user) => user,
            Err(error) => {
                rpcrdma_host::limited!(
                    warn,
                    %peer,
                    %error,
                    "the system does not tell which user of this host has connected: its users are \
                     nobody here (NETLINK_SOCK_DIAG is needed: AF_NETLINK in a service's \
                     RestrictAddressFamilies=, CONFIG_INET_DIAG in the kernel)"
                );
                None
            }
        };
        // If the peer's socket was reset meanwhile, another socket may have its addresses. While
        // this end of the connection is up, no other socket has them.
        Self::ThisHost {
            user: user.filter(|_| carrier() == before),
        }
    }
}

/// Returns the error for a netlink answer that is not as documented.
fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed netlink message")
}

/// Converts an IPv4-mapped IPv6 address to IPv4. Returns any other address unchanged.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// Returns the scope id (interface) of an IPv6 address, and 0 for IPv4.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Returns whether the error says that the object does not exist.
fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// Returns a connected pair of sockets: the client's end and the server's end.
    fn pair(listen: &str, to: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, server)
    }

    fn carrier(server: &TcpStream) -> Carrier {
        Carrier::tcp(server.local_addr(), server.peer_addr())
    }

    fn found(server: &TcpStream) -> PeerOrigin {
        PeerOrigin::find(false, || carrier(server))
    }

    const NOBODY: PeerOrigin = PeerOrigin::ThisHost { user: None };

    fn myself() -> PeerOrigin {
        let user = Some(rustix::process::geteuid().as_raw());
        PeerOrigin::ThisHost { user }
    }

    #[test]
    fn a_peer_on_this_host_is_the_user_who_owns_its_socket() {
        let ways = [
            ("127.0.0.1:0", "127.0.0.1"),
            // An IPv4 client of a socket that accepts IPv4 and IPv6.
            ("[::]:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
        ];
        for (listen, to) in ways {
            let (_client, server) = pair(listen, to);
            assert_eq!(found(&server), myself(), "{listen} {to}");
        }
    }

    /// Kernels before 6.16 show user 0 as the owner of a socket that was closed.
    #[test]
    fn a_peer_that_closed_its_socket_after_sending_is_an_unknown_user() {
        for _ in 0..50 {
            let (client, server) = pair("127.0.0.1:0", "127.0.0.1");
            drop(client);
            assert_eq!(found(&server), NOBODY);
        }
    }

    #[test]
    fn a_peer_that_closed_half_of_its_connection_is_an_unknown_user() {
        let (client, server) = pair("127.0.0.1:0", "127.0.0.1");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(found(&server), NOBODY);
    }

    #[test]
    fn a_peer_that_was_reset_is_an_unknown_user() {
        let (client, server) = pair("127.0.0.1:0", "127.0.0.1");
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(carrier(&server), Carrier::Ended);
        assert_eq!(found(&server), NOBODY);
    }

    /// The addresses of a connection that was reset may be reused by another user. The calls of the
    /// reset connection are not that user's.
    #[test]
    fn a_connection_that_ends_while_its_owner_is_looked_up_has_an_unknown_user() {
        let (_client, server) = pair("127.0.0.1:0", "127.0.0.1");
        let looks = Cell::new(0);
        let ends = || match looks.replace(looks.get() + 1) {
            0 => carrier(&server),
            _ => Carrier::Ended,
        };
        let origin = PeerOrigin::find(false, ends);
        assert_eq!(origin, NOBODY);
        assert_eq!(looks.get(), 2);
    }

    /// A local address without a socket may belong to a peer in another network namespace, or to
    /// none.
    #[test]
    fn a_local_address_without_a_socket_is_an_unknown_user_and_never_another_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        for peer in [
            "127.0.0.1:1",
            "127.9.9.9:700",
            "[::1]:700",
            "[::ffff:127.0.0.1]:700",
        ] {
            let peer = peer.parse().unwrap();
            let nobody = || Carrier::Tcp { local, peer };
            for is_rdma in [false, true] {
                let origin = PeerOrigin::find(is_rdma, nobody);
                assert_eq!(origin, NOBODY, "{peer}");
            }
        }
        // Without an exact match, the kernel returns the listener on the peer's address.
        let own = || Carrier::Tcp {
            local: "127.0.0.1:1".parse().unwrap(),
            peer: local,
        };
        let origin = PeerOrigin::find(false, own);
        assert_eq!(origin, NOBODY);
    }

    #[test]
    fn other_hosts_are_told_apart_by_what_they_connect_over() {
        // Documentation addresses (RFC 5737, RFC 3849), which no host has.
        for peer in [
            "192.0.2.1:700",
            "[2001:db8::1]:700",
            "[::ffff:192.0.2.1]:700",
        ] {
            let peer = peer.parse().unwrap();
            let local = "127.0.0.1:2049".parse().unwrap();
            let elsewhere = || Carrier::Tcp { local, peer };
            let find = |is_rdma| PeerOrigin::find(is_rdma, elsewhere);
            assert_eq!(find(false), PeerOrigin::OverTcp, "{peer}");
            assert_eq!(find(true), PeerOrigin::OverRdma, "{peer}");
        }
        let device = PeerOrigin::find(true, || Carrier::Device);
        assert_eq!(device, PeerOrigin::OverRdma);
    }
}
