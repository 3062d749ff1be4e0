//! The content of a sparse file.
//!
//! A reader can share the memory instead of getting a copy ([`Content::share`]). Shared memory
//! never changes: a chunk that a reader holds is copied before it is written to. If memory for the
//! copy, or for the data to be added, will only be free when readers have finished, a change fails
//! with [`FsError::Later`], even if it would fit in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use onc_rpc::Bulk;

use super::budget::{Budget, Lease};
use crate::fs::{FsError, FsResult};

/// The file bytes of one allocation. A large value makes a large READ or WRITE consist of few
/// pieces. A chunk that is wholly in a hole takes no memory. In a chunk with data, the zeroes before
/// the data do.
const CHUNK: u64 = 64 << 10;
/// The minimum memory of a chunk that has content, bytes.
const MIN_CHUNK: u64 = 512;
/// The maximum file size in bytes: the host's maximum file offset.
pub(super) const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// The data that is returned for holes.
static ZEROES: [u8; CHUNK as usize] = [0; CHUNK as usize];

/// The content of a file. A chunk holds its bytes up to the last one written; bytes beyond that,
/// and of missing chunks, are zero.
#[derive(Debug, Default)]
pub(super) struct Content {
    chunks: BTreeMap<u64, Arc<Chunk>>,
    size: u64,
    allocated: u64,
}

/// A part of a file. Its memory is charged until the last holder drops it.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    lease: Lease,
}

impl Chunk {
    fn new(budget: &Arc<Budget>) -> Self {
        Self {
            bytes: Vec::new(),
            lease: Lease::new(budget),
        }
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Writes `part` at `from`. The memory for it must already have been taken from the budget.
    fn put(&mut self, from: usize, part: &[u8]) {
        let (bytes, to) = (&mut self.bytes, from + part.len());
        if bytes.capacity() < to {
            let room = class(to as u64) as usize;
            bytes.reserve_exact(room - bytes.len());
        }
        if bytes.len() < from {
            bytes.resize(from, 0);
        }
        let over = (bytes.len() - from).min(part.len());
        bytes[from..from + over].copy_from_slice(&part[..over]);
        bytes.extend_from_slice(&part[over..]);
        self.lease.set(class(self.bytes.len() as u64));
    }

    /// Keeps only the first `len` bytes.
    fn truncate(&mut self, len: u64) {
        self.bytes.truncate(len as usize);
        self.bytes.shrink_to(class(len) as usize);
        self.lease.set(class(len));
    }

    /// Copies the first `len` bytes to new memory.
    fn copy(&self, len: u64, budget: &Arc<Budget>) -> FsResult<Self> {
        let len = len.min(self.len());
        let mut copy = Self::new(budget);
        if len > 0 {
            // The copy is needed only because a reader holds the original.
            budget.take(class(len)).map_err(|_| FsError::Later)?;
            copy.put(0, &self.bytes[..len as usize]);
        }
        Ok(copy)
    }
}

/// A chunk that a reader holds.
struct Held(Arc<Chunk>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// Returns the memory of a chunk with `len` bytes.
fn class(len: u64) -> u64 {
    match len {
        0 => 0,
        len => len.next_power_of_two().clamp(MIN_CHUNK, CHUNK),
    }
}

/// Splits `offset..end` at chunk boundaries. Yields the chunk's number and the range in it.
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
    /// Returns the length of the file, bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory of the file, bytes.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Returns the end offset of a read of `len` bytes at `offset`, limited by the length of the
    /// file.
    fn end(&self, offset: u64, len: u64) -> u64 {
        self.size.min(offset.saturating_add(len))
    }

    /// Reads at `offset` up to the end of the file. Returns the number of bytes.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let end = self.end(offset, buf.len() as u64);
        let mut rest = buf;
        let mut count = 0;
        for (chunk, from, to) in parts(offset, end) {
            let (out, after) = rest.split_at_mut(to - from);
            let stored = self
                .chunks
                .get(&chunk)
                .map_or(&[][..], |chunk| &chunk.bytes);
            let stored = &stored[from.min(stored.len())..to.min(stored.len())];
            out[..stored.len()].copy_from_slice(stored);
            out[stored.len()..].fill(0);
            count += to - from;
            rest = after;
        }
        count
    }

