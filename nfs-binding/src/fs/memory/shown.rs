//! The attributes of an object as they are read without its lock: a listing has hundreds of objects.
//!
//! They are a copy, which whoever has changed an object under its lock stores before it unlocks the
//! object. A sequence number is odd meanwhile (a seqlock). A reader that meets a writer tries again, and
//! after some tries waits for the lock.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::proto::{Attributes, DeviceNumber, FileType, NfsTime};

/// The words of the attributes that change.
const WORDS: usize = 7;
/// The maximum number of tries to read while another thread writes, which takes some ten
/// instructions unless that thread is interrupted.
const TRIES: u32 = 64;

/// The attributes of an object.
#[derive(Debug)]
pub(super) struct Shown {
    /// Odd while a thread writes `words`. Only the holder of the object's lock does.
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
    // Those that never change.
    file_type: FileType,
    rdev: DeviceNumber,
    fileid: u64,
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << u32::BITS | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> u32::BITS) as u32, word as u32)
}

fn words(attributes: &Attributes) -> [u64; WORDS] {
    let time = |time: NfsTime| pair(time.seconds, time.nanos);
    [
        pair(attributes.mode, attributes.nlink),
        pair(attributes.uid, attributes.gid),
        attributes.size,
        attributes.used,
        time(attributes.atime),
        time(attributes.mtime),
        time(attributes.ctime),
    ]
}

impl Shown {
    pub(super) fn new(attributes: &Attributes) -> Self {
        debug_assert_eq!(attributes.fsid, 0);
        Self {
            sequence: AtomicU64::new(0),
            words: words(attributes).map(AtomicU64::new),
            file_type: attributes.file_type,
            rdev: attributes.rdev,
            fileid: attributes.fileid,
        }
    }

    /// Stores attributes. The caller holds the object's lock for writing.
    pub(super) fn store(&self, attributes: &Attributes) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before + 1, Ordering::Relaxed);
        // A reader that sees one of the stores below also sees the odd number.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words(attributes)) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence.store(before + 2, Ordering::Release);
    }

    /// Returns the attributes. `None` if another thread was writing all the time.
    #[inline]
    pub(super) fn load(&self) -> Option<Attributes> {
        for _ in 0..TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            let words = self
                .words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed));
            // The loads above happen before the load below.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return Some(self.attributes(words));
            }
            std::hint::spin_loop();
        }
        None
    }

    #[inline]
    fn attributes(&self, words: [u64; WORDS]) -> Attributes {
        let [mode_nlink, owner, size, used, atime, mtime, ctime] = words;
        let ((mode, nlink), (uid, gid)) = (halves(mode_nlink), halves(owner));
        let time = |word| {
            let (seconds, nanos) = halves(word);
            NfsTime { seconds, nanos }
        };
        Attributes {
            file_type: self.file_type,
            mode,
            nlink,
            uid,
            gid,
            size,
            used,
            rdev: self.rdev,
            fsid: 0,
            fileid: self.fileid,
            atime: time(atime),
            mtime: time(mtime),
            ctime: time(ctime),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Returns attributes whose numbers that change are all different, and depend on `seed`.
    fn numbered(seed: u32) -> Attributes {
        let long = |at: u32| pair(seed, at);
        let time = |at| NfsTime {
            seconds: seed,
            nanos: at,
        };
        Attributes {
            file_type: FileType::Block,
            mode: seed,
            nlink: seed + 1,
            uid: seed + 2,
            gid: seed + 3,
            size: long(1),
            used: long(2),
            rdev: DeviceNumber { major: 3, minor: 4 },
            fsid: 0,
            fileid: 5,
            atime: time(6),
            mtime: time(7),
            ctime: time(8),
        }
    }

    #[test]
    fn the_attributes_are_those_stored_last() {
        let shown = Shown::new(&numbered(1));
        assert_eq!(shown.load(), Some(numbered(1)));
        shown.store(&numbered(2));
        assert_eq!(shown.load(), Some(numbered(2)));
        shown.sequence.fetch_add(1, Ordering::Relaxed);
        assert_eq!(shown.load(), None, "a thread is writing");
    }

    #[test]
    fn a_reader_beside_a_writer_gets_attributes_of_one_time() {
        const CHANGES: u32 = 20_000;
        let (shown, ended) = (Shown::new(&numbered(0)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !ended.load(Ordering::Acquire) {
                        let Some(attributes) = shown.load() else {
                            continue;
                        };
                        assert!(attributes.mode >= last, "no earlier ones than before");
                        last = attributes.mode;
                        assert_eq!(attributes, numbered(last));
                    }
                });
            }
            for seed in 1..=CHANGES {
                shown.store(&numbered(seed));
            }
            ended.store(true, Ordering::Release);
        });
        assert_eq!(shown.load(), Some(numbered(CHANGES)));
    }
}
