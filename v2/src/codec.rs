//! Encoding and decoding of transport headers (version-two-01, section 4.2).

use bytes::{BufMut, Bytes, BytesMut};
use onc_rpc::{padded, put_words};
use rpcrdma_chunks::{FIXED_LEN, Fixed, Malformed, Reader, proc};

use crate::header::OPTIONAL;
use crate::limits::{MIN_ERROR_LEN, MIN_HEADER_LEN, OPTIONAL_LEN};
use crate::{Answer, Body, Direction, ErrorBody, Header, HeaderError, Optional, VERSION};

const ERR_VERS: u32 = 1;
const ERR_BAD_HEADER: u32 = 2;
const ERR_INVAL_OPTION: u32 = 3;

impl Header {
    /// Returns the length of the encoded header in bytes, which is the payload's offset in the
    /// message if there is a payload.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match &self.body {
            Body::Msg(_, chunks) | Body::NoMsg(_, chunks) => FIXED_LEN + 4 + chunks.encoded_len(),
            Body::Error(ErrorBody::Version { .. }) => FIXED_LEN + 12,
            Body::Error(ErrorBody::BadHeader | ErrorBody::InvalidOption) => FIXED_LEN + 4,
            Body::Optional(optional) => {
                // The information was made by this side and is nowhere near the end of the address
                // space.
                OPTIONAL_LEN + padded(optional.info.len() as u64) as usize
            }
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
        let put_fixed = |out: &mut BytesMut| {
            let fixed = Fixed {
                xid: self.xid,
                version: VERSION,
                credits: self.credits,
                procedure: self.body.procedure(),
            };
            fixed.encode_into(out);
        };
        match &self.body {
            Body::Msg(direction, chunks) | Body::NoMsg(direction, chunks) => {
                put_fixed(out);
                out.put_u32(direction.number());
                chunks.encode_into(out);
            }
            Body::Error(error) => {
                put_fixed(out);
                error.encode_into(out);
            }
            Body::Optional(Optional {
                direction,
                opttype,
                info,
            }) => put_operation(out, (self.xid, self.credits), *direction, *opttype, info),
        }
    }

    /// Decodes the header of a received message. Returns the header and its length, which is the
    /// offset of the payload. The information (`rdma_optinfo`) of an optional operation is a slice
    /// of the message.
    ///
    /// Checks the form only; [`crate::check_call`] and [`crate::check_returned`] check the rest.
    ///
    /// # Errors
    /// [`HeaderError`], which says whether the receiver must answer with an RDMA2_ERROR.
    pub fn decode(message: &Bytes) -> Result<(Self, usize), HeaderError> {
        let Some(fixed) = Fixed::peek(message) else {
            return Err(HeaderError::TooShort(message.len()));
        };
        let Fixed { xid, credits, .. } = fixed;
        let is_error = fixed.procedure == proc::ERROR;
        let min = match is_error {
            true => MIN_ERROR_LEN,
            false => MIN_HEADER_LEN,
        };
        if message.len() < min {
            return Err(HeaderError::TooShort(message.len()));
        }
        if fixed.version != VERSION {
            return Err(HeaderError::Version {
                xid,
                version: fixed.version,
                is_error,
            });
        }
        let mut from = Reader::new(&message[FIXED_LEN..]);
        if is_error {
            let error = read_error(&mut from);
            let error = error.map_err(|reason| HeaderError::BadError { xid, reason })?;
            let body = Body::Error(error);
            return Ok((Self { xid, credits, body }, message.len() - from.left()));
        }
        if !matches!(fixed.procedure, proc::MSG | proc::NOMSG | OPTIONAL) {
            return Err(HeaderError::Malformed {
                xid,
                direction: None,
                reason: Malformed::Procedure(fixed.procedure),
            });
        }
        let direction = read_direction(&mut from).map_err(|reason| HeaderError::Malformed {
            xid,
            direction: None,
            reason,
        })?;
        let malformed = |reason| HeaderError::Malformed {
            xid,
            direction: Some(direction),
            reason,
        };
        let body = match fixed.procedure {
            proc::MSG => Body::Msg(direction, from.chunks().map_err(malformed)?),
            proc::NOMSG => Body::NoMsg(direction, from.chunks().map_err(malformed)?),
            _ => {
                let opttype = from.u32().map_err(malformed)?;
                let info = message.slice_ref(from.opaque().map_err(malformed)?);
                Body::Optional(Optional {
                    direction,
                    opttype,
                    info,
                })
            }
        };
        Ok((Self { xid, credits, body }, message.len() - from.left()))
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
            Self::BadHeader => out.put_u32(ERR_BAD_HEADER),
            Self::InvalidOption => out.put_u32(ERR_INVAL_OPTION),
        }
    }
}

impl Answer {
    /// Encodes the message as XDR, with `credits` granted.
    #[must_use]
    pub fn encode(&self, credits: u32) -> Bytes {
        encode_error(self.xid, self.version, credits, self.error)
    }
}

/// Encodes an RDMA2_ERROR header. `version` is that of the message being answered, which may be
/// another one (RFC 8166, section 4.5); the fields of a version error are the same in both.
fn encode_error(xid: u32, version: u32, credits: u32, error: ErrorBody) -> Bytes {
    let mut out = BytesMut::with_capacity(MIN_HEADER_LEN);
    let fixed = Fixed {
        xid,
        version,
        credits,
        procedure: proc::ERROR,
    };
    fixed.encode_into(&mut out);
    error.encode_into(&mut out);
    out.freeze()
}

/// Appends the header of an optional operation with this XID and these credits.
pub(crate) fn put_operation(
    out: &mut BytesMut,
    (xid, credits): (u32, u32),
    direction: Direction,
    opttype: u32,
    info: &[u8],
) {
    let len = info.len() as u64;
    out.reserve(OPTIONAL_LEN + padded(len) as usize);
    // The information was made by this side and fits the peer's receives, so it is nowhere near
    // 2^32 bytes.
    let direction = direction.number();
    let words = [
        xid, VERSION, credits, OPTIONAL, direction, opttype, len as u32,
    ];
    put_words(out, words);
    out.extend_from_slice(info);
    out.put_bytes(0, onc_rpc::pad(len) as usize);
}

fn read_direction(from: &mut Reader<'_>) -> Result<Direction, Malformed> {
    let number = from.u32()?;
    Direction::from_number(number).ok_or(Malformed::Enumeration("msg_type", number))
}

fn read_error(from: &mut Reader<'_>) -> Result<ErrorBody, Malformed> {
    match from.u32()? {
        ERR_VERS => Ok(ErrorBody::Version {
            low: from.u32()?,
            high: from.u32()?,
        }),
        ERR_BAD_HEADER => Ok(ErrorBody::BadHeader),
        ERR_INVAL_OPTION => Ok(ErrorBody::InvalidOption),
        value => Err(Malformed::ErrorCode(value)),
    }
}
