//! What connections speak beyond the versions themselves.

use std::fmt;
use std::sync::Arc;

use rpcrdma_extension::layout::ReceiveStructure;
use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};
use rpcrdma_negotiation::Version;

/// The extensions of connections, each for one version. Cloning is cheap. Formatted as its name.
///
/// [`Protocols::default`] has none. `rpcrdma_protocols::standard` has those of this project.
#[derive(Clone, Debug, Default)]
pub struct Protocols {
    name: String,
    extensions: Vec<(Version, Arc<dyn ExtensionFactory>)>,
}

impl Protocols {
    /// Returns protocols with this name, for logs, and without extensions.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            extensions: Vec::new(),
        }
    }

    /// Adds an extension to those of a version. No two of them may own the same number. When a
    /// connection begins, they are called in the order in which they were added.
    pub fn add(&mut self, version: Version, extension: Arc<dyn ExtensionFactory>) {
        self.extensions.push((version, extension));
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

    fn factories(&self) -> impl Iterator<Item = &dyn ExtensionFactory> {
        self.extensions.iter().map(|(_, factory)| &**factory)
    }

    /// Returns the structure of the longest receives that an extension wants, each for messages of at
    /// least `plain` bytes. `None` if receives of one segment will do for all.
    #[must_use]
    pub fn receives(&self, plain: u32) -> Option<ReceiveStructure> {
        let wanted = self.factories().filter_map(|it| it.receives(plain));
        wanted.max_by_key(ReceiveStructure::size)
    }

    /// Returns the length in bytes of the longest message that an extension sends beyond those that
    /// all may send, or 0.
    #[must_use]
    pub fn max_send(&self) -> u32 {
        let lengths = self.factories().map(ExtensionFactory::max_send);
        lengths.max().unwrap_or(0)
    }

    /// Returns the maximum number of receives that the parts of one incomplete call can hold if
    /// `credits` are granted.
    #[must_use]
    pub fn held_by_a_call(&self, credits: u32) -> u32 {
        let held = self.factories().map(|it| it.held_by_a_call(credits));
        held.max().unwrap_or(0)
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
