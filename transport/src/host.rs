//! Hosts, as far as their addresses tell them apart.

use std::net::{IpAddr, Ipv6Addr};

/// The part of an address by which connections of one host are recognized: the first 64 bits of an
/// IPv6 address, because every subscriber has as many addresses with this prefix as it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Host(IpAddr);

impl Host {
    /// Returns the host of an address. An IPv4 address counts as the same in its IPv6 form.
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let prefix = address.to_bits() >> 64 << 64;
                Ipv6Addr::from_bits(prefix).into()
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_ipv4_address_or_a_prefix_of_ipv6() {
        let host = |address: &str| Host::new(address.parse().unwrap());
        assert_eq!(host("2001:db8::1"), host("2001:db8::2:3"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("192.0.2.2"), host("192.0.2.1"));
    }
}
