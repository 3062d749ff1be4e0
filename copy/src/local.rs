//! Access to local files: always by directory and name, without following a symbolic link that
//! another process may have put there meanwhile, and without waiting for the other end of a pipe.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use nfs_binding::proto::NfsTime;
use rustix::fs::{
    Advice, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps,
    Uid, fadvise, fchmod, fchown, fstat, fsync, ftruncate, futimens, linkat, mkdirat, mknodat,
    openat, readlinkat, renameat, seek, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::CopyError;
use super::descriptors::{OpenDir, OpenDirs};

/// The flags of every open.
const OPEN: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK);
/// The flags of every open of a directory.
const OPEN_DIR: OFlags = OPEN.union(OFlags::RDONLY).union(OFlags::DIRECTORY);
/// Permission bits, set-id bits and the sticky bit.
pub(super) const MODE_BITS: u32 = 0o7777;
/// Set-user-id and set-group-id.
pub(super) const SET_ID: u32 = 0o6000;

/// A local directory or, at the top of a copy, the current directory. It need not be open
/// ([`OpenDirs`]). Clones are handles to the same directory.
#[derive(Clone, Debug)]
pub(super) struct LocalDir(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: the current directory.
    below: Option<Below>,
    /// The path, for messages.
    path: PathBuf,
    open: Rc<OpenDirs>,
}

/// The place and the identity of a directory, by which it can be opened again.
#[derive(Debug)]
struct Below {
    above: LocalDir,
    name: Box<[u8]>,
    key: (u64, u64),
    opened: Rc<OpenDir>,
}

/// The descriptor of a directory in use.
enum Handle {
    Current,
    Open(Rc<OwnedFd>),
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Current => CWD,
            Self::Open(fd) => fd.as_fd(),
        }
    }
}

impl LocalDir {
    /// Returns the current directory, which relative paths start from. At most `most` directories
    /// below it are open at a time.
    pub(super) fn current(most: usize) -> Self {
        Self(Rc::new(Inner {
            below: None,
            path: PathBuf::new(),
            open: OpenDirs::new(most),
        }))
    }

    /// Returns the directory's descriptor. A directory that was closed meanwhile is opened again by
    /// its name.
    ///
    /// # Errors
    /// Errors of openat(2); [`Errno::STALE`] if another directory has the name.
    fn fd(&self) -> Result<Handle, Errno> {
        // Without recursion: a hostile server's tree is as deep as it likes.
        let (mut dir, mut closed) = (self, Vec::new());
        let mut handle = loop {
            let Some(below) = &dir.0.below else {
                break Handle::Current;
            };
            if let Some(fd) = below.opened.get() {
                break Handle::Open(fd);
            }
            closed.push(below);
            dir = &below.above;
        };
        for below in closed.into_iter().rev() {
            let open = || openat(&handle, &*below.name, OPEN_DIR, Mode::empty());
            let fd = self.0.open.make_room(open)?;
            if stat_file(&fd)?.key != below.key {
                return Err(Errno::STALE);
            }
            handle = Handle::Open(self.0.open.keep(&below.opened, fd));
        }
        Ok(handle)
    }

    fn open_below(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        self.open(name, OPEN_DIR, Mode::empty())
    }

    fn open(&self, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let fd = self.fd()?;
        self.0.open.make_room(|| openat(&fd, name, flags, mode))
    }

    /// Returns the path of an entry, for messages.
    pub(super) fn path(&self, name: &[u8]) -> PathBuf {
        // The root of a copy is entered as `NAME/.`, which follows a symbolic link.
        let name = name.strip_suffix(b"/.").unwrap_or(name);
        let name = Path::new(OsStr::from_bytes(name));
        match self.0.path == Path::new(".") {
            // A user who copies to `.` reads `name`, and not `./name`.
            true => name.to_owned(),
            false => self.0.path.join(name),
        }
    }

    /// Creates the error for a failure at an entry.
    pub(super) fn error(&self, doing: &'static str, name: &[u8], source: Errno) -> CopyError {
        CopyError::Local {
            doing,
            path: self.path(name),
            source: source.into(),
        }
    }

