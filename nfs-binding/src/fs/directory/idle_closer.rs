//! The thread that closes idle objects.
//!
//! An open descriptor keeps the blocks of a removed file allocated, and keeps a file system from
//! being unmounted. So an object that was not used for [`ROUNDS`] rounds is closed, whether or not it
//! still has a name. (Objects removed through this server are closed at once.) Exception: without root,
//! a file that could not be opened for writing again stays open (`must_stay_open`). A file system below
//! the export is closed in the next round after its last object.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use super::Served;
use crate::fs::lock::locked;

/// The length of a round. The thread sleeps without a time limit while nothing is open.
pub(super) const ROUND: Duration = Duration::from_secs(2);
/// The number of rounds that an idle object stays open, besides the present one.
const ROUNDS: u64 = 2;
/// The time without changes after which an executable file counts as complete. Then it is closed
/// even if its owner could not write to it again, because execve(2) fails with ETXTBSY while it is open
/// for writing.
const COMPLETE: Duration = Duration::from_secs(120);

/// The signal that wakes or ends the thread that closes idle objects.
#[derive(Default)]
pub(super) struct CloserSignal {
    /// Whether something was opened since the thread last checked. Set under the lock; reset without it,
    /// and read without it by threads that open one object after another.
    opened: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// Whether so much is queued for closing that the end of the round is too late.
    hurried: bool,
}

/// The reason why the thread is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awake {
    /// The thread must end.
    Closed,
    /// Much is queued for closing.
    Hurried,
    /// The round has ended.
    Round,
}

