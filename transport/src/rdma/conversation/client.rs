//! A client's end of a connection.

use std::time::Duration;

use conveyance::CostModel;
use onc_rpc::Segments;
use rdma::Stag;
use rpcrdma_ext_xchar::{Characteristic, Exchange, NotChanged, ReceiveBufferSize};
use rpcrdma_negotiation::{
    Asked, ClientNegotiation, Decision, Features, Heard, Reason, Verdict, Version,
};
use rpcrdma_v1::Agreed;
use rpcrdma_v2::extension::OpttypeTaken;
use rpcrdma_v2::{Direction, Header};

use super::{Extended, Parts, Setup, Wanted, first};
use crate::rdma::backward;
use crate::rdma::wire::{self, Answer, BadCall, Plain};
use crate::rdma::{ReceiveStructure, Requester, Responder};

/// A client's end of a connection.
pub(crate) struct ClientConversation {
    negotiation: ClientNegotiation,
    /// Waits with its calls until the version is known.
    pub(crate) requester: Requester,
    /// Takes the server's calls, if any are taken.
    pub(crate) backward: Option<Box<Responder>>,
    /// What is spoken.
    version: Option<Version>,
    setup: Option<Setup>,
    /// Version 2, while it is asked for or spoken.
    pub(super) second: Option<Box<Extended>>,
}

impl ClientConversation {
    pub(crate) fn new(
        negotiation: ClientNegotiation,
        requester: Requester,
        backward: Option<Box<Responder>>,
    ) -> Self {
        Self {
            negotiation,
            requester,
            backward,
            version: None,
            setup: None,
            second: None,
        }
    }

    /// The connection is made, at `now`. Operations of extensions have XIDs from `xid` downwards.
    /// Gives the version if the server need not be asked.
    ///
    /// # Errors
    /// Extensions that were chosen do not go together.
    pub(crate) fn connected(
        &mut self,
        setup: Setup,
        xid: u32,
        now: Duration,
    ) -> Result<Option<Decision>, OpttypeTaken> {
        let asked = self.negotiation.connected(xid, now);
        let decision = match asked {
            Asked::Speak(decision) => Some(decision),
            Asked::Ask => None,
        };
        if decision.is_none_or(|decision| decision.verdict == Verdict::Speak(Version::Two)) {
            let mut second = Extended::new(setup.clone(), xid)?;
            second.begin(None);
            self.second = Some(Box::new(second));
        }
        self.setup = Some(setup);
        if let Some(decision) = decision {
            self.settle(decision);
        }
        Ok(decision)
    }

