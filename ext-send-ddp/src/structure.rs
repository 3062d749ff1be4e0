//! The structure of a receive buffer (section 7.2).

use std::fmt;

use bytes::{BufMut, BytesMut};
use rpcrdma_v2::{Malformed, Reader};
use smallvec::SmallVec;

use crate::limits::MAX_GROUPS;

/// Alignment in bytes of the segments that [`BufferStructure::with_placement`] creates: a page,
/// which suits file systems.
pub const PAGE: u32 = 4096;

bitflags::bitflags! {
    /// `xmrseg_flags`. Unnamed bits are kept and have no meaning.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SegmentFlags: u32 {
        /// XMRSFLAG_DDP: bulk data may be placed into the segment.
        const DDP = 0x01;
        const _ = !0;
    }
}

/// `xmrbs_seg`: one contiguous segment of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSegment {
    /// Length in bytes.
    pub length: u32,
    /// The segment's address is a multiple of this. 0 and 1 promise nothing.
    pub align: u32,
    /// Permitted uses of the segment.
    pub flags: SegmentFlags,
}

/// `xmrbs_group`: consecutive segments of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentGroup {
    /// Number of segments.
    pub count: u32,
    /// Properties of each segment.
    pub segment: BufferSegment,
}

/// `xmrbs_buf`: a whole receive buffer. Holds any well-formed value; [`crate::Frame::new`] checks
/// whether it is consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferStructure {
    length: u32,
    groups: SmallVec<[SegmentGroup; 2]>,
}

impl BufferStructure {
    /// Creates a structure from its groups. Its length is their sum, limited to 32 bits. A peer
    /// does not accept a structure of more than [`MAX_GROUPS`] groups.
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

    /// Creates a structure of one segment that is not for placement. It is assumed for a peer that
    /// does not announce its structure (section 8.3).
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

    /// Returns `xmrbuf_length`, the length of the buffer in bytes. The draft does not define what
    /// it counts; here it counts all segments, as section 8.3 adds them up.
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

    /// Appends the structure as XDR.
    pub fn encode_into(&self, out: &mut BytesMut) {
        out.put_u32(self.length);
        out.put_u32(self.groups.len() as u32);
        for SegmentGroup { count, segment } in &self.groups {
            out.put_u32(*count);
            out.put_u32(segment.length);
            out.put_u32(segment.align);
            out.put_u32(segment.flags.bits());
        }
    }

    /// Decodes a structure.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes do not match the XDR definition or there are too many groups.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let length = from.u32()?;
        let count = from.u32()? as usize;
        if count > MAX_GROUPS {
            return Err(Malformed::TooMany("groups of buffer segments"));
        }
        let mut groups = SmallVec::new();
        for _ in 0..count {
            groups.push(SegmentGroup {
                count: from.u32()?,
                segment: BufferSegment {
                    length: from.u32()?,
                    align: from.u32()?,
                    flags: SegmentFlags::from_bits_retain(from.u32()?),
                },
            });
        }
        Ok(Self { length, groups })
    }
}

impl BufferSegment {
    /// Returns whether bulk data may be placed into the segment.
    #[must_use]
    pub fn is_target(&self) -> bool {
        self.flags.contains(SegmentFlags::DDP)
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
