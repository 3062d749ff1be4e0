//! A handle to call a connected client (RFC 8167).

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::poll_loop::Wake;
use crate::{Call, CallError, ConnId, Reply};

/// A connection: of which port, and which.
pub(crate) type Place = (usize, ConnId);

/// How a callback ended.
pub(crate) type Ending = Result<Reply, CallError>;

/// A client that is connected and can be called, over the connection that it made. Cloning gives
/// another handle to the same one. Usable on any thread.
///
/// A service gets it with a client's call ([`crate::Request::client`]) when the server makes
/// callbacks ([`crate::ServerOptions::callbacks`]). It must not be used before the client's upper
/// layer has said that it takes calls (RFC 8167, section 6): how is the program's affair. As long as a
/// handle lives, the server does not close the connection for idleness.
///
/// A call ends once, with a reply or an error, and with an error when the connection ends: the client
/// makes connections, so only it can be called again when it has made another (section 5.4).
#[derive(Clone)]
pub struct Callee {
    inner: Arc<Inner>,
}

struct Inner {
    mailbox: Arc<Mailbox>,
    place: Place,
    peer: SocketAddr,
    gone: AtomicBool,
}

impl Callee {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, place: Place, peer: SocketAddr) -> Self {
        Self {
            inner: Arc::new(Inner {
                mailbox: Arc::clone(mailbox),
                place,
                peer,
                gone: AtomicBool::new(false),
            }),
        }
    }

    /// Calls the client. `done` gets the end, once: on the server's thread, which it must not block,
    /// or on this one if the connection has ended already. It may make further calls. `limit` is how
    /// long the reply may take.
    pub fn call(
        &self,
        call: Call,
        limit: Duration,
        done: impl FnOnce(Result<Reply, CallError>) + Send + 'static,
    ) {
        let done = Done(Some(Box::new(done)));
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

    /// Calls the client and waits for the end. For a worker thread, or any other but the server's
    /// own: that one would wait for itself.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call_and_wait(&self, call: Call, limit: Duration) -> Result<Reply, CallError> {
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let other = Arc::clone(&slot);
        self.call(call, limit, move |ending| {
            *lock(&other.0) = Some(ending);
            other.1.notify_one();
        });
        let (ending, told) = &*slot;
        let mut ending = lock(ending);
        loop {
            if let Some(ending) = ending.take() {
                return ending;
            }
            ending = told.wait(ending).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The client's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// Whether the connection is there, as far as is known.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.inner.gone.load(Ordering::Acquire)
    }

    /// The connection has ended.
    pub(crate) fn disconnected(&self) {
        self.inner.gone.store(true, Ordering::Release);
    }

    /// Whether somebody besides the server has a handle.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }
}

impl fmt::Debug for Callee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callee")
            .field("peer", &self.inner.peer)
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Callee {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Callee {}

/// Whom to tell of an end. Who is dropped untold is told that the server is closed.
pub(crate) struct Done(Option<Box<dyn FnOnce(Ending) + Send>>);

impl Done {
    pub(crate) fn end(mut self, ending: Ending) {
        if let Some(done) = self.0.take() {
            done(ending);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(CallError::Closed));
        }
    }
}

/// A callback on its way to the server's thread.
pub(crate) struct Submitted {
    pub(crate) place: Place,
    pub(crate) call: Call,
    pub(crate) limit: Duration,
    pub(crate) done: Done,
}

/// Callbacks on their way to the server's thread.
pub(crate) struct Mailbox {
    /// Nothing when the server is gone.
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
        // Foreign code is told when nothing is locked any more.
        match refused {
            Some(submitted) => submitted.done.end(Err(CallError::Closed)),
            None => self.wake.wake(),
        }
    }

    /// All that is there, in order.
    pub(crate) fn take(&self) -> VecDeque<Submitted> {
        let mut waiting = lock(&self.waiting);
        waiting.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The server is gone.
    pub(crate) fn close(&self) {
        let rest = lock(&self.waiting).take();
        drop(rest);
    }
}

/// Nothing that can panic runs under these locks, so poison would mean nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
