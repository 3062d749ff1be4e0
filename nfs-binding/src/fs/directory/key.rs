//! What names an object of a host's directory in a handle.
//!
//! The host does not let an unprivileged, safe program open a file by its inode number, so a handle
//! holds besides the inode's number and birth time (together its [`Key`]) a [`Trail`]: 16 bits of
//! the inode number of each directory on the way to it. After a restart, when no memory of paths is
//! left, the trail leads back to the file in as many directory reads as the file is deep. It is a
//! hint: a file that was moved since is found by a scan of the export.

use rustix::fs::{Statx, StatxFlags};

use crate::fs::{FileId, FsError, FsResult};

/// Bytes of a key in a [`FileId`].
const KEY_LEN: usize = 16;
/// Directories that a trail holds. Deeper objects have those nearest to the root.
const TRAIL_LEN: usize = (FileId::MAX_LEN - KEY_LEN) / 2;

/// An object, for as long as it exists: inode numbers are used again, with another birth time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Inode number.
    pub(super) ino: u64,
    /// Birth time, nanoseconds since 1970 (modulo 2^64); 0 where the host has none to be relied
    /// on. There a handle of a removed file can come to mean a later one.
    birth: u64,
}

impl Key {
    /// The key of what was looked at.
    pub(super) fn of(stat: &Statx, births: bool) -> Self {
        let known = births && stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let birth = stat.stx_btime;
        Self {
            ino: stat.stx_ino,
            birth: if known {
                (birth.tv_sec as u64)
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(u64::from(birth.tv_nsec))
            } else {
                0
            },
        }
    }
}

/// The way from the root to an object: a hash of each directory's inode number, without the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trail {
    len: u8,
    steps: [u16; TRAIL_LEN],
}

impl Trail {
    /// The trail of what is in the directory `ino`, whose own trail this is.
    pub(super) fn below(mut self, ino: u64) -> Self {
        if let Some(step) = self.steps.get_mut(usize::from(self.len)) {
            *step = step_of(ino);
            self.len += 1;
        }
        self
    }

    /// Its steps, from the root down.
    pub(super) fn steps(&self) -> &[u16] {
        &self.steps[..usize::from(self.len)]
    }
}

/// 16 bits of an inode number, all of its bits mixed in (Fibonacci hashing).
pub(super) fn step_of(ino: u64) -> u16 {
    (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

/// The id of an object.
pub(super) fn encode(key: Key, trail: &Trail) -> FileId {
    let mut bytes = [0; FileId::MAX_LEN];
    bytes[..8].copy_from_slice(&key.ino.to_be_bytes());
    bytes[8..KEY_LEN].copy_from_slice(&key.birth.to_be_bytes());
    let mut len = KEY_LEN;
    for step in trail.steps() {
        bytes[len..len + 2].copy_from_slice(&step.to_be_bytes());
        len += 2;
    }
    FileId::new(&bytes[..len]).expect("key and trail fit an id")
}

/// What an id names.
pub(super) fn decode(id: &FileId) -> FsResult<(Key, Trail)> {
    let (key, rest) = id
        .as_bytes()
        .split_first_chunk::<KEY_LEN>()
        .ok_or(FsError::BadHandle)?;
    let key = u128::from_be_bytes(*key);
    let mut trail = Trail::default();
    if rest.len() % 2 != 0 {
        return Err(FsError::BadHandle);
    }
    for (step, bytes) in trail.steps.iter_mut().zip(rest.chunks_exact(2)) {
        *step = u16::from_be_bytes([bytes[0], bytes[1]]);
        trail.len += 1;
    }
    let key = Key {
        ino: (key >> 64) as u64,
        birth: key as u64,
    };
    Ok((key, trail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_hold_key_and_trail() {
        let key = Key { ino: 7, birth: 9 };
        let mut trail = Trail::default();
        for depth in 0..40 {
            let id = encode(key, &trail);
            assert_eq!(decode(&id), Ok((key, trail)));
            assert_eq!(id.as_bytes().len(), 16 + 2 * depth.min(16));
            trail = trail.below(depth as u64 + 100);
        }
        let short = FileId::new(&[0; 15]).unwrap();
        assert_eq!(decode(&short), Err(FsError::BadHandle));
        let odd = FileId::new(&[0; 19]).unwrap();
        assert_eq!(decode(&odd), Err(FsError::BadHandle));
    }
}
