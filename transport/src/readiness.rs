//! Adapts the poll loop of `mio` to the interface that devices and transports use.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use mio::unix::SourceFd;
use mio::{Registry, Token};
use rdma::{Interest, Poller, Readiness};

/// A [`Readiness`] that registers with a `mio::Poll`, for loops that are not this crate's
/// [`PollLoop`](crate::PollLoop).
#[derive(Debug)]
pub struct MioReadiness(Registry);

impl MioReadiness {
    /// Creates the poller of one device or transport, whose tokens start at `first_token`.
    ///
    /// # Errors
    /// The error of cloning the registry.
    pub fn poller(registry: &Registry, first_token: usize) -> io::Result<Poller> {
        let readiness = Box::new(Self(registry.try_clone()?));
        Ok(Poller {
            readiness,
            first_token,
        })
    }
}

impl Readiness for MioReadiness {
    fn register(&self, fd: BorrowedFd<'_>, token: usize, interest: Interest) -> io::Result<()> {
        let interest = match interest {
            Interest::Readable => mio::Interest::READABLE,
            Interest::ReadableAndWritable => mio::Interest::READABLE | mio::Interest::WRITABLE,
        };
        let mut source = SourceFd(&fd.as_raw_fd());
        self.0.register(&mut source, Token(token), interest)
    }

    fn deregister(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.0.deregister(&mut SourceFd(&fd.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    /// Returns the tokens that are ready now.
    fn ready(poll: &mut Poll) -> Vec<usize> {
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().map(|event| event.token().0).collect()
    }

    #[test]
    fn readiness_is_told_once_under_the_devices_own_token_until_it_is_unwatched() {
        let mut poll = Poll::new().unwrap();
        let poller = MioReadiness::poller(poll.registry(), 100).unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        poller.watch(near.as_fd(), 7, Interest::Readable).unwrap();
        assert!(
            ready(&mut poll).is_empty(),
            "writable, which was not asked for"
        );
        far.write_all(b"x").unwrap();
        assert_eq!(ready(&mut poll), [107]);
        assert!(ready(&mut poll).is_empty(), "told twice");
        near.read_exact(&mut [0]).unwrap();
        assert!(
            poller.watch(near.as_fd(), 8, Interest::Readable).is_err(),
            "watched twice"
        );
        poller.unwatch(near.as_fd()).unwrap();
        far.write_all(b"y").unwrap();
        assert!(ready(&mut poll).is_empty(), "not watched any more");
        // A descriptor that is already ready is reported as well.
        let both = Interest::ReadableAndWritable;
        poller.watch(near.as_fd(), 8, both).unwrap();
        assert_eq!(ready(&mut poll), [108]);
        poller.unwatch(near.as_fd()).unwrap();
        assert!(poller.unwatch(near.as_fd()).is_err());
    }
}
