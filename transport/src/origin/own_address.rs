//! Tells whether an address belongs to this host, in this network namespace.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::netlink::ask;
use super::{canonical, malformed, scope};

/// `RTM_GETROUTE` and `RTM_NEWROUTE`, the message types of request and answer (rtnetlink(7)).
const GET_ROUTE: u16 = 26;
const NEW_ROUTE: u16 = 24;
/// `RTA_DST` and `RTA_OIF`, route attributes.
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
/// `RTN_LOCAL`, the type of a route to this host itself.
const LOCAL: u8 = 2;
/// The offset of the type in `struct rtmsg`.
const TYPE: usize = 7;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Returns whether the address belongs to this host. If that cannot be determined, the answer is
/// yes: the socket's owner is then looked up, so a local user cannot pass for a remote host by
/// making the query fail.
pub(super) fn is_own(address: SocketAddr) -> bool {
    let address = canonical(address);
    if address.ip().is_loopback() {
        return true;
    }
    let mut any_port = address;
    any_port.set_port(0);
    match UdpSocket::bind(any_port) {
        // With `ip_nonlocal_bind`, programs can bind to addresses of other hosts.
        Ok(_) if binds_any(address) => routes_here(address).unwrap_or(true),
        Ok(_) => true,
        // A whole prefix can be routed to this host, whose programs may then use every address in
        // it.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            routes_here(address).unwrap_or(true)
        }
        Err(_) => true,
    }
}

/// Returns whether `ip_nonlocal_bind` is set. A successful bind then proves nothing, as every
/// address can be bound.
fn binds_any(address: SocketAddr) -> bool {
    let version = match address {
        SocketAddr::V4(_) => "ipv4",
        SocketAddr::V6(_) => "ipv6",
    };
    fs::read_to_string(format!("/proc/sys/net/{version}/ip_nonlocal_bind"))
        .is_ok_and(|value| value.trim() != "0")
}

/// Returns whether packets to the address stay on this host.
fn routes_here(address: SocketAddr) -> io::Result<bool> {
    match ask(None, GET_ROUTE, &request(address)) {
        Ok((NEW_ROUTE, message)) => message
            .get(TYPE)
            .map(|kind| *kind == LOCAL)
            .ok_or_else(malformed),
        Ok(_) => Err(malformed()),
        // Without a route, the address is not local.
        Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => Ok(false),
        Err(error) => Err(error),
    }
}

/// Encodes `struct rtmsg` with its attributes.
fn request(address: SocketAddr) -> Vec<u8> {
    let (family, bytes) = match address.ip() {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    };
    let mut request = vec![0; 12];
    request[0] = family;
    request[1] = (bytes.len() * 8) as u8;
    let mut attribute = |kind: u16, value: &[u8]| {
        request.extend((4 + value.len() as u16).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(value);
    };
    attribute(DESTINATION, &bytes);
    if scope(address) != 0 {
        attribute(INTERFACE, &scope(address).to_ne_bytes());
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_own_and_documentation_addresses_are_not() {
        for own in [
            "127.0.0.1:1",
            "127.200.3.4:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_own(own.parse().unwrap()), "{own}");
        }
        for other in ["192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
    }

    /// The route lookup decides on hosts where `ip_nonlocal_bind` is set.
    #[test]
    fn the_kernel_says_which_way_leads_here() {
        let here = |address: &str| routes_here(address.parse().unwrap());
        assert!(here("127.0.0.1:1").unwrap());
        assert!(here("[::1]:1").unwrap());
        // A host without a network has no route to it; other hosts have a route that leads
        // elsewhere.
        assert!(!here("192.0.2.1:1").unwrap());
    }
}
