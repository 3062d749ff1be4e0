//! Counts of network traversals and other waits between a cause and its effect.

use super::{NodeId, StepId};

/// Maximum number of hosts in a fabric.
pub const MAX_NODES: usize = 128;
/// Number of hosts that a path counts for apart. Paths are copied with each event, so it is small; all
/// hosts beyond count together with the last one.
pub const COUNTED_NODES: usize = 8;

/// Counts along one chain of causes: from the point where the path was reset to the point where it
/// is read.
///
/// Every packet and every event carries the path that led to it, and a host's reaction to an event
/// continues that event's path. So the path of a call counts what its own reply had to wait for,
/// whatever else happened at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Number of times that the network was crossed, in either direction.
    pub traversals: u32,
    /// Number of times that a sleeping host was woken, by host.
    pub interrupts: [u32; COUNTED_NODES],
    /// Number of regions registered, by host.
    pub registrations: [u32; COUNTED_NODES],
    /// Number of local invalidations waited for, by host.
    pub invalidations: [u32; COUNTED_NODES],
    /// The last step, if steps are recorded ([`Fabric::record_steps`](super::Fabric::record_steps)).
    pub last: Option<StepId>,
}

impl Path {
    /// Returns the number of round trips of a path that ends at the host where it began.
    #[must_use]
    pub fn round_trips(&self) -> f64 {
        f64::from(self.traversals) / 2.0
    }

    pub(super) fn crossed(mut self) -> Self {
        self.traversals += 1;
        self
    }

    pub(super) fn interrupted(mut self, node: NodeId) -> Self {
        self.interrupts[place(node)] += 1;
        self
    }

    pub(super) fn invalidated(mut self, node: NodeId) -> Self {
        self.invalidations[place(node)] += 1;
        self
    }

    pub(super) fn count_registration(&mut self, node: NodeId) {
        self.registrations[place(node)] += 1;
    }
}

/// Returns the place of a host in the counts.
fn place(node: NodeId) -> usize {
    node.0.min(COUNTED_NODES - 1)
}
