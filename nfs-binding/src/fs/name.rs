//! Names in a directory (`filename3`).

use super::{FsError, FsResult};

/// Longest name, bytes (NAME_MAX).
pub const MAX_NAME_LEN: usize = 255;

/// Checks that `name` is one component of a path.
///
/// An empty name, and one with a slash or a NUL, which no file can have, is refused with
/// NFS3ERR_ACCES, as Linux does: NFS3ERR_INVAL is not among what RFC 1813 lets LOOKUP answer.
pub(super) fn check(name: &[u8]) -> FsResult<()> {
    if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(FsError::Access);
    }
    if name.len() > MAX_NAME_LEN {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

/// Checks a name to be made: "." and ".." exist everywhere.
pub(super) fn check_new(name: &[u8]) -> FsResult<()> {
    check(name)?;
    if is_dots(name) {
        return Err(FsError::Exists);
    }
    Ok(())
}

/// Checks a name to be taken away: "." and ".." cannot be.
pub(super) fn check_old(name: &[u8]) -> FsResult<()> {
    check(name)?;
    if is_dots(name) {
        return Err(FsError::Invalid);
    }
    Ok(())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
