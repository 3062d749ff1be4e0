//! Tests of messages on the wire, valid and invalid.

use batch::{Batches, ROPT_BATCH, XCHAR_BATCHMAX, decode, encode};
use bytes::Bytes;
use onc_rpc::Message;
use quickcheck::quickcheck;
use rpcrdma_chunks::{Direction, Side};
use rpcrdma_extension::{
    Action, Extension, Extensions, Outbox, PeerError, Property, ReceivedMessage, Refusal,
    SmallMessages, Start, Transferred,
};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Header, Optional};

/// Returns an RPC message of `words` words after its XID and type: a call or a reply.
fn message(xid: u32, kind: u32, words: usize) -> Bytes {
    let words = [xid, kind]
        .into_iter()
        .chain((0..words as u32).map(|n| n ^ 7));
    words.flat_map(u32::to_be_bytes).collect()
}

/// Returns an end that accepts 4 messages, whose peer accepts `peer`.
fn end(peer: u32) -> Extensions {
    let told = Property {
        id: XCHAR_BATCHMAX,
        value: Bytes::copy_from_slice(&peer.to_be_bytes()),
    };
    let list: Vec<Box<dyn Extension>> = vec![
        Box::new(Teller(Some(told))),
        Box::new(Batches::new(4, true)),
    ];
    let mut set = Extensions::new(Side::Server, 9, list).expect("one owner each");
    set.connected(None);
    set
}

/// Passes a property of the peer to the other extensions at the start, like the exchange of
/// characteristics.
#[derive(Debug)]
struct Teller(Option<Property>);

