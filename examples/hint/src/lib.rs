//! An example extension of the working group's version 2: small calls that carry a hint of one word.
//!
//! A caller attaches a [`Hint`] to a call ([`rpc_transport::Call::with_extra`]), and the service at the
//! other end finds it ([`rpc_transport::Request::extra`]). In between, the call travels in a header type of
//! its own, whose only field is the hint. By a property, an end says that it takes such calls. To an end
//! that does not, the base protocol sends them without the hint, as it does longer calls.

#![forbid(unsafe_code)]

mod program;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use onc_rpc::Message;
use rpcrdma::{Protocols, Version};
use rpcrdma_chunks::{Chunks, Direction};
use rpcrdma_extension::{
    CallCandidate, CallToPlan, Extension, IncomingCall, NotTransferred, Outbox, PeerError, Planned,
    Property, ReceivedMessage, Refusal, TransferMode, Transferred, Transmission, Transmissions,
    made_by,
};

pub use program::{Queue, URGENT};

/// The header type of a call with a hint, and the property, from the range for experiments.
pub const HINTED: u32 = 0xffff_ff10;
/// Length of its header in bytes: the prefix of all headers (version-two-07, section 6.2), and the hint.
const HEADER: u64 = 16 + 4;

/// The word that a caller gives the service with a call: here, how urgent it is. 0 is no hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint(pub u32);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with hint {}", self.0)
    }
}

/// Returns protocols that carry hints. `default` is that of calls whose caller gives none.
#[must_use]
pub fn extend(protocols: Protocols, default: Hint) -> Protocols {
    let peer_takes = false;
    let hints = Hints {
        default,
        peer_takes,
    };
    protocols.with(Version::TWO_WG, made_by(move |_| Box::new(hints)))
}

/// The state of one end of a connection.
#[derive(Clone, Copy, Debug)]
struct Hints {
    default: Hint,
    peer_takes: bool,
}

impl Extension for Hints {
    fn name(&self) -> &'static str {
        "hint"
    }

    fn numbers(&self) -> &[u32] {
        &[HINTED]
    }

    fn direction(&self, _: u32) -> Option<Direction> {
        Some(Direction::Call)
    }

    fn properties(&self) -> Vec<Property> {
        // It has no value: its presence says all.
        let (id, value) = (HINTED, Bytes::new());
        vec![Property { id, value }]
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        self.peer_takes |= property.id == HINTED;
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let (hint, at) = it.read(|fields| fields.u32())?;
        let mut message = Message::without_items(it.payload(at));
        message.extras_mut().insert(Hint(hint));
        let call = IncomingCall::in_one_message(it, message);
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

    fn plan_state(&self) -> Option<u64> {
        Some(u64::from(self.peer_takes))
    }

    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let hint = *call.extras.get().unwrap_or(&self.default);
        let carried = self.peer_takes && hint != Hint::default();
        let candidate = call.in_one_message(HEADER, Arc::new(hint));
        candidate.filter(|_| carried).into_iter().collect()
    }

    fn send_call(
        &mut self,
        _: u32,
        plan: &dyn Planned,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        let Hint(hint) = plan.of::<Hint>()?;
        let fields = Bytes::copy_from_slice(&hint.to_be_bytes());
        let call = Transmission::new(HINTED, fields, message.payload().clone());
        Ok(Transmissions::from_iter([call]))
    }

    fn call_refused(&mut self, _: u32, _: PeerError) {
        self.peer_takes = false;
    }
}
