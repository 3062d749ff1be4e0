//! From a packet to its TCP segment or UDP datagram.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;

/// A TCP segment.
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) payload: &'a [u8],
    /// Bytes of the payload that the capture has cut off.
    pub(crate) missing: u32,
}

/// A UDP datagram.
pub(crate) struct Datagram<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) port: u16,
    pub(crate) payload: &'a [u8],
    /// Bytes of the payload that the capture has cut off.
    pub(crate) missing: u32,
}

pub(crate) enum Parsed<'a> {
    Tcp(Segment<'a>),
    Udp(Datagram<'a>),
    /// Something else, a fragment of an IP packet, or a link type that is not known here.
    Other,
}

/// Bytes of the headers of Linux cooked captures, and where they have the EtherType.
const COOKED: (usize, usize) = (16, 14);
const COOKED_2: (usize, usize) = (20, 0);

pub(crate) fn parse(link: Linktype, bytes: &[u8]) -> Parsed<'_> {
    let cooked = |(len, at): (usize, usize)| {
        let kind = EtherType(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        Some(LaxSlicedPacket::from_ether_type(kind, bytes.get(len..)?))
    };
    let sliced = match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        Linktype::LINUX_SLL => cooked(COOKED),
        Linktype::LINUX_SLL2 => cooked(COOKED_2),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => LaxSlicedPacket::from_ip(bytes).ok(),
        _ => None,
    };
    sliced
        .and_then(|it| transport(&it))
        .unwrap_or(Parsed::Other)
}

fn transport<'a>(packet: &LaxSlicedPacket<'a>) -> Option<Parsed<'a>> {
    let (from, to, length): (IpAddr, IpAddr, usize) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(net) => {
            let header = net.header();
            let length = usize::from(header.total_len());
            let headers = usize::from(header.ihl()) * 4;
            let addresses = (header.source_addr(), header.destination_addr());
            (
                addresses.0.into(),
                addresses.1.into(),
                length.saturating_sub(headers),
            )
        }
        LaxNetSlice::Ipv6(net) => {
            let header = net.header();
            let addresses = (header.source_addr(), header.destination_addr());
            let length = usize::from(header.payload_length());
            let length = length.saturating_sub(net.extensions().slice().len());
            (addresses.0.into(), addresses.1.into(), length)
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let payload = packet.ip_payload()?;
    if payload.fragmented {
        return None;
    }
    // Lengths beyond 16 bits, of packets that the device divides, are zero in the header.
    let missing = length.saturating_sub(payload.payload.len()) as u32;
    match packet.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => Some(Parsed::Tcp(Segment {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
            sequence: tcp.sequence_number(),
            acknowledged: tcp.ack().then(|| tcp.acknowledgment_number()),
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            payload: tcp.payload(),
            missing,
        })),
        TransportSlice::Udp(udp) => Some(Parsed::Udp(Datagram {
            from,
            to,
            port: udp.destination_port(),
            payload: udp.payload(),
            missing,
        })),
        _ => None,
    }
}
