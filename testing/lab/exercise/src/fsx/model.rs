//! The model of a file: an array of bytes.

/// A file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    bytes: Vec<u8>,
}

impl Model {
    /// Returns the size.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the file is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the whole content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the result of a read, which stops at the end of the file.
    #[must_use]
    pub fn read(&self, offset: usize, len: usize) -> &[u8] {
        let start = offset.min(self.len());
        let end = offset.saturating_add(len).min(self.len());
        &self.bytes[start..end]
    }

    /// Writes bytes at an offset. A gap between the end of the file and the offset is filled with
    /// zeroes.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if end > self.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    /// Changes the size. New bytes are zero, even where the file had other bytes earlier.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.resize(len, 0);
    }
}
