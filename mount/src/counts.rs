//! The counts of the thread of a file system, in cells: nobody else counts there.

use std::cell::Cell;

use rpc_transport::TransportStatistics;

/// Defines the kinds of requests, with their names.
macro_rules! requests {
    ($($kind:ident $name:literal,)*) => {
        /// A kind of request of the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RequestKind {
            $(
                #[doc = $name]
                $kind,
            )*
        }

        impl RequestKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the name in FUSE, in lower case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

requests! {
    Lookup "lookup",
    Forget "forget",
    Getattr "getattr",
    Setattr "setattr",
    Readlink "readlink",
    Mknod "mknod",
    Mkdir "mkdir",
    Unlink "unlink",
    Rmdir "rmdir",
    Symlink "symlink",
    Rename "rename",
    Link "link",
    Open "open",
    Create "create",
    Read "read",
    Write "write",
    Flush "flush",
    Release "release",
    Fsync "fsync",
    Opendir "opendir",
    Readdir "readdir",
    Readdirplus "readdirplus",
    Releasedir "releasedir",
    Statfs "statfs",
    Access "access",
}

const KINDS: usize = RequestKind::ALL.len();

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Count(Cell<u64>);

impl Count {
    pub(crate) fn add(&self, more: usize) {
        self.0.set(self.0.get() + more as u64);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// The counts of the thread of the file system.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: [Count; KINDS],
    pub(crate) names_known: Count,
    pub(crate) names_asked: Count,
    pub(crate) attributes_known: Count,
    pub(crate) attributes_asked: Count,
    pub(crate) read_ahead: Count,
    pub(crate) read_back: Count,
    pub(crate) read_fetched: Count,
    pub(crate) read_direct: Count,
    pub(crate) written: Count,
    pub(crate) written_direct: Count,
    pub(crate) server_read: Count,
    pub(crate) server_written: Count,
    pub(crate) delays: Count,
}

impl Counts {
    pub(crate) fn request(&self, kind: RequestKind) {
        self.requests[kind as usize].add(1);
    }
}

/// Tells what the transport of a mount has counted, on the thread of the file system.
pub(crate) type Observe = Box<dyn Fn() -> TransportStatistics>;
