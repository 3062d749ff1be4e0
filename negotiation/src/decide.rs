//! The choice of a protocol version, from the client's configuration and the server's behaviour
//! (version-two-01, section 5).

use std::fmt;

use crate::{Choice, Version};

/// The reaction of a server to a version 2 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerReaction {
    /// The server answered in this version.
    Answered(Version),
    /// The server answered that it supports only these versions: RDMA_ERROR with ERR_VERS, in
    /// whichever version.
    RefusedVersion {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// The connection was lost.
    Dropped,
    /// The server did not answer before the client's wait ended.
    NoAnswer,
}

/// The evidence that a server supports version 1 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The server refused version 2.
    Refused,
    /// The server answered in version 1.
    AnsweredVersion1,
    /// The server dropped the connection.
    Dropped,
    /// The server did not answer.
    NoAnswer,
}

/// The reason why a version was chosen, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionReason {
    /// The user configured this version only.
    Configured,
    /// The server answered in this version.
    Answered,
    /// The server does not support version 2.
    ShownNow(Evidence),
    /// The server did not support version 2 on an earlier connection.
    Remembered(Evidence),
    /// The client began with this version. Only a server has this reason.
    ClientBegan,
    /// No common version: the server announced versions that this side may not use.
    NoneInCommon {
        /// Lowest version of the server.
        low: u32,
        /// Highest version of the server.
        high: u32,
    },
    /// No common version: the server showed that it supports version 1 only, which this side may
    /// not use.
    VersionOneOnly(Evidence),
    /// No common version: the server answered in this one of the two versions with the number 2,
    /// and this side may use the other one only.
    OtherVersionTwo(Version),
}

/// The action that follows from a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionAction {
    /// Use this version on this connection.
    Use(Version),
    /// Use this version on a new connection.
    Reconnect(Version),
    /// Give up, because the two ends have no version in common.
    GiveUp,
}

/// An action and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionDecision {
    /// The action.
    pub action: VersionAction,
    /// The reason.
    pub reason: VersionReason,
}

impl VersionDecision {
    /// Returns the decision of a server: the client has begun with this version.
    #[must_use]
    pub fn by_client(version: Version) -> Self {
        Self {
            action: VersionAction::Use(version),
            reason: VersionReason::ClientBegan,
        }
    }
}

impl ServerReaction {
    /// Returns the evidence that the server supports version 1 and not 2.
    ///
    /// # Errors
    /// The lowest and highest version of a server that does not support version 1.
    fn evidence(&self) -> Result<Evidence, (u32, u32)> {
        let has_one = |low: u32, high: u32| (low..=high).contains(&Version::One.number());
        match *self {
            Self::Answered(Version::One) => Ok(Evidence::AnsweredVersion1),
            Self::Answered(other) => Err((other.number(), other.number())),
            Self::RefusedVersion { low, high } if has_one(low, high) => Ok(Evidence::Refused),
            Self::RefusedVersion { low, high } => Err((low, high)),
            Self::Dropped => Ok(Evidence::Dropped),
            Self::NoAnswer => Ok(Evidence::NoAnswer),
        }
    }
}

/// Chooses the version for a server that reacted with `did` to a version 2 message (sections 5.1
/// and 5.2).
///
/// If the connection survived, it is kept. A server that did not answer is contacted in version 1
/// over a new connection, because its answer might still arrive on the old one.
#[must_use]
pub fn decide_version(choice: Choice, did: &ServerReaction) -> VersionDecision {
    if let ServerReaction::Answered(version @ (Version::Two | Version::TwoWg)) = *did {
        let (action, reason) = match choice.allows(version) {
            true => (VersionAction::Use(version), VersionReason::Answered),
            false => (
                VersionAction::GiveUp,
                VersionReason::OtherVersionTwo(version),
            ),
        };
        return VersionDecision { action, reason };
    }
    let (action, reason) = match did.evidence() {
        Ok(evidence) if !choice.allows(Version::One) => (
            VersionAction::GiveUp,
            VersionReason::VersionOneOnly(evidence),
        ),
        Ok(evidence @ (Evidence::Dropped | Evidence::NoAnswer)) => (
            VersionAction::Reconnect(Version::One),
            VersionReason::ShownNow(evidence),
        ),
        Ok(evidence) => (
            VersionAction::Use(Version::One),
            VersionReason::ShownNow(evidence),
        ),
        Err((low, high)) => (
            VersionAction::GiveUp,
            VersionReason::NoneInCommon { low, high },
        ),
    };
    VersionDecision { action, reason }
}

/// Returns the decision that a client can make before it sends anything, or `None` if it has to
/// send a [`VersionProbe`](crate::VersionProbe). `remembered` is what an earlier connection showed
/// about the server ([`KnownServers::evidence`](crate::KnownServers::evidence)).
#[must_use]
pub fn decide_without_probe(
    choice: Choice,
    remembered: Option<Evidence>,
) -> Option<VersionDecision> {
    let (version, reason) = match (choice, remembered) {
        (Choice::Only(version @ (Version::One | Version::Other(_))), _) => {
            (version, VersionReason::Configured)
        }
        (Choice::Auto, Some(evidence)) => (Version::One, VersionReason::Remembered(evidence)),
        (Choice::Only(Version::Two | Version::TwoWg), _) | (Choice::Auto, None) => return None,
    };
    Some(VersionDecision {
        action: VersionAction::Use(version),
        reason,
    })
}

impl Evidence {
    /// Returns whether the evidence is only that no answer came, which can have causes other than
    /// the server's version.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Dropped | Self::NoAnswer)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused version 2 and speaks 1",
            Self::AnsweredVersion1 => "answered version 2 in version 1",
            Self::Dropped => "dropped the connection at a version 2 message",
            Self::NoAnswer => "did not answer a version 2 message",
        }
    }
}

/// Formats a range of versions.
#[must_use]
pub fn show_versions(low: u32, high: u32) -> String {
    match low == high {
        true => format!("version {low} only"),
        false => format!("versions {low} to {high}"),
    }
}

impl fmt::Display for VersionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("as asked for"),
            Self::Answered => f.write_str("the server answered in it"),
            Self::ShownNow(evidence) | Self::VersionOneOnly(evidence) => {
                write!(f, "the server {}", evidence.words())
            }
            Self::Remembered(evidence) => {
                write!(
                    f,
                    "on an earlier connection, the server {}",
                    evidence.words()
                )
            }
            Self::ClientBegan => f.write_str("the client began with it"),
            Self::NoneInCommon { low, high } => {
                let versions = show_versions(*low, *high);
                write!(f, "the server refused version 2 and speaks {versions}")
            }
            Self::OtherVersionTwo(version) => {
                write!(f, "the server answered in version {version}")
            }
        }
    }
}

impl fmt::Display for VersionDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            VersionAction::Use(version) => write!(f, "version {version}: {}", self.reason),
            VersionAction::Reconnect(version) => {
                write!(
                    f,
                    "version {version} over a new connection: {}",
                    self.reason
                )
            }
            VersionAction::GiveUp => match self.reason {
                // A server that has no room, or is being stopped, does the same.
                VersionReason::VersionOneOnly(evidence) if evidence.is_loss() => {
                    write!(
                        f,
                        "{}: it speaks version 1 only, or has no room",
                        self.reason
                    )
                }
                reason => write!(f, "no version in common: {reason}"),
            },
        }
    }
}
