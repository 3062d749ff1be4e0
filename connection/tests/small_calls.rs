//! A test of an extension of both versions 2, defined outside the crate, that claims small calls: each
//! that its caller has given a hint travels in a message of the extension, behind the hint, which the
//! upper layer of the server sees.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use onc_rpc::Message;
use rpcrdma_chunks::{Chunks, Direction, Side};
use rpcrdma_connection::Options;
use rpcrdma_extension::{
    CallCandidate, CallToPlan, Extension, IncomingCall, NotTransferred, Outbox, Planned,
    ReceivedMessage, Refusal, TransferMode, Transferred, Transmission, Transmissions, made_by,
};
use rpcrdma_negotiation::Version;
use support::{Pair, configs_with, data, echo, message, open, room};

/// The number of a message that has a hint and a call.
const HINTED: u32 = 0xffff_ff90;
/// Length of its header in bytes, at most.
const HINTED_LEN: u64 = 32;

/// A value that a caller attaches to a call, and the upper layer of the server sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hint(u32);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with hint {}", self.0)
    }
}

thread_local! {
    /// The XIDs of the calls that the extension has sent.
    static SENT: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// The extension at one end.
#[derive(Debug)]
struct Hints {
    side: Side,
    /// Whether the peer has refused the message.
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
        let mut message = Message::without_items(received.payload(at));
        message.extras_mut().insert(Hint(hint));
        let call = IncomingCall::in_one_message(received, message);
        out.transferred(Transferred::BaseCall { call, handle: None });
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
        let hint = call.extras.get::<Hint>().filter(|_| !self.refused);
        let candidate = hint.and_then(|&hint| call.in_one_message(HINTED_LEN, Arc::new(hint)));
        candidate.into_iter().collect()
    }

    fn send_call(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        SENT.with_borrow_mut(|sent| sent.push(xid));
        let Hint(hint) = plan.of::<Hint>()?;
        let hint = Bytes::copy_from_slice(&hint.to_be_bytes());
        let call = Transmission::new(HINTED, hint, message.payload().clone());
        Ok(Transmissions::from_iter([call]))
    }

    fn call_refused(&mut self, _: u32, _: rpcrdma_extension::PeerError) {
        self.refused = true;
    }
}

/// Adds the extension to this version, or if that has none, to one that is not spoken.
fn add_hints(version: Version, options: &mut Options) {
    let version = match version {
        Version::ONE => Version::TWO_WG,
        version => version,
    };
    let hints = made_by(|end| {
        Box::new(Hints {
            side: end.side,
            refused: false,
        })
    });
    options.protocols.add(version, hints);
}

/// A call as the server's upper layer sees it.
type Call = (u32, Option<Hint>);

/// Returns an echoing pair whose client has the extension, and its server `both`, and the calls that
/// the server executes.
fn pair(version: Version, both: bool) -> (Pair, Rc<RefCell<Vec<Call>>>) {
    let mut pair = Pair::echoing(configs_with(version, |client, server| {
        add_hints(version, client);
        if both {
            add_hints(version, server);
        }
    }));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let calls = Rc::clone(&seen);
    pair.answer_with(move |call| {
        let (xid, ..) = open(call);
        let hint = call.extras().get::<Hint>().copied();
        calls.borrow_mut().push((xid, hint));
        echo(call)
    });
    (pair, seen)
}

/// Makes a call with an item of this length, if it is not zero, and this hint.
fn call(pair: &mut Pair, xid: u32, len: usize, hint: Option<Hint>) {
    let item = (len > 0).then(|| data(xid, len));
    let mut call = message(xid, 4, item.as_slice());
    if let Some(hint) = hint {
        call.extras_mut().insert(hint);
    }
    let lengths = item.as_ref().map(Bytes::len);
    let reply = pair.call(call, &room(4, lengths.as_slice())).unwrap();
    let (answered, _, items) = open(&reply);
    assert_eq!((answered, items.first()), (xid, item.as_ref()));
}

fn sent_by_the_extension() -> Vec<u32> {
    SENT.with_borrow_mut(std::mem::take)
}

#[test]
fn small_calls_with_a_hint_go_to_the_extension_that_claims_them_and_others_do_not() {
    for version in [Version::TWO, Version::TWO_WG] {
        let (mut pair, seen) = pair(version, true);
        // Calls of the same lengths, with a hint and without: no plan is taken for the other's.
        let calls = [
            (1, 0, Some(Hint(7))),
            (2, 0, None),
            (3, 0, Some(Hint(8))),
            (4, 8192, None),
            (5, 8192, Some(Hint(9))),
        ];
        for (xid, len, hint) in calls {
            call(&mut pair, xid, len, hint);
        }
        assert_eq!(sent_by_the_extension(), [1, 3], "{version}");
        let expected = calls.map(|(xid, len, hint)| (xid, hint.filter(|_| len == 0)));
        assert_eq!(*seen.borrow(), expected, "{version}");
    }
}

/// A peer without the extension refuses the message, and the call is sent without it. Version 1 has
/// no extensions, so that nobody carries a hint.
#[test]
fn a_call_whose_hint_cannot_be_carried_is_sent_without() {
    for (version, tried) in [
        (Version::ONE, &[][..]),
        (Version::TWO, &[1]),
        (Version::TWO_WG, &[1]),
    ] {
        let (mut pair, seen) = pair(version, false);
        for xid in [1, 2] {
            call(&mut pair, xid, 0, Some(Hint(7)));
        }
        assert_eq!(sent_by_the_extension(), tried, "{version}");
        assert_eq!(*seen.borrow(), [(1, None), (2, None)], "{version}");
    }
}
