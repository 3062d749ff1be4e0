//! Decoding of XDR streams.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::message::{BulkItem, Message, Position};
use crate::{Bulk, pad, padded};

/// The reason why an XDR stream could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The stream ends before the value does.
    #[error("XDR stream ends at {at}: {wanted} more bytes wanted, {left} left")]
    Truncated {
        /// Offset in the stream.
        at: u64,
        /// Number of bytes that the value needs.
        wanted: u64,
        /// Number of bytes that are left.
        left: u64,
    },
    /// A length exceeds the protocol's limit for the field.
    #[error("length {len} is over the limit of {max}")]
    TooLong {
        /// The length on the wire.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A value that is not a member of its type, for example a boolean of 2 or an unknown union
    /// discriminant.
    #[error("{value} is not a valid {what}")]
    Invalid {
        /// Name of the type.
        what: &'static str,
        /// The value on the wire.
        value: u32,
    },
    /// The length of a bulk item differs from the length word in the stream.
    #[error("bulk item of {got} bytes where the stream says {expected}")]
    BulkLength {
        /// The length in bytes in the stream.
        expected: u64,
        /// The length in bytes of the item.
        got: u64,
    },
    /// A bulk item is at a position where the stream has no DDP-eligible opaque data.
    #[error("bulk item at position {0} is not the content of a DDP-eligible opaque")]
    StrayBulk(u32),
    /// A DDP-eligible opaque was sent inline although a chunk was available for it.
    #[error("DDP-eligible opaque of {0} bytes in the payload beside an unused chunk for it")]
    NotReduced(u32),
    /// No decoded value claimed a bulk item that has no position.
    #[error("bulk item of {0} bytes that belongs to no decoded value")]
    UnclaimedBulk(u64),
    /// Bytes are left after the last value.
    #[error("{0} bytes left after the last value")]
    Trailing(u64),
}

/// A saved position of a [`Decoder`], from which decoding can resume later, also after the message
/// has been moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    segment: usize,
    offset: usize,
    /// Offset in the whole stream.
    position: u64,
    item: usize,
}

/// Decodes a [`Message`] in stream order (RFC 4506). Every length is checked against its limit and
/// against the bytes that are left before it is used.
///
/// Also implements [`io::Read`] over the payload, for fixed-size types that decode themselves.
#[derive(Clone, Debug)]
pub struct Decoder<'m> {
    message: &'m Message,
    /// The unread part of the current segment. Empty only at the end of the payload.
    current: &'m [u8],
    /// Index of the current segment.
    segment: usize,
    /// Offset in the whole stream.
    position: u64,
    /// Index of the next bulk item.
    item: usize,
}

impl<'m> Decoder<'m> {
    /// Creates a decoder at the start of `message`.
    #[must_use]
    pub fn new(message: &'m Message) -> Self {
        Self::at(message, Cursor::default())
    }

