//! The parts of a message: what is counted, held and copied, and the items that are found in them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::borrow::Cow;

use bytes::Bytes;
use onc_rpc::Segments;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::layout::{BadPlacement, BufferStructure, Frame, Spot};
use rpcrdma_extension::{
    BadItem, BadPayload, Following, ItemEntry, Miscounted, Part, Reassembly, Whole,
};

const HEAD: u32 = 64;
const TARGET: u32 = 128;
const HEADER: u64 = 16;
const MAX: u64 = 1 << 20;

/// An item at a position, of a length, in the target with this number, if any.
struct Item(u32, u32, Option<u32>);

impl ItemEntry for Item {
    fn extent(&self) -> Option<(u32, u32)> {
        Some((self.0, self.1))
    }

    fn spot(&self, frame: &Frame) -> Result<Option<Cow<'_, Spot>>, BadItem> {
        let Some(number) = self.2 else {
            return Ok(None);
        };
        let spot = frame.spot(number, 0, self.1);
        spot.map(|spot| Some(Cow::Owned(spot)))
            .ok_or(BadItem::Outside { number })
    }
}

fn frame() -> Frame {
    Frame::new(&BufferStructure::with_placement(HEAD, 1, TARGET)).unwrap()
}

/// Returns a received part of `len` bytes, each of which is `fill`, in two pieces.
fn received(fill: u8, len: usize) -> Vec<Bytes> {
    let head = len.min(HEAD as usize);
    [head, len - head]
        .map(|len| Bytes::from(vec![fill; len]))
        .to_vec()
}

fn bytes(following: u64) -> Following {
    Following {
        messages: None,
        bytes: Some(following),
    }
}

fn messages(following: u32) -> Following {
    Following {
        messages: Some(following),
        bytes: None,
    }
}

fn payload(fill: u8, len: usize) -> Part<Segments> {
    Part::payload(Segments::from_iter([Bytes::from(vec![fill; len])]))
}

fn begun() -> Reassembly {
    Reassembly::new(Direction::Call, 7)
}

#[test]
fn a_message_has_a_direction_and_an_xid() {
    assert!(begun().is(Direction::Call, 7));
    assert!(!begun().is(Direction::Reply, 7));
    assert!(!begun().is(Direction::Call, 8));
}

#[test]
fn each_part_must_be_what_was_to_follow() {
    let mut message = begun();
    message.add(payload(0, 8), messages(2), 0).unwrap();
    for wrong in [0, 2, 3] {
        assert_eq!(
            message.add(payload(0, 8), messages(wrong), 0),
            Err(Miscounted)
        );
    }
    message.add(payload(0, 8), messages(1), 0).unwrap();
    assert_eq!(message.count(), 2);

    let mut message = begun();
    message.add(payload(0, 8), bytes(24), 0).unwrap();
    for (len, wrong) in [(8, 15), (8, 17), (12, 16), (32, 0), (0, u64::MAX)] {
        assert_eq!(
            message.add(payload(0, len), bytes(wrong), 0),
            Err(Miscounted)
        );
    }
    message.add(payload(0, 8), bytes(16), 0).unwrap();
    assert_eq!(message.check(16, Following::NOTHING), Ok(()));
    assert_eq!(message.check(15, Following::NOTHING), Err(Miscounted));
}

#[test]
fn a_payload_lies_behind_the_header_and_is_a_multiple_of_four() {
    let part = received(0, 40);
    assert!(Part::new(&part, HEADER, 24).is_ok());
    let room = 24;
    for wrong in [2, 28, u64::MAX] {
        assert_eq!(
            Part::new(&part, HEADER, wrong).unwrap_err(),
            BadPayload { room }
        );
    }
    assert_eq!(Part::new(&part, 41, 4).unwrap_err(), BadPayload { room: 0 });
}

#[test]
fn a_receive_that_is_held_counts_as_a_whole_and_short_parts_are_copied() {
    let mut message = begun().copying_short_parts();
    assert_eq!(message.add(payload(1, 512), bytes(900), 1024), Ok(0));
    assert_eq!(message.memory(), 1024);
    assert_eq!(message.add(payload(2, 400), bytes(500), 1024), Ok(400));
    assert_eq!(message.add(payload(3, 100), bytes(400), 1024), Ok(100));
    let copies = message.copies();
    assert_eq!(message.memory(), 1024 + copies);
    assert!((500..1024).contains(&copies), "{copies}");
    let whole = message.into_payload();
    // The two copies are one piece.
    let lens: Vec<usize> = whole.iter().map(Bytes::len).collect();
    assert_eq!(lens, [512, 500]);
    assert_eq!((whole[1][399], whole[1][400]), (2, 3));
}

#[test]
fn items_are_found_in_one_part_or_several() {
    let only = received(1, 192);
    let whole = begun()
        .finish(Part::new(&only[..], HEADER, 32).unwrap())
        .unwrap();
    assert!(matches!(whole, Whole::One(_)));
    let message = whole
        .message(&frame(), &[Item(8, 100, Some(0))], MAX)
        .unwrap();
    assert_eq!(
        (message.payload_len(), message.items()[0].data.len()),
        (32, 100)
    );

    let mut several = begun();
    let (first, last) = (received(1, 192), received(2, 100));
    let part = Part::new(&first[..], HEADER, 32).unwrap();
    several.add(part.kept(), messages(1), 192).unwrap();
    let whole = several
        .finish(Part::new(&last[..], HEADER, 16).unwrap())
        .unwrap();
    assert_eq!((whole.count(), whole.last_number(&frame())), (2, 1));
    let items = [Item(8, 160, Some(0)), Item(168, 4, None)];
    let message = whole.message(&frame(), &items, MAX).unwrap();
    // The first item goes on in the second part; the other one is not placed.
    assert_eq!((message.payload_len(), message.items().len()), (48, 1));
    let data = message.items()[0].data.to_bytes();
    assert_eq!((data.len(), data[127], data[128]), (160, 1, 2));
}

#[test]
fn wrong_items_are_named() {
    let only = received(1, 164);
    let whole = begun()
        .finish(Part::new(&only[..], HEADER, 32).unwrap())
        .unwrap();
    let wrong = |items: &[Item], max| whole.message(&frame(), items, max).unwrap_err();
    let position = |value, min, max| BadItem::Position { value, min, max };
    assert_eq!(wrong(&[Item(4, 4, Some(0))], MAX), position(4, 8, 32));
    assert_eq!(wrong(&[Item(36, 4, Some(0))], MAX), position(36, 8, 32));
    assert_eq!(wrong(&[Item(10, 4, Some(0))], MAX), position(10, 8, 32));
    let twice = [Item(8, 6, None), Item(12, 4, Some(0))];
    assert_eq!(wrong(&twice, MAX), position(12, 16, 40));
    let too_long = BadItem::TooLong { len: 40, max: 36 };
    assert_eq!(wrong(&[Item(8, 6, None)], 36), too_long);
    let place = BadPlacement::Segment {
        value: 1,
        min: 0,
        max: 0,
    };
    assert_eq!(wrong(&[Item(8, 4, Some(1))], MAX), place.into());
    let number = u32::MAX;
    let beyond = [Item(8, TARGET + 1, Some(number))];
    assert_eq!(wrong(&beyond, MAX), BadItem::Outside { number });
    let not_sent = BadItem::NotSent { part: 0, number: 0 };
    assert_eq!(wrong(&[Item(8, 101, Some(0))], MAX), not_sent);
    let overlap = [Item(8, 4, Some(0)), Item(12, 4, Some(0))];
    assert_eq!(wrong(&overlap, MAX), BadItem::Overlap { number: 0 });
}
