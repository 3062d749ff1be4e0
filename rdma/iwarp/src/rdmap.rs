//! The control field and the Read Request header of RDMAP (RFC 5040, section 4).

/// Length in bytes of the Read Request header (RFC 5040, section 4.4).
pub const READ_REQUEST: usize = 28;
/// Queue number of Sends.
pub const SEND_QUEUE: u32 = 0;
/// Queue number of Read Requests.
pub const READ_QUEUE: u32 = 1;
/// Queue number of the Terminate.
pub const TERMINATE_QUEUE: u32 = 2;
/// The version of RFC 5040. (Version 0 of the RDMA Consortium used other MPA rules.)
const VERSION: u8 = 1;

/// Message types (RFC 5040, figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInvalidate,
    /// Send with Solicited Event.
    SendSolicited,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    /// Terminate.
    Terminate,
}

/// The reason why a control field is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Unsupported version.
    #[error("RDMAP version {0}")]
    Version(u8),
    /// Unknown message type.
    #[error("RDMAP opcode {0}")]
    Opcode(u8),
}

impl Opcode {
    const ALL: [Self; 8] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
    ];

    /// Decodes the control field.
    ///
    /// # Errors
    /// [`ControlError`] if the version or the opcode is invalid.
    pub fn from_control(control: u8) -> Result<Self, ControlError> {
        let version = control >> 6;
        if version != VERSION {
            return Err(ControlError::Version(version));
        }
        let opcode = control & 0x0f;
        Self::ALL
            .get(usize::from(opcode))
            .copied()
            .ok_or(ControlError::Opcode(opcode))
    }

    /// Returns the control field.
    #[must_use]
    pub const fn control(self) -> u8 {
        VERSION << 6 | self as u8
    }

    /// Returns the queue number of an untagged message, or `None` for a tagged one.
    #[must_use]
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest => Some(READ_QUEUE),
            Self::Terminate => Some(TERMINATE_QUEUE),
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate => Some(SEND_QUEUE),
        }
    }

    /// Returns whether the message names a handle to invalidate.
    #[must_use]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// Header of a Read Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Handle of the requester's memory.
    pub sink_stag: u32,
    /// Tagged offset of the first byte of the sink.
    pub sink_offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// Handle of the responder's memory.
    pub source_stag: u32,
    /// Tagged offset of the first byte of the source.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Decodes the header.
    #[must_use]
    pub fn parse(bytes: &[u8; READ_REQUEST]) -> Self {
        let be32 = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let be64 = |at: usize| u64::from(be32(at)) << 32 | u64::from(be32(at + 4));
        Self {
            sink_stag: be32(0),
            sink_offset: be64(4),
            length: be32(12),
            source_stag: be32(16),
            source_offset: be64(20),
        }
    }

    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; READ_REQUEST] {
        let mut out = [0; READ_REQUEST];
        out[..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.length.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        out[20..28].copy_from_slice(&self.source_offset.to_be_bytes());
        out
    }
}
