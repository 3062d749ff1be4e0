//! An RPC message, or a part of one, with its bulk items held apart.

use bytes::{Bytes, BytesMut};
use smallvec::{SmallVec, smallvec};

use crate::{Bulk, pad, padded};

/// A byte string in pieces, in order: what a gather list is made from.
pub type Segments = SmallVec<[Bytes; 2]>;

/// Bytes of a piece that are copied rather than kept apart.
const SHORT: usize = 256;

static ZEROES: [u8; 4] = [0; 4];

/// Where a bulk item belongs in the XDR stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Its first byte's offset in the whole, unreduced stream, all items before it and their
    /// round-up counted in (RFC 8166, section 3.4.5: the position of a read chunk). The word before it, the item's
    /// length, is in the payload.
    At(u32),
    /// It belongs to the next DDP-eligible item that the upper layer decodes. Write chunks that
    /// come back in a reply are like this: they carry no position (RFC 8166, section 3.4.6).
    InOrder,
}

/// A variable-length opaque's content, kept out of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkItem {
    /// Where it belongs.
    pub position: Position,
    /// Its bytes, without XDR round-up. An `InOrder` item without bytes stands for an unused
    /// write chunk: there was nothing for it.
    pub data: Bulk,
}

/// An XDR stream with its bulk items held apart.
///
/// `payload` is the stream with each item's bytes and round-up taken out ("reduced"); `items` are
/// in stream order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message {
    payload: Segments,
    items: Vec<BulkItem>,
}

impl Clone for Message {
    fn clone(&self) -> Self {
        Self {
            payload: clone_segments(&self.payload),
            items: self.items.clone(),
        }
    }
}

/// Handles to the same pieces. Most messages are one, which costs less than a collection of any
/// number.
fn clone_segments(segments: &Segments) -> Segments {
    match &segments[..] {
        [only] => smallvec![only.clone()],
        segments => segments.iter().cloned().collect(),
    }
}

impl Message {
    /// A message from its parts. Items with a position are in ascending order of it.
    #[must_use]
    pub fn new(payload: Segments, items: impl IntoIterator<Item = BulkItem>) -> Self {
        Self {
            payload,
            items: items.into_iter().collect(),
        }
    }

    /// A message that is one piece, with nothing held apart.
    #[must_use]
    pub fn from_payload(payload: Bytes) -> Self {
        Self::without_items(smallvec![payload])
    }

    /// A message with nothing held apart.
    #[must_use]
    #[inline]
    pub fn without_items(payload: Segments) -> Self {
        let items = Vec::new();
        Self { payload, items }
    }

    /// The stream without its items.
    #[must_use]
    pub fn payload(&self) -> &Segments {
        &self.payload
    }

    /// The stream without its items, to keep.
    #[must_use]
    pub fn into_payload(self) -> Segments {
        self.payload
    }

    /// The items, in stream order.
    #[must_use]
    pub fn items(&self) -> &[BulkItem] {
        &self.items
    }

    /// Bytes in the payload: the length of the stream with every item reduced.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        self.payload
            .iter()
            .map(|segment| segment.len() as u64)
            .sum()
    }

    /// Bytes in the whole stream, items and their round-up included.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.payload_len()
            + self
                .items
                .iter()
                .map(|item| padded(item.data.len() as u64))
                .sum::<u64>()
    }

    /// Puts `header` before the stream; the items move with it. A short piece that follows it is
    /// joined to it: each piece less makes a message cheaper to pass on and to send.
    ///
    /// # Panics
    /// When `header` is not a multiple of four bytes, or an item would come to lie beyond 4 GiB:
    /// programming errors, as a header is prepended to what this program has encoded.
    pub fn prepend(&mut self, header: Bytes) {
        assert_eq!(header.len() % 4, 0, "XDR comes in units of four bytes");
        for item in &mut self.items {
            if let Position::At(position) = &mut item.position {
                let moved = u64::from(*position) + header.len() as u64;
                *position = u32::try_from(moved).expect("XDR stream under 4 GiB");
            }
        }
        match self.payload.first_mut() {
            Some(first) if first.is_empty() => *first = header,
            Some(first) if first.len() <= SHORT => {
                let mut joined = BytesMut::with_capacity(header.len() + first.len());
                joined.extend_from_slice(&header);
                joined.extend_from_slice(first);
                *first = joined.freeze();
            }
            None => self.payload.push(header),
            Some(_) => self.payload.insert(0, header),
        }
    }

    /// The stream as a gather list, with those items spliced in (and rounded up) for which
    /// `inline(index)` holds; the others stay reduced. Copies nothing.
    ///
    /// Only items with a position can be spliced: a message made by [`crate::Encoder`] has no
    /// others.
    #[must_use]
    pub fn gather(&self, mut inline: impl FnMut(usize) -> bool) -> Segments {
        let mut out = Segments::new();
        if self.items.is_empty() {
            for segment in self.payload.iter().filter(|segment| !segment.is_empty()) {
                out.push(segment.clone());
            }
            return out;
        }
        // Offsets in the payload; `reduced` is what the items so far have taken out before them.
        let (mut at, mut reduced) = (0u64, 0u64);
        let mut segments = self.payload.iter().cloned();
        let mut head = segments.next();
        for (index, item) in self.items.iter().enumerate() {
            let Position::At(position) = item.position else {
                continue;
            };
            let split = u64::from(position).saturating_sub(reduced);
            reduced += padded(item.data.len() as u64);
            if !inline(index) {
                continue;
            }
            while let Some(segment) = &mut head {
                let room = split.saturating_sub(at);
                if room == 0 {
                    break;
                }
                if segment.len() as u64 <= room {
                    at += segment.len() as u64;
                    out.push(std::mem::take(segment));
                    head = segments.next();
                } else {
                    out.push(segment.split_to(room as usize));
                    at += room;
                }
            }
            out.extend(item.data.pieces().iter().cloned());
            let pad = pad(item.data.len() as u64) as usize;
            if pad > 0 {
                out.push(Bytes::from_static(&ZEROES[..pad]));
            }
        }
        out.extend(head);
        out.extend(segments);
        out.retain(|segment| !segment.is_empty());
        out
    }
}

impl From<crate::Encoder> for Message {
    fn from(encoder: crate::Encoder) -> Self {
        encoder.finish()
    }
}