    /// Returns `len` bytes at `offset`, up to the end of the file, without copying. They do not
    /// change while the result lives.
    pub(super) fn share(&self, offset: u64, len: u64) -> Bulk {
        let mut shared = Bulk::new();
        for (chunk, from, to) in parts(offset, self.end(offset, len)) {
            let chunk = self.chunks.get(&chunk);
            let stored = chunk.map_or(0, |chunk| chunk.bytes.len());
            let middle = stored.clamp(from, to);
            if let Some(chunk) = chunk
                && from < middle
            {
                let held = Bytes::from_owner(Held(Arc::clone(chunk)));
                shared.push(held.slice(from..middle));
            }
            shared.push(Bytes::from_static(&ZEROES[middle..to]));
        }
        shared
    }

    /// Writes all of `data` at `offset`, or nothing if there is no memory.
    pub(super) fn write(&mut self, offset: u64, data: &Bulk, budget: &Arc<Budget>) -> FsResult<()> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|&end| end <= MAX_FILE_SIZE)
            .ok_or(FsError::FileTooLarge)?;
        let mut more = 0;
        for (chunk, _, to) in parts(offset, end) {
            let old = match self.chunks.get_mut(&chunk) {
                Some(chunk) => own(chunk, budget)?.len(),
                None => 0,
            };
            more += class(old.max(to as u64)) - class(old);
        }
        budget.take(more)?;
        self.allocated += more;
        let mut at = offset;
        for piece in data.pieces() {
            self.put(at, piece, budget)?;
            at += piece.len() as u64;
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Writes to chunks that no reader holds. There must be memory for the data.
    fn put(&mut self, offset: u64, data: &[u8], budget: &Arc<Budget>) -> FsResult<()> {
        let mut rest = data;
        for (chunk, from, to) in parts(offset, offset + data.len() as u64) {
            let (part, after) = rest.split_at(to - from);
            rest = after;
            let chunk = self.chunks.entry(chunk);
            let chunk = chunk.or_insert_with(|| Arc::new(Chunk::new(budget)));
            own(chunk, budget)?.put(from, part);
        }
        Ok(())
    }

    /// Sets the length.
    pub(super) fn resize(&mut self, size: u64, budget: &Arc<Budget>) -> FsResult<()> {
        if size > MAX_FILE_SIZE {
            return Err(FsError::FileTooLarge);
        }
        if size < self.size {
            // The rest of the last chunk has to read as zeroes if the file grows again.
            let keep = size % CHUNK;
            if let Some(last) = self.chunks.get_mut(&(size / CHUNK))
                && keep > 0
                && keep < last.len()
            {
                let less = class(last.len()) - class(keep);
                match Arc::get_mut(last) {
                    Some(last) => last.truncate(keep),
                    None => {
                        let copy = last.copy(keep, budget)?;
                        replace(last, copy);
                    }
                }
                self.allocated -= less;
            }
            let gone = self.chunks.split_off(&size.div_ceil(CHUNK));
            for chunk in gone.into_values() {
                self.allocated -= class(chunk.len());
                chunk.lease.abandon();
            }
        }
        self.size = size;
        Ok(())
    }
}

/// Replaces a chunk that a reader holds.
fn replace(chunk: &mut Arc<Chunk>, by: Chunk) {
    std::mem::replace(chunk, Arc::new(by)).lease.abandon();
}

