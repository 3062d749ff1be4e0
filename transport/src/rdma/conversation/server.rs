//! A server's end of a connection.

use onc_rpc::Segments;
use rpcrdma_negotiation::{Decision, Features, FirstHeard, ServerNegotiation, Version};
use rpcrdma_v2::Direction;
use rpcrdma_v2::extension::OpttypeTaken;

use super::{Extended, Heard, Part, Setup, Wanted, first};
use crate::rdma::wire::{self, Answer, BadCall};
use crate::rdma::{ReceiveStructure, Responder};

/// XID of a server's first operation. Nobody else's are in the same space, as it makes no calls.
const FIRST_XID: u32 = u32::MAX;

/// A server's end of a connection.
pub(crate) struct ServerConversation {
    negotiation: ServerNegotiation,
    /// In version 1 until the first message shows that it is another.
    pub(crate) responder: Responder,
    setup: Setup,
    second: Option<Box<Extended>>,
}

impl ServerConversation {
    pub(crate) fn new(negotiation: ServerNegotiation, responder: Responder, setup: Setup) -> Self {
        Self {
            negotiation,
            responder,
            setup,
            second: None,
        }
    }

    /// What is spoken, once a client has begun.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.negotiation.decision()
    }

    /// What may be used, and why, once the version is known.
    pub(crate) fn features(&self) -> Option<Features> {
        let version = self.negotiation.version()?;
        Some(self.setup.features(version, self.second.as_deref()))
    }

    /// A message arrived.
    ///
    /// # Errors
    /// Extensions that were chosen do not go together.
    pub(crate) fn received(&mut self, message: Segments) -> Result<(), OpttypeTaken> {
        match self.negotiation.received(first(&message)) {
            FirstHeard::Speak(Version::One) => self.responder.received_in(message),
            FirstHeard::Speak(Version::Two) => {
                if self.second.is_none() {
                    let second = Extended::new(self.setup.clone(), FIRST_XID)?;
                    self.responder.speak(Version::Two);
                    second.apply(&mut Part::Responder(&mut self.responder));
                    self.second = Some(Box::new(second));
                }
                self.extended(message);
            }
            FirstHeard::Refused(answer) => self.responder.refuse(&BadCall {
                answer: Some(Answer::V2(answer)),
                reason: format!("a message of version {}", answer.version),
            }),
            FirstHeard::Discarded => self.responder.refuse(&BadCall {
                answer: None,
                reason: "too short, or an error, in no version that is spoken".to_owned(),
            }),
        }
        Ok(())
    }

    fn extended(&mut self, message: Segments) {
        let Some(second) = &mut self.second else {
            return;
        };
        match second.received(message) {
            Heard::Base(header, payload) if header.direction() == Direction::Call => {
                let call = wire::v2::call(header, payload, self.responder.max_call());
                self.responder.take(call);
            }
            Heard::Base(..) => self.responder.refuse(&BadCall {
                answer: None,
                reason: "a reply to a server that has called nobody".to_owned(),
            }),
            Heard::Taken(Direction::Call, Some(credits)) => self.responder.asked(credits),
            Heard::Taken(..) => {}
            Heard::Bad(bad) => self.responder.refuse(&bad),
        }
    }

    /// Whether version 2 is spoken.
    pub(crate) fn is_second(&self) -> bool {
        self.second.is_some()
    }

    /// Every receive is made like that.
    pub(crate) fn receives_replaced(&mut self, receives: &ReceiveStructure) {
        if let Some(second) = &mut self.second {
            second.receives_replaced(receives);
        }
    }

    /// The next thing that the driver must do, beside what the responder wants and before it.
    pub(crate) fn next(&mut self) -> Option<Wanted> {
        let part = Part::Responder(&mut self.responder);
        self.second.as_mut()?.next(part)
    }
}
