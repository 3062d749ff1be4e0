//! Pseudo-random numbers from a seed.

use std::time::Duration;

/// A generator of pseudo-random numbers that repeats exactly: SplitMix64, which has a period of
/// 2^64 and passes the usual tests. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed. All seeds are equally good.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a separate generator for one purpose. Numbers drawn from it do not affect those
    /// drawn from this one or from the generators for other purposes.
    #[must_use]
    pub const fn split(&self, purpose: u64) -> Self {
        let mut child = Self(self.0 ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let seed = child.next();
        Self(seed)
    }

    /// Returns 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both inclusive.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Returns true with a probability of `parts` in a million.
    pub fn chance(&mut self, parts: u32) -> bool {
        parts > 0 && self.below(1_000_000) < u64::from(parts)
    }

    /// Returns a duration shorter than `end`.
    pub fn duration(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns one of `options`.
    ///
    /// # Panics
    /// Panics if `options` is empty.
    pub fn pick<T: Clone>(&mut self, options: &[T]) -> T {
        options[self.below(options.len() as u64) as usize].clone()
    }
}
