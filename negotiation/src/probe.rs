//! The client side of version negotiation: a message that asks the server whether it speaks its
//! version (version-two-01, section 5).

use std::time::Duration;

use crate::first_message::ERR_VERS;
use crate::known::Recognition;
use crate::{
    Beginning, Choice, Evidence, KnownVersions, Negotiable, Shown, Version, VersionAction,
    VersionDecision, VersionReason,
};

/// A client's first message, which the server has not answered yet.
///
/// Whoever sends the message keeps to two rules: it has at most 1024 bytes, and nothing else is
/// sent until the version is decided, because only one message may be sent before the server has
/// granted credits (RFC 8166, section 3.3.3). The probe ends with the first decision that one of
/// its methods returns; whoever has it drops it then.
#[derive(Clone, Debug)]
pub struct VersionProbe {
    known: KnownVersions,
    choice: Choice,
    /// The versions of the messages sent. The last one has not been answered.
    asked: Vec<Version>,
    xid: u32,
    deadline: Duration,
}

/// The meaning of a message that arrives while a [`VersionProbe`] is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The message decides the version, and has to be handled in that version if the action is
    /// [`VersionAction::Use`](crate::VersionAction::Use).
    Message(VersionDecision),
    /// The message decides the version and has no other content.
    VersionError(VersionDecision),
    /// The message has no other content than that the server speaks this version instead. The server
    /// must be asked for it ([`VersionProbe::again`]), because the properties of both ends are
    /// exchanged in it.
    AskFor(Version),
    /// The message decides nothing and must be discarded. The server's answer is still to come.
    Unrelated,
}

impl VersionProbe {
    /// Returns the probe of a client that asks for `asked`, and may use those of the `known`
    /// versions that `choice` allows. Its message has this XID, and the client waits for the answer
    /// until `deadline`, which is measured from a fixed moment.
    #[must_use]
    pub fn new(
        known: KnownVersions,
        choice: Choice,
        asked: Version,
        xid: u32,
        deadline: Duration,
    ) -> Self {
        Self {
            known,
            choice,
            asked: vec![asked],
            xid,
            deadline,
        }
    }

    /// Returns the version of the probe's message.
    #[must_use]
    pub fn asked(&self) -> Version {
        self.asked[self.asked.len() - 1]
    }

    /// Returns the probe that follows the answer [`ProbeAnswer::AskFor`]. It asks for this version
    /// by a message with the next XID, and waits no longer than this one would have.
    #[must_use]
    pub fn again(mut self, version: Version) -> Self {
        self.asked.push(version);
        self.xid = self.xid.wrapping_add(1);
        self
    }

    /// Returns the XID of the probe's message.
    #[must_use]
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the time at which the wait for the answer ends.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns what a received message means.
    #[must_use]
    pub fn received(&self, message: &[u8]) -> ProbeAnswer {
        let Some(answer) = Beginning::of(message) else {
            return ProbeAnswer::Unrelated;
        };
        let to_question = answer.fixed().xid == self.xid;
        match version_error(&answer) {
            Some((low, high)) if to_question => return self.refused(low, high),
            // A version error for a message that was never sent.
            Some(_) => return ProbeAnswer::Unrelated,
            None => {}
        }
        let recognizes = |version: &dyn Negotiable| version.recognize_answer(&answer, to_question);
        let asked = self.asked();
        let maybe = |known: &&dyn Negotiable| {
            known.version() == asked && recognizes(*known) == Recognition::Maybe
        };
        let owner = self.known.owner(recognizes);
        match owner.or_else(|| self.known.iter().find(maybe)) {
            Some(version) => self.answered(version),
            None => ProbeAnswer::Unrelated,
        }
    }

