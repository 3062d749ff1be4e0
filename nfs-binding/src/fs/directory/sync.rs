//! Syncs written data to stable storage without losing errors.
//!
//! The kernel reports a failed write-back once for each open file description. Calls here share one
//! description, so if two sync a file at the same time, only one gets the error, although the data
//! of both may be lost. Therefore calls sync a file one after the other, and a failure changes the
//! write verifier before the next call's turn (RFC 1813, section 3.3.7). This costs no throughput:
//! after a long wait, one turn syncs the data of all waiting calls. A description with unstable
//! data stays open (`Node::close_stable`), since one that is opened later may not get the error.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::*;

/// A function that syncs an open file or directory. Tests replace the kernel's.
pub(super) type Synchronise = dyn Fn(BorrowedFd<'_>, Extent) -> Result<(), Errno> + Send + Sync;

/// The extent of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The data of the open file, and the attributes that are needed to read it.
    Data,
    /// The open file or directory, with all attributes.
    File,
    /// The whole file system that the open object is in.
    FileSystem,
}

/// Syncs with the system call.
pub(super) fn by_kernel(fd: BorrowedFd<'_>, extent: Extent) -> Result<(), Errno> {
    match extent {
        Extent::Data => rustix::fs::fdatasync(fd),
        Extent::File => rustix::fs::fsync(fd),
        Extent::FileSystem => rustix::fs::syncfs(fd),
    }
}

impl Served {
    /// Syncs a file's data, and as much of its attributes as requested.
    pub(super) fn synchronise(&self, node: &Node, fd: impl AsFd, stable: Stable) -> FsResult<()> {
        let extent = match stable {
            Stable::Unstable => return Ok(()),
            Stable::DataSync => Extent::Data,
            Stable::FileSync => Extent::File,
        };
        // The mark is cleared only after this call has the lock: while it waits, the mark keeps
        // `close_stable` from closing the description with which it must sync.
        let _turn = self.options.sync.then(|| node.lock_sync());
        // With the export option `async`, the reply claims stable storage without a sync, so the mark is
        // cleared here as well.
        node.take_unstable();
        if !self.options.sync {
            return Ok(());
        }
        (self.synchronise)(fd.as_fd(), extent).map_err(|error| {
            node.failed();
            self.lost_writes(error)
        })
    }

    /// Changes the write verifier because unstable writes may be lost. The new verifier tells
    /// clients to write them again.
    fn lost_writes(&self, error: Errno) -> FsError {
        let changed =
            getrandom::u64().unwrap_or_else(|_| self.verifier.load(Ordering::Acquire) + 1);
        self.verifier.store(changed, Ordering::Release);
        tracing::error!(%error, "synchronising failed: unstable writes may be lost");
        error.into()
    }

    /// Syncs files and their attributes, and the entries of directories.
    pub(super) fn make_stable(&self, nodes: &[Arc<Node>]) -> FsResult<()> {
        for node in nodes {
            if !self.options.sync {
                // The reply promises the same, and nobody syncs this data later.
                node.take_unstable();
                continue;
            }
            match self.content(node, Purpose::Sync) {
                Ok(content) => self.synchronise(node, &content.fd, Stable::FileSync)?,
                // The change is done, so it must be neither reported as failed nor left unsynced.
                // Symbolic links and special files are never opened, because that can have side
                // effects. Without privilege, the server cannot open what its owner may not read.
                Err(_) => {
                    node.take_unstable();
                    self.sync_volume(&node.volume)?;
                }
            }
        }
        Ok(())
    }

    /// Syncs a whole file system, alone or together with concurrent calls.
    fn sync_volume(&self, volume: &Volume) -> FsResult<()> {
        let ticket = volume.sync.ticket();
        volume.sync.run(ticket, || {
            let synced = (self.synchronise)(volume.directory.as_fd(), Extent::FileSystem);
            synced.map_err(|error| self.lost_writes(error))
        })
    }

