//! The parts of a message that were received, and the errors of this extension for what is wrong with
//! them.

use std::borrow::Cow;

use bytes::Bytes;
use onc_rpc::Message;
use rpcrdma_chunks::{Direction, Malformed};
use rpcrdma_extension::layout::{Frame, Spot};
use rpcrdma_extension::{
    BadItem, BadPayload, Following, ItemEntry, Miscounted, Part, PeerError, Reassembly, Whole,
};

use crate::codec::limits::MAX_PARTS;
use crate::{PlacedItem, PlacedMiddle};

/// The reason why a message cannot be used, and the error for the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) PeerError, pub(crate) &'static str);

impl From<Malformed> for Bad {
    fn from(_: Malformed) -> Self {
        bad_xdr("a header that cannot be decoded")
    }
}

const fn bad_xdr(reason: &'static str) -> Bad {
    Bad(PeerError::Chunk, reason)
}

const fn misplaced(reason: &'static str) -> Bad {
    Bad(PeerError::Continuation, reason)
}

/// A message longer than allowed.
const TOO_LONG: Bad = Bad(PeerError::System, "message longer than allowed");

impl From<BadPayload> for Bad {
    fn from(_: BadPayload) -> Self {
        bad_xdr("payload longer than its message, or no multiple of four")
    }
}

impl From<BadItem> for Bad {
    fn from(bad: BadItem) -> Self {
        match bad {
            BadItem::TooLong { .. } => TOO_LONG,
            BadItem::Position { value, max, .. } if value > max => {
                bad_xdr("an item is beyond the payload")
            }
            BadItem::Position { .. } => bad_xdr(BAD_POSITION),
            BadItem::Place(_) | BadItem::Outside { .. } => {
                bad_xdr("an item lies outside the segments for bulk data")
            }
            BadItem::NotSent { .. } => bad_xdr("an item lies outside what was sent"),
            BadItem::Overlap { .. } => bad_xdr("two items overlap"),
        }
    }
}

const BAD_POSITION: &str = "an item is empty, not aligned, or not in order";

impl ItemEntry for PlacedItem {
    fn extent(&self) -> Option<(u32, u32)> {
        Some((self.position, self.length))
    }

    fn spot(&self, frame: &Frame) -> Result<Option<Cow<'_, Spot>>, BadItem> {
        let spot = frame.spot(self.segment, self.offset, self.length);
        let number = self.segment;
        spot.map(|spot| Some(Cow::Owned(spot)))
            .ok_or(BadItem::Outside { number })
    }
}

/// The parts of an incomplete message.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) message: Reassembly,
    /// Bytes of memory of each receive.
    receive: usize,
}

impl Group {
    /// Returns an empty message, of which no part is known. Each receive has `receive` bytes.
    pub(crate) fn new(direction: Direction, xid: u32, receive: usize) -> Self {
        let message = Reassembly::new(direction, xid);
        Self { message, receive }
    }

    /// Adds a part that others follow. Its header has `header` bytes, and the payload of the whole
    /// message at most `max`.
    pub(crate) fn add(
        &mut self,
        middle: PlacedMiddle,
        pieces: &[Bytes],
        header: u64,
        max: u64,
    ) -> Result<(), Bad> {
        let (payload, remaining) = (u64::from(middle.payload), u64::from(middle.remaining));
        let is_first = self.message.count() == 0;
        if is_first && (middle.messages >= MAX_PARTS || payload + remaining > max) {
            return Err(TOO_LONG);
        }
        let following = Following {
            messages: Some(middle.messages),
            bytes: Some(remaining),
        };
        let miscounted = |_: Miscounted| misplaced("the counts of what follows do not go down");
        let checked = self.message.check(payload, following);
        checked.map_err(miscounted)?;
        if middle.messages == 0 {
            return Err(misplaced("no part follows one that is not the last"));
        }
        let part = Part::new(pieces, header, payload)?;
        let held = part.held(self.receive);
        let added = self.message.add(part.kept(), following, held);
        added.map(|_| ()).map_err(miscounted)
    }

    /// Adds the last part. Returns the whole message.
    pub(crate) fn finish(
        self,
        payload: u32,
        pieces: &[Bytes],
        header: u64,
    ) -> Result<Whole<'_>, Bad> {
        let miscounted = |_: Miscounted| misplaced("the last part is not what was to follow");
        let payload = u64::from(payload);
        let checked = self.message.check(payload, Following::NOTHING);
        checked.map_err(miscounted)?;
        let part = Part::new(pieces, header, payload)?;
        self.message.finish(part).map_err(miscounted)
    }
}

/// Returns the RPC message, with the items that were placed in the receives of its parts. `frame`
/// describes these receives, and `max` is the maximum length of a message in bytes.
pub(crate) fn joined(
    whole: &Whole<'_>,
    frame: &Frame,
    items: &[PlacedItem],
    max: u64,
) -> Result<Message, Bad> {
    if items.iter().any(|item| item.length == 0) {
        return Err(bad_xdr(BAD_POSITION));
    }
    Ok(whole.message(frame, items, max)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
