//! The identity of an object: its file system, and what the kernel calls the file in it.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the file system: `fsid=` of the export, or `f_fsid` of statfs(2), which most file systems make of their UUID (xfs has the device's number there) |
//! | 1 | what follows: a [`Tag`] |
//! | the rest | the kernel's handle (`name_to_handle_at(2)`) with its type, or what stands in for it |
//!
//! There is no path in it, and nothing that depends on how or when the object was found: one object
//! has one identity, for as long as it exists, over restarts and renames, with and without
//! privilege. The generation in the kernel's handle tells a later file with the same inode number
//! apart. Where there is none, the birth time does.

use std::hash::Hasher;

use linux_file_handle::{FileHandle, Form};
use rustix::fs::{Statx, StatxFlags};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::fs::{FileId, FsError, FsResult};

/// Bytes before what depends on the tag.
const HEAD: usize = 9;
/// Type of a handle that the kernel makes for file systems without an encoding of their own: inode
/// number and generation (`FILEID_INO64_GEN`).
const GENERIC: i32 = 0x81;
/// Bytes of the inode number in such a handle; the generation follows.
const GENERIC_INODE: usize = 8;

/// Format of an identity behind the number of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    /// The kernel's handle: its type (1 byte) and bytes.
    Handle = 1,
    /// The same, and the birth time (8 bytes) at the end, as the handle has no generation.
    HandleAndBirth = 2,
    /// Inode number and birth time (8 bytes each).
    InodeAndBirth = 3,
    /// Inode number alone (8 bytes): a later file with the same number is taken for this one.
    Inode = 4,
    /// A keyed hash (16 bytes) of what would be too long.
    Hash = 5,
    /// A keyed hash (16 bytes) of the identity of what is mounted on an empty directory.
    Covered = 6,
}

/// How the files of a file system are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// By handles that the kernel can open again.
    Decodable,
    /// By handles that only tell files apart.
    Identifying,
    /// By inode number and birth time.
    Births,
    /// By inode number alone, which the administrator has accepted.
    Inodes,
}

/// A file system in which removed files cannot be told from later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this file system tells a removed file from a later one with the same inode number neither by a \
     generation nor by a birth time, so that a client's old handle could come to mean another file; \
     add the export option inode_reuse if you accept that"
)]
pub struct NoIdentity;

/// Secret of hashed identities.
#[derive(Clone, Copy)]
pub struct IdentityKey([u8; 16]);

impl IdentityKey {
    /// A key from its bytes.
    #[must_use]
    pub fn from_bytes(key: [u8; 16]) -> Self {
        Self(key)
    }

    fn hash(&self, bytes: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(bytes);
        hasher.finish128().as_bytes()
    }
}

impl std::fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdentityKey(secret)")
    }
}

/// The birth time in nanoseconds since 1970 (modulo 2^64), where the file system has one.
fn birth(stat: &Statx) -> Option<[u8; 8]> {
    let time = stat.stx_btime;
    let nanoseconds = (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(time.tv_nsec));
    (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| nanoseconds.to_be_bytes())
}

/// Whether a handle has a generation. A generic one can have the generation 0, which is no proof of
/// there being any: /proc hands out such handles.
fn has_generation(handle: &FileHandle) -> bool {
    let generation = handle.as_bytes().get(GENERIC_INODE..);
    handle.kind() != GENERIC || generation.is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0))
}

impl Naming {
    /// How the files of the file system of `fd` are told apart. `reuse` accepts that removed files
    /// are not.
    ///
    /// # Errors
    /// [`NoIdentity`], unless that is accepted.
    pub(super) fn find(
        fd: impl std::os::fd::AsFd,
        stat: &Statx,
        reuse: bool,
    ) -> Result<Self, NoIdentity> {
        if FileHandle::of(&fd, Form::Decodable).is_ok() {
            return Ok(Self::Decodable);
        }
        let handle = FileHandle::of(&fd, Form::Identifying).ok();
        let births = birth(stat).is_some();
        match handle {
            Some(handle) if births || has_generation(&handle) => Ok(Self::Identifying),
            // Before Linux 6.5 an overlay has no handles, and its birth times change when a file
            // is copied up.
            None if births && !is_overlay(&fd) => Ok(Self::Births),
            _ if reuse => Ok(Self::Inodes),
            _ => Err(NoIdentity),
        }
    }

