//! Chunk lists to bytes and back (sections 4.1.2 and 4.7).

use bytes::{Buf, BufMut, BytesMut};
use onc_rpc::{padded, put_words};

use crate::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS};
use crate::{Chunks, Malformed, ReadSegment, Segment, WriteChunk};

const SEGMENT_LEN: usize = 16;
/// "One follows" and position precede a read segment.
const READ_ENTRY_LEN: usize = 8 + SEGMENT_LEN;

impl Chunks {
    /// Bytes of the three lists.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let writes: usize = self.writes.iter().map(|chunk| 4 + chunk_len(chunk)).sum();
        let reply = self.reply.as_ref().map_or(0, |chunk| chunk_len(chunk));
        // The three last words end the lists, or say that a reply chunk follows.
        self.reads.len() * READ_ENTRY_LEN + writes + reply + 12
    }

    /// Appends the lists to `out`.
    pub fn encode_into(&self, out: &mut BytesMut) {
        if self.is_empty() {
            return put_words(out, [0; 3]);
        }
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
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads all of `bytes`, which hold one value and nothing else.
    ///
    /// # Errors
    /// What `read` finds wrong, or [`Malformed::Trailing`].
    pub fn whole<T>(
        bytes: &'a [u8],
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        let mut from = Self::new(bytes);
        let value = read(&mut from)?;
        from.end()?;
        Ok(value)
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Ends the reading of something that must be read to its end.
    ///
    /// # Errors
    /// [`Malformed::Trailing`].
    pub fn end(&self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(Malformed::Trailing(left)),
        }
    }

    /// A word.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32().map_err(|_| Malformed::Truncated)
    }

    /// A double word.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64().map_err(|_| Malformed::Truncated)
    }

    /// A boolean; also, whether optional data follows (RFC 4506, sections 4.4 and 4.19).
    ///
    /// # Errors
    /// [`Malformed::Truncated`] and [`Malformed::Boolean`].
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Boolean(value)),
        }
    }

    /// A segment.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn segment(&mut self) -> Result<Segment, Malformed> {
        Ok(Segment {
            handle: self.u32()?,
            length: self.u32()?,
            offset: self.u64()?,
        })
    }

    /// A write chunk or reply chunk.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or too many segments.
    pub fn chunk(&mut self) -> Result<WriteChunk, Malformed> {
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

    /// Bytes of variable length, with their round-up (RFC 4506, section 4.10).
    ///
    /// # Errors
    /// [`Malformed::Truncated`] and [`Malformed::RoundUp`].
    pub fn opaque(&mut self) -> Result<&'a [u8], Malformed> {
        let len = u64::from(self.u32()?);
        // In 64 bits: a length near 2^32 must not wrap when it is rounded up.
        let whole = usize::try_from(padded(len)).map_err(|_| Malformed::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(whole).ok_or(Malformed::Truncated)?;
        let (bytes, round_up) = bytes.split_at(len as usize);
        if round_up.iter().any(|&byte| byte != 0) {
            return Err(Malformed::RoundUp);
        }
        self.0 = rest;
        Ok(bytes)
    }

    /// The three chunk lists.
    ///
    /// # Errors
    /// What is wrong with their form, or that they are over the limits.
    pub fn chunks(&mut self) -> Result<Chunks, Malformed> {
        if let Some((lists, rest)) = self.0.split_first_chunk::<12>()
            && *lists == [0; 12]
        {
            // All three are empty, as most are.
            self.0 = rest;
            return Ok(Chunks::default());
        }
        let mut reads = Vec::new();
        while self.boolean()? {
            if reads.len() == MAX_READ_SEGMENTS {
                return Err(Malformed::TooMany("segments in the read list"));
            }
            reads.push(ReadSegment {
                position: self.u32()?,
                segment: self.segment()?,
            });
        }
        let mut writes = Vec::new();
        while self.boolean()? {
            if writes.len() == MAX_WRITE_CHUNKS {
                return Err(Malformed::TooMany("chunks in the write list"));
            }
            writes.push(self.chunk()?);
        }
        let reply = if self.boolean()? {
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
}
