//! Ethernet frames with IP and TCP headers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::checksum::Sum;

/// Length in bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Length in bytes of an IPv4 header without options.
const IPV4: usize = 20;
/// Length in bytes of an IPv6 header.
const IPV6: usize = 40;
/// Length in bytes of a TCP header without options.
const TCP: usize = 20;
/// Length in bytes of all headers of the longest kind, which a capture must keep to be of use.
pub(crate) const LONGEST_HEADERS: usize = ETHERNET + IPV6 + TCP + SYN_OPTIONS.len();
/// Maximum number of bytes of TCP payload that fit the 16-bit lengths of both versions of IP.
pub(crate) const MAX_PAYLOAD: usize = u16::MAX as usize - IPV6 - TCP;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_TCP: u8 = 6;
/// Time to live, or hop limit.
const HOPS: u8 = 64;
/// The window of all segments: with the shift in [`SYN_OPTIONS`] one GiB, the most that TCP has.
const WINDOW: u16 = u16::MAX;
/// Options of a SYN: a maximum segment size, and a window shift of 14 (RFC 7323, section 2.2).
/// Without the shift, analysers would take the sender for one that waits for a larger window.
const SYN_OPTIONS: [u8; 8] = {
    let mss = (MAX_PAYLOAD as u16).to_be_bytes();
    [2, 4, mss[0], mss[1], 1, 3, 3, 14]
};

/// Flags of a segment.
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;

/// The two ends of a TCP connection, with addresses of the same version of IP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends([SocketAddr; 2]);

impl Ends {
    /// Creates the ends. IPv4 addresses that are mapped to IPv6 become IPv4 addresses, as on the
    /// wire. If one end has IPv4 and the other IPv6, the former is mapped.
    pub(crate) fn new(ends: [SocketAddr; 2]) -> Self {
        let plain = ends.map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
        if plain[0].is_ipv4() == plain[1].is_ipv4() {
            return Self(plain);
        }
        Self(plain.map(|end| match end.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()),
            IpAddr::V6(_) => end,
        }))
    }
}

/// The variable fields of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// The end that sends it, 0 or 1.
    pub(crate) from: usize,
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: u32,
    /// Identification of the IPv4 packet.
    pub(crate) id: u16,
    /// Length and sum of the payload.
    pub(crate) payload: usize,
    pub(crate) sum: Sum,
}

/// Returns the headers of a segment. `payload` is at most [`MAX_PAYLOAD`].
pub(crate) fn headers(ends: &Ends, segment: &Segment) -> Vec<u8> {
    let (from, to) = (ends.0[segment.from], ends.0[1 - segment.from]);
    let options: &[u8] = match segment.flags & SYN {
        0 => &[],
        _ => &SYN_OPTIONS,
    };
    let header = TCP + options.len();
    let tcp_length = (header + segment.payload) as u16;
    let mut frame = Vec::with_capacity(LONGEST_HEADERS);
    // Locally administered addresses, one for each end.
    for end in [1 - segment.from, segment.from] {
        frame.extend_from_slice(&[2, 0, 0, 0, 0, end as u8 + 1]);
    }
    let mut sum = Sum::default();
    match (from.ip(), to.ip()) {
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend_from_slice(&ETHERTYPE_IPV6);
            frame.extend_from_slice(&[0x60, 0, 0, 0]);
            frame.extend_from_slice(&tcp_length.to_be_bytes());
            frame.extend_from_slice(&[PROTOCOL_TCP, HOPS]);
            for ip in [from, to] {
                frame.extend_from_slice(&ip.octets());
                sum.add(&ip.octets());
            }
        }
        (from, to) => {
            let [from, to] = [from, to].map(|ip| match ip {
                IpAddr::V4(ip) => ip,
                // `Ends` has two addresses of one version.
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            });
            frame.extend_from_slice(&ETHERTYPE_IPV4);
            let start = frame.len();
            let total = IPV4 as u16 + tcp_length;
            frame.extend_from_slice(&[0x45, 0]);
            frame.extend_from_slice(&total.to_be_bytes());
            frame.extend_from_slice(&segment.id.to_be_bytes());
            // Not to be fragmented.
            frame.extend_from_slice(&[0x40, 0, HOPS, PROTOCOL_TCP, 0, 0]);
            for ip in [from, to] {
                frame.extend_from_slice(&ip.octets());
                sum.add(&ip.octets());
            }
            let mut header = Sum::default();
            header.add(&frame[start..]);
            let checksum = header.checksum().to_be_bytes();
            frame[start + 10..start + 12].copy_from_slice(&checksum);
        }
    }
    // The pseudo-header (RFC 9293, section 3.1).
    sum.add(&[0, PROTOCOL_TCP]);
    sum.add(&tcp_length.to_be_bytes());
    let start = frame.len();
    frame.extend_from_slice(&from.port().to_be_bytes());
    frame.extend_from_slice(&to.port().to_be_bytes());
    frame.extend_from_slice(&segment.sequence.to_be_bytes());
    frame.extend_from_slice(&segment.acknowledged.to_be_bytes());
    frame.extend_from_slice(&[(header as u8 / 4) << 4, segment.flags]);
    frame.extend_from_slice(&WINDOW.to_be_bytes());
    // Checksum and urgent pointer.
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(options);
    sum.add(&frame[start..]);
    sum.add_sum(segment.sum);
    let checksum = sum.checksum().to_be_bytes();
    frame[start + 16..start + 18].copy_from_slice(&checksum);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(payload: &[u8]) -> Segment {
        let mut sum = Sum::default();
        sum.add(payload);
        Segment {
            from: 0,
            flags: ACK | PSH,
            sequence: 7,
            acknowledged: 9,
            id: 3,
            payload: payload.len(),
            sum,
        }
    }

    /// A receiver adds up everything, with the checksum, and gets all ones.
    fn checks(pseudo: &[u8], bytes: &[u8]) -> bool {
        let mut sum = Sum::default();
        sum.add(pseudo);
        sum.add(bytes);
        sum.checksum() == 0
    }

    #[test]
    fn checksums_of_both_versions_of_ip_are_right() {
        let payload = b"odd number of bytes";
        let v4 = Ends::new(["10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()]);
        let mut frame = headers(&v4, &segment(payload));
        frame.extend_from_slice(payload);
        assert!(checks(&[], &frame[14..34]));
        let mut pseudo = frame[26..34].to_vec();
        pseudo.extend_from_slice(&[0, 6, 0, (frame.len() - 34) as u8]);
        assert!(checks(&pseudo, &frame[34..]));
        let v6 = Ends::new(["[::1]:1".parse().unwrap(), "[::2]:2".parse().unwrap()]);
        let mut frame = headers(&v6, &segment(payload));
        frame.extend_from_slice(payload);
        let mut pseudo = frame[22..54].to_vec();
        pseudo.extend_from_slice(&[0, 0, 0, (frame.len() - 54) as u8, 0, 0, 0, 6]);
        assert!(checks(&pseudo, &frame[54..]));
    }

    #[test]
    fn both_ends_have_addresses_of_one_version() {
        let mapped = Ends::new(["[::ffff:10.0.0.1]:1", "10.0.0.2:2"].map(|a| a.parse().unwrap()));
        assert!(mapped.0.iter().all(SocketAddr::is_ipv4));
        let mixed = Ends::new(["[::1]:1", "10.0.0.2:2"].map(|a| a.parse().unwrap()));
        assert!(mixed.0.iter().all(SocketAddr::is_ipv6));
    }
}
