//! Ending a server from elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::poll_loop::Wake;

/// Ends the servers that run with it. Works from any thread; cloning gives another handle.
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
    /// A handle that was not used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every server that runs with this, now or later.
    pub fn stop(&self) {
        self.inner.set.store(true, Ordering::SeqCst);
        let loops = self.inner.loops.lock();
        for wake in loops.unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Some(wake) = wake.upgrade() {
                wake.wake();
            }
        }
    }

    /// Whether it was used.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.set.load(Ordering::SeqCst)
    }

    /// Has a loop woken. Its owner looks at [`Stop::is_stopped`] after this, so that no stop
    /// falls in between.
    pub(crate) fn register(&self, wake: &Arc<Wake>) {
        let loops = self.inner.loops.lock();
        let mut loops = loops.unwrap_or_else(PoisonError::into_inner);
        loops.retain(|wake| wake.strong_count() > 0);
        loops.push(Arc::downgrade(wake));
    }
}
