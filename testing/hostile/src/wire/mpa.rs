//! MPA: set-up frames (RFC 5044, section 7.1; RFC 6581) and FPDUs (RFC 5044, section 4).

/// Key of an initiator's frame.
pub const REQUEST_KEY: [u8; 16] = *b"MPA ID Req Frame";
/// Key of a responder's frame.
pub const REPLY_KEY: [u8; 16] = *b"MPA ID Rep Frame";

/// Flag: the sender requires markers.
pub const MARKERS: u8 = 0x80;
/// Flag: the sender wants CRCs.
pub const CRC: u8 = 0x40;
/// Flag: the connection is rejected.
pub const REJECT: u8 = 0x20;
/// Flag: IRD and ORD come first in the private data.
pub const ENHANCED: u8 = 0x10;

/// Bit of the IRD word: peer-to-peer set-up.
pub const PEER_TO_PEER: u16 = 0x8000;
/// Bit of the IRD word: an empty FPDU may be the ready-to-receive message.
pub const RTR_EMPTY: u16 = 0x4000;
/// Bit of the ORD word: an RDMA Write may be.
pub const RTR_WRITE: u16 = 0x8000;
/// Bit of the ORD word: an RDMA Read may be.
pub const RTR_READ: u16 = 0x4000;

/// What RFC 8797 has in private data: 4096 bytes both ways, remote invalidation.
pub const PRIVATE_DATA: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

/// A set-up frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which frame it says it is.
    pub key: [u8; 16],
    /// Flags.
    pub flags: u8,
    /// Revision.
    pub revision: u8,
    /// Length of the private data, when it is not to be the right one.
    pub length: Option<u16>,
    /// IRD and ORD with their bits.
    pub depths: Option<(u16, u16)>,
    /// What follows them.
    pub private: Vec<u8>,
}

impl Frame {
    /// What an honest initiator sends.
    #[must_use]
    pub fn request() -> Self {
        Self {
            key: REQUEST_KEY,
            flags: ENHANCED,
            revision: 2,
            length: None,
            depths: Some((16, 4)),
            private: PRIVATE_DATA.to_vec(),
        }
    }

    /// What an honest responder sends to an initiator that can begin with an RDMA Write.
    #[must_use]
    pub fn reply() -> Self {
        Self {
            key: REPLY_KEY,
            depths: Some((16 | PEER_TO_PEER, 16 | RTR_WRITE)),
            ..Self::request()
        }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut private = Vec::new();
        if let Some((inbound, outbound)) = self.depths {
            private.extend(inbound.to_be_bytes());
            private.extend(outbound.to_be_bytes());
        }
        private.extend(&self.private);
        let length = self.length.unwrap_or(private.len() as u16);
        let mut out = self.key.to_vec();
        out.extend([self.flags, self.revision]);
        out.extend(length.to_be_bytes());
        out.extend(private);
        out
    }
}

/// Bytes between a ULPDU and its CRC.
#[must_use]
pub fn padding(ulpdu: usize) -> usize {
    (ulpdu + 2).wrapping_neg() % 4
}

/// The FPDU of a ULPDU.
#[must_use]
pub fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    fpdu_of_length(ulpdu.len() as u16, ulpdu, crc)
}

/// The same, with another `ULPDU_Length` than the right one.
#[must_use]
pub fn fpdu_of_length(length: u16, ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut out = length.to_be_bytes().to_vec();
    out.extend(ulpdu);
    out.resize(out.len() + padding(ulpdu.len()), 0);
    let sum = if crc { crc32c::crc32c(&out) } else { 0 };
    out.extend(sum.to_le_bytes());
    out
}
