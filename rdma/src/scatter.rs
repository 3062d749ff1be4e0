//! Receives in pieces.

use std::iter;

use crate::Buf;

/// Memory of one receive, in pieces: at least one, filled in order. A message that ends in one of
/// them leaves those behind it empty.
///
/// One piece is the usual number, and costs no allocation.
#[derive(Debug)]
pub struct Scatter {
    first: Buf,
    /// Nothing when there is one piece; never empty.
    rest: Option<Box<[Buf]>>,
}

impl Scatter {
    /// From pieces, in the order in which they are to be filled.
    #[must_use]
    pub fn new(first: Buf, rest: impl Into<Box<[Buf]>>) -> Self {
        let rest = rest.into();
        Self {
            first,
            rest: (!rest.is_empty()).then_some(rest),
        }
    }

    /// Number of pieces, empty ones included.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.rest().len()
    }

    /// Bytes in all pieces.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match &self.rest {
            None => self.first.len(),
            Some(rest) => self.first.len() + rest.iter().map(|piece| piece.len()).sum::<usize>(),
        }
    }

    /// True when there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Buf> {
        iter::once(&self.first).chain(self.rest())
    }

    /// Bytes of the first piece, if there are others.
    #[inline]
    pub fn head(&self) -> Option<usize> {
        self.rest.is_some().then(|| self.first.len())
    }

    /// The pieces behind the first.
    fn rest(&self) -> &[Buf] {
        self.rest.as_deref().unwrap_or_default()
    }

    /// Cuts every piece to what it holds of the first `len` bytes.
    pub fn truncate(&mut self, mut len: usize) {
        self.first.truncate(len);
        if let Some(rest) = &mut self.rest {
            len -= self.first.len();
            for piece in rest {
                piece.truncate(len);
                len -= piece.len();
            }
        }
    }

    /// The first piece: the only one of a receive that was posted as one buffer.
    #[must_use]
    #[inline]
    pub fn into_first(self) -> Buf {
        self.first
    }

    /// The first piece, and those behind it.
    #[must_use]
    #[inline]
    pub fn into_parts(self) -> (Buf, Box<[Buf]>) {
        (self.first, self.rest.unwrap_or_default())
    }

    /// Brings the first piece's first `len` bytes into the processor's cache, to be written to. They
    /// may change.
    pub fn prefetch(&mut self, len: usize) {
        /// A cache line, on most processors.
        const LINE: usize = 64;
        let lines = self.first.iter_mut().take(len).step_by(LINE);
        lines.for_each(|first| *first = 0);
    }

    /// The memory from `at` on; at the end at most.
    #[inline]
    pub fn places(&mut self, mut at: usize) -> Places<'_> {
        let Some(rest) = &mut self.rest else {
            return Places::one(self.first.get_mut(at..).unwrap_or_default());
        };
        let mut rest = rest.iter_mut();
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

    /// Copies `bytes` into the pieces, and cuts them to that. False, and no effect, when there is
    /// not so much room.
    #[must_use]
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.len() {
            return false;
        }
        if self.rest.is_none() {
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

    /// The bytes in one piece: a copy, for tests and for programs that do not look at speed.
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
            rest: None,
        }
    }
}

impl IntoIterator for Scatter {
    type Item = Buf;
    type IntoIter = iter::Chain<iter::Once<Buf>, std::vec::IntoIter<Buf>>;

    fn into_iter(self) -> Self::IntoIter {
        let rest = self.rest.unwrap_or_default().into_vec();
        iter::once(self.first).chain(rest)
    }
}

/// Memory in pieces, to be taken from the front.
#[derive(Debug, Default)]
pub struct Places<'a> {
    current: &'a mut [u8],
    rest: std::slice::IterMut<'a, Buf>,
}

impl<'a> Places<'a> {
    /// Memory in one piece.
    #[inline]
    pub fn one(only: &'a mut [u8]) -> Self {
        Self {
            current: only,
            rest: Default::default(),
        }
    }

    /// Hands the next `len` bytes to `each`, in as many pieces as they lie in; fewer when there are
    /// no more. None of the pieces is empty.
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
