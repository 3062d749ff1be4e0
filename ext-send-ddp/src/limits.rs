//! Limits on what a header may hold. The document sets none; these keep the memory that one message
//! can claim bounded.

/// Most groups in a buffer structure.
pub const MAX_GROUPS: usize = 64;
/// Most segments of one receive buffer that this end reckons with, for placement or not. Devices
/// scatter to some thirty pieces.
pub const MAX_SEGMENTS: u64 = 256;
/// Most bulk items in one message, and most directions in one request.
pub const MAX_ITEMS: usize = 16;
/// Most buffer segments that one item spans: four megabytes in pages.
pub const MAX_SPAN: usize = 1024;
/// Most sets of directions in one request.
pub const MAX_SETS: usize = 16;
