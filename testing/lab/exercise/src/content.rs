//! Reproducible pseudo-random content, and checksums of files.

use std::fs::File;
use std::hash::Hasher;
use std::io::Read;
use std::path::Path;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::Failure;

/// The number of bytes read at a time.
const BLOCK: usize = 256 << 10;

/// Returns `len` pseudo-random bytes that depend only on `number`.
#[must_use]
pub fn bytes(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(number).fill(&mut bytes);
    bytes
}

/// Returns a checksum of 32 hexadecimal digits. It detects accidental changes, not intentional
/// ones: its key is not secret.
#[must_use]
pub fn sum(bytes: &[u8]) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    format!("{:032x}", hasher.finish128().as_u128())
}

/// Returns the [`sum`] of a file's content.
///
/// # Errors
/// The file cannot be read.
pub fn sum_of_file(path: &Path) -> Result<String, Failure> {
    let mut file = File::open(path).map_err(Failure::at("open", path))?;
    let mut hasher = SipHasher13::new();
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block).map_err(Failure::at("read", path))? {
            0 => return Ok(format!("{:032x}", hasher.finish128().as_u128())),
            count => hasher.write(&block[..count]),
        }
    }
}

/// Returns the first position at which two contents differ, with an excerpt of both.
#[must_use]
pub fn difference(wanted: &[u8], found: &[u8]) -> Option<(usize, String)> {
    let common = wanted
        .iter()
        .zip(found)
        .position(|(one, other)| one != other);
    let at = match common {
        Some(at) => at,
        None if wanted.len() == found.len() => return None,
        None => wanted.len().min(found.len()),
    };
    let some = |bytes: &[u8]| {
        let rest = bytes.get(at..).unwrap_or_default();
        format!("{:02x?}", &rest[..rest.len().min(8)])
    };
    let count = wanted
        .iter()
        .zip(found)
        .filter(|(one, other)| one != other)
        .count();
    let text = format!(
        "{} bytes wanted, {} found, {count} differ; the first at {at}: wanted {}, found {}",
        wanted.len(),
        found.len(),
        some(wanted),
        some(found)
    );
    Some((at, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_depends_on_its_number_alone() {
        assert_eq!(bytes(7, 1000), bytes(7, 1000));
        assert_ne!(bytes(7, 1000), bytes(8, 1000));
        assert_ne!(sum(&bytes(7, 1000)), sum(&bytes(7, 1001)));
    }

    #[test]
    fn a_file_has_the_sum_of_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let content = bytes(1, BLOCK + 17);
        std::fs::write(&path, &content).unwrap();
        assert_eq!(sum_of_file(&path).unwrap(), sum(&content));
    }

    #[test]
    fn a_difference_is_placed() {
        assert_eq!(difference(b"abcd", b"abcd"), None);
        assert_eq!(difference(b"abcd", b"abxd").unwrap().0, 2);
        assert_eq!(difference(b"abcd", b"ab").unwrap().0, 2);
        assert_eq!(difference(b"ab", b"abcd").unwrap().0, 2);
    }
}
