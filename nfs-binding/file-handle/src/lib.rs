//! Safe interfaces to Linux system calls that no other dependency offers: `name_to_handle_at(2)`
//! and `open_by_handle_at(2)` for persistent file handles; `faccessat2(2)` on an open descriptor,
//! which asks the kernel whether the calling thread may access a file; `setfsuid(2)` and
//! `setfsgid(2)`, which set the identity that the thread uses for file access.
//!
//! The foreign functions are the C library's. All unsafe code that they need is in this crate.
//!
//! ```
//! use linux_file_handle::{FileHandle, Form};
//!
//! let root = std::fs::File::open("/")?;
//! if let Ok(handle) = FileHandle::of(&root, Form::Decodable) {
//!     // The same file has the same handle, whoever asks and however often.
//!     assert_eq!(FileHandle::of(&root, Form::Decodable), Ok(handle));
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
#![expect(
    unsafe_code,
    reason = "calls of the C library, each with its proof; nothing else is in this crate"
)]

use std::ffi::{c_int, c_long};
use std::fmt;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{Access, OFlags};
use rustix::io::Errno;

/// The result of a system call.
pub type Result<T> = std::result::Result<T, Errno>;

/// The kind of handle to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A handle that `open_by_handle_at(2)` accepts. File systems that cannot be exported have none
    /// (`EOPNOTSUPP`).
    Decodable,
    /// A handle that only identifies a file and cannot be opened (`AT_HANDLE_FID`, Linux 6.5). File
    /// systems without an encoding of their own use the inode number and the inode's generation,
    /// which may be 0.
    Identifying,
}

/// A kernel file handle, valid within its file system: a type and up to 128 opaque bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    kind: i32,
    len: u8,
    /// Zero beyond `len`.
    bytes: [u8; FileHandle::MAX_LEN],
}

/// `struct file_handle` with room for the longest handle.
#[repr(C)]
struct Raw {
    head: libc::file_handle,
    bytes: [u8; FileHandle::MAX_LEN],
}

// The bytes begin at the offset of the C structure's flexible array.
const _: () = assert!(mem::offset_of!(Raw, bytes) == size_of::<libc::file_handle>());

impl FileHandle {
    /// The maximum length of a handle in bytes (`MAX_HANDLE_SZ`).
    pub const MAX_LEN: usize = libc::MAX_HANDLE_SZ as usize;

    /// Creates a handle from its parts. Returns `None` if there are too many bytes.
    #[must_use]
    pub fn new(kind: i32, from: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX_LEN];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self {
            kind,
            len: from.len() as u8,
            bytes,
        })
    }

    /// Returns the handle of the file that `fd` refers to. An `O_PATH` descriptor suffices, and no
    /// privilege is needed.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system has no such handles, `EINVAL` for [`Form::Identifying`]
    /// before Linux 6.5, and any other error of the system call.
    pub fn of(fd: impl AsFd, form: Form) -> Result<Self> {
        let mut raw = Raw {
            head: libc::file_handle {
                handle_bytes: Self::MAX_LEN as u32,
                handle_type: 0,
                f_handle: [],
            },
            bytes: [0; Self::MAX_LEN],
        };
        let mut mount: c_int = 0;
        let flags = match form {
            Form::Decodable => libc::AT_EMPTY_PATH,
            Form::Identifying => libc::AT_EMPTY_PATH | libc::AT_HANDLE_FID,
        };
        // SAFETY: the descriptor is open for the length of the call, the path is a string that ends
        // with NUL, and `raw` and `mount` are not shared. `handle_bytes` says how many bytes follow
        // the head, and the kernel writes no more than that.
        let done = unsafe {
            libc::name_to_handle_at(
                fd.as_fd().as_raw_fd(),
                c"".as_ptr(),
                (&raw mut raw).cast(),
                &raw mut mount,
                flags,
            )
        };
        check(c_long::from(done))?;
        let len = raw.head.handle_bytes as usize;
        let bytes = raw.bytes.get(..len).ok_or(Errno::OVERFLOW)?;
        Self::new(raw.head.handle_type, bytes).ok_or(Errno::OVERFLOW)
    }

    /// Opens the file. `mount` is any file or directory of its file system that is open for
    /// reading; older kernels do not accept `O_PATH`. Needs `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// `ESTALE` if the file no longer exists, `EPERM` without the privilege, and any other error of
    /// the system call.
    pub fn open(&self, mount: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
        let mut raw = Raw {
            head: libc::file_handle {
                handle_bytes: u32::from(self.len),
                handle_type: self.kind,
                f_handle: [],
            },
            bytes: self.bytes,
        };
        let flags = (flags | OFlags::CLOEXEC).bits() as c_int;
        // SAFETY: the descriptor is open for the length of the call; `raw` is not shared and has as
        // many bytes after its head as the head says.
        let fd = unsafe {
            libc::open_by_handle_at(mount.as_fd().as_raw_fd(), (&raw mut raw).cast(), flags)
        };
        check(c_long::from(fd))?;
        // SAFETY: the kernel has just opened the descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Returns the type that the file system gave the handle.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// Returns the handle's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle({:#x}:", self.kind)?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ")")
    }
}

