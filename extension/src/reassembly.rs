//! The reassembly of RPC messages that arrive in several parts, with bulk data placed by Sends.
//!
//! A [`Part`] is one received message: behind its header follow a piece of the payload stream and, in the
//! segments of the receive that are for it, bulk data. A [`Reassembly`] keeps the parts of an incomplete
//! message. All parts of a message, or its only one, are a [`Whole`], in which the bulk items are found.
//!
//! Faults of parts are values here; each protocol has errors of its own for them.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Bulk, BulkItem, Message, Position, Segments, padded, total_len};
use rpcrdma_chunks::Direction;
use smallvec::SmallVec;

use crate::layout::{BadPlacement, Frame, Place, Spot, cut, locate, overlapping_segment};

/// A received part of a message. `P` holds the slices of its receive segments: borrowed, or
/// [`Segments`] of a part that is kept.
#[derive(Clone, Copy, Debug)]
pub struct Part<P> {
    pieces: P,
    len: u64,
    /// Start and end of its payload as byte offsets in the part, counted over all pieces.
    payload: (u64, u64),
}

/// A payload that does not lie within its part, or is not a multiple of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("payload longer than the {room} bytes behind the header, or no multiple of four")]
pub struct BadPayload {
    /// Number of bytes behind the header.
    pub room: u64,
}

impl<P: AsRef<[Bytes]>> Part<P> {
    /// Returns the part of these pieces, with a header of `header` bytes and `payload` bytes of the
    /// payload stream behind it.
    ///
    /// # Errors
    /// [`BadPayload`]: the part has fewer bytes, or the payload is not a multiple of four.
    pub fn new(pieces: P, header: u64, payload: u64) -> Result<Self, BadPayload> {
        let len = total_len(pieces.as_ref());
        let room = len.saturating_sub(header);
        match payload <= room && payload.is_multiple_of(4) {
            true => Ok(Self {
                pieces,
                len,
                payload: (header, header + payload),
            }),
            false => Err(BadPayload { room }),
        }
    }

    /// Returns the number of bytes of the payload stream.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        self.payload.1 - self.payload.0
    }

    /// Returns whether bytes from the offset `at` to the offset `end` were sent behind the payload.
    fn has_behind_payload(&self, at: u64, end: u64) -> bool {
        self.payload.1 <= at && end <= self.len
    }

    fn cut(&self, at: u64, len: u64, push: impl FnMut(Bytes)) {
        cut(self.pieces.as_ref(), at, len, push);
    }

    fn push_payload(&self, out: &mut Segments) {
        self.cut(self.payload.0, self.payload_len(), |piece| out.push(piece));
    }
}

impl Part<Segments> {
    /// Returns the part that is payload alone, of any length.
    #[must_use]
    pub fn payload(pieces: Segments) -> Self {
        let len = total_len(&pieces);
        Self {
            pieces,
            len,
            payload: (0, len),
        }
    }
}

impl Part<&[Bytes]> {
    /// Returns the bytes of receive memory that the part holds while it is kept, if each receive has
    /// `receive` bytes: a part that goes beyond the first segment of its receive holds all of it.
    #[must_use]
    pub fn held(&self, receive: usize) -> usize {
        match self.pieces.len() {
            0 | 1 => self.pieces.iter().map(Bytes::len).sum(),
            _ => receive,
        }
    }

    /// Returns the part with references of its own to the memory of its receive.
    #[must_use]
    pub fn kept(&self) -> Part<Segments> {
        Part {
            pieces: self.pieces.iter().cloned().collect(),
            len: self.len,
            payload: self.payload,
        }
    }
}

/// Statement of a part about the parts that follow it. A protocol counts messages, bytes of the
/// payload stream, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
    /// Number of parts, if the protocol counts them.
    pub messages: Option<u32>,
    /// Bytes of the payload stream, if the protocol counts them.
    pub bytes: Option<u64>,
}

impl Following {
    /// Says that nothing follows: this is the last part.
    pub const NOTHING: Self = Self {
        messages: Some(0),
        bytes: Some(0),
    };
}

/// A part does not agree with what the part before it said about the rest of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counts of what follows do not go down by each part")]
pub struct Miscounted;

/// The parts of an incomplete message.
#[derive(Debug)]
pub struct Reassembly {
    direction: Direction,
    xid: u32,
    copies_short: bool,
    /// What follows the part that arrived latest; `None` before the first.
    following: Option<Following>,
    count: u32,
    parts: Vec<Part<Segments>>,
    /// The copies of short parts that follow `parts`.
    short: BytesMut,
    /// Bytes of receive memory behind `parts`.
    held: usize,
    /// Bytes of the copies in `parts`.
    copied: usize,
}

impl Reassembly {
    /// Returns a message with this direction and XID, of which no part has arrived. Each part is kept in
    /// the memory of its receive, so that items can be found in it.
    #[must_use]
    pub fn new(direction: Direction, xid: u32) -> Self {
        Self {
            direction,
            xid,
            copies_short: false,
            following: None,
            count: 0,
            parts: Vec::new(),
            short: BytesMut::new(),
            held: 0,
            copied: 0,
        }
    }

