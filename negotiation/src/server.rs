//! The server side of version negotiation on one connection (version-two-01, section 5; RFC 8166,
//! section 4.5.1; RFC 8167, section 5.1).

use rpcrdma_chunks::limits::{MIN_ERROR_LEN, MIN_HEADER_LEN};
use rpcrdma_chunks::{Fixed, proc};
use rpcrdma_v2::{Answer, ErrorBody};

use crate::{Version, VersionAction, VersionDecision, VersionReason, Versions};

/// The meaning of a received message for the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstHeard {
    /// The message must be handled in this version, which the connection uses from now on.
    Speak(Version),
    /// The version of the message is not accepted, and this error must be sent. Its fields are the
    /// same in both versions, and its header has the version of the message it answers.
    Refused(Answer),
    /// The message is discarded silently, because it is too short or an error, which is never
    /// answered.
    Discarded,
}

/// The server side of version negotiation on one connection. The first message in an accepted
/// version settles the version for calls in both directions.
#[derive(Clone, Copy, Debug)]
pub struct ServerNegotiation {
    accepts: Versions,
    spoken: Option<Version>,
}

impl ServerNegotiation {
    /// Creates the state for a new connection.
    #[must_use]
    pub fn new(accepts: Versions) -> Self {
        Self {
            accepts,
            spoken: None,
        }
    }

    /// Returns the version of this connection, if it is settled.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.spoken
    }

    /// Returns the version of this connection with the reason, if it is settled.
    #[must_use]
    pub fn decision(&self) -> Option<VersionDecision> {
        self.spoken.map(|version| VersionDecision {
            action: VersionAction::Use(version),
            reason: VersionReason::ClientBegan,
        })
    }

    /// Handles a received message.
    ///
    /// A client that changes the version later receives a version error that names the settled
    /// version only, which holds for the rest of the connection (section 5.2).
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
