//! Errors of the lab itself, as opposed to failed checks in a lane.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reason why the lab could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An operation without a path failed.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A command could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The command.
        program: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A command ended with an exit status other than 0.
    #[error("{program} failed ({status}):\n{said}")]
    Command {
        /// The command.
        program: String,
        /// The exit status in words.
        status: String,
        /// The end of its output.
        said: String,
    },
    /// A command did not end in time and was killed.
    #[error("{program} was stopped after {} s:\n{said}", limit.as_secs_f32())]
    TimedOut {
        /// The command.
        program: String,
        /// The time-out.
        limit: Duration,
        /// The end of its output.
        said: String,
    },
    /// SIGINT or SIGTERM arrived.
    #[error("interrupted")]
    Interrupted,
    /// Another lab works in the same cache directory. Guests run one at a time.
    #[error("another lab is at work in {}", .0.display())]
    Busy(PathBuf),
    /// Building needs root: packages are installed, and files in the guest belong to root.
    #[error("building the guest needs root")]
    NotRoot,
    /// The path contains characters that QEMU, make or apt would misinterpret.
    #[error("{}: a cache directory's path must not contain white space, comma, colon or quote", .0.display())]
    CachePath(PathBuf),
    /// The machine's apt configuration names no archive with Debian 12.
    #[error("apt on this machine is not configured for Debian 12 (bookworm)")]
    NoArchive,
    /// The output of apt cannot be parsed.
    #[error("apt: {0}")]
    Apt(String),
    /// A source file does not contain the line that a patch replaces.
    #[error("siw: {file} has no line `{line}`")]
    Patch {
        /// The file of the driver.
        file: &'static str,
        /// The expected line.
        line: &'static str,
    },
    /// A module for the guest neither exists nor is built in.
    #[error("this kernel has no module {0}")]
    NoModule(String),
    /// The lane does not exist.
    #[error("no lane {name}; there are: {there}")]
    NoLane {
        /// The requested name.
        name: String,
        /// The existing lanes.
        there: String,
    },
    /// A lane's header is invalid.
    #[error("{}:{line}: {problem}", path.display())]
    Lane {
        /// The lane's file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// A program that a lane needs has not been built.
    #[error(
        "the lane needs {}: build it (cargo build --release) or name another (--bin NAME=PATH)",
        .0.display()
    )]
    NoProgram(PathBuf),
    /// A command that a lane runs on the host is not installed there.
    #[error("the lane needs {0} on this machine: install it (tshark has a package of that name)")]
    NoCommand(String),
    /// A package whose tests a lane runs has none.
    #[error("package {0} has no integration tests")]
    NoTests(String),
}

impl Error {
    /// Returns a function for `map_err`: an operation on this file or directory failed.
    pub fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::File { path, source }
    }

    /// Returns a function for `map_err`: this operation failed.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
