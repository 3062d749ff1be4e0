//! A test of an extension of version 2 of the working group, defined outside the crate, whose messages
//! carry several calls each.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, put_words};
use rpcrdma_chunks::{CallChunks, Direction, Malformed};
use rpcrdma_extension::{
    Extension, IncomingCall, Outbox, ReceivedMessage, Refusal, Transferred, made_by,
};
use rpcrdma_negotiation::Version;
use rpcrdma_v2_wg::VERSION;
use support::{WgPeer, bytes, message, reply};

/// The header type: the number of calls and their lengths in bytes, and the calls.
const BATCH: u32 = 0xffff_ff93;
/// Maximum number of calls in a message.
const MOST: u32 = 8;

#[derive(Debug)]
struct Batches;

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
        for length in lengths {
            if length < 4 || length as usize > rest.len() {
                return Err(Malformed::Truncated.into());
            }
            let call = rest.split_to(length as usize);
            out.transferred(Transferred::BaseCall {
                call: IncomingCall {
                    xid: u32::from_be_bytes(*call.first_chunk().unwrap()),
                    requested: received.credits,
                    transmissions: 1,
                    message: Message::from_payload(call),
                    chunks: CallChunks::default(),
                    context: Box::new(()),
                },
                handle: None,
            });
        }
        Ok(())
    }
}

/// Sends calls with these XIDs in one message.
fn send(peer: &mut WgPeer, xids: &[u32]) {
    let calls: Vec<Vec<u8>> = xids
        .iter()
        .map(|&xid| bytes(&message(xid, 4, &[])).to_vec())
        .collect();
    let mut out = BytesMut::new();
    let credit = peer.flow.credit(peer.advertised);
    put_words(
        &mut out,
        [xids[0], VERSION, credit, BATCH, xids.len() as u32],
    );
    for call in &calls {
        put_words(&mut out, [call.len() as u32]);
    }
    out.extend_from_slice(&calls.concat());
    peer.send_bytes(&out.freeze());
}

/// Each call is delivered and answered for itself, and the message that carried them takes one credit.
#[test]
fn calls_that_come_together_are_answered_each_and_take_one_credit() {
    let mut peer = WgPeer::server(|server| {
        let batches = made_by(|_| Box::new(Batches));
        server.protocols.add(Version::TWO_WG, batches);
    });
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
