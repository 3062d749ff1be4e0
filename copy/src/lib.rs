//! Copies of whole trees, and of single files, between this machine and an NFS server.
//!
//! [`get`] copies from the server, [`put`] and [`put_all`] to it, [`put_stream`] writes a stream to a file
//! there, and [`remove`] removes there. Each takes a
//! [`Mount`](nfs_binding::client::Mount), which is an export in use, and ends with a [`Report`] of
//! what was done and of what went wrong. [`CopyOptions`] say what is kept and how much is under way
//! at once.
//!
//! Many calls are in flight at once, all from one thread. Work is a stack of tasks (an entry to
//! copy, a directory to continue listing, a directory to finish), and the topmost few are futures
//! in progress. Limits on files and bytes bound what is in flight. The entries of the directories
//! in progress bound the stack, because it proceeds depth first and lists directories piecemeal.
//!
//! A copy keeps the same attributes as `cp -a`: modes, modification and access times to the
//! nanosecond, symbolic and hard links, holes, pipes, sockets, and owners if the caller may set
//! them. Set-id bits of files, and devices, are copied only if the options say so. An object whose
//! owner or group differs from its source's loses its set-id bits: a program that ran as one user
//! must not run as the user who copied it. Existing objects are treated as by `cp -a`:
//!
//! * a directory onto a directory: their contents are merged;
//! * a file onto a file on the server: the existing file is truncated and written in place, under
//!   its own name from the start. A copy that ends early reports the incomplete files; repeating
//!   the copy completes them. A file for which the server has no room, or that is too large for it,
//!   is removed there, since repeating the copy would not help; it stays if somebody else owns it, or
//!   if only its attributes could not be set. [`Report::lost`] names those that had content before.
//!   A file with further names there is replaced, so that these keep their content;
//! * a file onto a local file: the new file is written beside it under a temporary name, synced,
//!   and renamed when it is complete, as rsync does. So whatever interrupts a `get`, even a power
//!   cut, no name ever refers to an incomplete file. A directory is synced when everything in it is
//!   done, so the result of a successful `get` is on stable storage;
//! * anything else onto an object that is not a directory: the old object is replaced, by renaming a
//!   new one that was made beside it. So a file is never written *through* a symbolic link, on either
//!   side, and the old object stays if the new one cannot be made. A `put` that is interrupted between
//!   these two calls removes the temporary name (`.NAME.` and 8 hexadecimal digits) on the server, or
//!   reports it if it cannot; one that is killed can leave it there;
//! * a directory onto another kind of object, or the reverse: an error. So is anything onto a local
//!   device, pipe or socket that the user named as the target, a file onto itself, and a directory into
//!   itself.
//!
//! A failure is recorded with its path, and the copy continues with other files, except when the
//! server is unreachable. Directories get their modes and times when everything in them is done.
//!
//! `get` calls fsync for each file. On ext4 and a busy machine, 5000 files of a few bytes take two
//! to three times as long as without.
//!
//! Local files are read and written with blocking calls: these mostly go to the page cache, and the
//! kernel is advised to read ahead in large files.

#![forbid(unsafe_code)]

mod budget;
mod descriptors;
mod get;
mod get_file;
mod ledger;
mod links;
mod local;
mod put;
mod put_file;
mod put_special;
mod put_stream;
mod remove;
mod same;
mod temporary;
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
pub use put::{put, put_all};
pub use put_stream::put_stream;
pub use remove::remove;
pub use rpc_transport::Interrupt;

use nfs_binding::client::{DisplayPath, NfsError};
use nfs_binding::escape::escape;
use nfs_binding::proto::Status;