    /// Returns what an answer in this version means.
    fn answered(&self, version: &dyn Negotiable) -> ProbeAnswer {
        let asks = version.is_asked_for();
        let version = version.version();
        let decision = |action, reason| ProbeAnswer::Message(VersionDecision { action, reason });
        if version == self.asked() {
            return decision(VersionAction::Use(version), VersionReason::Answered);
        }
        match (self.choice.allows(version), asks) {
            (true, true) if !self.asked.contains(&version) => ProbeAnswer::AskFor(version),
            // A server that answers in a version that it was asked for before would be asked for ever.
            (_, true) => decision(
                VersionAction::GiveUp,
                VersionReason::AnsweredInOther(version),
            ),
            (true, false) => {
                let reason = VersionReason::ShownNow(self.evidence(Shown::Answered, Some(version)));
                decision(VersionAction::Use(version), reason)
            }
            (false, false) => {
                let evidence = self.evidence(Shown::Answered, Some(version));
                decision(VersionAction::GiveUp, VersionReason::OtherOnly(evidence))
            }
        }
    }

    /// Returns what an error means that names the numbers of the versions that the server speaks.
    /// The client goes on in the first of them that it may use (version-two-01, section 5.2).
    fn refused(&self, low: u32, high: u32) -> ProbeAnswer {
        let asked = self.asked();
        // The server has just said that it does not speak a version with this number.
        let named = |known: &&dyn Negotiable| {
            let number = known.version().number();
            (low..=high).contains(&number) && number != asked.number()
        };
        let mut usable = self.known.iter().filter(named);
        let usable = usable.find(|known| {
            let version = known.version();
            self.choice.allows(version) && !self.asked.contains(&version)
        });
        let (action, reason) = match usable {
            Some(version) if version.is_asked_for() => {
                return ProbeAnswer::AskFor(version.version());
            }
            Some(version) => {
                let version = version.version();
                let evidence = self.evidence(Shown::Refused, Some(version));
                (
                    VersionAction::Use(version),
                    VersionReason::ShownNow(evidence),
                )
            }
            None => {
                let mut named = self.known.iter().filter(named);
                let reason = match named.find(|known| !known.is_asked_for()) {
                    Some(version) => {
                        let version = Some(version.version());
                        VersionReason::OtherOnly(self.evidence(Shown::Refused, version))
                    }
                    None => {
                        let asked = asked.number();
                        VersionReason::NoneInCommon { asked, low, high }
                    }
                };
                (VersionAction::GiveUp, reason)
            }
        };
        ProbeAnswer::VersionError(VersionDecision { action, reason })
    }

    /// Returns the decision if the wait for the answer has ended by `now`.
    #[must_use]
    pub fn expired(&self, now: Duration) -> Option<VersionDecision> {
        (now >= self.deadline).then(|| self.unanswered(Shown::NoAnswer))
    }

    /// Returns the decision when the connection is lost.
    #[must_use]
    pub fn lost(&self) -> VersionDecision {
        self.unanswered(Shown::Dropped)
    }

    /// Returns the decision about a server that does not answer: the first version that needs no
    /// question, over a new connection, because the answer might still arrive on the old one.
    fn unanswered(&self, shown: Shown) -> VersionDecision {
        let silent = || self.known.iter().filter(|known| !known.is_asked_for());
        let versions = || silent().map(Negotiable::version);
        match versions().find(|&version| self.choice.allows(version)) {
            Some(version) => VersionDecision {
                action: VersionAction::Reconnect(version),
                reason: VersionReason::ShownNow(self.evidence(shown, Some(version))),
            },
            None => VersionDecision {
                action: VersionAction::GiveUp,
                reason: VersionReason::OtherOnly(self.evidence(shown, versions().next())),
            },
        }
    }

    fn evidence(&self, shown: Shown, speaks: Option<Version>) -> Evidence {
        let asked = self.asked();
        Evidence {
            asked,
            speaks,
            shown,
        }
    }
}

/// Returns the range of versions in a version error. The header has the version of the message it
/// answers, as in RFC 8166 (section 4.5) and Linux, or the sender's own.
fn version_error(answer: &Beginning<'_>) -> Option<(u32, u32)> {
    if !answer.is_error() {
        return None;
    }
    let mut rest = answer.rest();
    let (code, low, high) = (rest.u32().ok()?, rest.u32().ok()?, rest.u32().ok()?);
    (code == ERR_VERS).then_some((low, high))
}
