//! Credits that become fewer while a call waits (RFC 8166, section 3.3.1).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::{Bytes, BytesMut};
use rpcrdma_negotiation::Version;
use support::{Pair, Posted, configs_with, data, echo, message, open, reply, room};

/// Where the credits are in a header, bytes.
const CREDITS: std::ops::Range<usize> = 8..12;

fn granting(message: &Bytes, credits: u32) -> Bytes {
    let mut message = BytesMut::from(&message[..]);
    message[CREDITS].copy_from_slice(&credits.to_be_bytes());
    message.freeze()
}

/// A call that was planned in several Sends waits for room in the send queue. Then the grant is
/// lowered below the number of its Sends: it can never be sent like that, and is planned again.
#[test]
fn a_continued_call_that_has_too_few_credits_is_planned_again() {
    let mut pair = Pair::echoing(configs_with(Version::Two, |client, server| {
        for options in [client, server] {
            options.features = "cont".parse().unwrap();
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
