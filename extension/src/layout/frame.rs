//! A receive buffer as the placement arithmetic sees it: the positions and numbers of its segments
//! for placement.

use smallvec::SmallVec;

use super::BufferStructure;
use super::limits::{MAX_SEGMENTS, MAX_SPAN};

/// The place of an item in the receive buffers of a message: an offset and the segments from there on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Offset in the first segment, in bytes.
    pub offset: u32,
    /// Numbers of the segments, in the order in which their contents are joined.
    pub segments: SmallVec<[u32; 2]>,
}

/// A segment of a receive buffer into which bulk data may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Offset in the buffer, in bytes.
    pub at: u32,
    /// Length in bytes.
    pub len: u32,
    /// An item that follows another in this target begins at a multiple of this offset, in bytes: the
    /// alignment that the structure announces if that is a multiple of 4, the unit of XDR, and 4
    /// otherwise.
    pub align: u32,
}

impl Target {
    /// Returns the offset in the buffer at which the target ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.at) + u64::from(self.len)
    }
}

/// The reason why a well-formed buffer structure cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The announced length is not the sum of the segment lengths.
    #[error("buffer of {said} bytes with segments of {sum}")]
    Length {
        /// The announced length in bytes.
        said: u32,
        /// The sum of the segment lengths in bytes.
        sum: u64,
    },
    /// The structure has more than [`MAX_SEGMENTS`] segments.
    #[error("buffer of {0} segments")]
    Segments(u64),
}

/// The segments of a receive buffer into which bulk data may be placed (targets), and the maximum
/// length of a message in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    len: u64,
    targets: SmallVec<[Target; 2]>,
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        self.within(self.len)
    }
}

/// Returns the unit in bytes of the offsets at which items begin in a segment with this alignment.
/// Offsets are multiples of 4.
fn offset_unit(align: u32) -> u32 {
    match align > 0 && align.is_multiple_of(4) {
        true => align,
        false => 4,
    }
}

impl Frame {
    /// Creates the frame of a buffer with this structure.
    ///
    /// # Errors
    /// [`Unusable`], with the reason. The buffer must then be treated as one without targets.
    pub fn new(structure: &BufferStructure) -> Result<Self, Unusable> {
        let (said, sum) = (structure.len(), structure.sum());
        if u64::from(said) != sum {
            return Err(Unusable::Length { said, sum });
        }
        let counts = structure.groups().iter();
        let segments = counts.map(|group| u64::from(group.count)).sum();
        if segments > MAX_SEGMENTS {
            return Err(Unusable::Segments(segments));
        }
        let mut targets = SmallVec::new();
        let mut at: u32 = 0;
        for group in structure.groups() {
            for _ in 0..group.count {
                if group.segment.is_target() {
                    targets.push(Target {
                        at,
                        len: group.segment.length,
                        align: offset_unit(group.segment.align),
                    });
                }
                // The sum fits 32 bits, so each part of it does.
                at += group.segment.length;
            }
        }
        let len = u64::from(said);
        Ok(Self { len, targets })
    }

    /// Creates the frame of a buffer of `len` bytes without targets.
    #[must_use]
    pub fn plain(len: u64) -> Self {
        Self {
            len,
            targets: SmallVec::new(),
        }
    }

    /// Returns the same frame for messages of up to `len` bytes. Targets beyond that are not used
    /// but keep their numbers.
    #[must_use]
    pub fn within(&self, len: u64) -> Self {
        Self {
            len: self.len.min(len),
            // Every plan of a message has a frame of its own. This copies the targets as a whole.
            targets: SmallVec::from_slice(&self.targets),
        }
    }

    /// Returns the same frame without the targets that a message cannot use. The others are numbered
    /// as if those did not exist.
    #[must_use]
    pub fn with_usable_targets(&self) -> Self {
        let usable = |target: &&Target| self.usable(target) > 0;
        Self {
            len: self.len,
            targets: self.targets.iter().filter(usable).copied().collect(),
        }
    }

    /// Returns the maximum length of a message in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the maximum length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the targets, in order.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Returns the number of bytes that a message can place into `target`: its length, or zero if
    /// the message may not reach its end. A target cannot be used in part, because an item that
    /// continues in another target must fill this one: the receiver knows the segment's length but
    /// not the sender's limit.
    #[must_use]
    pub fn usable(&self, target: &Target) -> u64 {
        match target.end() <= self.len {
            true => u64::from(target.len),
            false => 0,
        }
    }

    /// Returns whether a message can place any data.
    #[must_use]
    pub fn can_place(&self) -> bool {
        self.targets.iter().any(|target| self.usable(target) > 0)
    }

    /// Returns the number, within a message in several transmissions, of target `index` of
    /// transmission `transmission`. All targets of all buffers are counted, used or not. `None` if
    /// the number exceeds 32 bits.
    #[must_use]
    pub fn number(&self, transmission: usize, index: usize) -> Option<u32> {
        let before = transmission.checked_mul(self.targets.len())?;
        u32::try_from(before.checked_add(index)?).ok()
    }

    /// Returns the place of an item of `len` bytes that begins in target `number`, at this offset, and
    /// continues in the next targets. `None` if there is no such place.
    #[must_use]
    pub fn spot(&self, mut number: u32, offset: u32, len: u32) -> Option<Spot> {
        let mut segments = SmallVec::new();
        let (mut left, mut from) = (u64::from(len), u64::from(offset));
        while left > 0 {
            if segments.len() == MAX_SPAN {
                return None;
            }
            let (_, target) = self.find(number)?;
            let room = u64::from(target.len).checked_sub(from);
            let room = room.filter(|&room| room > 0)?;
            segments.push(number);
            left = left.saturating_sub(room);
            from = 0;
            number = number.checked_add(1)?;
        }
        Some(Spot { offset, segments })
    }

    /// Returns the transmission and the target with this number. `None` if the buffer has no
    /// targets.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<(usize, Target)> {
        let per_buffer = self.targets.len();
        let number = number as usize;
        let target = self.targets.get(number.checked_rem(per_buffer)?)?;
        Some((number / per_buffer, *target))
    }
}
