//! What can be chosen about a verbs device.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use rdma_core_sys::LoadError;

/// How memory is offered to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Registration {
    /// A memory window of type 2 for each region, bound to the connection's queue pair: exact
    /// bounds, one right, no other connection can use it, no system call, and the peer's Send With
    /// Invalidate can end it.
    Windows,
    /// A memory registration for each region, in a protection domain of the connection's own: exact
    /// bounds, one right, and no other connection can use it. Registering and invalidating are
    /// system calls, and on most devices the peer cannot invalidate it.
    PerCall,
    /// A memory registration for each piece of memory that was ever offered, kept for the next time
    /// that it is. **Not safe**: as long as the connection lives, its peer can go on reading and
    /// writing what was once offered to it, whatever the memory is used for by then. For comparison
    /// among machines that trust each other.
    PersistentUnsafe,
}

impl Registration {
    /// All of them, best first.
    pub const ALL: [Self; 3] = [Self::Windows, Self::PerCall, Self::PersistentUnsafe];

    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::PerCall => "per-call",
            Self::PersistentUnsafe => "persistent-unsafe",
        }
    }
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not a name of a [`Registration`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no registration strategy {0:?}: windows, per-call or persistent-unsafe")]
pub struct UnknownRegistration(String);

impl FromStr for Registration {
    type Err = UnknownRegistration;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == name)
            .ok_or_else(|| UnknownRegistration(name.to_owned()))
    }
}

/// How a [`Verbs`](super::Verbs) device is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device's name, as `rdma link` shows it: `rxe0`, `mlx5_0`. Without it the device that has
    /// `address`, or else the first with an active port.
    pub device: Option<String>,
    /// Address of this host to connect from. Chooses the device, too, when it is not named.
    pub address: Option<IpAddr>,
    /// How memory is offered to peers; the best that the device can do when nothing is said. Never
    /// [`Registration::PersistentUnsafe`] unless it is said.
    pub registration: Option<Registration>,
    /// Bytes of memory that the device's pool hands out at a time. What is in use is locked.
    pub memory: usize,
    /// Longest message to hand to the device in the request itself, bytes; the device may allow
    /// less. 0 for none.
    pub inline_data: u32,
    /// Connections at a time, those being set up included.
    pub max_connections: usize,
    /// Connection requests that the system keeps while nobody looks.
    pub backlog: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: None,
            address: None,
            registration: None,
            memory: 1 << 30,
            inline_data: 128,
            max_connections: 1024,
            backlog: 128,
        }
    }
}

/// Why no verbs device can be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The libraries are not there.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The connection manager cannot be used.
    #[error(
        "the RDMA connection manager cannot be used: {0} (is module rdma_ucm loaded, and \
         /dev/infiniband/rdma_cm yours to open?)"
    )]
    Cm(#[source] io::Error),
    /// There is none.
    #[error("no verbs device{}", .0)]
    NoDevice(String),
    /// The device cannot do what was asked.
    #[error("device {device} cannot do {what}")]
    Unsupported {
        /// Its name.
        device: String,
        /// What it cannot do.
        what: String,
    },
    /// Memory cannot be registered.
    #[error("device {device} cannot register {len} bytes of memory: {source}{hint}")]
    Memory {
        /// Its name.
        device: String,
        /// Bytes.
        len: usize,
        /// What the system said.
        source: io::Error,
        /// What may help.
        hint: String,
    },
    /// The system refused something else.
    #[error("device {device}: {what}: {source}")]
    System {
        /// Its name.
        device: String,
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}
