//! Locks that ignore poisoning: a panic leaves the guarded data consistent, because operations
//! check before they modify.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks a mutex if it is free within some hundred instructions; see [`rpcrdma_host::CountedMutex::lock_soon`].
pub(super) fn locked_soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    const TRIES: u32 = 64;
    for _ in 0..TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

/// Locks a mutex.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
