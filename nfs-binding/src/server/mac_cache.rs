//! A cache of the MACs of handles that were issued, so that a directory that is listed again costs no
//! keyed hash for each entry.
//!
//! The cache is direct-mapped: an id has one slot, and the last id of those that share a slot is kept.
//! All loops of a server share it, and none waits for another. Each slot has a sequence number, which is
//! odd while the slot is written (a seqlock). A reader that meets a writer computes the MAC, and stores it
//! only if no other thread is writing the slot by then.
//!
//! Only [`HandleCodec::issue`](super::handle::HandleCodec::issue) uses the cache. The MAC of a handle that
//! a client presents is computed, so clients cannot evict entries with handles that they made up.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::fs::FileId;

/// The number of slots, 256 KiB in total. Entries that share a slot evict each other: of a directory of
/// 1,000 entries about 78 % are found when it is listed again, of one of 300 about 93 %.
const SLOTS: usize = 4096;
const _: () = assert!(SLOTS.is_power_of_two());
/// The number of words of an id: up to 32 bytes. Those of the file system in memory and of the usual
/// ones of Linux (ext4, xfs, btrfs, tmpfs) have up to 30.
const ID_WORDS: usize = 4;
/// The number of words of the key of a slot: the id, and one word for the export and the id's length.
const KEY_WORDS: usize = ID_WORDS + 1;

/// A cached MAC, in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    /// Odd while a thread writes the rest.
    sequence: AtomicU64,
    key: [AtomicU64; KEY_WORDS],
    mac: AtomicU64,
}

/// A cache of MACs. See the documentation of the module.
pub(super) struct MacCache(Box<[Slot]>);

impl Default for MacCache {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Slot::default()).collect())
    }
}

impl fmt::Debug for MacCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacCache(secret)")
    }
}

/// Returns the key of the object `id` of an export. `None` if the id is too long to be cached, or empty:
/// so the key of an unused slot, all zeroes, is that of no object.
#[inline]
fn key_of(export: u32, id: &FileId) -> Option<[u64; KEY_WORDS]> {
    let len = id.as_bytes().len();
    if !(1..=ID_WORDS * 8).contains(&len) {
        return None;
    }
    let words = id.padded().as_chunks::<8>().0;
    Some(std::array::from_fn(|at| match at {
        ID_WORDS => u64::from(export) << u32::BITS | len as u64,
        _ => u64::from_le_bytes(words[at]),
    }))
}

/// Returns the index of the slot for a key.
#[inline]
fn slot_of([first, second, third, fourth, last]: [u64; KEY_WORDS]) -> usize {
    /// Multiplies two words and folds the product, all bits of which depend on both.
    fn folded(one: u64, other: u64) -> u64 {
        let product = u128::from(one) * u128::from(other);
        (product >> u64::BITS) as u64 ^ product as u64
    }
    // Arbitrary odd numbers, so that words of zeroes do not take the others with them.
    let mixed = folded(
        first ^ 0x9e37_79b9_7f4a_7c15,
        second ^ 0xd6e8_feb8_6659_fd93,
    ) ^ folded(third ^ 0xa076_1d64_78bd_642f, (fourth ^ last) | 1);
    mixed as usize % SLOTS
}

impl Slot {
    /// Returns the MAC of the object with this key, if the slot has it and is not being written.
    #[inline]
    fn read(&self, key: &[u64; KEY_WORDS]) -> Option<u64> {
        let before = self.sequence.load(Ordering::Acquire);
        let has_key = self
            .key
            .iter()
            .zip(key)
            .all(|(word, wanted)| word.load(Ordering::Relaxed) == *wanted);
        let mac = self.mac.load(Ordering::Relaxed);
        // The loads above happen before the load below.
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        (has_key && is_whole).then_some(mac)
    }

    /// Replaces the content, unless another thread is doing so.
    fn write(&self, key: &[u64; KEY_WORDS], mac: u64) {
        let before = self.sequence.load(Ordering::Relaxed);
        let begun = before.is_multiple_of(2)
            && self
                .sequence
                .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !begun {
            return;
        }
        // A reader that sees one of the stores below also sees the odd number.
        fence(Ordering::Release);
        for (word, value) in self.key.iter().zip(key) {
            word.store(*value, Ordering::Relaxed);
        }
        self.mac.store(mac, Ordering::Relaxed);
        self.sequence.store(before + 2, Ordering::Release);
    }
}

