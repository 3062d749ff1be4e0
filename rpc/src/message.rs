//! An RPC message, or a part of one, with its bulk items kept apart.

use bytes::{Bytes, BytesMut};
use smallvec::smallvec;

use crate::{Bulk, Extras, Segments, pad, padded, total_len};

/// Pieces shorter than this many bytes are copied into their neighbour.
const SHORT: usize = 256;

static ZEROES: [u8; 4] = [0; 4];

/// The place of a bulk item in the XDR stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Offset of the item's first byte in the whole, unreduced stream, which includes all earlier
    /// items and their round-up (the position of a read chunk: RFC 8166, section 3.4.5). The item's
    /// length word, which precedes it, is in the payload.
    At(u32),
    /// The item belongs to the next DDP-eligible value that the upper layer decodes. Write chunks
    /// returned in a reply are of this kind, because they carry no position (RFC 8166, section
    /// 3.4.6).
    InOrder,
    /// The same, but the responder may have left the chunk unused and the value in the payload,
    /// because the chunk was too short for it (version-two-07, section 6.6.4).
    InOrderOrInline,
}

/// The content of a variable-length opaque, kept out of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkItem {
    /// Place in the stream.
    pub position: Position,
    /// Bytes of the item, without XDR round-up. An empty item without a position stands for a write
    /// chunk that the responder returned unused.
    pub data: Bulk,
}

/// An XDR stream with its bulk items kept apart.
///
/// `payload` is the reduced stream: each item's bytes and round-up are removed from it. `items` are
/// in stream order. Messages are equal if these are: `extras` are no part of the stream.
#[derive(Debug, Default)]
pub struct Message {
    payload: Segments,
    items: Vec<BulkItem>,
    extras: Extras,
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.payload == other.payload && self.items == other.items
    }
}

impl Eq for Message {}

impl Clone for Message {
    fn clone(&self) -> Self {
        Self {
            payload: clone_segments(&self.payload),
            items: self.items.clone(),
            extras: self.extras.clone(),
        }
    }
}

/// Clones the handles of the pieces without copying bytes. The common case of one piece is handled
/// apart because it is cheaper.
fn clone_segments(segments: &Segments) -> Segments {
    match &segments[..] {
        [only] => smallvec![only.clone()],
        segments => segments.iter().cloned().collect(),
    }
}

impl Message {
    /// Creates a message from its parts. Items with a position must be in ascending order of
    /// position.
    #[must_use]
    pub fn new(payload: Segments, items: impl IntoIterator<Item = BulkItem>) -> Self {
        Self {
            payload,
            items: items.into_iter().collect(),
            extras: Extras::NONE,
        }
    }

    /// Creates a message of one piece without bulk items.
    #[must_use]
    pub fn from_payload(payload: Bytes) -> Self {
        Self::without_items(smallvec![payload])
    }

    /// Creates a message without bulk items.
    #[must_use]
    #[inline]
    pub fn without_items(payload: Segments) -> Self {
        Self {
            payload,
            items: Vec::new(),
            extras: Extras::NONE,
        }
    }

    /// Replaces the values that accompany the message.
    #[must_use]
    pub fn with_extras(self, extras: Extras) -> Self {
        Self { extras, ..self }
    }

    /// Returns the values that accompany the message.
    #[must_use]
    #[inline]
    pub fn extras(&self) -> &Extras {
        &self.extras
    }

    /// Returns the values that accompany the message, to attach one.
    pub fn extras_mut(&mut self) -> &mut Extras {
        &mut self.extras
    }

    /// Returns the reduced stream.
    #[must_use]
    pub fn payload(&self) -> &Segments {
        &self.payload
    }

    /// Converts the message into its reduced stream.
    #[must_use]
    #[inline]
    pub fn into_payload(self) -> Segments {
        self.payload
    }

    /// Returns the bulk items, in stream order.
    #[must_use]
    pub fn items(&self) -> &[BulkItem] {
        &self.items
    }

    /// Returns the length in bytes of the reduced stream.
    #[must_use]
    #[inline]
    pub fn payload_len(&self) -> u64 {
        total_len(&self.payload)
    }

