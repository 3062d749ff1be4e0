//! A handle for calling a connected client (reverse direction, RFC 8167).

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::poll_loop::Wake;
use crate::{Call, CallError, ConnectionId, Reply};

/// A connection: the index of its transport, and its id on that transport.
pub(crate) type ConnKey = (usize, ConnectionId);

/// The result of a callback.
pub(crate) type CallbackResult = Result<Reply, CallError>;

/// A connected client that can be called over the connection that it established. Clones refer to
/// the same client. The handle can be used on any thread.
///
/// A service gets the handle with a client's call ([`crate::Request::backchannel`]) if the server
/// makes callbacks ([`crate::ServerOptions::callbacks`]). The service must not use it before the
/// client's upper layer has announced that it accepts calls (RFC 8167, section 6); the RPC program
/// defines how. While a handle lives, the server does not close the connection for idleness.
///
/// A call ends exactly once, with a reply or an error. It ends with an error when the connection
/// ends, because only the client can establish another one (section 5.4).
#[derive(Clone)]
pub struct Backchannel {
    inner: Arc<Inner>,
}

struct Inner {
    mailbox: Arc<Mailbox>,
    place: ConnKey,
    peer: SocketAddr,
    gone: AtomicBool,
}

impl Backchannel {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, place: ConnKey, peer: SocketAddr) -> Self {
        Self {
            inner: Arc::new(Inner {
                mailbox: Arc::clone(mailbox),
                place,
                peer,
                gone: AtomicBool::new(false),
            }),
        }
    }

    /// Calls the client. `done` receives the result exactly once: on the server's thread, which it
    /// must not block, or on the calling thread if the connection has already ended. `done` may
    /// make further calls. `limit` is the time-out for the reply.
    pub fn call(
        &self,
        call: Call,
        limit: Duration,
        done: impl FnOnce(Result<Reply, CallError>) + Send + 'static,
    ) {
        let done = Completion(Some(Box::new(done)));
        if !self.is_connected() {
            let reason = "the connection has ended".to_owned();
            return done.end(Err(CallError::Disconnected { reason }));
        }
        let submitted = Submitted {
            place: self.inner.place,
            call,
            limit,
            done,
        };
        self.inner.mailbox.put(submitted);
    }

    /// Returns the client's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// Returns whether the connection is up, as far as this end knows.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.inner.gone.load(Ordering::Acquire)
    }

    /// Records that the connection has ended.
    pub(crate) fn disconnected(&self) {
        self.inner.gone.store(true, Ordering::Release);
    }

    /// Returns whether a handle exists besides the server's own.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }
}

impl fmt::Debug for Backchannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backchannel")
            .field("peer", &self.inner.peer)
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Backchannel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Backchannel {}

/// A completion callback. Dropping it without calling it reports [`CallError::Closed`].
pub(crate) struct Completion(Option<Box<dyn FnOnce(CallbackResult) + Send>>);

impl Completion {
    pub(crate) fn end(mut self, ending: CallbackResult) {
        if let Some(done) = self.0.take() {
            done(ending);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(CallError::Closed));
        }
    }
}

/// A callback that has been submitted and not yet seen by the server's thread.
pub(crate) struct Submitted {
    pub(crate) place: ConnKey,
    pub(crate) call: Call,
    pub(crate) limit: Duration,
    pub(crate) done: Completion,
}

/// The queue of submitted callbacks, from any thread to the server's thread.
pub(crate) struct Mailbox {
    /// `None` once the server is gone.
    waiting: Mutex<Option<VecDeque<Submitted>>>,
    wake: Arc<Wake>,
}

impl Mailbox {
    pub(crate) fn new(wake: Arc<Wake>) -> Self {
        Self {
            waiting: Mutex::new(Some(VecDeque::new())),
            wake,
        }
    }

    fn put(&self, submitted: Submitted) {
        let refused = match &mut *lock(&self.waiting) {
            Some(waiting) => {
                waiting.push_back(submitted);
                None
            }
            None => Some(submitted),
        };
        // `done` is foreign code, so it runs only after the lock is released.
        match refused {
            Some(submitted) => submitted.done.end(Err(CallError::Closed)),
            None => self.wake.wake(),
        }
    }

    /// Takes all submitted callbacks, in order.
    pub(crate) fn take(&self) -> VecDeque<Submitted> {
        let mut waiting = lock(&self.waiting);
        waiting.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Marks the server as gone and ends the callbacks that are still queued.
    pub(crate) fn close(&self) {
        let rest = lock(&self.waiting).take();
        drop(rest);
    }
}

/// Locks `mutex` and ignores poisoning: no code that can panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
