//! The receiver's arithmetic: it finds the transmission and offset of an item (rtrext-00, sections
//! 6.2 and 7.3).

use smallvec::SmallVec;

use super::limits::MAX_SPAN;
use super::{Frame, Spot};

/// A range of bytes in one buffer segment, which belongs to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Index of the transmission in the group, from 0.
    pub transmission: usize,
    /// Offset of the first byte in the transmission, header included.
    pub at: u64,
    /// Number of bytes.
    pub len: u64,
    /// Number of the segment.
    pub number: u32,
}

impl Place {
    /// Returns the offset in the transmission at which the bytes end.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.at + self.len
    }
}

/// An invalid description of an item's place: the value, and the range of valid values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPlacement {
    /// The number of a segment, or the count of numbers if that is wrong.
    #[error("buffer segment {value}, valid are {min} to {max}")]
    Segment {
        /// The value received.
        value: u32,
        /// The smallest valid value.
        min: u32,
        /// The largest valid value.
        max: u32,
    },
    /// An offset. If it is within the range, it is not a multiple of four.
    #[error("offset {value}, valid are {min} to {max}")]
    Offset {
        /// The value received.
        value: u32,
        /// The smallest valid value.
        min: u32,
        /// The largest valid value.
        max: u32,
    },
}

/// Finds an item of `length` bytes in a group of `count` transmissions into buffers like `frame`.
/// Does not check that the transmissions are long enough to contain the bytes.
///
/// # Errors
/// [`BadPlacement`] if a segment number, the count of numbers or the offset is invalid.
pub fn locate(
    frame: &Frame,
    count: u32,
    spot: &Spot,
    length: u32,
) -> Result<SmallVec<[Place; 2]>, BadPlacement> {
    let segments = u64::from(count) * frame.targets().len() as u64;
    let max = u32::try_from(segments.saturating_sub(1)).unwrap_or(u32::MAX);
    let bad_segment = |value| {
        let min = 0;
        BadPlacement::Segment { value, min, max }
    };
    // A wrong count of numbers is reported as a value with only one valid value.
    let listed = spot.segments.len() as u32;
    let mut places = SmallVec::new();
    let mut left = length;
    for &number in &spot.segments {
        let found = frame.find(number);
        let found = found.filter(|_| u64::from(number) < segments);
        let (transmission, target) = found.ok_or_else(|| bad_segment(number))?;
        if left == 0 {
            let used = places.len() as u32;
            return Err(BadPlacement::Segment {
                value: listed,
                min: used,
                max: used,
            });
        }
        let offset = match places.is_empty() {
            true => check_offset(spot.offset, target.len)?,
            false => 0,
        };
        let len = left.min(target.len - offset);
        places.push(Place {
            transmission,
            at: u64::from(target.at) + u64::from(offset),
            len: u64::from(len),
            number,
        });
        left -= len;
    }
    if left > 0 {
        return Err(BadPlacement::Segment {
            value: listed,
            min: listed + 1,
            max: MAX_SPAN as u32,
        });
    }
    match overlapping_segment(&places) {
        Some(number) => Err(bad_segment(number)),
        None => Ok(places),
    }
}

fn check_offset(value: u32, len: u32) -> Result<u32, BadPlacement> {
    let max = len.saturating_sub(1);
    match value.is_multiple_of(4) && value < len {
        true => Ok(value),
        false => Err(BadPlacement::Offset { value, min: 0, max }),
    }
}

/// Returns the number of a segment in which two of these places, of any items, overlap.
#[must_use]
pub fn overlapping_segment(places: &[Place]) -> Option<u32> {
    if places.len() < 2 {
        return None;
    }
    let mut sorted: SmallVec<[Place; 2]> = places.iter().copied().collect();
    sorted.sort_unstable();
    let mut pairs = sorted.windows(2);
    let found = pairs
        .find(|pair| pair[0].transmission == pair[1].transmission && pair[0].end() > pair[1].at);
    found.map(|pair| pair[1].number)
}
