//! Rules of send-based data placement in version 2 of the working group, with a client whose
//! messages the test writes itself (drafts/text/rpcrdma-v2-send-placement.xml).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "../support/mod.rs"]
mod support;

mod order;
mod properties;

use bytes::{BufMut as _, Bytes, BytesMut};
use rpcrdma_connection::Options;
use rpcrdma_ext_wg_ddp::header_type::{CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED};
use rpcrdma_ext_wg_ddp::{CallPlaced, PlacedItem, PlacedMiddle, ReplyPlaced, structure_value};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_v2_wg::header_type::{GRANT, REPLY_INLINE, REPLY_MIDDLE};
use rpcrdma_v2_wg::{
    Chunks, ErrorBody, Prefix, Property, ReadSegment, Segment, WriteChunk, property_id,
};
use support::{WgPeer, bytes, data, inline_call, message, open, reply, room};

const RECEIVE_SIZE: u32 = 66560;
/// Where the target of a receive begins.
const TARGET: usize = 1024;
/// The position of the only item of a call with one word, and the length of its payload.
const POSITION: u32 = 20;
const PAYLOAD: u32 = 24;

fn placing(options: &mut Options) {
    options.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap());
}

/// Returns the properties of a client that sends messages of up to `send_size` bytes, and wants results of
/// 512 bytes placed.
fn announced(send_size: u32) -> Vec<Property> {
    let word = |id, value: u32| Property {
        id,
        value: Bytes::copy_from_slice(&value.to_be_bytes()),
    };
    let structure = BufferStructure::with_placement(1024, 1, 65536);
    let structure = Property {
        id: rpcrdma_ext_wg_ddp::property_id::STRUCTURE,
        value: structure_value(&structure),
    };
    vec![
        word(property_id::SEND_SIZE, send_size),
        word(property_id::RECEIVE_SIZE, RECEIVE_SIZE),
        structure,
        word(rpcrdma_ext_wg_ddp::property_id::SMALLEST_RESULT, 512),
    ]
}

/// Returns a server that places results and takes placed calls, whose client has these properties.
fn server(send_size: u32) -> WgPeer {
    let mut peer = WgPeer::listening(placing);
    peer.properties(announced(send_size), true);
    let _ = peer.take();
    peer
}

/// Sends a message of the client: the fields of a header after its prefix, payload, and data for
/// the target.
fn send(peer: &mut WgPeer, xid: u32, header_type: u32, fields: &[u8], payload: &[u8], data: &[u8]) {
    let mut out = BytesMut::new();
    for word in [xid, 2, peer.flow.credit(peer.advertised), header_type] {
        out.put_u32(word);
    }
    out.put_slice(fields);
    out.put_slice(payload);
    if !data.is_empty() {
        out.resize(TARGET, 0);
        out.put_slice(data);
    }
    peer.send_bytes(&out.freeze());
}

/// Returns the payload of a call with one item, without the item.
fn payload(xid: u32, item: &Bytes) -> Vec<u8> {
    let call = message(xid, 1, std::slice::from_ref(item));
    call.gather(|_| false).concat()
}

/// Sends the last or only part of a call with one item of this length.
fn send_last(peer: &mut WgPeer, xid: u32, length: usize, payload: &[u8], data: &[u8]) {
    let item = PlacedItem {
        position: POSITION,
        length: length as u32,
        segment: 0,
        offset: 0,
    };
    let last = CallPlaced {
        inv_handle: 0,
        chunks: Chunks::default(),
        items: [item].into_iter().collect(),
        payload: payload.len() as u32,
    };
    send(peer, xid, CALL_PLACED, &last.encode(), payload, data);
}

/// Sends the first part of a call with an item of 65,540 bytes, of which all but four are in it.
fn send_first(peer: &mut WgPeer, xid: u32, messages: u32, item: &Bytes) {
    let first = PlacedMiddle {
        messages,
        remaining: 0,
        payload: PAYLOAD,
    };
    let payload = payload(xid, item);
    assert_eq!(payload.len() as u32, PAYLOAD);
    let kind = CALL_PLACED_MIDDLE;
    send(peer, xid, kind, &first.encode(), &payload, &item[..65536]);
}

fn delivered(peer: &mut WgPeer) -> Vec<(u32, Vec<Bytes>)> {
    let calls = peer.end.delivered.drain(..).map(|(_, call)| open(&call));
    calls.map(|(xid, _, items)| (xid, items)).collect()
}

