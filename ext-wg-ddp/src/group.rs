//! The parts of a message that were received.

use bytes::Bytes;
use onc_rpc::{BulkItem, Message, Position, Segments, padded};
use rpcrdma_chunks::Direction;
use rpcrdma_extension::layout::{Frame, Place, Spot, cut, locate, twice};
use rpcrdma_extension::PeerError;
use smallvec::SmallVec;

use crate::codec::limits::MAX_PARTS;
use crate::{PlacedItem, PlacedMiddle};

/// Length of the XID and the type of an RPC message, in bytes. No item begins before their end.
const RPC_START: u64 = 8;

/// A received part.
#[derive(Debug)]
struct Part {
    pieces: Segments,
    len: u64,
    /// Where its payload begins and ends.
    payload: (u64, u64),
}

/// A message of which parts have arrived.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) direction: Direction,
    pub(crate) xid: u32,
    /// Number of parts to come.
    left: u32,
    /// Bytes of the payload stream to come.
    remaining: u64,
    parts: Vec<Part>,
}

/// The reason why a message cannot be used, and the error for the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) PeerError, pub(crate) &'static str);

const fn bad_xdr(reason: &'static str) -> Bad {
    Bad(PeerError::Chunk, reason)
}

const fn misplaced(reason: &'static str) -> Bad {
    Bad(PeerError::Continuation, reason)
}

impl Group {
    /// Returns an empty message, of which no part is known.
    pub(crate) fn new(direction: Direction, xid: u32) -> Self {
        Self {
            direction,
            xid,
            left: 0,
            remaining: 0,
            parts: Vec::new(),
        }
    }

    /// Returns the number of parts that have arrived.
    pub(crate) fn parts(&self) -> u32 {
        // Bounded by `MAX_PARTS`.
        self.parts.len() as u32
    }

    /// Returns how many bytes of memory the parts take, where each receive has `receive` bytes. A part
    /// that goes beyond the first segment of its receive holds all of it.
    pub(crate) fn memory(&self, receive: usize) -> usize {
        let part = |part: &Part| match part.pieces.len() {
            0 | 1 => usize::try_from(part.len).unwrap_or(usize::MAX),
            _ => receive,
        };
        self.parts.iter().map(part).fold(0, usize::saturating_add)
    }

    /// Adds a part that others follow. Its header has `header` bytes, and the payload of the whole
    /// message at most `max`.
    pub(crate) fn add(
        &mut self,
        middle: PlacedMiddle,
        message: &[Bytes],
        header: u64,
        max: u64,
    ) -> Result<(), Bad> {
        let (payload, remaining) = (u64::from(middle.payload), u64::from(middle.remaining));
        if self.parts.is_empty() {
            if middle.messages >= MAX_PARTS || payload + remaining > max {
                return Err(Bad(PeerError::System, "message longer than allowed"));
            }
        } else {
            let counts = self.left.checked_sub(1) == Some(middle.messages);
            if !counts || self.remaining != payload + remaining {
                return Err(misplaced("the counts of what follows do not go down"));
            }
        }
        if middle.messages == 0 {
            return Err(misplaced("no part follows one that is not the last"));
        }
        (self.left, self.remaining) = (middle.messages, remaining);
        self.push(message, header, payload)
    }

    /// Adds the last part.
    pub(crate) fn finish(
        &mut self,
        payload: u32,
        message: &[Bytes],
        header: u64,
    ) -> Result<(), Bad> {
        let payload = u64::from(payload);
        if !self.parts.is_empty() && (self.left != 1 || self.remaining != payload) {
            return Err(misplaced("the last part is not what was to follow"));
        }
        (self.left, self.remaining) = (0, 0);
        self.push(message, header, payload)
    }

    fn push(&mut self, message: &[Bytes], header: u64, payload: u64) -> Result<(), Bad> {
        let len: u64 = message.iter().map(|piece| piece.len() as u64).sum();
        if header + payload > len || !payload.is_multiple_of(4) {
            return Err(bad_xdr(
                "payload longer than its message, or no multiple of four",
            ));
        }
        self.parts.push(Part {
            pieces: message.iter().cloned().collect(),
            len,
            payload: (header, header + payload),
        });
        Ok(())
    }

