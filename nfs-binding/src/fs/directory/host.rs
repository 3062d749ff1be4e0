//! System calls on the host's files. No function here follows a symbolic link, and mount points are
//! crossed only on request.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{
    self, AtFlags, Gid, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Statx, StatxFlags,
    StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::io::Errno;

use crate::fs::{FsError, FsResult};
use crate::proto::{Attributes, DeviceNumber, FileType, NfsTime, SetTime};

/// The maximum number of pieces in one writev (`IOV_MAX`).
pub(super) const MAX_PIECES: usize = 1024;

/// The size of the buffer for directory entries, bytes.
const DIR_BUFFER: usize = 32 << 10;
/// The highest offset in a file.
pub(super) const MAX_OFFSET: u64 = i64::MAX as u64;
/// The block size that `stx_blocks` counts in, bytes (statx(2)).
const BLOCK: u64 = 512;

/// The types of file systems (`f_type` of statfs(2), linux/magic.h).
pub(super) const OVERLAYFS: u32 = 0x794c_7630;
pub(super) const FUSE: u32 = 0x6573_5546;
pub(super) const FAT: u32 = 0x4d44;
pub(super) const EXFAT: u32 = 0x2011_bab0;
const TMPFS: u32 = 0x0102_1994;
const EXT4: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683e;
const F2FS: u32 = 0xf2f5_2010;
const RAMFS: u32 = 0x8584_58f6;
const CIFS: u32 = 0xff53_4d42;
const SMB2: u32 = 0xfe53_4d42;
const HFS: u32 = 0x4244;
const HFS_PLUS: u32 = 0x482b;
const VBOXSF: u32 = 0x786f_4256;
// Not in linux/magic.h, but in fs/ntfs3/super.c.
const NTFS3: u32 = 0x7366_746e;

/// Returns the restrictions of name resolution (openat2(2)).
fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH
        | ResolveFlags::NO_XDEV
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
}

/// Opens the entry `name` of a directory with `O_PATH`. Returns `None` if another file system is
/// mounted there and `cross` is not set.
pub(super) fn open_child(dir: impl AsFd, name: &[u8], cross: bool) -> FsResult<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(dir, name, flags, cross)
}

/// Opens the entry `name` of a directory with `O_PATH`. With `cached`, only if the kernel has it in its
/// cache of names.
///
/// # Errors
/// `EAGAIN` if it has not, and `EINVAL` before Linux 5.12; `EXDEV` if another file system is mounted
/// there, and any other error of the system call.
pub(super) fn open_child_of_mount(
    dir: impl AsFd,
    name: &[u8],
    cached: bool,
) -> Result<OwnedFd, Errno> {
    let mut resolve = resolve();
    resolve.set(ResolveFlags::CACHED, cached);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(dir, name, flags, Mode::empty(), resolve)
}

/// Opens the parent directory. Returns `None` if this directory is the root of a mount and `cross`
/// is not set.
pub(super) fn open_parent(dir: impl AsFd, cross: bool) -> FsResult<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(dir, b"..", flags, cross)
}

fn open(dir: impl AsFd, name: &[u8], flags: OFlags, cross: bool) -> FsResult<Option<OwnedFd>> {
    let mut resolve = resolve();
    if name == b".." {
        resolve -= ResolveFlags::BENEATH;
    }
    if cross {
        resolve -= ResolveFlags::NO_XDEV;
    }
    match fs::openat2(dir, name, flags, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::XDEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates a regular file that must not exist yet.
pub(super) fn create_file(dir: impl AsFd, name: &[u8], mode: u32) -> FsResult<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(
        dir,
        name,
        flags,
        Mode::from_raw_mode(mode),
        resolve(),
    )?)
}

#[cfg(test)]
thread_local! {
    /// The number of times that this thread has read metadata.
    pub(in crate::fs) static STATS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns all metadata of an open object.
pub(super) fn stat(fd: impl AsFd) -> FsResult<Statx> {
    #[cfg(test)]
    STATS.set(STATS.get() + 1);
    Ok(fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted())?)
}

/// Returns the alignment that direct I/O of an open file needs, where the kernel knows it.
pub(super) fn stat_alignment(fd: impl AsFd) -> FsResult<Statx> {
    Ok(fs::statx(
        fd,
        c"",
        AtFlags::EMPTY_PATH,
        StatxFlags::DIOALIGN,
    )?)
}

/// Returns type, device and inode number of an open object, without asking the server of a network
/// file system, which may be gone.
pub(super) fn stat_known(fd: impl AsFd) -> FsResult<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    Ok(fs::statx(fd, c"", flags, wanted)?)
}

/// Returns all metadata of the entry `name` of a directory. For a symbolic link, that of the link
/// itself.
pub(super) fn stat_entry(dir: impl AsFd, name: &[u8]) -> FsResult<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(fs::statx(dir, name, flags, wanted())?)
}

