//! The structure of a receive buffer, as an end announces it to its peer (rtrext-00, section 7.2).

use std::fmt;

use smallvec::SmallVec;

use super::{PAGE, ReceiveSegment, ReceiveStructure};

bitflags::bitflags! {
    /// The permitted uses of a segment. Unnamed bits are kept and have no meaning.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SegmentFlags: u32 {
        /// Bulk data may be placed into the segment (XMRSFLAG_DDP).
        const DDP = 0x01;
        const _ = !0;
    }
}

/// One contiguous segment of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSegment {
    /// Length in bytes.
    pub length: u32,
    /// The segment's address is a multiple of this. 0 and 1 promise nothing.
    pub align: u32,
    /// Permitted uses of the segment.
    pub flags: SegmentFlags,
}

/// Consecutive segments of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentGroup {
    /// Number of segments.
    pub count: u32,
    /// Properties of each segment.
    pub segment: BufferSegment,
}

/// A whole receive buffer. Holds any well-formed value that a peer may send; [`Frame::new`](super::Frame::new) checks
/// whether it is consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferStructure {
    length: u32,
    groups: SmallVec<[SegmentGroup; 2]>,
}

impl BufferStructure {
    /// Creates a structure from its groups. Its length is their sum, limited to 32 bits. A peer
    /// does not accept a structure of more than [`MAX_GROUPS`](super::limits::MAX_GROUPS) groups.
    #[must_use]
    pub fn new(groups: impl IntoIterator<Item = SegmentGroup>) -> Self {
        let groups: SmallVec<[SegmentGroup; 2]> = groups.into_iter().collect();
        let len = groups.iter().map(group_len).fold(0, u64::saturating_add);
        let length = u32::try_from(len).unwrap_or(u32::MAX);
        Self { length, groups }
    }

    /// Creates a structure with an explicit length, which may be wrong, as a peer may send it.
    #[must_use]
    pub fn with_length(length: u32, groups: impl IntoIterator<Item = SegmentGroup>) -> Self {
        let groups = groups.into_iter().collect();
        Self { length, groups }
    }

    /// Creates a structure of one segment that is not for placement.
    #[must_use]
    pub fn plain(length: u32) -> Self {
        Self::new([SegmentGroup {
            count: 1,
            segment: BufferSegment {
                length,
                align: 1,
                flags: SegmentFlags::empty(),
            },
        }])
    }

    /// Creates a structure of a segment of `head` bytes for headers and payload, followed by
    /// `count` page-aligned segments of `length` bytes each for bulk data.
    #[must_use]
    pub fn with_placement(head: u32, count: u32, length: u32) -> Self {
        let head = SegmentGroup {
            count: 1,
            segment: BufferSegment {
                length: head,
                align: 1,
                flags: SegmentFlags::empty(),
            },
        };
        let data = SegmentGroup {
            count,
            segment: BufferSegment {
                length,
                align: PAGE,
                flags: SegmentFlags::DDP,
            },
        };
        Self::new([head, data])
    }

    /// Returns the announced length of the buffer in bytes, all segments included.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Returns whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the groups.
    #[must_use]
    pub fn groups(&self) -> &[SegmentGroup] {
        &self.groups
    }

    /// Returns the total length of all segments in bytes.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // At most 64 groups of under 2^64 bytes each.
        let lens = self.groups.iter().map(group_len);
        lens.fold(0, u64::saturating_add)
    }

    /// Returns whether any segment is for placement.
    #[must_use]
    pub fn has_targets(&self) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.count > 0 && group.segment.is_target())
    }
}

impl BufferSegment {
    /// Returns whether bulk data may be placed into the segment.
    #[must_use]
    pub fn is_target(&self) -> bool {
        self.flags.contains(SegmentFlags::DDP)
    }
}

impl From<&ReceiveStructure> for BufferStructure {
    /// Returns the structure of this end's receives in the form that is announced.
    fn from(receives: &ReceiveStructure) -> Self {
        let group = |&ReceiveSegment { len, align, ddp }: &ReceiveSegment| SegmentGroup {
            count: 1,
            segment: BufferSegment {
                length: len,
                align,
                flags: match ddp {
                    true => SegmentFlags::DDP,
                    false => SegmentFlags::empty(),
                },
            },
        };
        Self::new(receives.segments().iter().map(group))
    }
}

fn group_len(group: &SegmentGroup) -> u64 {
    u64::from(group.count) * u64::from(group.segment.length)
}

impl fmt::Display for BufferStructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.length)?;
        for (at, SegmentGroup { count, segment }) in self.groups.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{count} x {}", segment.length)?;
            if segment.is_target() {
                write!(f, " for placement (aligned to {})", segment.align)?;
            }
        }
        Ok(())
    }
}
