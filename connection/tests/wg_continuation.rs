//! Continued messages and the exchange of properties in version 2 of the working group
//! (version-two-07, sections 6.3.3 to 6.3.9 and 7.1.4): what may stand between the parts, and what
//! becomes of the rest.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use onc_rpc::Message;
use rdma::{Pool, Stag};
use rpcrdma_connection::{CallbackOptions, Options, ReplyRoom};
use rpcrdma_extension::{Extension, Outbox, ReceivedMessage, Refusal, made_by};
use rpcrdma_host::{Budget, PER_CALL};
use rpcrdma_negotiation::{Version, Versions};
use rpcrdma_v2_wg::header_type::{
    CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, CONNPROP_MIDDLE, GRANT, REPLY_INLINE, REPLY_MIDDLE,
};
use rpcrdma_v2_wg::{
    Body, Chunks, Direction, EXPERIMENTAL, ErrorBody, Prefix, Properties, Property, ReverseSupport,
    property_id,
};
use support::{
    Pair, WgPeer, bytes, configs_with, data, inline_call, inline_reply, message, open, reply, room,
};

const CALL: Direction = Direction::Call;
const REPLY: Direction = Direction::Reply;
const MISPLACED: ErrorBody = ErrorBody::InvalidContinuation;

fn call(xid: u32) -> Vec<u8> {
    bytes(&message(xid, 20, &[]))
}

/// Returns a server that has the first part of this call, and the rest.
fn begun(xid: u32) -> (WgPeer, Vec<u8>) {
    let mut peer = WgPeer::server(|_| {});
    let mut first = call(xid);
    let rest = first.split_off(16);
    peer.send_middle(CALL, xid, &first, rest.len());
    assert_eq!(peer.taken(), []);
    (peer, rest)
}

/// Returns a client that has made calls with these XIDs.
fn calling(xids: impl IntoIterator<Item = u32>) -> WgPeer {
    let mut peer = WgPeer::client(|_| {});
    for xid in xids {
        let needed = room(3000, &[]);
        peer.end.call(message(xid, 1, &[]), &needed);
    }
    let _ = peer.take();
    peer
}

/// Returns the XIDs of the calls that were delivered, and removes them.
fn delivered(peer: &mut WgPeer) -> Vec<u32> {
    let calls = peer.end.delivered.drain(..);
    calls.map(|(_, call)| open(&call).0).collect()
}

fn finished(peer: &mut WgPeer) -> Vec<(u32, bool)> {
    let finished = peer.end.finished.drain(..);
    finished
        .map(|(xid, result)| (xid, result.is_ok()))
        .collect()
}

#[test]
fn wg_s6_3_6_a_grant_may_stand_between_parts() {
    let (mut peer, rest) = begun(7);
    peer.send(0, Body::Grant, &[]);
    peer.send_middle(CALL, 7, &rest[..8], rest.len() - 8);
    peer.send_error(99, ErrorBody::BadXdr);
    peer.send(7, inline_call(Chunks::default()), &rest[8..]);
    assert_eq!(peer.taken(), []);
    assert_eq!(delivered(&mut peer), [7]);

    let mut peer = calling([1]);
    let answer = bytes(&reply(1, 20, &[]));
    peer.send_middle(REPLY, 1, &answer[..8], answer.len() - 8);
    peer.send(0, Body::Grant, &[]);
    peer.send(1, inline_reply(Chunks::default()), &answer[8..]);
    assert_eq!(finished(&mut peer), [(1, true)]);
    assert_eq!(peer.taken(), []);

    // Nor do they disturb an exchange of properties.
    let mut peer = WgPeer::listening(|_| {});
    let mut properties = Properties::default().encode();
    let last = properties.split_off(2);
    peer.properties(properties, false);
    let _ = peer.take();
    peer.send(0, Body::Grant, &[]);
    peer.properties(last, true);
    assert_eq!(peer.taken(), []);
}

/// Returns the header of an external call.
fn external() -> Body {
    let segment = rpcrdma_v2_wg::Segment {
        handle: 1,
        length: 80,
        offset: 0,
    };
    let position = 0;
    let reads = vec![rpcrdma_v2_wg::ReadSegment { position, segment }];
    Body::Call {
        external: true,
        inv_handle: 0,
        chunks: Chunks {
            reads,
            ..Chunks::default()
        },
    }
}

