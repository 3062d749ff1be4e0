//! Names of connections.

/// The id of a connection of one transport. It is not reused while the transport lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);