    /// The identity of the object of `fd` in the file system `fsid`.
    pub(super) fn identify(
        self,
        fsid: u64,
        fd: impl std::os::fd::AsFd,
        stat: &Statx,
        key: &IdentityKey,
    ) -> FsResult<FileId> {
        let inode = stat.stx_ino.to_be_bytes();
        let form = match self {
            Self::Decodable => Form::Decodable,
            Self::Identifying => Form::Identifying,
            Self::Births => {
                let birth = birth(stat).ok_or(FsError::NotSupported)?;
                return Ok(encode(fsid, Tag::InodeAndBirth, &[&inode, &birth], key));
            }
            Self::Inodes => return Ok(encode(fsid, Tag::Inode, &[&inode], key)),
        };
        let handle = FileHandle::of(fd, form)?;
        // A type of more than a byte does not exist; it would be hashed, and not cut.
        let kind = handle.kind().to_be_bytes();
        let kind = match kind {
            [0, 0, 0, _] => &kind[3..],
            _ => &kind[..],
        };
        let bytes = handle.as_bytes();
        if kind.len() > 1 {
            return Ok(hashed(fsid, Tag::Hash, &[kind, bytes], key));
        }
        if self == Self::Identifying && !has_generation(&handle) {
            let birth = birth(stat).ok_or(FsError::NotSupported)?;
            return Ok(encode(
                fsid,
                Tag::HandleAndBirth,
                &[kind, bytes, &birth],
                key,
            ));
        }
        Ok(encode(fsid, Tag::Handle, &[kind, bytes], key))
    }
}

/// Whether `fd` is of an overlay file system.
fn is_overlay(fd: impl std::os::fd::AsFd) -> bool {
    /// `f_type` (statfs(2)).
    const OVERLAYFS: u64 = 0x794c_7630;
    rustix::fs::fstatfs(fd).is_ok_and(|stat| stat.f_type as u64 == OVERLAYFS)
}

/// An identity of parts; of a hash of them where they are too long.
fn encode(fsid: u64, tag: Tag, parts: &[&[u8]], key: &IdentityKey) -> FileId {
    let mut bytes = [0; FileId::MAX_LEN];
    bytes[..8].copy_from_slice(&fsid.to_be_bytes());
    bytes[8] = tag as u8;
    let mut len = HEAD;
    for part in parts {
        let Some(room) = bytes.get_mut(len..len + part.len()) else {
            return hashed(fsid, Tag::Hash, parts, key);
        };
        room.copy_from_slice(part);
        len += part.len();
    }
    FileId::new(&bytes[..len]).expect("no longer than the array that it is a part of")
}

/// An identity of a keyed hash of parts.
fn hashed(fsid: u64, tag: Tag, parts: &[&[u8]], key: &IdentityKey) -> FileId {
    let mut all = fsid.to_be_bytes().to_vec();
    for part in parts {
        all.extend_from_slice(part);
    }
    // Short enough: 9 bytes and 16.
    encode(fsid, tag, &[&key.hash(&all)], key)
}

/// The identity of the root of a file system as such, whichever export it is seen from.
pub(super) fn of_root(
    fd: impl std::os::fd::AsFd,
    stat: &Statx,
    key: &IdentityKey,
) -> FsResult<FileId> {
    let naming = Naming::find(&fd, stat, true).map_err(|NoIdentity| FsError::NotSupported)?;
    let number = super::host::file_system_number(&fd)?;
    naming.identify(number, fd, stat, key)
}

/// The identity of the empty directory that stands where another file system, whose root is
/// `mounted`, is not crossed into. It needs no table: every such identity that this server has
/// given out means an empty directory.
pub(super) fn covered(fsid: u64, mounted: &FileId, key: &IdentityKey) -> FileId {
    hashed(fsid, Tag::Covered, &[mounted.as_bytes()], key)
}

/// The file id (inode number) of a placeholder directory, or `None` if `id` does not identify one.
pub(super) fn covered_number(id: &FileId) -> Option<u64> {
    let (&tag, rest) = id.as_bytes().get(HEAD - 1..)?.split_first()?;
    let number = rest.first_chunk::<8>()?;
    (tag == Tag::Covered as u8).then(|| u64::from_be_bytes(*number))
}

