//! A short FPDU as one piece of memory.

use super::socket;

/// A short FPDU, framed in one piece. Kept by its endpoint for the memory, which is written again
/// and again instead of being cleared for each.
pub(super) struct Fpdu {
    pub(super) bytes: Box<[u8; socket::SHORT]>,
    pub(super) len: usize,
}

impl Fpdu {
    pub(super) fn new() -> Self {
        Self {
            bytes: Box::new([0; socket::SHORT]),
            len: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
