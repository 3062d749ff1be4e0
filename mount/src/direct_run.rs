//! The parts of a long write with O_DIRECT.

use std::cell::Cell;

/// Consecutive parts of a write with O_DIRECT: each begins where the one before it ends.
///
/// The kernel sends the parts of a long write at once, but each looks like a write of its own, and
/// they may be handled one after the other. If a part that extends beyond the file size known to
/// the kernel fails, FUSE fails the whole write, and sends a SETATTR that truncates the file to
/// that size. That would cut off data that other clients have appended. So this SETATTR, which ends
/// a run, is ignored.
#[derive(Debug, Default)]
pub(crate) struct DirectRun {
    /// The end of the last part.
    pub(crate) end: Cell<Option<u64>>,
    /// Whether that is beyond the file size that the kernel knows.
    pub(crate) beyond: Cell<bool>,
    /// Whether any part has failed, within that size or beyond it.
    pub(crate) failed: Cell<bool>,
}

impl DirectRun {
    /// Returns whether the kernel truncates the file because a part has failed.
    pub(crate) fn is_undone(&self) -> bool {
        self.failed.get() && self.beyond.get()
    }
}
