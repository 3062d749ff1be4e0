//! Versions, and choices among them.

use std::fmt;
use std::str::FromStr;

/// A version of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 8166.
    One,
    /// version-two-01.
    Two,
    /// Another version, which a program brings along. It is not negotiated: both ends have to be told to
    /// speak it.
    Other(u32),
}

impl Version {
    /// `rdma_vers`.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::One => rpcrdma_v1::VERSION,
            Self::Two => rpcrdma_v2::VERSION,
            Self::Other(number) => number,
        }
    }

    /// Returns the version with this `rdma_vers`.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            rpcrdma_v1::VERSION => Self::One,
            rpcrdma_v2::VERSION => Self::Two,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// A name of a version, or of several, that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not {1}")]
pub struct ParseVersionError(
    /// What was given.
    pub String,
    /// What could have been.
    pub &'static str,
);

/// What a client is to speak: `-o rpcrdma=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The highest version that the server speaks as well.
    #[default]
    Auto,
    /// This version and no other.
    Only(Version),
}

impl Choice {
    /// Whether this version may be spoken.
    #[must_use]
    pub fn allows(self, version: Version) -> bool {
        match self {
            Self::Auto => true,
            Self::Only(only) => only == version,
        }
    }
}

impl FromStr for Choice {
    type Err = ParseVersionError;

    fn from_str(name: &str) -> Result<Self, ParseVersionError> {
        match name {
            "auto" => Ok(Self::Auto),
            "1" => Ok(Self::Only(Version::One)),
            "2" => Ok(Self::Only(Version::Two)),
            _ => Err(ParseVersionError(name.to_owned(), "1, 2 or auto")),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(version) => version.fmt(f),
        }
    }
}

/// What a server accepts: `--rpcrdma`. One version at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    low: Version,
    high: Version,
}

impl Default for Versions {
    /// All of them.
    fn default() -> Self {
        Self {
            low: Version::One,
            high: Version::Two,
        }
    }
}

impl Versions {
    /// Only this one.
    #[must_use]
    pub fn only(version: Version) -> Self {
        Self {
            low: version,
            high: version,
        }
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        (self.low..=self.high).contains(&version)
    }

    /// The lowest.
    #[must_use]
    pub fn low(self) -> Version {
        self.low
    }

    /// The highest.
    #[must_use]
    pub fn high(self) -> Version {
        self.high
    }
}

impl FromStr for Versions {
    type Err = ParseVersionError;

    fn from_str(names: &str) -> Result<Self, ParseVersionError> {
        let wrong = || ParseVersionError(names.to_owned(), "1, 2 or 1,2");
        let mut found: Option<Self> = None;
        for name in names.split(',') {
            let version = match name.trim() {
                "1" => Version::One,
                "2" => Version::Two,
                _ => return Err(wrong()),
            };
            found = Some(match found {
                None => Self::only(version),
                // There are two, so any two of them are a range.
                Some(versions) => Self {
                    low: versions.low.min(version),
                    high: versions.high.max(version),
                },
            });
        }
        found.ok_or_else(wrong)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.low == self.high {
            true => write!(f, "{}", self.low),
            false => write!(f, "{},{}", self.low, self.high),
        }
    }
}
