//! The choice of a protocol version, with its reason (version-two-01, section 5).

use std::fmt;

use crate::{Choice, KnownVersions, Negotiable, Version};

/// The way in which a server showed that it does not speak a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The server answered with an error that names the versions it speaks: RDMA_ERROR with
    /// ERR_VERS, in whichever version.
    Refused,
    /// The server answered in another version.
    Answered,
    /// The server dropped the connection.
    Dropped,
    /// The server did not answer before the client's wait ended.
    NoAnswer,
}

/// The evidence that a server does not speak a version that it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The version that the client asked for.
    pub asked: Version,
    /// The version that the server speaks instead, or is assumed to speak. `None` if the client
    /// knows no other version.
    pub speaks: Option<Version>,
    /// The server's reaction.
    pub shown: Shown,
}

/// The reason why a version was chosen, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionReason {
    /// The user configured this version only, or prefers it, and no server is asked for it.
    Configured,
    /// The server answered in this version.
    Answered,
    /// The server does not support the version that it was asked for.
    ShownNow(Evidence),
    /// The server did not support the version that it was asked for on an earlier connection.
    Remembered(Evidence),
    /// The client began with this version. Only a server has this reason.
    ClientBegan,
    /// No common version: the server announced versions that this side may not use.
    NoneInCommon {
        /// The number of the version that it was asked for.
        asked: u32,
        /// Lowest version of the server.
        low: u32,
        /// Highest version of the server.
        high: u32,
    },
    /// No common version: the server showed that it supports only a version that this side may not
    /// use.
    OtherOnly(Evidence),
    /// No common version: the server answered in this version, for which it would have to be asked,
    /// and which this side may not use.
    AnsweredInOther(Version),
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

/// A client's first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstStep {
    /// The version is decided before anything is sent.
    Decided(VersionDecision),
    /// The server must be asked for this version, by a [`VersionProbe`](crate::VersionProbe).
    Ask(Version),
}

/// Returns the first step of a client that may use those of the `known` versions that `choice`
/// allows. `remembered` is what an earlier connection showed about the server
/// ([`KnownServers::evidence`](crate::KnownServers::evidence)). `None` if it may use no version.
#[must_use]
pub fn decide_first_step(
    known: &KnownVersions,
    choice: Choice,
    remembered: Option<Evidence>,
) -> Option<FirstStep> {
    let first = known.first(choice)?;
    let (version, reason) = match (first.is_asked_for(), remembered) {
        (false, _) => (first.version(), VersionReason::Configured),
        (true, Some(evidence)) => match evidence.speaks {
            Some(version) if is_usable(known, choice, version) => {
                (version, VersionReason::Remembered(evidence))
            }
            _ => return Some(FirstStep::Ask(first.version())),
        },
        (true, None) => return Some(FirstStep::Ask(first.version())),
    };
    let action = VersionAction::Use(version);
    Some(FirstStep::Decided(VersionDecision { action, reason }))
}

/// Returns whether a client may use a version at a server that it has not asked.
fn is_usable(known: &KnownVersions, choice: Choice, version: Version) -> bool {
    let mut known = known.iter().filter(|known| !known.is_asked_for());
    choice.allows(version) && known.any(|known: &dyn Negotiable| known.version() == version)
}

impl VersionReason {
    /// Returns what the server showed, if that is the reason.
    #[must_use]
    pub fn evidence(self) -> Option<Evidence> {
        match self {
            Self::ShownNow(evidence) | Self::Remembered(evidence) | Self::OtherOnly(evidence) => {
                Some(evidence)
            }
            _ => None,
        }
    }
}

impl Evidence {
    /// Returns whether the evidence is only that no answer came, which can have causes other than
    /// the server's version.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self.shown, Shown::Dropped | Shown::NoAnswer)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked.number();
        let speaks = self.speaks.map_or("another", Version::name);
        match self.shown {
            Shown::Refused => write!(f, "the server refused version {asked} and speaks {speaks}"),
            Shown::Answered => {
                write!(f, "the server answered version {asked} in version {speaks}")
            }
            Shown::Dropped => write!(
                f,
                "the server dropped the connection at a version {asked} message"
            ),
            Shown::NoAnswer => write!(f, "the server did not answer a version {asked} message"),
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
            Self::ShownNow(evidence) | Self::OtherOnly(evidence) => evidence.fmt(f),
            Self::Remembered(evidence) => write!(f, "on an earlier connection, {evidence}"),
            Self::ClientBegan => f.write_str("the client began with it"),
            Self::NoneInCommon { asked, low, high } => {
                let versions = show_versions(*low, *high);
                write!(
                    f,
                    "the server refused version {asked} and speaks {versions}"
                )
            }
            Self::AnsweredInOther(version) => {
                write!(f, "the server answered in version {version}")
            }
        }
    }
}

impl fmt::Display for VersionDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason;
        match (self.action, reason) {
            (VersionAction::Use(version), _) => write!(f, "version {version}: {reason}"),
            (VersionAction::Reconnect(version), _) => {
                write!(f, "version {version} over a new connection: {reason}")
            }
            // A server that has no room, or is being stopped, does the same.
            (VersionAction::GiveUp, VersionReason::OtherOnly(evidence)) if evidence.is_loss() => {
                match evidence.speaks {
                    Some(version) => write!(
                        f,
                        "{reason}: it speaks version {version} only, or has no room"
                    ),
                    None => write!(f, "{reason}: it lacks that version, or has no room"),
                }
            }
            (VersionAction::GiveUp, _) => write!(f, "no version in common: {reason}"),
        }
    }
}
