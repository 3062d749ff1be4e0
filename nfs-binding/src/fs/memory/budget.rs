//! How much memory the file system may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fs::{FsError, FsResult};

/// Bytes used of a limit.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: AtomicU64,
    /// Those of them that no object has any more, but somebody who still reads what it had.
    held: AtomicU64,
}

impl Budget {
    /// Nothing used of `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Takes `bytes`, or fails: with [`FsError::Later`] if they will be there when those who read have
    /// ended, with [`FsError::NoSpace`] if not.
    pub(super) fn take(&self, bytes: u64) -> FsResult<()> {
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

    /// Gives back what was taken.
    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes taken.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}

/// Bytes taken of a budget, which are given back when it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
    /// They are among [`Budget::held`].
    held: AtomicBool,
}

impl Lease {
    /// Nothing taken yet.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
            held: AtomicBool::new(false),
        }
    }

    /// No object has these bytes any more. They are given back when nobody reads them, either.
    pub(super) fn abandon(&self) {
        if !self.held.swap(true, Ordering::Relaxed) {
            self.budget.held.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }

    /// Is answerable for `bytes` from now on. More than before must have been taken from the budget
    /// already; what is less is given back.
    pub(super) fn set(&mut self, bytes: u64) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
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