    /// Returns the length in bytes of the whole stream, bulk items and their round-up included.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.payload_len()
            + self
                .items
                .iter()
                .map(|item| padded(item.data.len() as u64))
                .sum::<u64>()
    }

    /// Puts `header` before the stream, like [`Message::prepend_in`].
    ///
    /// # Panics
    /// Panics if the length of `header` is not a multiple of four bytes, or if an item's position
    /// would exceed 4 GiB. Both are programming errors, as the header was encoded by this program.
    pub fn prepend(&mut self, header: Bytes) {
        self.prepend_in(&mut header.into());
    }

    /// Removes the header that `room` holds, puts it before the stream, and shifts the positions of the
    /// items. A short piece that follows the header is first copied behind it into `room`, because a
    /// message of fewer pieces is cheaper to pass on and to send. The allocation of `room` can serve
    /// many messages.
    ///
    /// # Panics
    /// Panics if the length of the header is not a multiple of four bytes, or if an item's position
    /// would exceed 4 GiB. Both are programming errors, as the header was encoded by this program.
    pub fn prepend_in(&mut self, room: &mut BytesMut) {
        let header = room.len();
        assert_eq!(header % 4, 0, "XDR comes in units of four bytes");
        for item in &mut self.items {
            if let Position::At(position) = &mut item.position {
                let moved = u64::from(*position) + header as u64;
                *position = u32::try_from(moved).expect("XDR stream under 4 GiB");
            }
        }
        match self.payload.first_mut() {
            Some(first) if first.len() <= SHORT => {
                room.extend_from_slice(first);
                *first = room.split().freeze();
            }
            None => self.payload.push(room.split().freeze()),
            Some(_) => self.payload.insert(0, room.split().freeze()),
        }
    }

    /// Calls `each` with the pieces of the whole stream, in order: that of [`Message::gather`] with all items
    /// put back into it, without handles of its own. No piece is empty.
    pub fn for_each_piece<'a>(&'a self, mut each: impl FnMut(&'a [u8])) {
        let mut each = |piece: &'a [u8]| {
            if !piece.is_empty() {
                each(piece);
            }
        };
        let mut segments = self.payload.iter();
        let mut head: &[u8] = segments.next().map_or(&[], |first| first);
        // As in `gather`.
        let (mut at, mut reduced) = (0u64, 0u64);
        for item in &self.items {
            let Position::At(position) = item.position else {
                continue;
            };
            let split = u64::from(position).saturating_sub(reduced);
            let len = item.data.len() as u64;
            reduced += padded(len);
            while at < split {
                let room = usize::try_from(split - at).unwrap_or(usize::MAX);
                let (before, behind) = head.split_at(room.min(head.len()));
                at += before.len() as u64;
                each(before);
                head = behind;
                if head.is_empty() {
                    let Some(next) = segments.next() else { break };
                    head = next;
                }
            }
            for piece in item.data.pieces() {
                each(piece);
            }
            each(&ZEROES[..pad(len) as usize]);
        }
        each(head);
        for segment in segments {
            each(segment);
        }
    }

    /// Returns the stream as a gather list, without copying. The items for which `inline(index)`
    /// returns true are put back into the stream with their round-up; the others stay reduced.
    ///
    /// Only items with a position can be put back, which are the only ones that [`crate::Encoder`]
    /// makes.
    #[must_use]
    pub fn gather(&self, mut inline: impl FnMut(usize) -> bool) -> Segments {
        let mut out = Segments::new();
        let mut items = self.items.iter().enumerate();
        let first =
            items.find(|&(index, item)| matches!(item.position, Position::At(_)) && inline(index));
        let Some((first, _)) = first else {
            for segment in self.payload.iter().filter(|segment| !segment.is_empty()) {
                out.push(segment.clone());
            }
            return out;
        };
        // `at` is an offset in the payload; `reduced` is the number of bytes that earlier items
        // have removed from the stream.
        let (mut at, mut reduced) = (0u64, 0u64);
        let mut segments = self.payload.iter().cloned();
        let mut head = segments.next();
        for (index, item) in self.items.iter().enumerate() {
            let Position::At(position) = item.position else {
                continue;
            };
            let split = u64::from(position).saturating_sub(reduced);
            reduced += padded(item.data.len() as u64);
            if index < first || (index > first && !inline(index)) {
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
