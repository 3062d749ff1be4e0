//! Copies of whole trees, and of single files, between this machine and an NFS server.
//!
//! [`get`] copies from the server, [`put`] to it, and [`remove`] removes there. Each takes a
//! [`Mount`](nfs_binding::client::Mount), which is an export in use, and ends with a [`Report`] of
//! what was done and of what went wrong. [`CopyOptions`] say what is kept and how much is under way
//! at once.
//!
//! Many calls are in flight at once, all from one thread: a stack of tasks (an entry to copy, a
//! directory to list on, a directory to finish), of which the first few are futures under way.
//! What is in flight is bounded by files and by bytes; what waits is bounded by the entries of the
//! directories under way, since the stack goes into depth first and lists directories piecemeal.
//!
//! What is kept is what `cp -a` keeps: modes, modification and access times to the nanosecond,
//! symbolic and hard links, holes, pipes, sockets and devices, and owners where the caller may set
//! them. An object that gets another owner or group than its source has loses its set-id bits: a
//! program that ran as somebody else must not run as whoever copied it. What happens where something has the name already is what `cp -a` does:
//!
//! * a directory onto a directory: their contents are merged;
//! * a file onto a file on the server: it is emptied and written in place, under its own name from
//!   the start. A copy that ends early says which files it left shorter; copying again completes
//!   them. A file onto a file here: it is written beside it, under a temporary name, and takes its
//!   place when it is complete, as rsync does, and is on the disk. So whatever ends a `get`, be it a
//!   power cut, no name ever stands for half a file. A folder is synced when all in it is done, so that
//!   a `get` that has ended well lasts;
//! * anything else onto something that is no directory: it takes the old one's place. So a file is
//!   never written *through* a symbolic link, on either side;
//! * a directory onto something else, or the reverse: an error. So is a file in the place of a
//!   device that the user named as the target.
//!
//! What fails is noted with its path, and the other files go on, except when the server cannot be
//! reached any more. Directories get their modes and times when all in them is done.
//!
//! `get` calls fsync for each file. On ext4 and a busy machine, 5000 files of a few bytes take two to three
//! times as long as without.
//!
//! Local files are read and written by calls that block: mostly they go to the page cache, and
//! the kernel is told to read large files ahead.

#![forbid(unsafe_code)]

mod budget;
mod get;
mod get_file;
mod interrupt;
mod ledger;
mod links;
mod local;
mod put;
mod put_file;
mod put_special;
mod remove;
mod work;

#[cfg(test)]
#[path = "../../nfs-binding/tests/support/in_process.rs"]
mod in_process;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub use get::get;
pub use interrupt::Interrupt;
pub use put::put;
pub use remove::remove;

use nfs_binding::client::{DisplayPath, NfsError};
use nfs_binding::escape::escape;

/// How much is under way at once, and what is kept.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Whether directories are copied (or removed), with all that is in them.
    pub recursive: bool,
    /// Files, links and directories under way at once, at least 1.
    pub files_in_flight: usize,
    /// Bytes of file data under way at once. A quarter of the pool's limit at most, so that the
    /// transport finds memory for itself.
    pub bytes_in_flight: usize,
    /// Whether owners are kept.
    pub owner: Owner,
    /// Whether set-id bits are copied, where the owner is kept or is the same. If not, no copy has
    /// any (as on a file system that is mounted `nosuid`, they would have no effect).
    pub set_id: bool,
    /// Whether devices are copied. If not, they are left out, which [`Totals::devices_left_out`] counts.
    pub devices: bool,
    /// Whether holes are made where files hold zeroes.
    pub sparse: Sparse,
    /// What can end it early.
    pub interrupt: Interrupt,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: true,
            files_in_flight: 64,
            bytes_in_flight: 32 << 20,
            owner: Owner::IfRoot,
            set_id: true,
            devices: true,
            sparse: Sparse::Auto,
            interrupt: Interrupt::new(),
        }
    }
}