#[test]
fn wg_s6_3_6_what_is_no_part_is_refused() {
    let properties = Body::Properties {
        last: true,
        properties: Vec::new(),
    };
    for (xid, between) in [(8, external()), (9, properties)] {
        let (mut peer, rest) = begun(7);
        peer.send(xid, between, &[]);
        assert_eq!(peer.errors(), [(xid, MISPLACED)]);
        peer.send(7, inline_call(Chunks::default()), &rest);
        assert_eq!(delivered(&mut peer), [7]);
    }
}

#[test]
fn wg_s6_3_3_a_call_between_properties_is_refused() {
    let mut peer = WgPeer::listening(|_| {});
    let mut properties = Properties::default().encode();
    let last = properties.split_off(2);
    peer.properties(properties, false);
    let _ = peer.take();
    peer.send(7, inline_call(Chunks::default()), &call(7));
    peer.send_middle(CALL, 8, &[0; 8], 8);
    assert_eq!(peer.errors(), [(7, MISPLACED), (8, MISPLACED)]);
    peer.properties(last, true);
    peer.send(7, inline_call(Chunks::default()), &call(7));
    assert_eq!(peer.taken(), []);
    assert_eq!(delivered(&mut peer), [7]);
}

#[test]
fn wg_s7_1_4_an_interrupting_message_is_refused_and_the_other_goes_on() {
    let (mut peer, rest) = begun(7);
    peer.send(8, inline_call(Chunks::default()), &call(8));
    assert_eq!(peer.errors(), [(8, MISPLACED)]);
    // All parts of the message that interrupts are discarded, and one error is enough.
    let other = call(9);
    peer.send_middle(CALL, 9, &other[..8], other.len() - 8);
    peer.send_middle(CALL, 9, &other[8..16], other.len() - 16);
    peer.send(9, inline_call(Chunks::default()), &other[16..]);
    assert_eq!(peer.errors(), [(9, MISPLACED)]);
    peer.send(7, inline_call(Chunks::default()), &rest);
    assert_eq!(delivered(&mut peer), [7]);
    assert_eq!(peer.taken(), []);
}

/// Parts between those of the peer's properties, and an external call with the XID of the continued one.
#[test]
fn wg_s7_1_4_all_parts_of_a_misplaced_message_are_answered_once() {
    let mut peer = WgPeer::listening(|_| {});
    let mut properties = Properties::default().encode();
    let last = properties.split_off(2);
    peer.properties(properties, false);
    let _ = peer.take();
    let other = call(8);
    peer.send_middle(CALL, 8, &other[..8], other.len() - 8);
    peer.send_middle(CALL, 8, &other[8..16], other.len() - 16);
    peer.send(8, inline_call(Chunks::default()), &other[16..]);
    assert_eq!(peer.errors(), [(8, MISPLACED)]);
    peer.properties(last, true);
    peer.send(8, inline_call(Chunks::default()), &other);
    assert_eq!((peer.taken(), delivered(&mut peer)), (vec![], vec![8]));

    let (mut peer, rest) = begun(7);
    peer.send(7, external(), &[]);
    assert_eq!(peer.errors(), [(7, MISPLACED)]);
    peer.send(7, inline_call(Chunks::default()), &rest);
    assert_eq!((peer.taken(), delivered(&mut peer)), (vec![], vec![]));
    peer.send(7, inline_call(Chunks::default()), &call(7));
    assert_eq!((peer.taken(), delivered(&mut peer)), (vec![], vec![7]));
}

#[test]
fn wg_s7_1_4_an_xid_can_be_used_again() {
    // The rest of the message that failed is discarded up to its last part, or up to a message that
    // begins another.
    for finishes in [true, false] {
        let (mut peer, rest) = begun(7);
        peer.send_middle(CALL, 7, &rest[..8], rest.len());
        assert_eq!(peer.errors(), [(7, MISPLACED)]);
        peer.send_middle(CALL, 7, &rest[8..16], rest.len() - 16);
        match finishes {
            true => peer.send(7, inline_call(Chunks::default()), &rest[16..]),
            false => peer.send(8, inline_call(Chunks::default()), &call(8)),
        }
        assert_eq!(peer.taken(), []);
        peer.send(7, inline_call(Chunks::default()), &call(7));
        let expected = if finishes { vec![7] } else { vec![8, 7] };
        assert_eq!(delivered(&mut peer), expected);
    }
    // The message that begins another may have several parts.
    let (mut peer, rest) = begun(7);
    peer.send_middle(CALL, 7, &rest[..8], rest.len());
    assert_eq!(peer.errors(), [(7, MISPLACED)]);
    let other = call(8);
    peer.send_middle(CALL, 8, &other[..8], other.len() - 8);
    peer.send(8, inline_call(Chunks::default()), &other[8..]);
    let again = call(7);
    peer.send_middle(CALL, 7, &again[..8], again.len() - 8);
    peer.send(7, inline_call(Chunks::default()), &again[8..]);
    assert_eq!(delivered(&mut peer), [8, 7]);
    // The message that begins another may be an external call, whose payload is fetched meanwhile.
    let (mut peer, rest) = begun(7);
    peer.send_middle(CALL, 7, &rest[..8], rest.len());
    assert_eq!(peer.errors(), [(7, MISPLACED)]);
    peer.send(8, external(), &[]);
    peer.send(7, inline_call(Chunks::default()), &call(7));
    assert!(delivered(&mut peer).contains(&7));
    // The last part itself can be at fault.
    let (mut peer, rest) = begun(7);
    peer.send(7, inline_call(Chunks::default()), &rest[4..]);
    assert_eq!(peer.errors(), [(7, MISPLACED)]);
    peer.send(7, inline_call(Chunks::default()), &call(7));
    assert_eq!(delivered(&mut peer), [7]);
}

