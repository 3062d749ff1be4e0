//! Limits on what a peer may announce of its buffers, and say of an item's place. They bound the memory
//! that one message can claim.

/// Maximum number of groups in a buffer structure.
pub const MAX_GROUPS: usize = 64;
/// Maximum number of segments of one receive buffer, for placement or not, that this end accepts.
/// Devices scatter a receive to about thirty segments.
pub const MAX_SEGMENTS: u64 = 256;
/// Maximum number of buffer segments that one item spans. With segments of a page, that is 4 MiB.
pub const MAX_SPAN: usize = 1024;
