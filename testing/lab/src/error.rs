//! What goes wrong in the lab itself, as opposed to a check that fails in a lane.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the lab could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that has no path could not be done.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A command could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The command.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A command ended with another status than 0.
    #[error("{program} failed ({status}):\n{said}")]
    Command {
        /// The command.
        program: String,
        /// How it ended, in words.
        status: String,
        /// The end of what it printed.
        said: String,
    },
    /// A command did not end in time and was killed.
    #[error("{program} was stopped after {} s:\n{said}", limit.as_secs_f32())]
    TimedOut {
        /// The command.
        program: String,
        /// The time that it had.
        limit: Duration,
        /// The end of what it printed.
        said: String,
    },
    /// SIGINT or SIGTERM arrived.
    #[error("interrupted")]
    Interrupted,
    /// Another lab is at work in the same cache folder: guests run one at a time.
    #[error("another lab is at work in {}", .0.display())]
    Busy(PathBuf),
    /// Building takes root: packages are installed, and files in the guest belong to root.
    #[error("building the guest takes root")]
    NotRoot,
    /// The path would be misread by QEMU, by make or by apt.
    #[error("{}: a cache folder's path has no white space, comma, colon or quote", .0.display())]
    CachePath(PathBuf),
    /// The machine's apt configuration names no archive with Debian 12.
    #[error("apt on this machine is not configured for Debian 12 (bookworm)")]
    NoArchive,
    /// What apt said makes no sense to the lab.
    #[error("apt: {0}")]
    Apt(String),
    /// A source file is not what the lab's patch of it expects.
    #[error("siw: {file} has no line `{line}`")]
    Patch {
        /// The file of the driver.
        file: &'static str,
        /// The line that was looked for.
        line: &'static str,
    },
    /// A module that the guest is to have is neither there nor built in.
    #[error("this kernel has no module {0}")]
    NoModule(String),
    /// There is no such lane.
    #[error("no lane {name}; there are: {there}")]
    NoLane {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// A lane's header is wrong.
    #[error("{}:{line}: {problem}", path.display())]
    Lane {
        /// The lane's file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A program that a lane needs has not been built.
    #[error(
        "the lane needs {}: build it (cargo build --release) or name another (--bin NAME=PATH)",
        .0.display()
    )]
    NoProgram(PathBuf),
    /// A lane runs a command on the host that is not installed there.
    #[error("the lane needs {0} on this machine: install it (tshark has a package of that name)")]
    NoCommand(String),
    /// A lane wants tests of a package that has none.
    #[error("package {0} has no integration tests")]
    NoTests(String),
}

impl Error {
    /// For `map_err`: what failed was this file or folder.
    pub fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::File { path, source }
    }

    /// For `map_err`: what failed was this.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