#[test]
fn wg_s6_3_6_a_message_beyond_the_limit_is_refused_at_its_first_part() {
    let max = 1 << 16;
    let mut peer = WgPeer::server(|server| server.max_message = max);
    peer.send_middle(CALL, 7, &[0; 16], max as usize - 12);
    assert_eq!(peer.errors(), [(7, ErrorBody::System)]);
    peer.send_middle(CALL, 7, &[0; 16], max as usize - 28);
    peer.send(7, inline_call(Chunks::default()), &[0; 16]);
    assert_eq!(peer.taken(), [], "the rest is discarded");
    peer.send_middle(CALL, 8, &[0; 16], max as usize - 16);
    assert_eq!(peer.taken(), [], "exactly the limit");
    // A reply that is too long fails its call.
    let mut peer = calling([1, 2]);
    peer.send_middle(REPLY, 1, &[0; 16], u32::MAX as usize);
    assert_eq!(finished(&mut peer), [(1, false)]);
    peer.send_middle(REPLY, 1, &[0; 16], u32::MAX as usize - 16);
    assert_eq!(peer.taken(), [], "errors go to requesters alone");
    peer.send_rpc(inline_reply(Chunks::default()), &reply(2, 1, &[]));
    assert_eq!(finished(&mut peer), [(2, true)]);
}

#[test]
fn wg_s6_3_9_a_broken_off_reply_fails_the_call_and_is_not_reported() {
    // A last part of another length.
    let mut peer = calling([1, 2]);
    let answer = bytes(&reply(1, 20, &[]));
    peer.send_middle(REPLY, 1, &answer[..8], answer.len() - 8);
    peer.send(1, inline_reply(Chunks::default()), &answer[12..]);
    assert_eq!(finished(&mut peer), [(1, false)]);
    // A middle part of another length, and the rest of the reply.
    let answer = bytes(&reply(2, 20, &[]));
    peer.send_middle(REPLY, 2, &answer[..8], answer.len() - 8);
    peer.send_middle(REPLY, 2, &answer[8..16], answer.len() - 8);
    assert_eq!(finished(&mut peer), [(2, false)]);
    peer.send(2, inline_reply(Chunks::default()), &answer[16..]);
    assert_eq!((finished(&mut peer), peer.taken()), (vec![], vec![]));
    // A reply that interrupts another fails for itself.
    let mut peer = calling([1, 2]);
    let answer = bytes(&reply(1, 20, &[]));
    peer.send_middle(REPLY, 1, &answer[..8], answer.len() - 8);
    peer.send_rpc(inline_reply(Chunks::default()), &reply(2, 1, &[]));
    assert_eq!(finished(&mut peer), [(2, false)]);
    peer.send(1, inline_reply(Chunks::default()), &answer[8..]);
    assert_eq!(finished(&mut peer), [(1, true)]);
    assert_eq!(peer.taken(), []);
}

/// The peer may not send a second one, so it would wait for ever.
#[test]
fn wg_s7_2_2_a_refused_final_ends_the_exchange() {
    let bad = |value: &[u8]| Property {
        id: property_id::REVERSE,
        value: value.to_vec().into(),
    };
    for wrong in [bad(&[0, 0, 0, 4]), bad(&[0; 8]), bad(&[0; 5000])] {
        let mut peer = WgPeer::listening(|server| server.inline_receive = 8192);
        let size = Property {
            id: property_id::RECEIVE_SIZE,
            value: vec![0, 0, 8, 0].into(),
        };
        peer.properties(vec![size], false);
        let _ = peer.take();
        peer.properties(vec![wrong], true);
        let errors = peer.errors();
        assert!(matches!(errors[..], [(_, ErrorBody::BadPropertyValue)]));
        peer.properties(Vec::new(), true);
        let errors = peer.errors();
        assert!(matches!(errors[..], [(_, MISPLACED)]), "{errors:?}");
        // What was said before counts.
        peer.send(7, inline_call(Chunks::default()), &call(7));
        peer.reply(Some(reply(7, 1000, &[])));
        let sent = peer.end.sent.iter().map(|(sent, _)| sent.len());
        assert_eq!(sent.skip(1).max(), Some(2048));
    }
}