/// Options of a copy or removal: concurrency, and which attributes are kept.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Whether directories are copied (or removed) with everything in them.
    pub recursive: bool,
    /// The maximum number of files, links and directories in progress at once, at least 1. Fewer
    /// files are open at once if that would take more than a quarter of the file descriptors that
    /// the process may still open.
    pub files_in_flight: usize,
    /// The maximum number of bytes of file data in flight. It is at most a quarter of the pool's
    /// limit, so that the transport gets memory too.
    pub bytes_in_flight: usize,
    /// Whether owners are kept.
    pub owner: Owner,
    /// Whether set-id bits are copied if the owner and group are those of the source. If not, no
    /// file gets any (as if the file system were mounted `nosuid`), and
    /// [`Totals::set_ids_left_out`] counts the files that would have got some. Directories keep
    /// theirs, because these bits do not affect execution there.
    pub set_id: bool,
    /// Whether devices are copied. If not, they are skipped, which [`Totals::devices_left_out`]
    /// counts.
    pub devices: bool,
    /// Whether zeroes in files become holes.
    pub sparse: Sparse,
    /// The handle that can interrupt the operation.
    pub interrupt: Interrupt,
}

impl Default for CopyOptions {
    /// Returns the options for a copy from a source that may be hostile: without set-id bits and
    /// devices, which such a server could plant.
    fn default() -> Self {
        Self {
            recursive: true,
            files_in_flight: 64,
            bytes_in_flight: 32 << 20,
            owner: Owner::IfRoot,
            set_id: false,
            devices: false,
            sparse: Sparse::Auto,
            interrupt: Interrupt::new(),
        }
    }
}

/// Whether owner and group are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No: all objects belong to the user who creates them.
    No,
    /// Yes if this process runs as root. Owners that may not be set are counted in
    /// [`Totals::owners_lost`].
    IfRoot,
    /// Yes. It is an error if an owner may not be set.
    Yes,
}

/// Whether fetched files get holes. (Sent files get the holes of the local file.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// Zeroes become holes if the file takes less space on the server than its length.
    Auto,
    /// Zeroes become holes.
    Always,
    /// Zeroes are written.
    Never,
}

/// Totals of a copy or removal so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Regular files done; a file with several names counts once for each name.
    pub files: u64,
    /// Directories done.
    pub directories: u64,
    /// Symbolic links and special files done.
    pub others: u64,
    /// Bytes of file data transferred; holes do not count.
    pub bytes: u64,
    /// The part of `bytes` that belongs to incomplete files which were removed or are copied again.
    pub bytes_removed: u64,
    /// Bytes of holes in local files, which were not sent. Those of incomplete files that were removed or are
    /// copied again do not count.
    pub holes: u64,
    /// The lengths of the regular files whose copy has begun, in bytes. Those without a stated length do not count,
    /// and others once, also if they are copied again.
    pub begun: u64,
    /// Bytes of file data written again because the server restarted before they were on stable
    /// storage.
    pub bytes_again: u64,
    /// Objects whose owner could not be set.
    pub owners_lost: u64,
    /// Files whose set-id bits were not copied because of [`CopyOptions::set_id`]. Those that would
    /// have lost them anyway, with their owner or group, do not count.
    pub set_ids_left_out: u64,
    /// Devices that were not copied because of [`CopyOptions::devices`].
    pub devices_left_out: u64,
    /// Incomplete files that were removed on the server, because it has no room for them, or they are too large
    /// for it.
    pub incomplete_removed: u64,
    /// Errors.
    pub problems: u64,
}

/// The result of a copy or removal.
#[derive(Debug, Default)]
pub struct Report {
    /// The totals.
    pub totals: Totals,
    /// The first [`MAX_PROBLEMS`] errors, in order of occurrence. Of those with
    /// [`CopyError::is_no_space`], only the first one with each status is listed.
    pub problems: Vec<CopyError>,
    /// The number of errors with [`CopyError::is_no_space`] that `problems` does not list.
    pub more_no_space: u64,
    /// The first [`MAX_PROBLEMS`] files on the server whose copy ended midway and that are
    /// incomplete. Repeating the copy can complete them.
    pub unfinished: Vec<DisplayPath>,
    /// The first [`MAX_PROBLEMS`] incomplete files on the server for which it has no room, or that are too
    /// large for it, and that were not removed there.
    pub no_room: Vec<DisplayPath>,
    /// The first [`MAX_PROBLEMS`] files on the server whose earlier content is lost: the copy overwrote it, and
    /// the server had no room for the new content, or the file is too large for it.
    pub lost: Vec<DisplayPath>,
    /// The first [`MAX_PROBLEMS`] temporary names that may be left on the server: the copy ended before
    /// the object there replaced another one, and could not remove it.
    pub leftovers: Vec<DisplayPath>,
    /// Whether the operation was given up because the server was unreachable.
    pub stopped: bool,
    /// Whether [`CopyOptions::interrupt`] ended the operation.
    pub interrupted: bool,
}

