//! DDP segments (RFC 5041, section 4) that carry RDMAP messages (RFC 5040, section 4).

use super::Reader;

/// RDMA Write.
pub const WRITE: u8 = 0;
/// RDMA Read Request.
pub const READ_REQUEST: u8 = 1;
/// RDMA Read Response.
pub const READ_RESPONSE: u8 = 2;
/// Send.
pub const SEND: u8 = 3;
/// Send with Invalidate.
pub const SEND_INVALIDATE: u8 = 4;
/// Send with Solicited Event.
pub const SEND_SOLICITED: u8 = 5;
/// Send with Solicited Event and Invalidate.
pub const SEND_SOLICITED_INVALIDATE: u8 = 6;
/// Terminate.
pub const TERMINATE: u8 = 7;

/// A tagged segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// DDP version.
    pub ddp: u8,
    /// RDMAP version.
    pub rdmap: u8,
    /// RDMAP opcode.
    pub opcode: u8,
    /// Whether this is the last segment of the message (L flag).
    pub last: bool,
    /// Handle.
    pub stag: u32,
    /// Tagged offset.
    pub offset: u64,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Tagged {
    /// Returns an RDMA Write of one segment.
    #[must_use]
    pub fn write(stag: u32, offset: u64, payload: &[u8]) -> Self {
        Self {
            ddp: 1,
            rdmap: 1,
            opcode: WRITE,
            last: true,
            stag,
            offset,
            payload: payload.to_vec(),
        }
    }

    /// Returns a Read Response of one segment.
    #[must_use]
    pub fn response(stag: u32, offset: u64, payload: &[u8]) -> Self {
        let opcode = READ_RESPONSE;
        Self {
            opcode,
            ..Self::write(stag, offset, payload)
        }
    }

    /// Encodes the ULPDU.
    #[must_use]
    pub fn ulpdu(&self) -> Vec<u8> {
        let last = u8::from(self.last) << 6;
        let mut out = vec![0x80 | last | self.ddp, self.rdmap << 6 | self.opcode];
        out.extend(self.stag.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        out.extend(&self.payload);
        out
    }
}

/// An untagged segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// DDP version.
    pub ddp: u8,
    /// RDMAP version.
    pub rdmap: u8,
    /// RDMAP opcode.
    pub opcode: u8,
    /// Whether this is the last segment of the message (L flag).
    pub last: bool,
    /// The word reserved for RDMAP: the handle to invalidate.
    pub word: u32,
    /// Queue number.
    pub queue: u32,
    /// Message sequence number.
    pub msn: u32,
    /// Offset in the message.
    pub offset: u32,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Untagged {
    /// Returns a Send of one segment.
    #[must_use]
    pub fn send(msn: u32, payload: &[u8]) -> Self {
        Self {
            ddp: 1,
            rdmap: 1,
            opcode: SEND,
            last: true,
            word: 0,
            queue: 0,
            msn,
            offset: 0,
            payload: payload.to_vec(),
        }
    }

    /// Returns a Read Request.
    #[must_use]
    pub fn read_request(msn: u32, request: &ReadRequest) -> Self {
        Self {
            opcode: READ_REQUEST,
            queue: 1,
            ..Self::send(msn, &request.bytes())
        }
    }

    /// Returns a Terminate whose header begins with these bytes.
    #[must_use]
    pub fn terminate(header: &[u8]) -> Self {
        Self {
            opcode: TERMINATE,
            queue: 2,
            ..Self::send(1, header)
        }
    }

    /// Encodes the ULPDU.
    #[must_use]
    pub fn ulpdu(&self) -> Vec<u8> {
        let last = u8::from(self.last) << 6;
        let mut out = vec![last | self.ddp, self.rdmap << 6 | self.opcode];
        for field in [self.word, self.queue, self.msn, self.offset] {
            out.extend(field.to_be_bytes());
        }
        out.extend(&self.payload);
        out
    }
}

/// A Read Request's header (RFC 5040, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The handle of the memory to read into.
    pub sink: u32,
    /// The tagged offset of the sink.
    pub sink_offset: u64,
    /// The number of bytes.
    pub length: u32,
    /// The handle of the memory to read from.
    pub source: u32,
    /// The tagged offset of the source.
    pub source_offset: u64,
}

impl ReadRequest {
    fn bytes(&self) -> Vec<u8> {
        let mut out = self.sink.to_be_bytes().to_vec();
        out.extend(self.sink_offset.to_be_bytes());
        out.extend(self.length.to_be_bytes());
        out.extend(self.source.to_be_bytes());
        out.extend(self.source_offset.to_be_bytes());
        out
    }
}

/// The code of a Terminate: layer, error type, error code (RFC 5040, section 4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8, pub u8, pub u8);

/// A segment that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A segment of an RDMA Write.
    Write {
        /// Handle.
        stag: u32,
        /// Tagged offset.
        offset: u64,
        /// The bytes.
        payload: Vec<u8>,
    },
    /// A segment of a Read Response.
    Response {
        /// Handle.
        stag: u32,
        /// The bytes.
        payload: Vec<u8>,
        /// Whether this is the last segment of the message (L flag).
        last: bool,
    },
    /// A Read Request.
    Read(ReadRequest),
    /// A segment of a Send.
    Send {
        /// The handle to invalidate, for a Send with Invalidate.
        invalidate: Option<u32>,
        /// Message sequence number.
        msn: u32,
        /// Offset in the message.
        offset: u32,
        /// Whether this is the last segment of the message (L flag).
        last: bool,
        /// The bytes.
        payload: Vec<u8>,
    },
    /// A Terminate.
    Terminate(Code),
}

/// Decodes a ULPDU. Returns `None` if no honest peer would send it.
#[must_use]
pub fn parse(ulpdu: &[u8]) -> Option<Arrived> {
    let (&[ddp, rdmap], rest) = ulpdu.split_first_chunk()?;
    if ddp & 3 != 1 || rdmap >> 6 != 1 {
        return None;
    }
    let (last, opcode, mut rest) = (ddp & 0x40 != 0, rdmap & 0x0f, Reader(rest));
    if ddp & 0x80 != 0 {
        let (stag, offset) = (rest.word()?, rest.long()?);
        let payload = rest.0.to_vec();
        return match opcode {
            WRITE => Some(Arrived::Write {
                stag,
                offset,
                payload,
            }),
            READ_RESPONSE => Some(Arrived::Response {
                stag,
                payload,
                last,
            }),
            _ => None,
        };
    }
    let (word, queue, msn, offset) = (rest.word()?, rest.word()?, rest.word()?, rest.word()?);
    match (opcode, queue) {
        (SEND | SEND_INVALIDATE, 0) => Some(Arrived::Send {
            invalidate: (opcode == SEND_INVALIDATE).then_some(word),
            msn,
            offset,
            last,
            payload: rest.0.to_vec(),
        }),
        (READ_REQUEST, 1) => Some(Arrived::Read(ReadRequest {
            sink: rest.word()?,
            sink_offset: rest.long()?,
            length: rest.word()?,
            source: rest.word()?,
            source_offset: rest.long()?,
        })),
        (TERMINATE, 2) => {
            let control = rest.word()?.to_be_bytes();
            let code = Code(control[0] >> 4, control[0] & 0x0f, control[1]);
            Some(Arrived::Terminate(code))
        }
        _ => None,
    }
}