/// A peer that has sent its FINAL may not send another one, wherever the first one stood. Without a FINAL,
/// the exchange has not begun. The call goes on in any case.
#[test]
fn wg_s6_3_4_a_final_between_the_parts_of_a_call_ends_the_exchange() {
    let right = Properties::default().encode();
    for last in [false, true] {
        for decodable in [false, true] {
            let mut peer = WgPeer::listening(|_| {});
            peer.send(6, inline_call(Chunks::default()), &call(6));
            let whole = call(7);
            peer.send_middle(CALL, 7, &whole[..16], whole.len() - 16);
            let _ = peer.take();
            if decodable {
                peer.properties(right.clone(), last);
                assert!(matches!(peer.errors()[..], [(_, MISPLACED)]));
            } else {
                let header_type = if last {
                    CONNPROP_FINAL
                } else {
                    CONNPROP_MIDDLE
                };
                let credit = peer.flow.credit(100);
                // The list of properties is missing.
                let words = [9, 2, credit, header_type, 7].map(u32::to_be_bytes);
                peer.send_bytes(&words.concat().into());
                assert_eq!(peer.errors(), [(9, ErrorBody::BadXdr)]);
            }
            peer.send(7, inline_call(Chunks::default()), &whole[16..]);
            assert_eq!(delivered(&mut peer), [6, 7], "{last} {decodable}");
            peer.properties(right.clone(), true);
            let errors = peer.errors();
            match last {
                true => assert!(matches!(errors[..], [(_, MISPLACED)]), "{errors:?}"),
                false => assert_eq!(errors, []),
            }
        }
    }
}

/// Messages in several Sends and in one take turns, in both directions.
#[test]
fn wg_s4_1_parts_of_messages_are_not_interleaved() {
    let words = |xid: u32| if xid.is_multiple_of(2) { 1 } else { 5000 };
    let mut pair = Pair::echoing(configs_with(Version::TWO_WG, |client, server| {
        (client.credits, server.credits) = (30, 100);
        client.costs.registration = Duration::from_secs(1);
    }));
    pair.answer_with(move |call: &Message| {
        let (xid, ..) = open(call);
        Some(reply(xid, words(xid), &[]))
    });
    pair.call(message(10, 1, &[]), &ReplyRoom::default())
        .unwrap();
    let before = (pair.client.sent.len(), pair.server.sent.len());
    for xid in 1..=8 {
        let call = message(xid, words(xid), &[]);
        pair.client.call(call, &ReplyRoom::default());
    }
    pair.settle();
    for (end, before, types) in [
        (&pair.client, before.0, [CALL_MIDDLE, CALL_INLINE]),
        (&pair.server, before.1, [REPLY_MIDDLE, REPLY_INLINE]),
    ] {
        let sent = end.sent[before..].iter();
        let sent = sent.map(|(sent, _)| Prefix::peek(sent).unwrap());
        let mut xids: Vec<_> = sent
            .filter(|prefix| types.contains(&prefix.header_type))
            .map(|prefix| prefix.xid)
            .collect();
        assert!(xids.len() >= 4 * 5 + 4, "{xids:?}");
        xids.dedup();
        assert_eq!(xids.len(), 8, "{xids:?}");
    }
    // A short reply waits for the parts of a long one, which wait for credits.
    let mut peer = WgPeer::listening(|server| server.credits = 8);
    peer.advertised = 3;
    peer = peer.exchanged(&Properties::default());
    peer.advertised = 0;
    for xid in [1, 2] {
        peer.send_rpc(inline_call(Chunks::default()), &message(xid, 1, &[]));
    }
    peer.reply(Some(reply(1, 5000, &[])));
    peer.reply(Some(reply(2, 1, &[])));
    let mut sent = peer.take();
    assert!(sent.len() < 4, "nothing waits: {sent:?}");
    peer.advertised = 10;
    peer.send(0, Body::Grant, &[]);
    sent.extend(peer.take());
    let mut xids: Vec<_> = sent.iter().map(|sent| sent.header.xid).collect();
    xids.retain(|&xid| xid != 0);
    let last = xids.pop();
    assert_eq!((xids, last), (vec![1; 5], Some(2)));
}

