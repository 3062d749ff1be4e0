//! The shared receive queues of a device, and the binding of a queue pair to one. The documentation of
//! `shared` describes their use.

use rdma::{QpId, SharedReceiveQueue, SharedReceivesId};

/// Maximum number of receives in a shared receive queue.
pub(super) const MAX_SHARED_WR: usize = 1 << 16;

/// The shared receive queues of a device: a handful, so that a search costs less than a hash. Every message that
/// arrives looks for its queue several times.
#[derive(Default)]
pub(super) struct SharedQueues(Vec<(SharedReceivesId, SharedReceiveQueue)>);

impl SharedQueues {
    #[inline]
    pub(super) fn get(&self, id: SharedReceivesId) -> Option<&SharedReceiveQueue> {
        let mut queues = self.0.iter();
        queues.find_map(|(known, queue)| (*known == id).then_some(queue))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SharedReceivesId) -> Option<&mut SharedReceiveQueue> {
        let mut queues = self.0.iter_mut();
        queues.find_map(|(known, queue)| (*known == id).then_some(queue))
    }

    /// Adds a queue with an identifier that no other has.
    pub(super) fn insert(&mut self, id: SharedReceivesId, queue: SharedReceiveQueue) {
        self.0.push((id, queue));
    }

    pub(super) fn remove(&mut self, id: SharedReceivesId) {
        self.0.retain(|(known, _)| *known != id);
    }

    /// Returns a queue pair whose message waits for a receive that is there now.
    #[inline]
    pub(super) fn next(&self) -> Option<QpId> {
        self.0.iter().find_map(|(_, queue)| queue.next())
    }

    /// Returns the number of receives that are posted to all queues.
    pub(super) fn posted(&self) -> usize {
        self.0.iter().map(|(_, queue)| queue.len()).sum()
    }
}

/// The binding of a queue pair to its shared receive queue.
pub(super) struct Binding {
    pub(super) queue: SharedReceivesId,
    pub(super) qp: QpId,
    /// Length of the first buffer of every receive if each has several, as far as that is known.
    pub(super) head: Option<usize>,
    /// Whether a message waits for a receive.
    pub(super) waits: bool,
}
