//! Encoding and decoding of transport headers (version-two-07, sections 6.2 to 6.5 and 8).

use bytes::{BufMut, Bytes, BytesMut};
use onc_rpc::{padded, put_words};
use rpcrdma_chunks::{
    Malformed, Reader, put_reply_chunk, put_write_list, read_list_len, reply_chunk_len,
    write_list_len,
};

use crate::header::header_type;
use crate::limits::{MAX_PROPERTIES, MAX_PROPERTY_LEN, MIDDLE_LEN, MIN_PAYLOAD_LEN, PREFIX_LEN};
use crate::lists::{put_external_call, read_call, read_reply};
use crate::{Answer, Body, DecodeError, ErrorBody, Header, HeaderError, Prefix, Property, VERSION};

impl Header {
    /// Returns the length of the encoded header in bytes, which is the payload's offset in the
    /// message if there is a payload.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let fields = match &self.body {
            Body::Error(error) => error_len(*error),
            Body::Grant => 0,
            Body::Properties { properties, .. } => {
                let len = |property: &Property| 8 + padded(property.value.len() as u64) as usize;
                4 + properties.iter().map(len).sum::<usize>()
            }
            Body::Call {
                external, chunks, ..
            } => 4 + chunks.encoded_len() + if *external { read_list_len(0) } else { 0 },
            Body::Reply { external, chunks } => {
                let reply = match external {
                    true => reply_chunk_len(chunks.reply.as_ref()),
                    false => 0,
                };
                write_list_len(&chunks.writes) + reply
            }
            Body::Middle { .. } => MIDDLE_LEN - PREFIX_LEN,
        };
        PREFIX_LEN + fields
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
        let header_type = self.body.header_type();
        put_words(out, [self.xid, VERSION, self.credit, header_type]);
        match &self.body {
            Body::Error(error) => put_error(out, *error),
            Body::Grant => {}
            Body::Properties { properties, .. } => {
                // Properties are made by this side and fit one message, so neither their number
                // nor their lengths come near 2^32.
                out.put_u32(properties.len() as u32);
                for property in properties {
                    put_words(out, [property.id, property.value.len() as u32]);
                    out.put_slice(&property.value);
                    out.put_bytes(0, onc_rpc::pad(property.value.len() as u64) as usize);
                }
            }
            Body::Call {
                external,
                inv_handle,
                chunks,
            } => {
                out.put_u32(*inv_handle);
                match external {
                    true => put_external_call(out, chunks),
                    false => chunks.encode_into(out),
                }
            }
            Body::Reply { external, chunks } => {
                put_write_list(out, &chunks.writes);
                if *external {
                    put_reply_chunk(out, chunks.reply.as_ref());
                }
            }
            Body::Middle { remaining, .. } => out.put_u32(*remaining),
        }
    }

    /// Decodes the header of a received message. Returns the header and its length, which is the
    /// offset of the payload. `message` may end before the payload does, if it holds the header and
    /// the payload's first word. Values of properties are slices of it.
    ///
    /// Also checks the rules that need nothing but the header: the positions of read chunks
    /// (sections 4.5.1.1, 6.3.7 and 6.6.3), the handle to invalidate (section 6.5), the reply chunk
    /// of an external reply (section 6.3.8), and that payload follows where it must and nothing
    /// follows a grant, properties or an external message (section 6.1). [`crate::check_call`] and
    /// [`crate::check_returned`] check the rest. Bytes after an error are ignored.
    ///
    /// # Errors
    /// [`DecodeError`], which says whether the receiver must answer with an RDMA2_ERROR.
    pub fn decode(message: &Bytes) -> Result<(Self, usize), DecodeError> {
        let Some(prefix) = Prefix::peek(message) else {
            return Err(DecodeError {
                xid: None,
                error: HeaderError::TooShort(message.len()),
            });
        };
        let mut from = Reader::new(&message[PREFIX_LEN..]);
        let body = decode_body(prefix, message, &mut from).map_err(|error| DecodeError {
            xid: Some(prefix.xid),
            error,
        })?;
        let header = Self {
            xid: prefix.xid,
            credit: prefix.credit,
            body,
        };
        Ok((header, message.len() - from.left()))
    }
}

