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
    /// Local catastrophic error, RDMAP.
    LOCAL_CATASTROPHIC = (0, 0, 0x00) "local catastrophic error",
    /// Remote protection error: a Read's source handle.
    READ_STAG = (0, 1, 0x00) "RDMAP: invalid STag",
    /// Remote protection error: a Read's source range.
    READ_BOUNDS = (0, 1, 0x01) "RDMAP: base or bounds violation",
    /// Remote protection error: not readable.
    READ_RIGHTS = (0, 1, 0x02) "RDMAP: access rights violation",
    /// Remote protection error: another stream's handle.
    READ_NOT_ASSOCIATED = (0, 1, 0x03) "RDMAP: STag not associated with the stream",
    /// Remote protection error: the source range wraps.
    READ_WRAP = (0, 1, 0x04) "RDMAP: tagged offset wraps",
    /// Remote protection error: Send With Invalidate of a handle that is not there.
    CANNOT_INVALIDATE = (0, 1, 0x09) "RDMAP: STag cannot be invalidated",
    /// Remote operation error.
    RDMAP_VERSION = (0, 2, 0x05) "RDMAP: invalid version",
    /// Remote operation error.
    OPCODE = (0, 2, 0x06) "RDMAP: unexpected opcode",
    /// Remote operation error, for what has no code of its own.
    STREAM_CATASTROPHIC = (0, 2, 0x07) "RDMAP: catastrophic error, localized to the stream",
    /// Remote operation error, global.
    GLOBAL_CATASTROPHIC = (0, 2, 0x08) "RDMAP: catastrophic error, global",
    /// Local catastrophic error, DDP.
    DDP_CATASTROPHIC = (1, 0, 0x00) "DDP: local catastrophic error",
    /// Tagged buffer error.
    TAGGED_STAG = (1, 1, 0x00) "DDP: invalid STag",
    /// Tagged buffer error.
    TAGGED_BOUNDS = (1, 1, 0x01) "DDP: base or bounds violation",
    /// Tagged buffer error.
    TAGGED_NOT_ASSOCIATED = (1, 1, 0x02) "DDP: STag not associated with the stream",
    /// Tagged buffer error.
    TAGGED_WRAP = (1, 1, 0x03) "DDP: tagged offset wraps",
    /// Tagged buffer error.
    TAGGED_VERSION = (1, 1, 0x04) "DDP: invalid version (tagged)",
    /// Untagged buffer error.
    QUEUE = (1, 2, 0x01) "DDP: invalid queue number",
    /// Untagged buffer error.
    NO_BUFFER = (1, 2, 0x02) "DDP: invalid MSN, no buffer available",
    /// Untagged buffer error.
    MSN_RANGE = (1, 2, 0x03) "DDP: invalid MSN, out of range",
    /// Untagged buffer error.
    MESSAGE_OFFSET = (1, 2, 0x04) "DDP: invalid MO",
    /// Untagged buffer error.
    TOO_LONG = (1, 2, 0x05) "DDP: message too long for the buffer",
    /// Untagged buffer error.
    UNTAGGED_VERSION = (1, 2, 0x06) "DDP: invalid version (untagged)",
    /// The TCP connection is lost.
    TCP_LOST = (2, 0, 0x01) "MPA: TCP connection lost",
    /// CRC.
    CRC = (2, 0, 0x02) "MPA: CRC error",
    /// Markers and lengths disagree.
    MARKER = (2, 0, 0x03) "MPA: marker and ULPDU length disagree",
    /// Set-up frame.
    SETUP_FRAME = (2, 0, 0x04) "MPA: invalid request or reply frame",
    /// Enhanced set-up.
    SETUP_CATASTROPHIC = (2, 0, 0x05) "MPA: local catastrophic error in set-up",
    /// Enhanced set-up: the responder's ORD is over our IRD.
    INSUFFICIENT_IRD = (2, 0, 0x06) "MPA: insufficient IRD",
    /// Enhanced set-up: no ready-to-receive message both can do.
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
pub struct Culprit {
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
    pub culprit: Option<Culprit>,
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
        let culprit = Self::parse_culprit(flags, rest);
        Some(Self { code, culprit })
    }

    fn parse_culprit(flags: u16, rest: &[u8]) -> Option<Culprit> {
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
        Some(Culprit {
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
        if let Some(culprit) = &self.culprit {
            flags = LENGTH_VALID | DDP_INCLUDED;
            if culprit.read.is_some() {
                flags |= RDMAP_INCLUDED;
            }
        }
        out.extend_from_slice(&flags.to_be_bytes());
        if let Some(culprit) = &self.culprit {
            out.extend_from_slice(&culprit.segment_len.to_be_bytes());
            out.extend_from_slice(&culprit.ddp);
            if let Some(read) = &culprit.read {
                out.extend_from_slice(&read.to_bytes());
            }
        }
        out
    }
}
