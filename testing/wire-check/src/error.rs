//! Errors that prevent a check. (The result of a check is a [`crate::verdict::Verdict`].)

use std::io;

/// The reason why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A tool could not be started.
    #[error("{tool}: {source}")]
    Start {
        /// The tool's name.
        tool: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A tool failed.
    #[error("{tool}: {said}")]
    Tool {
        /// The tool's name.
        tool: &'static str,
        /// The tool's output.
        said: String,
    },
    /// An action of this program failed.
    #[error("{what}: {why}")]
    Ours {
        /// The action.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

impl Error {
    /// Returns a function for `map_err` that adds the failed action.
    pub(crate) fn ours<E: ToString>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::Ours {
            what,
            why: error.to_string(),
        }
    }
}
