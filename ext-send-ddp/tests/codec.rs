//! Encoding and decoding of structures, placements and directions.

use bytes::{Bytes, BytesMut};
use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_ext_send_ddp::limits::{MAX_ITEMS, MAX_SETS};
use rpcrdma_ext_send_ddp::{
    DirectedItem, DirectedSet, Direction, Location, PlacedItem, ReceiveBufferStructure,
    RoundTripSupport, Support, get_items, get_sets, items_len, put_items, put_sets, put_structure,
    sets_len,
};
use rpcrdma_ext_xchar::{Characteristic, Peer, Registry};
use rpcrdma_extension::layout::limits::{MAX_GROUPS, MAX_SPAN};
use rpcrdma_extension::layout::{
    BufferSegment, BufferStructure, Frame, SegmentFlags, SegmentGroup, Spot, Unusable,
};
use rpcrdma_v2::{Malformed, Reader, Segment};

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn segment(g: &mut Gen) -> Segment {
    Segment {
        handle: u32::arbitrary(g),
        length: u32::arbitrary(g),
        offset: u64::arbitrary(g),
    }
}

fn few<T>(g: &mut Gen, max: usize, mut one: impl FnMut(&mut Gen) -> T) -> Vec<T> {
    let count = usize::arbitrary(g) % (max + 1);
    (0..count).map(|_| one(g)).collect()
}

#[derive(Clone, Debug)]
struct AnyItems(Vec<PlacedItem>);

impl Arbitrary for AnyItems {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(few(g, MAX_ITEMS, |g| PlacedItem {
            position: u32::arbitrary(g),
            length: u32::arbitrary(g),
            location: match u8::arbitrary(g) % 4 {
                0 => Location::Explicit(few(g, 5, segment).into()),
                1 => Location::Placed(Spot {
                    offset: u32::arbitrary(g),
                    segments: few(g, 20, u32::arbitrary).into(),
                }),
                2 => Location::TooShort,
                _ => Location::NoItem,
            },
        }))
    }
}

#[derive(Clone, Debug)]
struct AnySets(Vec<DirectedSet>);

impl Arbitrary for AnySets {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(few(g, 5, |g| DirectedSet {
            begin: u32::arbitrary(g),
            end: u32::arbitrary(g),
            items: few(g, 3, |g| DirectedItem {
                min_len: u32::arbitrary(g),
                to: match u8::arbitrary(g) % 4 {
                    0 => Direction::Explicit(few(g, 3, segment).into()),
                    1 => Direction::Placed,
                    2 => Direction::Choice(few(g, 3, segment).into()),
                    _ => Direction::BySize {
                        longest_placed: u32::arbitrary(g),
                        chunk: few(g, 3, segment).into(),
                    },
                },
            })
            .into(),
        }))
    }
}

#[derive(Clone, Debug)]
struct AnyStructure(BufferStructure);

impl Arbitrary for AnyStructure {
    fn arbitrary(g: &mut Gen) -> Self {
        let length = u32::arbitrary(g);
        let groups = few(g, 8, |g| SegmentGroup {
            count: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
            segment: BufferSegment {
                length: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
                align: u32::arbitrary(g),
                flags: SegmentFlags::from_bits_retain(u32::arbitrary(g)),
            },
        });
        Self(match bool::arbitrary(g) {
            true => BufferStructure::new(groups),
            false => BufferStructure::with_length(length, groups),
        })
    }
}

fn put(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    out.freeze()
}

/// Checks that decoding does not panic and that decoded values are encoded to the same bytes.
fn decodes_to_the_same_bytes(bytes: &[u8]) -> bool {
    let items = Reader::whole(bytes, get_items);
    let items = items.is_ok_and(|items| put(|out| put_items(out, &items)) != bytes);
    let sets = Reader::whole(bytes, get_sets);
    let sets = sets.is_ok_and(|sets| put(|out| put_sets(out, &sets)) != bytes);
    let structure = ReceiveBufferStructure::from_bytes(bytes);
    let structure = structure.is_ok_and(|structure| {
        let _ = Frame::new(&structure);
        put(|out| put_structure(out, &structure)) != bytes
    });
    items || sets || structure
}

