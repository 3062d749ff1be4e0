//! What happened on the way from a cause to its effect.

use super::NodeId;

/// Hosts of one fabric, at most.
pub const MAX_NODES: usize = 8;

/// Counts along one chain of causes: from where it was set to nothing to where it is read.
///
/// Every packet and every event carries the path that led to it, and what a host does in answer to
/// an event continues that event's path. So the path of a call is what its own reply had to wait
/// for, whatever else went on meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Times that the network was crossed, in either direction.
    pub traversals: u32,
    /// Times that a sleeping host was woken, by host.
    pub interrupts: [u32; MAX_NODES],
    /// Regions registered, by host.
    pub registrations: [u32; MAX_NODES],
    /// Local invalidations waited for, by host.
    pub invalidations: [u32; MAX_NODES],
}

impl Path {
    /// Round trips, if it ends where it began.
    #[must_use]
    pub fn round_trips(&self) -> f64 {
        f64::from(self.traversals) / 2.0
    }

    pub(super) fn crossed(mut self) -> Self {
        self.traversals += 1;
        self
    }

    pub(super) fn interrupted(mut self, node: NodeId) -> Self {
        self.interrupts[node.0] += 1;
        self
    }

    pub(super) fn invalidated(mut self, node: NodeId) -> Self {
        self.invalidations[node.0] += 1;
        self
    }
}
