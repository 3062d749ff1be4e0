//! Observers of the connections of cases, such as a packet capture.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An observer of connections.
pub trait Watch: Send {
    /// Takes bytes of the TCP stream of a connection, in stream order. `ends` has the addresses of this end and of
    /// the server, and `sent` tells whether this end has sent them.
    fn bytes(&mut self, connection: u64, ends: [SocketAddr; 2], sent: bool, bytes: &[u8]);

    /// Takes the end of a connection.
    fn ended(&mut self, connection: u64);

    /// Returns the number of packets that connections have had so far.
    fn packets(&self) -> u64;
}

/// A handle to an observer.
#[derive(Clone)]
pub struct Watcher(Arc<Mutex<Shared>>);

struct Shared {
    watch: Box<dyn Watch>,
    connections: u64,
}

impl Watcher {
    /// Creates the handle.
    #[must_use]
    pub fn new(watch: Box<dyn Watch>) -> Self {
        let connections = 0;
        Self(Arc::new(Mutex::new(Shared { watch, connections })))
    }

    pub(crate) fn packets(&self) -> u64 {
        self.lock().watch.packets()
    }

    /// Begins a connection with these addresses.
    pub(crate) fn connection(&self, ends: [SocketAddr; 2]) -> Watched {
        let mut shared = self.lock();
        shared.connections += 1;
        Watched {
            watcher: self.clone(),
            connection: shared.connections,
            ends,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

/// A connection that is observed, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    watcher: Watcher,
    connection: u64,
    ends: [SocketAddr; 2],
}

impl Watched {
    pub(crate) fn bytes(&self, sent: bool, bytes: &[u8]) {
        let mut shared = self.watcher.lock();
        shared.watch.bytes(self.connection, self.ends, sent, bytes);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watcher.lock().watch.ended(self.connection);
    }
}
