//! The versions that an end of a connection knows, and their extensions.

use std::fmt;
use std::sync::Arc;

use rpcrdma_extension::layout::ReceiveStructure;
use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};
use rpcrdma_negotiation::{KnownVersions, Version};

use crate::dialect::{Dialect, STANDARD};
use crate::flow::Accounting;

/// The versions that an end of a connection knows, in the order in which a client prefers them, and the
/// extensions of each. Cloning is cheap. Formatted as its name.
///
/// A version is a [`Dialect`]; there is no other place that knows it. [`Role`](crate::Role) says
/// which of these versions a connection may speak. [`Protocols::default`] has those of this crate,
/// without extensions. `rpcrdma_protocols::standard` has the extensions of this project.
#[derive(Clone, Debug)]
pub struct Protocols {
    name: Arc<str>,
    dialects: Arc<[&'static dyn Dialect]>,
    known: KnownVersions,
    extensions: Arc<Vec<(Version, Arc<dyn ExtensionFactory>)>>,
}

impl Default for Protocols {
    fn default() -> Self {
        Self::named("")
    }
}

impl Protocols {
    /// Returns protocols with this name, for logs, with the versions of this crate and without
    /// extensions.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        let name = Arc::from(name.into());
        Self {
            name,
            dialects: Arc::from(STANDARD),
            known: STANDARD.iter().map(|&dialect| dialect as _).collect(),
            extensions: Arc::default(),
        }
    }

    /// Returns the same protocols with this name, for logs.
    #[must_use]
    pub fn called(self, name: impl Into<String>) -> Self {
        let name = Arc::from(name.into());
        Self { name, ..self }
    }

    /// Returns the same protocols with these versions, at least one, and no other.
    #[must_use]
    pub fn speaking(self, versions: impl IntoIterator<Item = &'static dyn Dialect>) -> Self {
        let dialects: Arc<[&'static dyn Dialect]> = versions.into_iter().collect();
        let known = dialects.iter().map(|&dialect| dialect as _).collect();
        Self {
            dialects,
            known,
            ..self
        }
    }

    /// Returns the same protocols with one more version, which a client prefers to all others.
    #[must_use]
    pub fn preferring(self, version: &'static dyn Dialect) -> Self {
        let others = Arc::clone(&self.dialects);
        self.speaking([version].into_iter().chain(others.iter().copied()))
    }

    /// Returns the versions as negotiation sees them.
    #[must_use]
    pub fn known(&self) -> &KnownVersions {
        &self.known
    }

    /// Returns the versions that `allows` accepts.
    pub(crate) fn dialects(
        &self,
        allows: impl Fn(Version) -> bool,
    ) -> impl Iterator<Item = &'static dyn Dialect> {
        let dialects = self.dialects.iter().copied();
        dialects.filter(move |dialect| allows(dialect.version()))
    }

    /// Returns whether a version that `allows` accepts has messages of extensions, so that its
    /// receives may be longer ([`Options::receives`](crate::Options::receives)).
    #[must_use]
    pub fn has_extensions(&self, allows: impl Fn(Version) -> bool) -> bool {
        let mut dialects = self.dialects(allows);
        dialects.any(|dialect| dialect.has_extensions())
    }

    /// Returns what a version counts for flow control, if it is one of these.
    #[must_use]
    pub fn accounting(&self, version: Version) -> Option<Accounting<'static>> {
        let mut dialects = self.dialects(|known| known == version);
        dialects.next().map(|dialect| dialect.accounting())
    }

    /// Adds an extension to those of a version. No two of them may own the same number. When a
    /// connection begins, they are called in the order in which they were added.
    pub fn add(&mut self, version: Version, extension: Arc<dyn ExtensionFactory>) {
        Arc::make_mut(&mut self.extensions).push((version, extension));
    }

    /// Returns the same protocols with another extension ([`Protocols::add`]).
    #[must_use]
    pub fn with(mut self, version: Version, extension: Arc<dyn ExtensionFactory>) -> Self {
        self.add(version, extension);
        self
    }

    /// Makes the extensions of a new connection in this version.
    pub(crate) fn make(&self, version: Version, end: &EndConfig<'_>) -> Vec<Box<dyn Extension>> {
        let of_version = self.extensions.iter().filter(|(of, _)| *of == version);
        of_version.filter_map(|(_, it)| it.make(end)).collect()
    }

    /// Returns the factories for the versions that `allows` accepts and that have extensions.
    fn factories(
        &self,
        allows: impl Fn(Version) -> bool,
    ) -> impl Iterator<Item = &dyn ExtensionFactory> {
        let extensible = self.dialects(allows).filter(|it| it.has_extensions());
        let versions: Vec<Version> = extensible.map(|dialect| dialect.version()).collect();
        let all = self.extensions.iter();
        all.filter(move |(of, _)| versions.contains(of))
            .map(|(_, factory)| &**factory)
    }

    /// Returns the structure of the longest receives that an extension of a version wants that `allows`
    /// accepts, each for messages of at least `plain` bytes. `None` if receives of one segment will do
    /// for all.
    #[must_use]
    pub fn receives(
        &self,
        allows: impl Fn(Version) -> bool,
        plain: u32,
    ) -> Option<ReceiveStructure> {
        let wanted = self.factories(allows).filter_map(|it| it.receives(plain));
        wanted.max_by_key(ReceiveStructure::size)
    }

    /// Returns the length in bytes of the longest message that an extension of a version that `allows`
    /// accepts sends beyond those that all may send, or 0.
    #[must_use]
    pub fn max_send(&self, allows: impl Fn(Version) -> bool) -> u32 {
        let lengths = self.factories(allows).map(ExtensionFactory::max_send);
        lengths.max().unwrap_or(0)
    }

    /// Returns the maximum number of receives that the parts of one incomplete call can hold, in a
    /// version that `allows` accepts, if `credits` are granted.
    #[must_use]
    pub fn held_by_a_call(&self, allows: impl Fn(Version) -> bool, credits: u32) -> u32 {
        let held = self.factories(allows).map(|it| it.held_by_a_call(credits));
        held.max().unwrap_or(0)
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
