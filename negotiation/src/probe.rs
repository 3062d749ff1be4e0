//! The client side of version negotiation: a message in version 2 that asks the server whether it
//! speaks that version (version-two-01, section 5).

use std::time::Duration;

use rpcrdma_chunks::{FIXED_LEN, Fixed, Reader, proc};

use crate::{Choice, ServerReaction, Version, VersionDecision, decide_version};

/// `rdma_err` of a version error, the same in both versions.
const ERR_VERS: u32 = 1;

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
            xid,
            deadline,
        }
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
            None => match Version::from_number(fixed.version) {
                version @ (Version::One | Version::Two) => {
                    let answered = ServerReaction::Answered(version);
                    ProbeAnswer::Message(decide_version(self.choice, &answered))
                }
                Version::Other(_) => ProbeAnswer::Unrelated,
            },
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
