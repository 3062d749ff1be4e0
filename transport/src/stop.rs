//! Stops servers from other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::poll_loop::Wake;

/// A handle that stops the servers that run with it. It works from any thread; clones refer to the
/// same handle.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    set: AtomicBool,
    loops: Mutex<Vec<Weak<Wake>>>,
}

impl Stop {
    /// Creates a handle that has not been used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops every server that runs with this handle, now or later.
    pub fn stop(&self) {
        self.inner.set.store(true, Ordering::SeqCst);
        let loops = self.inner.loops.lock();
        for wake in loops.unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Some(wake) = wake.upgrade() {
                wake.wake();
            }
        }
    }

    /// Returns whether [`Stop::stop`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.set.load(Ordering::SeqCst)
    }

    /// Registers a loop to be woken. Its owner checks [`Stop::is_stopped`] after this call, so that
    /// no stop is missed in between.
    pub fn register(&self, wake: &Arc<Wake>) {
        let loops = self.inner.loops.lock();
        let mut loops = loops.unwrap_or_else(PoisonError::into_inner);
        loops.retain(|wake| wake.strong_count() > 0);
        loops.push(Arc::downgrade(wake));
    }
}
