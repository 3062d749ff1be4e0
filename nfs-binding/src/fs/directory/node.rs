//! An object of the host's directory that is open here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{OFlags, Statx};

use super::host::{self, OpenFiles};
use super::volume::Volume;
use crate::fs::lock::locked;
use crate::fs::{FileId, FsError, FsResult};
use crate::proto::{Attributes, FileType};

/// An opened entry of a directory.
pub(super) enum Child {
    /// An object of the export.
    Here(Node),
    /// The root of another file system, which is not part of the export.
    Elsewhere(FileId),
}

/// An object, held by a descriptor that only names it (O_PATH): it goes with the object wherever
/// that is moved, and its inode number cannot be given to another.
pub(super) struct Node {
    pub(super) id: FileId,
    /// The file system that it is in.
    pub(super) volume: Arc<Volume>,
    pub(super) file_type: FileType,
    path: OwnedFd,
    /// Opened for its content; files and directories only.
    content: Mutex<Option<Arc<Content>>>,
    /// Held by who brings its content to stable storage.
    synchronising: Mutex<()>,
    /// How often that failed.
    failures: AtomicU64,
    /// Whether it was written to and has not been brought to stable storage since.
    unstable: AtomicBool,
    /// The round of the keeper (`keeper.rs`) in which it was last used.
    used: AtomicU64,
}

/// A descriptor that reads, and maybe writes, content.
pub(super) struct Content {
    pub(super) fd: OwnedFd,
    writable: bool,
}

impl Node {
    /// An object that was opened as `path`.
    pub(super) fn new(id: FileId, volume: Arc<Volume>, path: OwnedFd, stat: &Statx) -> Self {
        Self {
            id,
            volume,
            file_type: host::file_type(stat),
            path,
            content: Mutex::default(),
            synchronising: Mutex::default(),
            failures: AtomicU64::new(0),
            unstable: AtomicBool::new(false),
            used: AtomicU64::new(0),
        }
    }

    /// Notes that it is used in this round.
    pub(super) fn use_in(&self, round: u64) {
        self.used.store(round, Ordering::Relaxed);
    }

    /// The round in which it was last used.
    pub(super) fn last_used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Waits for everybody who brings its content to stable storage, and keeps others from it.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        locked(&self.synchronising)
    }

    /// How often bringing its content to stable storage has failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// It failed once more.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// It was written to.
    pub(super) fn written(&self) {
        self.unstable.store(true, Ordering::Release);
    }

    /// What was written to it so far is about to be brought to stable storage. Whether there is
    /// any.
    pub(super) fn written_no_more(&self) -> bool {
        self.unstable.swap(false, Ordering::AcqRel)
    }

    /// Everything the host knows of it now.
    ///
    /// # Errors
    /// [`FsError::Stale`] when its last name was taken away.
    pub(super) fn stat(&self) -> FsResult<Statx> {
        let stat = host::stat(&self.path)?;
        if stat.stx_nlink == 0 {
            return Err(FsError::Stale);
        }
        Ok(stat)
    }

    /// Its attributes now.
    ///
    /// # Errors
    /// As [`Node::stat`].
    pub(super) fn attributes(&self) -> FsResult<Attributes> {
        Ok(self.present(&self.stat()?))
    }

    /// Attributes as clients see them.
    pub(super) fn present(&self, stat: &Statx) -> Attributes {
        Attributes {
            fsid: self.volume.shown,
            ..host::attributes(stat)
        }
    }

    /// Its content. What is neither file nor directory is never opened: that can block, or do
    /// things to devices. Permission is the caller's part: what is open already is not asked for
    /// again.
    pub(super) fn content(&self, files: &OpenFiles, write: bool) -> FsResult<Arc<Content>> {
        let access = match self.file_type {
            FileType::Directory if write => return Err(FsError::IsDirectory),
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            FileType::Regular if write => OFlags::RDWR,
            FileType::Regular => OFlags::RDONLY,
            _ => return Err(FsError::Invalid),
        };
        let mut content = locked(&self.content);
        if let Some(content) = content.as_ref().filter(|open| open.writable || !write) {
            return Ok(Arc::clone(content));
        }
        let fd = files.reopen(self.path.as_fd(), access)?;
        let opened = Arc::new(Content {
            fd,
            writable: write,
        });
        *content = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Whether its content is open for writing.
    pub(super) fn is_writable(&self) -> bool {
        locked(&self.content)
            .as_ref()
            .is_some_and(|open| open.writable)
    }

    /// Keeps `fd`, which reads and writes, as its content.
    pub(super) fn keep_content(&self, fd: OwnedFd) {
        *locked(&self.content) = Some(Arc::new(Content { fd, writable: true }));
    }

    /// Closes its content if that is open for writing: nobody can execute the file until then.
    pub(super) fn close_writable(&self) {
        let mut content = locked(&self.content);
        if content.as_ref().is_some_and(|open| open.writable) {
            *content = None;
        }
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }
}
