//! Encoding and decoding of transport headers (version-two-07, sections 6.2 to 6.5 and 8).

use bytes::{BufMut, Bytes, BytesMut};
use onc_rpc::{padded, put_words};
use rpcrdma_chunks::{
    Chunks, Malformed, ReadSegment, Reader, WriteChunk, put_read_list, put_reply_chunk,
    put_write_list, read_list_len, reply_chunk_len, write_list_len,
};

use crate::header::header_type;
use crate::limits::{
    MAX_CHUNK_SEGMENTS, MAX_PROPERTIES, MAX_PROPERTY_LEN, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS,
    MIDDLE_LEN, MIN_PAYLOAD_LEN, PREFIX_LEN,
};
use crate::{Body, DecodeError, ErrorBody, Header, HeaderError, Prefix, Property};

/// The protocol version in `rdma_vers`.
pub const VERSION: u32 = 2;

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
    /// follows a grant or properties (section 6.1). [`crate::check_call`] and
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
    if direction.is_none() {
        // Grants and properties have no payload. RDMA2_OPTIONAL of the 2016 draft has the number of
        // RDMA2_GRANT and must not be taken for one.
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

/// Encodes an RDMA2_ERROR header. `version` is that of the message being answered, which may be
/// another one (section 7).
pub(crate) fn encode_error(xid: u32, version: u32, credit: u32, error: ErrorBody) -> Bytes {
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

/// Encodes the lists of RDMA2_CALL_EXTERNAL, where the call chunk is a list of its own.
fn put_external_call(out: &mut BytesMut, chunks: &Chunks) {
    let part = |is_call: bool| {
        let reads = chunks.reads.iter();
        reads.filter(move |read| (read.position == 0) == is_call)
    };
    put_read_list(out, part(true));
    put_read_list(out, part(false));
    put_write_list(out, &chunks.writes);
    put_reply_chunk(out, chunks.reply.as_ref());
}

/// Reads the lists of one header.
struct Lists<'a, 'b> {
    from: &'a mut Reader<'b>,
    header_type: u32,
}

impl Lists<'_, '_> {
    fn malformed(&self, reason: Malformed) -> HeaderError {
        HeaderError::Malformed {
            header_type: self.header_type,
            reason,
        }
    }

    fn limit(&self, error: ErrorBody) -> HeaderError {
        HeaderError::Limit {
            header_type: self.header_type,
            error,
        }
    }

    fn word(&mut self) -> Result<u32, HeaderError> {
        self.from.u32().map_err(|reason| self.malformed(reason))
    }

    fn another(&mut self) -> Result<bool, HeaderError> {
        self.from.boolean().map_err(|reason| self.malformed(reason))
    }

    /// Appends a read list to `reads`. Positions must not decrease (section 4.5.1.1).
    fn reads(&mut self, reads: &mut Vec<ReadSegment>) -> Result<(), HeaderError> {
        while self.another()? {
            if reads.len() == MAX_READ_SEGMENTS {
                let max = MAX_READ_SEGMENTS as u32;
                return Err(self.limit(ErrorBody::Segments { max }));
            }
            let position = self.word()?;
            if reads.last().is_some_and(|last| position < last.position) {
                return Err(self.malformed(Malformed::Rule("positions of read chunks decrease")));
            }
            let segment = self.from.segment();
            reads.push(ReadSegment {
                position,
                segment: segment.map_err(|reason| self.malformed(reason))?,
            });
        }
        Ok(())
    }

    fn chunk(&mut self) -> Result<WriteChunk, HeaderError> {
        let max = MAX_CHUNK_SEGMENTS as u32;
        self.from.chunk().map_err(|reason| match reason {
            Malformed::TooMany(_) => self.limit(ErrorBody::Segments { max }),
            reason => self.malformed(reason),
        })
    }

    fn writes(&mut self) -> Result<Vec<WriteChunk>, HeaderError> {
        let mut writes = Vec::new();
        while self.another()? {
            if writes.len() == MAX_WRITE_CHUNKS {
                let max = MAX_WRITE_CHUNKS as u32;
                return Err(self.limit(ErrorBody::WriteChunks { max }));
            }
            writes.push(self.chunk()?);
        }
        Ok(writes)
    }

    fn reply(&mut self) -> Result<Option<WriteChunk>, HeaderError> {
        match self.another()? {
            true => self.chunk().map(Some),
            false => Ok(None),
        }
    }
}

fn read_call(from: &mut Reader<'_>, header_type: u32) -> Result<Body, HeaderError> {
    let mut lists = Lists { from, header_type };
    let inv_handle = lists.word()?;
    let external = header_type == header_type::CALL_EXTERNAL;
    let mut reads = Vec::new();
    if external {
        lists.reads(&mut reads)?;
        if reads.is_empty() {
            return Err(lists.malformed(Malformed::Rule("external call without a call chunk")));
        }
        if reads.iter().any(|read| read.position != 0) {
            return Err(lists.malformed(Malformed::Rule("call chunk at a position other than 0")));
        }
    }
    let call_chunk = reads.len();
    lists.reads(&mut reads)?;
    if reads[call_chunk..].iter().any(|read| read.position == 0) {
        let reason = Malformed::Rule("position-zero read chunk in the read list");
        return Err(lists.malformed(reason));
    }
    let chunks = Chunks {
        reads,
        writes: lists.writes()?,
        reply: lists.reply()?,
    };
    if inv_handle != 0 && chunks.handles().all(|handle| handle != inv_handle) {
        let reason = Malformed::Rule("handle to invalidate that is in no chunk");
        return Err(lists.malformed(reason));
    }
    Ok(Body::Call {
        external,
        inv_handle,
        chunks,
    })
}

fn read_reply(from: &mut Reader<'_>, header_type: u32) -> Result<Body, HeaderError> {
    let mut lists = Lists { from, header_type };
    let external = header_type == header_type::REPLY_EXTERNAL;
    let writes = lists.writes()?;
    let reply = match external {
        true => lists.reply()?,
        false => None,
    };
    if external && reply.is_none() {
        return Err(lists.malformed(Malformed::Rule("external reply without a reply chunk")));
    }
    let chunks = Chunks {
        writes,
        reply,
        ..Chunks::default()
    };
    Ok(Body::Reply { external, chunks })
}
