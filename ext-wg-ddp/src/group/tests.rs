//! Joining of parts, and each reason for which they are refused.

use quickcheck::quickcheck;
use rpcrdma_extension::layout::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};

use onc_rpc::padded;

use super::*;

const MAX: u64 = 1 << 20;
/// Length of the header of each part, bytes.
const HEADER: u64 = 28;
const TARGET: usize = 64;

/// Returns the frame of a receive of 128 bytes for the header and the payload, and four targets.
fn frame() -> Frame {
    let segment = |length, flags| BufferSegment {
        length,
        align: 4,
        flags,
    };
    let groups = [
        SegmentGroup {
            count: 1,
            segment: segment(128, SegmentFlags::empty()),
        },
        SegmentGroup {
            count: 4,
            segment: segment(TARGET as u32, SegmentFlags::DDP),
        },
    ];
    Frame::new(&BufferStructure::new(groups)).unwrap()
}

/// Returns the bytes of a part with so many bytes behind the first segment, each of which tells its
/// place.
fn part(placed: usize) -> Vec<Bytes> {
    let bytes: Vec<u8> = (0..128 + placed).map(|at| at as u8).collect();
    vec![bytes.into()]
}

fn item(position: u32, length: u32, segment: u32, offset: u32) -> PlacedItem {
    PlacedItem {
        position,
        length,
        segment,
        offset,
    }
}

/// Returns a message of which no part has arrived.
fn begin() -> Group {
    Group::new(Direction::Call, 7, 128 + 4 * TARGET)
}

/// Joins a message of one part with a payload of 16 bytes and all four targets.
fn one_part(items: &[PlacedItem]) -> Result<Message, Bad> {
    let part = part(4 * TARGET);
    let whole = begin().finish(16, &part, HEADER)?;
    joined(&whole, &frame(), items, MAX)
}

fn refused(items: &[PlacedItem], error: PeerError, reason: &str) {
    assert_eq!(
        one_part(items)
            .err()
            .map(|bad| (bad.0, bad.1.contains(reason))),
        Some((error, true)),
        "{items:?}"
    );
}

fn items_of(message: &Message) -> Vec<Vec<u8>> {
    let items = message.items().iter();
    items.map(|item| item.data.to_bytes().to_vec()).collect()
}

/// Returns the bytes of targets from this place on.
fn target_bytes(from: usize, len: usize) -> Vec<u8> {
    (128 + from..128 + from + len).map(|at| at as u8).collect()
}

#[test]
fn an_item_may_end_exactly_at_the_end_of_a_segment() {
    let len = TARGET as u32;
    let message = one_part(&[item(8, len, 0, 0)]).unwrap();
    assert_eq!(items_of(&message), [target_bytes(0, TARGET)]);
    let message = one_part(&[item(8, len - 8, 3, 8)]).unwrap();
    assert_eq!(
        items_of(&message),
        [target_bytes(3 * TARGET + 8, TARGET - 8)]
    );
    let message = one_part(&[item(8, 2 * len, 1, 0), item(12 + 2 * len, 4, 3, 0)]).unwrap();
    assert_eq!(items_of(&message)[0], target_bytes(TARGET, 2 * TARGET));
}

#[test]
fn two_items_may_share_a_segment() {
    let message = one_part(&[item(8, 10, 0, 0), item(24, 20, 0, 12)]).unwrap();
    assert_eq!(
        items_of(&message),
        [target_bytes(0, 10), target_bytes(12, 20)]
    );
    refused(
        &[item(8, 16, 0, 0), item(24, 20, 0, 12)],
        PeerError::Chunk,
        "overlap",
    );
}

#[test]
fn items_out_of_place_are_refused() {
    let bad = PeerError::Chunk;
    refused(&[item(8, 0, 0, 0)], bad, "empty");
    refused(&[item(9, 4, 0, 0)], bad, "not aligned");
    refused(&[item(4, 4, 0, 0)], bad, "not in order");
    refused(&[item(12, 8, 0, 0), item(16, 4, 1, 0)], bad, "not in order");
    refused(&[item(20, 4, 0, 0)], bad, "beyond the payload");
    refused(&[item(8, 4, 4, 0)], bad, "outside");
    refused(&[item(8, 4, 0, TARGET as u32)], bad, "outside");
    refused(&[item(8, 1 + TARGET as u32, 3, 0)], bad, "outside");
    refused(&[item(8, 4, u32::MAX, 0)], bad, "outside");
    let too_long = [item(8, MAX as u32, 0, 0)];
    refused(&too_long, PeerError::System, "longer than allowed");
}

/// A target that the message does not reach, and one that the payload reaches into.
#[test]
fn items_that_were_not_sent_are_refused() {
    let last = |length| [item(8, length, 0, 0)];
    let short = part(TARGET - 4);
    let whole = begin().finish(16, &short, HEADER).unwrap();
    assert!(joined(&whole, &frame(), &last(60), MAX).is_ok());
    assert!(joined(&whole, &frame(), &last(61), MAX).is_err());
    let full = part(TARGET);
    let whole = begin().finish(104, &full, HEADER).unwrap();
    assert!(joined(&whole, &frame(), &last(8), MAX).is_err());
}

