//! The identity of an object: its file system, and the kernel's handle of the file in it.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the file system: `fsid=` of the export, or `f_fsid` of statfs(2), which most file systems derive from their UUID (xfs uses the device number); the device number for one below the export without `f_fsid` (FUSE) |
//! | 1 | the format of the rest: a [`Tag`] |
//! | the rest | the kernel's handle (`name_to_handle_at(2)`) with its type, or a substitute |
//!
//! An identity contains no path, so a rename does not change it. It does not depend on whether the
//! server runs as root, nor on whether the object was found by a handle or by name. So an object
//! has one identity as long as it exists, also after a restart of the server, and after one of the
//! host if the file system keeps its number. There are two exceptions: on FAT and exFAT the
//! identity ends when the kernel drops the object from its cache, and in a file system that is
//! exported with `inode_reuse` it is only as lasting as the inode number.
//!
//! A later file can get the inode number of a removed one. The generation in the kernel's handle
//! distinguishes the two. Where there is none, or where handles are not those of files (FUSE), the
//! birth time does.

use std::hash::Hasher;

use linux_file_handle::{FileHandle, Form};
use rustix::fs::{Statx, StatxFlags};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::host;
use crate::fs::{FileId, FsError, FsResult};

/// The number of bytes before the part that depends on the tag.
const HEAD: usize = 9;
/// The type of the generic handle that the kernel builds for file systems without an encoding of
/// their own: inode number and generation (`FILEID_INO64_GEN`).
const GENERIC: i32 = 0x81;
/// The length of the inode number in a generic handle, in bytes. The generation follows.
const GENERIC_INODE: usize = 8;

/// The format of an identity after the number of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    /// The kernel's handle: its type (1 byte) and bytes.
    Handle = 1,
    /// The kernel's handle without a generation, followed by the birth time (8 bytes).
    HandleAndBirth = 2,
    /// The inode number and birth time (8 bytes each).
    InodeAndBirth = 3,
    /// The inode number alone (8 bytes): a later file with the same number counts as the same file.
    Inode = 4,
    /// A keyed hash (16 bytes) of an identity that would be too long.
    Hash = 5,
    /// A keyed hash (16 bytes) of the identity of the directory that a placeholder directory is in,
    /// and of its name.
    Placeholder = 6,
}

/// The method of identifying the files of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// Objects are identified by handles that the kernel can open again.
    Decodable,
    /// Objects are identified by handles that the kernel cannot open.
    Identifying,
    /// Objects are identified by handles that the kernel cannot open, and that last as long as it
    /// has the object in its cache (exFAT). The root directory, which has no generation, is
    /// identified by its inode number.
    Cached,
    /// Objects are identified by inode number and birth time.
    Births,
    /// Objects are identified by inode number alone, which the administrator has accepted.
    Inodes,
}

/// The error for a file system in which a later file cannot be distinguished from a removed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this file system tells a removed file from a later one with the same inode number neither by a \
     generation that lasts nor by a birth time, so that a client's old handle could come to mean \
     another file (in FUSE also after its daemon was restarted); add the export option inode_reuse if \
     you accept that"
)]
pub struct NoIdentity;

/// The secret key of hashed identities.
#[derive(Clone, Copy)]
pub struct IdentityKey([u8; 16]);

impl IdentityKey {
    /// Creates a key from its bytes.
    #[must_use]
    pub const fn from_bytes(key: [u8; 16]) -> Self {
        Self(key)
    }

    /// Returns a keyed hash of a name. Cookies show it to clients. It reveals nothing about the 128-bit
    /// hashes in identities, which use a different function.
    pub(super) fn hash_name(&self, name: &[u8]) -> u64 {
        let mut hasher = siphasher::sip::SipHasher24::new_with_key(&self.0);
        hasher.write(name);
        hasher.finish()
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

/// Returns the birth time in nanoseconds since 1970 (modulo 2^64), if the file system has one.
fn birth(stat: &Statx) -> Option<[u8; 8]> {
    let time = stat.stx_btime;
    let nanoseconds = (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(time.tv_nsec));
    (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| nanoseconds.to_be_bytes())
}

/// Returns whether a handle has a generation. In a generic handle, the generation 0 does not prove
/// that there is one: /proc returns such handles.
fn has_generation(handle: &FileHandle) -> bool {
    let generation = handle.as_bytes().get(GENERIC_INODE..);
    handle.kind() != GENERIC || generation.is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0))
}

