//! A receive buffer as the arithmetic sees it: where the segments for placement are, and which
//! numbers they have (section 6.2).

use smallvec::SmallVec;

use crate::BufferStructure;
use crate::limits::MAX_SEGMENTS;

/// A segment that bulk data may be placed into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it begins in the buffer, bytes.
    pub at: u32,
    /// Bytes.
    pub len: u32,
    /// What its address is a multiple of; 4 at least, as XDR has units of four.
    pub align: u32,
}

impl Target {
    /// Where it ends in the buffer.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.at) + u64::from(self.len)
    }
}

/// Why a structure that has the form of one cannot be gone by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// `xmrbuf_length` is not the sum of the segments.
    #[error("buffer of {said} bytes with segments of {sum}")]
    Length {
        /// What it says.
        said: u32,
        /// What its segments add up to.
        sum: u64,
    },
    /// More segments than any receive has.
    #[error("buffer of {0} segments")]
    Segments(u64),
}

/// Where the targets of one receive buffer are, and how much of it a message may fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    len: u64,
    targets: SmallVec<[Target; 2]>,
}

impl Frame {
    /// Of a buffer with this structure.
    ///
    /// # Errors
    /// [`Unusable`]: the buffer has to be taken for one without targets.
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
                        align: group.segment.align.max(4),
                    });
                }
                // The sum fits, so every part of it does.
                at += group.segment.length;
            }
        }
        let len = u64::from(said);
        Ok(Self { len, targets })
    }

    /// Of a buffer without targets.
    #[must_use]
    pub fn plain(len: u64) -> Self {
        Self {
            len,
            targets: SmallVec::new(),
        }
    }

    /// The same for messages of up to `len` bytes: what is behind is not used, and keeps its number.
    #[must_use]
    pub fn within(&self, len: u64) -> Self {
        Self {
            len: self.len.min(len),
            targets: self.targets.clone(),
        }
    }

    /// Longest message, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no message fits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its targets, in order.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Bytes that a message can place into this target: all, or none if it is not to reach the
    /// target's end. Data that goes on in another target fills the one before it, as its receiver
    /// knows the segment's length and not the sender's limit.
    #[must_use]
    pub fn usable(&self, target: &Target) -> u64 {
        match target.end() <= self.len {
            true => u64::from(target.len),
            false => 0,
        }
    }

    /// Whether a message can place anything.
    #[must_use]
    pub fn can_place(&self) -> bool {
        self.targets.iter().any(|target| self.usable(target) > 0)
    }

    /// The number, in a group, of target `index` of transmission `transmission` (section 6.2: all
    /// targets of all buffers of the group count, used or not). Nothing if there is no such number.
    #[must_use]
    pub fn number(&self, transmission: usize, index: usize) -> Option<u32> {
        let before = transmission.checked_mul(self.targets.len())?;
        u32::try_from(before.checked_add(index)?).ok()
    }

    /// The transmission and the target that a number means; nothing in a buffer without targets.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<(usize, Target)> {
        let per_buffer = self.targets.len();
        let number = number as usize;
        let target = self.targets.get(number.checked_rem(per_buffer)?)?;
        Some((number / per_buffer, *target))
    }
}