    /// Returns the same message, without placed items. The payload of a part that fills less than half of
    /// its receive is copied, so that a message in many short parts does not hold a receive for each.
    #[must_use]
    pub fn copying_short_parts(self) -> Self {
        let copies_short = true;
        Self {
            copies_short,
            ..self
        }
    }

    /// Returns the direction and the XID of the message.
    #[must_use]
    pub fn id(&self) -> (Direction, u32) {
        (self.direction, self.xid)
    }

    /// Returns whether the message has this direction and XID.
    #[must_use]
    pub fn is(&self, direction: Direction, xid: u32) -> bool {
        (self.direction, self.xid) == (direction, xid)
    }

    /// Returns the number of parts that have arrived.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns how many bytes of memory the parts occupy: whole receives, and copies of short
    /// parts.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.held.saturating_add(self.copies())
    }

    /// Returns how many of these bytes are copies of short parts.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.copied.saturating_add(self.short.capacity())
    }

    /// Checks that a part with `payload` bytes of the payload stream, which says that `following` follows
    /// it, is the one that was to come.
    ///
    /// # Errors
    /// [`Miscounted`] if it is not.
    pub fn check(&self, payload: u64, following: Following) -> Result<(), Miscounted> {
        let Some(announced) = self.following else {
            return Ok(());
        };
        let messages = announced.messages.zip(following.messages);
        let bytes = announced.bytes.zip(following.bytes);
        let counts = messages.is_none_or(|(left, next)| left.checked_sub(1) == Some(next))
            && bytes.is_none_or(|(left, next)| payload.checked_add(next) == Some(left));
        counts.then_some(()).ok_or(Miscounted)
    }

    /// Adds a part that holds `held` bytes of receive memory. Returns the number of bytes copied.
    ///
    /// # Errors
    /// [`Miscounted`]: it is not the part that was to come. It is not added.
    pub fn add(
        &mut self,
        part: Part<Segments>,
        following: Following,
        held: usize,
    ) -> Result<u64, Miscounted> {
        let len = part.payload_len();
        self.check(len, following)?;
        self.following = Some(following);
        // One for each message received.
        self.count = self.count.saturating_add(1);
        if self.copies_short && len.saturating_mul(2) < held as u64 {
            let short = &mut self.short;
            part.cut(part.payload.0, len, |piece| short.extend_from_slice(&piece));
            return Ok(len);
        }
        self.join_short();
        self.parts.push(part);
        self.held = self.held.saturating_add(held);
        Ok(0)
    }

    fn join_short(&mut self) {
        if !self.short.is_empty() {
            self.copied = self.copies();
            let joined = std::mem::take(&mut self.short).freeze();
            self.parts
                .push(Part::payload(Segments::from_iter([joined])));
        }
    }

    /// Adds the last part. Returns the whole message, in which items can be found.
    ///
    /// # Errors
    /// [`Miscounted`]: it is not the part that was to come.
    pub fn finish<'a>(mut self, part: Part<&'a [Bytes]>) -> Result<Whole<'a>, Miscounted> {
        if self.count == 0 {
            return Ok(Whole::One(part));
        }
        self.add(part.kept(), Following::NOTHING, 0)?;
        Ok(Whole::Several(self))
    }

    /// Returns the payload stream of all parts.
    #[must_use]
    pub fn into_payload(mut self) -> Segments {
        self.join_short();
        let mut payload = Segments::new();
        for part in self.parts {
            match part.payload == (0, part.len) {
                true => payload.extend(part.pieces),
                false => part.push_payload(&mut payload),
            }
        }
        payload
    }
}

/// An entry for a bulk item in a header.
pub trait ItemEntry {
    /// Returns the position of the item in the XDR stream ([`Position::At`]) and its length in bytes,
    /// without round-up; `None` if the entry has no item, or the item is in the payload stream.
    fn extent(&self) -> Option<(u32, u32)>;

    /// Returns the place of the item in the receives with these segments, or `None` if it is not placed
    /// in them.
    ///
    /// # Errors
    /// [`BadItem`], with the reason, if the entry names a place that is none.
    fn spot(&self, frame: &Frame) -> Result<Option<Cow<'_, Spot>>, BadItem>;
}

/// The reason why an entry for an item is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadItem {
    /// The position is not in order or not within the message. If it is within the range, it is not a
    /// multiple of four.
    #[error("position {value}, valid are {min} to {max}")]
    Position {
        /// The position received.
        value: u32,
        /// The smallest valid position.
        min: u32,
        /// The largest valid position.
        max: u32,
    },
    /// The message with all items is longer than allowed.
    #[error("message of {len} bytes, where {max} are allowed")]
    TooLong {
        /// Length of the message in bytes.
        len: u64,
        /// Maximum length in bytes.
        max: u64,
    },
    /// The place is not one of the receives.
    #[error(transparent)]
    Place(#[from] BadPlacement),
    /// The place lies outside the segments for bulk data.
    #[error("an item lies outside the segments for bulk data, from segment {number} on")]
    Outside {
        /// Number of the segment in which it begins.
        number: u32,
    },
    /// The bytes at the place were not sent, or are payload.
    #[error("an item lies outside what was sent, in segment {number}")]
    NotSent {
        /// Number of the part, from 0.
        part: u32,
        /// Number of the segment.
        number: u32,
    },
    /// Two items overlap.
    #[error("two items overlap in segment {number}")]
    Overlap {
        /// Number of the segment.
        number: u32,
    },
}

