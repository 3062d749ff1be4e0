//! Generators of arbitrary parts of values.

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};

/// Returns up to `max` values.
pub(super) fn few<T>(g: &mut Gen, max: usize, mut one: impl FnMut(&mut Gen) -> T) -> Vec<T> {
    let n = usize::arbitrary(g) % (max + 1);
    (0..n).map(|_| one(g)).collect()
}

/// Returns a 32-bit number of any magnitude.
pub(super) fn number(g: &mut Gen) -> u32 {
    u32::arbitrary(g) >> (u8::arbitrary(g) % 32)
}

/// Returns a 64-bit number of any magnitude.
pub(super) fn wide(g: &mut Gen) -> u64 {
    u64::arbitrary(g) >> (u8::arbitrary(g) % 64)
}

/// Returns some bytes, with any length modulo four.
pub(super) fn opaque(g: &mut Gen) -> Bytes {
    few(g, 24, u8::arbitrary).into()
}

/// Returns one of the given values.
pub(super) fn one_of<T: Clone>(g: &mut Gen, of: &[T]) -> Option<T> {
    g.choose(of).cloned()
}
