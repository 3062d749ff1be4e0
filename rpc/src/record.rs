//! Record marking, which keeps RPC messages apart on a byte stream (RFC 5531, section 11).
//!
//! A record is one RPC message, in one or more fragments; each fragment is preceded by a word that
//! holds its length and, in the top bit, whether it is the record's last.

use bytes::{Buf, Bytes, BytesMut};

use crate::Segments;

/// Bytes of the word before a fragment.
pub const HEADER_LEN: usize = 4;
/// Longest fragment: what 31 bits can say.
pub const MAX_FRAGMENT: u32 = 0x7fff_ffff;
/// Most fragments of one record, empty ones counted, so that a peer cannot make a record of little
/// data cost much. Deployed peers send one, or one per few kilobytes.
pub const MAX_FRAGMENTS: u32 = 4096;

const LAST: u32 = 0x8000_0000;
/// A piece shorter than this that does not end its fragment is copied together with its
/// neighbours: a segment of its own would cost more than the copy.
const SMALL_PIECE: usize = 1024;

/// A record that cannot be sent, or must not be received. The stream cannot be used after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Longer than allowed.
    #[error("record of {len} bytes or more, where {max} are allowed")]
    TooLong {
        /// Length as far as it is known, bytes.
        len: u64,
        /// The limit, bytes.
        max: u64,
    },
    /// No bytes at all: not an RPC message.
    #[error("empty record")]
    Empty,
    /// More fragments than [`MAX_FRAGMENTS`].
    #[error("record in more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
}

/// The word to send before a record of `len` bytes that goes out as one fragment.
///
/// # Errors
/// The record is empty, or longer than a fragment can be.
pub fn header(len: u64) -> Result<[u8; HEADER_LEN], RecordError> {
    match u32::try_from(len) {
        Ok(0) => Err(RecordError::Empty),
        Ok(len) if len <= MAX_FRAGMENT => Ok((LAST | len).to_be_bytes()),
        _ => Err(RecordError::TooLong {
            len,
            max: u64::from(MAX_FRAGMENT),
        }),
    }
}

/// What a [`RecordReader`] needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// That many more bytes of a fragment's header: for [`RecordReader::header`].
    Header(usize),
    /// Bytes of a fragment's body: for [`RecordReader::body`], at once or in pieces.
    Body {
        /// How many are left.
        len: usize,
        /// Whether the record ends with them.
        last: bool,
    },
    /// Nothing: a record is complete and waits for [`RecordReader::take`].
    Take,
}

/// Puts records together from a byte stream. Does no I/O and copies no bulk: a driver asks what
/// is wanted, receives a long body straight into one buffer, and hands that over.
#[derive(Debug)]
pub struct RecordReader {
    max_record: u64,
    header: [u8; HEADER_LEN],
    header_len: usize,
    fragment: Fragment,
    fragments: u32,
    /// Bytes of the record so far, counting all of the present fragment.
    len: u64,
    parts: Segments,
    /// Small pieces, after `parts`.
    tail: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fragment {
    /// Its header has not been read.
    Unknown,
    /// Being read.
    Body { left: usize, last: bool },
    /// It was the last one, and is complete.
    Ended,
}

impl RecordReader {
    /// At the start of a stream. Records of over `max_record` bytes are refused as soon as a
    /// header says so.
    #[must_use]
    pub fn new(max_record: u32) -> Self {
        Self {
            max_record: u64::from(max_record),
            header: [0; HEADER_LEN],
            header_len: 0,
            fragment: Fragment::Unknown,
            fragments: 0,
            len: 0,
            parts: Segments::new(),
            tail: BytesMut::new(),
        }
    }

    /// What it needs next.
    #[must_use]
    pub fn want(&self) -> Want {
        match self.fragment {
            Fragment::Unknown => Want::Header(HEADER_LEN - self.header_len),
            Fragment::Body { left, last } => Want::Body { len: left, last },
            Fragment::Ended => Want::Take,
        }
    }

    /// Whether the stream may end here: no record is incomplete.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.len == 0 && self.fragments == 0 && self.header_len == 0
    }

    /// Fragments of the present record so far.
    #[must_use]
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// Takes what it needs of a fragment's header from the front of `data`, and says how many
    /// bytes that were: none when no header is wanted.
    ///
    /// # Errors
    /// The record passes a limit. The stream cannot be used any more.
    pub fn header(&mut self, data: &[u8]) -> Result<usize, RecordError> {
        if self.fragment != Fragment::Unknown {
            return Ok(0);
        }
        let n = data.len().min(HEADER_LEN - self.header_len);
        self.header[self.header_len..self.header_len + n].copy_from_slice(&data[..n]);
        self.header_len += n;
        if self.header_len == HEADER_LEN {
            self.header_len = 0;
            self.start_fragment(u32::from_be_bytes(self.header))?;
        }
        Ok(n)
    }

    fn start_fragment(&mut self, word: u32) -> Result<(), RecordError> {
        let (len, last) = (word & MAX_FRAGMENT, word & LAST != 0);
        self.len += u64::from(len);
        self.fragments += 1;
        if self.len > self.max_record {
            return Err(RecordError::TooLong {
                len: self.len,
                max: self.max_record,
            });
        }
        if self.fragments > MAX_FRAGMENTS {
            return Err(RecordError::TooManyFragments);
        }
        if last && self.len == 0 {
            return Err(RecordError::Empty);
        }
        self.fragment = match (len, last) {
            (0, true) => Fragment::Ended,
            (0, false) => Fragment::Unknown,
            _ => Fragment::Body {
                left: len as usize,
                last,
            },
        };
        Ok(())
    }

    /// Takes what it needs of a fragment's body from the front of `data`: nothing when no body is
    /// wanted. What is not taken stays in `data`.
    pub fn body(&mut self, data: &mut Bytes) {
        let Fragment::Body { left, last } = self.fragment else {
            return;
        };
        let piece = data.split_to(data.len().min(left));
        let left = left - piece.len();
        self.fragment = match (left, last) {
            (0, true) => Fragment::Ended,
            (0, false) => Fragment::Unknown,
            _ => Fragment::Body { left, last },
        };
        let joins = left > 0 || !self.tail.is_empty();
        if joins && piece.len() < SMALL_PIECE {
            self.tail.extend_from_slice(&piece);
        } else {
            self.flush_tail();
            self.parts.push(piece);
        }
    }

    fn flush_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push(self.tail.split().freeze());
        }
    }

    /// The record, when it is complete; the next one may then follow.
    pub fn take(&mut self) -> Option<Segments> {
        if self.fragment != Fragment::Ended {
            return None;
        }
        self.flush_tail();
        self.fragment = Fragment::Unknown;
        (self.fragments, self.len) = (0, 0);
        Some(std::mem::take(&mut self.parts))
    }

    /// Takes from the front of `data` until a record is complete or `data` is used up: what a
    /// driver needs that receives into a buffer of its own. Call it again while it gives records.
    ///
    /// # Errors
    /// As [`RecordReader::header`].
    pub fn feed(&mut self, data: &mut Bytes) -> Result<Option<Segments>, RecordError> {
        loop {
            match self.want() {
                Want::Take => return Ok(self.take()),
                _ if data.is_empty() => return Ok(None),
                Want::Header(_) => {
                    let n = self.header(data)?;
                    data.advance(n);
                }
                Want::Body { .. } => self.body(data),
            }
        }
    }
}
