//! The result of a run.

use std::fmt;

use rdma::Time;

/// A violation of a check, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The time.
    pub at: Time,
    /// The description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The number of the [`Pairing`](crate::Pairing) of features, if it was one of the sixteen.
    pub pairing: Option<usize>,
    /// The violations, in order.
    pub violations: Vec<Violation>,
    /// The number of events in the fabric.
    pub happenings: u64,
    /// The number of calls that ended, with or without results.
    pub calls: u64,
    /// The number of calls that ended without results.
    pub failures: u64,
    /// The number of faults that happened: connections lost, hosts crashed, registrations refused.
    pub faults: u64,
    /// The number of calls from the server to clients.
    pub callbacks: u64,
    /// The number of calls that waited for memory for their replies, at relays.
    pub waits: u64,
    /// The duration in virtual time.
    pub took: Time,
    /// The log, if it was requested.
    pub log: String,
}
