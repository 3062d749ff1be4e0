//! Reading an XDR stream.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::message::{BulkItem, Message, Position};
use crate::{Bulk, pad, padded};

/// Why a stream could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The stream ends before the value does.
    #[error("XDR stream ends at {at}: {wanted} more bytes wanted, {left} left")]
    Truncated {
        /// Offset in the stream.
        at: u64,
        /// Bytes the value needs.
        wanted: u64,
        /// Bytes that are there.
        left: u64,
    },
    /// A length is over the protocol's limit for that field.
    #[error("length {len} is over the limit of {max}")]
    TooLong {
        /// The length on the wire.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A value that its type does not have (a boolean of 2, an unknown discriminant).
    #[error("{value} is not a valid {what}")]
    Invalid {
        /// The type.
        what: &'static str,
        /// The value on the wire.
        value: u32,
    },
    /// A bulk item's length is not the length the stream gives it.
    #[error("bulk item of {got} bytes where the stream says {expected}")]
    BulkLength {
        /// The length in the stream.
        expected: u64,
        /// The item's own length.
        got: u64,
    },
    /// A bulk item is at a place where the stream has no DDP-eligible opaque data.
    #[error("bulk item at position {0} is not the content of a DDP-eligible opaque")]
    StrayBulk(u32),
    /// DDP-eligible opaque data is in the payload, though there was a chunk for it.
    #[error("DDP-eligible opaque of {0} bytes in the payload beside an unused chunk for it")]
    NotReduced(u32),
    /// A bulk item without a position was not taken by any value that was decoded.
    #[error("bulk item of {0} bytes that no value has room for")]
    UnclaimedBulk(u64),
    /// Bytes are left after the last value.
    #[error("{0} bytes left after the last value")]
    Trailing(u64),
}

/// A place in a message: lets decoding stop and go on later, where the message has moved to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    segment: usize,
    offset: usize,
    /// Offset in the whole stream.
    position: u64,
    item: usize,
}

/// Reads a [`Message`] in stream order (RFC 4506). Every length is checked against its limit and
/// against what is left before it is used.
///
/// It also is an [`io::Read`] over the payload, for fixed-size types that unpack themselves.
#[derive(Clone, Debug)]
pub struct Decoder<'m> {
    message: &'m Message,
    /// What is left of the segment it is in. Empty at the end only.
    current: &'m [u8],
    /// That segment.
    segment: usize,
    /// Offset in the whole stream.
    position: u64,
    /// The next item.
    item: usize,
}

impl<'m> Decoder<'m> {
    /// From the start of `message`.
    #[must_use]
    pub fn new(message: &'m Message) -> Self {
        Self::at(message, Cursor::default())
    }

    /// From `cursor`, which an earlier decoder of the same message gave.
    #[must_use]
    pub fn at(message: &'m Message, cursor: Cursor) -> Self {
        let segment = message.payload().get(cursor.segment);
        let current = segment.and_then(|segment| segment.get(cursor.offset..));
        let mut decoder = Self {
            message,
            current: current.unwrap_or(&[]),
            segment: cursor.segment,
            position: cursor.position,
            item: cursor.item,
        };
        // The first segments may be empty: from here on, it is in one that is not.
        decoder.skip_empty();
        decoder
    }

