//! Tests of credits when the send queue is short and contains messages other than calls (RFC 8166,
//! section 3.3.1; version-two-01, section 5).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use bytes::Bytes;
use rdma::{Attributes, Pool};
use rdma_support::fabric::{FakeDevice, World, address, attributes};
use rdma_support::{POOL, Pair, message, open, reply, room, speaking};
use rpc_transport::rdma::{Choice, Version, Versions};
use rpc_transport::{ConnectionId, ServerTransport};
use rpcrdma_extension::{Extension, Outbox, ReceivedMessage, Refusal, made_by};
use rpcrdma_v2::{Body, Direction, Header, Optional};

const CLIENT: usize = 0;
/// The number of an operation that no document assigns.
const WORD: u32 = 0x7fff_0002;

/// An extension that always has an operation to send.
#[derive(Debug)]
struct Talkative;

impl Extension for Talkative {
    fn name(&self) -> &'static str {
        "talkative"
    }

    fn numbers(&self) -> &[u32] {
        &[WORD]
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        if op.direction == Direction::Reply && !op.delimited()?.0.is_empty() {
            out.call(WORD, Bytes::new());
        }
        Ok(())
    }
}

/// Makes the server grant `credits` in an operation, which the client must answer or not.
fn grant(world: &mut World, credits: u32, answered: bool) {
    let body = Body::Optional(Optional {
        direction: Direction::Reply,
        opttype: WORD,
        info: Bytes::from_static(if answered { &[0; 4] } else { &[] }),
    });
    let header = Header {
        xid: 77,
        credits,
        body,
    };
    world.inject(CLIENT, &header.encode(), None);
}

fn held(pair: &Pair) -> Vec<u32> {
    let calls = pair.held.iter();
    calls.map(|(_, _, call)| open(call).0).collect()
}

/// An operation takes the last send-queue entry. A ready call then waits in the connection, so that
/// a grant that is lowered meanwhile still applies to it.
#[test]
fn s3_3_1_a_call_behind_a_message_of_an_extension_heeds_a_grant_that_is_lowered() {
    let (mut client, mut server) = speaking(Choice::Only(Version::TWO), Versions::default());
    for common in [&mut client.common, &mut server.common] {
        let talkative = made_by(|_| Box::new(Talkative));
        common.protocols.add(Version::TWO, talkative);
    }
    let world = World::new();
    let two_sends = Attributes {
        max_send_wr: 2,
        ..attributes()
    };
    let near = FakeDevice::new(&world, two_sends, Pool::new(POOL));
    let far = FakeDevice::new(&world, attributes(), Pool::new(POOL));
    let mut pair = Pair::new(Box::new(near), client, Box::new(far), server, address());
    let conn = pair.connect();
    answer_one(&mut pair, conn);
    let stall = |on: bool| world.borrow_mut().stalled = on.then_some(CLIENT);
    let submit = |pair: &mut Pair, xid| pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));

    // Two fill the queue, so that two are ready and have neither room nor, in the end, a credit.
    stall(true);
    for xid in 10..14 {
        submit(&mut pair, xid);
    }
    grant(&mut world.borrow_mut(), 1, false);
    pair.settle();
    stall(false);
    pair.settle();
    assert_eq!(held(&pair), [10, 11]);

    // One message has credits for both, and is to be answered: there is room for the answer and
    // one.
    stall(true);
    grant(&mut world.borrow_mut(), 4, true);
    pair.settle();
    assert_eq!(world.borrow().posted(CLIENT), 2);
    grant(&mut world.borrow_mut(), 1, false);
    pair.settle();
    stall(false);
    pair.settle();
    assert_eq!(held(&pair), [10, 11, 12], "one credit, and three are out");

    for _ in 10..13 {
        let (at, token, call) = pair.held.remove(0);
        let answer = reply(open(&call).0, 0, &[]);
        pair.server.reply(at, token, Some(answer), pair.now());
    }
    pair.settle();
    assert_eq!(held(&pair), [13]);
    assert!(pair.down.is_empty() && pair.server_down.is_empty());
}

/// Completes one call, whose reply grants the client all the credits it requests.
fn answer_one(pair: &mut Pair, conn: ConnectionId) {
    pair.submit(conn, message(1, 0, &[]), &room(0, &[]));
    pair.until(|pair| !pair.held.is_empty());
    let (at, token, _) = pair.held.remove(0);
    let answer = reply(1, 0, &[]);
    pair.server.reply(at, token, Some(answer), pair.now());
    pair.until(|pair| pair.ended.contains_key(&(conn, 1)));
}
