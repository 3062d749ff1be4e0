//! A server's end of a connection.

use onc_rpc::Segments;
use rdma::Stag;
use rpcrdma_negotiation::{Decision, Features, FirstHeard, ServerNegotiation, Version};
use rpcrdma_v1::Agreed;
use rpcrdma_v2::Direction;
use rpcrdma_v2::extension::{Backward, OpttypeTaken};

use super::{Extended, Heard, Parts, Setup, Wanted, first};
use crate::rdma::backward;
use crate::rdma::requester::RequesterConfig;
use crate::rdma::wire::{self, Answer, BadCall, Plain};
use crate::rdma::{ReceiveStructure, Requester, Responder};

/// XID of a server's first operation, and downwards: its calls are counted upwards from the other end.
const FIRST_XID: u32 = u32::MAX;

/// A server's end of a connection.
pub(crate) struct ServerConversation {
    negotiation: ServerNegotiation,
    /// In version 1 until the first message shows that it is another.
    pub(crate) responder: Responder,
    /// Calls the client, if this server makes calls and the version is known.
    pub(crate) backward: Option<Box<Requester>>,
    setup: Setup,
    second: Option<Box<Extended>>,
    callbacks: RequesterConfig,
}

impl ServerConversation {
    /// `callbacks` is what the backward direction's requester is made with; without credits there is
    /// none.
    pub(crate) fn new(
        negotiation: ServerNegotiation,
        responder: Responder,
        setup: Setup,
        callbacks: RequesterConfig,
    ) -> Self {
        Self {
            negotiation,
            responder,
            backward: None,
            setup,
            second: None,
            callbacks,
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
    pub(crate) fn received(
        &mut self,
        message: Segments,
        invalidated: Option<Stag>,
    ) -> Result<(), OpttypeTaken> {
        match self.negotiation.received(first(&message)) {
            FirstHeard::Speak(Version::One) => {
                if self.callbacks.credits > 0 && self.backward.is_none() {
                    let agreed = Agreed::new(self.setup.peer, self.setup.options.private_data());
                    let (send, receive) = (agreed.reply_inline, agreed.call_inline);
                    let limits = self.setup.limits(Version::One, send, receive);
                    let mut requester = Requester::new(self.callbacks.clone());
                    requester.connected(Version::One, limits);
                    self.backward = Some(Box::new(requester));
                }
                self.version_1(message, invalidated);
            }
            FirstHeard::Speak(Version::Two) => {
                if self.second.is_none() {
                    let second = Extended::new(self.setup.clone(), FIRST_XID)?;
                    self.responder.speak(Version::Two);
                    if self.callbacks.credits > 0 {
                        let mut requester = Requester::new(self.callbacks.clone());
                        requester.connected(Version::Two, second.limits());
                        self.backward = Some(Box::new(requester));
                    }
                    second.apply(&mut Parts {
                        requester: None,
                        responder: Some(&mut self.responder),
                    });
                    self.second = Some(Box::new(second));
                }
                self.extended(message, invalidated);
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

    /// A message of version 1. What nobody was asked for is the responder's to judge.
    fn version_1(&mut self, message: Segments, invalidated: Option<Stag>) {
        match &mut self.backward {
            Some(requester) if backward::direction(&message) == Some(Direction::Reply) => {
                requester.received_in(message, invalidated);
            }
            _ => self.responder.received_in(message),
        }
    }

    fn extended(&mut self, message: Segments, invalidated: Option<Stag>) {
        let Some(second) = &mut self.second else {
            return;
        };
        let heard = second.received(message);
        if let (Heard::Taken(..) | Heard::Bad(_), Some(requester)) = (&heard, &mut self.backward) {
            requester.taken(invalidated);
        }
        match heard {
            Heard::Base(header, payload) if header.direction() == Direction::Call => {
                if let Some(plain) = Plain::of(&header, &payload, self.responder.max_call()) {
                    return self.responder.take_plain(plain, payload);
                }
                let call = wire::v2::call(header, payload, self.responder.max_call());
                self.responder.take(call);
            }
            Heard::Base(header, payload) => match &mut self.backward {
                Some(requester) => requester.take(wire::v2::reply(header, payload), invalidated),
                None => self.responder.refuse(&BadCall {
                    answer: None,
                    reason: "a reply to a server that has called nobody".to_owned(),
                }),
            },
            Heard::Taken(Direction::Call, Some(credits)) => self.responder.asked(credits),
            Heard::Taken(Direction::Reply, Some(credits)) => {
                if let Some(requester) = &mut self.backward {
                    requester.granted(credits);
                }
            }
            Heard::Taken(_, None) => {}
            Heard::Bad(bad) => self.responder.refuse(&bad),
        }
    }

    /// What the client takes in calls, as far as the transport knows: in version 1 that is for the
    /// upper layer to find out (RFC 8167, section 6). Nothing before the client has sent anything, by
    /// which its upper layer could have said so.
    pub(crate) fn takes_calls(&self) -> Option<Backward> {
        match (self.negotiation.version()?, &self.second) {
            (Version::Two, Some(second)) => Some(second.extensions.limits().backward),
            _ => Some(match self.setup.options.callbacks.chunks {
                false => Backward::Inline,
                true => Backward::General,
            }),
        }
    }

    /// Something waits for memory.
    pub(crate) fn starved(&self) -> bool {
        let backward = self.backward.as_ref();
        self.responder.starved() || backward.is_some_and(|requester| requester.starved())
    }

    /// There may be memory now.
    pub(crate) fn retry(&mut self) {
        self.responder.retry();
        if let Some(requester) = &mut self.backward
            && requester.starved()
        {
            requester.retry();
        }
    }

    /// Whether version 2 is spoken.
    pub(crate) fn is_second(&self) -> bool {
        self.second.is_some()
    }

    /// Part of a message has arrived, and the rest has not.
    pub(crate) fn is_collecting(&self) -> bool {
        self.second.as_ref().is_some_and(|second| second.collecting)
    }

    /// Every receive is made like that.
    pub(crate) fn receives_replaced(&mut self, receives: &ReceiveStructure) {
        if let Some(second) = &mut self.second {
            second.receives_replaced(receives);
        }
    }

    /// Whether there is nothing that the driver could have to do, as in version 1.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.second.is_none()
    }

    /// The next thing that the driver must do, beside what the responder wants and before it.
    pub(crate) fn next(&mut self) -> Option<Wanted> {
        let parts = Parts {
            requester: self.backward.as_deref_mut(),
            responder: Some(&mut self.responder),
        };
        self.second.as_mut()?.next(parts)
    }
}
