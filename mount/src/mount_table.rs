//! The table of mounts, `/proc/self/mountinfo`, which is read without touching what is mounted.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::MountError;

/// The type of these mounts in the table.
pub(crate) const TYPE: &str = "fuse.rpcrdma";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The directory.
    pub path: PathBuf,
    /// The numbers of the device that files of the mount are on, as `MAJOR:MINOR`.
    pub device: String,
    /// The type of file system.
    pub file_system: String,
    /// The source of the mount, such as a URL or a device.
    pub source: OsString,
    /// The options: those of the mount, then those of the file system.
    pub options: Vec<String>,
}

impl MountEntry {
    /// Returns whether a program of this kind made the mount.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.file_system == TYPE
    }

    /// Returns whether the table shows an option that has no value.
    pub(crate) fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|shown| shown == option)
    }
}

/// Returns the uppermost mount at a directory, if there is one.
///
/// # Errors
/// The table cannot be read.
pub(crate) fn find(path: &Path) -> io::Result<Option<MountEntry>> {
    Ok(all()?.into_iter().rev().find(|entry| entry.path == path))
}

/// Returns the uppermost mount at a directory, which a program of this kind must have made.
///
/// # Errors
/// [`MountError::NotMounted`], also if there is no such directory; [`MountError::MountPoint`] if it cannot be reached.
pub fn ours_at(at: &Path) -> Result<MountEntry, MountError> {
    let mount_point = |source| MountError::MountPoint {
        path: at.to_owned(),
        source,
    };
    let path = match absolute(at) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("there is no such directory (`findmnt -t {TYPE}` lists the mounts)");
            let path = at.to_owned();
            return Err(MountError::NotMounted { path, what });
        }
        absolute => absolute.map_err(mount_point)?,
    };
    let what = match find(&path).map_err(mount_point)? {
        Some(entry) if entry.is_ours() => return Ok(entry),
        Some(entry) => format!("is a mount of type {}, not {TYPE}", entry.file_system),
        None => "nothing is mounted there".to_owned(),
    };
    Err(MountError::NotMounted { path, what })
}

/// Returns all mounts.
///
/// # Errors
/// The table cannot be read.
pub fn all() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let lines = table.split(|&byte| byte == b'\n');
    Ok(lines.filter_map(parse).collect())
}

/// Parses a line: `ID PARENT MAJOR:MINOR ROOT PATH OPTIONS [FIELDS...] - TYPE SOURCE OPTIONS`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = String::from_utf8_lossy(words.nth(2)?).into_owned();
    let path = unescape(words.nth(1)?);
    let of_mount = words.next()?;
    let mut words = words.skip_while(|word| *word != b"-");
    words.next()?;
    let file_system = String::from_utf8_lossy(words.next()?).into_owned();
    let source = OsString::from_vec(unescape(words.next()?));
    let of_file_system = words.next().unwrap_or_default();
    let options = [of_mount, of_file_system].map(String::from_utf8_lossy);
    let options = options.iter().flat_map(|list| list.split(','));
    Some(MountEntry {
        path: OsString::from_vec(path).into(),
        device,
        file_system,
        source,
        options: options.map(str::to_owned).collect(),
    })
}

/// Decodes `\OOO`, which stands for a byte.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| byte == b'\\');
        let value = digits.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        out.push(value.unwrap_or(byte));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    out
}

/// Returns the absolute path of a directory without touching itself, as a dead mount does not like
/// that: only the way to it is followed.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if name.as_bytes() != b".." => {
            Ok(parent.canonicalize()?.join(name))
        }
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_understood() {
        let line =
            br"36 35 98:0 / /mnt/a\040b\134 rw,noatime master:1 - fuse.rpcrdma nfs://h/x\011y rw,sync";
        let entry = parse(line).unwrap();
        assert_eq!(entry.path, Path::new("/mnt/a b\\"));
        assert!(entry.is_ours());
        assert_eq!(entry.device, "98:0");
        assert_eq!(entry.source, "nfs://h/x\ty");
        assert!(entry.has_option("noatime") && entry.has_option("sync"));
        assert!(!entry.has_option("ro"));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 3:4 / /x rw"), None);
        let root = find(Path::new("/")).unwrap().unwrap();
        assert!(!root.is_ours());
    }
}
