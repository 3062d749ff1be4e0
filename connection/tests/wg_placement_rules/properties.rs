//! Properties that were refused: what holds at either end.

use bytes::Bytes;
use rpcrdma_connection::Options;
use rpcrdma_ext_wg_ddp::ReplyPlaced;
use rpcrdma_ext_wg_ddp::header_type::{CALL_PLACED, REPLY_PLACED};
use rpcrdma_ext_wg_ddp::property_id::{SMALLEST_RESULT, SUPPORT};
use rpcrdma_negotiation::{Choice, Version};
use rpcrdma_v2_wg::header_type::{CALL_INLINE, CONNPROP_FINAL};
use rpcrdma_v2_wg::{ErrorBody, Prefix, Property};

use super::support::{self, WgPeer, bytes, data, message, reply, room};
use super::{
    RECEIVE_SIZE, announced, delivered, payload, placing, returned_by, send, send_last, server,
};

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
    assert_eq!(returned_by(peer, &[8192], vec![]), (false, 0));
}

/// The end applies what came before the refused message: the structure of the peer's receives, and the
/// Maximum Send Size. The peer cannot know that, so that both might number targets differently.
#[test]
fn an_end_that_has_refused_properties_neither_places_nor_takes_placed_calls() {
    for refused in [false, true] {
        let mut peer = WgPeer::listening(placing);
        peer.properties(announced(RECEIVE_SIZE), false);
        let _ = peer.take();
        let bad = Property {
            id: SMALLEST_RESULT,
            value: Bytes::from_static(&[0; 3]),
        };
        let last = if refused { vec![bad] } else { vec![] };
        peer.properties(last, true);
        let errors: Vec<_> = peer.errors().into_iter().map(|(_, error)| error).collect();
        let expected = [ErrorBody::BadPropertyValue];
        assert_eq!(errors, expected[usize::from(!refused)..]);
        let item = data(1, 8192);
        send_last(&mut peer, 6, item.len(), &payload(6, &item), &item);
        let expected = [(6, ErrorBody::InvalidHeaderType)];
        assert_eq!(peer.errors(), expected[usize::from(!refused)..]);
        let expected = [(6, vec![item])];
        assert_eq!(delivered(&mut peer), expected[usize::from(refused)..]);
        assert_eq!(returned_by(peer, &[8192], vec![]), (!refused, 0));
    }
}

/// A client that has refused properties of its server expects no placed results, and fails a call that has them.
#[test]
fn a_client_that_has_refused_properties_takes_no_placed_replies() {
    let by_server = WgPeer::announced_by_server(placing);
    let answer = bytes(&reply(7, 1, &[]));
    let placed = ReplyPlaced {
        writes: vec![],
        items: Default::default(),
        payload: answer.len() as u32,
    };
    for refused in [false, true] {
        let mut peer = WgPeer::new(support::client(Choice::Only(Version::TWO_WG), {
            let mut options = Options::client(rpcrdma_protocols::base());
            placing(&mut options);
            options
        }));
        peer.properties(by_server.clone(), false);
        let _ = peer.take();
        let bad = Property {
            id: SUPPORT,
            value: Bytes::from_static(&[0; 3]),
        };
        peer.properties(if refused { vec![bad] } else { vec![] }, true);
        assert_eq!(peer.errors().len(), usize::from(refused));
        peer.end.call(message(7, 1, &[]), &room(1, &[]));
        assert_eq!(peer.take().len(), 1);
        send(&mut peer, 7, REPLY_PLACED, &placed.encode(), &answer, &[]);
        let (xid, result) = peer.end.finished.pop().unwrap();
        assert_eq!((xid, result.is_ok()), (7, !refused));
        assert_eq!(peer.errors(), []);
    }
}