fn flip(bytes: &[u8], flips: &[usize]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for flip in flips {
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes
}

quickcheck! {
    fn values_round_trip(items: AnyItems, sets: AnySets, structure: AnyStructure) -> bool {
        let (items, sets, structure) = (items.0, sets.0, structure.0);
        let a = put(|out| put_items(out, &items));
        let b = put(|out| put_sets(out, &sets));
        let c = ReceiveBufferStructure::property(&structure).value;
        a.len() == items_len(&items) && Reader::whole(&a, get_items) == Ok(items.into())
            && b.len() == sets_len(&sets) && Reader::whole(&b, get_sets) == Ok(sets.into())
            && ReceiveBufferStructure::from_bytes(&c) == Ok(structure)
    }

    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) -> bool {
        !decodes_to_the_same_bytes(&bytes)
    }

    // Small words are more likely to be valid field values.
    fn arbitrary_words_do_not_panic(any: Vec<u8>) -> bool {
        let any: Vec<u32> = any.into_iter().map(|word| u32::from(word % 7)).collect();
        !decodes_to_the_same_bytes(&words(&any))
    }

    fn flipped_bits_do_not_panic(items: AnyItems, sets: AnySets, any: AnyStructure, flips: Vec<usize>) -> bool {
        let all = [
            put(|out| put_items(out, &items.0)),
            put(|out| put_sets(out, &sets.0)),
            put(|out| put_structure(out, &any.0)),
        ];
        !all.iter().any(|bytes| decodes_to_the_same_bytes(&flip(bytes, &flips)))
    }

    fn a_value_cut_short_is_an_error(items: AnyItems, sets: AnySets, any: AnyStructure, at: usize) -> bool {
        let cut = |bytes: Bytes| bytes.slice(..at % bytes.len());
        let items = cut(put(|out| put_items(out, &items.0)));
        let sets = cut(put(|out| put_sets(out, &sets.0)));
        let structure = cut(put(|out| put_structure(out, &any.0)));
        Reader::whole(&items, get_items).is_err()
            && Reader::whole(&sets, get_sets).is_err()
            && ReceiveBufferStructure::from_bytes(&structure).is_err()
    }

    fn a_structure_is_a_frame_or_says_why_not(any: AnyStructure) -> bool {
        let structure = any.0;
        match Frame::new(&structure) {
            Ok(frame) => {
                let last = frame.targets().last();
                frame.len() == u64::from(structure.len())
                    && last.is_none_or(|target| target.end() <= frame.len())
            }
            Err(Unusable::Length { said, sum }) => u64::from(said) != sum,
            Err(Unusable::Segments(count)) => count > 256,
        }
    }
}

#[test]
fn rtr_s8_3_the_structure_has_these_bytes() {
    let structure = BufferStructure::with_placement(1024, 2, 65_536);
    let expected = [132_096, 2, 1, 1024, 1, 0, 2, 65_536, 4096, 1];
    assert_eq!(
        ReceiveBufferStructure::property(&structure).value,
        words(&expected)
    );
    assert_eq!(ReceiveBufferStructure::ID, 5);
    assert_eq!(
        structure.to_string(),
        "132096 B: 1 x 1024, 2 x 65536 for placement (aligned to 4096)"
    );
}

