//! What is asked of the host's kernel. Nothing here follows a symbolic link or crosses a mount
//! point.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    self, AtFlags, Gid, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Statx, StatxFlags,
    StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::io::Errno;

use crate::fs::{FsError, FsResult};
use crate::proto::{Attributes, DeviceNumber, FileType, NfsTime, SetTime};

/// Bytes of directory entries that are asked for at a time.
const DIR_BUFFER: usize = 32 << 10;
/// `f_type` of an overlay file system (statfs(2)).
const OVERLAYFS: u64 = 0x794c_7630;
/// Bytes of a block that `stx_blocks` counts (statx(2)).
const BLOCK: u64 = 512;

/// What is not allowed when a name is resolved (openat2(2)).
fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH
        | ResolveFlags::NO_XDEV
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
}

/// A mount point in the export: what is mounted there is not part of it.
fn not_crossed(errno: Errno) -> FsError {
    match errno {
        Errno::XDEV => FsError::Access,
        other => other.into(),
    }
}

/// The entry `name` of a directory, as a descriptor that only names it.
pub(super) fn open_child(dir: impl AsFd, name: &[u8]) -> FsResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(dir, name, flags, Mode::empty(), resolve()).map_err(not_crossed)
}

/// The directory above.
pub(super) fn open_parent(dir: impl AsFd) -> FsResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = resolve() - ResolveFlags::BENEATH;
    fs::openat2(dir, c"..", flags, Mode::empty(), resolve).map_err(not_crossed)
}

/// Makes a regular file that does not exist yet, for its maker alone.
pub(super) fn create_file(dir: impl AsFd, name: &[u8]) -> FsResult<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(fs::openat2(dir, name, flags, mode, resolve())?)
}

/// Everything there is to know of an open object.
pub(super) fn stat(fd: impl AsFd) -> FsResult<Statx> {
    Ok(fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted())?)
}

/// The same of a directory's entry, without opening it.
pub(super) fn stat_child(dir: impl AsFd, name: &[u8]) -> FsResult<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(fs::statx(dir, name, flags, wanted())?)
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

/// Whether birth times can be relied on: on an overlay, a file gets another one when it is copied
/// up on its first change.
pub(super) fn has_births(fd: impl AsFd) -> FsResult<bool> {
    Ok(fs::fstatfs(fd)?.f_type as u64 != OVERLAYFS)
}

fn time(time: StatxTimestamp) -> NfsTime {
    // NFS version 3 has times from 1970 to 2106; others become the nearest of those.
    match u32::try_from(time.tv_sec) {
        Ok(seconds) => NfsTime {
            seconds,
            nanos: time.tv_nsec,
        },
        Err(_) if time.tv_sec < 0 => NfsTime::default(),
        Err(_) => NfsTime {
            seconds: u32::MAX,
            nanos: 0,
        },
    }
}

/// The type of an object, from its mode.
pub(super) fn file_type(stat: &Statx) -> FileType {
    match fs::FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::Fifo,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::Character,
        fs::FileType::BlockDevice => FileType::Block,
        _ => FileType::Regular,
    }
}

/// NFS attributes.
pub(super) fn attributes(stat: &Statx) -> Attributes {
    Attributes {
        file_type: file_type(stat),
        mode: u32::from(stat.stx_mode) & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(BLOCK),
        rdev: DeviceNumber {
            major: stat.stx_rdev_major,
            minor: stat.stx_rdev_minor,
        },
        fsid: fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        fileid: stat.stx_ino,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}

/// The table of this process's open files: the way to open again, with other rights, what a
/// descriptor names, wherever it has been moved.
pub(super) struct OpenFiles(OwnedFd);

impl OpenFiles {
    /// Needs /proc.
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::open(c"/proc/self/fd", flags, Mode::empty()).map(Self)
    }

    /// Opens the object of `fd`.
    pub(super) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        fs::openat(&self.0, number(fd), flags, Mode::empty())
    }

    /// Sets the mode of the object of `fd`.
    pub(super) fn chmod(&self, fd: BorrowedFd<'_>, mode: u32) -> FsResult<()> {
        let mode = Mode::from_raw_mode(mode);
        Ok(fs::chmodat(&self.0, number(fd), mode, AtFlags::empty())?)
    }

    /// Gives the object of `fd` another name.
    pub(super) fn link(&self, fd: BorrowedFd<'_>, dir: impl AsFd, name: &[u8]) -> FsResult<()> {
        let flags = AtFlags::SYMLINK_FOLLOW;
        Ok(fs::linkat(&self.0, number(fd), dir, name, flags)?)
    }
}

fn number(fd: BorrowedFd<'_>) -> rustix::path::DecInt {
    rustix::path::DecInt::new(fd.as_raw_fd())
}

/// Sets owner and group of the object of `fd`, a symbolic link's own included.
pub(super) fn chown(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
    // All ones means "do not change" to the kernel, and is nobody's number.
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(FsError::Invalid);
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    Ok(fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?)
}

/// Sets times of the object of `fd`, a symbolic link's own included.
pub(super) fn set_times(fd: impl AsFd, atime: SetTime, mtime: SetTime) -> FsResult<()> {
    let spec = |time| match time {
        SetTime::Keep => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        SetTime::ServerTime => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        SetTime::To(time) => Timespec {
            tv_sec: i64::from(time.seconds),
            tv_nsec: i64::from(time.nanos),
        },
    };
    let times = Timestamps {
        last_access: spec(atime),
        last_modification: spec(mtime),
    };
    Ok(fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?)
}

/// An entry as the host lists it.
pub(super) struct Listed<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: u64,
    /// Where the next entry is.
    pub(super) cookie: u64,
    /// False when it certainly is no directory.
    pub(super) maybe_directory: bool,
}

/// Lists an open directory from `cookie` on (0: the start), until `take` returns false. Returns
/// whether the end was reached.
///
/// Cookies are the host's own (`d_off` of getdents64(2)), which its file systems keep valid while
/// entries come and go, and over restarts.
pub(super) fn list(
    dir: impl AsFd,
    cookie: u64,
    mut take: impl FnMut(&Listed<'_>) -> FsResult<bool>,
) -> FsResult<bool> {
    if cookie != 0 {
        let position = i64::try_from(cookie).map_err(|_| FsError::BadCookie)?;
        fs::seek(dir.as_fd(), SeekFrom::Start(position as u64)).map_err(|_| FsError::BadCookie)?;
    }
    let mut buffer = Vec::<u8>::with_capacity(DIR_BUFFER);
    let buffer: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
    let mut entries = RawDir::new(dir.as_fd(), buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let listed = Listed {
            name: entry.file_name().to_bytes(),
            ino: entry.ino(),
            cookie: entry.next_entry_cookie(),
            maybe_directory: matches!(
                entry.file_type(),
                fs::FileType::Directory | fs::FileType::Unknown
            ),
        };
        if !take(&listed)? {
            return Ok(false);
        }
    }
    Ok(true)
}
