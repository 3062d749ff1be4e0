//! The thread that closes what nobody uses any more.
//!
//! An open descriptor keeps a removed file's blocks on the disk, and a file system from being
//! unmounted. So what was not used for [`ROUNDS`] rounds is closed, whoever removed it. (What is removed
//! through this server is closed at once.)

use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use super::Served;
use crate::fs::lock::locked;

/// How long a round is. The keeper sleeps without a time limit while nothing is open.
pub(super) const ROUND: Duration = Duration::from_secs(2);
/// Rounds that an object stays open without being used, the present one not counted.
const ROUNDS: u64 = 2;

/// Wake-ups of the thread.
#[derive(Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    /// Something was opened since the thread last looked.
    opened: bool,
    closed: bool,
}

impl Bell {
    /// Something was opened.
    pub(super) fn opened(&self) {
        let mut state = locked(&self.state);
        if !std::mem::replace(&mut state.opened, true) {
            self.rung.notify_all();
        }
    }

    /// The thread is to end.
    pub(super) fn close(&self) {
        locked(&self.state).closed = true;
        self.rung.notify_all();
    }

    /// Waits until something is open. False when the thread is to end.
    fn wait_for_work(&self) -> bool {
        let state = locked(&self.state);
        let waiting = |state: &mut State| !state.opened && !state.closed;
        let state = self.rung.wait_while(state, waiting);
        !state
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .closed
    }

    /// Lets a round pass. False when the thread is to end.
    fn wait_a_round(&self, round: Duration) -> bool {
        let state = locked(&self.state);
        let open = |state: &mut State| !state.closed;
        let waited = self.rung.wait_timeout_while(state, round, open);
        let (state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        !state.closed
    }

    /// From here on, what is opened rings again.
    fn listen(&self) {
        locked(&self.state).opened = false;
    }
}

/// Starts the thread, which ends with the file system.
pub(super) fn start(served: &Arc<Served>, round: Duration) -> std::io::Result<()> {
    let (bell, served) = (Arc::clone(&served.bell), Arc::downgrade(served));
    std::thread::Builder::new()
        .name("nfs-keeper".to_owned())
        .spawn(move || keep(&bell, &served, round))?;
    Ok(())
}

fn keep(bell: &Bell, served: &Weak<Served>, round: Duration) {
    while bell.wait_for_work() {
        loop {
            if !bell.wait_a_round(round) {
                return;
            }
            let Some(served) = served.upgrade() else {
                return;
            };
            bell.listen();
            served.close_idle(ROUNDS);
            if locked(&served.table).is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::*;
    use super::*;

    /// Whether this process has a file open that is now shown as `path`.
    fn is_open(path: &Path) -> bool {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter_map(Result::ok)
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|target| target == path)
    }

    /// A file that is open here.
    fn opened() -> (tempfile::TempDir, DirectoryFs, FileId) {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let how = HowToCreate::Guarded(SetAttributes::default());
        let made = fs.create(&Caller::root(), &fs.root(), b"f", &how);
        assert!(is_open(&host.path().join("f")));
        (host, fs, made.result.unwrap().id)
    }

    #[test]
    fn what_was_removed_on_the_host_and_is_not_used_is_closed() {
        let (host, fs, _) = opened();
        std::fs::remove_file(host.path().join("f")).unwrap();
        let gone = host.path().join("f (deleted)");
        assert!(is_open(&gone), "its blocks stay on the disk");
        start(&fs.0, Duration::from_millis(1)).unwrap();
        let limit = std::time::Instant::now() + Duration::from_secs(10);
        while is_open(&gone) {
            assert!(std::time::Instant::now() < limit, "still open");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_used_stays_open() {
        let (host, fs, file) = opened();
        for _ in 0..10 {
            fs.getattr(&file).unwrap();
            fs.0.close_idle(ROUNDS);
            assert!(is_open(&host.path().join("f")));
        }
        for _ in 0..=ROUNDS {
            fs.0.close_idle(ROUNDS);
        }
        assert!(!is_open(&host.path().join("f")));
        assert!(fs.getattr(&file).is_ok(), "it is opened again");
    }

    #[test]
    fn what_is_gone_is_closed_when_a_client_asks_for_it() {
        let (host, fs, file) = opened();
        std::fs::remove_file(host.path().join("f")).unwrap();
        assert_eq!(fs.getattr(&file), Err(FsError::Stale));
        assert!(!is_open(&host.path().join("f (deleted)")));
    }
}