#[test]
fn rtr_s8_2_support_is_three_bits_and_others_mean_nothing() {
    let support = RoundTripSupport::from_bytes(&words(&[0x17])).expect("any word");
    assert!(support.contains(Support::XREQ | Support::XRESP | Support::XCONT));
    assert_eq!(RoundTripSupport::property(&support).value, words(&[0x17]));
    assert_eq!(Support::XREQ.bits(), 1);
    assert_eq!(Support::XRESP.bits(), 2);
    assert_eq!(Support::XCONT.bits(), 4);
    assert_eq!(RoundTripSupport::ID, 4);
    assert_eq!(Peer::default().get::<RoundTripSupport>(), Support::empty());
    assert_eq!(
        RoundTripSupport::from_bytes(&words(&[1, 1])),
        Err(Malformed::Trailing(4))
    );
    let mut registry = Registry::default();
    registry
        .register::<RoundTripSupport>()
        .expect("nobody else's");
    let told = registry.describe(&RoundTripSupport::property(&Support::XREQ));
    assert_eq!(told, "round-trip support Support(XREQ)");
}

#[test]
fn rtr_s8_3_without_a_structure_a_buffer_is_one_segment_that_is_not_for_placement() {
    let structure = ReceiveBufferStructure::default_value();
    assert_eq!(structure, BufferStructure::plain(4096));
    assert!(!structure.has_targets());
    let frame = Frame::new(&structure).expect("it makes sense");
    assert_eq!((frame.len(), frame.can_place()), (4096, false));
}

#[test]
fn rtr_s7_3_items_have_these_bytes() {
    let item = |position, length, location| PlacedItem {
        position,
        length,
        location,
    };
    let segment = Segment {
        handle: 7,
        length: 8,
        offset: (1 << 32) + 9,
    };
    let items = [
        item(40, 8, Location::Explicit([segment].into_iter().collect())),
        item(
            80,
            9000,
            Location::Placed(Spot {
                offset: 4,
                segments: [3, 4].into_iter().collect(),
            }),
        ),
        item(96, 3, Location::TooShort),
        item(0, 0, Location::NoItem),
    ];
    let expected = words(&[
        4, 40, 8, 1, 1, 7, 8, 1, 9, 80, 9000, 2, 4, 2, 3, 4, 96, 3, 5, 0, 0, 6,
    ]);
    assert_eq!(put(|out| put_items(out, &items)), expected);
}

#[test]
fn rtr_s7_4_directions_have_these_bytes() {
    let chunk = || {
        let segment = Segment {
            handle: 7,
            length: 8,
            offset: 9,
        };
        [segment].into_iter().collect()
    };
    let item = |min_len, to| DirectedItem { min_len, to };
    let sets = [
        DirectedSet {
            begin: 0,
            end: 100,
            items: vec![
                item(1, Direction::Explicit(chunk())),
                item(2, Direction::Placed),
            ]
            .into(),
        },
        DirectedSet {
            begin: 100,
            end: 200,
            items: vec![
                item(3, Direction::Choice(chunk())),
                item(
                    4,
                    Direction::BySize {
                        longest_placed: 5,
                        chunk: chunk(),
                    },
                ),
            ]
            .into(),
        },
    ];
    let expected = words(&[
        2, 0, 100, 2, 1, 1, 1, 7, 8, 0, 9, 2, 2, 100, 200, 2, 3, 3, 1, 7, 8, 0, 9, 4, 4, 5, 1, 7,
        8, 0, 9,
    ]);
    assert_eq!(put(|out| put_sets(out, &sets)), expected);
}

#[test]
fn rtr_s6_2_types_that_do_not_belong_there_are_xdr_errors() {
    for (kind, in_items, in_directions) in [
        (0, false, false),
        (1, true, true),
        (2, true, true),
        (3, false, true),
        (4, false, true),
        (5, true, false),
        (6, true, false),
        (7, false, false),
        (u32::MAX, false, false),
    ] {
        // Enough zeroes for the fields of any type.
        let items = words(&[1, 0, 0, kind, 0, 0]);
        let found = get_items(&mut Reader::new(&items));
        let error = Malformed::Enumeration("xmddp_type of a location", kind);
        assert_eq!(found.is_ok(), in_items, "{kind}");
        assert!(found.is_ok() || found == Err(error));
        let sets = words(&[1, 0, 4, 1, 0, kind, 0, 0]);
        let found = get_sets(&mut Reader::new(&sets));
        let error = Malformed::Enumeration("xmddp_type of a direction", kind);
        assert_eq!(found.is_ok(), in_directions, "{kind}");
        assert!(found.is_ok() || found == Err(error));
    }
}

