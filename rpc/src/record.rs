//! Record marking, which delimits RPC messages on a byte stream (RFC 5531, section 11).
//!
//! A record is one RPC message in one or more fragments. Each fragment is preceded by a word that
//! holds the fragment's length and, in the top bit, whether it is the last one of the record.

use bytes::{Buf, Bytes, BytesMut};

use crate::Segments;

/// Length in bytes of the word before a fragment.
pub const HEADER_LEN: usize = 4;
/// Maximum length of a fragment: the largest 31-bit number.
pub const MAX_FRAGMENT: u32 = 0x7fff_ffff;
/// Maximum number of fragments in a record, empty ones included, so that a peer cannot make a
/// record of little data expensive. Deployed peers send one fragment, or one per few kilobytes.
pub const MAX_FRAGMENTS: u32 = 4096;

const LAST: u32 = 0x8000_0000;
/// A shorter piece that does not end its fragment is copied together with its neighbours, because a
/// segment of its own would cost more than the copy.
const SMALL_PIECE: usize = 1024;

/// The reason why a record cannot be sent or must not be received. The stream cannot be used
/// afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record is longer than allowed.
    #[error("record of {len} bytes or more, where {max} are allowed")]
    TooLong {
        /// Length of the record in bytes, as far as it is known.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// The record is empty, so it is not an RPC message.
    #[error("empty record")]
    Empty,
    /// The record has more fragments than [`MAX_FRAGMENTS`].
    #[error("record in more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
}

/// Returns the word to send before a record of `len` bytes that is sent as one fragment.
///
/// # Errors
/// [`RecordError::Empty`] if `len` is zero, [`RecordError::TooLong`] if it exceeds
/// [`MAX_FRAGMENT`].
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

/// The input that a [`RecordReader`] needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// This number of bytes of a fragment header, to be passed to [`RecordReader::header`].
    Header(usize),
    /// Bytes of a fragment body, to be passed to [`RecordReader::body`] in one or several pieces.
    Body {
        /// Number of bytes left in the fragment.
        len: usize,
        /// Whether the fragment is the last one of its record.
        last: bool,
    },
    /// No input, because a record is complete and must be taken with [`RecordReader::take`].
    Take,
}

/// Reassembles records from a byte stream. Does no I/O and does not copy long bodies: the driver
/// asks what is wanted, receives a long body directly into one buffer, and passes that on.
#[derive(Debug)]
pub struct RecordReader {
    max_record: u64,
    header: [u8; HEADER_LEN],
    header_len: usize,
    fragment: Fragment,
    fragments: u32,
    /// Length in bytes of the record so far, with the whole of the current fragment.
    len: u64,
    parts: Segments,
    /// Small pieces that come after `parts`, joined.
    tail: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fragment {
    /// The header of the next fragment has not been read completely.
    Unknown,
    /// The body is being read.
    Body { left: usize, last: bool },
    /// The last fragment of the record is complete.
    Ended,
}

impl RecordReader {
    /// Creates a reader at the start of a stream. A record of more than `max_record` bytes is
    /// refused as soon as a fragment header shows its length.
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

    /// Returns the input that is needed next.
    #[must_use]
    pub fn want(&self) -> Want {
        match self.fragment {
            Fragment::Unknown => Want::Header(HEADER_LEN - self.header_len),
            Fragment::Body { left, last } => Want::Body { len: left, last },
            Fragment::Ended => Want::Take,
        }
    }

    /// Returns whether the stream may end here, that is, no record is incomplete.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.len == 0 && self.fragments == 0 && self.header_len == 0
    }

    /// Returns the number of fragments of the current record so far.
    #[must_use]
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// Takes the missing bytes of a fragment header from the front of `data` and returns how many
    /// bytes were taken: zero if no header is wanted.
    ///
    /// # Errors
    /// [`RecordError`] if the record exceeds a limit or is empty. The stream cannot be used
    /// afterwards.
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

    /// Takes the missing bytes of a fragment body from the front of `data`, none if no body is
    /// wanted. The rest stays in `data`.
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

    /// Returns the record if it is complete, and makes the reader ready for the next one.
    pub fn take(&mut self) -> Option<Segments> {
        if self.fragment != Fragment::Ended {
            return None;
        }
        self.flush_tail();
        self.fragment = Fragment::Unknown;
        (self.fragments, self.len) = (0, 0);
        Some(std::mem::take(&mut self.parts))
    }

    /// Takes bytes from the front of `data` until a record is complete or `data` is used up, for a
    /// driver that receives into a buffer of its own. Must be called again as long as it returns
    /// records.
    ///
    /// # Errors
    /// [`RecordError`], as for [`RecordReader::header`].
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
