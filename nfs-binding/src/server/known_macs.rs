//! The MACs of handles that were issued or opened of late.
//!
//! A MAC is a keyed hash, which takes longer than anything else that a listing does for an entry, and
//! a handle is opened for each call. Clients list the same directories and use the same handles again
//! and again, so the MAC is computed once and remembered.
//!
//! All loops of a server share the memory, and none waits for another: a slot is written and read word
//! by word without a lock. Each word of the id is stored combined with the MAC, so a reader recognises
//! its id only if all words come from the same write. A mixture of two writes would pass only if two
//! MACs, which are as good as random numbers, agreed in 64 bits. Its handle would be refused as stale.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fs::FileId;

/// The number of slots: a directory of a few thousand entries is remembered as a whole. Together they
/// take 160 KiB.
const SLOTS: usize = 4096;
/// The number of words that an id takes. Those of the file system in memory and of Linux's usual file
/// systems fit.
const ID_WORDS: usize = 3;
/// The number of words that a MAC is known by: those of the id, and one for the export and the length.
const WORDS: usize = ID_WORDS + 1;

/// The words that a MAC is known by, each combined with the MAC, and the MAC.
#[derive(Default)]
struct Slot {
    words: [AtomicU64; WORDS],
    mac: AtomicU64,
}

/// The MACs of handles that were issued or opened of late. See the module's documentation.
#[derive(Default)]
pub(super) struct KnownMacs(OnceLock<Box<[Slot]>>);

impl fmt::Debug for KnownMacs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownMacs(secret)")
    }
}

/// Returns the words that the MAC of `id` in an export is known by. `None` if the id is too long to be
/// remembered, or empty: the words of a slot that was never written must not be those of an id.
#[inline]
fn words(export: u32, id: &FileId) -> Option<[u64; WORDS]> {
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

/// Returns the index of the slot for a MAC that is known by these words.
#[inline]
fn slot_of(words: [u64; WORDS]) -> usize {
    let [first, second, third, fourth] = words;
    let mixed = (first ^ fourth) ^ (second.rotate_left(21) ^ third.rotate_left(42));
    // The high bits of a product depend on all bits of its factors.
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
}

/// Combines a word with the MAC, differently for each word.
#[inline]
fn combined(at: usize, word: u64, mac: u64) -> u64 {
    word ^ mac.rotate_left(16 * at as u32)
}

impl KnownMacs {
    /// Returns the MAC for the object `id` of an export: the remembered one, or that which `compute`
    /// returns.
    #[inline]
    pub(super) fn get(&self, export: u32, id: &FileId, compute: impl FnOnce() -> u64) -> u64 {
        let Some(words) = words(export, id) else {
            return compute();
        };
        let slots = self
            .0
            .get_or_init(|| (0..SLOTS).map(|_| Slot::default()).collect());
        let slot = &slots[slot_of(words)];
        let known = slot.mac.load(Ordering::Relaxed);
        let is_it = |(at, word): (usize, u64)| {
            slot.words[at].load(Ordering::Relaxed) == combined(at, word, known)
        };
        if words.into_iter().enumerate().all(is_it) {
            return known;
        }
        let mac = compute();
        for (at, word) in words.into_iter().enumerate() {
            slot.words[at].store(combined(at, word, mac), Ordering::Relaxed);
        }
        slot.mac.store(mac, Ordering::Relaxed);
        mac
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use siphasher::sip::SipHasher13;

    use super::*;

    /// Returns a MAC that depends on all that it is of.
    fn mac(export: u32, id: &FileId) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(&export.to_be_bytes());
        hasher.write(id.as_bytes());
        hasher.write_usize(id.as_bytes().len());
        hasher.finish()
    }

    #[test]
    fn macs_are_computed_once_and_for_their_object_alone() {
        let macs = KnownMacs::default();
        let computed = Cell::new(0);
        let get = |export, id: &FileId| {
            macs.get(export, id, || {
                computed.set(computed.get() + 1);
                mac(export, id)
            })
        };
        let id = FileId::new(&[7; 18]).unwrap();
        for _ in 0..3 {
            assert_eq!(get(1, &id), mac(1, &id));
        }
        assert_eq!(computed.get(), 1);
        // Each would be taken for the first if one of the words or the length were not compared.
        for changed in 0..18 {
            let mut bytes = [7; 18];
            bytes[changed] = 8;
            let other = FileId::new(&bytes).unwrap();
            assert_eq!(get(1, &other), mac(1, &other), "byte {changed}");
        }
        assert_eq!(get(2, &id), mac(2, &id));
        for len in 0..=FileId::MAX_LEN {
            let zeroes = FileId::new(&[0; FileId::MAX_LEN][..len]).unwrap();
            for export in [0, 1] {
                let other = get(export, &zeroes);
                assert_eq!(other, mac(export, &zeroes), "{len} zeroes of {export}");
            }
        }
    }

    #[test]
    fn threads_that_share_slots_get_no_macs_of_others() {
        let macs = KnownMacs::default();
        // These have the same slot, and differ in one word of the id.
        let ids: Vec<FileId> = (0_u64..)
            .map(|number| FileId::new(&number.to_be_bytes()).unwrap())
            .filter(|id| slot_of(words(1, id).unwrap()) == 0)
            .take(4)
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (macs, ids) = (&macs, &ids);
                scope.spawn(move || {
                    for turn in 0..20_000 {
                        let id = &ids[(turn * (thread + 1)) % ids.len()];
                        assert_eq!(macs.get(1, id, || mac(1, id)), mac(1, id));
                    }
                });
            }
        });
    }
}
