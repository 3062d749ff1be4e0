//! Safe interfaces to system calls that no kept crate offers: `name_to_handle_at(2)` and
//! `open_by_handle_at(2)`, by which the kernel names a file for as long as it exists;
//! `faccessat2(2)` of an open descriptor, which asks the kernel whether the calling thread may use
//! a file; and `setfsuid(2)` and `setfsgid(2)`, which say as whom it uses files.
//!
//! The foreign functions are the C library's own; this crate is the whole of the project's unsafe
//! code for them.
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

/// Result of a system call.
pub type Result<T> = std::result::Result<T, Errno>;

/// Which handle of a file is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One that the file system can open again. File systems that cannot be exported have none
    /// (`EOPNOTSUPP`).
    Decodable,
    /// One that only tells files apart (`AT_HANDLE_FID`, Linux 6.5). File systems without an
    /// encoding of their own get the inode number and the inode's generation, which may be 0.
    Identifying,
}

/// The kernel's name of a file within its file system: a type and up to 128 opaque bytes.
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

// The bytes begin where the flexible array of the C structure does.
const _: () = assert!(mem::offset_of!(Raw, bytes) == size_of::<libc::file_handle>());

impl FileHandle {
    /// Most bytes that a handle has (`MAX_HANDLE_SZ`).
    pub const MAX_LEN: usize = libc::MAX_HANDLE_SZ as usize;

    /// A handle from its parts, or nothing if there are too many bytes.
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

    /// The handle of the file that `fd` is open on; a descriptor that only names it (`O_PATH`)
    /// will do. Needs no privilege.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file system has no such handles, `EINVAL` for
    /// [`Form::Identifying`] before Linux 6.5, and whatever else the kernel says.
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
        // SAFETY: the descriptor is open for the length of the call, the path is a string that
        // ends with NUL, and `raw` and `mount` are ours alone. `handle_bytes` says how many bytes
        // follow the head, and the kernel writes no more than that.
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

    /// Opens the file. `mount` is any open file or directory of its file system, opened for
    /// reading: `O_PATH` does not do on older kernels. Needs `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// `ESTALE` when the file is gone, `EPERM` without the privilege, and whatever else the kernel
    /// says.
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
        // SAFETY: the descriptor is open for the length of the call; `raw` is ours alone and has
        // as many bytes after its head as that says.
        let fd = unsafe {
            libc::open_by_handle_at(mount.as_fd().as_raw_fd(), (&raw mut raw).cast(), flags)
        };
        check(c_long::from(fd))?;
        // SAFETY: the kernel has just opened it for us, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The type that the file system gave the handle.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The handle's bytes.
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

/// Asks the kernel whether the calling thread, by its effective identity, may use the file that
/// `fd` names in all the ways that `wanted` says. Access control lists, immutable files, read-only
/// mounts and security modules are looked at, as with `open(2)`.
///
/// # Errors
/// `EACCES`, `EPERM` or `EROFS` if it may not.
pub fn may_access(fd: impl AsFd, wanted: Access) -> Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: the descriptor is open for the length of the call, and the path is a string that ends
    // with NUL; the kernel writes nothing. The arguments are of the types that faccessat2(2) has.
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

/// Sets the user and group as which the calling thread uses files. Other threads, and the thread's
/// effective user, stay as they are. Needs `CAP_SETUID` and `CAP_SETGID`. Capabilities that have to
/// do with files are lost on the way from user 0 to another one, and raised on the way back.
///
/// # Errors
/// `EPERM` if the kernel did not take one of them; what was changed before stays changed.
pub fn set_file_ids(uid: u32, gid: u32) -> Result<()> {
    set_file_id(libc::SYS_setfsgid, gid)?;
    set_file_id(libc::SYS_setfsuid, uid)
}

/// The user and group as which the calling thread uses files.
#[must_use]
pub fn file_ids() -> (u32, u32) {
    (
        file_id(libc::SYS_setfsuid, u32::MAX),
        file_id(libc::SYS_setfsgid, u32::MAX),
    )
}

fn set_file_id(call: c_long, id: u32) -> Result<()> {
    file_id(call, id);
    // The call has no error: it says what there was before.
    match file_id(call, u32::MAX) == id {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

/// Sets an identity, and says what it was. All ones is nobody's, and changes nothing.
fn file_id(call: c_long, id: u32) -> u32 {
    // SAFETY: setfsuid(2) and setfsgid(2) take one number, and touch no memory.
    let before = unsafe { libc::syscall(call, id) };
    before as u32
}

/// The error of a call that returned a negative number.
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
        // Nobody may execute what has no execute permission at all, not even the superuser.
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
