//! The Terminate message: the reason for the end of a stream (RFC 5040, section 4.8; codes of DDP
//! in RFC 5041, section 7.2, of MPA in RFC 5044, section 8 and RFC 6581, section 8).

use std::fmt;

use smallvec::SmallVec;

use super::{ddp, rdmap};

/// Maximum length in bytes of a Terminate header: control, segment length, DDP header, Read Request
/// header.
pub const MAX_TERMINATE: usize = 4 + 2 + ddp::UNTAGGED + rdmap::READ_REQUEST;

/// Bytes of an RDMAP header, with room for the longest.
pub type HeaderBytes = SmallVec<[u8; 64]>;

const LENGTH_VALID: u16 = 0x8000;
const DDP_INCLUDED: u16 = 0x4000;
const RDMAP_INCLUDED: u16 = 0x2000;

/// Layer, error type and error code, as encoded on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Layer: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Error type of the layer.
    pub kind: u8,
    /// Error code of the type.
    pub code: u8,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = ($layer:literal, $kind:literal, $code:literal) $text:literal,)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self =
                Self { layer: $layer, kind: $kind, code: $code };)*

            /// Returns the name of the error in the RFCs, if it is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match (self.layer, self.kind, self.code) {
                    $(($layer, $kind, $code) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// RDMAP local catastrophic error.
    LOCAL_CATASTROPHIC = (0, 0, 0x00) "local catastrophic error",
    /// Remote protection error: the source handle of a Read is invalid.
    READ_STAG = (0, 1, 0x00) "RDMAP: invalid STag",
    /// Remote protection error: the source range of a Read exceeds the region.
    READ_BOUNDS = (0, 1, 0x01) "RDMAP: base or bounds violation",
    /// Remote protection error: the source of a Read is not readable.
    READ_RIGHTS = (0, 1, 0x02) "RDMAP: access rights violation",
    /// Remote protection error: the source handle of a Read belongs to another stream.
    READ_NOT_ASSOCIATED = (0, 1, 0x03) "RDMAP: STag not associated with the stream",
    /// Remote protection error: the source range of a Read wraps.
    READ_WRAP = (0, 1, 0x04) "RDMAP: tagged offset wraps",
    /// Remote protection error: a Send With Invalidate names an unknown handle.
    CANNOT_INVALIDATE = (0, 1, 0x09) "RDMAP: STag cannot be invalidated",
    /// Remote operation error: unsupported RDMAP version.
    RDMAP_VERSION = (0, 2, 0x05) "RDMAP: invalid version",
    /// Remote operation error: unexpected opcode.
    OPCODE = (0, 2, 0x06) "RDMAP: unexpected opcode",
    /// Remote operation error that has no code of its own and concerns the stream.
    STREAM_CATASTROPHIC = (0, 2, 0x07) "RDMAP: catastrophic error, localized to the stream",
    /// Remote operation error that has no code of its own and concerns the whole device.
    GLOBAL_CATASTROPHIC = (0, 2, 0x08) "RDMAP: catastrophic error, global",
    /// DDP local catastrophic error.
    DDP_CATASTROPHIC = (1, 0, 0x00) "DDP: local catastrophic error",
    /// Tagged buffer error: invalid STag.
    TAGGED_STAG = (1, 1, 0x00) "DDP: invalid STag",
    /// Tagged buffer error: the range exceeds the region.
    TAGGED_BOUNDS = (1, 1, 0x01) "DDP: base or bounds violation",
    /// Tagged buffer error: the STag belongs to another stream.
    TAGGED_NOT_ASSOCIATED = (1, 1, 0x02) "DDP: STag not associated with the stream",
    /// Tagged buffer error: the tagged offset wraps.
    TAGGED_WRAP = (1, 1, 0x03) "DDP: tagged offset wraps",
    /// Tagged buffer error: unsupported DDP version.
    TAGGED_VERSION = (1, 1, 0x04) "DDP: invalid version (tagged)",
    /// Untagged buffer error: invalid queue number.
    QUEUE = (1, 2, 0x01) "DDP: invalid queue number",
    /// Untagged buffer error: no buffer is posted for the message.
    NO_BUFFER = (1, 2, 0x02) "DDP: invalid MSN, no buffer available",
    /// Untagged buffer error: the MSN is out of range.
    MSN_RANGE = (1, 2, 0x03) "DDP: invalid MSN, out of range",
    /// Untagged buffer error: invalid message offset.
    MESSAGE_OFFSET = (1, 2, 0x04) "DDP: invalid MO",
    /// Untagged buffer error: the message is too long for the buffer.
    TOO_LONG = (1, 2, 0x05) "DDP: message too long for the buffer",
    /// Untagged buffer error: unsupported DDP version.
    UNTAGGED_VERSION = (1, 2, 0x06) "DDP: invalid version (untagged)",
    /// MPA error: the TCP connection is lost.
    TCP_LOST = (2, 0, 0x01) "MPA: TCP connection lost",
    /// MPA error: wrong CRC.
    CRC = (2, 0, 0x02) "MPA: CRC error",
    /// MPA error: markers and lengths disagree.
    MARKER = (2, 0, 0x03) "MPA: marker and ULPDU length disagree",
    /// MPA error: invalid set-up frame.
    SETUP_FRAME = (2, 0, 0x04) "MPA: invalid request or reply frame",
    /// MPA error in enhanced set-up: local catastrophic error.
    SETUP_CATASTROPHIC = (2, 0, 0x05) "MPA: local catastrophic error in set-up",
    /// MPA error in enhanced set-up: the responder's ORD exceeds the initiator's IRD.
    INSUFFICIENT_IRD = (2, 0, 0x06) "MPA: insufficient IRD",
    /// MPA error in enhanced set-up: no kind of ready-to-receive message is supported by both
    /// sides.
    NO_MATCHING_RTR = (2, 0, 0x07) "MPA: no matching ready-to-receive option",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(
                f,
                "layer {}, error type {}, error code {:#04x}",
                self.layer, self.kind, self.code
            ),
        }
    }
}

