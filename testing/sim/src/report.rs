//! What a run found.

use std::fmt;

use rdma::Time;

/// Something that must not happen, and when it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// What a run did and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Number of the [`Pairing`](crate::Pairing) of features that it ran, if it was one of the sixteen.
    pub pairing: Option<usize>,
    /// What must not have happened, in order.
    pub violations: Vec<Violation>,
    /// Things that happened in the fabric.
    pub happenings: u64,
    /// Calls that ended, with results or without.
    pub calls: u64,
    /// Of those, without.
    pub failures: u64,
    /// Connections lost, hosts crashed, registrations refused: faults that took place.
    pub faults: u64,
    /// Calls from the server to clients.
    pub callbacks: u64,
    /// Virtual time it took.
    pub took: Time,
    /// The log, if one was asked for.
    pub log: String,
}
