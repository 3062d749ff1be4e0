//! The interface between a device and its owner's poll loop.
//!
//! Devices register their descriptors edge-triggered, and treat a short read as the last one. The
//! poll loop therefore also reports whether an event announced the peer's FIN
//! ([`crate::Device::ready`]): otherwise a FIN that arrives together with data would never be
//! noticed, and a dead connection would stay.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// The readiness for which a file descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data can be read, or connections can be accepted.
    Readable,
    /// Data can be read, connections can be accepted, or data can be written.
    ReadableAndWritable,
}

/// A poll loop that watches file descriptors, such as one around `epoll` or `mio`.
///
/// Registration is edge-triggered: the loop reports readiness once, when it begins, and not again
/// before an operation on the descriptor would have blocked. A descriptor that is ready when it is
/// registered is also reported.
pub trait Readiness: fmt::Debug + Send {
    /// Watches `fd` until it is deregistered or closed. Its events carry `token`.
    ///
    /// # Errors
    /// The error of the operating system, for example because the descriptor is watched already.
    fn register(&self, fd: BorrowedFd<'_>, token: usize, interest: Interest) -> io::Result<()>;

    /// Stops watching `fd`.
    ///
    /// # Errors
    /// The error of the operating system, for example because the descriptor was not watched.
    fn deregister(&self, fd: BorrowedFd<'_>) -> io::Result<()>;
}

/// A device's share of its owner's poll loop: the loop, and a range of tokens from `first_token`
/// that only the device uses.
#[derive(Debug)]
pub struct Poller {
    /// The owner's poll loop.
    pub readiness: Box<dyn Readiness>,
    /// The device uses the token `first_token + n` for any `n` below 2^32.
    pub first_token: usize,
}

impl Poller {
    /// Watches `fd` under the device's own token `local`, which is passed to
    /// [`Device::ready`](crate::Device::ready).
    ///
    /// # Errors
    /// Same as [`Readiness::register`].
    pub fn watch(&self, fd: BorrowedFd<'_>, local: usize, interest: Interest) -> io::Result<()> {
        self.readiness
            .register(fd, self.first_token + local, interest)
    }

    /// Stops watching `fd`.
    ///
    /// # Errors
    /// Same as [`Readiness::deregister`].
    pub fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.readiness.deregister(fd)
    }
}
