//! The client under test, as the judge sees it.

use std::net::SocketAddr;

use super::case::Operation;
use crate::dialect::Dialect;

/// Progress of a client, as the server sees it.
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
    /// The version that the server speaks.
    pub dialect: Dialect,
    /// The operation.
    pub operation: Operation,
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// Whether the server ends a connection itself, so that a client may wait before it comes back.
    pub closes: bool,
    /// The content that [`Operation::Write`] writes.
    pub content: &'a [u8],
    /// Returns how far the client is.
    pub progress: &'a dyn Fn() -> Progress,
}

/// The end of a client's operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Success, with the bytes of the file that was read, or a text with the names that were listed, if known.
    Succeeded(Option<Vec<u8>>),
    /// Failure, with the reason.
    Failed(String),
    /// Crash, such as a signal, with a description.
    Crashed(String),
    /// Time-out.
    Late,
    /// Unknown end: the operation was performed by hand, or interrupted.
    Unknown,
    /// Inability to perform this operation, with the reason.
    Unable(String),
}

/// A client under test.
pub trait Client {
    /// Returns whether the client is told the version that it has to speak when it performs this operation. If not, its
    /// first message shows the version. Clients whose operations are commands of their own may be told in some of them
    /// alone.
    fn is_told(&self, operation: Operation) -> bool;

    /// Performs an operation, and returns when it has ended. All connections should have ended as well.
    fn perform(&mut self, task: &Task<'_>) -> Ended;
}
