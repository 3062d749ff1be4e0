//! The buffers of a receive.
//!
//! A receive is one buffer or several, filled in order. A message is delivered in the pieces in which it
//! arrived: an item of it is a list of pieces, which file systems write with one system call.
//! Everything behind the first buffer was sent to be placed there, so the iwarp device receives it
//! directly into its place. That takes one read for each FPDU, or one for a whole message if its length
//! was predicted.

use std::iter;

use smallvec::SmallVec;

use crate::Buf;

/// The memory of one receive: at least one buffer, filled in order. Buffers behind the end of the
/// message stay empty.
///
/// One or two buffers are usual and need no allocation.
#[derive(Debug)]
pub struct Scatter {
    first: Buf,
    rest: OtherBuffers,
}

/// The buffers of a receive behind the first.
pub type OtherBuffers = SmallVec<[Buf; 1]>;

impl Scatter {
    /// Creates a receive from its buffers, in the order in which they are to be filled.
    #[must_use]
    pub fn new(first: Buf, rest: impl IntoIterator<Item = Buf>) -> Self {
        Self {
            first,
            rest: rest.into_iter().collect(),
        }
    }

    /// Adds a buffer, which is filled after the others.
    #[inline]
    pub fn push(&mut self, last: Buf) {
        self.rest.push(last);
    }

    /// Returns the number of buffers, including empty ones.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.rest.len()
    }

    /// Returns the total length of all buffers in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(|piece| piece.len()).sum::<usize>()
    }

    /// Returns whether the total length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffers, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Buf> {
        iter::once(&self.first).chain(&self.rest)
    }

    /// Returns the length of the first buffer in bytes if there are several, and `None` otherwise.
    #[inline]
    pub fn head(&self) -> Option<usize> {
        (!self.rest.is_empty()).then(|| self.first.len())
    }

    /// Returns how many of the first `len` bytes lie behind the first buffer, if there are several.
    #[must_use]
    #[inline]
    pub fn beyond_head(&self, len: usize) -> usize {
        self.head().map_or(0, |head| len.saturating_sub(head))
    }

    /// Shortens every buffer to its part of the first `len` bytes.
    pub fn truncate(&mut self, mut len: usize) {
        self.first.truncate(len);
        len -= self.first.len();
        for piece in &mut self.rest {
            piece.truncate(len);
            len -= piece.len();
        }
    }

    /// Returns the first buffer, which is the only one of a receive posted as a single buffer.
    #[must_use]
    #[inline]
    pub fn into_first(self) -> Buf {
        self.first
    }

    /// Returns the first buffer and the ones behind it.
    #[must_use]
    #[inline]
    pub fn into_parts(self) -> (Buf, OtherBuffers) {
        (self.first, self.rest)
    }

    /// Loads the first `len` bytes of the first buffer into the processor's cache for writing.
    /// Overwrites some of them.
    pub fn prefetch(&mut self, len: usize) {
        /// Length of a cache line in bytes on most processors.
        const LINE: usize = 64;
        let lines = self.first.iter_mut().take(len).step_by(LINE);
        lines.for_each(|first| *first = 0);
    }

    /// Returns the memory from offset `at`, or from the end if `at` is beyond it.
    #[inline]
    pub fn places(&mut self, mut at: usize) -> Places<'_> {
        let mut rest = self.rest.iter_mut();
        let mut current = &mut self.first[..];
        while at > current.len() {
            let Some(next) = rest.next() else { break };
            at -= current.len();
            current = next;
        }
        Places {
            current: current.get_mut(at..).unwrap_or_default(),
            rest,
        }
    }

    /// Copies `bytes` into the buffers and shortens these accordingly. Returns false without effect
    /// if there is not enough room.
    #[must_use]
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.len() {
            return false;
        }
        if self.rest.is_empty() {
            self.first.truncate(bytes.len());
            self.first.copy_from_slice(bytes);
            return true;
        }
        let mut left = bytes;
        self.places(0).take(bytes.len(), |place| {
            let (now, later) = left.split_at(place.len());
            place.copy_from_slice(now);
            left = later;
        });
        self.truncate(bytes.len());
        true
    }

    /// Returns the contents as one vector. Copies, so this is for tests and programs where speed
    /// does not matter.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        for piece in self.pieces() {
            all.extend_from_slice(piece);
        }
        all
    }
}

