//! Reading ahead: when, how far, and the data that has arrived.
//!
//! A program that reads a file from its beginning, or goes on where it stopped, will probably go on.
//! So further chunks are read in the background, each twice as long as the one before it, up to `rsize`.
//! They reach as far ahead of the program as four times the latest chunk, or as the limit allows if that
//! is less. A chunk is thrown away when this client writes to the file, or another one is seen
//! to have changed it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use onc_rpc::Bulk;
use rustix::io::Errno;

use crate::notify::Notify;

/// The length of the first chunk, bytes. The kernel reads as much at a time, unless told otherwise.
const FIRST: u32 = 128 << 10;

/// The state on which a chunk's data depends: the version of the file, and this client's writes to
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) data_version: u64,
    pub(crate) own_writes: u64,
}

/// Data that was read, and whether the file ends behind it.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) data: Bulk,
    pub(crate) eof: bool,
}

/// A range that is being read, or was.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) range: Range<u64>,
    pub(crate) basis: Basis,
    /// The outcome, once it is there.
    pub(crate) outcome: RefCell<Option<Result<Arrived, Errno>>>,
    pub(crate) arrived: Notify,
}

impl Chunk {
    /// Records the outcome.
    pub(crate) fn finish(&self, outcome: Result<Arrived, Errno>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.arrived.wake();
    }

    /// Waits for the outcome.
    pub(crate) async fn outcome(&self) -> Result<Arrived, Errno> {
        self.arrived.until(|| self.outcome.borrow().clone()).await
    }
}

/// The reading of one open file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Where the next read of a sequence begins.
    next: u64,
    /// The length of the last chunk.
    last: u32,
    chunks: VecDeque<Rc<Chunk>>,
}

impl ReadAhead {
    /// Records a read. Returns the chunks that serve it, or `None` if it belongs to no sequence, and
    /// the new chunks, which the caller begins to read.
    ///
    /// `size` is that of the file, `rsize` the longest READ, and `limit` how many bytes may be read
    /// ahead.
    pub(crate) fn plan(
        &mut self,
        read: &Range<u64>,
        basis: Basis,
        size: u64,
        rsize: u32,
        limit: usize,
    ) -> (Option<Vec<Rc<Chunk>>>, Vec<Rc<Chunk>>) {
        self.chunks
            .retain(|chunk| chunk.basis == basis && !chunk.failed());
        // Chunks adjoin: a read that begins in one is covered as far as they go.
        let covered = self
            .chunks
            .iter()
            .any(|chunk| chunk.range.contains(&read.start));
        // The kernel sends the reads of a sequence in any order, so one may be a little ahead.
        let near = read.start >= self.next && read.start - self.next <= u64::from(2 * rsize);
        if limit == 0 || !(covered || (near && (self.next > 0 || read.start == 0))) {
            self.chunks.clear();
            self.last = 0;
            self.next = read.end;
            return (None, Vec::new());
        }
        self.next = self.next.max(read.end);
        // What is behind the sequence is not needed any more: the kernel has its pages.
        let behind = self.next.saturating_sub(u64::from(2 * rsize));
        self.chunks.retain(|chunk| chunk.range.end > behind);
        let mut begun = Vec::new();
        if self
            .chunks
            .front()
            .is_some_and(|first| first.range.start > read.start)
            || self
                .chunks
                .back()
                .is_some_and(|last| last.range.end < read.start)
        {
            self.chunks.clear();
        }
        let mut end = match self.chunks.back() {
            Some(last) => last.range.end,
            None => read.start,
        };
        let ahead = match self.last {
            // The first read alone does not make a sequence.
            0 => read.end,
            _ => self.next + (u64::from(self.last) * 4).min(limit as u64),
        };
        let ahead = ahead.min(size.max(read.end));
        while end < ahead {
            let wanted = read.end.saturating_sub(end).min(u64::from(rsize)) as u32;
            let len = (self.last * 2).clamp(FIRST.min(rsize), rsize).max(wanted);
            self.last = len;
            let chunk = Rc::new(Chunk {
                range: end..end + u64::from(len),
                basis,
                outcome: RefCell::new(None),
                arrived: Notify::default(),
            });
            end = chunk.range.end;
            self.chunks.push_back(Rc::clone(&chunk));
            begun.push(chunk);
        }
        let serve = self
            .chunks
            .iter()
            .filter(|chunk| chunk.range.start < read.end && read.start < chunk.range.end);
        (Some(serve.cloned().collect()), begun)
    }

    /// Returns the number of bytes in chunks, those included that have not arrived yet.
    pub(crate) fn bytes(&self) -> usize {
        let lengths = self.chunks.iter().map(|chunk| &chunk.range);
        lengths
            .map(|range| (range.end - range.start) as usize)
            .sum()
    }

