//! The file system's part of a file handle.

use std::fmt;

/// The bytes by which a file system identifies an object as long as the object exists. The server
/// embeds them in a file handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    len: u8,
    /// Zero beyond `len`.
    bytes: [u8; FileId::MAX_LEN],
}

impl FileId {
    /// The maximum length in bytes: what the server's own part leaves of the 64 bytes of a file
    /// handle.
    pub const MAX_LEN: usize = 48;

    /// Creates an id from its bytes. Returns `None` if there are too many.
    #[must_use]
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX_LEN];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self {
            len: from.len() as u8,
            bytes,
        })
    }

    /// Returns the bytes and zeroes after them.
    pub(crate) fn padded(&self) -> &[u8; Self::MAX_LEN] {
        &self.bytes
    }

    /// Returns a number below `parts` for this object, so that objects are spread evenly over as
    /// many locks.
    pub(crate) fn spread(&self, parts: usize) -> usize {
        let mix = |mixed: u64, word: &[u8; 8]| {
            let word = u64::from_le_bytes(*word);
            (mixed.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let (words, _) = self.bytes.as_chunks();
        // The high bits of a product depend on all bits of its factors.
        let mixed = u128::from(words.iter().fold(0, mix));
        ((mixed * parts as u128) >> u64::BITS) as usize
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_bounded_and_kept() {
        assert!(FileId::new(&[1; 49]).is_none());
        assert_eq!(FileId::new(&[1; 48]).unwrap().as_bytes(), [1; 48]);
        assert_ne!(FileId::new(&[0; 3]), FileId::new(&[0; 4]));
    }

    #[test]
    fn ids_that_differ_in_a_number_anywhere_are_spread_evenly() {
        for at in 0..FileId::MAX_LEN - 2 {
            let mut counts = [0_u32; 16];
            for number in 0..1600_u16 {
                let mut bytes = [7; FileId::MAX_LEN];
                bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
                counts[FileId::new(&bytes).unwrap().spread(16)] += 1;
            }
            assert!(
                counts.iter().all(|count| (50..200).contains(count)),
                "{at}: {counts:?}"
            );
        }
    }
}
