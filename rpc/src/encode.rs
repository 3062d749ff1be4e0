//! Encoding of XDR streams.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use crate::message::{BulkItem, Message, Position};
use crate::{Bulk, Segments, pad, padded};

/// Appends unsigned integers (RFC 4506, section 4.2) with a single copy. Transport headers consist
/// of nothing else.
#[inline]
pub fn put_words<const N: usize>(out: &mut BytesMut, words: [u32; N]) {
    out.extend_from_slice(words.map(u32::to_be_bytes).as_flattened());
}

/// Encodes an XDR stream (RFC 4506) and keeps its bulk items apart.
///
/// Also implements [`io::Write`], for types that encode themselves.
#[derive(Debug, Default)]
pub struct Encoder {
    payload: BytesMut,
    /// Bytes to reserve when the first byte is written, so that an empty stream, such as the
    /// arguments of NULL, allocates nothing.
    capacity: usize,
    items: Vec<BulkItem>,
    /// Number of bytes of the stream that are in `items`, round-up included.
    reduced: u64,
}

impl Encoder {
    /// Creates an empty stream.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(256)
    }

    /// Creates an empty stream that reserves `capacity` bytes of payload.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            payload: BytesMut::new(),
            capacity,
            items: Vec::new(),
            reduced: 0,
        }
    }

    /// Creates an empty stream that writes into the spare capacity of `room`, which must be empty.
    pub(crate) fn in_room(room: BytesMut) -> Self {
        Self {
            payload: room,
            ..Self::new()
        }
    }

    /// Returns the buffer with the bytes written so far. See [`Encoder::in_room`].
    pub(crate) fn into_room(self) -> BytesMut {
        self.payload
    }

    #[inline]
    fn room(&mut self) -> &mut BytesMut {
        if self.payload.capacity() == 0 {
            self.payload.reserve(self.capacity);
        }
        &mut self.payload
    }

    /// Returns the offset in the stream of the next value.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.payload.len() as u64 + self.reduced
    }

    /// Appends an unsigned integer (RFC 4506, section 4.2).
    #[inline]
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.room().put_u32(value);
        self
    }

    /// Appends a signed integer (section 4.1).
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.room().put_i32(value);
        self
    }

    /// Appends an unsigned hyper integer (section 4.5).
    #[inline]
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.room().put_u64(value);
        self
    }

    /// Appends a boolean (section 4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }

    /// Appends bytes that are already encoded, such as a structure of fixed length, with a single
    /// check of the room. `N` is a multiple of four.
    #[inline]
    pub fn words<const N: usize>(&mut self, encoded: &[u8; N]) -> &mut Self {
        const { assert!(N.is_multiple_of(4), "XDR comes in units of four bytes") };
        self.room().put_slice(encoded);
        self
    }

    /// Appends `len` zero bytes, a multiple of four, and returns them, so that a caller that knows
    /// the length of a structure can write it with a single check of the room.
    ///
    /// # Panics
    /// Panics if `len` is not a multiple of four, which is a programming error.
    #[inline]
    pub fn zeroed(&mut self, len: usize) -> &mut [u8] {
        assert!(len.is_multiple_of(4), "XDR comes in units of four bytes");
        let room = self.room();
        let at = room.len();
        room.resize(at + len, 0);
        &mut room[at..]
    }

    /// Appends fixed-length opaque data with its round-up (section 4.9).
    #[inline]
    pub fn opaque_fixed(&mut self, data: &[u8]) -> &mut Self {
        self.room().put_slice(data);
        self.room().put_bytes(0, pad(data.len() as u64) as usize);
        self
    }

    /// Appends variable-length opaque data, copied into the payload (section 4.10).
    ///
    /// # Panics
    /// Panics if `data` is 4 GiB or longer, which is a programming error.
    #[inline]
    pub fn opaque(&mut self, data: &[u8]) -> &mut Self {
        self.u32(u32::try_from(data.len()).expect("opaque data under 4 GiB"));
        self.opaque_fixed(data)
    }

    /// Appends a string (section 4.11), which is encoded like opaque data.
    pub fn string(&mut self, data: &str) -> &mut Self {
        self.opaque(data.as_bytes())
    }

    /// Appends variable-length DDP-eligible opaque data: its length word goes into the payload, its
    /// bytes are kept apart without a copy. An empty item is not kept apart.
    ///
    /// # Panics
    /// Panics if the stream would exceed 4 GiB, which is a programming error.
    pub fn bulk(&mut self, data: impl Into<Bulk>) -> &mut Self {
        let data = data.into();
        let len = u32::try_from(data.len()).expect("bulk item under 4 GiB");
        self.u32(len);
        if len > 0 {
            let position = u32::try_from(self.position()).expect("XDR stream under 4 GiB");
            self.reduced += padded(u64::from(len));
            self.items.push(BulkItem {
                position: Position::At(position),
                data,
            });
        }
        self
    }

    /// Returns the finished stream.
    #[must_use]
    pub fn finish(self) -> Message {
        let mut payload = Segments::new();
        if !self.payload.is_empty() {
            payload.push(self.payload.freeze());
        }
        Message::new(payload, self.items)
    }

    /// Returns the finished stream as one buffer, for a stream without bulk items.
    ///
    /// # Panics
    /// Panics if the stream has bulk items, which is a programming error.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        assert!(self.items.is_empty(), "bulk items would be lost");
        self.payload.freeze()
    }
}

impl io::Write for Encoder {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.room().put_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<Encoder> for Message {
    fn from(encoder: Encoder) -> Self {
        encoder.finish()
    }
}
