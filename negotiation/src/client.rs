//! A client's side of finding the version, on one connection (version-two-01, section 5).

use std::time::Duration;

use rpcrdma_chunks::{FIXED_LEN, Fixed, Reader, proc};

use crate::decide::known;
use crate::{Choice, Decision, Lesson, PeerDid, Verdict, Version, decide_version};

/// `rdma_err` of a version error, the same in both versions.
const ERR_VERS: u32 = 1;

/// What to do with a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Speak: the version is known.
    Speak(Decision),
    /// Send one version 2 message of [`rpcrdma_v2::limits::FIRST_MESSAGE_MAX`] bytes at most, and
    /// nothing else until there is a decision. Only one message may be sent before a server has
    /// said how many it takes (RFC 8166, section 3.3.3).
    Ask,
}

/// What a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The version was known: the message belongs to it.
    Known(Version),
    /// It decides the version, and belongs to it if [`Verdict::Speak`] says which.
    Decides(Decision),
    /// It decides the version, and has no other content.
    DecidesOnly(Decision),
    /// Nothing: it is discarded, and the answer is still to come.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum State {
    NotConnected,
    Asking { xid: u32, until: Duration },
    Decided(Decision),
}

/// A client's side of finding the version, on one connection.
#[derive(Clone, Debug)]
pub struct ClientNegotiation {
    choice: Choice,
    remembered: Option<Lesson>,
    patience: Duration,
    state: State,
}

impl ClientNegotiation {
    /// For a connection that is not made yet. `remembered` is what is known of the server, from
    /// [`Memory::lesson`](crate::Memory::lesson); `patience` how long to wait for its answer.
    #[must_use]
    pub fn new(choice: Choice, remembered: Option<Lesson>, patience: Duration) -> Self {
        Self {
            choice,
            remembered,
            patience,
            state: State::NotConnected,
        }
    }

    /// The connection is made, at `now`, a time since some fixed moment. If the server is asked,
    /// the message that does has this XID.
    pub fn connected(&mut self, xid: u32, now: Duration) -> Asked {
        if let Some(decision) = known(self.choice, self.remembered) {
            self.state = State::Decided(decision);
            return Asked::Speak(decision);
        }
        let until = now.saturating_add(self.patience);
        self.state = State::Asking { xid, until };
        Asked::Ask
    }

    /// What was decided.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        match self.state {
            State::Decided(decision) => Some(decision),
            State::NotConnected | State::Asking { .. } => None,
        }
    }

    /// The version that is spoken on this connection: requests are held back while there is none.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        match self.decision()?.verdict {
            Verdict::Speak(version) => Some(version),
            Verdict::Reconnect(_) | Verdict::GiveUp => None,
        }
    }

    /// When patience ends.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Asking { until, .. } => Some(until),
            State::NotConnected | State::Decided(_) => None,
        }
    }

    /// A message arrived.
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
                Heard::DecidesOnly(self.decide(&PeerDid::RefusedVersion { low, high }))
            }
            // For something that was never sent.
            Some(_) => Heard::Nothing,
            None => match Version::from_number(fixed.version) {
                version @ (Version::One | Version::Two) => {
                    Heard::Decides(self.decide(&PeerDid::Answered(version)))
                }
                Version::Other(_) => Heard::Nothing,
            },
        }
    }

    /// It is `now`. Gives a decision when patience has ended.
    pub fn expired(&mut self, now: Duration) -> Option<Decision> {
        let until = self.deadline()?;
        (now >= until).then(|| self.decide(&PeerDid::KeptSilent))
    }

    /// The connection is lost. Gives a decision when that was the answer.
    pub fn lost(&mut self) -> Option<Decision> {
        self.deadline()?;
        Some(self.decide(&PeerDid::Dropped))
    }

    fn decide(&mut self, did: &PeerDid) -> Decision {
        let decision = decide_version(self.choice, did);
        self.state = State::Decided(decision);
        decision
    }
}

/// The range in a version error, in either version: in that of the message it answers, as RFC 8166
/// has it (section 4.5) and Linux does, or in the sender's own.
fn version_error(fixed: &Fixed, rest: &[u8]) -> Option<(u32, u32)> {
    if fixed.procedure != proc::ERROR {
        return None;
    }
    let mut rest = Reader::new(rest);
    let (code, low, high) = (rest.u32().ok()?, rest.u32().ok()?, rest.u32().ok()?);
    (code == ERR_VERS).then_some((low, high))
}
