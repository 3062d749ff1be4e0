//! The part of a file that may be in the kernel's page cache.

use std::ops::Range;

/// The size of a page of the kernel's cache, bytes. A larger page only covers more.
const PAGE: u64 = 4096;

/// The smallest range that contains all parts of a file that may be in the kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hull {
    start: u64,
    end: u64,
}

impl Hull {
    /// Adds the pages of a range that the kernel reads into its cache or writes back from it.
    pub(crate) fn with(self, range: &Range<u64>) -> Self {
        let start = range.start / PAGE * PAGE;
        let end = range.end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        match self.start == self.end {
            true => Self { start, end },
            false => Self {
                start: self.start.min(start),
                end: self.end.max(end),
            },
        }
    }

    pub(crate) fn overlaps(self, range: &Range<u64>) -> bool {
        self.start < range.end && range.start < self.end
    }
}
