//! Credits that become fewer while a call waits (RFC 8166, section 3.3.1), and those of errors.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::{Bytes, BytesMut};
use rpcrdma_negotiation::Version;
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::{Answer, Body, Chunks, Direction, ErrorBody, Header};
use support::{
    Endpoint, Pair, Posted, Seen, bytes, configs_with, data, echo, message, open, reply, room,
};

/// Where the credits are in a header, bytes.
const CREDITS: std::ops::Range<usize> = 8..12;

fn granting(message: &Bytes, credits: u32) -> Bytes {
    let mut message = BytesMut::from(&message[..]);
    message[CREDITS].copy_from_slice(&credits.to_be_bytes());
    message.freeze()
}

/// An error frees its call for the next one. The credits in it are no grant, whether it refuses an
/// operation or a call.
#[test]
fn v2_s5_the_credits_of_an_error_are_no_grant() {
    let (config, _) = configs_with(Version::TWO, |client, _| client.credits = 8);
    let mut client = Endpoint::new(config);
    client.establish(Some(PrivateData::new(4096, 4096, false)));
    let refusal = |xid, error| Answer {
        xid,
        version: 2,
        error,
    };
    let asked = Seen::new(&client.sent[0].0).unwrap().xid;
    let answer = refusal(asked, ErrorBody::InvalidOption).encode(20);
    client.receive(&answer, None).unwrap();
    for xid in 0..6 {
        client.call(message(xid, 0, &[]), &room(0, &[]));
    }
    client.run();
    assert_eq!(client.sent.len(), 2, "the first operation and one call");
    for (xid, error) in [(0, ErrorBody::BadHeader), (1, ErrorBody::InvalidOption)] {
        let answer = refusal(xid, error).encode(20);
        client.receive(&answer, None).unwrap();
        client.run();
        let (ended, result) = client.finished.pop().unwrap();
        assert_eq!((ended, result.is_err()), (xid, true));
        assert_eq!(client.sent.len(), 3 + xid as usize, "{error}");
    }
    let header = Header {
        xid: 2,
        credits: 20,
        body: Body::Msg(Direction::Reply, Chunks::default()),
    };
    let answer = [&header.encode()[..], &bytes(&reply(2, 0, &[]))].concat();
    client.receive(&answer.into(), None).unwrap();
    client.run();
    assert!(client.finished.pop().unwrap().1.is_ok());
    assert_eq!(client.sent.len(), 7, "all calls have been sent");
}

/// A call that was planned in several Sends waits for room in the send queue. Then the grant is
/// lowered below the number of its Sends: it can never be sent like that, and is planned again.
#[test]
fn a_continued_call_that_has_too_few_credits_is_planned_again() {
    let mut pair = Pair::echoing(configs_with(Version::TWO, |client, server| {
        for options in [client, server] {
            options.protocols = rpcrdma_protocols::standard(&"cont".parse().unwrap());
            options.credits = 8;
        }
    }));
    pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
    // The server has not answered yet.
    pair.answer = None;
    pair.client.call(message(2, 0, &[]), &room(0, &[]));
    pair.settle();
    // Five Sends of 4096 bytes.
    pair.client.room = 0;
    let content = data(3, 17_000);
    let long = message(3, 0, std::slice::from_ref(&content));
    pair.client.call(long, &room(0, &[]));
    pair.client.run();
    let (id, call) = pair.server.delivered.pop_front().unwrap();
    pair.server.reply(id, echo(&call));
    pair.server.run();
    let Some(Posted::Send(short, None)) = pair.server.posted.pop_front() else {
        panic!("no reply");
    };
    pair.client.receive(&granting(&short, 2), None).unwrap();
    assert_eq!(
        pair.client.registrations, 0,
        "it was planned in Sends alone"
    );

    pair.answer_with(move |call| {
        let (xid, _, items) = open(call);
        assert_eq!(items.concat(), content.to_vec());
        Some(reply(xid, 0, &[]))
    });
    pair.client.room = usize::MAX;
    pair.settle();
    assert!(pair.client.registrations > 0, "and then with a read chunk");
    let (xid, result) = pair.client.finished.pop().unwrap();
    assert_eq!((xid, result.map(|reply| open(&reply).0)), (3, Ok(3)));
}