impl Extension for Teller {
    fn name(&self) -> &'static str {
        "teller"
    }

    fn numbers(&self) -> &[u32] {
        &[]
    }

    fn connected(&mut self, _: &Start<'_>, out: &mut Outbox<'_>) {
        self.0
            .take()
            .into_iter()
            .for_each(|property| out.share_property(property));
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, _: &mut Outbox<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Delivers an operation with this payload, in pieces of `piece` bytes.
fn arrive(
    set: &mut Extensions,
    xid: u32,
    direction: Direction,
    info: Bytes,
    payload: &[Bytes],
    piece: usize,
) -> (Routed, Vec<(u32, Bytes)>) {
    let optional = Optional {
        direction,
        opttype: ROPT_BATCH,
        info,
    };
    let header = Header {
        xid,
        credits: 5,
        body: Body::Optional(optional),
    };
    let mut whole = header.encode().to_vec();
    let at = whole.len();
    payload
        .iter()
        .for_each(|message| whole.extend_from_slice(message));
    let pieces: Vec<Bytes> = whole.chunks(piece).map(Bytes::copy_from_slice).collect();
    let routed = operations::route(set, &header, &pieces, at);
    let mut got = Vec::new();
    while let Some(action) = set.next_action() {
        let Action::Transferred { transferred, .. } = action else {
            panic!("{action:?}");
        };
        match transferred {
            Transferred::BaseCall { call, .. } => {
                assert_eq!((call.requested, call.transmissions), (5, 1));
                got.push((call.xid, call.message.gather(|_| true).concat().into()));
            }
            Transferred::AnyReply(reply) => {
                got.push((reply.xid, reply.message.gather(|_| true).concat().into()));
            }
            other => panic!("{other:?}"),
        }
    }
    (routed, got)
}

/// Has the first of these messages put into one. Returns how many it carries, its fields and its payload.
fn send(
    set: &mut Extensions,
    direction: Direction,
    messages: &[Bytes],
    room: u64,
) -> Option<(usize, Bytes, Bytes)> {
    let messages: Vec<Message> = messages
        .iter()
        .cloned()
        .map(Message::from_payload)
        .collect();
    let messages: Vec<&Message> = messages.iter().collect();
    let small = SmallMessages {
        direction,
        messages: &messages,
        room,
    };
    let (_, batching) = set.all_batching().next().expect("the extension");
    let batch = batching.send_batch(&small)?;
    let sent = batch.transmission;
    assert_eq!(
        (sent.number, sent.padding, sent.placed.len()),
        (ROPT_BATCH, 0, 0)
    );
    Some((batch.count, sent.fields, sent.payload.concat().into()))
}

#[test]
fn messages_come_out_as_they_went_in() {
    for (direction, kind) in [(Direction::Call, 0), (Direction::Reply, 1)] {
        for piece in [1 << 20, 52] {
            let mut set = end(3);
            let messages: Vec<Bytes> = (0..5).map(|n| message(70 + n, kind, n as usize)).collect();
            let (count, fields, payload) =
                send(&mut set, direction, &messages, 4096).expect("a batch");
            assert_eq!(count, 3, "as many as the peer takes");
            let (routed, got) = arrive(&mut set, 9, direction, fields, &[payload], piece);
            assert_eq!(routed, Routed::Taken);
            let expected: Vec<(u32, Bytes)> = (70..73).zip(messages).collect();
            assert_eq!(got, expected);
        }
    }
}

#[test]
fn a_batch_has_two_messages_at_least_and_fits_its_receive() {
    let send = |peer, room| {
        let messages: Vec<Bytes> = (0..3).map(|n| message(n, 0, 8)).collect();
        let sent = send(&mut end(peer), Direction::Call, &messages, room);
        sent.map(|(count, fields, payload)| (count, (fields.len() + payload.len()) as u64))
    };
    // The messages have 40 bytes each, and four for their length.
    let all = 4 + 3 * 44;
    assert_eq!(send(4, 4096), Some((3, all)));
    assert_eq!(send(4, all), Some((3, all)));
    assert_eq!(send(4, all - 1), Some((2, all - 44)));
    assert_eq!(send(4, 80), None);
    // A peer that announces nothing, or an invalid number, accepts one.
    assert_eq!(send(1, 4096), None);
    assert_eq!(send(0, 4096), None);
}

/// After an error, the peer is sent no batch any more.
#[test]
fn a_peer_that_refuses_a_batch_gets_no_other() {
    let mut set = end(4);
    let messages = [message(1, 0, 2), message(2, 0, 3)];
    assert!(send(&mut set, Direction::Call, &messages, 4096).is_some());
    let (number, _) = set.all_batching().next().expect("the extension");
    let batching = set.batching(number).expect("the same");
    batching.batch_refused(PeerError::Chunk);
    assert!(send(&mut set, Direction::Call, &messages, 4096).is_none());
}

/// In version 2 of the working group, all calls of a message take the credit of the first.
#[test]
fn where_messages_are_counted_one_call_takes_the_credit() {
    for (counts_calls, credits) in [(true, [1, 1]), (false, [1, 0])] {
        let list: Vec<Box<dyn Extension>> = vec![Box::new(Batches::new(4, counts_calls))];
        let mut set = Extensions::new(Side::Server, 9, list).expect("one owner");
        let fields = encode(&[16, 20]);
        let message = [&fields[..], &message(1, 0, 2), &message(2, 0, 3)].concat();
        let received = set.received(&ReceivedMessage {
            number: ROPT_BATCH,
            xid: 9,
            direction: Direction::Call,
            credits: 5,
            message: &[message.into()],
            fields: rpcrdma_extension::Fields::Open { at: 0 },
        });
        assert_eq!(received, Ok(()));
        for credit in credits {
            let Some(Action::Transferred { transferred, .. }) = set.next_action() else {
                panic!("a call is missing");
            };
            let Transferred::BaseCall { call, .. } = transferred else {
                panic!("{transferred:?}");
            };
            assert_eq!(call.transmissions, credit);
        }
    }
}

#[test]
fn a_wrong_batch_is_answered_with_bad_header_and_nothing_of_it_is_delivered() {
    let two = [message(1, 0, 2), message(2, 0, 3)];
    let right = encode(&[16, 20]);
    let words =
        |words: &[u32]| -> Bytes { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    let call = Direction::Call;
    for (what, xid, direction, info) in [
        ("replies that are calls", 1, Direction::Reply, right.clone()),
        ("a length too long", 1, call, encode(&[16, 24])),
        ("bytes left over", 1, call, encode(&[16])),
        (
            "a length that is no multiple of four",
            1,
            call,
            encode(&[18, 18]),
        ),
        (
            "a length too short for a message",
            1,
            call,
            encode(&[4, 32]),
        ),
        ("none", 1, call, encode(&[])),
        ("more than are taken", 1, call, encode(&[8; 5])),
        ("a count without lengths", 1, call, words(&[2, 16])),
        ("a count of billions", 1, call, words(&[u32::MAX, 16, 20])),
        ("bytes behind the lengths", 1, call, words(&[2, 16, 20, 0])),
        ("a sum over 32 bits", 1, call, encode(&[16, u32::MAX - 3])),
    ] {
        let (routed, got) = arrive(&mut end(4), xid, direction, info, &two, 1 << 20);
        assert!(got.is_empty(), "{what}: {got:?}");
        match direction {
            Direction::Call => assert!(
                matches!(&routed, Routed::Refused(PeerError::Chunk)),
                "{what}: {routed:?}"
            ),
            // An invalid reply is not answered.
            Direction::Reply => assert!(!matches!(routed, Routed::Base), "{what}: {routed:?}"),
        }
    }
}

/// Headers of the working group's version do not say which way their messages go.
#[test]
fn a_batch_of_neither_calls_nor_replies_is_refused() {
    for (kind, delivered) in [(0, true), (1, true), (2, false), (u32::MAX, false)] {
        let list: Vec<Box<dyn Extension>> = vec![Box::new(Batches::new(4, false))];
        let mut set = Extensions::new(Side::Server, 9, list).expect("one owner");
        let fields = encode(&[16, 20]);
        let message = [&fields[..], &message(1, kind, 2), &message(2, kind, 3)].concat();
        let received = set.received(&ReceivedMessage {
            number: ROPT_BATCH,
            xid: 9,
            direction: Direction::Call,
            credits: 5,
            message: &[message.into()],
            fields: rpcrdma_extension::Fields::Open { at: 0 },
        });
        assert_eq!(received.is_ok(), delivered, "{kind}: {received:?}");
        assert_eq!(set.next_action().is_some(), delivered, "{kind}");
    }
}

quickcheck! {
    fn lengths_come_out_as_they_went_in(lengths: Vec<u32>) -> bool {
        decode(&encode(&lengths), u32::MAX) == Ok(lengths)
    }

    fn any_bytes_are_decoded_or_refused(info: Vec<u8>) -> bool {
        let info = Bytes::from(info);
        decode(&info, 8).is_ok_and(|lengths| encode(&lengths) == info) || decode(&info, 8).is_err()
    }

    fn no_bytes_make_it_panic(info: Vec<u32>, payload: Vec<u8>) -> bool {
        let info = encode(&info);
        arrive(&mut end(4), 1, Direction::Call, info, &[payload.into()], 7);
        true
    }
}
