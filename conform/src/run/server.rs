//! The server under test, and why a case is not passed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::Dial;
use crate::watch::Watcher;

/// The server under test.
#[derive(Clone, Debug)]
pub struct Server {
    /// The only address that is connected to.
    pub address: SocketAddr,
    /// The longest wait for each message.
    pub patience: Duration,
    /// The observer of all connections.
    pub watcher: Option<Watcher>,
    /// The device by which connections are made. `None`: this crate's own octets of iWARP, over TCP.
    pub dial: Option<Arc<dyn Dial>>,
}

/// The reason why a case was not passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The server deviates from the expectation.
    #[error("{0}")]
    Deviation(String),
    /// The server cannot be tested by this case.
    #[error("{0}")]
    NotApplicable(String),
    /// No connection was established.
    #[error("{0}")]
    Unreachable(String),
}

/// A case as it was performed: its result, and the messages for whoever wants to know why.
#[derive(Clone, Debug)]
pub struct Performed {
    /// The result.
    pub result: Result<(), Failed>,
    /// The messages, in order, with the first of their octets.
    pub exchange: Vec<String>,
}