/// A target is usable if it ends within what the sender has announced that it sends at most. Without
/// a usable target, an item has no place.
#[test]
fn targets_are_usable_within_the_placement_limit() {
    let item = data(1, 8192);
    for (send_size, taken) in [(RECEIVE_SIZE, true), (RECEIVE_SIZE - 1, false)] {
        let mut peer = server(send_size);
        let payload = payload(7, &item);
        send_last(&mut peer, 7, item.len(), &payload, &item);
        let expected = [(7, ErrorBody::BadXdr)];
        assert_eq!(peer.errors(), expected[usize::from(taken)..]);
        let expected = [(7, vec![item.clone()])];
        assert_eq!(delivered(&mut peer), expected[usize::from(!taken)..]);
    }
}

#[test]
fn read_chunks_beside_placed_items_are_refused() {
    let mut peer = server(RECEIVE_SIZE);
    let segment = Segment {
        handle: 1,
        length: 4,
        offset: 0,
    };
    let position = PAYLOAD;
    let call = CallPlaced {
        inv_handle: 0,
        chunks: Chunks {
            reads: vec![ReadSegment { position, segment }],
            ..Chunks::default()
        },
        items: Default::default(),
        payload: PAYLOAD,
    };
    let payload = payload(7, &data(1, 4));
    send(&mut peer, 7, CALL_PLACED, &call.encode(), &payload, &[]);
    assert_eq!(peer.errors(), [(7, ErrorBody::ReadChunks { max: 0 })]);
    assert!(peer.end.reads.is_empty() && peer.end.delivered.is_empty());
}

/// A placed reply to a requester that takes none is not answered, as an error has no direction: its XID may
/// be that of a call of the sender. It fails its call. An end that makes no calls answers it like a type that
/// it does not know (section 6.1 of version-two-07).
#[test]
fn a_placed_reply_to_an_end_that_takes_none_fails_its_call() {
    let answer = bytes(&reply(7, 1, &[]));
    let last = ReplyPlaced {
        writes: vec![],
        items: Default::default(),
        payload: answer.len() as u32,
    };
    let last = last.encode();
    let mut peer = server(RECEIVE_SIZE);
    send(&mut peer, 7, REPLY_PLACED, &last, &answer, &[]);
    assert_eq!(peer.errors(), [(7, ErrorBody::InvalidHeaderType)]);
    let announced = WgPeer::announced_by_server(placing);
    let mut peer = WgPeer::client_announced(&announced, |client| {
        client.protocols = rpcrdma_protocols::standard(&"ddp:send".parse().unwrap());
    });
    peer.end.call(message(7, 1, &[]), &room(1, &[]));
    assert_eq!(peer.take().len(), 1);
    send(&mut peer, 7, REPLY_PLACED, &last, &answer, &[]);
    assert!(matches!(peer.end.finished[..], [(7, Err(_))]));
    assert_eq!(peer.errors(), []);
}

/// Returns whether results of these lengths were placed, and how many were written, for a call with
/// write chunks of these lengths. Those of zero bytes have no segments.
fn returned(lengths: &[usize], writes: &[u32]) -> (bool, usize) {
    let chunk = |&length: &u32| -> WriteChunk {
        let segments = (length > 0).then(|| segment(length));
        segments.into_iter().collect()
    };
    let writes = writes.iter().map(chunk).collect();
    returned_by(server(RECEIVE_SIZE), lengths, writes)
}

fn segment(length: u32) -> Segment {
    Segment {
        handle: 5,
        length,
        offset: 0,
    }
}

fn returned_by(mut peer: WgPeer, lengths: &[usize], writes: Vec<WriteChunk>) -> (bool, usize) {
    let chunks = Chunks {
        writes,
        ..Chunks::default()
    };
    peer.send(7, inline_call(chunks), &bytes(&message(7, 1, &[])));
    let before = peer.end.sent.len();
    let items: Vec<Bytes> = lengths.iter().map(|&length| data(1, length)).collect();
    peer.end.run();
    let (id, _) = peer.end.delivered.pop_front().unwrap();
    peer.end.reply(id, Some(reply(7, 1, &items)));
    peer.end.run();
    let sent = peer.end.sent[before..].iter();
    let types = sent.map(|(message, _)| Prefix::peek(message).unwrap().header_type);
    let types: Vec<u32> = types.filter(|&kind| kind != GRANT).collect();
    let placed = types.contains(&REPLY_PLACED);
    let base = [REPLY_MIDDLE, REPLY_INLINE];
    assert_eq!(types.iter().any(|kind| base.contains(kind)), !placed);
    (placed, peer.end.written.len())
}

/// Lengths of results, the lengths of the write chunks, and what becomes of the results.
type Case = (&'static [usize], &'static [u32], (bool, usize));

