//! Protocol versions, and the configuration of versions.

use std::fmt;
use std::str::FromStr;

/// A version of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1 (RFC 8166).
    One,
    /// Version 2 (version-two-01).
    Two,
    /// Another version, which a program implements. It is not negotiated: both ends must be
    /// configured for it.
    Other(u32),
}

impl Version {
    /// Returns the value of `rdma_vers`.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::One => rpcrdma_v1::VERSION,
            Self::Two => rpcrdma_v2::VERSION,
            Self::Other(number) => number,
        }
    }

    /// Returns whether peers of this version may exchange operations of extensions. Version 1 has
    /// none; of other versions than 1 and 2, only their implementation knows.
    #[must_use]
    pub const fn may_have_operations(self) -> bool {
        !matches!(self, Self::One)
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

/// A string is not the name of a version or of a set of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not {1}")]
pub struct ParseVersionError(
    /// The string.
    pub String,
    /// Description of the valid strings.
    pub &'static str,
);

/// The versions that a client may use: `-o rpcrdma=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The highest version that the server also supports.
    #[default]
    Auto,
    /// Only this version.
    Only(Version),
}

impl Choice {
    /// Returns whether this version may be used.
    #[must_use]
    pub fn allows(self, version: Version) -> bool {
        match self {
            Self::Auto => true,
            Self::Only(only) => only == version,
        }
    }

    /// Returns whether a version may be used whose peers may exchange operations of extensions.
    #[must_use]
    pub fn may_have_operations(self) -> bool {
        match self {
            Self::Auto => true,
            Self::Only(only) => only.may_have_operations(),
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

/// The versions that a server accepts, at least one: `--rpcrdma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    low: Version,
    high: Version,
}

impl Default for Versions {
    /// Returns all implemented versions.
    fn default() -> Self {
        Self {
            low: Version::One,
            high: Version::Two,
        }
    }
}

impl Versions {
    /// Creates a set of one version.
    #[must_use]
    pub fn only(version: Version) -> Self {
        Self {
            low: version,
            high: version,
        }
    }

    /// Returns whether the set contains `version`.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        (self.low..=self.high).contains(&version)
    }

    /// Returns whether the set has a version whose peers may exchange operations of extensions.
    #[must_use]
    pub fn may_have_operations(self) -> bool {
        self.high.may_have_operations()
    }

    /// Returns the lowest version.
    #[must_use]
    pub fn low(self) -> Version {
        self.low
    }

    /// Returns the highest version.
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
                // There are only two versions, so any two of them form a range.
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