/// All parts of a message.
#[derive(Debug)]
pub enum Whole<'a> {
    /// The only part, which was not kept.
    One(Part<&'a [Bytes]>),
    /// Several parts, none of them copied.
    Several(Reassembly),
}

impl Whole<'_> {
    /// Returns the number of parts.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::Several(message) => message.count(),
        }
    }

    /// Returns the largest number that a segment for bulk data can have in this message, if each of
    /// its parts arrived in a receive like `frame`.
    #[must_use]
    pub fn last_number(&self, frame: &Frame) -> u32 {
        let numbers = u64::from(self.count()) * frame.targets().len() as u64;
        u32::try_from(numbers.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Returns the RPC message, with the placed items at their positions, without copying. The parts were
    /// received into buffers like `frame`; `max` is the maximum length in bytes of a message.
    ///
    /// # Errors
    /// [`BadItem`]: an entry is wrong, or the message is too long.
    pub fn message(
        &self,
        frame: &Frame,
        entries: &[impl ItemEntry],
        max: u64,
    ) -> Result<Message, BadItem> {
        match self {
            Self::One(part) => message(std::slice::from_ref(part), frame, entries, max),
            Self::Several(parts) => message(&parts.parts, frame, entries, max),
        }
    }
}

/// Length in bytes of XID and type of an RPC message. No item begins before their end.
const RPC_START: u64 = 8;

fn message<P: AsRef<[Bytes]>>(
    parts: &[Part<P>],
    frame: &Frame,
    entries: &[impl ItemEntry],
    max: u64,
) -> Result<Message, BadItem> {
    check_positions(entries, parts.iter().map(Part::payload_len).sum(), max)?;
    let mut payload = Segments::new();
    for part in parts {
        part.push_payload(&mut payload);
    }
    Ok(Message::new(payload, placed_items(parts, frame, entries)?))
}

/// Checks the positions of the items of a message with `payload` bytes of payload. As with read chunks,
/// positions count the whole stream (RFC 8166, section 3.4.5): items must be in order, and an item's
/// offset in the payload is its position minus the bytes that earlier items took out, round-up included.
fn check_positions(entries: &[impl ItemEntry], payload: u64, max: u64) -> Result<(), BadItem> {
    let (mut end, mut reduced) = (RPC_START, 0);
    for (value, len) in entries.iter().filter_map(ItemEntry::extent) {
        let (position, highest) = (u64::from(value), payload + reduced);
        if position < end || position > highest || !position.is_multiple_of(4) {
            return Err(BadItem::Position {
                value,
                min: u32::try_from(end).unwrap_or(u32::MAX),
                max: u32::try_from(highest).unwrap_or(u32::MAX),
            });
        }
        let len = padded(u64::from(len));
        (end, reduced) = (position + len, reduced + len);
    }
    let len = payload + reduced;
    match len > max {
        true => Err(BadItem::TooLong { len, max }),
        false => Ok(()),
    }
}

/// Returns all placed items. Their places must lie within the bytes that were sent behind the payload, and
/// must not overlap.
fn placed_items<P: AsRef<[Bytes]>>(
    parts: &[Part<P>],
    frame: &Frame,
    entries: &[impl ItemEntry],
) -> Result<Vec<BulkItem>, BadItem> {
    // The parts of one message, of which every protocol counts at most 32 bits.
    let count = parts.len() as u32;
    let mut items = Vec::new();
    let mut all = SmallVec::<[Place; 2]>::new();
    for entry in entries {
        let Some((position, len)) = entry.extent() else {
            continue;
        };
        let Some(spot) = entry.spot(frame)? else {
            continue;
        };
        let places = locate(frame, count, &spot, len)?;
        let mut data = Bulk::new();
        for place in &places {
            let part = parts.get(place.transmission);
            let part = part.filter(|part| part.has_behind_payload(place.at, place.end()));
            let part = part.ok_or(BadItem::NotSent {
                part: place.transmission as u32,
                number: place.number,
            })?;
            part.cut(place.at, place.len, |piece| data.push(piece));
        }
        // The places of one item have been compared with each other.
        if entries.len() > 1 {
            all.extend_from_slice(&places);
        }
        if items.is_empty() {
            items.reserve_exact(entries.len());
        }
        items.push(BulkItem {
            position: Position::At(position),
            data,
        });
    }
    match overlapping_segment(&all) {
        Some(number) => Err(BadItem::Overlap { number }),
        None => Ok(items),
    }
}