/// A call is cancelled while its last part, which offers a write chunk, waits for credits.
#[test]
fn memory_that_a_waiting_part_offers_outlives_the_cancellation_of_its_call() {
    let cancelled_with = |credits: u32| {
        let properties = Properties::default();
        let mut peer = WgPeer::client_of(&properties, |client| {
            client.remote_invalidation = false;
            // One registration is cheaper than two, and than copying the result.
            client.costs.registration = Duration::from_secs(1);
            client.costs.copy_rate = 1;
        });
        // The client uses up what it was granted, but for a few messages.
        for xid in 100.. {
            if peer.flow.receives_needed() <= credits + 2 {
                break;
            }
            peer.advertised = 0;
            peer.end.call(message(xid, 1, &[]), &ReplyRoom::default());
            let _ = peer.take();
        }
        peer.end.call(message(1, 2500, &[]), &room(1, &[8192]));
        let sent = peer.take().len();
        assert_eq!(peer.end.registrations, 1, "a write chunk");
        peer.end.connection.cancel(1);
        peer.end.run();
        (peer, sent)
    };
    let (peer, sent) = cancelled_with(10);
    assert_eq!((sent, peer.end.registered.len()), (3, 0), "all was sent");
    let (mut peer, sent) = cancelled_with(2);
    assert_eq!((sent, peer.end.registered.len()), (2, 1), "a part waits");
    peer.advertised = 10;
    peer.send(0, Body::Grant, &[]);
    let mut offered = match &peer.taken()[..] {
        [Body::Call { chunks, .. }] => chunks.clone(),
        other => panic!("{other:?}"),
    };
    let segment = &mut offered.writes[0][0];
    assert!(peer.end.registered.contains_key(&Stag(segment.handle)));
    segment.length = 0;
    peer.send_rpc(inline_reply(offered), &reply(1, 1, &[]));
    assert_eq!(peer.end.registered.len(), 0);
    assert_eq!(peer.end.closed, None);
    assert_eq!(finished(&mut peer), []);
}

#[test]
fn wg_s6_5_only_the_last_send_of_a_reply_invalidates() {
    let mut pair = Pair::echoing(configs_with(Version::TWO_WG, |_, _| {}));
    pair.answer_with(|call: &Message| Some(reply(open(call).0, 2500, &[])));
    let call = message(1, 1, &[data(1, 400_000)]);
    pair.call(call, &room(2500, &[])).unwrap();
    let sent: Vec<_> = pair.server.sent[1..]
        .iter()
        .map(|(sent, invalidate)| (Prefix::peek(sent).unwrap().header_type, *invalidate))
        .filter(|(header_type, _)| *header_type != GRANT)
        .collect();
    let handles: Vec<_> = sent.iter().map(|(_, handle)| handle.is_some()).collect();
    assert_eq!(handles, [false, false, true], "{sent:?}");
    // A requester copes with another order.
    let mut peer = WgPeer::client(|_| {});
    peer.end
        .call(message(1, 1, &[data(1, 400_000)]), &room(20, &[]));
    let sent = peer.take();
    let Body::Call { inv_handle, .. } = sent[0].header.body else {
        panic!("{sent:?}");
    };
    let answer = bytes(&reply(1, 20, &[]));
    let remaining = answer.len() as u32 - 8;
    let middle = Body::Middle {
        direction: REPLY,
        remaining,
    };
    peer.send_invalidating(1, middle, &answer[..8], Some(Stag(inv_handle)));
    peer.send(1, inline_reply(Chunks::default()), &answer[8..]);
    assert_eq!(finished(&mut peer), [(1, true)]);
}

/// Returns what each part but the last says that remains, and the bytes that follow it.
fn remaining(peer: &mut WgPeer) -> Vec<(u32, usize)> {
    let sent = peer.take();
    let follows = |at: usize| sent[at + 1..].iter().map(|part| part.payload.len()).sum();
    let said = sent.iter().enumerate();
    said.filter_map(|(at, part)| match part.header.body {
        Body::Middle { remaining, .. } => Some((remaining, follows(at))),
        _ => None,
    })
    .collect()
}