    pub(super) fn stat(&self, name: &[u8]) -> Result<Meta, Errno> {
        statat(self.fd()?, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Meta::new(&stat))
    }

    /// Returns the metadata of the object that a symbolic link leads to. Only for names from the user.
    pub(super) fn stat_target(&self, name: &[u8]) -> Result<Meta, Errno> {
        statat(self.fd()?, name, AtFlags::empty()).map(|stat| Meta::new(&stat))
    }

    pub(super) fn open_dir(&self, name: &[u8]) -> Result<Self, Errno> {
        let fd = self.open_below(name)?;
        let key = stat_file(&fd)?.key;
        let opened = Rc::default();
        self.0.open.keep(&opened, fd);
        Ok(Self(Rc::new(Inner {
            below: Some(Below {
                above: self.clone(),
                name: name.into(),
                key,
                opened,
            }),
            path: self.path(name),
            open: Rc::clone(&self.0.open),
        })))
    }

    /// Reads the directory, including `.` and `..`.
    pub(super) fn entries(&self) -> Result<Dir, Errno> {
        let fd = self.fd()?;
        self.0.open.make_room(|| Dir::read_from(&fd))
    }

    pub(super) fn open_file(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        self.open(name, OPEN | OFlags::RDONLY, Mode::empty())
    }

    /// Opens the file that a symbolic link leads to: only for a link that the user named.
    pub(super) fn open_target(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OPEN.difference(OFlags::NOFOLLOW) | OFlags::RDONLY;
        self.open(name, flags, Mode::empty())
    }

    /// Creates and opens a new file.
    pub(super) fn create_file(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OPEN | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        self.open(name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Renames `from` to `to` and replaces an existing object.
    pub(super) fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let fd = self.fd()?;
        renameat(&fd, from, &fd, to)
    }

    pub(super) fn make_dir(&self, name: &[u8]) -> Result<(), Errno> {
        mkdirat(self.fd()?, name, Mode::RWXU)
    }

    pub(super) fn make_symlink(&self, name: &[u8], text: &[u8]) -> Result<(), Errno> {
        symlinkat(text, self.fd()?, name)
    }

    pub(super) fn make_node(&self, name: &[u8], kind: FileType, device: u64) -> Result<(), Errno> {
        mknodat(self.fd()?, name, kind, Mode::RUSR | Mode::WUSR, device)
    }

    /// Creates a hard link `name` in `to` to the object at `path`, relative to this directory.
    pub(super) fn make_link(&self, path: &[u8], to: &Self, name: &[u8]) -> Result<(), Errno> {
        linkat(self.fd()?, path, to.fd()?, name, AtFlags::empty())
    }

    pub(super) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        readlinkat(self.fd()?, name, Vec::new()).map(std::ffi::CString::into_bytes)
    }

