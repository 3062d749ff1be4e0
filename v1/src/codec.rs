//! Headers to bytes and back (RFC 8166, sections 4.1.2 and 4.7).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{HeaderError, Malformed};
use crate::limits::{
    MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS, MIN_ERROR_LEN, MIN_HEADER_LEN,
};
use crate::{Body, Chunks, ErrorBody, Header, ReadSegment, Segment, WriteChunk};

/// The protocol version in `rdma_vers`.
pub const VERSION: u32 = 1;

/// `rdma_proc`.
pub(crate) mod proc {
    pub(crate) const MSG: u32 = 0;
    pub(crate) const NOMSG: u32 = 1;
    pub(crate) const MSGP: u32 = 2;
    pub(crate) const DONE: u32 = 3;
    pub(crate) const ERROR: u32 = 4;
}

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// XID, version, credits, procedure.
const FIXED_LEN: usize = 16;
const SEGMENT_LEN: usize = 16;
/// "One follows" and position precede a read segment.
const READ_ENTRY_LEN: usize = 8 + SEGMENT_LEN;

impl Header {
    /// Bytes of the encoded header. For RDMA_MSG, the payload's offset in the message.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        FIXED_LEN
            + match &self.body {
                Body::Msg(chunks) | Body::NoMsg(chunks) => chunks.encoded_len(),
                Body::Error(ErrorBody::Version { .. }) => 12,
                Body::Error(ErrorBody::Chunk) => 4,
            }
    }

    /// The header as XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        self.encode_into(&mut out);
        out.freeze()
    }

    /// Appends the header to `out`.
    pub fn encode_into(&self, out: &mut BytesMut) {
        out.reserve(self.encoded_len());
        match &self.body {
            Body::Msg(chunks) => {
                put_fixed(out, self.xid, VERSION, self.credits, proc::MSG);
                chunks.encode_into(out);
            }
            Body::NoMsg(chunks) => {
                put_fixed(out, self.xid, VERSION, self.credits, proc::NOMSG);
                chunks.encode_into(out);
            }
            Body::Error(error) => {
                put_fixed(out, self.xid, VERSION, self.credits, proc::ERROR);
                error.encode_into(out);
            }
        }
    }

    /// Reads the header of a received message; the second value is its length, where the payload
    /// starts.
    ///
    /// It checks the form only. [`crate::CallChunks`] and [`crate::check_reply`] check the rest.
    ///
    /// # Errors
    /// [`HeaderError`], which says what the receiver must do about it.
    pub fn decode(message: &Bytes) -> Result<(Self, usize), HeaderError> {
        let mut from = Words(message);
        let (Ok(xid), Ok(version), Ok(credits), Ok(procedure)) =
            (from.u32(), from.u32(), from.u32(), from.u32())
        else {
            return Err(HeaderError::TooShort(message.len()));
        };
        let is_error = procedure == proc::ERROR;
        let min = if is_error {
            MIN_ERROR_LEN
        } else {
            MIN_HEADER_LEN
        };
        if message.len() < min {
            return Err(HeaderError::TooShort(message.len()));
        }
        if version != VERSION {
            return Err(HeaderError::Version {
                xid,
                version,
                is_error,
            });
        }
        let malformed = |reason| HeaderError::Malformed { xid, reason };
        let body = match procedure {
            proc::MSG => Body::Msg(from.chunks().map_err(malformed)?),
            proc::NOMSG => Body::NoMsg(from.chunks().map_err(malformed)?),
            proc::MSGP => return Err(HeaderError::Msgp { xid }),
            proc::DONE => return Err(HeaderError::Done { xid }),
            proc::ERROR => {
                let error = from.error();
                Body::Error(error.map_err(|reason| HeaderError::BadError { xid, reason })?)
            }
            _ => return Err(malformed(Malformed::Procedure(procedure))),
        };
        let header = Self { xid, credits, body };
        Ok((header, message.len() - from.0.len()))
    }
}

