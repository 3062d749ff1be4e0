//! The order of messages: those between the messages of a sequence, and the rest of one that was refused.

use rpcrdma_ext_wg_ddp::header_type::{
    CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE,
};
use rpcrdma_ext_wg_ddp::{CallPlaced, PlacedMiddle, ReplyPlaced};
use rpcrdma_v2_wg::header_type::{CONNPROP_FINAL, CONNPROP_MIDDLE};
use rpcrdma_v2_wg::{Body, Chunks, Direction, EXPERIMENTAL, ErrorBody, Properties, Property};

use super::support::{WgPeer, bytes, data, inline_call, inline_reply, message, reply, room};
use super::{
    RECEIVE_SIZE, announced, delivered, payload, placing, send, send_first, send_last, server,
};

/// Sends a further part of a call with an item: bytes of that alone, and after it so many messages.
fn send_next(peer: &mut WgPeer, xid: u32, messages: u32, item: &[u8]) {
    let next = PlacedMiddle {
        messages,
        remaining: 0,
        payload: 0,
    };
    let kind = CALL_PLACED_MIDDLE;
    send(peer, xid, kind, &next.encode(), &[], &item[..65536]);
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
    send_next(&mut peer, 7, 3, &item);
    assert_eq!(peer.errors(), [(7, ErrorBody::InvalidContinuation)]);
    // Neither of these is a message after which the rest of the call is no longer discarded.
    peer.send(0, Body::Grant, &[]);
    peer.send_error(99, ErrorBody::System);
    send_next(&mut peer, 7, 1, &item);
    send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
    assert_eq!((peer.errors(), delivered(&mut peer)), (vec![], vec![]));
    // The XID can be used again.
    let item = data(2, 8192);
    let payload = payload(7, &item);
    send_last(&mut peer, 7, item.len(), &payload, &item);
    assert_eq!(delivered(&mut peer), [(7, vec![item])]);
    assert_eq!(peer.errors(), []);
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
    send_next(&mut peer, 7, 1, &item);
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

/// An error about an unknown header type is one about a call for its receiver, which may send the call with this
/// XID once more. So that call must not be executed as well. Another one goes on.
#[test]
fn an_unknown_type_ends_the_call_in_parts_with_its_xid_and_no_other() {
    let item = data(1, 65540);
    let call = bytes(&message(7, 1, &[]));
    // The first type is one for experiments, and the other is not.
    for (header_type, error) in [
        (*EXPERIMENTAL.end(), ErrorBody::InvalidContinuation),
        (99, ErrorBody::InvalidHeaderType),
    ] {
        for (xid, goes_on) in [(8, true), (7, false)] {
            let mut peer = server(RECEIVE_SIZE);
            send_first(&mut peer, 7, 1, &item);
            send(&mut peer, xid, header_type, &[], &[], &[]);
            assert_eq!(peer.errors(), [(xid, error)]);
            send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
            assert_eq!(peer.errors(), []);
            let expected = [(7, vec![item.clone()])];
            assert_eq!(delivered(&mut peer), expected[usize::from(!goes_on)..]);
            // A continued call.
            let mut peer = server(RECEIVE_SIZE);
            peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8);
            send(&mut peer, xid, header_type, &[], &[], &[]);
            assert_eq!(peer.errors(), [(xid, error)]);
            peer.send(7, inline_call(Chunks::default()), &call[8..]);
            assert_eq!(peer.errors(), []);
            let expected = [(7, vec![])];
            assert_eq!(delivered(&mut peer), expected[usize::from(!goes_on)..]);
        }
    }
}

/// A placed call between the client's properties is answered once, and the properties go on. The rest of the call
/// is discarded, also when the last properties have arrived.
#[test]
fn a_placed_call_among_properties_is_answered_once() {
    let mut peer = WgPeer::listening(placing);
    let mut properties = announced(RECEIVE_SIZE);
    let last = properties.split_off(1);
    peer.properties(properties, false);
    let _ = peer.take();
    let item = data(1, 65540);
    send_first(&mut peer, 7, 2, &item);
    assert_eq!(peer.errors(), [(7, ErrorBody::InvalidContinuation)]);
    peer.properties(last, true);
    send_next(&mut peer, 7, 1, &item);
    send_last(&mut peer, 7, item.len(), &[], &item[65536..]);
    assert_eq!((peer.errors(), delivered(&mut peer)), (vec![], vec![]));
    let item = data(2, 8192);
    send_last(&mut peer, 7, item.len(), &payload(7, &item), &item);
    assert_eq!(delivered(&mut peer), [(7, vec![item])]);
}

/// A reply between the messages of a placed one fails its call, and is not answered. The placed reply goes on, unless
/// it has the same XID: then the rest of both is discarded.
#[test]
fn a_reply_between_the_messages_of_a_placed_reply_fails_its_call() {
    let by_server = WgPeer::announced_by_server(placing);
    for interrupts in [7, 8] {
        let mut peer = WgPeer::client_announced(&by_server, placing);
        for xid in [7, 8] {
            peer.end.call(message(xid, 1, &[]), &room(1, &[]));
        }
        assert_eq!(peer.take().len(), 2);
        let answer = bytes(&reply(7, 1, &[]));
        let (start, rest) = answer.split_at(8);
        let first = PlacedMiddle {
            messages: 1,
            remaining: rest.len() as u32,
            payload: start.len() as u32,
        };
        let kind = REPLY_PLACED_MIDDLE;
        send(&mut peer, 7, kind, &first.encode(), start, &[]);
        let inline = inline_reply(Chunks::default());
        peer.send_rpc(inline.clone(), &reply(interrupts, 1, &[]));
        let (xid, result) = peer.end.finished.pop().unwrap();
        assert!(xid == interrupts && result.is_err(), "{xid}");
        let last = ReplyPlaced {
            writes: vec![],
            items: Default::default(),
            payload: rest.len() as u32,
        };
        send(&mut peer, 7, REPLY_PLACED, &last.encode(), rest, &[]);
        if interrupts == 7 {
            assert!(peer.end.finished.is_empty());
            peer.send_rpc(inline, &reply(8, 1, &[]));
        }
        let (xid, result) = peer.end.finished.pop().unwrap();
        assert!(xid == 15 - interrupts && result.is_ok(), "{xid}");
        assert_eq!(peer.errors(), []);
    }
}
