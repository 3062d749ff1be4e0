//! Header types and properties are read as they were written, and damaged ones are refused.

use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_chunks::{ReadSegment, Segment};
use rpcrdma_extension::layout::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};
use rpcrdma_v2_wg::EXPERIMENTAL;

use super::*;
use crate::{
    Support, property_id, smallest_result_from, smallest_result_value, structure_from,
    structure_value, support_from, support_value,
};

fn short<T>(g: &mut Gen, max: usize, mut make: impl FnMut(&mut Gen) -> T) -> Vec<T> {
    let count = usize::arbitrary(g) % (max + 1);
    (0..count).map(|_| make(g)).collect()
}

fn segment(g: &mut Gen) -> Segment {
    Segment {
        handle: u32::arbitrary(g),
        length: u32::arbitrary(g),
        offset: u64::arbitrary(g),
    }
}

fn item(g: &mut Gen) -> PlacedItem {
    PlacedItem {
        position: u32::arbitrary(g),
        length: u32::arbitrary(g),
        segment: u32::arbitrary(g),
        offset: u32::arbitrary(g),
    }
}

fn chunk(g: &mut Gen) -> WriteChunk {
    short(g, 3, segment).into_iter().collect()
}

#[derive(Clone, Debug)]
struct Any(PlacedMiddle, CallPlaced, ReplyPlaced, BufferStructure);

impl Arbitrary for Any {
    fn arbitrary(g: &mut Gen) -> Self {
        let middle = PlacedMiddle {
            messages: u32::arbitrary(g),
            remaining: u32::arbitrary(g),
            payload: u32::arbitrary(g),
        };
        let read = |g: &mut Gen| ReadSegment {
            position: u32::arbitrary(g).max(1),
            segment: segment(g),
        };
        let mut chunks = Chunks {
            reads: short(g, 3, read),
            writes: short(g, 3, chunk),
            reply: bool::arbitrary(g).then(|| chunk(g)),
        };
        chunks.reads.sort_by_key(|read| read.position);
        let handles: Vec<_> = chunks.handles().chain([0]).collect();
        let call = CallPlaced {
            inv_handle: *g.choose(&handles).unwrap(),
            chunks,
            items: short(g, limits::MAX_ITEMS, item).into(),
            payload: u32::arbitrary(g),
        };
        let reply = ReplyPlaced {
            writes: short(g, 3, chunk),
            items: short(g, limits::MAX_ITEMS, item).into(),
            payload: u32::arbitrary(g),
        };
        let group = |g: &mut Gen| SegmentGroup {
            count: u32::from(u8::arbitrary(g)),
            segment: BufferSegment {
                length: u32::from(u16::arbitrary(g)),
                align: u32::arbitrary(g),
                flags: SegmentFlags::from_bits_retain(u32::arbitrary(g)),
            },
        };
        Self(
            middle,
            call,
            reply,
            BufferStructure::new(short(g, 4, group)),
        )
    }
}

quickcheck! {
    fn what_was_written_is_read(any: Any) -> bool {
        let Any(middle, call, reply, structure) = any;
        let len = ReplyPlaced::header_len(&reply.writes, reply.items.len());
        Reader::whole(&middle.encode(), PlacedMiddle::decode) == Ok(middle)
            && Reader::whole(&call.encode(), CallPlaced::decode) == Ok(call)
            && reply.encode().len() as u64 + 16 == len
            && Reader::whole(&reply.encode(), ReplyPlaced::decode) == Ok(reply)
            && structure_from(&structure_value(&structure)) == Ok(structure)
    }

    /// Whatever is read of damaged bytes, they are not cut short.
    fn damaged_bytes_are_refused_or_read(any: Any, at: usize, flip: u8, cut: usize) -> bool {
        let Any(middle, call, reply, structure) = any;
        let values = [middle.encode(), call.encode(), reply.encode(), structure_value(&structure)];
        values.iter().all(|whole| {
            let mut bytes = whole.to_vec();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            let _ = Reader::whole(&bytes, PlacedMiddle::decode);
            let _ = Reader::whole(&bytes, CallPlaced::decode);
            let _ = Reader::whole(&bytes, ReplyPlaced::decode);
            let _ = structure_from(&bytes);
            true
        }) && {
            let call = &values[1][..cut % values[1].len()];
            let reply = &values[2][..cut % values[2].len()];
            Reader::whole(call, CallPlaced::decode).is_err()
                && Reader::whole(reply, ReplyPlaced::decode).is_err()
        }
    }
}

#[test]
fn calls_that_break_a_rule_of_their_lists_are_refused() {
    let read = |position| ReadSegment {
        position,
        segment: Segment {
            handle: 5,
            length: 4,
            offset: 0,
        },
    };
    let cases = [
        (0, vec![], true),
        (5, vec![8, 8, 12], true),
        (6, vec![8], false),
        (5, vec![], false),
        (0, vec![12, 8], false),
        (0, vec![0, 8], false),
    ];
    for (inv_handle, positions, taken) in cases {
        let call = CallPlaced {
            inv_handle,
            chunks: Chunks {
                reads: positions.iter().copied().map(read).collect(),
                ..Chunks::default()
            },
            items: SmallVec::new(),
            payload: 0,
        };
        let again = Reader::whole(&call.encode(), CallPlaced::decode);
        match taken {
            true => assert_eq!(again, Ok(call)),
            false => assert!(matches!(again, Err(Malformed::Rule(_))), "{again:?}"),
        }
    }
}

#[test]
fn words_of_properties_are_read_as_they_were_written_and_nothing_else_is() {
    let support = Support::CALLS | Support::from_bits_retain(4);
    assert_eq!(support_from(&support_value(support)), Ok(support));
    assert_eq!(smallest_result_from(&smallest_result_value(512)), Ok(512));
    for value in [&[][..], &[0, 0, 2], &[0, 0, 0, 1, 0], &[0; 8]] {
        assert!(support_from(value).is_err(), "{value:?}");
        assert!(smallest_result_from(value).is_err(), "{value:?}");
    }
}

#[test]
fn more_items_than_the_limit_are_refused() {
    let item = PlacedItem {
        position: 8,
        length: 4,
        segment: 0,
        offset: 0,
    };
    for (count, taken) in [(limits::MAX_ITEMS, true), (limits::MAX_ITEMS + 1, false)] {
        let reply = ReplyPlaced {
            writes: Vec::new(),
            items: SmallVec::from_elem(item, count),
            payload: 16,
        };
        let read = Reader::whole(&reply.encode(), ReplyPlaced::decode);
        assert_eq!(read.is_ok(), taken, "{count}");
    }
}

#[test]
fn wg_extensions_use_experimental_numbers() {
    let types = [
        header_type::CALL_PLACED_MIDDLE,
        header_type::CALL_PLACED,
        header_type::REPLY_PLACED_MIDDLE,
        header_type::REPLY_PLACED,
    ];
    let properties = [
        property_id::STRUCTURE,
        property_id::SUPPORT,
        property_id::SMALLEST_RESULT,
    ];
    for number in types.iter().chain(&properties) {
        assert!(EXPERIMENTAL.contains(number), "{number:#x}");
    }
}
