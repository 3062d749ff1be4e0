//! A poll loop for devices under test. The transport crate, a layer above, has one for programs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use mio::unix::SourceFd;
use rdma::{Interest, Poller, Readiness};

/// Registers descriptors with a `mio::Poll`.
#[derive(Debug)]
struct Registry(mio::Registry);

impl Readiness for Registry {
    fn register(&self, fd: BorrowedFd<'_>, token: usize, interest: Interest) -> io::Result<()> {
        let interest = match interest {
            Interest::Readable => mio::Interest::READABLE,
            Interest::ReadableAndWritable => mio::Interest::READABLE | mio::Interest::WRITABLE,
        };
        let mut source = SourceFd(&fd.as_raw_fd());
        self.0.register(&mut source, mio::Token(token), interest)
    }

    fn deregister(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.0.deregister(&mut SourceFd(&fd.as_raw_fd()))
    }
}

/// Returns the [`Poller`] that attaches a device to `poll`.
pub(crate) fn poller(poll: &mio::Poll, first_token: usize) -> Poller {
    Poller {
        readiness: Box::new(Registry(poll.registry().try_clone().unwrap())),
        first_token,
    }
}