    /// Gives up all chunks. The sequence goes on with the next read.
    pub(crate) fn give_up(&mut self) {
        self.chunks.clear();
    }
}

impl Chunk {
    fn failed(&self) -> bool {
        matches!(&*self.outcome.borrow(), Some(Err(_)))
    }
}

/// Returns the part of what was read of `range` that `read` wants: from its beginning, or from that
/// of the range if that is later, up to its end or the end of the file.
pub(crate) fn part(range: &Range<u64>, arrived: &Arrived, read: &Range<u64>) -> Vec<Bytes> {
    let mut at = range.start;
    let mut parts = Vec::new();
    for piece in arrived.data.pieces() {
        let end = at + piece.len() as u64;
        let (from, to) = (at.max(read.start), end.min(read.end));
        if from < to {
            parts.push(piece.slice((from - at) as usize..(to - at) as usize));
        }
        at = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASIS: Basis = Basis {
        data_version: 0,
        own_writes: 0,
    };
    const RSIZE: u32 = 1 << 20;
    const SIZE: u64 = 64 << 20;

    fn plan(
        ahead: &mut ReadAhead,
        start: u64,
        len: u64,
        basis: Basis,
    ) -> (Option<usize>, Vec<Range<u64>>) {
        let read = start..start + len;
        let (serve, begun) = ahead.plan(&read, basis, SIZE, RSIZE, 8 << 20);
        if let Some(serve) = &serve {
            let mut at = start;
            for chunk in serve {
                assert!(chunk.range.start <= at, "{start}: a gap at {at}");
                at = chunk.range.end;
            }
            assert!(at >= start + len, "{start}: ends at {at}");
        }
        let ranges = begun.iter().map(|chunk| chunk.range.clone()).collect();
        (serve.map(|serve| serve.len()), ranges)
    }

    #[test]
    fn a_sequence_is_read_in_longer_and_longer_chunks_and_each_byte_once() {
        let mut ahead = ReadAhead::default();
        let mut end = 0;
        let mut longest = 0;
        for read in 0..400u64 {
            let (serve, begun) = plan(&mut ahead, read * (128 << 10), 128 << 10, BASIS);
            assert!(serve.is_some());
            for range in begun {
                assert_eq!(range.start, end);
                longest = longest.max(range.end - range.start);
                end = range.end;
            }
            assert!(end <= SIZE + u64::from(RSIZE));
        }
        assert_eq!(longest, u64::from(RSIZE));
        assert!(ahead.chunks.len() < 16, "{}", ahead.chunks.len());
    }

    #[test]
    fn a_single_read_and_random_reads_fetch_nothing_else() {
        let mut ahead = ReadAhead::default();
        let (_, begun) = plan(&mut ahead, 0, 4096, BASIS);
        assert_eq!((begun.len(), begun[0].end), (1, u64::from(FIRST)));
        for start in [33 << 20, 7 << 20, 50 << 20] {
            assert_eq!(plan(&mut ahead, start, 4096, BASIS), (None, vec![]));
        }
        assert!(ahead.chunks.is_empty());
        // And a sequence that begins anywhere is noticed with its second read.
        let (serve, _) = plan(&mut ahead, (50 << 20) + 4096, 4096, BASIS);
        assert!(serve.is_some());
    }

    /// Any sequence of reads is served from chunks that cover it without a gap, or not at all.
    #[test]
    fn chunks_have_no_gaps_whatever_is_read() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut ahead = ReadAhead::default();
            let mut at = 0;
            for _ in 0..200 {
                if random.u32(0..3) == 0 {
                    at = random.u64(0..4 << 20);
                }
                let back = random.u64(0..=at.min(200 << 10)) * u64::from(random.bool());
                let len = random.u64(1..400 << 10);
                plan(&mut ahead, at - back, len, BASIS);
                at += len;
            }
        }
    }

    #[test]
    fn chunks_from_before_a_change_are_not_used() {
        let mut ahead = ReadAhead::default();
        plan(&mut ahead, 0, 4096, BASIS);
        plan(&mut ahead, 4096, 4096, BASIS);
        let changed = Basis {
            own_writes: 1,
            ..BASIS
        };
        let (_, begun) = plan(&mut ahead, 8192, 4096, changed);
        assert_eq!(begun[0].start, 8192);
    }

    #[test]
    fn parts_end_where_the_file_does() {
        let arrived = Arrived {
            data: [vec![1; 10], vec![2; 10]]
                .into_iter()
                .map(Bytes::from)
                .collect(),
            eof: true,
        };
        let part = part(&(100..200), &arrived, &(105..150));
        let lens: Vec<usize> = part.iter().map(Bytes::len).collect();
        assert_eq!(lens, [5, 10]);
    }
}