#[test]
fn wg_s6_3_6_remaining_counts_what_follows() {
    let mut client = WgPeer::client(|_| {});
    client.end.call(message(1, 4000, &[]), &room(1, &[]));
    let mut server = WgPeer::server(|_| {});
    server.send(7, inline_call(Chunks::default()), &call(7));
    server.reply(Some(reply(7, 4000, &[])));
    for peer in [&mut client, &mut server] {
        let parts = remaining(peer);
        assert_eq!(parts.len(), 3, "{parts:?}");
        for (said, follows) in parts {
            assert_eq!(said as usize, follows);
        }
    }
}

#[test]
fn wg_s6_3_6_a_count_that_does_not_add_up_is_invalid_continuation() {
    // In the second part: one word more or less than what remains, and nothing.
    for wrong in [-4, 4, i32::MIN] {
        let (mut peer, rest) = begun(7);
        let right = rest.len() as i32 - 8;
        let said = if wrong == i32::MIN { 0 } else { right + wrong };
        peer.send_middle(CALL, 7, &rest[..8], said as usize);
        assert_eq!(peer.errors(), [(7, MISPLACED)], "{wrong}");
        peer.send(7, inline_call(Chunks::default()), &rest[8..]);
        assert_eq!((peer.taken(), delivered(&mut peer)), (vec![], vec![]));
    }
    // In the first part: nothing, which is refused before any other part arrives, and once.
    let mut peer = WgPeer::server(|_| {});
    let call = call(7);
    peer.send_middle(CALL, 7, &call[..16], 0);
    assert_eq!(peer.errors(), [(7, MISPLACED)]);
    peer.send(7, inline_call(Chunks::default()), &call[16..]);
    assert_eq!((peer.taken(), delivered(&mut peer)), (vec![], vec![]));
    // In the last part.
    for len in [4, 8] {
        let (mut peer, mut rest) = begun(7);
        rest.resize(rest.len() + len - 6, 0);
        peer.send(7, inline_call(Chunks::default()), &rest);
        assert_eq!(peer.errors(), [(7, MISPLACED)]);
        assert_eq!(delivered(&mut peer), []);
    }
    // A reply fails its call.
    let answer = bytes(&reply(1, 20, &[]));
    let mut peer = calling([1]);
    peer.send_middle(REPLY, 1, &answer[..8], answer.len() - 4);
    peer.send(1, inline_reply(Chunks::default()), &answer[8..]);
    assert_eq!(finished(&mut peer), [(1, false)]);
    assert_eq!(peer.taken(), []);
}

/// The announced support is checked when the last part arrives, which has the chunks. The parts
/// before it are given up as well.
#[test]
fn wg_s5_2_5_a_continued_call_that_ends_with_chunks_is_refused_and_given_up() {
    let segment = rpcrdma_v2_wg::Segment {
        handle: 1,
        length: 8,
        offset: 0,
    };
    let position = 8;
    let reads = vec![rpcrdma_v2_wg::ReadSegment { position, segment }];
    let writes = vec![std::iter::once(segment).collect()];
    let chunks = |reads, writes| Chunks {
        reads,
        writes,
        reply: None,
    };
    for (chunks, error) in [
        (chunks(reads, vec![]), ErrorBody::ReadChunks { max: 0 }),
        (chunks(vec![], writes), ErrorBody::WriteChunks { max: 0 }),
    ] {
        let mut peer = WgPeer::client(|client| {
            let (credits, chunks) = (4, false);
            client.callbacks = CallbackOptions { credits, chunks };
        });
        peer.end.call(message(1, 1, &[]), &room(1, &[]));
        let _ = peer.take();
        let mut first = call(7);
        let rest = first.split_off(16);
        peer.send_middle(CALL, 7, &first, rest.len());
        peer.send(7, inline_call(chunks), &rest);
        assert_eq!(peer.errors(), [(7, error)]);
        peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
        assert_eq!(finished(&mut peer), [(1, true)]);
        peer.send_middle(CALL, 7, &first, rest.len());
        peer.send(7, inline_call(Chunks::default()), &rest);
        assert_eq!(peer.taken(), []);
        assert_eq!(delivered(&mut peer), [7]);
    }
}

/// No part follows the last one, so the next call with the XID is another one.
#[test]
fn wg_s7_1_4_a_refused_call_ends_with_a_last_part_that_cannot_be_decoded() {
    let mut peer = WgPeer::server(|_| {});
    peer.send_middle(CALL, 7, &call(7)[..16], u32::MAX as usize);
    assert_eq!(peer.errors(), [(7, ErrorBody::System)]);
    let credit = peer.flow.credit(100);
    // The header ends behind the handle.
    let words = [7, 2, credit, CALL_INLINE, 0].map(u32::to_be_bytes);
    peer.send_bytes(&words.concat().into());
    assert_eq!(peer.errors(), [(7, ErrorBody::BadXdr)]);
    peer.send(7, inline_call(Chunks::default()), &call(7));
    assert_eq!(peer.taken(), []);
    assert_eq!(delivered(&mut peer), [7]);
}

