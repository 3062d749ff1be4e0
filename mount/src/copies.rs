//! The count of bytes that a mount copies in user space: of file data, not of names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of copied bytes. Its clones are the same counter.
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
