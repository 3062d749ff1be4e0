//! Which elements of a list of characteristics (section 2.1).

use bytes::{BufMut, BytesMut};
use rpcrdma_v2::{Malformed, Reader};

use crate::MAX_CHARACTERISTICS;

/// Bits in a word.
const WORD: usize = 32;
/// Words that the longest list needs.
const WORDS: usize = MAX_CHARACTERISTICS / WORD;

/// `xcharsubset`: a bit for each element of a list, which has no more than
/// [`MAX_CHARACTERISTICS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subset(u64);

// The bits of the longest list are those of the field.
const _: () = assert!(MAX_CHARACTERISTICS == 64);

impl Subset {
    /// Bytes of the words of the longest.
    pub(crate) const LONGEST: usize = 4 * WORDS;

    /// The subset with these elements. Those that no list can have are left out.
    #[must_use]
    pub fn new(elements: impl IntoIterator<Item = usize>) -> Self {
        let mut subset = Self::default();
        elements.into_iter().for_each(|element| subset.add(element));
        subset
    }

    /// All elements of a list of `len`.
    #[must_use]
    pub fn all(len: usize) -> Self {
        Self::new(0..len.min(MAX_CHARACTERISTICS))
    }

    /// Adds an element.
    pub fn add(&mut self, element: usize) {
        if element < MAX_CHARACTERISTICS {
            self.0 |= 1 << element;
        }
    }

    /// Whether it has this element.
    #[must_use]
    pub fn contains(&self, element: usize) -> bool {
        element < MAX_CHARACTERISTICS && self.0 & 1 << element != 0
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// What it has in common with another.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Both together.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Bytes of its XDR.
    pub(crate) fn encoded_len(self) -> usize {
        4 + 4 * self.words()
    }

    /// Words up to the last one that is not zero: those beyond are taken for zero.
    fn words(self) -> usize {
        (u64::BITS - self.0.leading_zeros()).div_ceil(u32::BITS) as usize
    }

    pub(crate) fn encode_into(self, out: &mut BytesMut) {
        out.put_u32(self.words() as u32);
        for word in 0..self.words() {
            // Bit N mod 32 of word N div 32.
            out.put_u32((self.0 >> (word * WORD)) as u32);
        }
    }

    /// Words that are zero may follow; bits for elements that no list has are an error.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = from.u32()? as usize;
        if from.left() / 4 < count {
            return Err(Malformed::Truncated);
        }
        let mut bits = 0;
        for word in 0..count {
            let value = u64::from(from.u32()?);
            match word < WORDS {
                true => bits |= value << (word * WORD),
                false if value == 0 => {}
                false => return Err(Malformed::TooMany("characteristics in a subset")),
            }
        }
        Ok(Self(bits))
    }
}
