//! Reading an XDR stream.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::message::{Message, Position};
use crate::{pad, padded};

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
    /// A bulk item is at a place where the stream has no opaque data.
    #[error("bulk item at position {0} is not the content of an opaque")]
    StrayBulk(u32),
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
    cursor: Cursor,
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
        Self { message, cursor }
    }

    /// Where it is now.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Offset in the whole stream.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.cursor.position
    }

    /// Payload bytes not yet read. Items held apart are not counted.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let payload = self.message.payload();
        let whole: u64 = payload
            .iter()
            .skip(self.cursor.segment)
            .map(|segment| segment.len() as u64)
            .sum();
        whole - self.cursor.offset as u64
    }

    fn need(&self, wanted: u64) -> Result<(), DecodeError> {
        let left = self.remaining();
        if wanted > left {
            return Err(DecodeError::Truncated {
                at: self.cursor.position,
                wanted,
                left,
            });
        }
        Ok(())
    }

    /// Fills `out`; the caller has checked that enough is left.
    fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            let segment = &self.message.payload()[self.cursor.segment];
            let from = &segment[self.cursor.offset..];
            let n = from.len().min(out.len());
            out[..n].copy_from_slice(&from[..n]);
            out = &mut out[n..];
            self.advance(n);
        }
    }

    /// Moves on by `n` bytes that lie in the current segment.
    fn advance(&mut self, n: usize) {
        self.cursor.offset += n;
        self.cursor.position += n as u64;
        while let Some(segment) = self.message.payload().get(self.cursor.segment)
            && self.cursor.offset >= segment.len()
        {
            self.cursor.offset = 0;
            self.cursor.segment += 1;
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.need(N as u64)?;
        let mut out = [0; N];
        self.fill(&mut out);
        Ok(out)
    }

    /// Unsigned integer.
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
        self.need(padded(len as u64))?;
        let out = match self.message.payload().get(self.cursor.segment) {
            Some(segment) if segment.len() - self.cursor.offset >= len => {
                let out = segment.slice(self.cursor.offset..self.cursor.offset + len);
                self.advance(len);
                out
            }
            _ => {
                let mut out = BytesMut::zeroed(len);
                self.fill(&mut out);
                out.freeze()
            }
        };
        let mut round_up = [0; 3];
        self.fill(&mut round_up[..pad(len as u64) as usize]);
        Ok(out)
    }

    /// Variable-length opaque data of at most `max` bytes, from the payload or from the bulk item
    /// that is held apart here. Copies nothing that lies in one piece.
    pub fn opaque(&mut self, max: u32) -> Result<Bytes, DecodeError> {
        let len = self.u32()?;
        if len > max {
            return Err(DecodeError::TooLong {
                len: u64::from(len),
                max: u64::from(max),
            });
        }
        match self.message.items().get(self.cursor.item) {
            Some(item) if item.position == Position::At(self.cursor.position as u32) => {
                let data = item.data.clone();
                self.take_item(u64::from(len), data)
            }
            _ => self.opaque_fixed(len as usize),
        }
    }

    /// Variable-length opaque data that the upper-layer binding calls DDP-eligible: like
    /// [`Decoder::opaque`], and it also takes the next [`Position::InOrder`] item.
    pub fn bulk(&mut self, max: u32) -> Result<Bytes, DecodeError> {
        let Some(item) = self.message.items().get(self.cursor.item) else {
            return self.opaque(max);
        };
        if item.position != Position::InOrder {
            return self.opaque(max);
        }
        if item.data.is_empty() {
            self.cursor.item += 1;
            return self.opaque(max);
        }
        let len = self.u32()?;
        if len > max {
            return Err(DecodeError::TooLong {
                len: u64::from(len),
                max: u64::from(max),
            });
        }
        self.take_item(u64::from(len), item.data.clone())
    }

    /// The item's round-up may have been sent with it (RFC 8166, section 3.4.5.2).
    fn take_item(&mut self, expected: u64, mut data: Bytes) -> Result<Bytes, DecodeError> {
        let got = data.len() as u64;
        if got != expected && got != padded(expected) {
            return Err(DecodeError::BulkLength { expected, got });
        }
        data.truncate(expected as usize);
        self.cursor.item += 1;
        self.cursor.position += padded(expected);
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

    /// That every item with a position was taken: one that was passed by was at a place where the
    /// stream has no opaque data.
    pub fn items_used(&self) -> Result<(), DecodeError> {
        for item in self.message.items().iter().skip(self.cursor.item) {
            if let Position::At(position) = item.position {
                return Err(DecodeError::StrayBulk(position));
            }
        }
        Ok(())
    }
}

impl io::Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.remaining().min(out.len() as u64) as usize;
        self.fill(&mut out[..n]);
        Ok(n)
    }
}
