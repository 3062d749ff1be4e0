//! The sets of clients that may use an export.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A set of addresses: one address, a network, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Every address (`*`).
    Any,
    /// The addresses that start with the first `prefix` bits of `address`.
    Prefix {
        /// An address in the network. An IPv4-mapped IPv6 address is parsed to the IPv4 address.
        address: IpAddr,
        /// The length of the prefix in bits.
        prefix: u8,
    },
}

/// The error for a text that is not an address, a network, or `*`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither an address (192.0.2.1), nor a network (192.0.2.0/24, 2001:db8::/32), nor *; \
     host names are not looked up"
)]
pub struct BadNetwork(String);

/// Returns an address as 128 left-aligned bits, and its length in bits.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl Network {
    /// Returns whether the set contains the address. An IPv4-mapped IPv6 address counts as an IPv4
    /// address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match *self {
            Self::Any => true,
            Self::Prefix {
                address: own,
                prefix,
            } => {
                let (own, own_len) = bits(own.to_canonical());
                let (other, other_len) = bits(address.to_canonical());
                let differ = (own ^ other).leading_zeros();
                own_len == other_len && differ >= u32::from(prefix)
            }
        }
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let bad = || BadNetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let (_, len) = bits(address);
        let prefix = match prefix {
            None => len,
            // exports(5) also allows netmasks: 192.0.2.0/255.255.255.0.
            Some(mask) if mask.contains('.') && len == 32 => {
                let mask: std::net::Ipv4Addr = mask.parse().map_err(|_| bad())?;
                let ones = mask.to_bits().leading_ones();
                if mask.to_bits().count_ones() != ones {
                    return Err(bad());
                }
                ones as u8
            }
            Some(prefix) => prefix.parse().map_err(|_| bad())?,
        };
        if prefix > len {
            return Err(bad());
        }
        let canonical = address.to_canonical();
        // An IPv4-mapped address has the IPv4 address in its last 32 bits.
        let before_mapped = len - bits(canonical).1;
        Ok(Self::Prefix {
            address: canonical,
            prefix: prefix.checked_sub(before_mapped).ok_or_else(bad)?,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix { address, prefix } if bits(*address).1 == *prefix => {
                write!(f, "{address}")
            }
            Self::Prefix { address, prefix } => write!(f, "{address}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let has = |network: &str, address: &str| {
            let network: Network = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(has("10.0.0.0/8", "10.255.1.2"));
        assert!(!has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("10.0.0.0/255.0.0.0", "10.9.8.7"));
        assert!(has("192.0.2.1", "192.0.2.1"));
        assert!(!has("192.0.2.1", "192.0.2.3"));
        assert!(has("192.0.2.1", "::ffff:192.0.2.1"));
        for peer in ["10.1.2.3", "::ffff:10.1.2.3"] {
            assert!(has("::ffff:10.0.0.0/104", peer), "{peer}");
            assert!(has("::ffff:10.1.2.3", peer), "{peer}");
        }
        assert!(!has("::ffff:10.0.0.0/104", "11.0.0.0"));
        assert!(has("::ffff:0.0.0.0/96", "8.8.8.8"));
        assert!(has("2001:db8::/32", "2001:db8:1::1"));
        assert!(!has("2001:db8::/32", "2001:db9::1"));
        assert!(!has("0.0.0.0/0", "::1"));
        assert!(has("0.0.0.0/0", "8.8.8.8"));
        assert!(has("*", "::1"));
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "",
            "host.example",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/255.0.255.0",
            "::ffff:10.0.0.0/95",
            "::ffff:10.0.0.0/129",
            "1/8",
        ] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.to_string().contains("neither an address"));
        }
    }

    #[test]
    fn is_printed_as_written() {
        let mapped: Network = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!(mapped.to_string(), "10.0.0.0/8");
        for text in ["*", "10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
    }
}
