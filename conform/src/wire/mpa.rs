//! MPA: setup frames (RFC 5044, section 7.1; RFC 6581) and FPDUs (RFC 5044, section 4).

/// The key of an initiator's frame.
pub const REQUEST_KEY: [u8; 16] = *b"MPA ID Req Frame";
/// The key of a responder's frame.
pub const REPLY_KEY: [u8; 16] = *b"MPA ID Rep Frame";

/// Flag: the sender requires markers.
pub const MARKERS: u8 = 0x80;
/// Flag: the sender wants CRCs.
pub const CRC: u8 = 0x40;
/// Flag: the connection is rejected.
pub const REJECT: u8 = 0x20;
/// Flag: the private data starts with IRD and ORD.
pub const ENHANCED: u8 = 0x10;

/// Bit of the IRD word: peer-to-peer setup.
pub const PEER_TO_PEER: u16 = 0x8000;
/// Bit of the IRD word: the ready-to-receive message may be an empty FPDU.
pub const RTR_EMPTY: u16 = 0x4000;
/// Bit of the ORD word: the ready-to-receive message may be an RDMA Write.
pub const RTR_WRITE: u16 = 0x8000;
/// Bit of the ORD word: the ready-to-receive message may be an RDMA Read.
pub const RTR_READ: u16 = 0x4000;

/// The private data of RFC 8797: 4096 bytes in both directions, remote invalidation.
pub const PRIVATE_DATA: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

/// A setup frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The key.
    pub key: [u8; 16],
    /// Flags.
    pub flags: u8,
    /// Revision.
    pub revision: u8,
    /// The length field of the private data, if it differs from the actual length.
    pub length: Option<u16>,
    /// IRD and ORD with their bits.
    pub depths: Option<(u16, u16)>,
    /// The private data after them.
    pub private: Vec<u8>,
}

impl Frame {
    /// Returns the frame of an honest initiator.
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

    /// Returns the frame of an honest responder to an initiator that can start with an RDMA Write.
    #[must_use]
    pub fn reply() -> Self {
        Self {
            key: REPLY_KEY,
            depths: Some((16 | PEER_TO_PEER, 16 | RTR_WRITE)),
            ..Self::request()
        }
    }

    /// Encodes the frame.
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

/// Returns the number of padding bytes between a ULPDU and its CRC.
#[must_use]
pub fn padding(ulpdu: usize) -> usize {
    (ulpdu + 2).wrapping_neg() % 4
}

/// Returns the FPDU of a ULPDU.
#[must_use]
pub fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    fpdu_of_length(ulpdu.len() as u16, ulpdu, crc)
}

/// Returns an FPDU with the given `ULPDU_Length`, which may be wrong.
#[must_use]
pub fn fpdu_of_length(length: u16, ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut out = length.to_be_bytes().to_vec();
    out.extend(ulpdu);
    out.resize(out.len() + padding(ulpdu.len()), 0);
    let sum = if crc { crc32c::crc32c(&out) } else { 0 };
    out.extend(sum.to_le_bytes());
    out
}