/// Returns a chunk for writing; no reader holds it any more.
fn own<'a>(chunk: &'a mut Arc<Chunk>, budget: &Arc<Budget>) -> FsResult<&'a mut Chunk> {
    if Arc::get_mut(chunk).is_none() {
        let copy = chunk.copy(CHUNK, budget)?;
        replace(chunk, copy);
    }
    // There are no weak references, so nothing else holds it now.
    Arc::get_mut(chunk).ok_or(FsError::Later)
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

    /// Any sequence of writes and resizes must have the same result as with a plain vector, and
    /// correct accounting.
    #[test]
    fn behaves_as_a_vector_does() {
        #[allow(clippy::needless_pass_by_value)]
        fn check(steps: Vec<(u32, u16, u8, bool)>, piece: u16) -> bool {
            let budget = Arc::new(Budget::new(1 << 30));
            let (mut content, mut model) = (Content::default(), Vec::new());
            let mut held = Vec::new();
            for (at, len, fill, cut) in steps {
                let at = (at % 300_000) as usize;
                // For some, a reader holds the previous content.
                if fill % 3 == 0 {
                    let shared = content.share(at as u64, u64::from(len));
                    let end = model.len().min(at + usize::from(len));
                    held.push((shared, model[at.min(end)..end].to_vec()));
                }
                if cut {
                    content.resize(at as u64, &budget).unwrap();
                    model.resize(at, 0);
                    continue;
                }
                let mut data = vec![fill; usize::from(len)];
                // The first byte of each piece is different.
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
            let same = bytes(&content) == model
                && content.share(0, u64::MAX) == model[..]
                && held.iter().all(|(shared, then)| *shared == then[..])
                && budget.used() >= content.allocated();
            drop(held);
            let counted = budget.used() == content.allocated();
            content.resize(0, &budget).unwrap();
            same && counted && budget.used() == 0
        }
        quickcheck::quickcheck(check as fn(Vec<(u32, u16, u8, bool)>, u16) -> bool);
    }

    #[test]
    fn holes_take_no_memory() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut content = Content::default();
        content.write(1 << 40, &b"end".into(), &budget).unwrap();
        assert_eq!(content.size(), (1 << 40) + 3);
        assert!(content.allocated() <= CHUNK, "{}", content.allocated());
        let mut out = [1; 6];
        assert_eq!(content.read((1 << 40) - 3, &mut out), 6);
        assert_eq!(&out, b"\0\0\0end");
    }

    #[test]
    fn what_is_shared_is_where_it_lies_and_holes_take_no_memory() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut content = Content::default();
        content.write(2 * CHUNK, &b"end".into(), &budget).unwrap();
        let (whole, used) = (content.share(0, u64::MAX), budget.used());
        assert_eq!(whole.len() as u64, content.size());
        assert_eq!(whole.pieces().len(), 3, "two of zeroes, and the end");
        let again = content.share(2 * CHUNK, 100);
        assert_eq!(again.pieces()[0].as_ptr(), whole.pieces()[2].as_ptr());
        assert_eq!((again, budget.used()), (b"end".into(), used));
        assert!(content.share(content.size(), 1).is_empty());
    }

    #[test]
    fn what_is_held_counts_until_it_is_let_go_of() {
        let budget = Arc::new(Budget::new(2 * CHUNK));
        let mut content = Content::default();
        let full = Bulk::from(vec![1; CHUNK as usize]);
        content.write(0, &full, &budget).unwrap();
        let first = content.share(0, CHUNK);
        content.write(0, &b"2".into(), &budget).unwrap();
        assert_eq!((first.pieces()[0][0], budget.used()), (1, 2 * CHUNK));
        assert_eq!(content.allocated(), CHUNK);
        let second = content.share(0, CHUNK);
        // There is no memory for a third chunk: the change fails and nothing has changed.
        assert_eq!(content.write(0, &b"3".into(), &budget), Err(FsError::Later));
        assert_eq!(content.resize(CHUNK - 1, &budget), Err(FsError::Later));
        assert_eq!((content.size(), content.allocated()), (CHUNK, CHUNK));
        assert_eq!(content.share(0, CHUNK), second);
        // The memory that the file and others request would be free without the readers.
        assert_eq!(content.write(CHUNK, &full, &budget), Err(FsError::Later));
        assert_eq!(budget.take(1), Err(FsError::Later));
        assert_eq!(budget.take(CHUNK + 1), Err(FsError::NoSpace));
        drop(first);
        content.write(0, &b"3".into(), &budget).unwrap();
        assert_eq!((second.pieces()[0][0], bytes(&content)[0]), (b'2', b'3'));
        assert_eq!(
            (budget.take(1), budget.used()),
            (Err(FsError::Later), 2 * CHUNK)
        );
        content.resize(0, &budget).unwrap();
        assert_eq!((content.allocated(), budget.used()), (0, CHUNK));
        assert_eq!(budget.take(2 * CHUNK), Err(FsError::Later));
        drop(second);
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.take(2 * CHUNK + 1), Err(FsError::NoSpace));
        assert_eq!(budget.take(2 * CHUNK), Ok(()));
    }

    /// The second of two chunks cannot be copied: nothing has changed, and the first copy is
    /// charged.
    #[test]
    fn a_write_that_is_put_off_in_the_middle_changes_nothing() {
        let budget = Arc::new(Budget::new(3 * CHUNK));
        let mut content = Content::default();
        let old = Bulk::from(vec![1; 2 * CHUNK as usize]);
        let new = Bulk::from(vec![2; 2 * CHUNK as usize]);
        content.write(0, &old, &budget).unwrap();
        let held = content.share(0, u64::MAX);
        assert_eq!(content.write(0, &new, &budget), Err(FsError::Later));
        assert_eq!(
            (content.share(0, u64::MAX), budget.used()),
            (old, 3 * CHUNK)
        );
        drop(held);
        assert_eq!(budget.used(), 2 * CHUNK);
        content.write(0, &new, &budget).unwrap();
        assert_eq!(content.share(0, u64::MAX), new);
    }

    #[test]
    fn a_write_that_does_not_fit_changes_nothing() {
        let budget = Arc::new(Budget::new(CHUNK));
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
