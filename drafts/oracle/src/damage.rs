//! Damages values, to get data that is nearly valid.

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};

/// Words with a meaning in some place: small numbers, versions, lengths near limits.
const WORDS: &[u32] = &[
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    16,
    28,
    63,
    64,
    65,
    512,
    513,
    4096,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ff00,
    0xffff_fffc,
    0xffff_fffd,
    0xffff_ffff,
];

/// Returns a copy with one change, which may happen to be valid.
#[must_use]
pub fn damage(g: &mut Gen, bytes: &Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    let words = bytes.len() / 4;
    match u8::arbitrary(g) % 6 {
        0 if !bytes.is_empty() => {
            for _ in 0..=u8::arbitrary(g) % 3 {
                let bit = usize::arbitrary(g) % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        1 if !bytes.is_empty() => bytes.truncate(usize::arbitrary(g) % bytes.len()),
        2 if words > 0 => {
            let at = 4 * (usize::arbitrary(g) % words);
            let word = g.choose(WORDS).copied().unwrap_or(0);
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        3 if words > 0 => {
            let at = 4 * (usize::arbitrary(g) % words);
            bytes.drain(at..at + 4);
        }
        4 if words > 0 => {
            let at = 4 * (usize::arbitrary(g) % words);
            let twice: Vec<_> = bytes[at..at + 4].to_vec();
            bytes.splice(at..at, twice);
        }
        _ => {
            // Appends random words of small numbers after the fields that all headers begin with.
            bytes.truncate(bytes.len().min(16));
            for _ in 0..usize::arbitrary(g) % 24 {
                let word = u32::arbitrary(g) % 4;
                bytes.extend_from_slice(&word.to_be_bytes());
            }
        }
    }
    Bytes::from(bytes)
}