    /// What was decided.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.negotiation.decision()
    }

    /// What may be used, and why, once the version is known.
    pub(crate) fn features(&self) -> Option<Features> {
        let setup = self.setup.as_ref()?;
        Some(setup.features(self.version?, self.second.as_deref()))
    }

    /// What everything costs, once the connection is made.
    pub(super) fn costs(&self) -> Option<CostModel> {
        Some(self.setup.as_ref()?.options.costs)
    }

    /// When to ask whether patience has [expired](ClientConversation::expired).
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.negotiation.deadline()
    }

    /// It is `now`. Gives a decision if there is one by that.
    pub(crate) fn expired(&mut self, now: Duration) -> Option<Decision> {
        self.negotiation.expired(now)
    }

    /// Whether version 1 is spoken because the server was not heard of in version 2, and it now says
    /// that it speaks 2 and not 1.
    pub(crate) fn was_misjudged(&self) -> bool {
        let guessed = self
            .decision()
            .is_some_and(|decision| match decision.reason {
                Reason::Learnt(lesson) | Reason::Remembered(lesson) => lesson.is_loss(),
                _ => false,
            });
        let refused = self.requester.version_refused();
        guessed
            && refused.is_some_and(|(low, high)| {
                let speaks = |version: Version| (low..=high).contains(&version.number());
                speaks(Version::Two) && !speaks(Version::One)
            })
    }

    /// The connection is lost. Gives a decision if that was the answer.
    pub(crate) fn lost(&mut self) -> Option<Decision> {
        self.negotiation.lost()
    }

    /// A message arrived. Gives a decision if this was the answer.
    pub(crate) fn received(
        &mut self,
        message: Segments,
        invalidated: Option<Stag>,
    ) -> Option<Decision> {
        match self.version {
            Some(Version::One) => {
                self.version_1(message, invalidated);
                return None;
            }
            Some(Version::Two) => {
                self.extended(message, invalidated);
                return None;
            }
            None => {}
        }
        let decision = match self.negotiation.received(first(&message)) {
            Heard::Decides(decision) => {
                match decision.verdict {
                    // What it says of limits counts for the first call already.
                    Verdict::Speak(Version::Two) => self.extended(message, invalidated),
                    _ => self.requester.taken(invalidated),
                }
                decision
            }
            Heard::DecidesOnly(decision) => {
                self.requester.taken(invalidated);
                decision
            }
            Heard::Known(_) | Heard::Nothing => {
                self.requester.taken(invalidated);
                self.requester.discard(&"no answer to a version 2 message");
                return None;
            }
        };
        self.settle(decision);
        Some(decision)
    }

    /// The version is known: calls can go.
    fn settle(&mut self, decision: Decision) {
        let (Verdict::Speak(version), Some(setup)) = (decision.verdict, &self.setup) else {
            return;
        };
        self.version = Some(version);
        if let Some(responder) = &mut self.backward {
            responder.speak(version);
        }
        let limits = match (version, &mut self.second) {
            (Version::Two, Some(second)) => {
                let invalidation = setup.options.remote_invalidation;
                self.requester.invalidation_agreed(invalidation);
                if second.extensions.conveyors().next().is_some() {
                    self.requester.convey(setup.spare_receives);
                }
                second.apply(&mut Parts {
                    requester: None,
                    responder: self.backward.as_deref_mut(),
                });
                second.limits()
            }
            _ => {
                self.second = None;
                let agreed = Agreed::new(setup.options.private_data(), setup.peer);
                self.requester
                    .invalidation_agreed(agreed.remote_invalidation);
                let limits = setup.limits(version, agreed.call_inline, agreed.reply_inline);
                if let Some(responder) = &mut self.backward {
                    responder.limits_changed(limits, false, Some(limits.inline_send));
                }
                limits
            }
        };
        self.requester.connected(version, limits);
    }

    /// A message of version 1.
    fn version_1(&mut self, message: Segments, invalidated: Option<Stag>) {
        match (backward::direction(&message), &mut self.backward) {
            (Some(Direction::Reply), _) => self.requester.received_in(message, invalidated),
            (Some(Direction::Call), Some(responder)) => {
                self.requester.taken(invalidated);
                responder.received_in(message);
            }
            (Some(Direction::Call), None) => {
                self.requester.taken(invalidated);
                self.requester
                    .discard(&"a call from the server, which was not told that any are taken");
            }
            // Its credits could be asked for or granted: they count for neither (RFC 8167, section
            // 4.1).
            (None, _) => {
                self.requester.taken(invalidated);
                self.requester
                    .discard(&"a message that says not which way it goes");
            }
        }
    }

    fn extended(&mut self, message: Segments, invalidated: Option<Stag>) {
        let Some(second) = &mut self.second else {
            return;
        };
        let bad = match second.received(message) {
            super::Heard::Base(header, payload) if header.direction() == Direction::Reply => {
                if let Some(plain) = Plain::of(&header, &payload, u64::MAX) {
                    return self.requester.take_plain(plain, payload, invalidated);
                }
                return self
                    .requester
                    .take(wire::v2::reply(header, payload), invalidated);
            }
            super::Heard::Base(header, payload) => {
                let Some(responder) = &mut self.backward else {
                    return self.not_acted_upon(backward_call(&header), invalidated);
                };
                self.requester.taken(invalidated);
                let call = wire::v2::call(header, payload, responder.max_call());
                return responder.take(call);
            }
            super::Heard::Taken(direction, credits) => {
                self.requester.taken(invalidated);
                match (direction, credits, &mut self.backward) {
                    (Direction::Reply, Some(credits), _) => self.requester.granted(credits),
                    (Direction::Call, Some(credits), Some(responder)) => responder.asked(credits),
                    _ => {}
                }
                return;
            }
            super::Heard::Bad(bad) => bad,
        };
        self.not_acted_upon(bad, invalidated);
    }

    fn not_acted_upon(&mut self, bad: BadCall, invalidated: Option<Stag>) {
        self.requester.taken(invalidated);
        self.requester.discard(&bad.reason);
        if let (Some(answer), Some(second)) = (bad.answer, &mut self.second) {
            let parts = Parts {
                requester: None,
                responder: self.backward.as_deref_mut(),
            };
            second
                .errors
                .push_back(answer.encode(parts.credits(Direction::Reply)));
        }
    }

    /// Part of a message has arrived, and the rest has not.
    pub(crate) fn is_collecting(&self) -> bool {
        self.second.as_ref().is_some_and(|second| second.collecting)
    }

    /// Something waits for memory.
    pub(crate) fn starved(&self) -> bool {
        let backward = self.backward.as_ref();
        self.requester.starved() || backward.is_some_and(|responder| responder.starved())
    }

    /// There may be memory now.
    pub(crate) fn retry(&mut self) {
        if self.requester.starved() {
            self.requester.retry();
        }
        if let Some(responder) = &mut self.backward {
            responder.retry();
        }
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

    /// The next thing that the driver must do, beside what the requester wants.
    pub(crate) fn next(&mut self) -> Option<Wanted> {
        let parts = Parts {
            requester: Some(&mut self.requester),
            responder: self.backward.as_deref_mut(),
        };
        self.second.as_mut()?.next(parts)
    }

    /// Makes this end's receives longer.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub(crate) fn raise_receive_size(&mut self, size: u32) -> Result<(), NotChanged> {
        let second = self.second.as_mut().ok_or(NotChanged::NotSupported)?;
        let raised = second
            .extensions
            .with(|exchange: &mut Exchange, out| exchange.raise_receive_size(size, out));
        raised.unwrap_or(Err(NotChanged::NotSupported))
    }

    /// Asks the peer for receives of another size.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub(crate) fn request_receive_size(&mut self, size: u32) -> Result<(), NotChanged> {
        let second = self.second.as_mut().ok_or(NotChanged::NotSupported)?;
        let want = vec![ReceiveBufferSize::property(&size)];
        let requested = second
            .extensions
            .with(|exchange: &mut Exchange, out| exchange.request(want, out));
        requested.unwrap_or(Err(NotChanged::NotSupported))
    }
}

/// A call to this client, which said that it takes none (xcharext-02, section 3.3).
fn backward_call(header: &Header) -> BadCall {
    BadCall {
        answer: Some(Answer::chunk(Version::Two, header.xid)),
        reason: "a call from the server, which was told that none are taken".to_owned(),
    }
}
