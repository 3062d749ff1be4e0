//! Encoding and decoding of transport headers (RFC 8166, sections 4.1.2 and 4.7).

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_chunks::{FIXED_LEN, Fixed, Malformed, Reader, proc};

use crate::error::{Answer, HeaderError};
use crate::header::VERSION;
use crate::limits::{MIN_ERROR_LEN, MIN_HEADER_LEN};
use crate::{Body, ErrorBody, Header};

/// `rdma_proc` of RDMA_MSGP and RDMA_DONE, which only this version has.
const MSGP: u32 = 2;
const DONE: u32 = 3;

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

impl Header {
    /// Returns the length of the encoded header in bytes. For RDMA_MSG this is the payload's offset
    /// in the message.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        FIXED_LEN
            + match &self.body {
                Body::Msg(chunks) | Body::NoMsg(chunks) => chunks.encoded_len(),
                Body::Error(ErrorBody::Version { .. }) => 12,
                Body::Error(ErrorBody::Chunk) => 4,
            }
    }

    /// Encodes the header as XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        self.encode_into(&mut out);
        out.freeze()
    }

    /// Appends the encoded header to `out`.
    pub fn encode_into(&self, out: &mut BytesMut) {
        out.reserve(self.encoded_len());
        let procedure = match &self.body {
            Body::Msg(_) => proc::MSG,
            Body::NoMsg(_) => proc::NOMSG,
            Body::Error(_) => proc::ERROR,
        };
        let fixed = Fixed {
            xid: self.xid,
            version: VERSION,
            credits: self.credits,
            procedure,
        };
        fixed.encode_into(out);
        match &self.body {
            Body::Msg(chunks) | Body::NoMsg(chunks) => chunks.encode_into(out),
            Body::Error(error) => error.encode_into(out),
        }
    }

    /// Decodes the header of a received message. Returns the header and its length, which is the
    /// offset of the payload.
    ///
    /// Checks the form only; [`crate::CallChunks`] and [`crate::check_returned`] check the rest.
    ///
    /// # Errors
    /// [`HeaderError`], which says whether the receiver must answer with an RDMA_ERROR.
    pub fn decode(message: &Bytes) -> Result<(Self, usize), HeaderError> {
        let Some(fixed) = Fixed::peek(message) else {
            return Err(HeaderError::TooShort(message.len()));
        };
        let Fixed {
            xid,
            version,
            credits,
            procedure,
        } = fixed;
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
        let mut from = Reader::new(&message[FIXED_LEN..]);
        let malformed = |reason| HeaderError::Malformed { xid, reason };
        let body = match procedure {
            proc::MSG => Body::Msg(from.chunks().map_err(malformed)?),
            proc::NOMSG => Body::NoMsg(from.chunks().map_err(malformed)?),
            MSGP => return Err(HeaderError::Msgp { xid }),
            DONE => return Err(HeaderError::Done { xid }),
            proc::ERROR => {
                let error = read_error(&mut from);
                Body::Error(error.map_err(|reason| HeaderError::BadError { xid, reason })?)
            }
            _ => return Err(malformed(Malformed::Procedure(procedure))),
        };
        let header = Self { xid, credits, body };
        Ok((header, message.len() - from.left()))
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

impl Answer {
    /// Encodes the answer as XDR, with `credits` granted. Its version is that of the message it
    /// answers, which this side need not support (RFC 8166, section 4.5).
    #[must_use]
    pub fn encode(&self, credits: u32) -> Bytes {
        let mut out = BytesMut::with_capacity(MIN_HEADER_LEN);
        let fixed = Fixed {
            xid: self.xid,
            version: self.version,
            credits,
            procedure: proc::ERROR,
        };
        fixed.encode_into(&mut out);
        self.error.encode_into(&mut out);
        out.freeze()
    }
}

/// Decodes the fields of an RDMA_ERROR.
fn read_error(from: &mut Reader<'_>) -> Result<ErrorBody, Malformed> {
    match from.u32()? {
        ERR_VERS => Ok(ErrorBody::Version {
            low: from.u32()?,
            high: from.u32()?,
        }),
        ERR_CHUNK => Ok(ErrorBody::Chunk),
        value => Err(Malformed::ErrorCode(value)),
    }
}
