//! Bulk data that lies in one or more buffers.

use std::fmt;

use bytes::{Bytes, BytesMut};
use smallvec::{SmallVec, smallvec};

/// The pieces of a byte string, in order, as needed for a gather list.
pub type Segments = SmallVec<[Bytes; 2]>;

/// Returns the number of bytes of a gather list. The common case of one piece is handled apart because
/// it is cheaper.
#[inline]
#[must_use]
pub fn total_len(pieces: &[Bytes]) -> u64 {
    match pieces {
        [only] => only.len() as u64,
        pieces => pieces.iter().map(|piece| piece.len() as u64).sum(),
    }
}

/// The bytes of a bulk item, as a list of non-empty pieces. Usually there is one piece, which needs
/// no allocation; an item that was received into several receive segments has a piece for each.
///
/// Two values are equal if their bytes are equal, however they are divided into pieces.
#[derive(Default)]
pub struct Bulk {
    pieces: SmallVec<[Bytes; 1]>,
}

impl Clone for Bulk {
    /// Clones the handles of the pieces without copying bytes. The common case of one piece is handled
    /// apart because it is cheaper.
    fn clone(&self) -> Self {
        Self {
            pieces: match &self.pieces[..] {
                [only] => smallvec![only.clone()],
                pieces => pieces.iter().cloned().collect(),
            },
        }
    }
}

impl Bulk {
    /// Creates an empty item.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Copies `data` into a single piece.
    #[must_use]
    pub fn copy_from(data: &[u8]) -> Self {
        Bytes::copy_from_slice(data).into()
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.pieces[..] {
            [only] => only.len(),
            pieces => pieces.iter().map(Bytes::len).sum(),
        }
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Converts the item into its pieces, in order.
    #[must_use]
    pub fn into_segments(self) -> Segments {
        self.pieces.into_iter().collect()
    }

    /// Appends a piece; an empty piece is ignored.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    /// Shortens the item to its first `len` bytes. Has no effect if the item is not longer than
    /// that.
    pub fn truncate(&mut self, mut len: usize) {
        for at in 0..self.pieces.len() {
            let piece = &mut self.pieces[at];
            if len == 0 {
                return self.pieces.truncate(at);
            }
            piece.truncate(len);
            len -= piece.len();
        }
    }

    /// Returns all bytes in one buffer. Copies them if there are several pieces, so this is for
    /// short items and for tests.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &self.pieces[..] {
            [] => Bytes::new(),
            [only] => only.clone(),
            pieces => {
                let mut all = BytesMut::with_capacity(self.len());
                for piece in pieces {
                    all.extend_from_slice(piece);
                }
                all.freeze()
            }
        }
    }
}

impl From<Bytes> for Bulk {
    fn from(only: Bytes) -> Self {
        let mut bulk = Self::new();
        bulk.push(only);
        bulk
    }
}

impl From<Vec<u8>> for Bulk {
    fn from(only: Vec<u8>) -> Self {
        Bytes::from(only).into()
    }
}

impl From<&'static [u8]> for Bulk {
    fn from(only: &'static [u8]) -> Self {
        Bytes::from_static(only).into()
    }
}

impl<const N: usize> From<&'static [u8; N]> for Bulk {
    fn from(only: &'static [u8; N]) -> Self {
        Bytes::from_static(only).into()
    }
}

impl FromIterator<Bytes> for Bulk {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut bulk = Self::new();
        bulk.extend(pieces);
        bulk
    }
}

impl Extend<Bytes> for Bulk {
    fn extend<I: IntoIterator<Item = Bytes>>(&mut self, pieces: I) {
        for piece in pieces {
            self.push(piece);
        }
    }
}

impl PartialEq<[u8]> for Bulk {
    fn eq(&self, other: &[u8]) -> bool {
        let mut left = other;
        self.len() == other.len()
            && self.pieces.iter().all(|piece| {
                let (here, later) = left.split_at(piece.len());
                left = later;
                *piece == here
            })
    }
}

impl PartialEq<&[u8]> for Bulk {
    fn eq(&self, other: &&[u8]) -> bool {
        *self == **other
    }
}

impl PartialEq<Vec<u8>> for Bulk {
    fn eq(&self, other: &Vec<u8>) -> bool {
        *self == other[..]
    }
}

impl PartialEq<Bytes> for Bulk {
    fn eq(&self, other: &Bytes) -> bool {
        *self == other[..]
    }
}

impl PartialEq for Bulk {
    fn eq(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.pieces.iter(), other.pieces.iter());
        let (mut left, mut right): (&[u8], &[u8]) = (&[], &[]);
        loop {
            if left.is_empty() {
                left = a.next().map_or(&[], |piece| piece);
            }
            if right.is_empty() {
                right = b.next().map_or(&[], |piece| piece);
            }
            let len = left.len().min(right.len());
            if len == 0 {
                // Pieces are never empty, so a remainder of zero bytes means that one of the items
                // has ended.
                return left.is_empty() && right.is_empty();
            }
            if left[..len] != right[..len] {
                return false;
            }
            (left, right) = (&left[len..], &right[len..]);
        }
    }
}

impl Eq for Bulk {}

impl fmt::Debug for Bulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.pieces).finish()
    }
}
