//! Rules of send-based data placement in version 2 of the working group, with a client whose
//! messages the test writes itself (drafts/text/rpcrdma-v2-send-placement.xml).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::{BufMut as _, Bytes, BytesMut};
use rpcrdma_connection::Options;
use rpcrdma_ext_wg_ddp::header_type::{CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED};
use rpcrdma_ext_wg_ddp::{CallPlaced, PlacedItem, PlacedMiddle, ReplyPlaced, structure_value};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_v2_wg::header_type::{
    CALL_INLINE, CONNPROP_FINAL, CONNPROP_MIDDLE, GRANT, REPLY_INLINE, REPLY_MIDDLE,
};
use rpcrdma_v2_wg::{
    Body, Chunks, Direction, ErrorBody, Prefix, Properties, Property, ReadSegment, Segment,
    WriteChunk, property_id,
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

/// Returns a server that places results and takes placed calls. Its client sends messages of up to
/// `send_size` bytes, and wants results of 512 bytes placed.
fn server(send_size: u32) -> WgPeer {
    let mut peer = WgPeer::listening(placing);
    let word = |id, value: u32| Property {
        id,
        value: Bytes::copy_from_slice(&value.to_be_bytes()),
    };
    let structure = BufferStructure::with_placement(1024, 1, 65536);
    let structure = Property {
        id: rpcrdma_ext_wg_ddp::property_id::STRUCTURE,
        value: structure_value(&structure),
    };
    let properties = vec![
        word(property_id::SEND_SIZE, send_size),
        word(property_id::RECEIVE_SIZE, RECEIVE_SIZE),
        structure,
        word(rpcrdma_ext_wg_ddp::property_id::SMALLEST_RESULT, 512),
    ];
    peer.properties(properties, true);
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
fn grants_stand_between_the_parts_of_a_placed_call_and_calls_do_not() {
    let mut peer = server(RECEIVE_SIZE);
    let item = data(1, 65540);
    send_first(&mut peer, 7, 1, &item);
    peer.send(0, Body::Grant, &[]);
    assert_eq!(peer.errors(), []);
    // The message that interrupts is refused under its own XID, and the other one goes on.
    let call = bytes(&message(8, 1, &[]));
    peer.send(8, inline_call(Chunks::default()), &call);
    send_last(&mut peer, 9, 4, &payload(9, &data(2, 4)), &data(2, 4));
    let misplaced = ErrorBody::InvalidContinuation;
    assert_eq!(peer.errors(), [(8, misplaced), (9, misplaced)]);
    send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), [(7, vec![item])]);
}

/// Before the client has sent its properties, those between the parts of a placed call are refused, and
/// the call goes on. A FINAL ends their exchange all the same (version-two-07, section 6.3.4).
#[test]
fn properties_between_the_parts_of_a_placed_call_do_not_end_it() {
    let right = Properties::default().encode();
    for last in [false, true] {
        for decodable in [false, true] {
            let mut peer = WgPeer::listening(|server| {
                server.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap())
            });
            peer.send(
                6,
                inline_call(Chunks::default()),
                &bytes(&message(6, 1, &[])),
            );
            let call = bytes(&message(7, 1, &[]));
            let (start, rest) = call.split_at(16);
            let first = PlacedMiddle {
                messages: 1,
                remaining: rest.len() as u32,
                payload: start.len() as u32,
            };
            send(
                &mut peer,
                7,
                CALL_PLACED_MIDDLE,
                &first.encode(),
                start,
                &[],
            );
            let _ = peer.take();
            let error = if decodable {
                peer.send(9, properties(last, right.clone()), &[]);
                ErrorBody::InvalidContinuation
            } else {
                let header_type = if last {
                    CONNPROP_FINAL
                } else {
                    CONNPROP_MIDDLE
                };
                // The list of properties is missing.
                send(&mut peer, 9, header_type, &[0, 0, 0, 7], &[], &[]);
                ErrorBody::BadXdr
            };
            assert_eq!(peer.errors(), [(9, error)]);
            let end = CallPlaced {
                inv_handle: 0,
                chunks: Chunks::default(),
                items: Default::default(),
                payload: rest.len() as u32,
            };
            send(&mut peer, 7, CALL_PLACED, &end.encode(), rest, &[]);
            let expected = [(6, vec![]), (7, vec![])];
            assert_eq!(delivered(&mut peer), expected, "{last} {decodable}");
            peer.send(9, properties(true, right.clone()), &[]);
            let again = [(9, ErrorBody::InvalidContinuation)];
            assert_eq!(peer.errors(), again[usize::from(!last)..]);
        }
    }
}

fn properties(last: bool, properties: Vec<Property>) -> Body {
    Body::Properties { last, properties }
}

