//! The structure of this end's receives.

use std::sync::Arc;

/// Alignment in bytes of the segments that [`super::BufferStructure::with_placement`] creates: a page,
/// which suits file systems.
pub const PAGE: u32 = 4096;

/// The least length of the first segment, bytes: the fixed words of every version's header lie in
/// it.
const LEAST_FIRST: u32 = 64;

/// Length of the first segment of receives with placement, bytes: room for the header, and for the
/// rest of the message around the bulk data in common calls. Anything longer continues in the next
/// segment.
pub const HEAD: u32 = 1024;
/// The default length of the segment that bulk data is placed in, in bytes: 1 MiB takes 16
/// transmissions.
pub const TARGET: u32 = 64 << 10;

/// The lengths of the segments of receives that bulk data is placed in, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placing {
    /// The length of the first segment, for the header and the rest of the message around the data. At
    /// least 64.
    pub head: u32,
    /// The least length of the segment for data. It is longer where messages without placement need
    /// longer receives.
    pub target: u32,
}

impl Default for Placing {
    /// Returns [`HEAD`] and [`TARGET`].
    fn default() -> Self {
        Self {
            head: HEAD,
            target: TARGET,
        }
    }
}

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
    #[error("alignment of {0} bytes: powers of two up to {PAGE} are possible")]
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
            if !segment.align.is_power_of_two() || segment.align > PAGE {
                return Err(BadStructure::Alignment(segment.align));
            }
        }
        Ok(Self { segments })
    }

    /// Returns the structure of receives that hold messages of `plain` bytes and that bulk data can be
    /// placed in: at least [`Placing::target`] bytes of it. Receives of one segment if these lengths
    /// leave no room for data, or if the first segment would be too short for a header.
    #[must_use]
    pub fn placing(plain: u32, Placing { head, target }: Placing) -> Self {
        let target = plain.saturating_sub(head).max(target);
        let segment = |len, align, ddp| ReceiveSegment { len, align, ddp };
        let segments = [segment(head, 1, false), segment(target, PAGE, true)];
        Self::new(segments).unwrap_or_else(|_| Self::plain(plain as usize))
    }

    /// Returns the structure enlarged for messages of `size` bytes. Receives with placement get one more
    /// segment if they are too short; their first segments never change, because the peer has been told
    /// of them.
    #[must_use]
    pub fn resized(&self, size: u32) -> Self {
        let placing = self.segments().iter().any(|segment| segment.ddp);
        if !placing {
            return Self::plain(size as usize);
        }
        let more = u64::from(size).saturating_sub(self.size() as u64);
        let tail = (more > 0).then(|| ReceiveSegment {
            len: u32::try_from(more).unwrap_or(u32::MAX),
            align: 1,
            ddp: false,
        });
        let segments = self.segments().iter().copied().chain(tail);
        Self::new(segments).unwrap_or_else(|_| self.clone())
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

    /// Returns [`ReceiveStructure::size`], or the greatest number of 32 bits if that is less.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no receive is empty")]
    pub fn len(&self) -> u32 {
        u32::try_from(self.size()).unwrap_or(u32::MAX)
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

    #[test]
    fn receives_for_placement_grow_by_a_tail_and_never_lose_a_segment() {
        let receives = ReceiveStructure::placing(4096, Placing::default());
        assert_eq!(receives.size() as u32, HEAD + TARGET);
        assert!(receives.segments()[1].ddp);
        assert_eq!(receives.resized(4096), receives);
        let longer = receives.resized(HEAD + TARGET + 4096);
        assert_eq!(longer.size() as u32, HEAD + TARGET + 4096);
        assert_eq!(longer.segments()[..2], *receives.segments());
        assert!(!longer.segments()[2].ddp);
        let plain = ReceiveStructure::plain(4096);
        assert_eq!(plain.resized(1024), ReceiveStructure::plain(1024));
        let long = ReceiveStructure::placing(256 << 10, Placing::default());
        assert_eq!(long.size(), 256 << 10);
        let no_more = Placing {
            target: 0,
            ..Placing::default()
        };
        for size in [4096, 8192] {
            let receives = ReceiveStructure::placing(size, no_more);
            assert_eq!(receives.size(), size as usize);
        }
        // No segment is empty.
        assert_eq!(
            ReceiveStructure::placing(HEAD, no_more),
            ReceiveStructure::plain(HEAD as usize)
        );
        let (head, target) = (256, 8192);
        let short = ReceiveStructure::placing(4096, Placing { head, target });
        assert_eq!(short.lengths().collect::<Vec<_>>(), [256, 8192]);
    }
}
