//! The number of receives beyond the credits, and their memory.

use rdma::Pool;
use rpcrdma_extension::layout::ReceiveStructure;

/// Receives posted beyond the credits for messages that use no credit: errors, and messages of
/// extensions. In the working group's version 2, all messages use credits. There, one of these
/// receives is for a grant (version-two-07, section 4.2.1.1), and one for a surplus message of a
/// peer that follows the rule of section 4.2.1 as printed. Two are needed because at least
/// [`crate::flow::MIN_CREDITS`] are granted even if fewer are configured.
pub const EXTRA_RECEIVES: u32 = 4;

/// The maximum number of consumed receives that a driver may leave unposted until it has handled
/// the messages that arrived in them.
pub const REPOST_LATER: u32 = EXTRA_RECEIVES / 2;

/// All receives posted beyond the credits: [`EXTRA_RECEIVES`], and [`REPOST_LATER`] more in place
/// of consumed ones that are not yet reposted.
pub const BEYOND_CREDITS: u32 = EXTRA_RECEIVES + REPOST_LATER;

/// Returns the number of bytes of pool memory that one receive of this structure takes, rounding by
/// the pool included.
#[must_use]
pub fn receive_memory(structure: &ReceiveStructure) -> usize {
    structure.lengths().map(Pool::block_size).sum()
}
