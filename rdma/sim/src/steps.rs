//! A record of steps: what took time on the paths of events, and what led to what.

use std::time::Duration;

use bytes::Bytes;

use super::NodeId;
use rdma::Time;

/// Number of a step in the record of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepId(pub(super) u32);

/// Something that took time at a host or on the network, with the step that it had to wait for.
#[derive(Clone, Debug)]
pub struct Step {
    /// The step before it on its path.
    pub after: Option<StepId>,
    /// The host at which it happened, or which sent.
    pub node: NodeId,
    /// The beginning; of a packet, the time at which its first bit leaves.
    pub start: Time,
    /// The end; of a packet, the time at which its last bit arrives.
    pub end: Time,
    /// The kind.
    pub what: StepKind,
}

/// The kind of a step.
#[derive(Clone, Debug)]
pub enum StepKind {
    /// A Send.
    Send {
        /// The message.
        bytes: Bytes,
        /// Whether it invalidates a handle of its receiver.
        invalidates: bool,
    },
    /// An RDMA Write of this length in bytes.
    Write(usize),
    /// The request of an RDMA Read of this length in bytes.
    ReadRequest(usize),
    /// The response to an RDMA Read, of this length in bytes.
    ReadResponse(usize),
    /// From an interrupt to the turn of the host.
    Interrupt,
    /// The registration of a region.
    Registration {
        /// Its length in bytes.
        len: usize,
        /// Whether it is for RDMA Writes, and not for RDMA Reads.
        for_writes: bool,
    },
    /// The local invalidation of a region of this length in bytes.
    Invalidation(usize),
}

/// Returns which of some steps are on the path that ends with `last`.
#[must_use]
pub fn on_path(steps: &[Step], last: Option<StepId>) -> Vec<bool> {
    let mut on_path = vec![false; steps.len()];
    let mut next = last;
    while let Some(StepId(number)) = next
        && let Some(step) = steps.get(number as usize)
    {
        on_path[number as usize] = true;
        // A step comes after earlier ones only.
        next = step.after.filter(|before| before.0 < number);
    }
    on_path
}

/// Returns the time that is earlier by `duration`.
pub(super) fn before(time: Time, duration: Duration) -> Time {
    Time::ZERO + time.since(Time::ZERO).saturating_sub(duration)
}