#[test]
fn counts_are_checked_before_anything_is_taken_for_them() {
    let too_many = |what| Err(Malformed::TooMany(what));
    let most = u32::MAX;
    let items = |list: &[u32]| Reader::whole(&words(list), get_items).map(|_| ());
    assert_eq!(items(&[most]), too_many("bulk items"));
    assert_eq!(items(&[MAX_ITEMS as u32 + 1]), too_many("bulk items"));
    assert_eq!(items(&[MAX_ITEMS as u32]), Err(Malformed::Truncated));
    let chunk = "segments in a write chunk";
    assert_eq!(items(&[1, 0, 0, 1, most]), too_many(chunk));
    assert_eq!(items(&[1, 0, 0, 1, 512]), Err(Malformed::Truncated));
    let span = "buffer segments of an item";
    assert_eq!(items(&[1, 0, 0, 2, 0, most]), too_many(span));
    assert_eq!(items(&[1, 0, 0, 2, 0, MAX_SPAN as u32 + 1]), too_many(span));
    assert_eq!(
        items(&[1, 0, 0, 2, 0, MAX_SPAN as u32]),
        Err(Malformed::Truncated)
    );
    let sets = |list: &[u32]| Reader::whole(&words(list), get_sets).map(|_| ());
    assert_eq!(sets(&[most]), too_many("sets of directions"));
    assert_eq!(sets(&[MAX_SETS as u32 + 1]), too_many("sets of directions"));
    assert_eq!(sets(&[MAX_SETS as u32]), Err(Malformed::Truncated));
    assert_eq!(sets(&[1, 0, 0, most]), too_many("directions"));
    assert_eq!(sets(&[1, 0, 0, 16]), Err(Malformed::Truncated));
    let nine = [0, 2].repeat(9);
    let two_sets = [&[2, 0, 4, 9][..], &nine, &[4, 8, 9]].concat();
    assert_eq!(sets(&two_sets), too_many("directions"));
    for kind in [1, 3] {
        assert_eq!(sets(&[1, 0, 0, 1, 0, kind, most]), too_many(chunk));
    }
    assert_eq!(sets(&[1, 0, 0, 1, 0, 4, 0, most]), too_many(chunk));
    let structure = |list: &[u32]| ReceiveBufferStructure::from_bytes(&words(list)).map(|_| ());
    let groups = "groups of buffer segments";
    assert_eq!(structure(&[0, most]), too_many(groups));
    assert_eq!(structure(&[0, MAX_GROUPS as u32 + 1]), too_many(groups));
    assert_eq!(
        structure(&[0, MAX_GROUPS as u32]),
        Err(Malformed::Truncated)
    );
}

#[test]
fn a_structure_that_makes_no_sense_is_no_frame() {
    let group = |count, length| SegmentGroup {
        count,
        segment: BufferSegment {
            length,
            align: 0,
            flags: SegmentFlags::DDP,
        },
    };
    let frame = |structure: BufferStructure| Frame::new(&structure);
    // The product of `count` and `length` exceeds 32 bits, and 64 bits with many groups.
    let huge = BufferStructure::with_length(0, [group(1 << 16, 1 << 16)]);
    let sum = 1 << 32;
    assert_eq!(frame(huge), Err(Unusable::Length { said: 0, sum }));
    let most = BufferStructure::new([group(u32::MAX, u32::MAX); 3]);
    let (said, sum) = (u32::MAX, u64::MAX);
    assert_eq!(frame(most), Err(Unusable::Length { said, sum }));
    let many = BufferStructure::new([group(u32::MAX, 0)]);
    let count = u64::from(u32::MAX);
    assert_eq!(frame(many), Err(Unusable::Segments(count)));
    let empty = frame(BufferStructure::new([])).expect("no bytes, no segments");
    assert!(empty.is_empty() && !empty.can_place());
}
