//! The structure of receives, and how many of them there are beyond the credits.

use std::sync::Arc;

use rdma::{ALIGNMENT, Pool};

/// Receives posted beyond the credits for messages that use no credit: errors, and operations of
/// extensions. In the working group's version 2, all messages use credits. There, one of these
/// receives is for a grant (version-two-07, section 4.2.1.1), and one for a surplus message of a
/// peer that follows the rule of section 4.2.1 as printed. Two are needed because at least
/// [`rpcrdma_v2_wg::limits::MIN_CREDITS`] are granted even if fewer are configured.
pub const EXTRA_RECEIVES: u32 = 4;

/// The maximum number of consumed receives that a driver may leave unposted until it has handled
/// the messages that arrived in them.
pub const REPOST_LATER: u32 = EXTRA_RECEIVES / 2;

/// All receives posted beyond the credits: [`EXTRA_RECEIVES`], and [`REPOST_LATER`] more in place
/// of consumed ones that are not yet reposted.
pub const BEYOND_CREDITS: u32 = EXTRA_RECEIVES + REPOST_LATER;

/// The least length of the first segment, bytes: the fixed words of every version's header lie in
/// it.
const LEAST_FIRST: u32 = 64;

/// One segment of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveSegment {
    /// The length of the segment, in bytes.
    pub len: u32,
    /// The alignment of its first byte: a power of two, at most a page.
    pub align: u32,
    /// Whether the peer may place bulk data into the segment (rtrext-00, section 7.2:
    /// `XMRSFLAG_DDP`).
    pub ddp: bool,
}

/// The segments that make up every receive, in the order in which a message fills them. Cloning is
/// cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveStructure {
    segments: Arc<[ReceiveSegment]>,
}

/// The reason why segments cannot form a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadStructure {
    /// There is no segment.
    #[error("a receive without segments")]
    Empty,
    /// The first segment is too short for a message's fixed words.
    #[error("a receive's first segment of {0} bytes: {LEAST_FIRST} at least are possible")]
    First(u32),
    /// A segment has no bytes.
    #[error("a segment of a receive without bytes")]
    EmptySegment,
    /// An alignment is not a power of two, or more than a page.
    #[error("alignment of {0} bytes: powers of two up to {ALIGNMENT} are possible")]
    Alignment(u32),
}

impl ReceiveStructure {
    /// Returns the structure of one segment of `len` bytes without alignment.
    #[must_use]
    pub fn plain(len: usize) -> Self {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let (align, ddp) = (1, false);
        Self {
            segments: Arc::new([ReceiveSegment { len, align, ddp }]),
        }
    }

    /// Returns the structure of these segments.
    ///
    /// # Errors
    /// [`BadStructure`] says which rule the segments break.
    pub fn new(segments: impl IntoIterator<Item = ReceiveSegment>) -> Result<Self, BadStructure> {
        let segments: Arc<[ReceiveSegment]> = segments.into_iter().collect();
        let first = segments.first().ok_or(BadStructure::Empty)?;
        if first.len < LEAST_FIRST {
            return Err(BadStructure::First(first.len));
        }
        for segment in segments.iter() {
            if segment.len == 0 {
                return Err(BadStructure::EmptySegment);
            }
            if !segment.align.is_power_of_two() || segment.align as usize > ALIGNMENT {
                return Err(BadStructure::Alignment(segment.align));
            }
        }
        Ok(Self { segments })
    }

    /// Returns the segments.
    #[must_use]
    pub fn segments(&self) -> &[ReceiveSegment] {
        &self.segments
    }

    /// Returns the length of the longest message that fits, bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lengths().sum()
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.size()).unwrap_or(u32::MAX)
    }

    /// Returns the number of bytes of pool memory that one receive takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.lengths().map(Pool::block_size).sum()
    }

    /// Returns the lengths of the segments, bytes.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().map(|segment| segment.len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_break_a_rule_are_refused() {
        let new = |segments: &[(u32, u32)]| {
            let segments = segments.iter().map(|&(len, align)| ReceiveSegment {
                len,
                align,
                ddp: false,
            });
            ReceiveStructure::new(segments).unwrap_err()
        };
        assert_eq!(new(&[]), BadStructure::Empty);
        assert_eq!(new(&[(63, 1)]), BadStructure::First(63));
        assert_eq!(new(&[(64, 1), (0, 1)]), BadStructure::EmptySegment);
        for align in [0, 3, 8192, u32::MAX] {
            assert_eq!(new(&[(64, 1), (1, align)]), BadStructure::Alignment(align));
        }
    }
}
