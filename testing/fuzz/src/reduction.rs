//! The upper-layer bindings of messages that pass through a relay: calls and replies of any
//! program, whole or with items apart.

use bytes::Bytes;
use nfs_binding::reduction::{Direction, MAX_ITEMS, Reducer, ReducerOptions};
use onc_rpc::{BulkItem, Message, Position, Segments};

/// The program number of callbacks, which a CREATE_SESSION before the input has named.
const CALLBACKS: u32 = 0x4000_0000;
/// The longest room that is ever offered, for items and payload each: 4 MiB, and a verifier and a
/// checksum of RPCSEC_GSS.
const MOST: u64 = (4 << 20) + (64 << 10) + 1024;

/// Returns the maximum number of heap bytes that `len` bytes of a message may take beside the
/// message: the length of each result item that its operations can have, and the list of pieces.
const fn most(len: usize) -> usize {
    4096 + 16 * len
}

/// Checks a call and its reply. The first byte chooses the header of the call, the second how both
/// are divided into pieces and items, and the third the length of the call in units of four bytes;
/// the rest is the arguments of the call and the whole reply behind its XID.
pub fn check(data: &[u8]) {
    let [header, apart, length, bytes @ ..] = data else {
        return;
    };
    let (arguments, results) = bytes.split_at((4 * usize::from(*length)).min(bytes.len()));
    let (direction, mut call) = call_header(*header);
    call.extend(arguments);
    let mut reply = words(&[7]);
    reply.extend(results);
    // Some replies begin with the words that nearly all begin with.
    if header & 0x10 != 0 {
        reply.splice(4..4, words(&[1, 0, 0, 0, 0]));
    }

    let options = ReducerOptions {
        max_items: usize::from(header >> 5).max(1),
        ..ReducerOptions::default()
    };
    let mut reducer = Reducer::new(options);
    // Makes the program of callbacks known, as a client does.
    let mut create = call_header(0).1;
    create.extend(words(&[0, 1, 1, 43, 0, 0, 0, 0]));
    create.extend(words(&[0; 14]));
    create.extend(words(&[CALLBACKS, 0]));
    let created = reducer.call(Direction::Forward, Message::from_payload(create.into()));
    assert_eq!(created.kind.whole, None);

    let call = transferred(&call, *apart, |at| Position::At(at as u32));
    let stream = call.gather(|_| true).concat();
    let given = call.clone();
    let reduced = crate::within(most(stream.len()), || reducer.call(direction, given));
    assert_eq!(reduced.message.gather(|_| true).concat(), stream);
    assert!(reduced.message.items().len() <= options.max_items);
    assert!(reduced.room.items.len() <= options.max_items);
    let items = reduced.room.items.iter().map(|&len| u64::from(len));
    assert!(items.sum::<u64>() <= MOST && u64::from(reduced.room.payload) <= MOST);
    assert_ascending(&reduced.message);
    if reduced.kind.whole.is_some() {
        assert!(reduced.message.items().is_empty() && reduced.room.items.is_empty());
    } else {
        let again = reducer.call(direction, reduced.message.clone());
        assert_eq!(again.message, reduced.message);
        assert_eq!((again.room, again.kind), (reduced.room, reduced.kind));
    }

    let remembered = reduced.remembered;
    let whole = transferred(&reply, *apart, |at| Position::At(at as u32));
    let stream = whole.gather(|_| true).concat();
    let given = whole.clone();
    let answer = crate::within(most(stream.len()), || reducer.reply(remembered, given));
    let answer = answer.expect("items with positions can be put back");
    assert_eq!(answer.gather(|_| true).concat(), stream);
    assert!(answer.items().len() <= MAX_ITEMS);
    assert_ascending(&answer);
    let placed = transferred(&reply, *apart, |_| Position::InOrder);
    if let Ok(answer) = reducer.reply(remembered, placed) {
        assert_ascending(&answer);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns the header of a call, and the side from which it comes.
fn call_header(choice: u8) -> (Direction, Vec<u8>) {
    let forward = Direction::Forward;
    let (direction, program, version, procedure) = match choice & 0xf {
        0..=5 => (forward, 100_003, 4, 1),
        6 => (Direction::Backward, CALLBACKS, 1, 1),
        7 => (forward, 100_003, 3, 6),
        8 => (forward, 100_003, 3, 7),
        9 => (forward, 100_003, 3, 10),
        10 => (forward, 100_003, 3, 5),
        11 => (forward, 100_003, 2, 13),
        12 => (forward, 100_003, 2, 6),
        13 => (forward, 100_227, 3, 1),
        // All of the header is in the input.
        _ => return (forward, words(&[7])),
    };
    let mut out = words(&[7, 0, 2, program, version, procedure]);
    out.extend(match choice & 0xf {
        // RPCSEC_GSS: authentication alone, integrity, and privacy.
        service @ 3..=5 => words(&[6, 20, 1, 0, 9, u32::from(service) - 2, 0, 6, 0]),
        _ => words(&[1, 20, 0, 0, 0, 0, 0, 0, 0]),
    });
    (direction, out)
}

/// Returns a message in two pieces, with an item of `apart % 16` bytes between them, or of none.
fn transferred(bytes: &[u8], apart: u8, place: impl Fn(usize) -> Position) -> Message {
    let len = usize::from(apart % 16);
    let at = (4 * usize::from(apart >> 4) + 60).min(bytes.len() & !3);
    let (before, behind) = bytes.split_at(at);
    let end = len.next_multiple_of(4);
    let copy = Bytes::copy_from_slice;
    if len == 0 || end > behind.len() {
        return Message::without_items(Segments::from_iter([copy(before), copy(behind)]));
    }
    let payload = Segments::from_iter([copy(before), copy(&behind[end..])]);
    let data = copy(&behind[..len]).into();
    let position = place(at);
    Message::new(payload, [BulkItem { position, data }])
}

/// Checks that every item has a position, behind those before it, and is within the stream.
fn assert_ascending(message: &Message) {
    let mut end = 0;
    for item in message.items() {
        let Position::At(position) = item.position else {
            panic!("an item without a position");
        };
        assert!(u64::from(position) >= end && !item.data.is_empty());
        end = u64::from(position) + item.data.len() as u64;
    }
    assert!(end <= message.stream_len());
}
