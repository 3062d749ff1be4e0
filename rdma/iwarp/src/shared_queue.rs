//! The shared receive queues of a device, and the binding of a queue pair to one. The documentation of
//! `shared` describes their use.

use rdma::{IdMap, QpId, SharedReceiveQueue, SharedReceivesId};

/// Maximum number of receives in a shared receive queue.
pub(super) const MAX_SHARED_WR: usize = 1 << 16;

/// The shared receive queues of a device.
pub(super) type SharedQueues = IdMap<SharedReceivesId, SharedReceiveQueue>;

/// The binding of a queue pair to its shared receive queue.
pub(super) struct Binding {
    pub(super) queue: SharedReceivesId,
    pub(super) qp: QpId,
    /// Length of the first buffer of every receive if each has several, as far as that is known.
    pub(super) head: Option<usize>,
    /// Whether a message waits for a receive.
    pub(super) waits: bool,
}
