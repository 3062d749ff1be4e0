//! The chunk lists of calls and replies, and the rules that need nothing but one header
//! (version-two-07, sections 4.5.1.1, 6.3.5, 6.3.7, 6.3.8, 6.3.10 and 6.5).

use bytes::BytesMut;
use rpcrdma_chunks::{
    Chunks, Malformed, ReadSegment, Reader, WriteChunk, put_read_list, put_reply_chunk,
    put_write_list,
};

use crate::header::header_type;
use crate::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS};
use crate::{Body, ErrorBody, HeaderError};

/// Encodes the lists of RDMA2_CALL_EXTERNAL, where the call chunk is a list of its own.
pub(crate) fn put_external_call(out: &mut BytesMut, chunks: &Chunks) {
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

/// Decodes the fields of RDMA2_CALL_INLINE or RDMA2_CALL_EXTERNAL, without the payload's first word.
pub(crate) fn read_call(from: &mut Reader<'_>, header_type: u32) -> Result<Body, HeaderError> {
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

/// Decodes the fields of RDMA2_REPLY_INLINE or RDMA2_REPLY_EXTERNAL, without the payload's first
/// word.
pub(crate) fn read_reply(from: &mut Reader<'_>, header_type: u32) -> Result<Body, HeaderError> {
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