/// The parts of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// The file system.
    pub(super) fsid: u64,
    /// The kernel's file handle, if the identity contains one that `open_by_handle_at(2)` accepts.
    pub(super) handle: Option<FileHandle>,
    /// Whether it is an empty directory in place of a file system.
    pub(super) covered: bool,
}

/// Takes an identity apart.
///
/// # Errors
/// [`FsError::BadHandle`] when it was not made here.
pub(super) fn decode(id: &FileId) -> FsResult<Decoded> {
    let bytes = id.as_bytes();
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or(FsError::BadHandle)?;
    let (&tag, rest) = rest.split_first().ok_or(FsError::BadHandle)?;
    let decoded = Decoded {
        fsid: u64::from_be_bytes(*head),
        handle: None,
        covered: covered_number(id).is_some(),
    };
    let is = |wanted: Tag| tag == wanted as u8;
    if is(Tag::Handle) {
        let (&kind, handle) = rest.split_first().ok_or(FsError::BadHandle)?;
        return Ok(Decoded {
            handle: FileHandle::new(i32::from(kind), handle),
            ..decoded
        });
    }
    let known = [
        Tag::HandleAndBirth,
        Tag::InodeAndBirth,
        Tag::Inode,
        Tag::Hash,
    ];
    if !decoded.covered && !known.into_iter().any(is) {
        return Err(FsError::BadHandle);
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: IdentityKey = IdentityKey([3; 16]);

    #[test]
    fn a_kernel_handle_comes_out_as_it_went_in() {
        let handle = FileHandle::new(0x4d, &[7; 20]).unwrap();
        let id = encode(9, Tag::Handle, &[&[0x4d], handle.as_bytes()], &KEY);
        let decoded = decode(&id).unwrap();
        assert_eq!((decoded.fsid, decoded.handle), (9, Some(handle)));
        assert_eq!(id.as_bytes().len(), HEAD + 1 + 20);
    }

    /// RFC 1813, section 2.4: a handle has at most 64 bytes.
    #[test]
    fn what_is_too_long_is_hashed_with_the_key_and_its_file_system() {
        let long = [5; 39];
        let id = encode(9, Tag::Handle, &[&[1], &long], &KEY);
        assert_eq!(id.as_bytes().len(), HEAD + 16);
        let decoded = decode(&id).unwrap();
        assert_eq!((decoded.fsid, decoded.handle), (9, None));
        assert_ne!(id, encode(8, Tag::Handle, &[&[1], &long], &KEY));
        let mut other = long;
        other[38] = 6;
        assert_ne!(id, encode(9, Tag::Handle, &[&[1], &other], &KEY));
        let other = IdentityKey([4; 16]);
        assert_ne!(id, encode(9, Tag::Handle, &[&[1], &long], &other));
        let fits = encode(9, Tag::Handle, &[&[1], &long[..38]], &KEY);
        assert_eq!(fits.as_bytes().len(), FileId::MAX_LEN);
    }

    #[test]
    fn a_generic_handle_of_generation_0_proves_nothing() {
        let generic = |generation: [u8; 4]| {
            let mut bytes = [0; 12];
            bytes[0] = 42;
            bytes[8..].copy_from_slice(&generation);
            has_generation(&FileHandle::new(GENERIC, &bytes).unwrap())
        };
        assert!(!generic([0; 4]));
        assert!(generic([0, 1, 0, 0]));
        assert!(has_generation(&FileHandle::new(1, &[0; 8]).unwrap()));
        assert!(!has_generation(&FileHandle::new(GENERIC, &[1; 8]).unwrap()));
    }

    #[test]
    fn foreign_bytes_are_no_identity() {
        for bytes in [
            &[][..],
            &[0; 8],
            &[0; 9],
            &[9; 20],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1],
        ] {
            let id = FileId::new(bytes).unwrap();
            assert_eq!(decode(&id), Err(FsError::BadHandle), "{bytes:?}");
        }
    }

    #[test]
    fn a_covered_directory_is_told_by_its_identity_alone() {
        let mounted = FileId::new(&[1; 30]).unwrap();
        let id = covered(9, &mounted, &KEY);
        assert!(decode(&id).unwrap().covered && covered_number(&id).is_some());
        let other = FileId::new(&[2; 30]).unwrap();
        assert_ne!(id, covered(9, &other, &KEY));
    }
}
