//! A test of an extension of both versions 2, defined outside the crate, whose messages carry several
//! calls each. A message takes one credit, which is that of its first call.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, put_words};
use rpcrdma_chunks::{CallChunks, Direction, Malformed};
use rpcrdma_connection::Options;
use rpcrdma_connection::flow::FURTHER_CALLS;
use rpcrdma_extension::{
    Extension, IncomingCall, Outbox, ReceivedMessage, Refusal, Transferred, made_by,
};
use rpcrdma_negotiation::{Version, Versions};
use rpcrdma_v2::{Body, Header, Optional};
use rpcrdma_v2_wg::VERSION;
use support::{Endpoint, Seen, WgPeer, bytes, message, reply};

/// The header type: the number of calls and their lengths in bytes, and the calls.
const BATCH: u32 = 0xffff_ff93;
/// Maximum number of calls in a message.
const MOST: u32 = 100;
/// Credits of the server.
const CREDITS: u32 = 4;

#[derive(Debug)]
struct Batches {
    /// Whether the extension plans the replies itself, if they do not fit one plain Send.
    plans_replies: bool,
}

impl Extension for Batches {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn numbers(&self) -> &[u32] {
        &[BATCH]
    }

    fn direction(&self, _: u32) -> Option<Direction> {
        Some(Direction::Call)
    }

    fn received(
        &mut self,
        received: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        let (lengths, at) = received.read(|fields| {
            let count = fields.u32()?;
            if count > MOST {
                return Err(Malformed::TooMany("calls in a batch"));
            }
            (0..count)
                .map(|_| fields.u32())
                .collect::<Result<Vec<_>, _>>()
        })?;
        let mut rest = Bytes::from(received.message.concat()).slice(at..);
        for (at, length) in lengths.into_iter().enumerate() {
            if length < 4 || length as usize > rest.len() {
                return Err(Malformed::Truncated.into());
            }
            let call = rest.split_to(length as usize);
            let call = IncomingCall {
                xid: u32::from_be_bytes(*call.first_chunk().unwrap()),
                requested: received.credits,
                transmissions: u32::from(at == 0),
                message: Message::from_payload(call),
                chunks: CallChunks::default(),
                context: Box::new(()),
            };
            let handle = None;
            out.transferred(match self.plans_replies {
                true => Transferred::Call(call),
                false => Transferred::BaseCall { call, handle },
            });
        }
        Ok(())
    }
}

fn batches(version: Version, plans_replies: bool) -> impl Fn(&mut Options) {
    move |server| {
        server.credits = CREDITS;
        let batches = made_by(move |_| Box::new(Batches { plans_replies }));
        server.protocols.add(version, batches);
    }
}

/// Returns the fields of a message with calls with these XIDs, and its payload.
fn batch(xids: &[u32]) -> (Bytes, Vec<u8>) {
    let calls: Vec<Vec<u8>> = xids
        .iter()
        .map(|&xid| bytes(&message(xid, 1, &[])))
        .collect();
    let mut fields = BytesMut::new();
    put_words(&mut fields, [xids.len() as u32]);
    for call in &calls {
        put_words(&mut fields, [call.len() as u32]);
    }
    (fields.freeze(), calls.concat())
}

/// Sends calls with these XIDs in one message of version 2 of the working group.
fn send(peer: &mut WgPeer, xids: &[u32]) {
    let (fields, calls) = batch(xids);
    let mut out = BytesMut::new();
    let credit = peer.flow.credit(peer.advertised);
    put_words(&mut out, [xids[0], VERSION, credit, BATCH]);
    out.extend_from_slice(&fields);
    out.extend_from_slice(&calls);
    peer.send_bytes(&out.freeze());
}

/// A server of either version 2, and the peer that the test plays.
enum Server {
    Of2016(Box<Endpoint>),
    Wg(Box<WgPeer>),
}

impl Server {
    fn new(version: Version, plans_replies: bool) -> Self {
        let change = batches(version, plans_replies);
        if version == Version::TWO_WG {
            return Self::Wg(Box::new(WgPeer::server(change)));
        }
        let mut options = Options::server(rpcrdma_protocols::base());
        change(&mut options);
        let mut end = Endpoint::new(support::server(Versions::only(version), options));
        end.establish(None);
        Self::Of2016(Box::new(end))
    }

    fn end(&mut self) -> &mut Endpoint {
        match self {
            Self::Of2016(end) => end,
            Self::Wg(peer) => &mut peer.end,
        }
    }

    /// Sends calls with these XIDs in one message.
    fn send(&mut self, xids: &[u32]) {
        let end = match self {
            Self::Wg(peer) => return send(peer, xids),
            Self::Of2016(end) => end,
        };
        let (info, calls) = batch(xids);
        let header = Header {
            xid: xids[0],
            credits: CREDITS,
            body: Body::Optional(Optional {
                direction: Direction::Call,
                opttype: BATCH,
                info,
            }),
        };
        let mut out = BytesMut::new();
        header.encode_into(&mut out);
        out.extend_from_slice(&calls);
        end.receive(&out.freeze(), None).unwrap();
        end.run();
    }

    /// Answers all calls, and returns the XIDs of the replies that were sent.
    fn answer(&mut self) -> Vec<u32> {
        let end = self.end();
        let before = end.sent.len();
        while let Some((id, call)) = end.delivered.pop_front() {
            let (xid, ..) = support::open(&call);
            end.reply(id, Some(reply(xid, 1, &[])));
            end.run();
        }
        let replies = end.sent[before..].iter();
        let replies = replies.filter_map(|(sent, _)| Seen::new(sent));
        replies.map(|seen| seen.xid).collect()
    }
}

