//! How a receive buffer is made up (section 7.2).

use std::fmt;

use bytes::{BufMut, BytesMut};
use rpcrdma_v2::{Malformed, Reader};
use smallvec::SmallVec;

use crate::limits::MAX_GROUPS;

/// Alignment of segments that [`BufferStructure::with_placement`] has, bytes: a page, which is what
/// file systems want.
pub const PAGE: u32 = 4096;

bitflags::bitflags! {
    /// `xmrseg_flags`. Bits without a name are kept and mean nothing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SegmentFlags: u32 {
        /// XMRSFLAG_DDP: bulk data may be placed into the segment.
        const DDP = 0x01;
        const _ = !0;
    }
}

/// `xmrbs_seg`: one contiguous piece of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSegment {
    /// Bytes.
    pub length: u32,
    /// Its address is a multiple of this. 0 and 1 promise nothing.
    pub align: u32,
    /// What it is good for.
    pub flags: SegmentFlags,
}

/// `xmrbs_group`: segments of one kind, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentGroup {
    /// How many.
    pub count: u32,
    /// What each is like.
    pub segment: BufferSegment,
}

/// `xmrbs_buf`: a whole receive buffer. Any value that has the form; whether it makes sense,
/// [`crate::Frame::new`] finds out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferStructure {
    length: u32,
    groups: SmallVec<[SegmentGroup; 2]>,
}

impl BufferStructure {
    /// From its groups; its length is their sum, cut to what the field can hold. A structure of more
    /// than [`MAX_GROUPS`] groups is not understood by the peer.
    #[must_use]
    pub fn new(groups: impl IntoIterator<Item = SegmentGroup>) -> Self {
        let groups: SmallVec<[SegmentGroup; 2]> = groups.into_iter().collect();
        let len = groups.iter().map(group_len).fold(0, u64::saturating_add);
        let length = u32::try_from(len).unwrap_or(u32::MAX);
        Self { length, groups }
    }

    /// With a length of its own, which may be wrong: as a peer may have it.
    #[must_use]
    pub fn with_length(length: u32, groups: impl IntoIterator<Item = SegmentGroup>) -> Self {
        let groups = groups.into_iter().collect();
        Self { length, groups }
    }

    /// One segment, not for placement: what is assumed of who says nothing (section 8.3).
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

    /// A segment of `head` bytes for headers and payload, then `count` of `length` bytes each for
    /// bulk data, on pages.
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

    /// `xmrbuf_length`: bytes of the buffer. The document does not say what it counts; here, as
    /// section 8.3 adds segments up, all of them.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its groups.
    #[must_use]
    pub fn groups(&self) -> &[SegmentGroup] {
        &self.groups
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // At most 64 groups of under 2^64 bytes each.
        let lens = self.groups.iter().map(group_len);
        lens.fold(0, u64::saturating_add)
    }

    /// Whether any segment is for placement.
    #[must_use]
    pub fn has_targets(&self) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.count > 0 && group.segment.is_target())
    }

    /// Appends it as XDR.
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

    /// Reads it.
    ///
    /// # Errors
    /// It is not what its definition says.
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
    /// Whether bulk data may be placed into it.
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