/// Whether owner and group are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No: everything belongs to whom it is made by.
    No,
    /// Tried if this process is root's. Where that is not permitted, they are not kept, which
    /// [`Totals::owners_lost`] counts.
    IfRoot,
    /// Yes; where that is not permitted it is an error.
    Yes,
}

/// Whether files get holes when they are fetched. (When they are sent, they get those that the
/// local file has.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// Zeroes become holes if the file takes less room on the server than its length.
    Auto,
    /// Zeroes become holes.
    Always,
    /// Zeroes are written.
    Never,
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Regular files done; of one that has several names, each.
    pub files: u64,
    /// Directories done.
    pub directories: u64,
    /// Symbolic links and special files done.
    pub others: u64,
    /// Bytes of file data moved; holes are not.
    pub bytes: u64,
    /// Bytes of file data sent again because the server had restarted before it had them on
    /// stable storage.
    pub bytes_again: u64,
    /// Objects whose owner could not be kept.
    pub owners_lost: u64,
    /// Devices that were not copied, as [`CopyOptions::devices`] forbids them.
    pub devices_left_out: u64,
    /// What went wrong.
    pub problems: u64,
}

/// How a copy or removal ended.
#[derive(Debug, Default)]
pub struct Report {
    /// What has been done.
    pub totals: Totals,
    /// What went wrong, in the order in which it did; the first [`MAX_PROBLEMS`].
    pub problems: Vec<CopyError>,
    /// Files on the server that were being written when something went wrong, and are shorter than
    /// they were to be; the first [`MAX_PROBLEMS`].
    pub unfinished: Vec<DisplayPath>,
    /// Whether the rest was given up, since the server could not be reached any more.
    pub stopped: bool,
    /// Whether [`CopyOptions::interrupt`] ended it.
    pub interrupted: bool,
}

/// Problems that are kept; all are counted.
pub const MAX_PROBLEMS: usize = 1000;

impl Report {
    /// Whether everything went well.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.totals.problems == 0 && !self.stopped && !self.interrupted
    }
}

/// Why something could not be copied or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// On the server.
    #[error(transparent)]
    Remote(#[from] NfsError),
    /// On this machine.
    #[error("{doing} {}: {source}", escape(path.as_os_str().as_bytes()))]
    Local {
        /// What was tried.
        doing: &'static str,
        /// At which path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It is a directory, and the copy is not recursive.
    #[error("{path} is a directory, and -r was not given")]
    NotRecursive {
        /// The directory.
        path: DisplayPath,
    },
    /// A directory is where something else is to go, or the reverse.
    #[error("{path} exists, and {}", if *.is_directory {
        "is a directory: it is not replaced"
    } else {
        "is no directory: none can be made in its place"
    })]
    InTheWay {
        /// What exists.
        path: DisplayPath,
        /// Whether that is a directory.
        is_directory: bool,
    },
    /// A device was named as the target of a copy.
    #[error("{path} is a device: it is not replaced by a file")]
    Device {
        /// The device.
        path: DisplayPath,
    },
    /// The source was written to while it was copied: the copy may be a mixture.
    #[error("{path} changed while it was copied")]
    Changed {
        /// The source.
        path: DisplayPath,
    },
    /// A time that NFS version 3 cannot say (before 1970 or after 2106): the nearest was set.
    #[error("a time of {path} is out of NFS version 3's range, 1970 to 2106")]
    TimeRange {
        /// Whose.
        path: DisplayPath,
    },
    /// The server lost what was written, again and again.
    #[error("the server restarted {times} times while {path} was written; given up")]
    Restarts {
        /// The file.
        path: DisplayPath,
        /// How often.
        times: u32,
    },
    /// No memory for file data: the pool is too small for what is in flight.
    #[error("no memory to copy {path}: {source}")]
    Memory {
        /// The file.
        path: DisplayPath,
        /// What was asked for.
        source: rdma::PoolExhausted,
    },
}

impl CopyError {
    /// Whether all that follows will fail as well.
    fn is_fatal(&self) -> bool {
        matches!(self, Self::Remote(error) if error.is_fatal())
    }
}