    /// Closes an object that the table no longer keeps. An object in use is kept in `evicted`, and
    /// the idle closer closes it when its calls have ended.
    ///
    /// Unstable data is synced first. A COMMIT for it would open the file again, and the kernel may
    /// not report the error of an earlier write-back to that: another process may have seen it, or
    /// the inode may have left the cache.
    pub(super) fn handle_evicted(&self, closed: Option<Arc<Node>>) {
        let Some(node) = closed else { return };
        if Arc::strong_count(&node) > 1 {
            // A call may be writing or about to open the content for that. The error of that write
            // has to be reported as well.
            return locked(&self.evicted).push(node);
        }
        if node.take_unstable() {
            // A failure has changed the verifier, which is how clients learn of it.
            let _ = self.make_stable(&[node]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::super::shared_sync::SharedSync;
    use super::*;
    use crate::fs::tests::ordinary;

    /// Returns a file system whose files are synced by `synchronise`, and a file in it.
    fn served(
        synchronise: impl Fn(BorrowedFd<'_>, Extent) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> (tempfile::TempDir, DirectoryFs, FileId) {
        let host = tempfile::tempdir().unwrap();
        let made = AtomicBool::new(false);
        let made = Arc::new(made);
        let ready = Arc::clone(&made);
        let synchronise = move |fd: BorrowedFd<'_>, extent| match ready.load(Ordering::SeqCst) {
            true => synchronise(fd, extent),
            false => Ok(()),
        };
        let options = DirectoryOptions::default();
        let fs = DirectoryFs::with(host.path(), options, Box::new(synchronise)).unwrap();
        let how = HowToCreate::Guarded(SetAttributes::default());
        let file = fs.create(&Caller::root(), &fs.root(), b"f", &how);
        made.store(true, Ordering::SeqCst);
        (host, fs, file.result.unwrap().id)
    }

    fn write_data(
        fs: &DirectoryFs,
        file: &FileId,
        stable: Stable,
        data: &[u8],
    ) -> FsResult<Stable> {
        let change = fs.write(&Caller::root(), file, 0, &Bulk::copy_from(data), stable);
        change.result.map(|written| written.committed)
    }

    fn write(fs: &DirectoryFs, file: &FileId, stable: Stable) -> FsResult<Stable> {
        write_data(fs, file, stable, b"data")
    }

    /// RFC 1813, sections 3.3.7 and 3.3.21: a WRITE or COMMIT syncs exactly what it promises before
    /// the reply, and the verifier does not change.
    #[test]
    fn each_kind_of_write_is_as_stable_as_it_says() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&done);
        let (_host, fs, file) = served(move |fd, extent| {
            note.lock().unwrap().push(extent);
            by_kernel(fd, extent)
        });
        let verifier = fs.write_verifier();
        for (stable, synchronised) in [
            (Stable::Unstable, &[][..]),
            (Stable::DataSync, &[Extent::Data]),
            (Stable::FileSync, &[Extent::File]),
        ] {
            assert_eq!(write(&fs, &file, stable), Ok(stable));
            assert_eq!(std::mem::take(&mut *done.lock().unwrap()), synchronised);
        }
        assert_eq!(fs.commit(&Caller::root(), &file, 0, 0).result, Ok(()));
        assert_eq!(*done.lock().unwrap(), [Extent::File]);
        assert_eq!(fs.write_verifier(), verifier);
    }

    /// The call that created the file may not be stable yet. Both replies promise that the name is, and for
    /// an exclusive call also the times that tell its repetition.
    #[test]
    fn a_create_of_an_existing_file_is_as_stable_as_the_first() {
        let done = Arc::new(Mutex::new(0));
        let count = Arc::clone(&done);
        let (_host, fs, _) = served(move |_, _| {
            *count.lock().unwrap() += 1;
            Ok(())
        });
        let (exclusive, unchecked) = (
            HowToCreate::Exclusive([7; 8]),
            HowToCreate::Unchecked(SetAttributes::default()),
        );
        for (how, objects) in [(&exclusive, 2), (&exclusive, 2), (&unchecked, 1)] {
            let made = fs.create(&Caller::root(), &fs.root(), b"new", how);
            assert!(made.result.is_ok(), "{made:?}");
            let synced = std::mem::take(&mut *done.lock().unwrap());
            assert_eq!(synced, objects, "the directory, and the file if exclusive");
        }
    }

    /// Runs `first` and `second` concurrently. The first sync consumes the error, and returns it
    /// only after `wait`; the second sync succeeds.
    fn at_once<A: Send, B: Send>(
        wait: impl Fn(BorrowedFd<'_>) + Send + Sync + 'static,
        first: impl FnOnce(&DirectoryFs, &FileId) -> A + Send,
        second: impl FnOnce(&DirectoryFs, &FileId) -> B + Send,
    ) -> (A, B) {
        let (failing, failed) = mpsc::channel();
        let calls = AtomicUsize::new(0);
        let (_host, fs, file) = served(move |fd, _| {
            if calls.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok(());
            }
            failing.send(()).unwrap();
            wait(fd);
            Err(Errno::IO)
        });
        thread::scope(|scope| {
            let slow = scope.spawn(|| first(&fs, &file));
            failed.recv().unwrap();
            let second = second(&fs, &file);
            (slow.join().unwrap(), second)
        })
    }

    fn commit(fs: &DirectoryFs, file: &FileId) -> (FsResult<()>, Verifier) {
        let committed = fs.commit(&Caller::root(), file, 0, 0);
        (committed.result, fs.write_verifier())
    }

    #[test]
    fn of_two_commits_at_once_neither_misses_the_failure() {
        let before = Mutex::new([0; 8]);
        // Long enough for the second call to end, if nothing delays it.
        let (first, second) = at_once(
            |_| thread::sleep(Duration::from_millis(200)),
            |fs, file| {
                *before.lock().unwrap() = fs.write_verifier();
                commit(fs, file)
            },
            commit,
        );
        let before = *before.lock().unwrap();
        assert_eq!(first.0, Err(Errno::IO.into()));
        assert!(
            second.0.is_err() || second.1 != before,
            "a client would take its data for stable"
        );
    }

    #[test]
    fn a_stable_write_does_not_succeed_on_another_ones_failure() {
        let until_written = |fd: BorrowedFd<'_>| {
            let mut now = [0; 4];
            while now != *b"late" {
                rustix::io::pread(fd, &mut now, 0).unwrap();
                thread::yield_now();
            }
        };
        let (first, second) = at_once(
            until_written,
            |fs, file| write_data(fs, file, Stable::FileSync, b"data"),
            |fs, file| write_data(fs, file, Stable::DataSync, b"late"),
        );
        assert_eq!(first, Err(Errno::IO.into()));
        assert_eq!(
            second,
            Err(Errno::IO.into()),
            "its data may be what was lost"
        );
    }

