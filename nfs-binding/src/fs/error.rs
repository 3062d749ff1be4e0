//! Why a file system operation failed.

use rustix::io::Errno;

use crate::proto::Status;

/// Result of a file system operation.
pub type FsResult<T> = Result<T, FsError>;

/// Why an operation failed. Each maps onto one `nfsstat3` (RFC 1813, section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// Only the owner, or the superuser, may do it.
    #[error("not the owner")]
    Perm,
    /// The name does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The host failed.
    #[error("the host failed: {0}")]
    Host(Errno),
    /// No such device.
    #[error("no such device")]
    NoDevice,
    /// The permission bits do not allow it.
    #[error("permission denied")]
    Access,
    /// The name exists.
    #[error("file exists")]
    Exists,
    /// The two objects are in different file systems.
    #[error("not in the same file system")]
    CrossDevice,
    /// Not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// A directory.
    #[error("is a directory")]
    IsDirectory,
    /// Not a valid argument, or not for this type of object.
    #[error("invalid argument")]
    Invalid,
    /// Beyond the longest file.
    #[error("file too large")]
    FileTooLarge,
    /// Full.
    #[error("no space left")]
    NoSpace,
    /// Mounted read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// Too many hard links.
    #[error("too many links")]
    TooManyLinks,
    /// The name is too long.
    #[error("name too long")]
    NameTooLong,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The caller's quota is used up.
    #[error("quota exceeded")]
    Quota,
    /// The object is gone.
    #[error("stale file handle")]
    Stale,
    /// Not a handle that this file system gave.
    #[error("bad file handle")]
    BadHandle,
    /// SETATTR's guard does not hold.
    #[error("the object was changed meanwhile")]
    NotSync,
    /// Not a cookie of this directory.
    #[error("bad directory cookie")]
    BadCookie,
    /// Not something this file system does.
    #[error("not supported")]
    NotSupported,
    /// Out of memory or descriptors for now; or what is to be changed is still being sent.
    #[error("try again later")]
    Later,
}

impl FsError {
    /// Its number on the wire.
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
            Errno::ACCESS => Self::Access,
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
