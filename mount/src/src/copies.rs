//! The count of file data that a mount copies in user space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes of file data that a mount copies in user space, without those that its transport copies.
/// Clones share one count.
#[derive(Clone, Debug, Default)]
pub struct Copies(Arc<AtomicU64>);

impl Copies {
    /// Returns the number of bytes of file data that the mount has copied.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
