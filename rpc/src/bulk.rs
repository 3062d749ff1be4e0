//! Bulk data in pieces.

use std::fmt;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::Segments;

/// Bytes of a bulk item, in the pieces in which they lie: one, as a rule, which costs no
/// allocation; or one for each segment of the receives that they came in. None of them is empty.
///
/// Compared by content, wherever the pieces end.
#[derive(Clone, Default)]
pub struct Bulk {
    pieces: SmallVec<[Bytes; 1]>,
}

impl Bulk {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of `data`, in one piece.
    #[must_use]
    pub fn copy_from(data: &[u8]) -> Self {
        Bytes::copy_from_slice(data).into()
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.pieces[..] {
            [only] => only.len(),
            pieces => pieces.iter().map(Bytes::len).sum(),
        }
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The pieces, in order, to keep.
    #[must_use]
    pub fn into_segments(self) -> Segments {
        self.pieces.into_iter().collect()
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    /// Keeps the first `len` bytes; no effect when there are not more than that.
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

    /// The bytes in one piece. A copy unless they are in one: for what is not large, and for tests.
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
                // No piece is empty: one of them is at its end.
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
