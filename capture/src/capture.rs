//! A capture in progress: the file, shared by the devices, and the links behind which packets wait.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rdma::Time;

use crate::file::{Limits, OnStop, Origin, Sink, State, interface};
use crate::link::Link;

/// A capture in progress. Clones are handles to the same file.
#[derive(Clone)]
pub struct Capture(Arc<Shared>);

struct Shared {
    /// Whether nothing more is captured; read without the lock.
    stopped: AtomicBool,
    state: Mutex<State>,
    /// Connections behind emulated links, with packets that wait for their place in the file.
    /// Locked after the state.
    links: Mutex<Vec<Arc<Mutex<Link>>>>,
}

impl Capture {
    /// Creates the file, which must not exist, and writes its first block. `epoch` is the time in
    /// nanoseconds since 1970 at which the devices' clock was zero; zero itself shows a virtual
    /// clock as it is. `on_stop` is called if the capture stops before the program ends it.
    ///
    /// # Errors
    /// The file exists or cannot be created, or the error of writing to it.
    pub fn create(path: &Path, limits: Limits, epoch: u64, on_stop: OnStop) -> io::Result<Self> {
        let state = State::create(path, limits, epoch, on_stop)?;
        Ok(Self(Arc::new(Shared {
            stopped: AtomicBool::new(false),
            state: Mutex::new(state),
            links: Mutex::default(),
        })))
    }

    /// Returns whether nothing more is captured.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }

    /// Lets `act` add packets of an interface.
    pub(crate) fn with<R>(&self, interface: u32, act: impl FnOnce(&mut Sink<'_>) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut Sink {
            state: &mut state,
            interface,
        });
        self.0.stopped.store(state.stopped, Ordering::Relaxed);
        result
    }

    /// Adds an interface: a device whose packets follow. Returns its number.
    pub(crate) fn interface(&self, name: &str, origin: Origin) -> u32 {
        let mut state = self.lock();
        let snap = state.limits.snap;
        if let Ok(block) = interface(name, origin, snap) {
            state.add(&block);
        }
        self.0.stopped.store(state.stopped, Ordering::Relaxed);
        state.interfaces += 1;
        state.interfaces - 1
    }

    /// Adds connections behind an emulated link.
    pub(crate) fn add_link(&self, link: Link) -> Arc<Mutex<Link>> {
        let link = Arc::new(Mutex::new(link));
        lock(&self.0.links).push(Arc::clone(&link));
        link
    }

    /// Writes what waits of connections behind an emulated link, of which nothing follows.
    pub(crate) fn end_link(&self, link: &Arc<Mutex<Link>>) {
        lock(&self.0.links).retain(|other| !Arc::ptr_eq(other, link));
        let mut state = self.lock();
        release(&mut state, link, None);
        self.0.stopped.store(state.stopped, Ordering::Relaxed);
    }

    /// Writes the packets that are still in memory, except those behind an emulated link of which
    /// the order is not known yet. A program calls this from time to time, so that the file can be
    /// read meanwhile. `now` is the time on the devices' clock.
    pub fn flush(&self, now: Time) {
        let mut state = self.lock();
        for link in lock(&self.0.links).iter() {
            release(&mut state, link, Some(now));
        }
        state.flush_or_stop();
        self.0.stopped.store(state.stopped, Ordering::Relaxed);
    }

    /// Ends the capture: the file is complete, and later packets are ignored. Returns false without
    /// effect if a device is using the file right now, so that a program that ends because of a
    /// signal can give up on a file system that does not answer.
    #[must_use]
    pub fn try_finish(&self) -> bool {
        let mut state = match self.0.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        for link in lock(&self.0.links).iter() {
            release(&mut state, link, None);
        }
        state.flush_or_stop();
        state.stopped = true;
        self.0.stopped.store(true, Ordering::Relaxed);
        true
    }

    /// Returns whether no connection has sent or received anything yet. False if a device is using the
    /// file right now; see [`Capture::try_finish`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0.state.try_lock() {
            Ok(state) => self.has_none(&state),
            Err(TryLockError::Poisoned(poisoned)) => self.has_none(poisoned.get_ref()),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Returns the number of packets that the file has, or will have when it is complete. Readers of the file count
    /// them from one.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.lock().packets
    }

    fn has_none(&self, state: &State) -> bool {
        let links = lock(&self.0.links);
        state.connections == 0 && links.iter().all(|link| lock(link).is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

/// Adds the packets that wait behind a link: those whose order is known at time `now`, or all.
fn release(state: &mut State, link: &Mutex<Link>, now: Option<Time>) {
    let mut link = lock(link);
    let mut sink = Sink {
        interface: link.interface(),
        state,
    };
    match now {
        Some(now) => link.release(&mut sink, now),
        None => link.release_all(&mut sink),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}
