//! A test of an extension of version 2 of the working group, defined outside the crate, that claims
//! small calls: each travels in a header type of its own, behind a hint for the server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rpcrdma_chunks::{CallChunks, Chunks, Direction, Side};
use rpcrdma_connection::Options;
use rpcrdma_extension::{
    CallCandidate, CallToPlan, Cost, Extension, IncomingCall, NotTransferred, Outbox, Planned,
    ReceivedMessage, Refusal, ReplyCandidates, ReplyToPlan, TransferMode, Transferred,
    Transmission, Transmissions, made_by,
};
use rpcrdma_negotiation::Version;
use rpcrdma_v2_wg::{Prefix, header_type};
use support::{Pair, data, message, open, room};

/// The header type of a call with a hint: prefix, the hint, and the RPC message.
const HINTED: u32 = 0xffff_ff90;
/// Length of its header in bytes.
const HINTED_LEN: u64 = 20;

thread_local! {
    /// The hints that the server has received, each with the XID of its call.
    static HINTS: RefCell<Vec<(u32, u32)>> = const { RefCell::new(Vec::new()) };
}

/// The extension at one end.
#[derive(Debug)]
struct Hints {
    side: Side,
    /// Whether the peer has refused the header type.
    refused: bool,
}

impl Extension for Hints {
    fn name(&self) -> &'static str {
        "hints"
    }

    fn numbers(&self) -> &[u32] {
        &[HINTED]
    }

    fn direction(&self, _: u32) -> Option<Direction> {
        Some(Direction::Call)
    }

    fn received(
        &mut self,
        received: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        if self.side == Side::Client {
            return Err(Refusal::Unsupported);
        }
        let (hint, at) = received.read(|fields| fields.u32())?;
        let xid = received.xid;
        HINTS.with_borrow_mut(|hints| hints.push((xid, hint)));
        let whole: Bytes = received.message.concat().into();
        out.transferred(Transferred::BaseCall {
            call: IncomingCall {
                xid,
                requested: received.credits,
                transmissions: 1,
                message: Message::from_payload(whole.slice(at..)),
                chunks: CallChunks::default(),
                context: Box::new(()),
            },
            handle: None,
        });
        Ok(())
    }

    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        Some(self)
    }
}

impl TransferMode for Hints {
    fn claims_small_calls(&self) -> bool {
        true
    }

    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let len = HINTED_LEN + call.shape.stream_len();
        let items = call.shape.items().len() + call.need.items.len();
        if self.refused || items > 0 || len > call.limits.inline_send {
            return Vec::new();
        }
        vec![CallCandidate {
            cost: Cost {
                transmissions: 1,
                wire_bytes: len,
                reply_transmissions: 1,
                reply_wire_bytes: HINTED_LEN + call.need.stream_len(),
                ..Cost::default()
            },
            reads: Default::default(),
            write_chunks: Default::default(),
            reply_chunk: None,
            plan: Arc::new("with a hint"),
        }]
    }

    fn send_call(
        &mut self,
        xid: u32,
        _: &dyn Planned,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        let hint = Bytes::copy_from_slice(&(1000 + xid).to_be_bytes());
        let payload: Segments = message.gather(|_| true);
        let call = Transmission::new(HINTED, hint, payload);
        Ok(Transmissions::from_iter([call]))
    }

    fn plan_reply(&mut self, _: &ReplyToPlan<'_>) -> ReplyCandidates {
        ReplyCandidates::new()
    }

    fn send_reply(
        &mut self,
        _: u32,
        _: &dyn Planned,
        _: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        Err(NotTransferred("replies go by the base protocol".to_owned()))
    }

    fn call_refused(&mut self, _: u32, _: rpcrdma_extension::PeerError) {
        self.refused = true;
    }
}

fn hints(options: &mut Options) {
    let hints = made_by(|end| {
        Box::new(Hints {
            side: end.side,
            refused: false,
        })
    });
    options.protocols.add(Version::TWO_WG, hints);
}

/// Returns a pair whose client has the extension, and its server `both`.
fn pair(both: bool) -> Pair {
    Pair::echoing(support::configs_with(Version::TWO_WG, |client, server| {
        hints(client);
        if both {
            hints(server);
        }
    }))
}

/// Returns the header types of the calls that the client has sent.
fn calls(pair: &Pair) -> Vec<u32> {
    let types = pair.client.sent.iter().map(|(sent, _)| Prefix::peek(sent));
    types
        .map(|prefix| prefix.unwrap().header_type)
        .filter(|&number| number == HINTED || number == header_type::CALL_INLINE)
        .collect()
}

#[test]
fn small_calls_go_to_the_extension_that_claims_them_and_others_do_not() {
    let mut pair = pair(true);
    for xid in [1, 2] {
        let reply = pair.call(message(xid, 4, &[]), &room(4, &[])).unwrap();
        assert_eq!(open(&reply).0, xid);
    }
    let item = data(3, 8192);
    let call = message(3, 4, std::slice::from_ref(&item));
    let reply = pair.call(call, &room(4, &[8192])).unwrap();
    assert_eq!(open(&reply).2.concat(), item);
    assert_eq!(calls(&pair)[..2], [HINTED, HINTED]);
    assert!(!calls(&pair)[2..].contains(&HINTED));
    let hints = HINTS.with_borrow_mut(std::mem::take);
    assert_eq!(hints, [(1, 1001), (2, 1002)]);
}

/// A peer without the extension refuses the header type, and the calls are sent without it.
#[test]
fn a_small_call_that_is_refused_is_sent_by_the_base_protocol() {
    let mut pair = pair(false);
    for xid in [1, 2] {
        let reply = pair.call(message(xid, 4, &[]), &room(4, &[])).unwrap();
        assert_eq!(open(&reply).0, xid);
    }
    let inline = header_type::CALL_INLINE;
    assert_eq!(calls(&pair), [HINTED, inline, inline]);
}
