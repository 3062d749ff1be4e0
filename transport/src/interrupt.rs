//! Interrupting what a client does: connecting, a copy, a load.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// A handle that gracefully ends the operations that were started with it, such as a connection that
/// is being established, or copies: each has its own way to leave nothing unfinished. It works from
/// any thread; clones refer to the same handle.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    set: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Interrupt {
    /// Creates a handle that has not been used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the operations that run with this handle, now or later.
    pub fn interrupt(&self) {
        self.inner.set.store(true, Ordering::SeqCst);
        let waiting = self.inner.waiting.lock();
        let waiting = std::mem::take(&mut *waiting.unwrap_or_else(PoisonError::into_inner));
        for waker in waiting {
            waker.wake();
        }
    }

    /// Returns whether [`Interrupt::interrupt`] was called.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.inner.set.load(Ordering::SeqCst)
    }

    /// Completes when [`Interrupt::interrupt`] is called.
    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.is_set() {
                return Poll::Ready(());
            }
            let waiting = self.inner.waiting.lock();
            let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            // The interrupt may have come before the waker was registered.
            match self.is_set() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}