/// Asks the kernel whether the calling thread, with its effective identity, may access the file
/// that `fd` refers to in all the ways in `wanted`. The check covers access control lists,
/// immutable files, read-only mounts and security modules, like `open(2)`.
///
/// # Errors
/// `EACCES`, `EPERM` or `EROFS` if it may not.
pub fn may_access(fd: impl AsFd, wanted: Access) -> Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: the descriptor is open for the length of the call, and the path is a string that ends
    // with NUL; the kernel writes nothing. The argument types are those of faccessat2(2).
    let done = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            wanted.bits() as c_int,
            flags,
        )
    };
    check(done)
}

/// Sets the user and group that the calling thread uses for file access. Other threads and the
/// thread's effective user id are not affected. Needs `CAP_SETUID` and `CAP_SETGID`. A change from
/// user 0 to another one drops the file capabilities from the effective set, and a change back
/// raises them again.
///
/// # Errors
/// `EPERM` if the kernel did not accept one of the ids. A change made before that remains.
pub fn set_file_ids(uid: u32, gid: u32) -> Result<()> {
    set_file_group(gid)?;
    set_file_user(uid)
}

/// Sets the user of [`set_file_ids`] alone.
///
/// # Errors
/// `EPERM` if the kernel did not accept it.
pub fn set_file_user(uid: u32) -> Result<()> {
    set_file_id(libc::SYS_setfsuid, uid)
}

/// Sets the group of [`set_file_ids`] alone.
///
/// # Errors
/// `EPERM` if the kernel did not accept it.
pub fn set_file_group(gid: u32) -> Result<()> {
    set_file_id(libc::SYS_setfsgid, gid)
}

/// Returns the user and group that the calling thread uses for file access.
#[must_use]
pub fn file_ids() -> (u32, u32) {
    (
        file_id(libc::SYS_setfsuid, u32::MAX),
        file_id(libc::SYS_setfsgid, u32::MAX),
    )
}

fn set_file_id(call: c_long, id: u32) -> Result<()> {
    // The call has no error result: it returns the previous id.
    file_id(call, id);
    match file_id(call, u32::MAX) == id {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

/// Sets an id and returns the previous one. All ones is no valid id, so it changes nothing.
fn file_id(call: c_long, id: u32) -> u32 {
    // SAFETY: setfsuid(2) and setfsgid(2) take one number, and touch no memory.
    let before = unsafe { libc::syscall(call, id) };
    before as u32
}

/// Returns the error of a call that returned a negative number.
fn check(result: c_long) -> Result<()> {
    if result >= 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&errno).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn parts_make_a_handle_and_too_many_bytes_do_not() {
        let handle = FileHandle::new(0x81, &[1, 2, 3]).unwrap();
        assert_eq!((handle.kind(), handle.as_bytes()), (0x81, &[1, 2, 3][..]));
        assert_eq!(format!("{handle:?}"), "FileHandle(0x81:010203)");
        assert!(FileHandle::new(1, &[0; FileHandle::MAX_LEN]).is_some());
        assert!(FileHandle::new(1, &[0; FileHandle::MAX_LEN + 1]).is_none());
    }

    #[test]
    fn names_of_one_file_share_a_handle_and_files_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        fs::write(path("one"), b"1").unwrap();
        fs::hard_link(path("one"), path("again")).unwrap();
        fs::write(path("two"), b"2").unwrap();
        let handle = |name| FileHandle::of(File::open(path(name)).unwrap(), Form::Decodable);
        let one = match handle("one") {
            Ok(one) => one,
            Err(error) => return assert_eq!(error, Errno::OPNOTSUPP, "it has no handles"),
        };
        assert_eq!(handle("again"), Ok(one));
        assert_ne!(handle("two"), Ok(one));
        let mount = File::open(dir.path()).unwrap();
        match one.open(&mount, OFlags::PATH) {
            Ok(opened) => assert_eq!(FileHandle::of(opened, Form::Decodable), Ok(one)),
            Err(error) => assert_eq!(error, Errno::PERM, "without the privilege"),
        }
        fs::remove_file(path("one")).unwrap();
        fs::remove_file(path("again")).unwrap();
        let error = one.open(&mount, OFlags::PATH).unwrap_err();
        assert!(matches!(error, Errno::STALE | Errno::PERM), "{error}");
    }

    #[test]
    fn bytes_that_are_no_handle_open_nothing() {
        let mount = File::open("/").unwrap();
        for (kind, bytes) in [(0x81, &[0xff; 12][..]), (1, &[]), (-1, &[9; 128])] {
            let handle = FileHandle::new(kind, bytes).unwrap();
            assert!(handle.open(&mount, OFlags::PATH).is_err(), "{handle:?}");
        }
    }

    #[test]
    fn the_kernel_is_asked_about_the_file_and_not_about_a_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::remove_file(file.path()).unwrap();
        assert_eq!(may_access(file.as_file(), Access::READ_OK), Ok(()));
        // Without any execute permission, even the superuser may not execute the file.
        assert_eq!(
            may_access(file.as_file(), Access::EXEC_OK),
            Err(Errno::ACCESS)
        );
    }

    #[test]
    fn a_thread_uses_files_as_whom_it_says_and_other_threads_do_not() {
        let own = file_ids();
        let thread = std::thread::spawn(move || {
            if own.0 != 0 {
                assert_eq!(set_file_ids(own.0 + 1, own.1), Err(Errno::PERM));
                return assert_eq!(file_ids(), own);
            }
            set_file_ids(1001, 2001).unwrap();
            assert_eq!(file_ids(), (1001, 2001));
        });
        thread.join().unwrap();
        assert_eq!(file_ids(), own);
    }
}
