//! Ending a copy from outside.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Ends the copies and removals that it was given to, in order: what is half done is taken back
/// here, and told of on the server. Works from any thread; cloning gives another handle.
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
    /// One that was not used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends what runs with it, now or later.
    pub fn interrupt(&self) {
        self.inner.set.store(true, Ordering::SeqCst);
        let waiting = self.inner.waiting.lock();
        let waiting = std::mem::take(&mut *waiting.unwrap_or_else(PoisonError::into_inner));
        for waker in waiting {
            waker.wake();
        }
    }

    /// Whether it was used.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.inner.set.load(Ordering::SeqCst)
    }

    /// Completes when it is used.
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
            // It may have been used before the waker was there to be woken.
            match self.is_set() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}