/// The segment that a Terminate is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultySegment {
    /// `ULPDU_Length` of the segment.
    pub segment_len: u16,
    /// DDP header of the segment.
    pub ddp: SmallVec<[u8; ddp::UNTAGGED]>,
    /// Read Request header of the segment, if it was one.
    pub read: Option<rdmap::ReadRequest>,
}

/// The Terminate message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The error.
    pub code: Code,
    /// The segment that caused it.
    pub faulty_segment: Option<FaultySegment>,
}

impl Terminate {
    /// Decodes a Terminate header. Parts that contradict its flags are left out, because the stream
    /// has ended in any case.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (control, rest) = bytes.split_first_chunk::<4>()?;
        let code = Code {
            layer: control[0] >> 4,
            kind: control[0] & 0x0f,
            code: control[1],
        };
        let flags = u16::from_be_bytes([control[2], control[3]]);
        let faulty_segment = Self::parse_faulty_segment(flags, rest);
        Some(Self {
            code,
            faulty_segment,
        })
    }

    fn parse_faulty_segment(flags: u16, rest: &[u8]) -> Option<FaultySegment> {
        // The segment length is present if the DDP header is (RFC 5040, section 4.8).
        if flags & DDP_INCLUDED == 0 {
            return None;
        }
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let header = ddp::HeaderView::new(rest)?.bytes();
        let read = rest[header.len()..]
            .first_chunk()
            .filter(|_| flags & RDMAP_INCLUDED != 0)
            .map(rdmap::ReadRequest::parse);
        Some(FaultySegment {
            segment_len: u16::from_be_bytes(*length),
            ddp: SmallVec::from_slice(header),
            read,
        })
    }

    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> HeaderBytes {
        let mut out = SmallVec::new();
        out.push(self.code.layer << 4 | self.code.kind & 0x0f);
        out.push(self.code.code);
        let mut flags = 0;
        if let Some(faulty_segment) = &self.faulty_segment {
            flags = LENGTH_VALID | DDP_INCLUDED;
            if faulty_segment.read.is_some() {
                flags |= RDMAP_INCLUDED;
            }
        }
        out.extend_from_slice(&flags.to_be_bytes());
        if let Some(faulty_segment) = &self.faulty_segment {
            out.extend_from_slice(&faulty_segment.segment_len.to_be_bytes());
            out.extend_from_slice(&faulty_segment.ddp);
            if let Some(read) = &faulty_segment.read {
                out.extend_from_slice(&read.to_bytes());
            }
        }
        out
    }
}
