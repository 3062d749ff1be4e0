//! Syncs of a whole file system that calls share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::locked;
use crate::fs::{FsError, FsResult};

/// Lets concurrent calls share the syncs of a whole file system, which can take long: otherwise one
/// client could occupy all workers with them, one after the other.
#[derive(Debug)]
pub(super) struct SharedSync {
    /// The number of syncs that have begun.
    begun: AtomicU64,
    /// The number of the last sync that failed, counted from 1, and its error. Locked during a sync.
    failed: Mutex<Option<(u64, FsError)>>,
}

impl SharedSync {
    /// Creates the state of a file system that was not synced yet.
    pub(super) fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            failed: Mutex::new(None),
        }
    }

    /// Returns a ticket for everything that was changed so far: the number of syncs that have begun
    /// and may not contain it.
    pub(super) fn ticket(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Runs `sync`, unless another call's began after the ticket was taken. Fails if any sync failed
    /// that began after that: the kernel reports a lost write to one sync only, and a call that came
    /// later may have overtaken this one and run the next sync.
    pub(super) fn run(&self, ticket: u64, sync: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        let mut failed = locked(&self.failed);
        // With the lock held, every sync that has begun is over.
        if self.begun.load(Ordering::SeqCst) == ticket {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            if let Err(error) = sync() {
                *failed = Some((number, error));
            }
        }
        match *failed {
            Some((number, error)) if number > ticket => Err(error),
            _ => Ok(()),
        }
    }
}
