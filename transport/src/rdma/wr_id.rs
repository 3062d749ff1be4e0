//! The `wr_id`s of receives.

use rdma::WrId;

/// The first `wr_id` of receives. The `wr_id` of a request in the send queue is its sequence number,
/// which stays far below.
pub(super) const RECEIVES: u64 = 1 << 63;
/// The `wr_id` of every receive of a queue pair's own. The completion returns the buffer, so receives
/// need no distinct identifiers.
pub(super) const RECEIVE: WrId = WrId(u64::MAX);

/// Returns the `wr_id` of a shared receive with this number. The numbers tell those who watch a device
/// which one a message has taken.
pub(super) fn shared_receive(number: u64) -> WrId {
    WrId(RECEIVES | number)
}
