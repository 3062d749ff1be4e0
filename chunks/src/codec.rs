//! Encoding and decoding of chunk lists (sections 4.1.2 and 4.7).

use bytes::{Buf, BufMut, BytesMut};
use onc_rpc::{padded, put_words};

use crate::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS};
use crate::{Chunks, Malformed, ReadSegment, Segment, WriteChunk};

const SEGMENT_LEN: usize = 16;
/// Length in bytes of a read list entry: the word that announces an entry, the position, and a
/// segment.
const READ_ENTRY_LEN: usize = 8 + SEGMENT_LEN;

impl Chunks {
    /// Returns the encoded length of the three lists in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        read_list_len(self.reads.len())
            + write_list_len(&self.writes)
            + reply_chunk_len(self.reply.as_ref())
    }

    /// Appends the encoded lists to `out`.
    pub fn encode_into(&self, out: &mut BytesMut) {
        if self.is_empty() {
            return put_words(out, [0; 3]);
        }
        put_read_list(out, &self.reads);
        put_write_list(out, &self.writes);
        put_reply_chunk(out, self.reply.as_ref());
    }
}

/// Returns the encoded length in bytes of a read list with this number of segments. The word that
/// ends the list is included.
#[must_use]
pub fn read_list_len(segments: usize) -> usize {
    segments * READ_ENTRY_LEN + 4
}

/// Returns the encoded length of a write list in bytes. The word that ends the list is included.
#[must_use]
pub fn write_list_len(chunks: &[WriteChunk]) -> usize {
    let chunks = chunks.iter().map(|chunk| 4 + encoded_chunk_len(chunk));
    chunks.sum::<usize>() + 4
}

/// Returns the encoded length in bytes of a reply chunk and the word that tells whether there is
/// one.
#[must_use]
pub fn reply_chunk_len(chunk: Option<&WriteChunk>) -> usize {
    4 + chunk.map_or(0, |chunk| encoded_chunk_len(chunk))
}

/// Appends a read list alone. Header types of the working group's draft of version 2 have two read
/// lists, or none.
pub fn put_read_list<'a>(out: &mut BytesMut, reads: impl IntoIterator<Item = &'a ReadSegment>) {
    for read in reads {
        out.put_u32(1);
        out.put_u32(read.position);
        put_segment(out, read.segment);
    }
    out.put_u32(0);
}

/// Appends a write list alone.
pub fn put_write_list(out: &mut BytesMut, chunks: &[WriteChunk]) {
    for chunk in chunks {
        out.put_u32(1);
        put_chunk(out, chunk);
    }
    out.put_u32(0);
}

/// Appends a reply chunk alone, after the word that tells whether there is one.
pub fn put_reply_chunk(out: &mut BytesMut, chunk: Option<&WriteChunk>) {
    match chunk {
        Some(chunk) => {
            out.put_u32(1);
            put_chunk(out, chunk);
        }
        None => out.put_u32(0),
    }
}

fn put_segment(out: &mut BytesMut, segment: Segment) {
    out.put_u32(segment.handle);
    out.put_u32(segment.length);
    out.put_u64(segment.offset);
}

fn encoded_chunk_len(chunk: &[Segment]) -> usize {
    4 + chunk.len() * SEGMENT_LEN
}

fn put_chunk(out: &mut BytesMut, chunk: &[Segment]) {
    // A decoded chunk is within the limits, and a chunk made here has the segments of one
    // registration. Neither number comes near 2^32.
    out.put_u32(chunk.len() as u32);
    for segment in chunk {
        put_segment(out, *segment);
    }
}

/// Decodes a header, or another XDR value in one buffer, field by field.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Decodes `bytes` with `read`, which must consume all of them.
    ///
    /// # Errors
    /// The error that `read` returns, or [`Malformed::Trailing`] if bytes are left.
    pub fn whole<T>(
        bytes: &'a [u8],
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        let mut from = Self::new(bytes);
        let value = read(&mut from)?;
        from.end()?;
        Ok(value)
    }

    /// Returns the number of bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    /// [`Malformed::Trailing`] if there are some.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(Malformed::Trailing(left)),
        }
    }

    /// Decodes a 32-bit word.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if fewer than four bytes are left.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    /// Decodes a 64-bit word.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if fewer than eight bytes are left.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64().map_err(|_| Malformed::Truncated)
    }

    /// Decodes a boolean, or the word that tells whether optional data follows (RFC 4506, sections
    /// 4.4 and 4.19).
    ///
    /// # Errors
    /// [`Malformed::Truncated`] at the end of the buffer, [`Malformed::Boolean`] for a value other
    /// than 0 and 1.
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Boolean(value)),
        }
    }

    /// Decodes a segment.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if fewer than 16 bytes are left.
    pub fn segment(&mut self) -> Result<Segment, Malformed> {
        Ok(Segment {
            handle: self.u32()?,
            length: self.u32()?,
            offset: self.u64()?,
        })
    }

    /// Decodes a write chunk or reply chunk.
    ///
    /// # Errors
    /// [`Malformed::TooMany`] if the chunk has more than [`MAX_CHUNK_SEGMENTS`] segments,
    /// [`Malformed::Truncated`] if they are not all there.
    pub fn chunk(&mut self) -> Result<WriteChunk, Malformed> {
        let count = self.u32()? as usize;
        if count > MAX_CHUNK_SEGMENTS {
            return Err(Malformed::TooMany("segments in a write chunk"));
        }
        // The segments must be there before memory is allocated for them.
        if self.0.len() < count * SEGMENT_LEN {
            return Err(Malformed::Truncated);
        }
        (0..count).map(|_| self.segment()).collect()
    }

    /// Decodes variable-length opaque data and skips its round-up (RFC 4506, section 4.10).
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if the buffer is too short, [`Malformed::RoundUp`] if the round-up
    /// is not zero.
    pub fn opaque(&mut self) -> Result<&'a [u8], Malformed> {
        let len = u64::from(self.u32()?);
        // Computed in 64 bits: a length near 2^32 must not wrap when it is rounded up.
        let whole = usize::try_from(padded(len)).map_err(|_| Malformed::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(whole).ok_or(Malformed::Truncated)?;
        let (bytes, round_up) = bytes.split_at(len as usize);
        if round_up.iter().any(|&byte| byte != 0) {
            return Err(Malformed::RoundUp);
        }
        self.0 = rest;
        Ok(bytes)
    }

    /// Decodes a write list.
    ///
    /// # Errors
    /// Those of [`Reader::chunks`].
    pub fn write_list(&mut self) -> Result<Vec<WriteChunk>, Malformed> {
        let mut writes = Vec::new();
        while self.boolean()? {
            if writes.len() == MAX_WRITE_CHUNKS {
                return Err(Malformed::TooMany("chunks in the write list"));
            }
            writes.push(self.chunk()?);
        }
        Ok(writes)
    }

    /// Decodes the three chunk lists.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] or [`Malformed::Boolean`] if a list is malformed,
    /// [`Malformed::TooMany`] if one exceeds the limits of [`crate::limits`].
    pub fn chunks(&mut self) -> Result<Chunks, Malformed> {
        if let Some((lists, rest)) = self.0.split_first_chunk::<12>()
            && *lists == [0; 12]
        {
            // Most messages have three empty lists.
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
        let writes = self.write_list()?;
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