#[test]
fn results_are_placed_unless_the_write_list_says_otherwise() {
    let cases: [Case; 12] = [
        // No write chunk. Up to 2 KiB of results go inline, where that is possible.
        (&[2049], &[], (true, 0)),
        (&[2048], &[], (false, 0)),
        (&[511, 1538], &[], (true, 0)),
        // An empty write chunk excepts its result, and no other.
        (&[8192], &[0], (false, 0)),
        (&[8192, 8192], &[0], (true, 0)),
        // A write chunk that is not empty is used, and nothing is placed beside it.
        (&[8192], &[8192], (false, 1)),
        (&[8192, 8192], &[0, 8192], (false, 1)),
        (&[8192, 8192], &[8192], (false, 1)),
        (&[512, 60000], &[512], (false, 1)),
        // One that no result of the reply matches has no effect.
        (&[8192], &[0, 8192], (false, 0)),
        // A result of zero octets uses none, empty or not.
        (&[0, 8192], &[0], (false, 0)),
        (&[0, 8192], &[8192, 8192], (false, 1)),
    ];
    let wrong = cases
        .iter()
        .filter(|(lengths, writes, expected)| returned(lengths, writes) != *expected);
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&Case>::new());
}

/// A reply does not wait for the credits of a sequence: it goes by the base protocol.
#[test]
fn results_go_otherwise_without_credits_for_all_messages() {
    for (advertised, placed) in [(4, true), (3, false)] {
        let mut peer = WgPeer::listening(placing);
        peer.advertised = advertised;
        peer.properties(announced(RECEIVE_SIZE), true);
        let _ = peer.take();
        // It takes four targets.
        let went = returned_by(peer, &[200_000], vec![]);
        assert_eq!(went, (placed, 0), "{advertised}");
    }
}

/// The responder writes none of the results, so that no write chunk comes back with a length. The rest of the write
/// list is not compared with that of the call.
#[test]
fn a_placed_reply_that_returns_written_bytes_fails_its_call() {
    let by_server = WgPeer::announced_by_server(placing);
    let answer = bytes(&reply(7, 1, &[]));
    for length in [0, 4] {
        let mut peer = WgPeer::client_announced(&by_server, placing);
        peer.end.call(message(7, 1, &[]), &room(1, &[]));
        assert_eq!(peer.take().len(), 1);
        let placed = ReplyPlaced {
            writes: vec![[segment(length)].into_iter().collect()],
            items: Default::default(),
            payload: answer.len() as u32,
        };
        send(&mut peer, 7, REPLY_PLACED, &placed.encode(), &answer, &[]);
        let (xid, result) = peer.end.finished.pop().unwrap();
        assert_eq!((xid, result.is_ok()), (7, length == 0));
        assert_eq!(peer.errors(), []);
    }
}

/// A write chunk is empty if it has no segments. One of segments without bytes is for its result like any other,
/// and nothing is placed beside it.
#[test]
fn a_write_chunk_of_segments_without_bytes_is_not_empty() {
    let results = [8192, 8192];
    for (chunk, placed) in [
        (WriteChunk::new(), true),
        ([segment(0)].into_iter().collect(), false),
    ] {
        let went = returned_by(server(RECEIVE_SIZE), &results, vec![chunk]);
        assert_eq!(went, (placed, 0));
    }
}

/// A placed call with more write chunks than this end takes has a header that it cannot decode.
#[test]
fn a_placed_call_with_too_many_write_chunks_is_refused() {
    for (count, taken) in [(16, true), (17, false)] {
        let mut peer = server(RECEIVE_SIZE);
        let chunk: WriteChunk = [segment(4)].into_iter().collect();
        let call = CallPlaced {
            inv_handle: 0,
            chunks: Chunks {
                writes: vec![chunk; count],
                ..Chunks::default()
            },
            items: Default::default(),
            payload: PAYLOAD,
        };
        let payload = payload(7, &data(1, 4));
        send(&mut peer, 7, CALL_PLACED, &call.encode(), &payload, &[]);
        let expected = [(7, ErrorBody::BadXdr)];
        assert_eq!(peer.errors(), expected[usize::from(taken)..]);
        assert_eq!(peer.end.delivered.len(), usize::from(taken));
    }
}

/// Errors of the extension are bounded like those of the base protocol.
#[test]
fn errors_about_placed_calls_wait_for_credits_and_not_without_bound() {
    let mut peer = server(65536);
    peer.advertised = 0;
    let mut sent = 0;
    while peer.end.closed.is_none() {
        sent += 1;
        assert!(sent < 1000, "there is no bound");
        send(&mut peer, sent, CALL_PLACED, &[], &[], &[]);
    }
    let reason = peer.end.closed.unwrap();
    assert!(reason.contains("wait for credits"), "{reason}");
}
