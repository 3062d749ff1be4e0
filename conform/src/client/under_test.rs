//! The client under test, as the judge sees it.

use std::net::SocketAddr;

use super::case::Operation;

/// How far a client is, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Connections so far.
    pub connections: usize,
    /// Connections that have not ended.
    pub open: usize,
    /// Whether the operation was performed.
    pub is_complete: bool,
}

/// Something that a client has to do.
pub struct Task<'a> {
    /// The operation.
    pub operation: Operation,
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// What [`Operation::Write`] writes.
    pub content: &'a [u8],
    /// Returns how far the client is.
    pub progress: &'a dyn Fn() -> Progress,
}

/// The end of a client's operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It succeeded. If known, these are the bytes of the file that was read, or a text with the names that were
    /// listed.
    Succeeded(Option<Vec<u8>>),
    /// It failed, and says why.
    Failed(String),
    /// It was killed by a signal, or has crashed in another way.
    Crashed(String),
    /// It did not end in time.
    Late,
    /// Nobody knows: the operation was performed by hand.
    Unknown,
    /// The client cannot perform this operation, and why.
    Unable(String),
}

/// A client under test.
pub trait Client {
    /// Performs an operation, and returns when it has ended. All connections should have ended as well.
    fn perform(&mut self, task: &Task<'_>) -> Ended;
}
