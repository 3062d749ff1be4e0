//! The bytes of a file, sparse.

use std::collections::BTreeMap;

use onc_rpc::Bulk;

use super::budget::Budget;
use crate::fs::{FsError, FsResult};

/// Bytes of a file that lie in one allocation. Long, so that a large READ or WRITE is few copies;
/// a hole takes no memory from this length on.
const CHUNK: u64 = 64 << 10;
/// Least memory of a chunk that has content.
const MIN_CHUNK: u64 = 512;
/// Longest file, bytes: what file offsets of the host can say.
pub(super) const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// A file's bytes. A chunk holds them up to the last one written; beyond that, and where there is
/// no chunk, they are zero.
#[derive(Debug, Default)]
pub(super) struct Content {
    chunks: BTreeMap<u64, Vec<u8>>,
    size: u64,
    allocated: u64,
}

/// Memory of a chunk with `len` bytes.
fn class(len: u64) -> u64 {
    len.next_power_of_two().clamp(MIN_CHUNK, CHUNK)
}

/// The parts of `offset..end` by chunk: its number, and the range in it.
fn parts(offset: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (chunk, from) = (at / CHUNK, at % CHUNK);
        let to = (from + (end - at)).min(CHUNK);
        at += to - from;
        Some((chunk, from as usize, to as usize))
    })
}

impl Content {
    /// Length of the file, bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Memory that it takes, bytes.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Reads at `offset`, as far as there is content.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let end = self.size.min(offset.saturating_add(buf.len() as u64));
        let mut rest = buf;
        let mut count = 0;
        for (chunk, from, to) in parts(offset, end) {
            let (out, after) = rest.split_at_mut(to - from);
            let stored = self.chunks.get(&chunk).map_or(&[][..], |chunk| chunk);
            let stored = &stored[from.min(stored.len())..to.min(stored.len())];
            out[..stored.len()].copy_from_slice(stored);
            out[stored.len()..].fill(0);
            count += to - from;
            rest = after;
        }
        count
    }

    /// Writes `data` at `offset`, all of it or, when it does not fit, nothing.
    pub(super) fn write(&mut self, offset: u64, data: &Bulk, budget: &Budget) -> FsResult<()> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|&end| end <= MAX_FILE_SIZE)
            .ok_or(FsError::FileTooLarge)?;
        let more: u64 = parts(offset, end)
            .map(|(chunk, _, to)| {
                let len = self.chunks.get(&chunk).map(|chunk| chunk.len() as u64);
                let old = len.map_or(0, class);
                class(len.unwrap_or(0).max(to as u64)) - old
            })
            .sum();
        budget.take(more)?;
        self.allocated += more;
        let mut at = offset;
        for piece in data.pieces() {
            self.put(at, piece);
            at += piece.len() as u64;
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Writes what there is memory for.
    fn put(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        for (chunk, from, to) in parts(offset, offset + data.len() as u64) {
            let (part, after) = rest.split_at(to - from);
            rest = after;
            let chunk = self.chunks.entry(chunk).or_default();
            if chunk.capacity() < to {
                let room = class(to as u64) as usize;
                chunk.reserve_exact(room - chunk.len());
            }
            if chunk.len() < from {
                chunk.resize(from, 0);
            }
            let over = (chunk.len() - from).min(part.len());
            chunk[from..from + over].copy_from_slice(&part[..over]);
            chunk.extend_from_slice(&part[over..]);
        }
    }

    /// Sets the length.
    pub(super) fn resize(&mut self, size: u64, budget: &Budget) -> FsResult<()> {
        if size > MAX_FILE_SIZE {
            return Err(FsError::FileTooLarge);
        }
        if size < self.size {
            let mut gone = self.chunks.split_off(&size.div_ceil(CHUNK));
            let mut freed: u64 = gone.values().map(|chunk| class(chunk.len() as u64)).sum();
            gone.clear();
            // What is left of the last chunk has to read as zeroes if the file grows again.
            if let Some(last) = self.chunks.get_mut(&(size / CHUNK)) {
                let (old, keep) = (last.len() as u64, size % CHUNK);
                if keep < old {
                    last.truncate(keep as usize);
                    last.shrink_to(class(keep) as usize);
                    freed += class(old) - class(keep);
                }
            }
            self.allocated -= freed;
            budget.give_back(freed);
        }
        self.size = size;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn bytes(content: &Content) -> Vec<u8> {
        let mut out = vec![0xaa; content.size() as usize];
        assert_eq!(content.read(0, &mut out), out.len());
        out
    }

    /// Any sequence of writes and resizes gives what a plain vector gives, and accounts for it.
    #[test]
    fn behaves_as_a_vector_does() {
        #[allow(clippy::needless_pass_by_value)]
        fn check(steps: Vec<(u32, u16, u8, bool)>, piece: u16) -> bool {
            let budget = Budget::new(1 << 30);
            let (mut content, mut model) = (Content::default(), Vec::new());
            for (at, len, fill, cut) in steps {
                let at = (at % 300_000) as usize;
                if cut {
                    content.resize(at as u64, &budget).unwrap();
                    model.resize(at, 0);
                    continue;
                }
                let mut data = vec![fill; usize::from(len)];
                // The pieces are told apart by their first bytes.
                for (n, first) in data.iter_mut().step_by(usize::from(piece) + 1).enumerate() {
                    *first = n as u8;
                }
                let pieces = data
                    .chunks(usize::from(piece) + 1)
                    .map(Bytes::copy_from_slice);
                content
                    .write(at as u64, &pieces.collect(), &budget)
                    .unwrap();
                if !data.is_empty() {
                    model.resize(model.len().max(at + data.len()), 0);
                    model[at..at + data.len()].copy_from_slice(&data);
                } else {
                    model.resize(model.len().max(at), 0);
                }
            }
            let same = bytes(&content) == model && budget.used() == content.allocated();
            content.resize(0, &budget).unwrap();
            same && budget.used() == 0
        }
        quickcheck::quickcheck(check as fn(Vec<(u32, u16, u8, bool)>, u16) -> bool);
    }

    #[test]
    fn holes_take_no_memory() {
        let budget = Budget::new(1 << 20);
        let mut content = Content::default();
        content.write(1 << 40, &b"end".into(), &budget).unwrap();
        assert_eq!(content.size(), (1 << 40) + 3);
        assert!(content.allocated() <= CHUNK, "{}", content.allocated());
        let mut out = [1; 6];
        assert_eq!(content.read((1 << 40) - 3, &mut out), 6);
        assert_eq!(&out, b"\0\0\0end");
    }

    #[test]
    fn a_write_that_does_not_fit_changes_nothing() {
        let budget = Budget::new(CHUNK);
        let mut content = Content::default();
        content.write(0, &b"kept".into(), &budget).unwrap();
        let long = Bulk::from(vec![1; 2 * CHUNK as usize]);
        assert_eq!(content.write(0, &long, &budget), Err(FsError::NoSpace));
        assert_eq!(bytes(&content), b"kept");
        assert_eq!(
            content.write(MAX_FILE_SIZE, &b"x".into(), &budget),
            Err(FsError::FileTooLarge)
        );
        assert_eq!(
            content.write(u64::MAX, &b"x".into(), &budget),
            Err(FsError::FileTooLarge)
        );
    }
}
