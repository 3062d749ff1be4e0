//! The connections of a driver whose policies of granting are to be asked again.
//!
//! A policy that shares something among connections asks for it
//! ([`rpcrdma_connection::flow::AskAgain`]), also on the threads of other loops. The driver's own loop
//! is woken then, and asks at the end of its next poll. Drivers whose policies never do that pay for
//! a look at one flag in each poll.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Waker;

use rdma::QpId;
use rpcrdma_connection::flow::AskAgain;
use rpcrdma_host::{CountedMutex, LockCounter};

static CONTENDED: LockCounter = LockCounter::new("connections whose grants are asked for again");

/// State that other threads change.
#[derive(Debug, Default)]
struct Noted {
    connections: BTreeSet<u64>,
    /// Whether the driver is gone, which takes no connections any more.
    ended: bool,
    /// Wakes the loop of the driver, once it has one.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Shared {
    /// Whether there are any connections. It is changed under the lock.
    any: AtomicBool,
    noted: CountedMutex<Noted>,
}

impl Shared {
    fn note(&self, connection: u64) {
        let mut noted = self.noted.lock();
        // The loop was woken for those that are noted already.
        if noted.ended || !noted.connections.insert(connection) || self.any.swap(true, Relaxed) {
            return;
        }
        let waker = noted.waker.clone();
        drop(noted);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The connections of one driver whose policies are to be asked again.
pub(super) struct Asked {
    shared: Arc<Shared>,
    /// The function that handles have, made once for all connections.
    note: Arc<dyn Fn(u64) + Send + Sync>,
}

impl Default for Asked {
    fn default() -> Self {
        let shared = Arc::new(Shared {
            any: AtomicBool::new(false),
            noted: CountedMutex::new(&CONTENDED, Noted::default()),
        });
        let noting = Arc::clone(&shared);
        Self {
            shared,
            note: Arc::new(move |connection| noting.note(connection)),
        }
    }
}

impl Drop for Asked {
    /// Leaves nothing to handles that outlive the driver, as a policy may keep them.
    fn drop(&mut self) {
        let mut noted = self.shared.noted.lock();
        noted.ended = true;
        noted.connections.clear();
    }
}

impl Asked {
    /// Sets what wakes the driver's loop.
    pub(super) fn set_waker(&self, waker: Waker) {
        self.shared.noted.lock().waker = Some(waker);
    }

    /// Returns the handle of a connection.
    pub(super) fn handle(&self, qp: QpId) -> AskAgain {
        AskAgain::new(Arc::clone(&self.note), qp.0)
    }

    /// Returns whether there are connections whose policies are to be asked.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // A thread that notes one wakes the loop afterwards, which makes the change visible to it.
        self.shared.any.load(Relaxed)
    }

    /// Removes and returns these connections. Some may have ended.
    #[cold]
    pub(super) fn take(&self) -> Vec<QpId> {
        let mut noted = self.shared.noted.lock();
        self.shared.any.store(false, Relaxed);
        let connections = std::mem::take(&mut noted.connections);
        drop(noted);
        connections.into_iter().map(QpId).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A loop is woken once for all connections that are noted until it takes them.
    #[test]
    fn handles_of_other_threads_wake_the_loop_that_asks() {
        let (asked, woken) = (Asked::default(), Arc::new(Woken::default()));
        asked.handle(QpId(3)).ask();
        assert!(asked.any(), "also before there is a loop");
        assert_eq!(asked.take(), [QpId(3)]);
        asked.set_waker(Waker::from(Arc::clone(&woken)));
        for times in 1..=2 {
            assert!(!asked.any());
            let handles = [QpId(5), QpId(4), QpId(5)].map(|qp| asked.handle(qp));
            let other = thread::spawn(move || handles.map(|handle| handle.ask()));
            other.join().unwrap();
            assert!(asked.any());
            assert_eq!(woken.0.load(Relaxed), times);
            assert_eq!(asked.take(), [QpId(4), QpId(5)]);
        }
        assert_eq!(asked.take(), []);
    }

    #[test]
    fn a_handle_that_outlives_the_driver_does_nothing() {
        let (asked, woken) = (Asked::default(), Arc::new(Woken::default()));
        asked.set_waker(Waker::from(Arc::clone(&woken)));
        let (handle, shared) = (asked.handle(QpId(3)), Arc::clone(&asked.shared));
        drop(asked);
        handle.ask();
        assert!(shared.noted.lock().connections.is_empty());
        assert_eq!(woken.0.load(Relaxed), 0);
    }
}