impl Chunks {
    /// Bytes of the three lists.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let writes: usize = self.writes.iter().map(|chunk| 4 + chunk_len(chunk)).sum();
        let reply = self.reply.as_ref().map_or(0, |chunk| chunk_len(chunk));
        // The three last words end the lists, or say that a reply chunk follows.
        self.reads.len() * READ_ENTRY_LEN + writes + reply + 12
    }

    fn encode_into(&self, out: &mut BytesMut) {
        for read in &self.reads {
            out.put_u32(1);
            out.put_u32(read.position);
            put_segment(out, read.segment);
        }
        out.put_u32(0);
        for chunk in &self.writes {
            out.put_u32(1);
            put_chunk(out, chunk);
        }
        out.put_u32(0);
        match &self.reply {
            Some(chunk) => {
                out.put_u32(1);
                put_chunk(out, chunk);
            }
            None => out.put_u32(0),
        }
    }
}

impl ErrorBody {
    fn encode_into(self, out: &mut BytesMut) {
        match self {
            Self::Version { low, high } => {
                out.put_u32(ERR_VERS);
                out.put_u32(low);
                out.put_u32(high);
            }
            Self::Chunk => out.put_u32(ERR_CHUNK),
        }
    }
}

/// An RDMA_ERROR header. Its version is that of the message it answers, which need not be one that
/// is spoken here (RFC 8166, section 4.5).
pub(crate) fn encode_error(xid: u32, version: u32, credits: u32, error: ErrorBody) -> Bytes {
    let mut out = BytesMut::with_capacity(MIN_HEADER_LEN);
    put_fixed(&mut out, xid, version, credits, proc::ERROR);
    error.encode_into(&mut out);
    out.freeze()
}

fn put_fixed(out: &mut BytesMut, xid: u32, version: u32, credits: u32, procedure: u32) {
    for word in [xid, version, credits, procedure] {
        out.put_u32(word);
    }
}

fn put_segment(out: &mut BytesMut, segment: Segment) {
    out.put_u32(segment.handle);
    out.put_u32(segment.length);
    out.put_u64(segment.offset);
}

fn chunk_len(chunk: &[Segment]) -> usize {
    4 + chunk.len() * SEGMENT_LEN
}

fn put_chunk(out: &mut BytesMut, chunk: &[Segment]) {
    // A chunk that was decoded is within the limits, one that was made here holds the segments of
    // one registration each: neither comes near 2^32.
    out.put_u32(chunk.len() as u32);
    for segment in chunk {
        put_segment(out, *segment);
    }
}

/// What is left of a header, read in XDR units.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32().map_err(|_| Malformed::Truncated)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64().map_err(|_| Malformed::Truncated)
    }

    /// Whether optional data follows (RFC 4506, section 4.19).
    fn follows(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Boolean(value)),
        }
    }

    fn segment(&mut self) -> Result<Segment, Malformed> {
        Ok(Segment {
            handle: self.u32()?,
            length: self.u32()?,
            offset: self.u64()?,
        })
    }

    fn chunk(&mut self) -> Result<WriteChunk, Malformed> {
        let count = self.u32()? as usize;
        if count > MAX_CHUNK_SEGMENTS {
            return Err(Malformed::TooMany("segments in a write chunk"));
        }
        // Before memory is taken for them, the segments must be there.
        if self.0.len() < count * SEGMENT_LEN {
            return Err(Malformed::Truncated);
        }
        (0..count).map(|_| self.segment()).collect()
    }

    fn chunks(&mut self) -> Result<Chunks, Malformed> {
        let mut reads = Vec::new();
        while self.follows()? {
            if reads.len() == MAX_READ_SEGMENTS {
                return Err(Malformed::TooMany("segments in the read list"));
            }
            reads.push(ReadSegment {
                position: self.u32()?,
                segment: self.segment()?,
            });
        }
        let mut writes = Vec::new();
        while self.follows()? {
            if writes.len() == MAX_WRITE_CHUNKS {
                return Err(Malformed::TooMany("chunks in the write list"));
            }
            writes.push(self.chunk()?);
        }
        let reply = if self.follows()? {
            Some(self.chunk()?)
        } else {
            None
        };
        Ok(Chunks {
            reads,
            writes,
            reply,
        })
    }

    fn error(&mut self) -> Result<ErrorBody, Malformed> {
        match self.u32()? {
            ERR_VERS => Ok(ErrorBody::Version {
                low: self.u32()?,
                high: self.u32()?,
            }),
            ERR_CHUNK => Ok(ErrorBody::Chunk),
            value => Err(Malformed::ErrorCode(value)),
        }
    }
}
