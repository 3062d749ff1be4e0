//! The error of an exercise.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// The description of a failure for the user. An exercise ends at its first failure.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Creates a failure for an unexpected result.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns a function for `map_err`: a system call on this path failed.
    pub fn at<E: Into<io::Error>>(what: &str, path: &Path) -> impl FnOnce(E) -> Self {
        let at = format!("{what} {}", path.display());
        move |error| Self(format!("{at}: {}", error.into()))
    }

    /// Prefixes the failure with its place.
    #[must_use]
    pub fn within(self, place: impl Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
