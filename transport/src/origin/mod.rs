//! Where a call comes from, as far as the system tells.
//!
//! AUTH_SYS is what a client says of itself. Of a peer on this host the kernel knows better: which
//! user owns the socket at the other end. It is asked once for each connection, before its first call
//! is executed.
//!
//! What counts is the owner of an established socket alone. A socket that was closed after its call
//! was sent has no owner any more (kernels before 6.16 show user 0 for it), and its addresses may be
//! used again by somebody else; such a peer is an unknown user of this host. It is never another
//! host: that would let a user of this host choose to be one.

use std::io;
use std::net::SocketAddr;

use rdma::Carrier;
use rustix::io::Errno;

mod netlink;
mod own_address;
mod sock_diag;

/// Where a call comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerOrigin {
    /// Over TCP, from another host or from another network namespace of this one.
    OverTcp,
    /// Over RDMA from another host, or by a device whose connections are not in the system's table of
    /// sockets; also callers within the process (simulations, tests).
    #[default]
    OverRdma,
    /// From a process in this host's network namespace, over TCP or over RDMA in software. A connection
    /// that ended before its origin was looked up is also reported here, with an unknown user.
    ThisHost {
        /// The user who owns the other end of the connection; none if the system does not tell.
        user: Option<u32>,
    },
}

impl PeerOrigin {
    /// Determines the origin of a connection. `carrier` returns what carries the connection at present. It
    /// is called again after the lookup of the socket's owner, because the addresses of a connection that
    /// ended meanwhile may belong to another one.
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
                rdma::limited!(
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
        // A peer that was reset meanwhile leaves its addresses to others. While this end is up, nobody
        // else has them.
        Self::ThisHost {
            user: user.filter(|_| carrier() == before),
        }
    }
}

/// An answer of the kernel's that is not as documented.
fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed netlink message")
}

/// The IPv4 address of an IPv4-mapped IPv6 address; any other address as it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// The interface that an address is of, where its kind says so.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// An answer that says that something is not there.
fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// A connected pair: the client's end, and the server's.
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
            // An IPv4 client of a socket that listens for both.
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

    /// The addresses of a connection that was reset are free for another user's, whose calls these
    /// are not.
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

    /// Another network namespace may use an address of ours; so may nobody at all.
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
        // A listener on the peer's address, which the kernel finds in the connection's place.
        let own = || Carrier::Tcp {
            local: "127.0.0.1:1".parse().unwrap(),
            peer: local,
        };
        let origin = PeerOrigin::find(false, own);
        assert_eq!(origin, NOBODY);
    }

    #[test]
    fn other_hosts_are_told_apart_by_what_they_connect_over() {
        // Documentation addresses (RFC 5737, RFC 3849): nobody has them.
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
