//! Why a check could not be made. (A check that was made and failed is a [`crate::verdict::Verdict`].)

use std::io;

/// Why.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A tool could not be run.
    #[error("{tool}: {source}")]
    Start {
        /// Its name.
        tool: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// A tool ran, but not to its end.
    #[error("{tool}: {said}")]
    Tool {
        /// Its name.
        tool: &'static str,
        /// What it said.
        said: String,
    },
    /// Something of ours did not work.
    #[error("{what}: {why}")]
    Ours {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        why: String,
    },
}

impl Error {
    /// For `map_err`: what was tried, and an error that says why it failed.
    pub(crate) fn ours<E: ToString>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::Ours {
            what,
            why: error.to_string(),
        }
    }
}