#[test]
fn the_rest_of_a_refused_placed_call_is_discarded_up_to_the_final_message() {
    let mut peer = server(RECEIVE_SIZE);
    let item = data(1, 65540);
    send_first(&mut peer, 7, 3, &item);
    let wrong = PlacedMiddle {
        messages: 3,
        remaining: 0,
        payload: 0,
    };
    let kind = CALL_PLACED_MIDDLE;
    send(&mut peer, 7, kind, &wrong.encode(), &[], &item[..65536]);
    assert_eq!(peer.errors(), [(7, ErrorBody::InvalidContinuation)]);
    let next = PlacedMiddle {
        messages: 1,
        ..wrong
    };
    send(&mut peer, 7, kind, &next.encode(), &[], &item[..65536]);
    send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
    assert_eq!((peer.errors(), delivered(&mut peer)), (vec![], vec![]));
    // The XID can be used again.
    let item = data(2, 8192);
    let payload = payload(7, &item);
    send_last(&mut peer, 7, item.len(), &payload, &item);
    assert_eq!(delivered(&mut peer), [(7, vec![item])]);
    assert_eq!(peer.errors(), []);
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

/// Refuses the properties of the end, which are its first message.
fn refuse_properties(peer: &mut WgPeer) {
    let first = Prefix::peek(&peer.end.sent[0].0).unwrap();
    assert_eq!(first.header_type, CONNPROP_FINAL);
    peer.send_error(first.xid, ErrorBody::BadPropertyValue);
}

/// The peer applies nothing of a message that it refuses (version-two-07, section 7.2.2). It would look for placed items by
/// the default of the Maximum Send Size, in which no target is usable.
#[test]
fn an_end_whose_properties_were_refused_places_no_arguments() {
    let announced = WgPeer::announced_by_server(placing);
    for (refused, expected) in [(false, CALL_PLACED), (true, CALL_INLINE)] {
        let mut peer = WgPeer::client_announced(&announced, placing);
        if refused {
            refuse_properties(&mut peer);
        }
        let before = peer.end.sent.len();
        let call = message(1, 1, &[data(1, 8192)]);
        peer.end.call(call, &room(1, &[]));
        peer.end.run();
        let sent = Prefix::peek(&peer.end.sent[before].0).unwrap();
        assert_eq!(sent.header_type, expected, "refused: {refused}");
    }
}

/// A server hears of the refusal, although it makes no calls, and then places no results.
#[test]
fn an_end_whose_properties_were_refused_places_no_results() {
    let mut peer = server(RECEIVE_SIZE);
    refuse_properties(&mut peer);
    assert_eq!(returned_by(peer, &[8192], &[]), (false, 0));
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
/// this write list.
fn returned(lengths: &[usize], writes: &[u32]) -> (bool, usize) {
    returned_by(server(RECEIVE_SIZE), lengths, writes)
}

fn returned_by(mut peer: WgPeer, lengths: &[usize], writes: &[u32]) -> (bool, usize) {
    let segment = |length| Segment {
        handle: 5,
        length,
        offset: 0,
    };
    let chunk = |&length: &u32| -> WriteChunk {
        let segments = (length > 0).then(|| segment(length));
        segments.into_iter().collect()
    };
    let chunks = Chunks {
        writes: writes.iter().map(chunk).collect(),
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

/// Section 7.1.4 of version-two-07: all messages with the XID of a refused one are discarded, and one
/// error is sent, whichever header types they have.
#[test]
fn a_continued_and_a_placed_call_with_one_xid_are_both_given_up() {
    let misplaced = [(7, ErrorBody::InvalidContinuation)];
    let call = bytes(&message(7, 1, &[]));
    let short = data(2, 4);
    let mut peer = server(RECEIVE_SIZE);
    peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8);
    send_last(&mut peer, 7, 4, &payload(7, &short), &short);
    assert_eq!(peer.errors(), misplaced);
    peer.send(7, inline_call(Chunks::default()), &call[8..]);
    assert_eq!((peer.errors(), delivered(&mut peer)), (vec![], vec![]));
    // The other way round.
    let mut peer = server(RECEIVE_SIZE);
    let item = data(1, 65540);
    send_first(&mut peer, 7, 2, &item);
    peer.send(7, inline_call(Chunks::default()), &call);
    assert_eq!(peer.errors(), misplaced);
    let next = PlacedMiddle {
        messages: 1,
        remaining: 0,
        payload: 0,
    };
    let kind = CALL_PLACED_MIDDLE;
    send(&mut peer, 7, kind, &next.encode(), &[], &item[..65536]);
    send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
    assert_eq!((peer.errors(), delivered(&mut peer)), (vec![], vec![]));
}

/// A continued and a placed call of several parts each, with one XID and in either order, get one error. The XID
/// can be used again afterwards.
#[test]
fn wg_s7_1_4_one_error_answers_the_parts_of_both_kinds_of_one_call() {
    let call = bytes(&message(7, 1, &[]));
    let item = data(1, 65540);
    for continued_first in [true, false] {
        let mut peer = server(RECEIVE_SIZE);
        for continued in [continued_first, !continued_first] {
            match continued {
                true => peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8),
                false => send_first(&mut peer, 7, 1, &item),
            }
        }
        let misplaced = ErrorBody::InvalidContinuation;
        assert_eq!(peer.errors(), [(7, misplaced)], "{continued_first}");
        send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
        peer.send(7, inline_call(Chunks::default()), &call[8..]);
        assert_eq!((peer.errors(), delivered(&mut peer)), (vec![], vec![]));
        peer.send(7, inline_call(Chunks::default()), &call);
        send_first(&mut peer, 8, 1, &item);
        send_last(&mut peer, 8, item.len(), &[], &item[65536..]);
        assert_eq!(peer.errors(), []);
        let expected = [(7, vec![]), (8, vec![item.clone()])];
        assert_eq!(delivered(&mut peer), expected);
    }
}

/// A message in several parts that interrupts one of the other kind is answered once. The other one
/// goes on.
#[test]
fn wg_s7_1_4_one_error_answers_the_parts_between_those_of_the_other_kind() {
    let misplaced = ErrorBody::InvalidContinuation;
    let item = data(1, 65540);
    let (call, other) = (bytes(&message(7, 1, &[])), bytes(&message(8, 1, &[])));
    // Parts of a placed call between those of a continued one.
    let mut peer = server(RECEIVE_SIZE);
    peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8);
    send_first(&mut peer, 8, 1, &item);
    send_last(&mut peer, 8, item.len(), &[], &item[65536..]);
    assert_eq!(peer.errors(), [(8, misplaced)]);
    peer.send(7, inline_call(Chunks::default()), &call[8..]);
    assert_eq!(delivered(&mut peer), [(7, vec![])]);
    // The other way round.
    let mut peer = server(RECEIVE_SIZE);
    send_first(&mut peer, 7, 1, &item);
    peer.send_middle(Direction::Call, 8, &other[..8], other.len() - 8);
    peer.send_middle(Direction::Call, 8, &other[8..16], other.len() - 16);
    peer.send(8, inline_call(Chunks::default()), &other[16..]);
    assert_eq!(peer.errors(), [(8, misplaced)]);
    send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
    assert_eq!(delivered(&mut peer), [(7, vec![item])]);
    peer.send(8, inline_call(Chunks::default()), &other);
    assert_eq!(
        (peer.errors(), delivered(&mut peer)),
        (vec![], vec![(8, vec![])])
    );
}

/// The rest of a refused message is discarded up to a message that begins another. That may be one of the
/// other kind (drafts/errata-07.md, 38).
#[test]
fn wg_s7_1_4_a_message_of_the_other_kind_ends_a_refused_one() {
    let misplaced = [(7, ErrorBody::InvalidContinuation)];
    let (call, other) = (bytes(&message(7, 1, &[])), bytes(&message(8, 1, &[])));
    let (item, short) = (data(1, 65540), data(2, 8192));
    // A placed call is refused, and its rest does not come.
    for parts in [1, 2] {
        let mut peer = server(RECEIVE_SIZE);
        send_first(&mut peer, 7, 3, &item);
        send_first(&mut peer, 7, 3, &item);
        assert_eq!(peer.errors(), misplaced);
        let (start, rest) = other.split_at(8 * (parts - 1));
        if parts > 1 {
            peer.send_middle(Direction::Call, 8, start, rest.len());
        }
        peer.send(8, inline_call(Chunks::default()), rest);
        send_last(&mut peer, 7, short.len(), &payload(7, &short), &short);
        let expected = [(8, vec![]), (7, vec![short.clone()])];
        assert_eq!(delivered(&mut peer), expected, "{parts}");
    }
    // A continued call is refused, and its rest does not come.
    for parts in [1, 2] {
        let mut peer = server(RECEIVE_SIZE);
        peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8);
        peer.send_middle(Direction::Call, 7, &call[8..16], call.len() - 8);
        assert_eq!(peer.errors(), misplaced);
        let placed = if parts > 1 {
            send_first(&mut peer, 8, 1, &item);
            send_last(&mut peer, 8, item.len(), &[], &item[65536..]);
            &item
        } else {
            send_last(&mut peer, 8, short.len(), &payload(8, &short), &short);
            &short
        };
        peer.send(7, inline_call(Chunks::default()), &call);
        let expected = [(8, vec![placed.clone()]), (7, vec![])];
        assert_eq!(delivered(&mut peer), expected, "{parts}");
    }
}
