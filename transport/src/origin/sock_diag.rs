//! Lookup of the user who owns a TCP socket of this network namespace (sock_diag(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{AddressFamily, netlink};

use super::netlink::{array_at, ask, u32_at};
use super::{canonical, is_absent, malformed, scope};

/// `SOCK_DIAG_BY_FAMILY`, the message type of request and answer.
const BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
/// `TCP_ESTABLISHED`, the only state in which the owner of a socket is the owner of the connection.
/// In every other state the socket was closed in at least one direction, or has no connection.
const ESTABLISHED: u8 = 1;
/// Mask of all TCP states. The answer contains the state, and [`Socket::owner`] accepts only
/// [`ESTABLISHED`].
const ALL_STATES: u32 = u32::MAX;
/// `INET_DIAG_NOCOOKIE`, twice: matches any socket with these addresses.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// Offsets of fields in `struct inet_diag_msg`. Its `id` (`struct inet_diag_sockid`) follows the
/// first four bytes.
const SOURCE_PORT: usize = 4;
const DESTINATION_PORT: usize = 6;
const SOURCE: usize = 8;
const DESTINATION: usize = 24;
const UID: usize = 64;
const INODE: usize = 68;

/// Returns the user who owns the established socket with the address `own` that is connected to
/// `other`, or `None` if there is no such socket.
///
/// # Errors
/// The error of the netlink request.
pub(super) fn owner(own: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
    let (own, other) = (canonical(own), canonical(other));
    match ask(Some(netlink::SOCK_DIAG), BY_FAMILY, &request(own, other)) {
        Ok((BY_FAMILY, message)) => Socket::parse(&message).map(|socket| socket.owner(own, other)),
        Ok(_) => Err(malformed()),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Encodes `struct inet_diag_req_v2` for exactly these addresses.
fn request(own: SocketAddr, other: SocketAddr) -> Vec<u8> {
    let family = match own {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let mut request = vec![family.as_raw() as u8, IPPROTO_TCP, 0, 0];
    request.extend(ALL_STATES.to_ne_bytes());
    request.extend(own.port().to_be_bytes());
    request.extend(other.port().to_be_bytes());
    for address in [own.ip(), other.ip()] {
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => bytes = v6.octets(),
        }
        request.extend(bytes);
    }
    request.extend(scope(own).to_ne_bytes());
    request.extend(NO_COOKIE);
    request
}

/// A socket as the kernel describes it (`struct inet_diag_msg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    state: u8,
    own: (IpAddr, u16),
    other: (IpAddr, u16),
    uid: u32,
    /// The inode number; 0 when no file descriptor refers to the socket any more.
    inode: u32,
}

impl Socket {
    /// Decodes `struct inet_diag_msg`.
    fn parse(message: &[u8]) -> io::Result<Self> {
        let [family, state] = array_at(message, 0)?;
        let address = |at| {
            if u16::from(family) == AddressFamily::INET.as_raw() {
                array_at(message, at).map(|bytes: [u8; 4]| IpAddr::V4(Ipv4Addr::from(bytes)))
            } else if u16::from(family) == AddressFamily::INET6.as_raw() {
                array_at(message, at)
                    .map(|bytes: [u8; 16]| IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
            } else {
                Err(malformed())
            }
        };
        let port = |at| array_at(message, at).map(u16::from_be_bytes);
        Ok(Self {
            state,
            own: (address(SOURCE)?, port(SOURCE_PORT)?),
            other: (address(DESTINATION)?, port(DESTINATION_PORT)?),
            uid: u32_at(message, UID)?,
            inode: u32_at(message, INODE)?,
        })
    }

    fn owner(self, own: SocketAddr, other: SocketAddr) -> Option<u32> {
        let is_it = self.own == (own.ip(), own.port()) && self.other == (other.ip(), other.port());
        let speaks = self.state == ESTABLISHED && self.inode != 0;
        (is_it && speaks).then_some(self.uid)
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    const OWN: ([u8; 4], u16) = ([127, 0, 0, 1], 4000);
    const OTHER: ([u8; 4], u16) = ([127, 0, 0, 1], 2049);

    fn message(state: u8, uid: u32, inode: u32) -> Vec<u8> {
        let mut bytes = vec![AddressFamily::INET.as_raw() as u8, state, 0, 0];
        bytes.extend(OWN.1.to_be_bytes());
        bytes.extend(OTHER.1.to_be_bytes());
        for (address, _) in [OWN, OTHER] {
            bytes.extend(address);
            bytes.extend([0; 12]);
        }
        bytes.extend([0; 12 + 12]);
        bytes.extend(uid.to_ne_bytes());
        bytes.extend(inode.to_ne_bytes());
        bytes
    }

    fn owner_of(message: &[u8]) -> Option<u32> {
        let socket = Socket::parse(message).unwrap();
        socket.owner(OWN.into(), OTHER.into())
    }

    #[test]
    fn only_an_established_socket_that_somebody_holds_has_an_owner() {
        assert_eq!(owner_of(&message(ESTABLISHED, 1000, 5)), Some(1000));
        assert_eq!(owner_of(&message(ESTABLISHED, 0, 5)), Some(0));
        assert_eq!(owner_of(&message(ESTABLISHED, 0, 0)), None, "closed");
        // FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, and others.
        for state in (0..=u8::MAX).filter(|state| *state != ESTABLISHED) {
            assert_eq!(owner_of(&message(state, 0, 5)), None, "{state}");
        }
    }

    #[test]
    fn another_socket_than_the_one_asked_for_has_no_say() {
        let socket = Socket::parse(&message(ESTABLISHED, 0, 5)).unwrap();
        let elsewhere = ([127, 0, 0, 1], 4001);
        assert_eq!(socket.owner(elsewhere.into(), OTHER.into()), None);
        assert_eq!(socket.owner(OWN.into(), elsewhere.into()), None);
        assert_eq!(
            socket.owner(([127, 0, 0, 2], 4000).into(), OTHER.into()),
            None
        );
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let whole = message(ESTABLISHED, 0, 5);
        for len in 0..whole.len() {
            assert!(Socket::parse(&whole[..len]).is_err(), "{len}");
        }
        let mut unknown = whole;
        unknown[0] = 99;
        assert!(Socket::parse(&unknown).is_err(), "no such address family");
    }

    quickcheck! {
        fn any_bytes_are_parsed(bytes: Vec<u8>) -> bool {
            Socket::parse(&bytes).is_err() || bytes.len() >= INODE + 4
        }
    }
}
