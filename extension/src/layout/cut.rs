//! Cutting of byte strings in several pieces, without copying.

use bytes::Bytes;
use onc_rpc::Segments;

/// Bytes for padding. Padding must never be memory with other contents (rtrext-00, section 7.2;
/// drafts/errata.md).
static ZEROES: [u8; 4096] = [0; 4096];

/// Calls `push` with each part of the `len` bytes at offset `at` of `pieces`, or with fewer bytes if `pieces`
/// end earlier.
pub fn cut(pieces: &[Bytes], at: u64, len: u64, mut push: impl FnMut(Bytes)) {
    let (mut skip, mut left) = (at, len);
    for piece in pieces {
        if left == 0 {
            break;
        }
        let here = piece.len() as u64;
        if skip >= here {
            skip -= here;
            continue;
        }
        let take = left.min(here - skip);
        // Both are within the piece.
        push(piece.slice(skip as usize..(skip + take) as usize));
        (skip, left) = (0, left - take);
    }
}

/// Appends `len` zero bytes.
pub fn pad(out: &mut Segments, len: u64) {
    let mut left = len;
    while left > 0 {
        let take = left.min(ZEROES.len() as u64);
        out.push(Bytes::from_static(&ZEROES[..take as usize]));
        left -= take;
    }
}

/// A byte string in several pieces that is consumed from its beginning.
#[derive(Debug)]
pub struct Rest<'a> {
    pieces: &'a [Bytes],
    /// Number of consumed bytes of the first piece.
    used: usize,
}

impl<'a> Rest<'a> {
    /// Begins with the first byte of `pieces`.
    #[must_use]
    pub fn new(pieces: &'a [Bytes]) -> Self {
        Self { pieces, used: 0 }
    }

    /// Appends the next `len` bytes to `out`. Returns false if there are fewer.
    pub fn take(&mut self, len: u64, out: &mut Segments) -> bool {
        let mut left = len;
        while left > 0 {
            let Some(piece) = self.pieces.first() else {
                return false;
            };
            let take = left.min((piece.len() - self.used) as u64) as usize;
            if take > 0 {
                out.push(piece.slice(self.used..self.used + take));
            }
            left -= take as u64;
            self.used += take;
            if self.used == piece.len() {
                self.pieces = &self.pieces[1..];
                self.used = 0;
            }
        }
        true
    }
}
