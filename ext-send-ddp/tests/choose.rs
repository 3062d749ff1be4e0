//! The responder's choice for each item of a reply, case by case.

use rpcrdma_ext_send_ddp::Handling::{InStream, Placed, Written};
use rpcrdma_ext_send_ddp::{
    Ability, DirectedItem, DirectedSet, Direction, DoesNotFit, Handling, Location, check_ranges,
    choose,
};
use rpcrdma_v2::{Malformed, Segment, WriteChunk};

fn chunk(length: u32) -> WriteChunk {
    let segment = Segment {
        handle: 1,
        length,
        offset: 0,
    };
    [segment].into_iter().collect()
}

fn direct(to: Direction) -> DirectedItem {
    DirectedItem { min_len: 100, to }
}

fn by_size(longest_placed: u32, length: u32) -> Direction {
    Direction::BySize {
        longest_placed,
        chunk: chunk(length),
    }
}

#[test]
fn rtr_s7_4_the_responder_keeps_to_directions_and_chooses_where_it_may() {
    let explicit = || direct(Direction::Explicit(chunk(1000)));
    let empty = || direct(Direction::Explicit(WriteChunk::new()));
    let choice = || direct(Direction::Choice(chunk(1000)));
    let placed = || direct(Direction::Placed);
    let sized = || direct(by_size(500, 1000));
    // Length; direction; outcome if the responder can place items, if it can but prefers to write,
    // and if it cannot place items.
    let cases = [
        (99, explicit(), InStream, InStream, InStream),
        (100, explicit(), Written, Written, Written),
        (1000, explicit(), Written, Written, Written),
        (1000, empty(), InStream, InStream, InStream),
        (99, placed(), InStream, InStream, InStream),
        (100, placed(), Placed, Placed, InStream),
        (9999, placed(), Placed, Placed, InStream),
        (99, choice(), InStream, InStream, InStream),
        (100, choice(), Placed, Written, Written),
        (1001, choice(), Placed, Placed, InStream),
        (99, sized(), InStream, InStream, InStream),
        (500, sized(), Placed, Placed, Written),
        (501, sized(), Written, Written, Written),
        (1001, sized(), Placed, Placed, InStream),
        (0, placed(), InStream, InStream, InStream),
    ];
    for (len, direction, can, rather, cannot) in cases {
        for (place, prefer_written, expected) in [
            (true, false, can),
            (true, true, rather),
            (false, false, cannot),
            (false, true, cannot),
        ] {
            let ability = Ability {
                place,
                prefer_written,
            };
            let found = choose([len], [&direction], ability).expect("it fits");
            assert_eq!(found[..], [expected], "{len} {direction:?} {ability:?}");
        }
    }
}

#[test]
fn rtr_s7_4_each_item_uses_up_a_direction_short_or_not() {
    let directions = [
        direct(Direction::Placed),
        direct(Direction::Explicit(chunk(1000))),
    ];
    let ability = Ability {
        place: true,
        prefer_written: false,
    };
    let found = |items: &[u64]| -> Vec<Handling> {
        let found = choose(items.iter().copied(), &directions, ability);
        found.expect("it fits").to_vec()
    };
    assert_eq!(found(&[50, 500]), [InStream, Written]);
    assert_eq!(found(&[500, 500, 500]), [Placed, Written, InStream]);
    assert_eq!(found(&[500]), [Placed]);
    assert_eq!(found(&[]), []);
}

#[test]
fn an_item_that_fits_no_memory_it_must_go_to_is_an_error() {
    let ability = Ability {
        place: true,
        prefer_written: false,
    };
    let direction = direct(Direction::Explicit(chunk(1000)));
    let (item, len, capacity) = (0, 1001, 1000);
    let error = DoesNotFit {
        item,
        len,
        capacity,
    };
    assert_eq!(choose([1001], [&direction], ability), Err(error));
}

#[test]
fn rtr_s7_4_table_2_says_which_result_goes_with_which_direction() {
    let results = [
        Location::Explicit(chunk(1)),
        Location::Placed(Default::default()),
        Location::TooShort,
        Location::NoItem,
    ];
    for (direction, allowed) in [
        (Direction::Explicit(chunk(1)), [true, false, true, true]),
        (Direction::Placed, [false, true, true, true]),
        (Direction::Choice(chunk(1)), [true; 4]),
        (by_size(1, 1), [true; 4]),
    ] {
        for (result, allowed) in results.iter().zip(allowed) {
            assert_eq!(
                direction.allows(result),
                allowed,
                "{direction:?} {result:?}"
            );
        }
    }
}

#[test]
fn rtr_s7_4_ranges_are_disjoint_and_in_increasing_order() {
    let check = |ranges: &[(u32, u32)]| {
        let set = |&(begin, end): &(u32, u32)| DirectedSet {
            begin,
            end,
            items: Default::default(),
        };
        check_ranges(&ranges.iter().map(set).collect::<Vec<_>>())
    };
    let bad = Err(Malformed::Rule(
        "ranges of directions overlap, or are not in order",
    ));
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&[(0, u32::MAX)]), Ok(()));
    assert_eq!(check(&[(0, 4), (4, 8), (100, 101)]), Ok(()));
    assert_eq!(check(&[(0, 5), (4, 8)]), bad);
    assert_eq!(check(&[(4, 8), (0, 4)]), bad);
    assert_eq!(check(&[(4, 4)]), bad);
    assert_eq!(check(&[(8, 4)]), bad);
    assert_eq!(check(&[(0, 4), (0, 4)]), bad);
}
