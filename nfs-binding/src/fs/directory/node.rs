//! An open object of the host's directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rustix::fs::{OFlags, Statx};

use super::direct_file::DirectFile;
use super::host::{self, OpenFiles};
use super::volume::Volume;
use crate::fs::lock::{locked, locked_soon};
use crate::fs::{FileId, FsError, FsResult};
use crate::proto::{Attributes, FileType};

/// An opened entry of a directory.
pub(super) enum Child {
    /// An object of the export, and its attributes when it was opened.
    Here(Node, Attributes),
    /// The root of another file system, which is not part of the export.
    Elsewhere(FileId),
}

/// An object, held by an `O_PATH` descriptor, which follows the object when it is moved and keeps the
/// host from reusing its inode number.
pub(super) struct Node {
    pub(super) id: FileId,
    /// The object's file system.
    pub(super) volume: Arc<Volume>,
    pub(super) file_type: FileType,
    path: OwnedFd,
    /// The descriptor for its content. Only files and directories have one.
    content: Mutex<Option<Arc<Content>>>,
    /// Locked while its content is being synced.
    synchronising: Mutex<()>,
    /// The number of failed syncs.
    failures: AtomicU64,
    /// Whether the file was written to since the last sync began.
    unstable: AtomicBool,
    /// The number of calls that are writing to the file, or about to open its content for that.
    writers: AtomicUsize,
    /// Calls that change the object beside others (`Served::change_beside`): in the upper 32 bits
    /// the number that have begun, in the lower ones the number that are being executed.
    beside: AtomicU64,
    /// The round of the idle closer (`idle_closer.rs`) in which the object was last used.
    used: AtomicU64,
    /// The users whose access the kernel can check without reading an access control list from the
    /// disk: 0 for none that is known, [`EVERYBODY`], or a user's number and 1.
    access: AtomicU64,
    /// The number of READs that are left to workers, because the data of an earlier one was not in memory.
    left_to_workers: AtomicU32,
}

/// The number of READs that are left to workers after one whose data was not in memory. An attempt that
/// fails costs the loop some time, and more of a file that is in part in memory may be missing.
pub(super) const LEFT_TO_WORKERS: u32 = 8;

/// The kernel has the access control list of an object in memory, or knows that it has none.
const EVERYBODY: u64 = u64::MAX;

/// The purpose that the content of an object is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To read a file or directory.
    Read,
    /// To write a file, and to read it by later calls.
    Write,
    /// To write a file that this process may not read.
    WriteOnly,
    /// To sync a file or directory, by whatever descriptor is open already. Otherwise it is opened
    /// for reading.
    Sync,
}

/// A descriptor for reading or writing content, or both.
pub(super) struct Content {
    pub(super) fd: OwnedFd,
    readable: bool,
    writable: bool,
    /// The description for direct I/O, if the export has that (`direct.rs`). `None` inside if the
    /// file does not support it.
    pub(super) direct: OnceLock<Option<DirectFile>>,
}

impl Content {
    fn new(fd: OwnedFd, readable: bool, writable: bool) -> Self {
        Self {
            fd,
            readable,
            writable,
            direct: OnceLock::new(),
        }
    }

    /// Returns the access mode with which it was opened.
    pub(super) fn access(&self) -> OFlags {
        match (self.readable, self.writable) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        }
    }

    fn serves(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Read => self.readable,
            Purpose::Write | Purpose::WriteOnly => self.writable,
            Purpose::Sync => true,
        }
    }
}