    /// Creates a decoder at `cursor`, which an earlier decoder of the same message returned.
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
        // The first segments may be empty; the current segment must not be.
        decoder.skip_empty();
        decoder
    }

    /// Returns the current position.
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

    /// Returns the offset in the whole stream, bulk items included.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of payload bytes not yet read. Bulk items are not counted.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let later = self.message.payload().iter().skip(self.segment + 1);
        let later: u64 = later.map(|segment| segment.len() as u64).sum();
        self.current.len() as u64 + later
    }

    /// Checks that `wanted` bytes are left. Looks only at the segments that hold those bytes,
    /// because a peer may have sent very many segments.
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

    /// Fills `out`. The caller has checked that enough bytes are left.
    fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            let n = self.current.len().min(out.len());
            out[..n].copy_from_slice(&self.current[..n]);
            out = &mut out[n..];
            self.pass(n);
        }
    }

    /// Advances to the next segment that is not empty, if there is one.
    fn skip_empty(&mut self) {
        while self.current.is_empty() && self.segment < self.message.payload().len() {
            self.segment += 1;
            let segment = self.message.payload().get(self.segment);
            self.current = segment.map_or(&[], |segment| segment);
        }
    }

    /// Decodes the next `N` bytes as they are, such as a structure of fixed length, with a single
    /// check of what is left. `N` is a multiple of four.
    #[inline]
    pub fn words<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        const { assert!(N.is_multiple_of(4), "XDR comes in units of four bytes") };
        self.array()
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        // Nearly every value lies in one segment.
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

    /// Returns the next `N` bytes without consuming them, if they lie in one segment and no bulk
    /// item is located within or directly behind them. Lets a caller recognise a common header as a
    /// whole and fall back to step-by-step decoding otherwise.
    #[inline]
    pub(crate) fn ahead<const N: usize>(&self) -> Option<&'m [u8; N]> {
        self.is_clear(N).then_some(self.current.first_chunk()?)
    }

    /// Returns the next `len` bytes under the same conditions as [`Decoder::ahead`].
    #[inline]
    pub(crate) fn ahead_of(&self, len: usize) -> Option<&'m [u8]> {
        self.is_clear(len).then_some(self.current.get(..len)?)
    }

    /// Returns the next bytes, as many as lie in one segment, without consuming them: none if a
    /// bulk item with a position is still to come. Lets a caller decode a structure of many values
    /// with few checks, and fall back to step-by-step decoding if it does not lie there as a whole.
    #[inline]
    #[must_use]
    pub fn in_one_piece(&self) -> &'m [u8] {
        let item = self.message.items().get(self.item);
        match item.map(|item| item.position) {
            None | Some(Position::InOrder | Position::InOrderOrInline) => self.current,
            Some(Position::At(_)) => &[],
        }
    }

    /// Returns `len` bytes that begin `at` bytes ahead, as a slice that shares the current
    /// segment's memory. `None` if they do not lie in that segment.
    pub(crate) fn share(&self, at: usize, len: usize) -> Option<Bytes> {
        let segment = self.message.payload().get(self.segment)?;
        let from = segment.len() - self.current.len() + at;
        match len {
            0 => Some(Bytes::new()),
            _ => (from + len <= segment.len()).then(|| segment.slice(from..from + len)),
        }
    }

    /// Advances past `n` of the bytes that [`Decoder::in_one_piece`] returns.
    ///
    /// # Panics
    /// Panics if `n` exceeds the length of that slice, which is a programming error.
    #[inline]
    pub fn pass(&mut self, n: usize) {
        self.current = &self.current[n..];
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
            None | Some(Position::InOrder | Position::InOrderOrInline) => true,
            Some(Position::At(position)) => u64::from(position) > self.position + len as u64,
        }
    }

    /// Decodes an unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Decodes a signed integer.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Decodes an unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Decodes a boolean. Any value but 0 and 1 is an error.
    #[inline]
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

    /// Decodes fixed-length opaque data of `len` bytes and skips its round-up. The result is a
    /// slice of the message if the bytes lie in one segment, and a copy otherwise.
    #[inline]
    pub fn opaque_fixed(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        let whole = padded(len as u64);
        // Nearly every opaque lies in one segment, round-up included.
        if self.current.len() as u64 >= whole
            && let Some(segment) = self.message.payload().get(self.segment)
        {
            let from = segment.len() - self.current.len();
            let out = match len {
                0 => Bytes::new(),
                _ => segment.slice(from..from + len),
            };
            self.pass(whole as usize);
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
            self.pass(len);
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

    /// Returns the next bulk item if its position is the current one.
    ///
    /// # Errors
    /// [`DecodeError::StrayBulk`] if the item's position has already been passed.
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

    /// Decodes the length word of variable-length opaque data.
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

    /// Decodes variable-length opaque data of at most `max` bytes that is not DDP-eligible: a bulk
    /// item at this position is an error (RFC 8166, section 6.1). Does not copy data that lies in
    /// one segment.
    #[inline]
    pub fn opaque(&mut self, max: u32) -> Result<Bytes, DecodeError> {
        match self.opaque_length(max)? {
            0 => Ok(Bytes::new()),
            len => self.opaque_fixed(len as usize),
        }
    }

    /// Decodes variable-length opaque data of at most `N` bytes like [`Decoder::opaque`], but
    /// copies it. Returns its length and an array that begins with it and has zeroes after it. For
    /// short values, a copy takes less time than a reference to the message.
    #[inline]
    pub fn opaque_array<const N: usize>(&mut self) -> Result<(usize, [u8; N]), DecodeError> {
        let max = u32::try_from(N).unwrap_or(u32::MAX);
        let len = self.opaque_length(max)? as usize;
        let mut out = [0; N];
        let whole = padded(len as u64) as usize;
        // Nearly every opaque lies in one segment, round-up included.
        if let Some(bytes) = self.current.get(..whole) {
            out[..len].copy_from_slice(&bytes[..len]);
            self.pass(whole);
            return Ok((len, out));
        }
        self.need(whole as u64)?;
        self.fill(&mut out[..len]);
        let mut round_up = [0; 3];
        self.fill(&mut round_up[..pad(len as u64) as usize]);
        Ok((len, out))
    }

    /// Decodes the length word of opaque data that is not DDP-eligible.
    #[inline]
    fn opaque_length(&mut self, max: u32) -> Result<u32, DecodeError> {
        let len = self.length(max)?;
        if self.item < self.message.items().len()
            && let Some(item) = self.item_here()?
            && let Position::At(position) = item.position
        {
            return Err(DecodeError::StrayBulk(position));
        }
        Ok(len)
    }

    /// Reads fixed-length opaque data, without its round-up, as one piece per segment.
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
            self.pass(here);
            left -= here;
        }
        let mut round_up = [0; 3];
        self.fill(&mut round_up[..pad(len as u64) as usize]);
        Ok(bulk)
    }

    /// Decodes the length word of variable-length DDP-eligible opaque data of at most `max` bytes,
    /// and returns the item that holds the data, or `None` if the data is in the payload.
    #[inline]
    fn eligible(&mut self, max: u32) -> Result<(u32, Option<&'m BulkItem>), DecodeError> {
        let len = self.length(max)?;
        let Some(item) = self.message.items().get(self.item) else {
            return Ok((len, None));
        };
        if matches!(item.position, Position::At(_)) {
            return Ok((len, self.item_here()?));
        }
        match (len, item.data.len()) {
            // RFC 8166 does not say whether an empty opaque consumes a chunk. If the responder
            // thinks that it does, the unused chunk was meant for it; otherwise the unused chunk
            // comes after all used ones.
            (0, 0) => Ok((len, Some(item))),
            // The empty opaque consumes no chunk; this chunk belongs to a later item.
            (0, _) => Ok((len, None)),
            (_, 0) if item.position == Position::InOrderOrInline => {
                self.item += 1;
                Ok((len, None))
            }
            (_, 0) => Err(DecodeError::NotReduced(len)),
            _ => Ok((len, Some(item))),
        }
    }

    /// Decodes variable-length DDP-eligible opaque data: from the payload, from the bulk item at
    /// this position, or from the next [`Position::InOrder`] item. Never copies, whatever the
    /// number of segments. Data in the payload is an error if the chunk that was available for it
    /// came back unused (RFC 8166, section 6.1), unless the item is
    /// [`Position::InOrderOrInline`].
    pub fn bulk(&mut self, max: u32) -> Result<Bulk, DecodeError> {
        match self.eligible(max)? {
            (len, Some(item)) => self.take_item(u64::from(len), item),
            (len, None) => self.bulk_fixed(len as usize),
        }
    }

    /// Passes DDP-eligible opaque data as [`Decoder::bulk`] does, without making it an item.
    /// Returns its length; the item that holds it, or `None` if it is in the payload; and whether
    /// its round-up is zeroes, as it should be.
    pub(crate) fn skip_bulk(&mut self) -> Result<(u32, Option<&'m BulkItem>, bool), DecodeError> {
        let (len, item) = self.eligible(u32::MAX)?;
        let mut round_up = [0; 3];
        match item {
            Some(item) => {
                self.check_length(u64::from(len), item)?;
                self.pass_item(u64::from(len));
                // An item may include its round-up.
                let extra = item.data.len() - len as usize;
                let pieces = item.data.pieces().iter().rev();
                let from_end = pieces.flat_map(|piece| piece.iter().rev());
                for (byte, &found) in round_up[..extra].iter_mut().rev().zip(from_end) {
                    *byte = found;
                }
            }
            None => {
                self.need(padded(u64::from(len)))?;
                self.skip(u64::from(len))?;
                self.fill(&mut round_up[..pad(u64::from(len)) as usize]);
            }
        }
        Ok((len, item, round_up == [0; 3]))
    }

    /// Passes the next `len` bytes of the payload without looking at them.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer are left.
    #[inline]
    pub fn skip(&mut self, len: u64) -> Result<(), DecodeError> {
        if len > self.current.len() as u64 {
            self.need(len)?;
        }
        let mut left = len;
        while left > 0 {
            let here = left.min(self.current.len() as u64);
            self.pass(here as usize);
            left -= here;
        }
        Ok(())
    }

    /// Passes variable-length opaque data that is not DDP-eligible, and returns its length.
    ///
    /// # Errors
    /// [`DecodeError`] if fewer bytes are left, or if a bulk item is at this position.
    #[inline]
    pub fn skip_opaque(&mut self) -> Result<u32, DecodeError> {
        let len = self.opaque_length(u32::MAX)?;
        self.skip(padded(u64::from(len)))?;
        Ok(len)
    }

    /// Takes `item` as the content of an opaque of `expected` bytes. The item may include its
    /// round-up (RFC 8166, section 3.4.5.2).
    fn take_item(&mut self, expected: u64, item: &BulkItem) -> Result<Bulk, DecodeError> {
        self.check_length(expected, item)?;
        let mut data = item.data.clone();
        data.truncate(expected as usize);
        self.pass_item(expected);
        Ok(data)
    }

    #[inline]
    fn check_length(&self, expected: u64, item: &BulkItem) -> Result<(), DecodeError> {
        let got = item.data.len() as u64;
        if got != expected && got != padded(expected) {
            return Err(DecodeError::BulkLength { expected, got });
        }
        Ok(())
    }

    /// Advances past the current item, which has `len` bytes.
    #[inline]
    fn pass_item(&mut self, len: u64) {
        self.item += 1;
        self.position += padded(len);
    }

    /// Ends decoding: neither payload nor bulk items may be left.
    pub fn finish(self) -> Result<(), DecodeError> {
        self.items_used()?;
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    /// Checks that every bulk item was taken. An item whose position was passed was at a place
    /// without opaque data, and a remaining item without a position belongs to no DDP-eligible
    /// value (RFC 8166, section 6.1). Unused write chunks may be left over.
    ///
    /// # Errors
    /// [`DecodeError::StrayBulk`] or [`DecodeError::UnclaimedBulk`] for the first item that was not
    /// taken.
    pub fn items_used(&self) -> Result<(), DecodeError> {
        for item in self.message.items().iter().skip(self.item) {
            match item.position {
                Position::At(position) => return Err(DecodeError::StrayBulk(position)),
                Position::InOrder | Position::InOrderOrInline if item.data.is_empty() => {}
                Position::InOrder | Position::InOrderOrInline => {
                    return Err(DecodeError::UnclaimedBulk(item.data.len() as u64));
                }
            }
        }
        Ok(())
    }
}

impl io::Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // Reads from one segment at a time, which is cheap; a caller that needs more calls again.
        let n = self.current.len().min(out.len());
        self.fill(&mut out[..n]);
        Ok(n)
    }
}