    pub(super) fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        unlinkat(self.fd()?, name, AtFlags::empty())
    }

    /// Syncs the directory that contains `name`, and with it the names in it.
    pub(super) fn sync_folder_of(&self, name: &[u8]) -> Result<(), Errno> {
        // A slash at the end is not part of a name: `new/` is in the current directory.
        let last = name.iter().rposition(|&b| b != b'/').unwrap_or_default();
        let slash = name[..last].iter().rposition(|&b| b == b'/');
        let end = slash.map_or(0, |at| at + 1);
        let folder = if end == 0 {
            b".".as_slice()
        } else {
            &name[..end]
        };
        // A name from the user may lead through symbolic links here as well, because it did when it
        // was used.
        let flags = OFlags::CLOEXEC | OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = self.open(folder, flags, Mode::empty())?;
        sync(&folder)
    }

    /// Returns the metadata of the directory itself; `None` for the current directory.
    pub(super) fn stat_self(&self) -> Option<Meta> {
        match self.fd() {
            Ok(Handle::Open(fd)) => stat_file(&fd).ok(),
            _ => None,
        }
    }

    /// Returns the inode number; `None` for the current directory.
    pub(super) fn inode(&self) -> Option<u64> {
        self.0.below.as_ref().map(|below| below.key.1)
    }

    /// Syncs this directory.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        match self.fd()? {
            Handle::Open(fd) => sync(&fd),
            Handle::Current => Ok(()),
        }
    }

    /// Sets the attributes in `keep` on an object that cannot be opened: a link, a pipe, a device.
    pub(super) fn finish_entry(&self, name: &[u8], keep: &Keep) -> Result<Kept, Errno> {
        let fd = &self.fd()?;
        let owned = keep
            .owner(|uid, gid| rustix::fs::chownat(fd, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
        let (mode, set_id_left_out) = keep.mode_for(|| self.stat(name))?;
        if let Some(mode) = mode {
            // chmodat always follows links. For symbolic links, `mode` is `None`.
            rustix::fs::chmodat(fd, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        utimensat(fd, name, &keep.times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Kept {
            owner_lost: !owned,
            set_id_left_out,
        })
    }

    /// Sets the attributes in `keep` on the directory itself.
    pub(super) fn finish(&self, keep: &Keep) -> Result<Kept, Errno> {
        match self.fd()? {
            Handle::Open(fd) => finish_file(&fd, keep),
            Handle::Current => Ok(Kept::default()),
        }
    }
}

/// The attributes that an object gets when it is complete.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    /// The permission bits; `None` for a symbolic link. Set-id bits are dropped if the object's
    /// owner or group differs from the source's.
    pub(super) mode: Option<u32>,
    /// Whether the object may have set-id bits.
    pub(super) set_id: bool,
    /// The owner and group of the source.
    pub(super) source: (u32, u32),
    /// Whether to set owner and group. `None`: do not. `Some(true)`: failure is an error.
    /// `Some(false)`: failure is ignored if the caller lacks the permission.
    pub(super) owner: Option<bool>,
    pub(super) times: Timestamps,
}

/// The attributes that an object did not get.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    /// Whether the owner could not be set.
    pub(super) owner_lost: bool,
    /// Whether the object lacks set-id bits solely because of [`Keep::set_id`].
    pub(super) set_id_left_out: bool,
}

impl Keep {
    fn owner(
        &self,
        set: impl FnOnce(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        let Some(required) = self.owner else {
            return Ok(true);
        };
        let (uid, gid) = self.source;
        match set(Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::INVAL) if !required => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the mode to set after the owner was set, and whether it lacks set-id bits because of
    /// [`Keep::set_id`]. As with `cp -a`, an object gets set-id bits only if it has the source's
    /// owner and group.
    fn mode_for(
        &self,
        stat: impl FnOnce() -> Result<Meta, Errno>,
    ) -> Result<(Option<u32>, bool), Errno> {
        match self.mode {
            Some(mode) if mode & SET_ID != 0 => {
                let meta = stat()?;
                let same = (meta.uid, meta.gid) == self.source;
                let kept = if same && self.set_id { SET_ID } else { 0 };
                Ok((Some(mode & (!SET_ID | kept)), same && !self.set_id))
            }
            mode => Ok((mode, false)),
        }
    }
}

/// Syncs a file or directory. `EINVAL` from a file system that cannot sync directories is ignored.
pub(super) fn sync(fd: &OwnedFd) -> Result<(), Errno> {
    match fsync(fd) {
        Err(Errno::INVAL) => Ok(()),
        outcome => outcome,
    }
}

/// Sets the attributes in `keep`, the owner first, because changing the owner clears set-id bits.
pub(super) fn finish_file(fd: &OwnedFd, keep: &Keep) -> Result<Kept, Errno> {
    let owned = keep.owner(|uid, gid| fchown(fd, uid, gid))?;
    let (mode, set_id_left_out) = keep.mode_for(|| stat_file(fd))?;
    if let Some(mode) = mode {
        fchmod(fd, Mode::from_raw_mode(mode))?;
    }
    futimens(fd, &keep.times)?;
    Ok(Kept {
        owner_lost: !owned,
        set_id_left_out,
    })
}

/// Converts an NFS time to a `timespec`.
pub(super) fn timespec(time: NfsTime) -> Timespec {
    Timespec {
        tv_sec: time.seconds.into(),
        tv_nsec: time.nanos.min(999_999_999).into(),
    }
}

/// Converts a time to an NFS version 3 time, whose seconds are unsigned and have 32 bits. Returns
/// the nearest time, and whether it is exact.
pub(super) fn nfs_time((seconds, nanos): (i64, u32)) -> (NfsTime, bool) {
    match u32::try_from(seconds) {
        Ok(seconds) => (NfsTime { seconds, nanos }, true),
        Err(_) if seconds < 0 => (NfsTime::default(), false),
        Err(_) => {
            let (seconds, nanos) = (u32::MAX, 999_999_999);
            (NfsTime { seconds, nanos }, false)
        }
    }
}

/// The metadata of a local object.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) nlink: u64,
    /// The device and inode number, which identify the object.
    pub(super) key: (u64, u64),
    /// The device number, if the object is a device.
    pub(super) rdev: u64,
    pub(super) atime: (i64, u32),
    pub(super) mtime: (i64, u32),
    pub(super) ctime: (i64, u32),
}

impl Meta {
    /// Returns whether the object is a device, a pipe or a socket.
    pub(super) fn is_special(&self) -> bool {
        !matches!(
            self.kind,
            FileType::RegularFile | FileType::Directory | FileType::Symlink
        )
    }

    #[expect(
        clippy::unnecessary_cast,
        reason = "the fields' types differ between machines"
    )]
    fn new(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: stat.st_mode as u32 & MODE_BITS,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            nlink: stat.st_nlink as u64,
            key: (stat.st_dev as u64, stat.st_ino as u64),
            rdev: stat.st_rdev as u64,
            atime: (stat.st_atime as i64, stat.st_atime_nsec as u32),
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        }
    }

    /// Returns whether size and modification time are equal, so that the file was not written to in
    /// between.
    pub(super) fn is_same_version(&self, other: &Self) -> bool {
        (self.size, self.mtime) == (other.size, other.mtime)
    }
}

