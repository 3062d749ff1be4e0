//! See MUSTS.md of this crate for the tests that are named after sections.

use std::cmp::Reverse;

use bytes::Bytes;
use onc_rpc::{BulkItem, Message, Position, Segments};
use quickcheck::{Gen, QuickCheck};

use super::*;
use generator::{Exchange, Out, call_header, reply_header};

mod compounds;
mod generator;
mod programs;
mod protected;
mod sessions;

/// A message as TCP delivers it, in pieces that end at these places.
fn received(out: &Out, cuts: &[u8]) -> Message {
    let mut rest = Bytes::copy_from_slice(&out.bytes);
    let mut pieces = Segments::new();
    for &cut in cuts {
        let len = usize::from(cut).min(rest.len());
        pieces.push(rest.split_to(len));
    }
    pieces.push(rest);
    Message::without_items(pieces)
}

/// A message with some of its items apart: those whose bit is set in `apart`. `place` says
/// with which position.
fn with_items(out: &Out, apart: u16, place: impl Fn(usize) -> Position) -> Message {
    let mut payload = Vec::new();
    let mut items = Vec::new();
    let mut at = 0;
    for (index, item) in out.items.iter().enumerate() {
        if apart >> index.min(15) & 1 == 0 || item.is_empty() {
            continue;
        }
        payload.extend(&out.bytes[at..item.start]);
        let position = place(item.start);
        let data = Bytes::copy_from_slice(&out.bytes[item.clone()]).into();
        items.push(BulkItem { position, data });
        at = item.end.next_multiple_of(4);
    }
    payload.extend(&out.bytes[at..]);
    Message::new([Bytes::from(payload)].into_iter().collect(), items)
}

fn at(start: usize) -> Position {
    Position::At(start as u32)
}

/// Checks that `message` is the stream `out` with exactly its eligible items apart, the longest up to a number.
fn assert_reduced(message: &Message, out: &Out, max_items: usize) {
    assert_eq!(message.gather(|_| true).concat(), out.bytes, "the stream");
    let eligible = out.items.iter().filter(|item| !item.is_empty());
    let mut expected: Vec<_> = eligible.take(MAX_ITEMS).cloned().collect();
    expected.sort_by_key(|item| Reverse(item.len()));
    expected.truncate(max_items);
    expected.sort_by_key(|item| item.start);
    let found = message.items().iter().map(|item| match item.position {
        Position::At(start) => start as usize..start as usize + item.data.len(),
        _ => panic!("an item without a position"),
    });
    assert_eq!(found.collect::<Vec<_>>(), expected, "the items");
}

fn reducer() -> Reducer {
    Reducer::new(ReducerOptions::default())
}

/// Reduces a call that comes from the client.
fn forward(reducer: &mut Reducer, out: &Out) -> ReducedCall {
    reducer.call(Direction::Forward, received(out, &[]))
}