impl MacCache {
    /// Returns the MAC of the object `id` of an export: from the cache, or by `compute`.
    #[inline]
    pub(super) fn get(&self, export: u32, id: &FileId, compute: impl FnOnce() -> u64) -> u64 {
        let Some(key) = key_of(export, id) else {
            return compute();
        };
        let slot = &self.0[slot_of(key)];
        slot.read(&key).unwrap_or_else(|| {
            let mac = compute();
            slot.write(&key, mac);
            mac
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;
    use std::sync::Barrier;

    use siphasher::sip::SipHasher13;

    use super::*;

    /// Returns a number that depends on all that a MAC depends on.
    fn mac(export: u32, id: &FileId) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(&export.to_be_bytes());
        hasher.write(id.as_bytes());
        hasher.write_usize(id.as_bytes().len());
        hasher.finish()
    }

    /// Returns ids that have the same slot as `id` in export 1, and differ from it in the word `at` alone.
    fn with_other_word(id: FileId, at: usize) -> impl Iterator<Item = FileId> {
        let slot = slot_of(key_of(1, &id).unwrap());
        (1_u32..)
            .map(move |number| {
                let mut bytes = id.as_bytes().to_vec();
                bytes[8 * at..][..4].copy_from_slice(&number.to_be_bytes());
                FileId::new(&bytes).unwrap()
            })
            .filter(move |id| slot_of(key_of(1, id).unwrap()) == slot)
    }

    #[test]
    fn macs_are_computed_once_and_for_their_object_alone() {
        let cache = MacCache::default();
        let computed = Cell::new(0);
        let get = |export, id: &FileId| {
            cache.get(export, id, || {
                computed.set(computed.get() + 1);
                mac(export, id)
            })
        };
        let id = FileId::new(&[0; 32]).unwrap();
        for _ in 0..3 {
            assert_eq!(get(1, &id), mac(1, &id));
        }
        assert_eq!(computed.get(), 1);
        for at in 0..ID_WORDS {
            for other in with_other_word(id, at).take(3) {
                assert_eq!(get(1, &id), mac(1, &id));
                assert_eq!(get(1, &other), mac(1, &other), "word {at}");
            }
        }
        let slot = slot_of(key_of(1, &id).unwrap());
        let in_slot = |export: &u32| slot_of(key_of(*export, &id).unwrap()) == slot;
        let other_export = (2..).find(in_slot).unwrap();
        assert_eq!(get(1, &id), mac(1, &id));
        assert_eq!(get(other_export, &id), mac(other_export, &id));
        for len in 0..=FileId::MAX_LEN {
            let zeroes = FileId::new(&[0; FileId::MAX_LEN][..len]).unwrap();
            for export in [0, 1] {
                let got = get(export, &zeroes);
                assert_eq!(got, mac(export, &zeroes), "{len} zeroes of {export}");
            }
        }
    }

    #[test]
    fn ids_of_one_length_have_slots_of_their_own() {
        // A directory of the file system in memory, and one of ext4 (`key.rs`).
        let in_memory = |number: u64| [9_u64.to_be_bytes(), number.to_be_bytes()].concat();
        let on_disk = |number: u64| {
            let inode = (number as u32).to_le_bytes();
            [&[9; 8][..], &[1, 1], &inode, &[7; 4]].concat()
        };
        for make in [&in_memory as &dyn Fn(u64) -> Vec<u8>, &on_disk] {
            let slots: std::collections::HashSet<usize> = (0..1000)
                .map(|number| FileId::new(&make(number)).unwrap())
                .map(|id| slot_of(key_of(1, &id).unwrap()))
                .collect();
            // Of a thousand random slots, 887 differ.
            assert!(slots.len() > 820, "{}", slots.len());
        }
    }

    #[test]
    fn a_slot_that_is_being_written_is_not_used() {
        let slot = Slot::default();
        let (first, second) = ([1; KEY_WORDS], [2; KEY_WORDS]);
        slot.write(&first, 10);
        assert_eq!((slot.read(&first), slot.read(&second)), (Some(10), None));
        let before = slot.sequence.fetch_add(1, Ordering::Relaxed);
        slot.write(&second, 20);
        assert_eq!((slot.read(&first), slot.read(&second)), (None, None));
        slot.sequence.store(before + 2, Ordering::Relaxed);
        assert_eq!((slot.read(&first), slot.read(&second)), (Some(10), None));
    }

    #[test]
    fn threads_that_share_a_slot_get_no_macs_of_others() {
        const THREADS: usize = 4;
        let cache = MacCache::default();
        let id = FileId::new(&[0; 32]).unwrap();
        let ids: Vec<FileId> = (0..ID_WORDS)
            .flat_map(|at| with_other_word(id, at).take(2))
            .collect();
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (cache, ids, start) = (&cache, &ids, &start);
                scope.spawn(move || {
                    start.wait();
                    for turn in 0..50_000 {
                        let id = &ids[(turn * (2 * thread + 1)) % ids.len()];
                        assert_eq!(cache.get(1, id, || mac(1, id)), mac(1, id));
                    }
                });
            }
        });
    }
}
