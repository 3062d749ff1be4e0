//! The messages of rpcbind, the program that tells clients on which address each program of a host is
//! served (RFC 1833, section 2).
//!
//! Versions 3 and 4 have the same messages for the procedures that are here.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::{DecodeError, Decoder, Encoder};

/// The program number of rpcbind.
pub const RPCBIND_PROGRAM: u32 = 100_000;
/// The version in which programs are registered by network identifiers and universal addresses.
pub const RPCBIND_VERSION: u32 = 3;
/// The TCP port of rpcbind.
pub const RPCBIND_PORT: u16 = 111;

/// RPCBPROC_SET: registers a [`Mapping`]. The result is a boolean.
pub const SET: u32 = 1;
/// RPCBPROC_UNSET: removes the mapping with this program, version and network identifier. The result is
/// a boolean.
pub const UNSET: u32 = 2;
/// RPCBPROC_DUMP: returns all mappings (see [`decode_mappings`]).
pub const DUMP: u32 = 4;

/// The maximum length of a string in a mapping, bytes. RFC 1833 gives no limit. The longest in use are
/// addresses of local sockets, which are paths of at most 108 bytes.
pub const MAX_STRING: u32 = 256;

/// `rpcb`: the address on which a version of a program is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Program number.
    pub prog: u32,
    /// Version number.
    pub vers: u32,
    /// Network identifier, such as `tcp` or `rdma6` (RFC 5665, section 5.2).
    pub netid: Bytes,
    /// Universal address (see [`universal_address`]).
    pub address: Bytes,
    /// The owner. rpcbind ignores what a caller claims, and returns the user who registered the mapping.
    pub owner: Bytes,
}

impl Mapping {
    /// Appends the mapping.
    ///
    /// # Panics
    /// Panics if a string is 4 GiB or longer, which is a programming error.
    pub fn encode(&self, out: &mut Encoder) {
        out.u32(self.prog).u32(self.vers);
        out.opaque(&self.netid);
        out.opaque(&self.address);
        out.opaque(&self.owner);
    }

    /// Decodes a mapping.
    ///
    /// # Errors
    /// [`DecodeError`] if it is cut off or has a string longer than [`MAX_STRING`].
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            prog: from.u32()?,
            vers: from.u32()?,
            netid: from.opaque(MAX_STRING)?,
            address: from.opaque(MAX_STRING)?,
            owner: from.opaque(MAX_STRING)?,
        })
    }
}

/// Decodes `rpcblist_ptr`, the result of [`DUMP`].
///
/// # Errors
/// [`DecodeError`], as for [`Mapping::decode`].
pub fn decode_mappings(from: &mut Decoder<'_>) -> Result<Vec<Mapping>, DecodeError> {
    let mut mappings = Vec::new();
    while from.bool()? {
        mappings.push(Mapping::decode(from)?);
    }
    Ok(mappings)
}

/// Returns the universal address of a socket: its IP address, and the two bytes of its port as decimal
/// numbers, joined by dots (RFC 5665, sections 5.2.3.3 and 5.2.3.4).
#[must_use]
pub fn universal_address(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// Returns the socket of a universal address, or `None` if it is not one of IPv4 or IPv6.
#[must_use]
pub fn socket_address(universal: &[u8]) -> Option<SocketAddr> {
    let universal = std::str::from_utf8(universal).ok()?;
    let (rest, low) = universal.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port))
}
