//! What a file is by its specification: bytes.

/// A file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    bytes: Vec<u8>,
}

impl Model {
    /// Its size.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What a read gives: nothing after the end.
    #[must_use]
    pub fn read(&self, offset: usize, len: usize) -> &[u8] {
        let start = offset.min(self.len());
        let end = offset.saturating_add(len).min(self.len());
        &self.bytes[start..end]
    }

    /// A write; what lies between the end and it reads as zeroes.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if end > self.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    /// A change of size; what is new reads as zeroes, also where something was before.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.resize(len, 0);
    }
}
