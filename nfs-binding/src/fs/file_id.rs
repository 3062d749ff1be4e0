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
}
