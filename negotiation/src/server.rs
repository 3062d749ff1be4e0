//! A server's side of finding the version, on one connection (version-two-01, section 5; RFC 8166,
//! section 4.5.1; RFC 8167, section 5.1).

use rpcrdma_chunks::limits::{MIN_ERROR_LEN, MIN_HEADER_LEN};
use rpcrdma_chunks::{Fixed, proc};
use rpcrdma_v2::{Answer, ErrorBody};

use crate::{Decision, Reason, Verdict, Version, Versions};

/// What a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstHeard {
    /// It belongs to the version that this connection speaks, from now on if it did not before.
    Speak(Version),
    /// Its version is not spoken here: this error is sent. Its fields are the same in both
    /// versions, and it has the version of what it answers.
    Refused(Answer),
    /// It is discarded silently: too short, or an error, which is never answered.
    Discarded,
}

/// A server's side of finding the version, on one connection: the first message in a version that
/// is accepted settles it, for calls in both directions.
#[derive(Clone, Copy, Debug)]
pub struct ServerNegotiation {
    accepts: Versions,
    spoken: Option<Version>,
}

impl ServerNegotiation {
    /// For a new connection.
    #[must_use]
    pub fn new(accepts: Versions) -> Self {
        Self {
            accepts,
            spoken: None,
        }
    }

    /// The version that this connection speaks.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.spoken
    }

    /// The same with its reason.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.spoken.map(|version| Decision {
            verdict: Verdict::Speak(version),
            reason: Reason::ClientBegan,
        })
    }

    /// A message arrived.
    ///
    /// A client that changes the version in the middle is told that the one it began with is all
    /// there is: what is settled is so for the rest of the connection (section 5.2).
    pub fn received(&mut self, message: &[u8]) -> FirstHeard {
        let Some(fixed) = Fixed::peek(message) else {
            return FirstHeard::Discarded;
        };
        let version = Version::from_number(fixed.version);
        if self.spoken == Some(version) {
            // Its rules say what is to be done about whatever is wrong with it.
            return FirstHeard::Speak(version);
        }
        let is_error = fixed.procedure == proc::ERROR;
        let min = match is_error {
            true => MIN_ERROR_LEN,
            false => MIN_HEADER_LEN,
        };
        if message.len() < min || is_error {
            return FirstHeard::Discarded;
        }
        let offered = self.spoken.map_or(self.accepts, Versions::only);
        match offered.contains(version) {
            true => {
                self.spoken = Some(version);
                FirstHeard::Speak(version)
            }
            false => FirstHeard::Refused(Answer {
                xid: fixed.xid,
                version: fixed.version,
                error: ErrorBody::Version {
                    low: offered.low().number(),
                    high: offered.high().number(),
                },
            }),
        }
    }
}
