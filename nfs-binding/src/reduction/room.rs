//! From the longest results to the room that is offered for a reply.

use onc_rpc::padded;
use rpc_transport::ReplyRoom;
use smallvec::SmallVec;

use super::{ReducerOptions, Results};
use crate::v4::fields::Longest;

/// The room for a reply is never longer than this, in bytes, whatever a call asks for, unless more
/// is given by [`ReducerOptions::max_reply`]: the longest item of 4 MiB, and the rest of the reply.
const MOST: u32 = (4 << 20) + (64 << 10);

/// The known bounds of the length of a reply.
#[derive(Debug)]
pub(super) struct Bounds {
    longest: Longest,
    /// The limit of the session.
    limit: Option<u32>,
    /// Bytes beyond the results themselves.
    more: u32,
    idempotent: bool,
    /// The way in which the reply is read.
    pub(super) results: Results,
}

impl Bounds {
    pub(super) fn new(longest: Longest, results: Results, idempotent: bool) -> Self {
        Self {
            longest,
            limit: None,
            more: 0,
            idempotent,
            results,
        }
    }

    /// Creates the bounds of a reply of which nothing is known.
    pub(super) fn unknown() -> Self {
        let longest = Longest {
            payload: u64::MAX,
            ..Longest::default()
        };
        Self::new(longest, Results::Whole, false)
    }

    /// Adds the limit that the call's session sets to the whole reply.
    pub(super) fn with_limit(self, limit: Option<u32>) -> Self {
        Self { limit, ..self }
    }

    /// Adds bytes beside the results.
    pub(super) fn with_more(self, more: u32) -> Self {
        let more = self.more.saturating_add(more);
        Self { more, ..self }
    }

    /// Returns the room for a reply of which no item is held apart.
    pub(super) fn room_whole(&self, options: &ReducerOptions) -> ReplyRoom {
        let max_items = 0;
        self.room(&ReducerOptions {
            max_items,
            ..*options
        })
    }

    /// Returns the room for a reply with items.
    pub(super) fn room(&self, options: &ReducerOptions) -> ReplyRoom {
        let most = MOST.max(options.max_reply);
        let limit = self.limit.map_or(most, |limit| limit.min(most));
        let items = &self.longest.items[..];
        let mut offered = items.len().min(options.max_items);
        let raised = raised(items, offered, limit);
        // All items together are in a reply that is no longer than the limit, so memory for more
        // is not offered: the last items go into the payload.
        while sum(&raised[..offered]) > u64::from(limit) {
            offered -= 1;
        }
        let inline = items[offered..]
            .iter()
            .map(|&len| padded(u64::from(len.min(limit))));
        let payload = inline.fold(self.longest.payload, u64::saturating_add);
        let payload = match payload {
            // It does not follow from the call.
            u64::MAX => self.limit.map_or(options.max_reply, |_| limit),
            _ => payload.min(u64::from(limit)) as u32,
        };
        ReplyRoom {
            payload: payload.saturating_add(self.more),
            items: raised[..offered].iter().copied().collect(),
            idempotent: self.idempotent,
        }
    }
}

fn sum(lengths: &[u32]) -> u64 {
    lengths.iter().copied().map(u64::from).sum()
}

/// Returns the room for each of the first `offered` items, at most `limit`. RFC 8267 (section
/// 6.4.1) gives each its own chunk, but responders are known that use none for an empty item, so
/// that those behind it move up. So no chunk is shorter than the items that follow.
fn raised(items: &[u32], offered: usize, limit: u32) -> SmallVec<[u32; 2]> {
    let (first, others) = items.split_at(offered);
    let mut longest = others.iter().copied().max().unwrap_or(0);
    let mut raised: SmallVec<[u32; 2]> = SmallVec::from_slice(first);
    for len in raised.iter_mut().rev() {
        longest = longest.max(*len).min(limit);
        *len = longest;
    }
    raised
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(payload: u64, items: &[u32], limit: Option<u32>) -> ReplyRoom {
        let longest = Longest {
            payload,
            items: items.iter().copied().collect(),
        };
        let bounds = Bounds::new(longest, Results::Whole, true).with_limit(limit);
        let options = ReducerOptions {
            max_reply: 5000,
            max_items: 3,
        };
        bounds.room(&options)
    }

    #[test]
    fn what_does_not_follow_from_the_call_is_limited_by_the_session_or_by_the_relay() {
        assert_eq!(room(u64::MAX, &[], None).payload, 5000);
        assert_eq!(room(u64::MAX, &[], Some(900)).payload, 900);
        // More than the relay's limit, where the client has said so.
        assert_eq!(room(u64::MAX, &[], Some(90_000)).payload, 90_000);
        assert_eq!(room(u64::MAX, &[], Some(u32::MAX)).payload, MOST);
        assert_eq!(room(300, &[], Some(900)).payload, 300);
        assert_eq!(room(3000, &[], Some(900)).payload, 900);
        assert_eq!(room(1 << 40, &[], None).payload, MOST);
    }

    #[test]
    fn an_item_without_a_chunk_is_in_the_payload() {
        let four = room(100, &[10, 20, 30, 41], None);
        assert_eq!(four.payload, 144);
        assert_eq!(four.items[..], [41, 41, 41]);
        let limited = room(100, &[800, 800], Some(1000));
        assert_eq!((limited.payload, &limited.items[..]), (900, &[800][..]));
        let huge = room(100, &[u32::MAX], Some(1000));
        assert_eq!((huge.payload, &huge.items[..]), (100, &[1000][..]));
    }

    #[test]
    fn a_chunk_has_room_for_the_items_that_may_move_up() {
        assert_eq!(room(0, &[1, 500, 30], None).items[..], [500, 500, 30]);
        // Not if that is more than a reply can have: two items go inline.
        let moved = room(0, &[1, 1, 700], Some(1000));
        assert_eq!((moved.payload, &moved.items[..]), (704, &[700][..]));
    }
}
