//! Identifiers of protocol versions, and selections of versions by their users.

use std::fmt;
use std::sync::Arc;

/// The identifier of a version of RPC-over-RDMA: its number on the wire, and a name, because two
/// versions may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    number: u32,
    name: &'static str,
}

impl Version {
    /// Version 1 (RFC 8166).
    pub const ONE: Self = Self::new(1, "1");
    /// Version 2 of 2016 (version-two-01).
    pub const TWO: Self = Self::new(2, "2");
    /// Version 2 of the working group (version-two-07). It has the same number as [`Version::TWO`]
    /// and other header types, by which the two are told apart.
    pub const TWO_WG: Self = Self::new(2, "2wg");

    /// Returns the identifier of a version with this `rdma_vers`. The name is that of options and
    /// texts; it has no comma, and no other version of a program has it.
    #[must_use]
    pub const fn new(number: u32, name: &'static str) -> Self {
        Self { number, name }
    }

    /// Returns the value of `rdma_vers`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Returns the name in options and texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The versions that a client may use, of those that it knows: `-o rpcrdma=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first of all known versions that the server also supports.
    #[default]
    Auto,
    /// Only this version.
    Only(Version),
}

impl Choice {
    /// Returns whether this version may be used if it is known.
    #[must_use]
    pub fn allows(self, version: Version) -> bool {
        match self {
            Self::Auto => true,
            Self::Only(only) => only == version,
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

/// The versions that a server accepts, of those that it knows: `--rpcrdma`. By default, all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions(
    /// The versions without repetition, by number and name. `None`: all that are known.
    Option<Arc<[Version]>>,
);

impl Versions {
    /// Creates a set of one version.
    #[must_use]
    pub fn only(version: Version) -> Self {
        Self(Some(Arc::new([version])))
    }

    /// Adds a version, unless the set contains all.
    #[must_use]
    pub fn with(self, version: Version) -> Self {
        let add = |versions: Arc<[Version]>| {
            let mut versions = versions.to_vec();
            versions.push(version);
            versions.sort_unstable();
            versions.dedup();
            versions.into()
        };
        Self(self.0.map(add))
    }

    /// Returns whether the set contains `version`.
    #[must_use]
    pub fn contains(&self, version: Version) -> bool {
        let versions = self.0.as_deref();
        versions.is_none_or(|versions| versions.contains(&version))
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(versions) = &self.0 else {
            return f.write_str("all");
        };
        let names: Vec<_> = versions.iter().map(|version| version.name()).collect();
        f.write_str(&names.join(","))
    }
}