impl From<Buf> for Scatter {
    #[inline]
    fn from(only: Buf) -> Self {
        Self {
            first: only,
            rest: OtherBuffers::new(),
        }
    }
}

impl IntoIterator for Scatter {
    type Item = Buf;
    type IntoIter = iter::Chain<iter::Once<Buf>, smallvec::IntoIter<[Buf; 1]>>;

    fn into_iter(self) -> Self::IntoIter {
        iter::once(self.first).chain(self.rest)
    }
}

/// Memory in several buffers, consumed from the front.
#[derive(Debug, Default)]
pub struct Places<'a> {
    current: &'a mut [u8],
    rest: std::slice::IterMut<'a, Buf>,
}

impl<'a> Places<'a> {
    /// Creates a value for memory in one piece.
    #[inline]
    pub fn one(only: &'a mut [u8]) -> Self {
        Self {
            current: only,
            rest: Default::default(),
        }
    }

    /// Passes the next `len` bytes, or fewer at the end, to `each`, with one call for each
    /// contiguous piece. No piece is empty.
    #[inline]
    pub fn take(&mut self, mut len: usize, mut each: impl FnMut(&'a mut [u8])) {
        while len > 0 {
            if self.current.is_empty() {
                let Some(next) = self.rest.next() else { return };
                self.current = next;
                continue;
            }
            let at = len.min(self.current.len());
            let (now, later) = std::mem::take(&mut self.current).split_at_mut(at);
            self.current = later;
            len -= at;
            each(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    fn scatter(pool: &Pool, lengths: &[usize]) -> Scatter {
        let pieces = lengths.iter().map(|&len| {
            let mut piece = pool.alloc(len).unwrap();
            piece.fill(0xee);
            piece
        });
        let mut pieces: Vec<Buf> = pieces.collect();
        let first = pieces.remove(0);
        Scatter::new(first, pieces)
    }

    fn lengths(scatter: &Scatter) -> Vec<usize> {
        scatter.pieces().map(|piece| piece.len()).collect()
    }

    #[test]
    fn pieces_are_filled_in_order_and_cut_to_what_they_hold() {
        let pool = Pool::new(1 << 20);
        for (len, held) in [
            (0, [0, 0, 0, 0]),
            (1, [1, 0, 0, 0]),
            (4, [4, 0, 0, 0]),
            (5, [4, 0, 1, 0]),
            (9, [4, 0, 5, 0]),
            (10, [4, 0, 5, 1]),
            (16, [4, 0, 5, 7]),
        ] {
            let mut scatter = scatter(&pool, &[4, 0, 5, 7]);
            let bytes: Vec<u8> = (0..len).collect();
            assert!(scatter.fill(&bytes));
            assert_eq!(lengths(&scatter), held);
            assert_eq!(scatter.to_vec(), bytes);
        }
        let mut short = scatter(&pool, &[4, 5]);
        assert!(!short.fill(&[1; 10]));
        assert_eq!(short.to_vec(), [0xee; 9]);
        drop(short);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn places_begin_anywhere() {
        let pool = Pool::new(1 << 20);
        let mut scatter = scatter(&pool, &[3, 1, 4]);
        assert!(scatter.fill(&[0, 1, 2, 3, 4, 5, 6, 7]));
        for at in 0..=9 {
            for len in 0..=9 {
                let (mut seen, mut pieces) = (Vec::new(), Vec::new());
                scatter.places(at).take(len, |place| {
                    seen.extend_from_slice(place);
                    pieces.push(place.len());
                });
                let expected: Vec<u8> = (0..8).skip(at).take(len).collect();
                assert_eq!(seen, expected, "{len} from {at}");
                assert!(pieces.iter().all(|&len| len > 0));
            }
        }
    }
}