/// A kind of file system whose handles or birth times do not identify its files, or not for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peculiar {
    /// Before Linux 6.5 an overlay has no handles, and its birth times change when a file is copied
    /// up.
    Overlay,
    /// Handles contain node ids. The daemon chooses these, and most daemons count them: after a
    /// restart of the daemon, the same number names another file.
    Fuse,
    /// FAT and exFAT have no inodes. The kernel makes up an inode number and a random generation
    /// whenever it reads a file's directory entry, unless it still has them in its cache.
    Fat,
}

impl Peculiar {
    /// Returns the kind of a file system of this type (`f_type` of statfs(2)), if it is one of these.
    fn of(file_system: u32) -> Option<Self> {
        match file_system {
            host::OVERLAYFS => Some(Self::Overlay),
            host::FUSE => Some(Self::Fuse),
            host::FAT | host::EXFAT => Some(Self::Fat),
            _ => None,
        }
    }
}

impl Naming {
    /// Determines how the files of the file system of `fd`, which is of the type `file_system`, are
    /// identified. `reuse` accepts that a later file may pass for a removed one.
    ///
    /// # Errors
    /// [`NoIdentity`], unless `reuse` is set.
    pub(super) fn find(
        fd: impl std::os::fd::AsFd,
        file_system: u32,
        stat: &Statx,
        reuse: bool,
    ) -> Result<Self, NoIdentity> {
        let handle = |form| FileHandle::of(&fd, form).ok();
        let found = Self::choose(
            Peculiar::of(file_system),
            handle(Form::Decodable).is_some(),
            handle(Form::Identifying).as_ref(),
            // A FUSE daemon can claim to have birth times and report none.
            birth(stat).is_some_and(|time| time != [0; 8]),
        );
        match found {
            Some(naming) => Ok(naming),
            None if reuse => Ok(Self::Inodes),
            None => Err(NoIdentity),
        }
    }

    /// Chooses the method for a file system by what its root directory has: a handle that the
    /// kernel opens, a handle that identifies, and a birth time. Returns `None` if there is nothing
    /// by which a later file could be distinguished from a removed one.
    fn choose(
        peculiar: Option<Peculiar>,
        decodable: bool,
        identifying: Option<&FileHandle>,
        births: bool,
    ) -> Option<Self> {
        if peculiar == Some(Peculiar::Fuse) {
            // The kernel opens handles of FUSE, but they are not those of files.
            return births.then_some(Self::Births);
        }
        if decodable {
            return Some(Self::Decodable);
        }
        match identifying {
            Some(_) if peculiar == Some(Peculiar::Fat) => Some(Self::Cached),
            Some(handle) if births || has_generation(handle) => Some(Self::Identifying),
            None if births && peculiar.is_none() => Some(Self::Births),
            _ => None,
        }
    }