    /// The kernel reports the error of a write-back once for each open file description. Another
    /// client's unstable data must keep the one that it was written with, until it is committed.
    #[test]
    fn what_another_client_wrote_during_a_sync_is_committed_where_it_was_written() {
        use rustix::fs::{SeekFrom, seek};
        const MARK: u64 = 4711;
        let other = Arc::new(OnceLock::<(Weak<Served>, FileId)>::new());
        let during = Arc::clone(&other);
        let same = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&same);
        let (_host, fs, file) = served(move |fd, _| {
            // A description that is opened later has the offset 0.
            let at = seek(fd, SeekFrom::Current(0))?;
            note.lock().unwrap().push(at == MARK);
            seek(fd, SeekFrom::Start(MARK))?;
            let (fs, file) = during.get().unwrap();
            if let Some(fs) = fs.upgrade().filter(|_| at != MARK) {
                let (who, data) = (Caller::root(), Bulk::copy_from(b"more"));
                let written = fs.write_content(&who, file, 0, &data, Stable::Unstable);
                assert!(written.result.is_ok(), "{written:?}");
            }
            Ok(())
        });
        other.set((Arc::downgrade(&fs.0), file)).unwrap();
        let is_open = || fs.0.find(&file).unwrap().is_writable();
        for stable in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
            assert_eq!(write(&fs, &file, stable), Ok(stable));
            if stable == Stable::Unstable {
                assert_eq!(commit(&fs, &file).0, Ok(()));
            }
            assert!(is_open(), "{stable:?}");
            assert_eq!(commit(&fs, &file).0, Ok(()));
            assert_eq!(std::mem::take(&mut *same.lock().unwrap()), [false, true]);
            assert!(!is_open(), "the host could not execute it");
        }
    }

    /// A WRITE that is still running has data that no sync has covered.
    #[test]
    fn what_is_being_written_stays_open() {
        let (_host, fs, file) = served(|_, _| Ok(()));
        let node = fs.0.find(&file).unwrap();
        let writing = node.begin_write();
        let _content = fs.0.content(&node, Purpose::Write).unwrap();
        assert_eq!(commit(&fs, &file).0, Ok(()));
        assert!(node.is_writable());
        node.written();
        drop(writing);
        fs.0.close_writable(&node);
        assert!(node.is_writable());
        assert_eq!(commit(&fs, &file).0, Ok(()));
        assert!(!node.is_writable());
    }

    /// The reply to an operation that was done must not be an error, and needs stable storage,
    /// although the server may not read the object any more. Without root, the whole file system is
    /// synced instead.
    #[test]
    fn an_unprivileged_server_syncs_what_it_may_not_read() {
        use std::os::unix::fs::PermissionsExt;
        if !ordinary() {
            return;
        }
        let host = tempfile::tempdir().unwrap();
        let permit = |name: &str, bits| {
            let path = host.path().join(name);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).unwrap();
        };
        std::fs::write(host.path().join("f"), b"data").unwrap();
        std::fs::create_dir(host.path().join("box")).unwrap();
        permit("box", 0o333);
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&done);
        let synchronise = move |_: BorrowedFd<'_>, extent| {
            note.lock().unwrap().push(extent);
            Ok(())
        };
        let options = DirectoryOptions::default();
        let fs = DirectoryFs::with(host.path(), options, Box::new(synchronise)).unwrap();
        let synced = || std::mem::take(&mut *done.lock().unwrap());
        let (who, top, none) = (Caller::root(), fs.root(), SetAttributes::default());
        let find = |name| fs.lookup(&who, &top, name).unwrap().object.id;
        let (file, letters) = (find(b"f"), find(b"box"));
        let mode = |bits| SetAttributes {
            mode: Some(bits),
            ..SetAttributes::default()
        };
        assert_eq!(fs.setattr(&who, &file, &mode(0), None).result, Ok(()));
        assert_eq!(synced(), [Extent::FileSystem]);
        let made = fs.mkdir(&who, &top, b"d", &mode(0o300)).result;
        assert_eq!(made.unwrap().attributes.mode, 0o300);
        assert_eq!(synced(), [Extent::FileSystem, Extent::File]);
        let how = HowToCreate::Guarded(none.clone());
        assert!(fs.create(&who, &letters, b"f", &how).result.is_ok());
        assert_eq!(synced(), [Extent::File, Extent::FileSystem]);
        assert!(fs.symlink(&who, &letters, b"l", b"f", &none).result.is_ok());
        assert_eq!(synced(), [Extent::FileSystem]);
        let moved = fs.rename(&who, &letters, b"f", &letters, b"g").result;
        assert_eq!(moved, Ok(()));
        assert_eq!(synced(), [Extent::FileSystem; 2]);
        assert_eq!(fs.remove(&who, &letters, b"g").result, Ok(()));
        assert_eq!(synced(), [Extent::FileSystem]);
        // Otherwise the temporary directory could not be deleted.
        permit("box", 0o700);
        permit("d", 0o700);
    }

    #[test]
    fn a_symbolic_link_is_synced_with_the_file_system_that_it_is_in() {
        let synced = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&synced);
        let synchronise = move |fd: BorrowedFd<'_>, extent| {
            let device = rustix::fs::fstat(fd)?.st_dev;
            note.lock().unwrap().push((device, extent));
            Ok(())
        };
        let options = DirectoryOptions {
            crossmnt: true,
            inode_reuse: true,
            ..DirectoryOptions::default()
        };
        let fs = DirectoryFs::with(Path::new("/"), options, Box::new(synchronise)).unwrap();
        let find = |dir, name| fs.lookup(&Caller::root(), dir, name).unwrap().object.id;
        // Every host has this link.
        let link = find(&find(&fs.root(), b"proc"), b"mounts");
        let link = fs.0.find(&link).unwrap();
        assert_eq!(link.file_type, FileType::Symlink);
        fs.0.make_stable(&[link]).unwrap();
        let proc = rustix::fs::stat("/proc").unwrap().st_dev;
        assert_eq!(*synced.lock().unwrap(), [(proc, Extent::FileSystem)]);
    }

    #[test]
    fn calls_share_a_sync_that_begins_after_their_changes() {
        let (shared, times) = (SharedSync::new(), AtomicUsize::new(0));
        let run = |ticket, result| {
            let done = shared.run(ticket, || {
                times.fetch_add(1, Ordering::SeqCst);
                result
            });
            (done, times.load(Ordering::SeqCst))
        };
        let failed = Err(FsError::NoSpace);
        let (first, second, third) = (shared.ticket(), shared.ticket(), shared.ticket());
        assert_eq!(run(first, failed), (failed, 1));
        assert_eq!(run(second, Ok(())), (failed, 1), "it covers all three");
        assert_eq!(run(third, Ok(())), (failed, 1));
        let mut during = None;
        let ticket = shared.ticket();
        let done = shared.run(ticket, || {
            during = Some(shared.ticket());
            Ok(())
        });
        assert_eq!(done, Ok(()));
        // A change during a sync may not be part of it.
        assert_eq!(run(during.unwrap(), failed), (failed, 2));
        let (slow, first) = (shared.ticket(), shared.ticket());
        assert_eq!(run(first, failed), (failed, 3));
        assert_eq!(run(shared.ticket(), Ok(())), (Ok(()), 4), "a new change");
        assert_eq!(run(slow, Ok(())), (failed, 4), "it was overtaken");
    }

    #[test]
    fn a_subvolume_learns_of_the_failed_sync_of_another() {
        let (_host, fs, _) = served(|_, _| Ok(()));
        let volume = &fs.0.root.volume;
        let beside = volume.subvolume(7, &fs.0.root.stat().unwrap()).unwrap();
        let ticket = beside.sync.ticket();
        let failed = Err(FsError::NoSpace);
        assert_eq!(volume.sync.run(volume.sync.ticket(), || failed), failed);
        assert_eq!(beside.sync.run(ticket, || Ok(())), failed);
    }

    #[test]
    fn an_object_that_makes_room_is_not_forgotten_with_its_unstable_writes() {
        let (_host, fs, file) = served(|_, _| Err(Errno::IO));
        let before = fs.write_verifier();
        let node = || fs.0.tables.of(&file).remove(&file);
        fs.0.handle_evicted(node());
        assert_eq!(fs.write_verifier(), before, "nothing was written");
        assert_eq!(write(&fs, &file, Stable::Unstable), Ok(Stable::Unstable));
        let used = fs.0.find(&file).unwrap();
        fs.0.handle_evicted(node());
        assert_eq!(fs.write_verifier(), before, "it is still in use");
        drop(used);
        fs.0.close_idle(0, Duration::ZERO);
        assert_ne!(fs.write_verifier(), before);
    }

    /// A WRITE finds its file and then may have to wait for its turn.
    #[test]
    fn an_object_that_makes_room_before_a_write_opens_it_is_not_forgotten() {
        let (_host, fs, file) = served(|_, _| Err(Errno::IO));
        let before = fs.write_verifier();
        let node = fs.0.tables.of(&file).remove(&file).unwrap();
        node.close_content();
        fs.0.handle_evicted(Some(Arc::clone(&node)));
        node.content(&fs.0.files, Purpose::Write).unwrap();
        node.written();
        drop(node);
        fs.0.close_idle(0, Duration::ZERO);
        assert_ne!(fs.write_verifier(), before);
    }

    /// An unprivileged server cannot open the file again. Then the whole file system is synced, and
    /// that reports the failure. (Root can open the file.)
    #[test]
    fn an_object_that_cannot_be_opened_is_not_forgotten_with_its_unstable_writes() {
        use std::os::unix::fs::PermissionsExt;
        let (host, fs, file) = served(|_, _| Err(Errno::IO));
        assert_eq!(write(&fs, &file, Stable::Unstable), Ok(Stable::Unstable));
        let node = fs.0.tables.of(&file).remove(&file).unwrap();
        // No call does this while there is unstable data.
        node.close_content();
        let unreadable = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(host.path().join("f"), unreadable).unwrap();
        let before = fs.write_verifier();
        fs.0.handle_evicted(Some(node));
        assert_ne!(fs.write_verifier(), before);
    }
}
