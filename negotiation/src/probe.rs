//! The client side of version negotiation: a message in version 2 that asks the server whether it
//! speaks that version (version-two-01, section 5).

use std::time::Duration;

use rpcrdma_chunks::{FIXED_LEN, Fixed, Reader, proc};

use crate::{
    Choice, ServerReaction, Version, VersionAction, VersionDecision, VersionReason, decide_version,
};

/// `rdma_err` of a version error, the same in both versions.
const ERR_VERS: u32 = 1;
/// RDMA2_ERR_BAD_HEADER of 2016. The working group has the same number for RDMA2_ERR_BAD_XDR, which
/// is no answer to a valid first message.
const BAD_HEADER: u32 = 2;
/// RDMA2_ERR_INVAL_HTYPE of the working group, a number that 2016 does not have.
const INVALID_HEADER_TYPE: u32 = 4;

/// A client's first message, which the server has not answered yet.
///
/// Whoever sends the message keeps to two rules: it has at most
/// [`rpcrdma_v2::limits::FIRST_MESSAGE_MAX`] bytes, and nothing else is sent until the version is
/// decided, because only one message may be sent before the server has granted credits (RFC 8166,
/// section 3.3.3). The probe ends with the first decision that one of its methods returns; whoever
/// has it drops it then.
#[derive(Clone, Copy, Debug)]
pub struct VersionProbe {
    choice: Choice,
    /// The version of the message.
    asked: Version,
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
    /// The message has no other content than that the server speaks this version instead, which
    /// has the same number as the one it was asked for. The server must be asked for it
    /// ([`VersionProbe::again`]), because the properties of both ends are exchanged in it.
    AskFor(Version),
    /// The message decides nothing and must be discarded. The server's answer is still to come.
    Unrelated,
}

impl VersionProbe {
    /// Returns the probe of a client that may use the versions of `choice`. Its message has this
    /// XID, and the client waits for the answer until `deadline`, which is measured from a fixed
    /// moment.
    #[must_use]
    pub fn new(choice: Choice, xid: u32, deadline: Duration) -> Self {
        Self {
            choice,
            asked: choice.asked_for(),
            xid,
            deadline,
        }
    }

    /// Returns the version of the probe's message.
    #[must_use]
    pub fn asked(&self) -> Version {
        self.asked
    }

    /// Returns the probe that follows the answer [`ProbeAnswer::AskFor`]. It asks for this version
    /// by a message with the next XID, and waits no longer than this one would have.
    #[must_use]
    pub fn again(self, version: Version) -> Self {
        Self {
            asked: version,
            xid: self.xid.wrapping_add(1),
            ..self
        }
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
        let Some(fixed) = Fixed::peek(message) else {
            return ProbeAnswer::Unrelated;
        };
        match version_error(&fixed, &message[FIXED_LEN..]) {
            Some((low, high)) if fixed.xid == self.xid => {
                let refused = ServerReaction::RefusedVersion { low, high };
                ProbeAnswer::VersionError(decide_version(self.choice, &refused))
            }
            // A version error for a message that was never sent.
            Some(_) => ProbeAnswer::Unrelated,
            None => match self.version_of(&fixed, message) {
                Version::Other(_) => ProbeAnswer::Unrelated,
                version => self.answered(version),
            },
        }
    }

    /// Returns what an answer in this version means. A server is asked for a second version once
    /// only: one that answers in the first again would be asked for ever.
    fn answered(&self, version: Version) -> ProbeAnswer {
        let other_two = version != self.asked && version.number() == self.asked.number();
        if !other_two {
            let answered = ServerReaction::Answered(version);
            return ProbeAnswer::Message(decide_version(self.choice, &answered));
        }
        match self.choice.allows(version) && self.asked == self.choice.asked_for() {
            true => ProbeAnswer::AskFor(version),
            false => ProbeAnswer::Message(VersionDecision {
                action: VersionAction::GiveUp,
                reason: VersionReason::OtherVersionTwo(version),
            }),
        }
    }

    /// Returns the version in which the server answered. An error other than a version error tells
    /// by its code: a server of 2016 answers a header type that it does not know with
    /// RDMA2_ERR_BAD_HEADER, one of the working group with RDMA2_ERR_INVAL_HTYPE.
    fn version_of(&self, fixed: &Fixed, message: &[u8]) -> Version {
        let asked = self.asked;
        let is_version_2 = fixed.version == asked.number();
        if !(is_version_2 && fixed.procedure == proc::ERROR) {
            return Version::of(fixed, message.len());
        }
        let code = Reader::new(&message[FIXED_LEN..]).u32();
        match (fixed.xid == self.xid, code) {
            (true, Ok(BAD_HEADER)) => Version::Two,
            (true, Ok(INVALID_HEADER_TYPE)) => Version::TwoWg,
            _ => asked,
        }
    }

    /// Returns the decision if the wait for the answer has ended by `now`.
    #[must_use]
    pub fn expired(&self, now: Duration) -> Option<VersionDecision> {
        let decision = || decide_version(self.choice, &ServerReaction::NoAnswer);
        (now >= self.deadline).then(decision)
    }

    /// Returns the decision when the connection is lost.
    #[must_use]
    pub fn lost(&self) -> VersionDecision {
        decide_version(self.choice, &ServerReaction::Dropped)
    }
}

/// Returns the range of versions in a version error of either version. The header has the version
/// of the message it answers, as in RFC 8166 (section 4.5) and Linux, or the sender's own.
fn version_error(fixed: &Fixed, rest: &[u8]) -> Option<(u32, u32)> {
    if fixed.procedure != proc::ERROR {
        return None;
    }
    let mut rest = Reader::new(rest);
    let (code, low, high) = (rest.u32().ok()?, rest.u32().ok()?, rest.u32().ok()?);
    (code == ERR_VERS).then_some((low, high))
}
