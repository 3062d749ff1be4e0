//! What the file system tells the kernel without a request: that pages or attributes are out of date.

use std::ops::Range;

/// The maximum number of the kernel's requests that no program waits for, such as reading ahead.
pub(crate) const BACKGROUND: u16 = 128;
/// The range of a whole file.
pub(crate) const WHOLE: Range<u64> = 0..u64::MAX;

/// Notifications that the file system sends to the kernel without a request.
pub(crate) trait Kernel {
    /// Begins to make the kernel forget the pages of a range of a file, which differ from what the
    /// server has. Returns the number of this invalidation, which is never 0.
    fn invalidate_pages(&self, ino: u64, range: Range<u64>) -> u64;
    /// Returns whether an invalidation of pages has ended, with or without success; true for 0.
    /// [`crate::core::Core::invalidated`] is woken when one ends.
    fn has_invalidated_pages(&self, number: u64) -> bool;
    /// Begins to make the kernel ask for the attributes of an object again. Returns the number of
    /// this invalidation, which is never 0. Invalidations of pages are numbered separately.
    fn invalidate_attributes(&self, ino: u64) -> u64;
    /// Returns whether an invalidation of attributes has ended, as
    /// [`Kernel::has_invalidated_pages`] does for one of pages.
    fn has_invalidated_attributes(&self, number: u64) -> bool;
}