/// Returns whether two metadata are of one object. One of them must be of an open object, because
/// inode numbers are used again.
pub(super) fn is_same_object(one: &Statx, other: &Statx) -> bool {
    let identity = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    identity(one) == identity(other)
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

/// Returns the number of the file system of `fd` (`f_fsid`), or 0 if it has none.
pub(super) fn file_system_number(fd: impl AsFd) -> Result<u64, Errno> {
    Ok(fs::fstatvfs(fd)?.f_fsid)
}

/// Returns the type of the file system of `fd`.
pub(super) fn file_system_type(fd: impl AsFd) -> Result<u32, Errno> {
    // The host's type for it is a signed number of 64 or 32 bits, of which 32 are used.
    Ok(fs::fstatfs(fd)?.f_type as u32)
}

/// Returns whether the cookies of directories of a file system of this type still mean the same place
/// when entries were removed and the directory was opened again (`cookies.rs`).
pub(super) fn cookies_last(file_system: u32) -> bool {
    match file_system {
        OVERLAYFS | FUSE | CIFS | SMB2 | RAMFS | NTFS3 | HFS | HFS_PLUS | VBOXSF => false,
        TMPFS => rustix::system::uname()
            .release()
            .to_str()
            .is_ok_and(|release| is_since(release, (6, 6))),
        _ => true,
    }
}

/// Returns whether a file system of this type keeps its files in memory alone.
pub(super) fn is_in_memory(file_system: u32) -> bool {
    matches!(file_system, TMPFS | RAMFS)
}

/// Returns whether a file system of this type is known to keep the attributes of an open object in memory,
/// so that asking for them does not wait.
pub(super) fn keeps_attributes(file_system: u32) -> bool {
    matches!(file_system, TMPFS | RAMFS | EXT4 | XFS | BTRFS | F2FS)
}

/// Returns whether the host has swapped memory out.
pub(super) fn has_swapped() -> bool {
    let memory = rustix::system::sysinfo();
    memory.freeswap != memory.totalswap
}

/// Returns whether a release of Linux is this version or a later one.
fn is_since(release: &str, version: (u32, u32)) -> bool {
    let digits = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit());
        part[..end.unwrap_or(part.len())].parse().ok()
    };
    let mut parts = release.split('.').map_while(digits);
    (parts.next(), parts.next()) >= (Some(version.0), Some(version.1))
}

/// Returns the maximum file size of a directory's file system, bytes.
///
/// The kernel does not report it, but refuses to set the offset of an open file beyond it. The
/// probed file has no name and is never written to. If such a file cannot be created, the result is
/// the maximum offset; a WRITE detects the limit in any case.
pub(super) fn max_file_size(dir: impl AsFd) -> u64 {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR) else {
        return MAX_OFFSET;
    };
    let takes = |size: u64| fs::seek(&file, SeekFrom::Start(size)).is_ok();
    let (mut least, mut beyond) = (0, MAX_OFFSET);
    if takes(beyond) {
        return beyond;
    }
    while beyond - least > 1 {
        let middle = least + (beyond - least) / 2;
        match takes(middle) {
            true => least = middle,
            false => beyond = middle,
        }
    }
    least
}

fn time(time: StatxTimestamp) -> NfsTime {
    // NFS version 3 represents times from 1970 to 2106. Other times become the nearest of those.
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

/// Returns the type of an object from its mode.
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

/// Converts to NFS attributes, without the number of the file system.
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
        fsid: 0,
        fileid: stat.stx_ino,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}

/// This process's table of open files in /proc, by which the object of a descriptor can be opened
/// again with other rights, wherever it has been moved.
pub(super) struct OpenFiles(OwnedFd);

impl OpenFiles {
    /// Opens the table. Needs /proc.
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::open(c"/proc/self/fd", flags, Mode::empty()).map(Self)
    }

    /// Opens the object of `fd` again.
    pub(super) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        fs::openat(&self.0, number(fd), flags, Mode::empty())
    }

    /// Returns the current path of the object of `fd`.
    pub(super) fn path(&self, fd: BorrowedFd<'_>) -> Result<std::path::PathBuf, Errno> {
        let path = fs::readlinkat(&self.0, number(fd), Vec::new())?;
        Ok(std::ffi::OsString::from_vec(path.into_bytes()).into())
    }

    /// Sets the mode of the object of `fd`.
    pub(super) fn chmod(&self, fd: BorrowedFd<'_>, mode: u32) -> FsResult<()> {
        let mode = Mode::from_raw_mode(mode);
        Ok(fs::chmodat(&self.0, number(fd), mode, AtFlags::empty())?)
    }

    /// Creates a hard link to the object of `fd`.
    pub(super) fn link(&self, fd: BorrowedFd<'_>, dir: impl AsFd, name: &[u8]) -> FsResult<()> {
        let flags = AtFlags::SYMLINK_FOLLOW;
        Ok(fs::linkat(&self.0, number(fd), dir, name, flags)?)
    }
}

fn number(fd: BorrowedFd<'_>) -> rustix::path::DecInt {
    rustix::path::DecInt::new(fd.as_raw_fd())
}

/// Sets owner and group of the object of `fd`. For a symbolic link, those of the link itself.
pub(super) fn chown(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
    // To the kernel, all ones means "do not change", and no user has that number.
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(FsError::Invalid);
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    Ok(fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?)
}

/// Sets the times of the object of `fd`. For a symbolic link, those of the link itself.
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

/// A directory entry as the host lists it.
pub(super) struct Listed<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: u64,
    /// The cookie with which the listing goes on after this entry.
    pub(super) cookie: u64,
}

/// Rewinds an open directory.
pub(super) fn rewind(dir: impl AsFd) -> FsResult<()> {
    fs::seek(dir, SeekFrom::Start(0))?;
    Ok(())
}

/// Lists an open directory from `cookie`, or from its current position if `cookie` is 0, until
/// `take` returns false. Returns whether the end was reached.
///
/// Cookies are the host's own (`d_off` of getdents64(2)). On most file systems they stay valid
/// while entries are added and removed, and over restarts; see [`cookies_last`].
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
        };
        if !take(&listed)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::is_since;

    #[test]
    fn releases_are_compared_by_number() {
        for (release, since) in [
            ("6.6.0", true),
            ("6.18.44-fc-v657", true),
            ("10.0", true),
            ("6.6-rc1", true),
            ("6.5.13", false),
            ("5.15.0-91-generic", false),
            ("6", false),
            ("", false),
            ("x.y", false),
        ] {
            assert_eq!(is_since(release, (6, 6)), since, "{release}");
        }
    }
}
