//! Maps keyed by numbers that this side assigns: XIDs, connections, queue pairs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by numbers that this side assigns. No peer chooses them, so they need no hashing
/// against a hostile choice. The order of the map is the same in every run.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The hasher of [`IdMap`].
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.write_u64(u64::from(id));
    }

    fn write_u64(&mut self, id: u64) {
        // Fibonacci hashing. The table takes the bucket from the low bits, where an odd factor
        // keeps neighbours apart, and a tag of each entry from the high bits, over which the
        // factor spreads them.
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
