//! From what a client may speak and what the server did, to what is spoken (version-two-01, section
//! 5).

use std::fmt;

use crate::{Choice, Version};

/// What a server did when it was sent a version 2 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerDid {
    /// It answered in this version.
    Answered(Version),
    /// It answered that it speaks only these versions: RDMA_ERROR with ERR_VERS, in whichever
    /// version.
    RefusedVersion {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
    /// The connection was lost.
    Dropped,
    /// Nothing, until this side lost patience.
    KeptSilent,
}

/// What a server did that shows that it speaks version 1 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// It refused version 2.
    Refused,
    /// It answered in version 1.
    AnsweredInOne,
    /// It dropped the connection.
    Dropped,
    /// It kept silent.
    KeptSilent,
}

/// Why a version is spoken, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user wants no other.
    AsAsked,
    /// The server answered in it.
    Answered,
    /// The server does not speak version 2.
    Learnt(Lesson),
    /// It did not when it was last asked.
    Remembered(Lesson),
    /// The client began with it: the reason of a server.
    ClientBegan,
    /// The server speaks none that this side may: it said so,
    NoneInCommon {
        /// Lowest of its versions.
        low: u32,
        /// Highest.
        high: u32,
    },
    /// or it showed so.
    OnlyOne(Lesson),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Speak this version, on this connection.
    Speak(Version),
    /// Speak this version, on a new connection.
    Reconnect(Version),
    /// There is no version that both ends speak.
    GiveUp,
}

/// What is to be done, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
}

impl PeerDid {
    /// What it teaches: nothing about a server that speaks version 2, or neither.
    fn lesson(&self) -> Option<Lesson> {
        let has_one = |low: u32, high: u32| (low..=high).contains(&Version::One.number());
        match *self {
            Self::Answered(Version::Two | Version::Other(_)) => None,
            Self::Answered(Version::One) => Some(Lesson::AnsweredInOne),
            Self::RefusedVersion { low, high } => has_one(low, high).then_some(Lesson::Refused),
            Self::Dropped => Some(Lesson::Dropped),
            Self::KeptSilent => Some(Lesson::KeptSilent),
        }
    }
}

/// What is spoken to a server that did `did` when it was sent a version 2 message (sections 5.1 and
/// 5.2).
///
/// Where the connection survived, it is kept. A server that kept silent is left, and asked in
/// version 1 over a new connection: its answer may still come.
#[must_use]
pub fn decide_version(choice: Choice, did: &PeerDid) -> Decision {
    if let PeerDid::Answered(Version::Two) = did {
        return Decision {
            verdict: Verdict::Speak(Version::Two),
            reason: Reason::Answered,
        };
    }
    let (verdict, reason) = match (did.lesson(), did) {
        (Some(lesson), _) if !choice.allows(Version::One) => {
            (Verdict::GiveUp, Reason::OnlyOne(lesson))
        }
        (Some(lesson @ (Lesson::Dropped | Lesson::KeptSilent)), _) => {
            (Verdict::Reconnect(Version::One), Reason::Learnt(lesson))
        }
        (Some(lesson), _) => (Verdict::Speak(Version::One), Reason::Learnt(lesson)),
        (None, &PeerDid::RefusedVersion { low, high }) => {
            (Verdict::GiveUp, Reason::NoneInCommon { low, high })
        }
        // Whatever else a server does teaches something.
        (None, _) => (Verdict::Speak(Version::Two), Reason::Answered),
    };
    Decision { verdict, reason }
}

/// What is spoken before a server is asked: nothing, if it has to be asked.
#[must_use]
pub(crate) fn known(choice: Choice, remembered: Option<Lesson>) -> Option<Decision> {
    let (version, reason) = match (choice, remembered) {
        (Choice::Only(version @ (Version::One | Version::Other(_))), _) => {
            (version, Reason::AsAsked)
        }
        (Choice::Auto, Some(lesson)) => (Version::One, Reason::Remembered(lesson)),
        (Choice::Only(Version::Two), _) | (Choice::Auto, None) => return None,
    };
    Some(Decision {
        verdict: Verdict::Speak(version),
        reason,
    })
}

impl Lesson {
    /// Whether nothing was heard of the server, which can have other causes than its version.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Dropped | Self::KeptSilent)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused version 2 and speaks 1",
            Self::AnsweredInOne => "answered version 2 in version 1",
            Self::Dropped => "dropped the connection at a version 2 message",
            Self::KeptSilent => "did not answer a version 2 message",
        }
    }
}

/// A range of versions in words.
#[must_use]
pub fn show_versions(low: u32, high: u32) -> String {
    match low == high {
        true => format!("version {low} only"),
        false => format!("versions {low} to {high}"),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsAsked => f.write_str("as asked for"),
            Self::Answered => f.write_str("the server answered in it"),
            Self::Learnt(lesson) | Self::OnlyOne(lesson) => {
                write!(f, "the server {}", lesson.words())
            }
            Self::Remembered(lesson) => {
                write!(f, "on an earlier connection, the server {}", lesson.words())
            }
            Self::ClientBegan => f.write_str("the client began with it"),
            Self::NoneInCommon { low, high } => {
                let versions = show_versions(*low, *high);
                write!(f, "the server refused version 2 and speaks {versions}")
            }
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Verdict::Speak(version) => write!(f, "version {version}: {}", self.reason),
            Verdict::Reconnect(version) => {
                write!(
                    f,
                    "version {version} over a new connection: {}",
                    self.reason
                )
            }
            Verdict::GiveUp => write!(f, "no version in common: {}", self.reason),
        }
    }
}