    /// Where it is now.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let segment = self.message.payload().get(self.segment);
        Cursor {
            segment: self.segment,
            offset: segment.map_or(0, |segment| segment.len() - self.current.len()),
            position: self.position,
            item: self.item,
        }
    }

    /// Offset in the whole stream.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Payload bytes not yet read. Items held apart are not counted.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let later = self.message.payload().iter().skip(self.segment + 1);
        let later: u64 = later.map(|segment| segment.len() as u64).sum();
        self.current.len() as u64 + later
    }

    /// Looks at as many segments as `wanted` bytes lie in, not at all of them: a peer may have
    /// sent very many.
    fn need(&self, wanted: u64) -> Result<(), DecodeError> {
        let mut left = self.current.len() as u64;
        let mut segment = self.segment;
        while left < wanted {
            segment += 1;
            let Some(later) = self.message.payload().get(segment) else {
                return Err(DecodeError::Truncated {
                    at: self.position,
                    wanted,
                    left,
                });
            };
            left += later.len() as u64;
        }
        Ok(())
    }

    /// Fills `out`; the caller has checked that enough is left.
    fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            let n = self.current.len().min(out.len());
            out[..n].copy_from_slice(&self.current[..n]);
            out = &mut out[n..];
            self.advance(n);
        }
    }

    /// Moves on by `n` bytes that lie in the current segment.
    fn advance(&mut self, n: usize) {
        self.current = &self.current[n..];
        self.position += n as u64;
        self.skip_empty();
    }

    /// Moves on to a segment that is not empty, if there is one.
    fn skip_empty(&mut self) {
        while self.current.is_empty() && self.segment < self.message.payload().len() {
            self.segment += 1;
            let segment = self.message.payload().get(self.segment);
            self.current = segment.map_or(&[], |segment| segment);
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        // Nearly always the value lies in one segment.
        let Some((&out, rest)) = self.current.split_first_chunk() else {
            return self.array_across();
        };
        self.current = rest;
        self.position += N as u64;
        if rest.is_empty() {
            self.skip_empty();
        }
        Ok(out)
    }

    #[cold]
    fn array_across<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.need(N as u64)?;
        let mut out = [0; N];
        self.fill(&mut out);
        Ok(out)
    }

    /// The next `N` bytes, if they lie in one segment, and no item that is held apart belongs to them
    /// or follows them at once: for what is to be recognised whole, and otherwise read step by step.
    #[inline]
    pub(crate) fn ahead<const N: usize>(&self) -> Option<&'m [u8; N]> {
        self.is_clear(N).then_some(self.current.first_chunk()?)
    }

    /// Likewise, the next `len` bytes.
    #[inline]
    pub(crate) fn ahead_of(&self, len: usize) -> Option<&'m [u8]> {
        self.is_clear(len).then_some(self.current.get(..len)?)
    }

    /// A slice of the message: `len` bytes from `at` bytes ahead on, in the same segment.
    pub(crate) fn share(&self, at: usize, len: usize) -> Option<Bytes> {
        let segment = self.message.payload().get(self.segment)?;
        let from = segment.len() - self.current.len() + at;
        match len {
            0 => Some(Bytes::new()),
            _ => (from + len <= segment.len()).then(|| segment.slice(from..from + len)),
        }
    }

    /// Moves on by what was looked at ahead.
    #[inline]
    pub(crate) fn pass(&mut self, n: usize) {
        self.current = self.current.get(n..).unwrap_or_default();
        self.position += n as u64;
        if self.current.is_empty() {
            self.skip_empty();
        }
    }

    #[inline]
    fn is_clear(&self, len: usize) -> bool {
        match self
            .message
            .items()
            .get(self.item)
            .map(|item| item.position)
        {
            None | Some(Position::InOrder) => true,
            Some(Position::At(position)) => u64::from(position) > self.position + len as u64,
        }
    }

    /// Unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Integer.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Boolean: 0 or 1 and nothing else.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::Invalid {
                what: "bool",
                value,
            }),
        }
    }

    /// Fixed-length opaque data of `len` bytes, without its round-up. A slice of the message
    /// where the bytes lie in one segment, a copy otherwise.
    pub fn opaque_fixed(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        let whole = padded(len as u64);
        // Nearly always it lies in one segment, round-up included.
        if self.current.len() as u64 >= whole
            && let Some(segment) = self.message.payload().get(self.segment)
        {
            let from = segment.len() - self.current.len();
            let out = match len {
                0 => Bytes::new(),
                _ => segment.slice(from..from + len),
            };
            self.advance(whole as usize);
            return Ok(out);
        }
        self.opaque_across(len)
    }

    #[cold]
    fn opaque_across(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        self.need(padded(len as u64))?;
        let out = if self.current.len() >= len {
            let segment = self.message.payload().get(self.segment);
            let out = segment.map_or_else(Bytes::new, |segment| {
                let from = segment.len() - self.current.len();
                segment.slice(from..from + len)
            });
            self.advance(len);
            out
        } else {
            let mut out = BytesMut::zeroed(len);
            self.fill(&mut out);
            out.freeze()
        };
        let mut round_up = [0; 3];
        self.fill(&mut round_up[..pad(len as u64) as usize]);
        Ok(out)
    }

    /// The next item, and whether it belongs here. One whose place is behind belongs nowhere.
    fn item_here(&self) -> Result<Option<&'m BulkItem>, DecodeError> {
        let Some(item) = self.message.items().get(self.item) else {
            return Ok(None);
        };
        match item.position {
            Position::At(position) if u64::from(position) < self.position => {
                Err(DecodeError::StrayBulk(position))
            }
            Position::At(position) if u64::from(position) == self.position => Ok(Some(item)),
            _ => Ok(None),
        }
    }

    /// The length word of variable-length opaque data.
    #[inline]
    fn length(&mut self, max: u32) -> Result<u32, DecodeError> {
        let len = self.u32()?;
        if len > max {
            return Err(DecodeError::TooLong {
                len: u64::from(len),
                max: u64::from(max),
            });
        }
        Ok(len)
    }

    /// Variable-length opaque data of at most `max` bytes that is not DDP-eligible: a bulk item that
    /// is held apart here is an error (RFC 8166, section 6.1). Copies nothing that lies in one piece.
    pub fn opaque(&mut self, max: u32) -> Result<Bytes, DecodeError> {
        let len = self.length(max)?;
        if self.item < self.message.items().len()
            && let Some(item) = self.item_here()?
            && let Position::At(position) = item.position
        {
            return Err(DecodeError::StrayBulk(position));
        }
        match len {
            0 => Ok(Bytes::new()),
            _ => self.opaque_fixed(len as usize),
        }
    }

    /// Fixed-length opaque data, without its round-up, in the pieces in which it lies.
    fn bulk_fixed(&mut self, len: usize) -> Result<Bulk, DecodeError> {
        self.need(padded(len as u64))?;
        let mut bulk = Bulk::new();
        let mut left = len;
        while left > 0
            && let Some(segment) = self.message.payload().get(self.segment)
        {
            let here = self.current.len().min(left);
            let from = segment.len() - self.current.len();
            bulk.push(segment.slice(from..from + here));
            self.advance(here);
            left -= here;
        }
        let mut round_up = [0; 3];
        self.fill(&mut round_up[..pad(len as u64) as usize]);
        Ok(bulk)
    }

    fn bulk_here(&mut self, max: u32) -> Result<Bulk, DecodeError> {
        let len = self.length(max)?;
        match self.item_here()? {
            Some(item) => self.take_item(u64::from(len), item),
            None => self.bulk_fixed(len as usize),
        }
    }

    /// Variable-length opaque data that the upper-layer binding calls DDP-eligible, from the payload,
    /// from the bulk item that is held apart here, or from the next [`Position::InOrder`] item. It
    /// copies nothing, in however many pieces it lies. Data in the payload is an error where the chunk
    /// whose turn it is came back unused (RFC 8166, section 6.1).
    pub fn bulk(&mut self, max: u32) -> Result<Bulk, DecodeError> {
        let Some(item) = self.message.items().get(self.item) else {
            return self.bulk_here(max);
        };
        if item.position != Position::InOrder {
            return self.bulk_here(max);
        }
        match (self.length(max)?, item.data.len()) {
            // Nobody says whether an opaque without bytes has its turn at a chunk. Where the responder
            // thinks so, the unused one was for it; otherwise it is behind all that are used.
            (0, 0) => {
                self.item += 1;
                Ok(Bulk::new())
            }
            // It uses no chunk: this one is the next item's.
            (0, _) => Ok(Bulk::new()),
            (len, 0) => Err(DecodeError::NotReduced(len)),
            (len, _) => self.take_item(u64::from(len), item),
        }
    }

    /// The item's round-up may have been sent with it (RFC 8166, section 3.4.5.2).
    fn take_item(&mut self, expected: u64, item: &BulkItem) -> Result<Bulk, DecodeError> {
        let mut data = item.data.clone();
        let got = data.len() as u64;
        if got != expected && got != padded(expected) {
            return Err(DecodeError::BulkLength { expected, got });
        }
        data.truncate(expected as usize);
        self.item += 1;
        self.position += padded(expected);
        Ok(data)
    }

    /// Ends decoding: nothing may be left, neither payload nor items.
    pub fn finish(self) -> Result<(), DecodeError> {
        self.items_used()?;
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    /// That every item was taken: one with a position that was passed by was at a place where the
    /// stream has no opaque data, one without belongs to nothing that is DDP-eligible (RFC 8166,
    /// section 6.1). Unused write chunks may be left over.
    ///
    /// # Errors
    /// The first item that was not taken.
    pub fn items_used(&self) -> Result<(), DecodeError> {
        for item in self.message.items().iter().skip(self.item) {
            match item.position {
                Position::At(position) => return Err(DecodeError::StrayBulk(position)),
                Position::InOrder if item.data.is_empty() => {}
                Position::InOrder => {
                    return Err(DecodeError::UnclaimedBulk(item.data.len() as u64));
                }
            }
        }
        Ok(())
    }
}

impl io::Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // One segment at a time: that is cheap, and callers who need more ask again.
        let n = self.current.len().min(out.len());
        self.fill(&mut out[..n]);
        Ok(n)
    }
}