fn middle(messages: u32, remaining: u32, payload: u32) -> PlacedMiddle {
    PlacedMiddle {
        messages,
        remaining,
        payload,
    }
}

#[test]
fn parts_that_do_not_add_up_are_refused() {
    let begun = || {
        let mut group = begin();
        group.add(middle(2, 24, 16), &part(0), HEADER, MAX).unwrap();
        group
    };
    let misplaced = |result: Result<(), Bad>| {
        assert_eq!(result.unwrap_err().0, PeerError::Continuation);
    };
    let no_last = |group: Group, payload| {
        let result = group.finish(payload, &part(0), HEADER).map(|_| ());
        misplaced(result);
    };
    for wrong in [middle(2, 16, 8), middle(1, 20, 8), middle(0, 16, 8)] {
        misplaced(begun().add(wrong, &part(0), HEADER, MAX));
    }
    no_last(begun(), 24);
    let mut group = begun();
    group.add(middle(1, 16, 8), &part(0), HEADER, MAX).unwrap();
    assert_eq!(group.message.count(), 2);
    no_last(group, 12);
    let mut group = begun();
    group.add(middle(1, 16, 8), &part(0), HEADER, MAX).unwrap();
    let last = part(0);
    let whole = group.finish(16, &last, HEADER).unwrap();
    let whole = joined(&whole, &frame(), &[], MAX).unwrap();
    assert_eq!(whole.payload_len(), 40);
    misplaced(begin().add(middle(0, 0, 8), &part(0), HEADER, MAX));
}

#[test]
fn parts_beyond_the_limits_are_refused() {
    let first = |middle| {
        let mut group = begin();
        group
            .add(middle, &part(0), HEADER, MAX)
            .map_err(|bad| bad.0)
    };
    let system = Err(PeerError::System);
    assert_eq!(first(middle(MAX_PARTS, 16, 8)), system);
    assert_eq!(first(middle(MAX_PARTS - 1, 16, 8)), Ok(()));
    assert_eq!(first(middle(1, MAX as u32 - 4, 8)), system);
    assert_eq!(first(middle(1, MAX as u32 - 8, 8)), Ok(()));
    // A payload longer than its message, and one that is no multiple of four.
    assert_eq!(first(middle(1, 16, 104)), Err(PeerError::Chunk));
    assert_eq!(first(middle(1, 16, 6)), Err(PeerError::Chunk));
}

/// Returns items of these lengths, so many words of payload and bytes of targets behind each other,
/// as far as there is room. The last one has the first place if `backwards`.
fn valid_items(sizes: &[(u8, u8, u8)], backwards: bool) -> Vec<PlacedItem> {
    let (mut places, mut free) = (Vec::new(), 0_usize);
    for &(_, gap, len) in sizes {
        // Items begin at addresses that are aligned to four bytes.
        let from = free.next_multiple_of(4) + 4 * usize::from(gap % 10);
        let len = 1 + usize::from(len) % 150;
        free = from + len;
        if free > 4 * TARGET {
            break;
        }
        places.push((from, len));
    }
    if backwards {
        places.reverse();
    }
    // The payload has two words behind the start of the RPC message.
    let (mut position, mut words) = (8, 2);
    let mut items = Vec::new();
    for ((from, len), &(before, ..)) in places.into_iter().zip(sizes) {
        let before = u32::from(before % 3).min(words);
        words -= before;
        position += 4 * before;
        let (segment, offset) = (from / TARGET, from % TARGET);
        items.push(item(position, len as u32, segment as u32, offset as u32));
        position += padded(len as u64) as u32;
    }
    items
}

quickcheck! {
    /// Valid items are taken, with the bytes of their targets. One that is changed is refused, or
    /// has the bytes of its new place.
    fn any_items_are_refused_or_have_their_bytes(
        sizes: Vec<(u8, u8, u8)>,
        backwards: bool,
        change: Option<(u8, u8, u16)>
    ) -> bool {
        let mut items = valid_items(&sizes, backwards);
        let mut changed = false;
        if let Some((which, field, value)) = change
            && !items.is_empty()
        {
            changed = true;
            let at = usize::from(which) % items.len();
            let item = &mut items[at];
            match field % 4 {
                0 => item.position = u32::from(value % 600),
                1 => item.length = u32::from(value % 300),
                2 => item.segment = u32::from(value % 6),
                _ => item.offset = u32::from(value % 80),
            }
        }
        let Ok(message) = one_part(&items) else {
            return changed;
        };
        let expected: Vec<Vec<u8>> = items.iter().map(|item| {
            target_bytes(item.segment as usize * TARGET + item.offset as usize, item.length as usize)
        }).collect();
        items_of(&message) == expected
    }
}
