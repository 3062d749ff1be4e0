//! Errors that end the command, and their exit statuses.

use std::fmt::Display;
use std::io;

/// Exit status for a usage error: what clap uses, too.
pub const USAGE: u8 = 2;
/// Exit status for any other error.
pub const FAILURE: u8 = 1;

/// The reason why the command ends early. The text goes to standard error after `rpcrdma: `, and
/// contains advice where possible.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The arguments make no sense.
    #[error("{0}")]
    Usage(String),
    /// The work failed.
    #[error("{0}")]
    Work(String),
    /// A signal ended the command, during this action.
    #[error("{0}: interrupted")]
    Interrupted(String),
    /// A child process has printed the reason on the same standard error, and ended with this
    /// status.
    #[error("a child process ended with status {0}")]
    Told(u8),
    /// The reader of standard output has gone (`rpcrdma ls … | head`), which is not reported.
    #[error("standard output was closed")]
    OutputClosed,
}

impl Failure {
    /// Returns the failure for an invalid argument.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Returns the failure for this error.
    pub fn work(error: impl Display) -> Self {
        Self::Work(error.to_string())
    }

    /// Returns the failure for a failed write to standard output.
    pub fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Work(format!("cannot write to standard output: {error}")),
        }
    }

    /// Adds where the failure occurred. Its kind stays, other than with [`Context`].
    #[must_use]
    pub fn at(self, place: impl Display) -> Self {
        match self {
            Self::Usage(text) => Self::Usage(format!("{place}: {text}")),
            Self::Work(text) => Self::Work(format!("{place}: {text}")),
            Self::Interrupted(text) => Self::Interrupted(format!("{place}: {text}")),
            told @ (Self::Told(_) | Self::OutputClosed) => told,
        }
    }

    /// Returns the exit status of the command.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::OutputClosed => 0,
            Self::Told(status) => *status,
            Self::Work(_) | Self::Interrupted(_) => FAILURE,
        }
    }
}

/// Adds to an error the action that failed.
pub trait Context<T> {
    /// Converts an error to a [`Failure`] with the text `what: error`.
    fn context(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::Work(format!("{what}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_does_not_change_the_kind_of_a_failure() {
        let interrupted = Failure::Interrupted("connecting".to_owned()).at("there");
        assert!(matches!(&interrupted, Failure::Interrupted(_)));
        assert_eq!(interrupted.to_string(), "there: connecting: interrupted");
        let usage = Failure::usage("wrong").at("there");
        assert_eq!(
            (usage.exit_status(), &*usage.to_string()),
            (USAGE, "there: wrong")
        );
        assert_eq!(Failure::OutputClosed.at("there").exit_status(), 0);
    }
}
