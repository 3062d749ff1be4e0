//! FPDUs in a capture, which tests change where they lie in the file.

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, parse_block_le};

/// Bytes in front of the ULPDU of an FPDU.
pub(super) const LENGTH: usize = 2;
/// Bytes of DDP's header in an untagged segment.
pub(super) const UNTAGGED: usize = 18;

/// An FPDU in a capture: where its ULPDU lies in the file, and its packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fpdu {
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) packet: u64,
    pub(super) is_from_client: bool,
}

/// Returns the FPDUs of a capture of one connection, each of which has a segment of its own.
pub(super) fn fpdus(bytes: &[u8]) -> Vec<Fpdu> {
    let mut rest = bytes;
    let (mut found, mut packet, mut client) = (Vec::new(), 0, None);
    while !rest.is_empty() {
        let (after, block) = parse_block_le(rest).expect("a damaged block");
        rest = after;
        let Block::EnhancedPacket(block) = block else {
            continue;
        };
        packet += 1;
        let frame = block.packet_data();
        let ip = match frame[12..14] {
            [0x08, 0x00] => 20,
            _ => 40,
        };
        let tcp = 14 + ip;
        let port = [frame[tcp], frame[tcp + 1]];
        client = client.or(Some(port));
        let start = tcp + 4 * usize::from(frame[tcp + 12] >> 4);
        let payload = &frame[start..];
        if payload.len() < LENGTH + UNTAGGED || payload.starts_with(b"MPA ") {
            continue;
        }
        found.push(Fpdu {
            at: payload.as_ptr() as usize - bytes.as_ptr() as usize + LENGTH,
            len: usize::from(u16::from_be_bytes([payload[0], payload[1]])),
            packet,
            is_from_client: client == Some(port),
        });
    }
    found
}

/// A word of a ULPDU.
pub(super) fn word(ulpdu: &[u8], at: usize) -> Option<u32> {
    let word = ulpdu.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

/// A word of the RPC-over-RDMA header of a Send that begins and ends in this ULPDU, by its index.
pub(super) fn header(ulpdu: &[u8], index: usize) -> Option<u32> {
    let is_send = matches!(ulpdu.get(..2)?, [0x41, 0x43..=0x46]);
    is_send.then(|| word(ulpdu, UNTAGGED + 4 * index))?
}

pub(super) fn opcode(ulpdu: &[u8]) -> u8 {
    ulpdu[1] & 0x0f
}

/// Writes the CRC behind a ULPDU that was changed.
pub(super) fn seal(bytes: &mut [u8], fpdu: &Fpdu) {
    let start = fpdu.at - LENGTH;
    let end = start + (LENGTH + fpdu.len).next_multiple_of(4);
    let crc = crc32c::crc32c(&bytes[start..end]);
    bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}