pub(super) fn stat_file(fd: &OwnedFd) -> Result<Meta, Errno> {
    fstat(fd).map(|stat| Meta::new(&stat))
}

pub(super) fn set_len(fd: &OwnedFd, len: u64) -> Result<(), Errno> {
    ftruncate(fd, len)
}

/// Advises the kernel to read ahead, because the file will be read from start to end.
pub(super) fn read_ahead(fd: &OwnedFd) {
    // This is advice only: if it fails, reading is just slower.
    let _ = fadvise(fd, 0, None, Advice::Sequential);
}

/// Returns the next part of `file` from `offset` up to `size` that is not a hole. If the file
/// system does not support holes, everything is data.
pub(super) fn next_data(fd: &OwnedFd, offset: u64, size: u64) -> Option<Range<u64>> {
    if offset >= size {
        return None;
    }
    let start = match seek(fd, SeekFrom::Data(offset)) {
        Ok(start) => start,
        // There is no data beyond the offset.
        Err(Errno::NXIO) => return None,
        Err(_) => return Some(offset..size),
    };
    let end = seek(fd, SeekFrom::Hole(start)).unwrap_or(size);
    // Both may be beyond `size` if the file grows, and may be wrong if it changes meanwhile.
    (start < size).then(|| start..end.clamp(start + 1, size))
}

/// Reads until `buf` is full or the file ends. Returns the number of bytes read.
pub(super) fn read_at(fd: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(fd, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The maximum number of pieces in one writev (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// Writes all of `data` without copying it.
pub(super) fn write_at(fd: &OwnedFd, data: &[Bytes], mut offset: u64) -> Result<(), Errno> {
    let pieces = data.iter().map(|piece| IoSlice::new(piece));
    let mut pieces: SmallVec<[IoSlice<'_>; 18]> = pieces.collect();
    let mut pieces = &mut pieces[..];
    while !pieces.is_empty() {
        let most = pieces.len().min(MAX_PIECES);
        match rustix::io::pwritev(fd, &pieces[..most], offset) {
            Ok(n) => {
                IoSlice::advance_slices(&mut pieces, n);
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates the error for a failed call on an open file.
pub(super) fn file_error(doing: &'static str, path: PathBuf, source: Errno) -> CopyError {
    let source = io::Error::from(source);
    CopyError::Local {
        doing,
        path,
        source,
    }
}