impl CloserSignal {
    /// Records that an object or a file system was opened and is in its table.
    pub(super) fn opened(&self) {
        // The thread resets the flag before it locks the tables to see whether they are empty. So
        // if it misses this one there, the flag is seen as reset here.
        if self.opened.load(Ordering::Acquire) {
            return;
        }
        let state = locked(&self.state);
        self.opened.store(true, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Has the thread close what is queued, without waiting for the end of the round.
    pub(super) fn hurry(&self) {
        locked(&self.state).hurried = true;
        self.changed.notify_all();
    }

    /// Returns whether the thread has still to do so.
    #[cfg(test)]
    pub(super) fn is_hurried(&self) -> bool {
        locked(&self.state).hurried
    }

    /// Makes the thread end.
    pub(super) fn close(&self) {
        locked(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Waits until an object is opened. Returns false when the thread must end.
    fn wait_for_work(&self) -> bool {
        let state = locked(&self.state);
        let waiting = |state: &mut State| !self.opened.load(Ordering::Acquire) && !state.closed;
        let state = self.changed.wait_while(state, waiting);
        !state
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .closed
    }

    /// Waits until the end of a round, or until the thread has something to do before.
    fn wait_until(&self, end: Instant) -> Awake {
        let state = locked(&self.state);
        let left = end.saturating_duration_since(Instant::now());
        let nothing = |state: &mut State| !state.closed && !state.hurried;
        let waited = self.changed.wait_timeout_while(state, left, nothing);
        let (mut state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        match (state.closed, std::mem::take(&mut state.hurried)) {
            (true, _) => Awake::Closed,
            (false, true) => Awake::Hurried,
            (false, false) => Awake::Round,
        }
    }

    /// Resets the flag, so that the next opened object sets it again.
    fn reset(&self) {
        self.opened.store(false, Ordering::Release);
    }
}

/// Starts the thread, which ends with the file system.
pub(super) fn start(served: &Arc<Served>, round: Duration) -> std::io::Result<()> {
    let (closer_signal, served) = (Arc::clone(&served.closer_signal), Arc::downgrade(served));
    std::thread::Builder::new()
        .name("nfs-idle-closer".to_owned())
        .spawn(move || run(&closer_signal, &served, round))?;
    Ok(())
}

impl Served {
    /// Returns whether nothing is left for the thread to close.
    fn is_all_closed(&self) -> bool {
        self.tables.is_empty()
            && locked(&self.evicted).is_empty()
            && locked(&self.closing).is_empty()
            && locked(&self.crossed).is_empty()
    }
}

fn run(closer_signal: &CloserSignal, served: &Weak<Served>, round: Duration) {
    while closer_signal.wait_for_work() {
        let mut end = Instant::now() + round;
        loop {
            let awake = closer_signal.wait_until(end);
            let Some(served) = served.upgrade() else {
                return;
            };
            match awake {
                Awake::Closed => return,
                Awake::Hurried => served.close_queued(),
                Awake::Round => {
                    closer_signal.reset();
                    served.close_idle(ROUNDS, COMPLETE);
                    if served.is_all_closed() {
                        break;
                    }
                    end = Instant::now() + round;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::*;
    use super::*;
    use crate::fs::tests::ordinary;

    /// Returns whether this process has a file open that is now shown as `path`.
    fn is_open(path: &Path) -> bool {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter_map(Result::ok)
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|target| target == path)
    }

    /// Returns a new file that is open in a served directory.
    fn opened(mode: Option<u32>) -> (tempfile::TempDir, DirectoryFs, FileId) {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let how = HowToCreate::Guarded(SetAttributes {
            mode,
            ..SetAttributes::default()
        });
        let made = fs.create(&Caller::root(), &fs.root(), b"f", &how);
        assert!(is_open(&host.path().join("f")));
        (host, fs, made.result.unwrap().id)
    }

    #[test]
    fn what_was_removed_on_the_host_and_is_not_used_is_closed() {
        let (host, fs, _) = opened(None);
        std::fs::remove_file(host.path().join("f")).unwrap();
        let gone = host.path().join("f (deleted)");
        assert!(is_open(&gone), "its blocks stay on the disk");
        start(&fs.0, Duration::from_millis(1)).unwrap();
        let limit = Instant::now() + Duration::from_secs(10);
        while is_open(&gone) {
            assert!(Instant::now() < limit, "still open");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_queued_is_closed_before_the_end_of_the_round_if_it_is_much() {
        let signal = CloserSignal::default();
        let hour = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| signal.wait_until(hour));
            signal.hurry();
            assert_eq!(waiting.join().unwrap(), Awake::Hurried);
        });
        // The round goes on.
        assert_eq!(signal.wait_until(Instant::now()), Awake::Round);
        signal.hurry();
        signal.close();
        assert_eq!(signal.wait_until(hour), Awake::Closed);
    }

    /// A listing opens the file systems below to tell what they are, but keeps no object open.
    #[test]
    fn a_file_system_that_was_only_listed_is_closed() {
        let options = DirectoryOptions {
            crossmnt: true,
            inode_reuse: true,
            ..DirectoryOptions::default()
        };
        // Every host has another file system below this directory.
        let fs = DirectoryFs::open("/", options).unwrap();
        let who = Caller::root();
        let crosses = || {
            let mut below = false;
            let listed = fs.readdir(&who, &fs.root(), 0, [0; 8], true, &mut |entry| {
                below |= entry
                    .object
                    .is_some_and(|object| object.attributes.fsid != 0);
                true
            });
            assert!(listed.unwrap().eof);
            below
        };
        assert!(crosses());
        assert!(!locked(&fs.0.crossed).is_empty() && fs.0.tables.is_empty());
        start(&fs.0, Duration::from_millis(1)).unwrap();
        let limit = Instant::now() + Duration::from_secs(10);
        while !locked(&fs.0.crossed).is_empty() {
            assert!(Instant::now() < limit, "still open");
            std::thread::yield_now();
        }
        assert!(crosses(), "it is opened again");
    }

    /// Without root, a file that could not be opened again stays open as long as it exists.
    #[test]
    fn what_was_removed_on_the_host_is_closed_though_it_was_read_only() {
        if !ordinary() {
            return;
        }
        let (host, fs, _) = opened(Some(0o444));
        for _ in 0..=ROUNDS {
            fs.0.close_idle(0, COMPLETE);
        }
        assert!(
            is_open(&host.path().join("f")),
            "it could not be opened again"
        );
        std::fs::remove_file(host.path().join("f")).unwrap();
        for _ in 0..=ROUNDS {
            fs.0.close_idle(0, COMPLETE);
        }
        assert!(!is_open(&host.path().join("f (deleted)")));
    }

    /// `install` and `tar` create programs with modes such as 0555.
    #[test]
    fn a_program_that_its_owner_may_not_write_is_closed_when_it_is_complete() {
        if !ordinary() {
            return;
        }
        let (host, fs, file) = opened(Some(0o555));
        let (who, data) = (Caller::root(), b"data".into());
        let written = fs.write(&who, &file, 0, &data, Stable::FileSync);
        assert!(written.result.is_ok(), "{written:?}");
        fs.0.close_idle(0, COMPLETE);
        assert!(
            fs.0.find(&file).unwrap().is_writable(),
            "more may be written"
        );
        fs.0.close_idle(0, Duration::ZERO);
        assert!(!is_open(&host.path().join("f")));
    }

    /// Such as a mailbox that its owner may fill and not read, or a log of another user.
    #[test]
    fn a_file_that_may_only_be_written_is_written_and_closed() {
        use std::os::unix::fs::PermissionsExt;
        if !ordinary() {
            return;
        }
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("f");
        std::fs::write(&path, "data").unwrap();
        let permit = |bits| {
            let permissions = std::fs::Permissions::from_mode(bits);
            std::fs::set_permissions(&path, permissions).unwrap();
        };
        permit(0o200);
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let who = Caller::root();
        let file = fs.lookup(&who, &fs.root(), b"f").unwrap().object.id;
        let write = |stable| fs.write(&who, &file, 0, &b"more".into(), stable).result;
        let read = || fs.read(&who, &file, 0, &mut [0; 4]).map(|read| read.count);
        for stable in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
            assert_eq!(write(stable).map(|written| written.committed), Ok(stable));
            assert_eq!(read(), Err(FsError::Access));
            assert_eq!(fs.commit(&who, &file, 0, 0).result, Ok(()));
            assert!(!is_open_for_writing(&fs, &file), "it can be opened again");
        }
        let cut = SetAttributes {
            size: Some(3),
            ..SetAttributes::default()
        };
        assert_eq!(fs.setattr(&who, &file, &cut, None).result, Ok(()));
        assert!(write(Stable::Unstable).is_ok());
        permit(0o600);
        assert_eq!(read(), Ok(4));
        assert!(
            is_open_for_writing(&fs, &file),
            "it has unstable data that is not committed"
        );
    }

    fn is_open_for_writing(fs: &DirectoryFs, file: &FileId) -> bool {
        fs.0.find(file).unwrap().is_writable()
    }

    #[test]
    fn what_is_used_stays_open() {
        let (host, fs, file) = opened(None);
        for _ in 0..10 {
            fs.getattr(&file).unwrap();
            fs.0.close_idle(ROUNDS, COMPLETE);
            assert!(is_open(&host.path().join("f")));
        }
        for _ in 0..=ROUNDS {
            fs.0.close_idle(ROUNDS, COMPLETE);
        }
        assert!(!is_open(&host.path().join("f")));
        assert!(fs.getattr(&file).is_ok(), "it is opened again");
    }

    #[test]
    fn what_is_gone_is_closed_when_a_client_asks_for_it() {
        let (host, fs, file) = opened(None);
        std::fs::remove_file(host.path().join("f")).unwrap();
        assert_eq!(fs.getattr(&file), Err(FsError::Stale));
        assert!(!is_open(&host.path().join("f (deleted)")));
    }
}
