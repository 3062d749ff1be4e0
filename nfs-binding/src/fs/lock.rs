//! Locks that ignore poisoning: a panic leaves the guarded data consistent, because operations
//! check before they modify.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
