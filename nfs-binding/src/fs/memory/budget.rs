//! How much memory the file system may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fs::{FsError, FsResult};

/// Bytes used of a limit.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// Nothing used of `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Takes `bytes`, or fails with [`FsError::NoSpace`].
    pub(super) fn take(&self, bytes: u64) -> FsResult<()> {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= self.limit)
            })
            .map_or(Err(FsError::NoSpace), |_| Ok(()))
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
}

impl Lease {
    /// Nothing taken yet.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
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
        self.budget.give_back(self.bytes);
    }
}
