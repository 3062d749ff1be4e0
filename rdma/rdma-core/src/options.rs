//! The options of a device.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use rdma_core_sys::LoadError;
use rpcrdma_host::LoopSeat;

/// The strategy for offering memory to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Registration {
    /// A memory window of type 2 for each region, bound to the connection's queue pair. The bounds
    /// are exact, there is one right, no other connection can use it, no system call is needed, and
    /// the peer's Send With Invalidate can invalidate it.
    Windows,
    /// A memory registration for each region, in a protection domain of the connection's own. The
    /// bounds are exact, there is one right, and no other connection can use it. Registration and
    /// invalidation are system calls, and on most devices the peer cannot invalidate it.
    PerCall,
    /// A memory registration for each piece of memory that was ever offered, kept for the next time
    /// it is offered. **Not safe**: while the connection lives, its peer can continue to read and
    /// write all memory that was once offered to it, whatever the memory is used for by then. For
    /// comparisons among machines that trust each other.
    PersistentUnsafe,
}

impl Registration {
    /// All strategies, the best first.
    pub const ALL: [Self; 3] = [Self::Windows, Self::PerCall, Self::PersistentUnsafe];

    /// Returns the name of the strategy in options and reports.
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

/// A string is not the name of a [`Registration`].
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

/// The options of a [`RdmaCore`](super::RdmaCore) device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the device, as `rdma link` shows it: `rxe0`, `mlx5_0`. Without a name, the device
    /// that has `address` is used, or else the first whose port 1 is active.
    pub device: Option<String>,
    /// Address of this host to connect from. Also selects the device if it is not named.
    pub address: Option<IpAddr>,
    /// Strategy for offering memory to peers. Without one, the best that the device supports is
    /// used, but never [`Registration::PersistentUnsafe`].
    pub registration: Option<Registration>,
    /// Maximum number of bytes of the device's pool in use at a time. Memory stays locked after use until it
    /// would exceed this number ([`rdma::Pool::give_back`] unlocks it as well). Small blocks come from arenas
    /// of 2 MiB, each with blocks of one size, and an arena of which a block is in use stays locked as a whole.
    /// So more than this number can be locked.
    pub memory: usize,
    /// Maximum length in bytes of a message to put inline into the work request. The device may
    /// allow less; 0 for none.
    pub inline_data: u32,
    /// Maximum number of connections at a time, including those being established. With a `seat`, a
    /// connection request is also rejected when all loops of the group together have accepted this
    /// many connections, over all transports.
    pub max_connections: usize,
    /// Maximum number of pending connection requests in the system's queue.
    pub backlog: u16,
    /// The seat of the device's loop in its server's group ([`LoopSeat::all`]). The first device of a
    /// group that listens on an address creates the listener, the others join it, and each connection
    /// goes to the loop with the fewest. Where the listener was created, closing it or dropping the
    /// device ends it for all. `None`: the device has listeners of its own.
    pub seat: Option<LoopSeat>,
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
            backlog: 1024,
            seat: None,
        }
    }
}

/// The reason why no device could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The libraries cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The connection manager cannot be used.
    #[error(
        "the RDMA connection manager cannot be used: {0} (is module rdma_ucm loaded, and \
         /dev/infiniband/rdma_cm yours to open?)"
    )]
    Cm(#[source] io::Error),
    /// There is no matching device.
    #[error("no verbs device{}", .0)]
    NoDevice(String),
    /// The device does not support a requested option.
    #[error("device {device} does not support {what}")]
    Unsupported {
        /// Name of the device.
        device: String,
        /// The unsupported option.
        what: String,
    },
    /// Memory cannot be registered.
    #[error("device {device} cannot register {len} bytes of memory: {source}{hint}")]
    Memory {
        /// Name of the device.
        device: String,
        /// Number of bytes.
        len: usize,
        /// The error of the system.
        source: io::Error,
        /// A hint for the user.
        hint: String,
    },
    /// Another operation failed.
    #[error("device {device}: {what}: {source}")]
    System {
        /// Name of the device.
        device: String,
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}
