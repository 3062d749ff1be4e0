//! The memory limit of the file system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fs::{FsError, FsResult};

/// The bytes used, and their limit.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: AtomicU64,
    /// The part of `used` that belongs to no object any more, but is still held by readers.
    held: AtomicU64,
}

impl Budget {
    /// Creates a budget of `limit` bytes, all free.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Takes `bytes`. Fails with [`FsError::Later`] if enough will be free when the present readers
    /// have finished, and with [`FsError::NoSpace`] if not.
    pub(super) fn take(&self, bytes: u64) -> FsResult<()> {
        if bytes == 0 {
            // Most WRITEs replace bytes. They do not change what all files share.
            return Ok(());
        }
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= self.limit)
            });
        let Err(used) = taken else {
            return Ok(());
        };
        let without = used.saturating_sub(self.held.load(Ordering::Relaxed));
        match without.saturating_add(bytes) <= self.limit {
            true => Err(FsError::Later),
            false => Err(FsError::NoSpace),
        }
    }

    /// Returns bytes that were taken.
    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes taken.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the limit, bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}

/// Bytes taken from a budget. They are returned on drop.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
    /// Whether the bytes are included in [`Budget::held`].
    held: AtomicBool,
}

impl Lease {
    /// Creates an empty lease.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
            held: AtomicBool::new(false),
        }
    }

    /// Records that no object owns these bytes any more. They are returned when the last reader
    /// drops them.
    pub(super) fn abandon(&self) {
        if !self.held.swap(true, Ordering::Relaxed) {
            self.budget.held.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }

    /// Changes the size of the lease to `bytes`. An increase must already have been taken from the
    /// budget; a decrease is returned to it.
    pub(super) fn set(&mut self, bytes: u64) {
        if let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) {
            self.budget.give_back(less);
        }
        self.bytes = bytes;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if *self.held.get_mut() {
            self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.budget.give_back(self.bytes);
    }
}