const BOTH: [Version; 2] = [Version::TWO, Version::TWO_WG];

/// The messages of a peer are limited, and not the calls in them: each is answered, in version 2 of
/// 2016 by the extension that carried it as well.
#[test]
fn there_may_be_more_calls_in_a_message_than_credits() {
    for (version, plans_replies) in [
        (Version::TWO, false),
        (Version::TWO, true),
        (Version::TWO_WG, false),
    ] {
        let mut server = Server::new(version, plans_replies);
        for round in 0..3 {
            let xids: Vec<u32> = (1..=40).map(|n| round * 100 + n).collect();
            server.send(&xids);
            assert_eq!(server.end().closed, None, "{version} {plans_replies}");
            assert_eq!(server.answer(), xids, "{version} {plans_replies}");
        }
    }
}

/// Calls without a credit are limited by those that the peer has: beyond that, nothing would bound the
/// calls in progress.
#[test]
fn too_many_calls_without_a_credit_close_the_connection() {
    for version in BOTH {
        let mut server = Server::new(version, false);
        for n in 0..CREDITS - 1 {
            let xids: Vec<u32> = (1..=80).map(|call| n * 100 + call).collect();
            server.send(&xids);
            assert_eq!(server.end().closed, None, "{version}");
        }
        assert_eq!(server.end().delivered.len(), 240, "{version}");
        let xids: Vec<u32> = (1001..=1080).collect();
        server.send(&xids);
        let capacity = FURTHER_CALLS * CREDITS;
        let closed = server.end().closed.as_deref();
        let expected = format!(
            "{} calls outstanding where {capacity} were granted at most",
            capacity + 1
        );
        assert_eq!(closed, Some(&*expected), "{version}");
    }
}

/// Replies that wait for credits of the peer count like their calls, which have ended.
#[test]
fn replies_that_wait_count_like_calls_without_a_credit() {
    let mut peer = WgPeer::server(batches(Version::TWO_WG, false));
    let mut n = 0;
    while peer.end.closed.is_none() {
        assert!(n < CREDITS, "nothing ends it");
        let xids: Vec<u32> = (1..=MOST).map(|call| n * 1000 + call).collect();
        // The peer has granted 100 messages when the connection began, and grants no more.
        peer.advertised = 0;
        send(&mut peer, &xids);
        while let Some((id, call)) = peer.end.delivered.pop_front() {
            let (xid, ..) = support::open(&call);
            peer.end.reply(id, Some(reply(xid, 1, &[])));
        }
        peer.end.run();
        n += 1;
    }
    assert_eq!(n, CREDITS);
    let reason = peer.end.closed.as_ref().unwrap();
    assert!(reason.contains("granted at most"), "{reason}");
}

/// The first reply to a message frees its credit, before the others have left the send queue.
#[test]
fn more_replies_may_wait_for_the_send_queue_once_calls_came_together() {
    for version in BOTH {
        let mut server = Server::new(version, false);
        let unsent = |server: &mut Server| server.end().connection.most_unsent_messages();
        server.send(&[1]);
        let before = unsent(&mut server);
        assert!(before < 4 * CREDITS, "{version}: {before}");
        server.send(&[2, 3]);
        server.answer();
        let further = CREDITS * FURTHER_CALLS;
        assert_eq!(unsent(&mut server), before + further, "{version}");
    }
}

/// Calls in progress hold up the peer, however many came in a message: the credit of the message comes
/// back when all of them are answered.
#[test]
fn the_credit_of_a_message_comes_back_with_the_last_reply() {
    let mut peer = WgPeer::server(batches(Version::TWO_WG, false));
    send(&mut peer, &[1, 2, 3, 4, 5, 6]);
    let mut granted = Vec::new();
    for xid in 1..=6 {
        peer.reply(Some(reply(xid, 1, &[])));
        let sent = peer.take();
        granted.extend(sent.iter().map(|reply| reply.header.credit));
    }
    let before = granted[0];
    let more: Vec<u32> = granted.iter().map(|credit| credit - before).collect();
    assert_eq!(more, [0, 0, 0, 0, 0, 1]);
}

/// Each call is delivered and answered for itself, and the message that carried them takes one credit.
#[test]
fn calls_that_come_together_are_answered_each_and_take_one_credit() {
    let mut peer = WgPeer::server(batches(Version::TWO_WG, false));
    let mut credits = Vec::new();
    for xids in [&[1_u32][..], &[2, 3, 4], &[5]] {
        send(&mut peer, xids);
        let delivered: Vec<u32> = peer
            .end
            .delivered
            .iter()
            .map(|(_, call)| support::open(call).0)
            .collect();
        assert_eq!(delivered, xids);
        for &xid in xids {
            peer.reply(Some(reply(xid, 4, &[])));
        }
        let replies = peer.take();
        let answered: Vec<u32> = replies.iter().map(|reply| reply.header.xid).collect();
        assert_eq!(answered, xids);
        credits.extend(replies.last().map(|reply| reply.header.credit));
    }
    // When all calls are answered, the credit value is the number of messages received, and of those
    // that can still be.
    assert_eq!([credits[1] - credits[0], credits[2] - credits[1]], [1, 1]);
}
