//! What a client makes of messages that could go either way.

use std::time::Duration;

use bytes::BytesMut;
use onc_rpc::{Encoder, Message, Segments};
use rdma::Pool;
use rpcrdma_negotiation::{Choice, ClientNegotiation, Version};
use rpcrdma_v1::{Body, Chunks, Header};
use rpcrdma_v2::Side;

use crate::ReplyRoom;
use crate::rdma::conversation::{ClientConversation, Setup};
use crate::rdma::{
    RdmaClientOptions, ReceiveStructure, Requester, RequesterAction, RequesterConfig,
};

fn payload(xid: u32, msg_type: u32) -> Message {
    let mut words = Encoder::new();
    words.u32(xid).u32(msg_type).u32(0);
    words.finish()
}

/// A message of version 1.
fn message(xid: u32, credits: u32, msg_type: u32) -> Segments {
    let body = Body::Msg(Chunks::default());
    let mut bytes = BytesMut::from(&Header { xid, credits, body }.encode()[..]);
    for piece in payload(xid, msg_type).gather(|_| true) {
        bytes.extend_from_slice(&piece);
    }
    Segments::from_iter([bytes.freeze()])
}

fn connected() -> ClientConversation {
    let choice = Choice::Only(Version::One);
    let negotiation = ClientNegotiation::new(choice, None, Duration::from_secs(1));
    let pool = Pool::new(1 << 20);
    let requester = Requester::new(RequesterConfig { credits: 8, pool });
    let mut talk = ClientConversation::new(negotiation, requester, None);
    let setup = Setup {
        side: Side::Client,
        options: RdmaClientOptions::default().common,
        max_segment: 1 << 20,
        receives: ReceiveStructure::plain(4096),
        spare_receives: 0,
        peer: None,
    };
    talk.connected(setup, 1, Duration::ZERO).unwrap();
    talk
}

fn sends(talk: &mut ClientConversation) -> usize {
    let actions = std::iter::from_fn(|| talk.requester.next_action());
    actions
        .filter(|action| matches!(action, RequesterAction::Send { .. }))
        .count()
}

/// Section 4.1 of RFC 8167: neither a call nor a reply, so that nobody knows whether its credits are
/// asked for or granted.
#[test]
fn rfc8167_s4_1_credits_without_a_direction_are_ignored() {
    let mut talk = connected();
    for xid in 1..=4 {
        talk.requester
            .submit(xid, payload(xid, onc_rpc::CALL), &ReplyRoom::default());
    }
    assert_eq!(sends(&mut talk), 1, "one credit until more are granted");
    for msg_type in [2, u32::MAX] {
        talk.received(message(1, 8, msg_type), None);
        assert_eq!((sends(&mut talk), talk.requester.in_flight()), (0, 1));
    }
    // A call of the server's asks for them.
    talk.received(message(1, 8, onc_rpc::CALL), None);
    assert_eq!((sends(&mut talk), talk.requester.in_flight()), (0, 1));
    assert_eq!(talk.requester.counters().discarded, 3);
    // The reply grants them.
    talk.received(message(1, 8, onc_rpc::REPLY), None);
    assert_eq!((sends(&mut talk), talk.requester.in_flight()), (3, 3));
}