/// An extension that answers each of its operations with another.
#[derive(Debug)]
struct Answering;

const OPERATION: u32 = 0xffff_ff80;

impl Extension for Answering {
    fn name(&self) -> &'static str {
        "answering"
    }

    fn numbers(&self) -> &[u32] {
        &[OPERATION]
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        out.reply(op.xid, OPERATION, Bytes::new());
        Ok(())
    }
}

/// The answer of an extension to an operation does not pass the parts that wait for the credits
/// that the operation brings.
#[test]
fn an_operation_is_answered_behind_the_parts_that_it_releases() {
    let mut peer = WgPeer::listening(|server| {
        let answering = made_by(|_| Box::new(Answering));
        server.protocols.add(Version::TWO_WG, answering);
    });
    peer.advertised = 3;
    peer = peer.exchanged(&Properties::default());
    peer.send(1, inline_call(Chunks::default()), &call(1));
    peer.advertised = 0;
    peer.reply(Some(reply(1, 5000, &[])));
    assert!(peer.taken().len() < 4, "all parts were sent");
    let (before, credit) = (peer.end.sent.len(), peer.flow.credit(10));
    let words = [9, 2, credit, OPERATION].map(u32::to_be_bytes);
    peer.send_bytes(&words.concat().into());
    let sent = peer.end.sent[before..].iter();
    let sent: Vec<u32> = sent
        .map(|(sent, _)| Prefix::peek(sent).unwrap().header_type)
        .collect();
    assert!(sent.len() > 2, "{sent:?}");
    let (parts, end) = sent.split_last_chunk().unwrap();
    assert_eq!(end, &[REPLY_INLINE, OPERATION], "{sent:?}");
    assert!(parts.iter().all(|&part| part == REPLY_MIDDLE), "{sent:?}");
}

#[test]
fn wg_s6_3_4_an_empty_set_of_properties_is_taken_and_answered() {
    // A peer that has nothing to tell ends its exchange all the same, and is answered.
    let mut server = WgPeer::listening(|_| {});
    server.properties(Vec::new(), true);
    let sent = server.taken();
    assert!(matches!(sent[..], [Body::Properties { last: true, .. }]));
    server.properties(Vec::new(), true);
    assert_eq!(server.errors().len(), 1, "the exchange is over");
    server.send(7, inline_call(Chunks::default()), &call(7));
    assert_eq!(delivered(&mut server), [7]);
    let mut client = WgPeer::client_announced(&[], |_| {});
    client.end.call(message(1, 1, &[]), &room(1, &[]));
    assert!(matches!(client.taken()[..], [Body::Call { .. }]));
}

/// Makes a call with these items, and room for these results, from a server to a client with this
/// level of support. Returns what the server sends, or the error.
fn called_back(
    reverse: ReverseSupport,
    items: &[Bytes],
    results: &[usize],
) -> Result<Vec<Body>, String> {
    let mut peer = WgPeer::listening(|server| {
        server.callbacks = CallbackOptions {
            credits: 4,
            chunks: true,
        };
    });
    peer = peer.exchanged(&Properties {
        reverse,
        ..Properties::default()
    });
    peer.end.call(message(5, 2, items), &room(2, results));
    let sent = peer.taken();
    match peer.end.finished.pop() {
        Some((_, result)) => Err(result.unwrap_err().to_string()),
        None => Ok(sent),
    }
}

#[test]
fn wg_s5_2_5_a_call_to_a_client_has_the_format_that_it_takes() {
    let long = [data(1, 9000)];
    let error = called_back(ReverseSupport::None, &long, &[9000]).unwrap_err();
    assert!(error.contains("takes no calls"), "{error}");
    let error = called_back(ReverseSupport::Simple, &long, &[9000]).unwrap_err();
    assert!(error.contains("responder takes 0"), "{error}");
    // Nor does this client continue replies: a call whose reply may be too long for one message is not sent.
    let error = called_back(ReverseSupport::Simple, &[], &[9000]).unwrap_err();
    assert!(error.contains("responder takes 0"), "{error}");
    for (level, result) in [
        (ReverseSupport::Simple, 100),
        (ReverseSupport::Continued, 9000),
    ] {
        let sent = called_back(level, &[], &[result]).unwrap();
        assert!(matches!(sent[..], [Body::Call { .. }]), "{sent:?}");
    }
    for level in [ReverseSupport::Continued, ReverseSupport::General] {
        let sent = called_back(level, &long, &[9000]).unwrap();
        let (last, parts) = sent.split_last().unwrap();
        assert_eq!(parts.len(), 2, "{level:?}");
        assert!(parts.iter().all(|part| matches!(part, Body::Middle { .. })));
        assert!(last.chunks().is_some_and(Chunks::is_empty), "{last:?}");
    }
}

