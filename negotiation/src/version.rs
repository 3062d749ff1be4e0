//! Protocol versions, and the configuration of versions.

use std::fmt;
use std::str::FromStr;

use rpcrdma_chunks::Fixed;
use rpcrdma_chunks::limits::MIN_HEADER_LEN;

/// The name of [`Version::TwoWg`].
const WG: &str = "2wg";

/// A version of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1 (RFC 8166).
    One,
    /// Version 2 of 2016 (version-two-01).
    Two,
    /// Version 2 of the working group (version-two-07), `2wg` in options and texts. It has the same
    /// number as [`Version::Two`] and other header types, by which the two are told apart.
    TwoWg,
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
            Self::Two | Self::TwoWg => rpcrdma_v2::VERSION,
            Self::Other(number) => number,
        }
    }

    /// Returns whether peers of this version may exchange operations of extensions. Version 1 has
    /// none; of other versions than 1 and 2, only their implementation knows.
    #[must_use]
    pub const fn may_have_operations(self) -> bool {
        !matches!(self, Self::One)
    }

    /// Returns the version with this `rdma_vers`. The number 2 has two versions, of which this
    /// returns [`Version::Two`]; a message tells which one it is ([`Version::of`]).
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            rpcrdma_v1::VERSION => Self::One,
            rpcrdma_v2::VERSION => Self::Two,
            other => Self::Other(other),
        }
    }

    /// Returns the version of a message, from its fixed fields and the number of bytes that are
    /// known of it, at least [`MIN_HEADER_LEN`] unless the message is shorter.
    ///
    /// The procedures of 2016 are 0, 1, 4 and 5, the header types of the working group 4 to 13 and
    /// those of its extensions. Both have 4 for errors, which are taken for 2016's here, and 5:
    /// RDMA2_OPTIONAL of 2016 has 28 bytes at least, RDMA2_GRANT of the working group has 16.
    #[must_use]
    pub const fn of(fixed: &Fixed, known: usize) -> Self {
        match (Self::from_number(fixed.version), fixed.procedure) {
            (Self::Two, rpcrdma_v2::OPTIONAL) if known < MIN_HEADER_LEN => Self::TwoWg,
            (Self::Two, 6..) => Self::TwoWg,
            (version, _) => version,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoWg => f.write_str(WG),
            other => write!(f, "{}", other.number()),
        }
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
    /// The first of these that the server also supports: version 2 of the working group, version 2
    /// of 2016, version 1.
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
            Self::Auto => !matches!(version, Version::Other(_)),
            Self::Only(only) => only == version,
        }
    }

    /// Returns the version of the first message that asks the server for version 2.
    #[must_use]
    pub fn asked_for(self) -> Version {
        match self {
            Self::Auto | Self::Only(Version::TwoWg) => Version::TwoWg,
            Self::Only(_) => Version::Two,
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
            WG => Ok(Self::Only(Version::TwoWg)),
            _ => Err(ParseVersionError(name.to_owned(), "1, 2, 2wg or auto")),
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
    one: bool,
    two: bool,
    two_wg: bool,
    other: Option<u32>,
}

impl Default for Versions {
    /// Returns all implemented versions.
    fn default() -> Self {
        Self {
            one: true,
            two: true,
            two_wg: true,
            other: None,
        }
    }
}

impl Versions {
    /// Creates a set of one version.
    #[must_use]
    pub fn only(version: Version) -> Self {
        let none = Self {
            one: false,
            two: false,
            two_wg: false,
            other: None,
        };
        none.with(version)
    }

    /// Adds a version. Of [`Version::Other`] there is one at most, the last one added.
    #[must_use]
    pub fn with(mut self, version: Version) -> Self {
        match version {
            Version::One => self.one = true,
            Version::Two => self.two = true,
            Version::TwoWg => self.two_wg = true,
            Version::Other(number) => self.other = Some(number),
        }
        self
    }

    /// Returns whether the set contains `version`.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        self.iter().any(|contained| contained == version)
    }

    /// Returns whether the set has a version whose peers may exchange operations of extensions.
    #[must_use]
    pub fn may_have_operations(self) -> bool {
        self.iter().any(Version::may_have_operations)
    }

    /// Returns the lowest and the highest number of a version in the set, as a version error
    /// reports them.
    #[must_use]
    pub fn range(self) -> (u32, u32) {
        let numbers = || self.iter().map(Version::number);
        // The set is never empty.
        let (low, high) = (numbers().min(), numbers().max());
        (low.unwrap_or_default(), high.unwrap_or_default())
    }

    /// Returns the versions.
    pub fn iter(self) -> impl Iterator<Item = Version> {
        let known = [
            (self.one, Version::One),
            (self.two, Version::Two),
            (self.two_wg, Version::TwoWg),
        ];
        let known = known.into_iter().filter(|(contained, _)| *contained);
        let known = known.map(|(_, version)| version);
        known.chain(self.other.map(Version::Other))
    }
}

impl FromStr for Versions {
    type Err = ParseVersionError;

    fn from_str(names: &str) -> Result<Self, ParseVersionError> {
        let wrong = || ParseVersionError(names.to_owned(), "some of 1, 2 and 2wg, as in 1,2");
        let mut found: Option<Self> = None;
        for name in names.split(',') {
            let version = match name.trim() {
                "1" => Version::One,
                "2" => Version::Two,
                WG => Version::TwoWg,
                _ => return Err(wrong()),
            };
            found = Some(found.map_or(Self::only(version), |versions| versions.with(version)));
        }
        found.ok_or_else(wrong)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for version in self.iter() {
            write!(f, "{before}{version}")?;
            before = ",";
        }
        Ok(())
    }
}
