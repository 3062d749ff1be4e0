//! Marker PDU Aligned framing (RFC 5044) and its enhanced connection set-up (RFC 6581).
//!
//! Set-up is one Request Frame and one Reply Frame. After that the stream is a sequence of FPDUs:
//! `ULPDU_Length`, the ULPDU, padding to a multiple of four bytes, and a CRC field, which is
//! present even if no CRC is used. Markers are never used: this device does not ask for them and
//! refuses a peer that requires them. That deviates from RFC 5044, section 7.1.1, by which markers
//! must be sent to such a peer. Linux's siw refuses it as well.

use bytes::Bytes;

/// Length in bytes of a set-up frame without its private data (RFC 5044, section 7.1.1).
pub const FRAME_HEADER: usize = 20;
/// Maximum length in bytes of the private data in a set-up frame, including the four bytes of RFC
/// 6581.
pub const MAX_PRIVATE_DATA: usize = 512;
/// Length in bytes of IRD and ORD with their control bits, which precede the private data (RFC
/// 6581, section 9).
pub const ENHANCED: usize = 4;
/// Length in bytes of the `ULPDU_Length` field of an FPDU.
pub const LENGTH_FIELD: usize = 2;
/// Length in bytes of the CRC field of an FPDU.
pub const CRC_FIELD: usize = 4;
/// Revision number of RFC 5044.
pub const REVISION_1: u8 = 1;
/// Revision number of RFC 6581.
pub const REVISION_2: u8 = 2;
/// Value of IRD and ORD that leaves them to upper layers (RFC 6581, section 9.1). Also the mask of
/// both fields.
pub const DEPTH_UNSPECIFIED: u16 = 0x3fff;
/// Minimum length in bytes to which a sender reduces ULPDUs because of the path (RFC 5044, section
/// 4.5).
const SMALLEST_MULPDU: usize = 128;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED_SETUP: u8 = 0x10;

const PEER_TO_PEER: u16 = 0x8000;
const RTR_EMPTY_FPDU: u16 = 0x4000;
const RTR_WRITE: u16 = 0x8000;
const RTR_READ: u16 = 0x4000;

/// The kind of a set-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The initiator's Request Frame.
    Request,
    /// The responder's Reply Frame.
    Reply,
}

bitflags::bitflags! {
    /// Kinds of ready-to-receive message: the first FPDU of an initiator, after which the responder
    /// may send (RFC 6581, section 9.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rtr: u8 {
        /// Control flag B: an FPDU, or a Send, without payload.
        const EMPTY = 1;
        /// Control flag C: an RDMA Write without payload.
        const WRITE = 2;
        /// Control flag D: an RDMA Read without payload.
        const READ = 4;
    }
}

/// The set-up fields that RFC 6581 adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// Number of RDMA Reads that the sender of the frame accepts (IRD), 14 bits.
    pub inbound_reads: u16,
    /// Number of RDMA Reads that it wants to have outstanding (ORD), 14 bits.
    pub outbound_reads: u16,
    /// In peer-to-peer set-up, the kinds of ready-to-receive message that the sender supports.
    pub peer_to_peer: Option<Rtr>,
}

/// A set-up frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the frame.
    pub kind: Kind,
    /// Whether the sender requires markers in the data that it receives.
    pub markers: bool,
    /// Whether the sender wants CRCs.
    pub crc: bool,
    /// Whether a Reply Frame rejects the connection.
    pub rejected: bool,
    /// MPA revision.
    pub revision: u8,
    /// The fields of RFC 6581.
    pub enhanced: Option<Enhanced>,
    /// The program's part of the private data.
    pub private_data: Bytes,
}

/// The reason why bytes are not the expected set-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The key differs: the peer does not use MPA, or both sides are initiators.
    #[error("not an MPA {0:?} frame")]
    Key(Kind),
    /// The private data is longer than RFC 5044 allows.
    #[error("{0} bytes of private data")]
    PrivateDataTooLong(usize),
    /// The frame is too short for the fields of enhanced set-up.
    #[error("enhanced set-up without IRD and ORD")]
    NoDepths,
}

/// A set-up frame in a buffer whose length has been checked.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a>(&'a [u8]);

