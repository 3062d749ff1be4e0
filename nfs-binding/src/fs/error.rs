//! Errors of file system operations.

use rustix::io::Errno;

use crate::proto::Status;

/// The result of a file system operation.
pub type FsResult<T> = Result<T, FsError>;

/// The reason why an operation failed. Each maps to one `nfsstat3` (RFC 1813, section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// Only the owner or the superuser may do this (NFS3ERR_PERM).
    #[error("not the owner")]
    Perm,
    /// The name does not exist (NFS3ERR_NOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The host returned another error (NFS3ERR_IO).
    #[error("the host failed: {0}")]
    Host(Errno),
    /// The device does not exist (NFS3ERR_NXIO).
    #[error("no such device")]
    NoDevice,
    /// Permission denied, or the object is in use on the host (NFS3ERR_ACCES).
    #[error("permission denied")]
    Access,
    /// The name exists (NFS3ERR_EXIST).
    #[error("file exists")]
    Exists,
    /// The two objects are in different file systems (NFS3ERR_XDEV).
    #[error("not in the same file system")]
    CrossDevice,
    /// The object is not a directory (NFS3ERR_NOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// The object is a directory (NFS3ERR_ISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The argument is invalid, or invalid for this type of object (NFS3ERR_INVAL).
    #[error("invalid argument")]
    Invalid,
    /// The file would exceed the maximum size (NFS3ERR_FBIG).
    #[error("file too large")]
    FileTooLarge,
    /// The file system is full (NFS3ERR_NOSPC).
    #[error("no space left")]
    NoSpace,
    /// The file system is read-only (NFS3ERR_ROFS).
    #[error("read-only file system")]
    ReadOnly,
    /// The file has too many hard links (NFS3ERR_MLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The name is too long (NFS3ERR_NAMETOOLONG).
    #[error("name too long")]
    NameTooLong,
    /// The directory has entries (NFS3ERR_NOTEMPTY).
    #[error("directory not empty")]
    NotEmpty,
    /// The caller's quota is exceeded (NFS3ERR_DQUOT).
    #[error("quota exceeded")]
    Quota,
    /// The object no longer exists (NFS3ERR_STALE).
    #[error("stale file handle")]
    Stale,
    /// The handle does not have the form of this file system's (NFS3ERR_BADHANDLE).
    #[error("bad file handle")]
    BadHandle,
    /// The ctime differs from SETATTR's guard (NFS3ERR_NOT_SYNC).
    #[error("the object was changed meanwhile")]
    NotSync,
    /// The directory did not issue this cookie (NFS3ERR_BAD_COOKIE).
    #[error("bad directory cookie")]
    BadCookie,
    /// The file system does not support the operation (NFS3ERR_NOTSUPP).
    #[error("not supported")]
    NotSupported,
    /// Memory or descriptors are exhausted for now, or the data to be changed is still being sent
    /// (NFS3ERR_JUKEBOX).
    #[error("try again later")]
    Later,
}

impl FsError {
    /// Returns the status on the wire.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Perm => Status::PERM,
            Self::NotFound => Status::NOENT,
            Self::Host(_) => Status::IO,
            Self::NoDevice => Status::NXIO,
            Self::Access => Status::ACCES,
            Self::Exists => Status::EXIST,
            Self::CrossDevice => Status::XDEV,
            Self::NotDirectory => Status::NOTDIR,
            Self::IsDirectory => Status::ISDIR,
            Self::Invalid => Status::INVAL,
            Self::FileTooLarge => Status::FBIG,
            Self::NoSpace => Status::NOSPC,
            Self::ReadOnly => Status::ROFS,
            Self::TooManyLinks => Status::MLINK,
            Self::NameTooLong => Status::NAMETOOLONG,
            Self::NotEmpty => Status::NOTEMPTY,
            Self::Quota => Status::DQUOT,
            Self::Stale => Status::STALE,
            Self::BadHandle => Status::BADHANDLE,
            Self::NotSync => Status::NOT_SYNC,
            Self::BadCookie => Status::BAD_COOKIE,
            Self::NotSupported => Status::NOTSUPP,
            Self::Later => Status::JUKEBOX,
        }
    }
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PERM => Self::Perm,
            Errno::NOENT => Self::NotFound,
            Errno::NXIO | Errno::NODEV => Self::NoDevice,
            // EBUSY: a mount point is to be removed or replaced, or a FUSE daemon refuses to remove
            // an open file. NFS version 3 has no status for that; knfsd answers NFS3ERR_ACCES as
            // well. Clients would take NFS3ERR_IO for a broken disk, and repeat after
            // NFS3ERR_JUKEBOX.
            Errno::ACCESS | Errno::BUSY => Self::Access,
            Errno::EXIST => Self::Exists,
            Errno::XDEV => Self::CrossDevice,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::ISDIR => Self::IsDirectory,
            // ELOOP: a symbolic link where none is followed.
            Errno::INVAL | Errno::LOOP => Self::Invalid,
            Errno::FBIG | Errno::OVERFLOW => Self::FileTooLarge,
            Errno::NOSPC => Self::NoSpace,
            Errno::ROFS => Self::ReadOnly,
            Errno::MLINK => Self::TooManyLinks,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::Quota,
            Errno::STALE => Self::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::NotSupported,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Self::Later,
            other => Self::Host(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_host_keep_their_meaning() {
        for (errno, status) in [
            (Errno::IO, Status::IO),
            (Errno::NOSPC, Status::NOSPC),
            (Errno::DQUOT, Status::DQUOT),
            (Errno::ROFS, Status::ROFS),
            (Errno::NAMETOOLONG, Status::NAMETOOLONG),
            (Errno::ACCESS, Status::ACCES),
            (Errno::BUSY, Status::ACCES),
            (Errno::PERM, Status::PERM),
            (Errno::NOTEMPTY, Status::NOTEMPTY),
            (Errno::XDEV, Status::XDEV),
            (Errno::MLINK, Status::MLINK),
            (Errno::MFILE, Status::JUKEBOX),
            (Errno::FBIG, Status::FBIG),
        ] {
            assert_eq!(FsError::from(errno).status(), status, "{errno:?}");
        }
    }
}