/// Calls from server to client, and their replies, are continued as those of the other direction.
#[test]
fn calls_and_replies_of_both_directions_are_continued() {
    for chunks in [false, true] {
        let mut pair = Pair::echoing(configs_with(Version::TWO_WG, |client, server| {
            client.callbacks = CallbackOptions { credits: 4, chunks };
            server.callbacks = client.callbacks;
        }));
        pair.answer_back = Some(Box::new(support::echo));
        let items = [data(1, 9000)];
        let needed = room(2, &[9000]);
        pair.call(message(1, 2, &items), &needed).unwrap();
        let before = (pair.server.sent.len(), pair.client.sent.len());
        pair.server.call(message(1, 2, &items), &needed);
        pair.settle();
        let (_, result) = pair.server.finished.pop().unwrap();
        assert_eq!(open(&result.unwrap()).2, items);
        assert_eq!(pair.server.registrations, 0);
        for (end, before) in [(&pair.server, before.0), (&pair.client, before.1)] {
            let sent = end.sent[before..].iter();
            let types = sent.map(|(sent, _)| Prefix::peek(sent).unwrap().header_type);
            let types = types.filter(|&header_type| header_type != GRANT);
            assert_eq!(types.count(), 3, "chunks: {chunks}");
        }
    }
}

/// What the parts of an unfinished message hold is charged to the connection, and released with it.
#[test]
fn parts_beyond_the_memory_of_their_connection_end_it() {
    const MIB: usize = 1 << 20;
    let account = Budget::new(2 * MIB, 1).account();
    let mut config = support::server(
        Versions::only(Version::TWO_WG),
        Options::server(rpcrdma_protocols::base()),
    );
    config.pool = Pool::new(64 * MIB).charged_to(&account);
    let mut peer = WgPeer::new(config).exchanged(&Properties::default());
    let part = [0; 4000];
    let mut remaining = 3 * MIB;
    let mut held = 0;
    while peer.end.closed.is_none() {
        assert!(remaining > 4 * part.len(), "nothing ends it");
        held = account.held();
        remaining -= part.len();
        peer.send_middle(Direction::Call, 1, &part, remaining);
    }
    let reason = peer.end.closed.as_ref().unwrap();
    assert!(reason.contains("no memory"), "{reason}");
    assert!((MIB / 2..2 * MIB).contains(&held), "{held} bytes held");
    drop(peer);
    assert_eq!(account.held(), 0);
    // A message that comes to its end is not counted any more.
    let account = Budget::new(2 * MIB, 1).account();
    let mut config = support::server(
        Versions::only(Version::TWO_WG),
        Options::server(rpcrdma_protocols::base()),
    );
    config.pool = Pool::new(64 * MIB).charged_to(&account);
    let mut peer = WgPeer::new(config).exchanged(&Properties::default());
    let call = bytes(&message(1, 1000, &[]));
    let (first, last) = call.split_at(4000);
    peer.send_middle(Direction::Call, 1, first, last.len());
    let held = account.held();
    assert!(held >= 4000, "{held}");
    peer.send(1, inline_call(Chunks::default()), last);
    assert_eq!(peer.end.delivered.len(), 1);
    assert!(account.held() < PER_CALL + 4000, "{}", account.held());
}

/// The XID of a type that this end does not know need not be that of a call: the message is answered
/// and ends none.
#[test]
fn an_unknown_type_between_the_parts_of_a_reply_ends_no_call() {
    let mut peer = calling([1, 2]);
    let answer = bytes(&reply(1, 20, &[]));
    peer.send_middle(REPLY, 1, &answer[..8], answer.len() - 8);
    let credit = peer.flow.credit(100);
    let unknown = *EXPERIMENTAL.end();
    let words = [2, 2, credit, unknown].map(u32::to_be_bytes);
    peer.send_bytes(&words.concat().into());
    assert_eq!(peer.errors(), [(2, MISPLACED)]);
    peer.send(1, inline_reply(Chunks::default()), &answer[8..]);
    peer.send_rpc(inline_reply(Chunks::default()), &reply(2, 1, &[]));
    assert_eq!(finished(&mut peer), [(1, true), (2, true)]);
}