impl<'a> FrameView<'a> {
    /// Returns the frame at the start of `bytes`, or `None` if more bytes are needed. A wrong key
    /// is detected at its first wrong byte, so that a peer of another protocol is recognised before
    /// it has sent twenty bytes.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes cannot become a frame of this kind.
    pub fn new(kind: Kind, bytes: &'a [u8]) -> Result<Option<Self>, FrameError> {
        let key = match kind {
            Kind::Request => REQUEST_KEY,
            Kind::Reply => REPLY_KEY,
        };
        let seen = bytes.len().min(key.len());
        if bytes[..seen] != key[..seen] {
            return Err(FrameError::Key(kind));
        }
        let Some(header) = bytes.first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let private = usize::from(u16::from_be_bytes([header[18], header[19]]));
        if private > MAX_PRIVATE_DATA {
            return Err(FrameError::PrivateDataTooLong(private));
        }
        let enhanced = header[16] & ENHANCED_SETUP != 0 && header[17] >= REVISION_2;
        if enhanced && private < ENHANCED {
            return Err(FrameError::NoDepths);
        }
        Ok(bytes.get(..FRAME_HEADER + private).map(Self))
    }

    /// Returns the length in bytes of the whole frame.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.0.len()
    }

    fn flag(&self, flag: u8) -> bool {
        self.0[16] & flag != 0
    }

    fn depth(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    fn enhanced(&self) -> Option<Enhanced> {
        if !self.flag(ENHANCED_SETUP) || self.0[17] < REVISION_2 {
            return None;
        }
        let (inbound, outbound) = (self.depth(FRAME_HEADER), self.depth(FRAME_HEADER + 2));
        let mut rtr = Rtr::empty();
        rtr.set(Rtr::EMPTY, inbound & RTR_EMPTY_FPDU != 0);
        rtr.set(Rtr::WRITE, outbound & RTR_WRITE != 0);
        rtr.set(Rtr::READ, outbound & RTR_READ != 0);
        Some(Enhanced {
            inbound_reads: inbound & DEPTH_UNSPECIFIED,
            outbound_reads: outbound & DEPTH_UNSPECIFIED,
            peer_to_peer: (inbound & PEER_TO_PEER != 0).then_some(rtr),
        })
    }

    /// Decodes the frame.
    #[must_use]
    pub fn to_frame(&self, kind: Kind) -> Frame {
        let enhanced = self.enhanced();
        let private = FRAME_HEADER + if enhanced.is_some() { ENHANCED } else { 0 };
        Frame {
            kind,
            markers: self.flag(MARKERS),
            crc: self.flag(CRC),
            // Ignored in a Request Frame (RFC 5044, section 7.1.1).
            rejected: kind == Kind::Reply && self.flag(REJECT),
            revision: self.0[17],
            enhanced,
            private_data: Bytes::copy_from_slice(&self.0[private..]),
        }
    }
}

impl Frame {
    /// Appends the frame to `out`. Private data beyond the limit was refused before the frame was
    /// made.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.kind {
            Kind::Request => REQUEST_KEY,
            Kind::Reply => REPLY_KEY,
        });
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        out.push(
            bit(self.markers, MARKERS)
                | bit(self.crc, CRC)
                | bit(self.rejected, REJECT)
                | bit(self.enhanced.is_some(), ENHANCED_SETUP),
        );
        out.push(self.revision);
        let extra = if self.enhanced.is_some() { ENHANCED } else { 0 };
        let private = &self.private_data[..self.private_data.len().min(MAX_PRIVATE_DATA - extra)];
        let length = u16::try_from(private.len() + extra).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        if let Some(enhanced) = self.enhanced {
            let rtr = enhanced.peer_to_peer.unwrap_or(Rtr::empty());
            let bit = |on: bool, bit: u16| if on { bit } else { 0 };
            let inbound = enhanced.inbound_reads & DEPTH_UNSPECIFIED
                | bit(enhanced.peer_to_peer.is_some(), PEER_TO_PEER)
                | bit(rtr.contains(Rtr::EMPTY), RTR_EMPTY_FPDU);
            let outbound = enhanced.outbound_reads & DEPTH_UNSPECIFIED
                | bit(rtr.contains(Rtr::WRITE), RTR_WRITE)
                | bit(rtr.contains(Rtr::READ), RTR_READ);
            out.extend_from_slice(&inbound.to_be_bytes());
            out.extend_from_slice(&outbound.to_be_bytes());
        }
        out.extend_from_slice(private);
    }
}

/// Returns the number of padding bytes after a ULPDU of `ulpdu` bytes, which together with
/// `ULPDU_Length` fills whole words (RFC 5044, section 4).
#[must_use]
pub fn padding(ulpdu: usize) -> usize {
    (LENGTH_FIELD + ulpdu).wrapping_neg() % 4
}

/// Returns the maximum length in bytes of a ULPDU whose FPDU fits one TCP segment of `mss` bytes:
/// the MULPDU without markers (RFC 5044, section 4.5).
#[must_use]
pub fn max_ulpdu(mss: usize) -> usize {
    let whole_words = mss - mss % 4;
    whole_words
        .saturating_sub(LENGTH_FIELD + CRC_FIELD)
        .clamp(SMALLEST_MULPDU, usize::from(u16::MAX))
}
