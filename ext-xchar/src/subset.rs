//! Subsets of a list of characteristics (section 2.1).

use bytes::{BufMut, BytesMut};
use rpcrdma_v2::{Malformed, Reader};

/// Maximum number of characteristics in one list. The draft sets no limit; seven characteristics
/// have numbers.
pub const MAX_CHARACTERISTICS: usize = 64;

/// Number of bits in a word.
const WORD: usize = 32;
/// Number of words for the longest list.
const WORDS: usize = MAX_CHARACTERISTICS / WORD;

/// `xcharsubset`: a bit for each element of a list of at most [`MAX_CHARACTERISTICS`] elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subset(u64);

// The field has exactly one bit for each element of the longest list.
const _: () = assert!(MAX_CHARACTERISTICS == 64);

impl Subset {
    /// Length in bytes of the words for the longest list.
    pub(crate) const LONGEST: usize = 4 * WORDS;

    /// Creates the subset with these elements. Elements beyond the longest list are left out.
    #[must_use]
    pub fn new(elements: impl IntoIterator<Item = usize>) -> Self {
        let mut subset = Self::default();
        elements.into_iter().for_each(|element| subset.add(element));
        subset
    }

    /// Creates the subset of all elements of a list of length `len`.
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

    /// Returns whether the subset contains `element`.
    #[must_use]
    pub fn contains(&self, element: usize) -> bool {
        element < MAX_CHARACTERISTICS && self.0 & 1 << element != 0
    }

    /// Returns whether the subset is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Returns the intersection with another subset.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the union with another subset.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the encoded length in bytes.
    pub(crate) fn encoded_len(self) -> usize {
        4 + 4 * self.words()
    }

    /// Returns the number of words up to the last nonzero one. Missing words count as zero.
    fn words(self) -> usize {
        (u64::BITS - self.0.leading_zeros()).div_ceil(u32::BITS) as usize
    }

    pub(crate) fn encode_into(self, out: &mut BytesMut) {
        out.put_u32(self.words() as u32);
        for word in 0..self.words() {
            // Element N is bit N mod 32 of word N div 32.
            out.put_u32((self.0 >> (word * WORD)) as u32);
        }
    }

    /// Decodes a subset. Further words of zero are allowed; bits for elements beyond the longest
    /// list are an error.
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