    /// Returns the identity of the object of `fd` in the file system `fsid`.
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
            Self::Identifying | Self::Cached => Form::Identifying,
            Self::Births => {
                let birth = birth(stat).ok_or(FsError::NotSupported)?;
                return Ok(encode(fsid, Tag::InodeAndBirth, &[&inode, &birth], key));
            }
            Self::Inodes => return Ok(encode(fsid, Tag::Inode, &[&inode], key)),
        };
        let handle = FileHandle::of(fd, form)?;
        // All existing handle types fit in a byte. A larger one would be hashed, not truncated.
        let kind = handle.kind().to_be_bytes();
        let kind = match kind {
            [0, 0, 0, _] => &kind[3..],
            _ => &kind[..],
        };
        let bytes = handle.as_bytes();
        if kind.len() > 1 {
            return Ok(hashed(fsid, Tag::Hash, &[kind, bytes], key));
        }
        if self == Self::Cached && !has_generation(&handle) {
            // The root of exFAT: its birth time is the time of the mount, so that clients would lose the
            // root with each mount. Its inode number is fixed and not used again.
            return Ok(encode(fsid, Tag::Inode, &[&inode], key));
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

/// Returns whether the handles of the files in the file system of `fd`, which is of the type
/// `file_system`, end when the kernel drops a file from its cache, at the latest when the file system is
/// unmounted.
pub(super) fn end_with_cache(fd: impl std::os::fd::AsFd, file_system: u32) -> bool {
    /// The types of the handles of a FAT that is mounted with `nfs=nostale_ro`
    /// (`FILEID_FAT_WITHOUT_PARENT`, `FILEID_FAT_WITH_PARENT`). They contain the place of the
    /// directory entry, by which the kernel finds the file.
    const LASTING: [i32; 2] = [0x71, 0x72];
    Peculiar::of(file_system) == Some(Peculiar::Fat)
        && !FileHandle::of(&fd, Form::Decodable)
            .is_ok_and(|handle| LASTING.contains(&handle.kind()))
}

/// Encodes an identity from its parts, or from a hash of them if they are too long.
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

/// Encodes an identity from a keyed hash of its parts.
fn hashed(fsid: u64, tag: Tag, parts: &[&[u8]], key: &IdentityKey) -> FileId {
    let mut all = fsid.to_be_bytes().to_vec();
    for part in parts {
        all.extend_from_slice(part);
    }
    // 9 bytes and 16 always fit.
    encode(fsid, tag, &[&key.hash(&all)], key)
}

/// Returns the device number of an object.
pub(super) fn device(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

/// Returns the identity of the root of an export, from its identity in the file system, which is of
/// the type `file_system`.
///
/// The birth time is part of it if the file system keeps it permanently. Otherwise the root of a
/// file system could be the same as that of another one made in its place: with the same device
/// (xfs) or `fsid=`, both can have the same inode number and generation.
pub(super) fn of_export(id: &FileId, file_system: u32, stat: &Statx) -> Vec<u8> {
    let mut identity = id.as_bytes().to_vec();
    if Peculiar::of(file_system).is_none()
        && let Some(birth) = birth(stat)
    {
        identity.extend_from_slice(&birth);
    }
    identity
}

/// Returns the identity of the root of a mount as long as it is open, independent of the export
/// through which it is seen. It is not part of a handle: device numbers can change.
pub(super) fn of_root(stat: &Statx, key: &IdentityKey) -> FileId {
    let inode = stat.stx_ino.to_be_bytes();
    encode(device(stat), Tag::Inode, &[&inode], key)
}

/// Returns the identity of the placeholder directory for another file system that is not crossed
/// into, the entry `name` of `dir`. No table is needed: every such identity that this server has
/// issued denotes an empty directory.
pub(super) fn placeholder(fsid: u64, dir: &FileId, name: &[u8], key: &IdentityKey) -> FileId {
    hashed(fsid, Tag::Placeholder, &[dir.as_bytes(), name], key)
}

/// Returns the file system's number and the file id of a placeholder directory, or `None` if `id`
/// does not identify one. The file id is the first 8 bytes of the hash, because the directory has no
/// inode.
pub(super) fn decode_placeholder(id: &FileId) -> Option<(u64, u64)> {
    let (fsid, rest) = id.as_bytes().split_first_chunk()?;
    let (&tag, rest) = rest.split_first()?;
    let number = rest.first_chunk()?;
    let both = (u64::from_be_bytes(*fsid), u64::from_be_bytes(*number));
    (tag == Tag::Placeholder as u8).then_some(both)
}

/// The parts of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// The file system.
    pub(super) fsid: u64,
    /// The kernel's file handle, if the identity contains one that `open_by_handle_at(2)` accepts.
    pub(super) handle: Option<FileHandle>,
    /// Whether the handle identifies a placeholder directory.
    pub(super) is_placeholder: bool,
}

/// Decodes an identity.
///
/// # Errors
/// [`FsError::BadHandle`] if it does not have the form of those that this server issues.
pub(super) fn decode(id: &FileId) -> FsResult<Decoded> {
    let bytes = id.as_bytes();
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or(FsError::BadHandle)?;
    let (&tag, rest) = rest.split_first().ok_or(FsError::BadHandle)?;
    let decoded = Decoded {
        fsid: u64::from_be_bytes(*head),
        handle: None,
        is_placeholder: decode_placeholder(id).is_some(),
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
    if !decoded.is_placeholder && !known.into_iter().any(is) {
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

    /// The handles of FUSE name other files after a restart of the daemon.
    #[test]
    fn handles_of_fuse_are_not_trusted() {
        let generic = FileHandle::new(GENERIC, &[1; 12]).unwrap();
        let choose = |peculiar, decodable, handle: bool, births| {
            Naming::choose(peculiar, decodable, handle.then_some(&generic), births)
        };
        let (fuse, overlay) = (Some(Peculiar::Fuse), Some(Peculiar::Overlay));
        assert_eq!(choose(fuse, true, true, false), None);
        assert_eq!(choose(fuse, true, true, true), Some(Naming::Births));
        assert_eq!(choose(None, true, true, true), Some(Naming::Decodable));
        assert_eq!(choose(None, false, true, false), Some(Naming::Identifying));
        assert_eq!(choose(None, false, false, true), Some(Naming::Births));
        assert_eq!(choose(overlay, false, false, true), None);
        assert_eq!(
            choose(overlay, false, true, true),
            Some(Naming::Identifying)
        );
    }

    /// The generations of exFAT are random, but for that of the root, whose birth time is that of
    /// the mount. Two other file systems with such handles stand in for it here.
    #[test]
    fn the_root_of_exfat_keeps_its_identity_though_its_birth_time_changes() {
        let generic = FileHandle::new(GENERIC, &[1; 8]).unwrap();
        let exfat = Some(Peculiar::Fat);
        for births in [false, true] {
            assert_eq!(Naming::choose(exfat, false, None, births), None);
            let chosen = Naming::choose(exfat, false, Some(&generic), births);
            assert_eq!(chosen, Some(Naming::Cached));
        }
        let temporary = tempfile::tempdir().unwrap();
        for (path, tag) in [
            (std::path::Path::new("/proc"), Tag::Inode),
            (temporary.path(), Tag::Handle),
        ] {
            let dir = std::fs::File::open(path).unwrap();
            if FileHandle::of(&dir, Form::Identifying).is_err() {
                use std::io::Write;
                let _ = writeln!(
                    std::io::stderr(),
                    "left out in part, for it needs AT_HANDLE_FID (Linux 6.5): exFAT"
                );
                return;
            }
            let mut stat = host::stat(&dir).unwrap();
            let mut identify = |birth| {
                stat.stx_mask |= StatxFlags::BTIME.bits();
                stat.stx_btime.tv_sec = birth;
                Naming::Cached.identify(9, &dir, &stat, &KEY).unwrap()
            };
            let id = identify(1);
            assert_eq!(id.as_bytes()[8], tag as u8);
            assert_eq!(identify(2), id);
        }
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
        let dir = FileId::new(&[1; 30]).unwrap();
        let id = placeholder(9, &dir, b"name", &KEY);
        assert!(decode(&id).unwrap().is_placeholder && decode_placeholder(&id).is_some());
        let other = FileId::new(&[2; 30]).unwrap();
        assert_ne!(id, placeholder(9, &other, b"name", &KEY));
        assert_ne!(id, placeholder(9, &dir, b"other", &KEY));
    }
}