impl Node {
    /// Creates an object that was opened as `path`.
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
            writers: AtomicUsize::new(0),
            beside: AtomicU64::new(0),
            used: AtomicU64::new(0),
            access: AtomicU64::new(0),
            left_to_workers: AtomicU32::new(0),
        }
    }

    /// Records that the kernel has checked an access of a user. The check of the owner's needs no access
    /// control list.
    pub(super) fn record_access(&self, uid: u32, owner: u32) {
        if uid != owner {
            self.access.store(EVERYBODY, Ordering::Relaxed);
        } else if self.access.load(Ordering::Relaxed) != EVERYBODY {
            self.access.store(u64::from(uid) + 1, Ordering::Relaxed);
        }
    }

    /// Forgets the check of a user who is not the owner any more: the next one needs the access control list.
    fn forget_former_owner(&self, owner: u32) {
        let known = self.access.load(Ordering::Relaxed);
        if known != EVERYBODY && known != u64::from(owner) + 1 {
            self.access.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether the kernel can check an access of a user without reading from the disk. (What it
    /// has once read it keeps as long as the object is open. If a program of the host has changed the owner
    /// since the last attributes were read, a check of the former owner's may read from the disk, once.)
    pub(super) fn knows_access(&self, uid: u32) -> bool {
        let known = self.access.load(Ordering::Relaxed);
        known == EVERYBODY || known == u64::from(uid) + 1
    }

    /// Leaves some of the next READs to workers.
    pub(super) fn leave_to_workers(&self) {
        self.left_to_workers
            .store(LEFT_TO_WORKERS, Ordering::Relaxed);
    }

    /// Returns whether a READ is left to a worker, and counts it.
    pub(super) fn is_left_to_worker(&self) -> bool {
        // Loops that count at the same time may leave one more.
        let left = self.left_to_workers.load(Ordering::Relaxed);
        if left > 0 {
            self.left_to_workers.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Records that the object is used in this round.
    pub(super) fn record_use(&self, round: u64) {
        self.used.store(round, Ordering::Relaxed);
    }

    /// Returns the round of the idle closer in which the object was last used.
    pub(super) fn last_used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Waits until no other thread is syncing the object's content, and locks out further syncs.
    pub(super) fn lock_sync(&self) -> MutexGuard<'_, ()> {
        locked(&self.synchronising)
    }

    /// Returns the number of failed syncs.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Records a failed sync.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// Announces a write. While the result lives, [`Node::close_stable`] does not close the
    /// content.
    pub(super) fn begin_write(&self) -> WriteInProgress<'_> {
        self.writers.fetch_add(1, Ordering::SeqCst);
        WriteInProgress(self)
    }

    /// Announces a change that others may be executed beside.
    pub(super) fn begin_beside(&self) -> ChangeBeside<'_> {
        let before = self.beside.fetch_add(BEGUN + 1, Ordering::SeqCst);
        ChangeBeside {
            node: self,
            begun: before.wrapping_add(BEGUN) / BEGUN,
            begins_alone: before.is_multiple_of(BEGUN),
        }
    }

    /// Records a write.
    pub(super) fn written(&self) {
        self.unstable.store(true, Ordering::SeqCst);
    }

    /// Records that everything written so far is about to be synced. Returns whether there is
    /// anything.
    pub(super) fn take_unstable(&self) -> bool {
        self.unstable.swap(false, Ordering::SeqCst)
    }

    /// Returns the current metadata.
    ///
    /// # Errors
    /// [`FsError::Stale`] if its last name was removed.
    pub(super) fn stat(&self) -> FsResult<Statx> {
        let stat = host::stat(&self.path)?;
        if stat.stx_nlink == 0 {
            return Err(FsError::Stale);
        }
        Ok(stat)
    }

    /// Returns whether its last name was removed.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.stat(), Err(FsError::Stale))
    }

    /// Returns the current attributes.
    ///
    /// # Errors
    /// [`FsError::Stale`] if its last name was removed.
    pub(super) fn attributes(&self) -> FsResult<Attributes> {
        Ok(self.to_client(&self.stat()?))
    }

    /// Converts metadata to the attributes that clients see.
    pub(super) fn to_client(&self, stat: &Statx) -> Attributes {
        self.forget_former_owner(stat.stx_uid);
        Attributes {
            fsid: self.volume.shown,
            ..host::attributes(stat)
        }
    }

    /// Returns the descriptor for its content. Objects that are neither files nor directories are
    /// never opened, because that can block or affect devices. The caller has to check permissions:
    /// a descriptor that is already open is returned without a check.
    pub(super) fn content(&self, files: &OpenFiles, purpose: Purpose) -> FsResult<Arc<Content>> {
        let writes = matches!(purpose, Purpose::Write | Purpose::WriteOnly);
        let access = match self.file_type {
            FileType::Directory if writes => return Err(FsError::IsDirectory),
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            FileType::Regular => match purpose {
                Purpose::Read | Purpose::Sync => OFlags::RDONLY,
                Purpose::Write => OFlags::RDWR,
                Purpose::WriteOnly => OFlags::WRONLY,
            },
            _ => return Err(FsError::Invalid),
        };
        let mut content = locked(&self.content);
        if let Some(content) = content.as_ref().filter(|open| open.serves(purpose)) {
            return Ok(Arc::clone(content));
        }
        let fd = files.reopen(self.path.as_fd(), access)?;
        let readable = purpose != Purpose::WriteOnly;
        let opened = Arc::new(Content::new(fd, readable, writes));
        // A description with unstable data must stay open (`close_stable`). If that is write-only, a
        // readable one is opened for this call only.
        if writes || content.as_ref().is_none_or(|open| !open.writable) {
            *content = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    /// Returns the descriptor for its content if it is open for reading. The caller has to check
    /// permissions. Does not wait for a call that is opening it.
    pub(super) fn content_soon(&self) -> Option<Arc<Content>> {
        let content = locked_soon(&self.content)?;
        let open = content.as_ref().filter(|open| open.serves(Purpose::Read));
        open.map(Arc::clone)
    }

    /// Returns whether its content is open for writing.
    pub(super) fn is_writable(&self) -> bool {
        locked(&self.content)
            .as_ref()
            .is_some_and(|open| open.writable)
    }

    /// Returns whether its content is open for writing, but not for reading.
    pub(super) fn is_write_only(&self) -> bool {
        locked(&self.content)
            .as_ref()
            .is_some_and(|open| open.writable && !open.readable)
    }

    /// Stores `fd`, which is open for reading and writing, as the open content of the object.
    pub(super) fn keep_content(&self, fd: OwnedFd) {
        *locked(&self.content) = Some(Arc::new(Content::new(fd, true, true)));
    }

    /// Takes over the content of `other`, which is the same object, if only that is open for writing.
    pub(super) fn take_writable(&self, other: &Self) {
        let taken = locked(&other.content).take().filter(|open| open.writable);
        let mut content = locked(&self.content);
        if taken.is_some() && content.as_ref().is_none_or(|open| !open.writable) {
            *content = taken;
        }
    }

    /// Closes the object's content if it is open for writing and everything written was synced.
    ///
    /// The kernel reports the error of a write-back to the descriptions that were open when it
    /// happened, and to a later one only if nobody has seen the error yet. So a description with
    /// unstable data has to stay open for the COMMIT of the client that wrote it.
    pub(super) fn close_stable(&self) {
        // A call that begins to write from here on has to wait for this lock to get the content.
        let mut content = locked(&self.content);
        // The order matters: a write marks its data as unstable before it ends.
        let is_stable =
            || self.writers.load(Ordering::SeqCst) == 0 && !self.unstable.load(Ordering::SeqCst);
        if content.as_ref().is_some_and(|open| open.writable) && is_stable() {
            *content = None;
        }
    }

    /// Closes the object's content without regard to unstable data.
    #[cfg(test)]
    pub(super) fn close_content(&self) {
        *locked(&self.content) = None;
    }
}

/// The amount that a change adds to [`Node::beside`] when it begins, besides 1.
const BEGUN: u64 = 1 << 32;

/// A guard for a change that others may be executed beside ([`Node::begin_beside`]).
#[must_use]
pub(super) struct ChangeBeside<'a> {
    node: &'a Node,
    /// The number of such changes that had begun with this one.
    begun: u64,
    begins_alone: bool,
}

impl ChangeBeside<'_> {
    /// Ends the change. Returns whether none was executed beside it.
    pub(super) fn was_alone(self) -> bool {
        self.begins_alone && self.node.beside.load(Ordering::SeqCst) / BEGUN == self.begun
    }
}

impl Drop for ChangeBeside<'_> {
    fn drop(&mut self) {
        self.node.beside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A guard for a call that writes to a file ([`Node::begin_write`]).
#[must_use]
pub(super) struct WriteInProgress<'a>(&'a Node);

impl Drop for WriteInProgress<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }
}