    /// Returns the RPC message of a complete group, with the items that were placed. `frame`
    /// describes this end's buffers, and `max` is the maximum length of a message in bytes.
    pub(crate) fn message(
        &self,
        frame: &Frame,
        items: &[PlacedItem],
        max: u64,
    ) -> Result<Message, Bad> {
        let lens = self
            .parts
            .iter()
            .map(|part| part.payload.1 - part.payload.0);
        check_positions(items, lens.sum(), max)?;
        let places = self.locate(frame, items)?;
        let mut payload = Segments::new();
        for part in &self.parts {
            let (from, to) = part.payload;
            cut(&part.pieces, from, to - from, |piece| payload.push(piece));
        }
        let bulk = |(item, places): (&PlacedItem, &SmallVec<[Place; 2]>)| {
            let mut data = Segments::new();
            for place in places {
                if let Some(part) = self.parts.get(place.transmission) {
                    cut(&part.pieces, place.at, place.len, |piece| data.push(piece));
                }
            }
            BulkItem {
                position: Position::At(item.position),
                data: data.into_iter().collect(),
            }
        };
        Ok(Message::new(payload, items.iter().zip(&places).map(bulk)))
    }

    /// Returns the places of the items, which must lie within the bytes that were sent, and must
    /// not overlap.
    fn locate(
        &self,
        frame: &Frame,
        items: &[PlacedItem],
    ) -> Result<Vec<SmallVec<[Place; 2]>>, Bad> {
        let outside = bad_xdr("an item lies outside the segments for bulk data");
        // Parts are counted with 32 bits.
        let count = self.parts.len() as u32;
        let mut located = Vec::new();
        let mut all = SmallVec::<[Place; 2]>::new();
        for item in items {
            let spot = spot(frame, item).ok_or(outside)?;
            let places = locate(frame, count, &spot, item.length).map_err(|_| outside)?;
            for place in &places {
                let part = self.parts.get(place.transmission);
                let there = part.is_some_and(|p| p.payload.1 <= place.at && place.end() <= p.len);
                if !there {
                    return Err(bad_xdr("an item lies outside what was sent"));
                }
            }
            all.extend(places.iter().copied());
            located.push(places);
        }
        match twice(&all) {
            Some(_) => Err(bad_xdr("two items overlap")),
            None => Ok(located),
        }
    }
}

/// Returns the place of an item as a list of targets.
fn spot(frame: &Frame, item: &PlacedItem) -> Option<Spot> {
    let mut segments = SmallVec::new();
    let (mut left, mut offset) = (u64::from(item.length), u64::from(item.offset));
    let mut number = item.segment;
    while left > 0 {
        if segments.len() == rpcrdma_extension::layout::limits::MAX_SPAN {
            return None;
        }
        let (_, target) = frame.find(number)?;
        let room = u64::from(target.len)
            .checked_sub(offset)
            .filter(|&room| room > 0)?;
        segments.push(number);
        left = left.saturating_sub(room);
        offset = 0;
        number = number.checked_add(1)?;
    }
    Some(Spot {
        offset: item.offset,
        segments,
    })
}

/// Checks that items are in order, lie within the payload stream, and keep to `max`. Positions count
/// the unreduced stream, as those of read chunks.
fn check_positions(items: &[PlacedItem], payload: u64, max: u64) -> Result<(), Bad> {
    let (mut end, mut reduced) = (RPC_START, 0);
    for item in items {
        let position = u64::from(item.position);
        if item.length == 0 || !position.is_multiple_of(4) || position < end {
            return Err(bad_xdr("an item is empty, not aligned, or not in order"));
        }
        if position > payload + reduced {
            return Err(bad_xdr("an item is beyond the payload"));
        }
        let len = padded(u64::from(item.length));
        (end, reduced) = (position + len, reduced + len);
    }
    match payload + reduced > max {
        true => Err(Bad(PeerError::System, "message longer than allowed")),
        false => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