fn decode_body(
    prefix: Prefix,
    message: &Bytes,
    from: &mut Reader<'_>,
) -> Result<Body, HeaderError> {
    let header_type = prefix.header_type;
    if prefix.version != VERSION {
        return Err(HeaderError::Version {
            version: prefix.version,
            is_error: header_type == header_type::ERROR,
        });
    }
    let malformed = |reason| HeaderError::Malformed {
        header_type,
        reason,
    };
    let direction = crate::header::direction(header_type);
    let body = match (header_type, direction) {
        (header_type::ERROR, _) => {
            return read_error(from)
                .map(Body::Error)
                .map_err(HeaderError::BadError);
        }
        (header_type::GRANT, _) => Body::Grant,
        (header_type::CONNPROP_MIDDLE | header_type::CONNPROP_FINAL, _) => Body::Properties {
            last: header_type == header_type::CONNPROP_FINAL,
            properties: read_properties(message, from, header_type)?,
        },
        (header_type::CALL_MIDDLE | header_type::REPLY_MIDDLE, Some(direction)) => Body::Middle {
            direction,
            remaining: from.u32().map_err(malformed)?,
        },
        (header_type::CALL_EXTERNAL | header_type::CALL_INLINE, _) => read_call(from, header_type)?,
        (header_type::REPLY_EXTERNAL | header_type::REPLY_INLINE, _) => {
            read_reply(from, header_type)?
        }
        _ => return Err(HeaderError::HeaderType(header_type)),
    };
    if body.has_payload() && from.left() < MIN_PAYLOAD_LEN {
        return Err(malformed(Malformed::Truncated));
    }
    if !body.has_payload() {
        // RDMA2_OPTIONAL of the 2016 draft has the number of RDMA2_GRANT and must not be taken for
        // one. The payload of an external message is in a chunk, and a second one would be one too
        // many.
        from.end().map_err(malformed)?;
    }
    Ok(body)
}

fn error_len(error: ErrorBody) -> usize {
    match error {
        ErrorBody::Version { .. } | ErrorBody::WriteResource { .. } => 12,
        ErrorBody::ReadChunks { .. }
        | ErrorBody::WriteChunks { .. }
        | ErrorBody::Segments { .. }
        | ErrorBody::ReplyResource { .. } => 8,
        ErrorBody::BadXdr
        | ErrorBody::BadPropertyValue
        | ErrorBody::InvalidHeaderType
        | ErrorBody::InvalidContinuation
        | ErrorBody::VersionMismatch
        | ErrorBody::System
        | ErrorBody::Other(_) => 4,
    }
}

fn put_error(out: &mut BytesMut, error: ErrorBody) {
    out.put_u32(error.code());
    match error {
        ErrorBody::Version {
            low: first,
            high: second,
        }
        | ErrorBody::WriteResource {
            chunk: first,
            needed: second,
        } => put_words(out, [first, second]),
        ErrorBody::ReadChunks { max: value }
        | ErrorBody::WriteChunks { max: value }
        | ErrorBody::Segments { max: value }
        | ErrorBody::ReplyResource { needed: value } => out.put_u32(value),
        ErrorBody::BadXdr
        | ErrorBody::BadPropertyValue
        | ErrorBody::InvalidHeaderType
        | ErrorBody::InvalidContinuation
        | ErrorBody::VersionMismatch
        | ErrorBody::System
        | ErrorBody::Other(_) => {}
    }
}

impl Answer {
    /// Encodes the message as XDR. `credit` is the value of `rdma_credit` (section
    /// 4.2.1).
    #[must_use]
    pub fn encode(&self, credit: u32) -> Bytes {
        encode_error(self.xid, self.version, credit, self.error)
    }
}

/// Encodes an RDMA2_ERROR header. `version` is that of the message being answered, which may be
/// another one (section 7).
fn encode_error(xid: u32, version: u32, credit: u32, error: ErrorBody) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX_LEN + error_len(error));
    put_words(&mut out, [xid, version, credit, header_type::ERROR]);
    put_error(&mut out, error);
    out.freeze()
}

fn read_error(from: &mut Reader<'_>) -> Result<ErrorBody, Malformed> {
    Ok(match from.u32()? {
        1 => ErrorBody::Version {
            low: from.u32()?,
            high: from.u32()?,
        },
        2 => ErrorBody::BadXdr,
        3 => ErrorBody::BadPropertyValue,
        4 => ErrorBody::InvalidHeaderType,
        5 => ErrorBody::InvalidContinuation,
        6 => ErrorBody::ReadChunks { max: from.u32()? },
        7 => ErrorBody::WriteChunks { max: from.u32()? },
        8 => ErrorBody::Segments { max: from.u32()? },
        9 => ErrorBody::WriteResource {
            chunk: from.u32()?,
            needed: from.u32()?,
        },
        10 => ErrorBody::ReplyResource {
            needed: from.u32()?,
        },
        11 => ErrorBody::VersionMismatch,
        100 => ErrorBody::System,
        code => ErrorBody::Other(code),
    })
}

fn read_properties(
    message: &Bytes,
    from: &mut Reader<'_>,
    header_type: u32,
) -> Result<Vec<Property>, HeaderError> {
    let malformed = |reason| HeaderError::Malformed {
        header_type,
        reason,
    };
    let count = from.u32().map_err(malformed)? as usize;
    if count > MAX_PROPERTIES {
        return Err(malformed(Malformed::TooMany("properties")));
    }
    // No memory is allocated for properties that are only promised.
    let mut properties = Vec::new();
    for _ in 0..count {
        let id = from.u32().map_err(malformed)?;
        let len = { *from }.u32().map_err(malformed)?;
        if len as usize > from.left() - 4 || len as usize > MAX_PROPERTY_LEN {
            return Err(HeaderError::Property { id, len });
        }
        let value = from.opaque().map_err(malformed)?;
        properties.push(Property {
            id,
            value: message.slice_ref(value),
        });
    }
    Ok(properties)
}
