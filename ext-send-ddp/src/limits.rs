//! Limits on the contents of a header. The draft sets none; these bound the memory that one message
//! can claim.

/// Maximum number of bulk items in one message, and of directions in one call.
pub const MAX_ITEMS: usize = 16;
/// Maximum number of sets of directions in one call.
pub const MAX_SETS: usize = 16;
