//! The client side of version negotiation on one connection (version-two-01, section 5).

use std::time::Duration;

use rpcrdma_chunks::{FIXED_LEN, Fixed, Reader, proc};

use crate::decide::known;
use crate::{
    Choice, Evidence, ServerReaction, Version, VersionAction, VersionDecision, decide_version,
};

/// `rdma_err` of a version error, the same in both versions.
const ERR_VERS: u32 = 1;

/// The first step on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Use this version; it is already known.
    Speak(VersionDecision),
    /// Send one version 2 message of at most [`rpcrdma_v2::limits::FIRST_MESSAGE_MAX`] bytes, and
    /// nothing else until the version is decided. Only one message may be sent before the server
    /// has granted credits (RFC 8166, section 3.3.3).
    Ask,
}

/// The meaning of a received message for the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The version was already known, and the message must be handled in that version.
    Known(Version),
    /// The message decides the version. It must be handled in that version if the verdict is
    /// [`VersionAction::Use`].
    Decides(VersionDecision),
    /// The message decides the version and has no other content.
    DecidesOnly(VersionDecision),
    /// The message decides nothing and must be discarded. The server's answer is still to come.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum State {
    NotConnected,
    Asking { xid: u32, until: Duration },
    Decided(VersionDecision),
}

/// The client side of version negotiation on one connection.
#[derive(Clone, Debug)]
pub struct ClientNegotiation {
    choice: Choice,
    remembered: Option<Evidence>,
    patience: Duration,
    state: State,
}

impl ClientNegotiation {
    /// Creates the state for a connection that is not established yet. `remembered` is what an
    /// earlier connection showed about the server, from
    /// [`KnownServers::evidence`](crate::KnownServers::evidence); `patience` is the time to wait
    /// for the server's answer.
    #[must_use]
    pub fn new(choice: Choice, remembered: Option<Evidence>, patience: Duration) -> Self {
        Self {
            choice,
            remembered,
            patience,
            state: State::NotConnected,
        }
    }

    /// Reports that the connection was established at `now`, which is measured from a fixed moment.
    /// If the server must be asked, `xid` is the XID of the first message.
    pub fn connected(&mut self, xid: u32, now: Duration) -> Asked {
        if let Some(decision) = known(self.choice, self.remembered) {
            self.state = State::Decided(decision);
            return Asked::Speak(decision);
        }
        let until = now.saturating_add(self.patience);
        self.state = State::Asking { xid, until };
        Asked::Ask
    }

    /// Returns the decision, if there is one.
    #[must_use]
    pub fn decision(&self) -> Option<VersionDecision> {
        match self.state {
            State::Decided(decision) => Some(decision),
            State::NotConnected | State::Asking { .. } => None,
        }
    }

    /// Returns the version of this connection. Requests are held back while there is none.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        match self.decision()?.action {
            VersionAction::Use(version) => Some(version),
            VersionAction::Reconnect(_) | VersionAction::GiveUp => None,
        }
    }

    /// Returns the time at which the wait for the server's answer ends.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Asking { until, .. } => Some(until),
            State::NotConnected | State::Decided(_) => None,
        }
    }

    /// Handles a received message.
    pub fn received(&mut self, message: &[u8]) -> Heard {
        let xid = match self.state {
            State::NotConnected => return Heard::Nothing,
            State::Decided(_) => return self.version().map_or(Heard::Nothing, Heard::Known),
            State::Asking { xid, .. } => xid,
        };
        let Some(fixed) = Fixed::peek(message) else {
            return Heard::Nothing;
        };
        match version_error(&fixed, &message[FIXED_LEN..]) {
            Some((low, high)) if fixed.xid == xid => {
                Heard::DecidesOnly(self.decide(&ServerReaction::RefusedVersion { low, high }))
            }
            // A version error for a message that was never sent.
            Some(_) => Heard::Nothing,
            None => match Version::from_number(fixed.version) {
                version @ (Version::One | Version::Two) => {
                    Heard::Decides(self.decide(&ServerReaction::Answered(version)))
                }
                Version::Other(_) => Heard::Nothing,
            },
        }
    }

    /// Reports that the time is `now`. Returns the decision if the wait for the server's answer has
    /// ended.
    pub fn expired(&mut self, now: Duration) -> Option<VersionDecision> {
        let until = self.deadline()?;
        (now >= until).then(|| self.decide(&ServerReaction::NoAnswer))
    }

    /// Reports that the connection was lost. Returns the decision if the server had not answered
    /// before.
    pub fn lost(&mut self) -> Option<VersionDecision> {
        self.deadline()?;
        Some(self.decide(&ServerReaction::Dropped))
    }

    fn decide(&mut self, did: &ServerReaction) -> VersionDecision {
        let decision = decide_version(self.choice, did);
        self.state = State::Decided(decision);
        decision
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
