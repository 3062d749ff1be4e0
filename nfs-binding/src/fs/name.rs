//! Checks of directory entry names (`filename3`) and of the targets of symbolic links (`nfspath3`).

use super::{FsError, FsResult};
use crate::proto::MAX_PATH;

/// The maximum length of a name, bytes (NAME_MAX).
pub const MAX_NAME_LEN: usize = 255;

/// Checks that `name` is one component of a path.
///
/// A name that is empty or contains a slash or a NUL is rejected with NFS3ERR_ACCES, the error of Linux's
/// VFS: RFC 1813 does not list NFS3ERR_INVAL as an error of LOOKUP. (knfsd does not decode such names, nor
/// those of more than 255 bytes, and answers GARBAGE_ARGS.)
pub(super) fn check(name: &[u8]) -> FsResult<()> {
    if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(FsError::Access);
    }
    if name.len() > MAX_NAME_LEN {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

/// Checks a name to be created: `.` and `..` always exist.
pub(super) fn check_new(name: &[u8]) -> FsResult<()> {
    check(name)?;
    if is_dots(name) {
        return Err(FsError::Exists);
    }
    Ok(())
}

/// Checks a name to be removed: `.` and `..` cannot be removed.
pub(super) fn check_old(name: &[u8]) -> FsResult<()> {
    check(name)?;
    if is_dots(name) {
        return Err(FsError::Invalid);
    }
    Ok(())
}

/// Checks the target of a symbolic link to be created. Linux cannot read a longer one back.
pub(super) fn check_target(target: &[u8]) -> FsResult<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(FsError::Invalid);
    }
    if target.len() > MAX_PATH as usize {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