/// The maximum number of errors that are stored. All are counted.
pub const MAX_PROBLEMS: usize = 1000;

impl Report {
    /// Returns whether there was no error and the operation ran to its end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.totals.problems == 0 && !self.stopped && !self.interrupted
    }
}

/// The reason why an object could not be copied or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// An error on the server.
    #[error(transparent)]
    Remote(#[from] NfsError),
    /// An error on this machine.
    #[error("{doing} {}: {source}", escape(path.as_os_str().as_bytes()))]
    Local {
        /// The operation.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The object is a directory, and the copy is not recursive.
    #[error("{path} is a directory, and -r was not given")]
    NotRecursive {
        /// The directory.
        path: DisplayPath,
    },
    /// A directory would replace another kind of object, or the reverse.
    #[error("{path} exists, and {}", if *.is_directory {
        "is a directory: it is not replaced"
    } else {
        "is not a directory: none can be made in its place"
    })]
    InTheWay {
        /// The existing object.
        path: DisplayPath,
        /// Whether the existing object is a directory.
        is_directory: bool,
    },
    /// The user named a device, a pipe or a socket as the target of a copy.
    #[error("{path} is a device or a pipe: it is not replaced by a file (standard output is -)")]
    Device {
        /// The device.
        path: DisplayPath,
    },
    /// Source and target are one object, in an export of this machine.
    #[error("{path}: source and target are the same file or directory")]
    Same {
        /// The object on the server.
        path: DisplayPath,
    },
    /// The source contains the target directory, or the server shows a directory inside itself.
    #[error("{path} is a directory that this copy is made in: it is not copied into itself")]
    IntoItself {
        /// The directory.
        path: DisplayPath,
    },
    /// The source changed while it was copied: the copy may mix old and new content.
    #[error("{path} changed while it was copied")]
    Changed {
        /// The source.
        path: DisplayPath,
    },
    /// A time is outside the range of NFS version 3 (1970 to 2106): the nearest time was set.
    #[error("a time of {path} is out of NFS version 3's range, 1970 to 2106")]
    TimeRange {
        /// The object.
        path: DisplayPath,
    },
    /// The server repeatedly restarted and lost uncommitted data.
    #[error("the server restarted {times} times while {path} was written; given up")]
    Restarts {
        /// The file.
        path: DisplayPath,
        /// The number of restarts.
        times: u32,
    },
    /// No memory for file data: the pool is too small for the data in flight.
    #[error("no memory to copy {path}: {source}")]
    Memory {
        /// The file.
        path: DisplayPath,
        /// The error of the pool.
        source: rdma::PoolExhausted,
    },
}

impl CopyError {
    /// Returns whether the target has no space left, or none for this user (on a server NFS3ERR_NOSPC and
    /// NFS3ERR_DQUOT). The copy goes on, because smaller or empty files may still fit.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        self.no_space().is_some()
    }

    fn no_space(&self) -> Option<Status> {
        let status = match self {
            Self::Remote(error) => error.status(),
            Self::Local { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => Some(Status::NOSPC),
                io::ErrorKind::QuotaExceeded => Some(Status::DQUOT),
                _ => None,
            },
            _ => None,
        };
        status.filter(|status| matches!(*status, Status::NOSPC | Status::DQUOT))
    }

    /// Returns whether a repeated copy of the same file would fail as well: there is no space for it
    /// ([`Self::is_no_space`]), or it is too large for the server (NFS3ERR_FBIG).
    pub(crate) fn is_lasting(&self) -> bool {
        let status = match self {
            Self::Remote(error) => error.status(),
            _ => None,
        };
        self.is_no_space() || status == Some(Status::FBIG)
    }

    /// Returns whether all further operations will fail as well.
    fn is_fatal(&self) -> bool {
        matches!(self, Self::Remote(error) if error.is_fatal())
    }
}
