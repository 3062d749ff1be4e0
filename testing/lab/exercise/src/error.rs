//! Why an exercise failed.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// What went wrong, for people: an exercise that fails ends, and says what it saw.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Something is not as it has to be.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// For `map_err`: a system call on this path failed.
    pub fn at<E: Into<io::Error>>(what: &str, path: &Path) -> impl FnOnce(E) -> Self {
        let at = format!("{what} {}", path.display());
        move |error| Self(format!("{at}: {}", error.into()))
    }

    /// The same, with where it happened in front.
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
