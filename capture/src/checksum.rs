//! The Internet checksum (RFC 1071), computed piece by piece.

/// The sum of bytes that are added in pieces of any length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    /// Sum of the 16-bit words in network byte order, not folded yet.
    words: u64,
    /// Whether an odd number of bytes was added.
    odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    pub(crate) const ZERO: Self = Self {
        words: 0,
        odd: false,
    };

    /// Adds bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut word = u16::from_be(fold(native_words(bytes)));
        // The bytes of a piece that begins at an odd offset are in the other half of their words
        // (RFC 1071, section 2, part B).
        if self.odd {
            word = word.swap_bytes();
        }
        self.words += u64::from(word);
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Adds another sum, as if its bytes followed at an even offset.
    pub(crate) fn add_sum(&mut self, other: Self) {
        self.words += u64::from(fold(other.words));
    }

    /// Returns the checksum: the complement of the sum.
    pub(crate) fn checksum(self) -> u16 {
        !fold(self.words)
    }
}

/// Adds up 16-bit words, or 32-bit words, whose halves `fold` adds. The words are in native byte
/// order, as the sum does not depend on the order (RFC 1071, section 2, part B). Eight independent
/// sums let the compiler use vector instructions.
fn native_words(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; 8];
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    let mut sum = lanes.iter().map(|lane| u64::from(fold(*lane))).sum::<u64>();
    for word in chunks.remainder().chunks(2) {
        let last = word.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_ne_bytes([word[0], last]));
    }
    sum
}

/// Adds the 16-bit parts of a sum until it has one part.
fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        let mut sum = Sum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.checksum(), !0xddf2);
    }

    #[test]
    fn pieces_of_any_length_come_to_the_same_as_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        // Word by word, as the definition says.
        let plain: u64 = bytes
            .chunks(2)
            .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        for step in [1, 2, 3, 31, 32, 33, 64, 65, 999, 1000] {
            let mut sum = Sum::default();
            bytes.chunks(step).for_each(|piece| sum.add(piece));
            assert_eq!(sum.checksum(), !fold(plain), "{step}");
        }
    }
}
