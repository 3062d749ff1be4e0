//! Crossing from one file system of an export into another (`crossmnt`).

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::Statx;

use super::host;
use super::key;
use super::node::{Child, Node};
use super::volume::{Crossed, Volume, fsid_below};
use super::{Served, locked};
use crate::fs::{FileId, FsError, FsResult};
use crate::proto::FileType;

/// The list of this process's mounts (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";
/// The index of the field in a line that contains the mount point.
const MOUNT_POINT: usize = 4;

impl Served {
    /// Opens the entry `name` of `dir`, on which another file system is mounted.
    #[cold]
    pub(super) fn open_mounted(&self, dir: &Node, name: &[u8]) -> FsResult<Child> {
        let path = host::open_child(dir, name, true)?.ok_or(FsError::Access)?;
        self.open_root(path)
    }

    /// Returns the root of another file system, or of a subvolume, at `path` as a directory entry.
    ///
    /// With `crossmnt` it is part of the export. Otherwise no request is sent to the file system: it may
    /// be a network mount whose server does not answer.
    ///
    /// # Errors
    /// [`FsError::Access`] if it is not a directory: a single file can be mounted, too.
    #[cold]
    pub(super) fn open_root(&self, path: OwnedFd) -> FsResult<Child> {
        let known = host::stat_known(&path)?;
        if host::file_type(&known) != FileType::Directory {
            return Err(FsError::Access);
        }
        let root = key::of_root(&known, &self.options.identity_key);
        if !self.options.crossmnt || self.is_other_export(&root) {
            return Ok(Child::Elsewhere(root));
        }
        let stat = host::stat(&path)?;
        let Some(volume) = self.volume_of(&path, &stat)? else {
            return Ok(Child::Elsewhere(root));
        };
        let id = volume.identify(&path, &stat)?;
        let node = Node::new(id, volume, path, &stat);
        let attributes = node.to_client(&stat);
        Ok(Child::Here(node, attributes))
    }

    /// Returns whether `root` is the root of another export, with options of its own.
    fn is_other_export(&self, root: &FileId) -> bool {
        self.other_exports
            .get()
            .is_some_and(|roots| roots.contains(root))
    }

    /// Returns the file system of a directory that may be outside the export's own file system.
    /// Returns `None` if its objects could not be distinguished from those of a file system that is
    /// already known: a copy of it, or the same file system mounted a second time, perhaps with
    /// other rights.
    pub(super) fn volume_of(&self, dir: &OwnedFd, stat: &Statx) -> FsResult<Option<Arc<Volume>>> {
        let own = &self.root.volume;
        let number = host::file_system_number(dir)?;
        if own.holds(stat, number) {
            return Ok(Some(Arc::clone(own)));
        }
        let fsid = fsid_below(stat, number);
        let known = |crossed: &Crossed| {
            let held = crossed.of(stat, number);
            (held, crossed.by_fsid(fsid).is_some())
        };
        let (held, taken) = known(&locked(&self.crossed));
        if held.is_some() {
            return Ok(held);
        }
        if taken || own.fsid == fsid {
            rpcrdma_host::limited!(
                warn,
                fsid,
                "a file system below an export has the number of another one in it, and is not \
                 crossed into: export it by itself, with fsid="
            );
            return Ok(None);
        }
        let open = || Volume::open(&self.files, dir, stat, &self.options, false);
        let opened = self.authority.as_server(|| {
            open().map_err(|error| {
                rpcrdma_host::limited!(warn, %error, "a file system below an export is not served");
                FsError::Access
            })
        })?;
        tracing::info!(
            fsid = opened.fsid,
            indexed = opened.is_indexed(),
            "crossed into another file system"
        );
        let opened = Arc::new(opened);
        let mut crossed = locked(&self.crossed);
        // Another thread may have added it meanwhile, or another mount of it.
        match known(&crossed) {
            (Some(held), _) => return Ok(Some(held)),
            (None, true) => return Ok(None),
            (None, false) => {}
        }
        crossed.add(Arc::clone(&opened));
        drop(crossed);
        // Wakes the idle closer: after a listing, no object of the file system is open, and nothing else
        // would close it.
        self.closer_signal.opened();
        Ok(Some(opened))
    }

    /// Returns the file system that an object is in.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the file system is not, or no longer, part of the export.
    pub(super) fn volume_by_number(&self, id: &FileId, fsid: u64) -> FsResult<Arc<Volume>> {
        if fsid == self.root.volume.fsid {
            return Ok(Arc::clone(&self.root.volume));
        }
        if !self.options.crossmnt {
            return Err(FsError::Stale);
        }
        let known = locked(&self.crossed).by_fsid(fsid);
        match known {
            Some(volume) => Ok(volume),
            None => self.discover(id, fsid),
        }
    }

    /// Searches for a file system that this process does not remember: it was crossed into before a
    /// restart, or forgotten since because none of its objects was open.
    #[cold]
    fn discover(&self, id: &FileId, fsid: u64) -> FsResult<Arc<Volume>> {
        // A subvolume, whose objects can be opened by handles of the same file system.
        if let Ok(Some(object)) = self.root.volume.open_by_handle(id)
            && host::file_system_number(&object)? == fsid
        {
            let stat = host::stat(&object)?;
            let device = key::device(&stat).to_be_bytes();
            let is_in_it = |root: &FileId| root.as_bytes().starts_with(&device);
            if self
                .other_exports
                .get()
                .is_some_and(|roots| roots.iter().any(is_in_it))
            {
                return Err(FsError::Stale);
            }
            let beside = self.root.volume.subvolume(fsid, &stat);
            let beside = Arc::new(beside.map_err(|_| FsError::Later)?);
            locked(&self.crossed).add(Arc::clone(&beside));
            self.closer_signal.opened();
            return Ok(beside);
        }
        let mounts = std::fs::read(MOUNTS).map_err(|error| {
            tracing::warn!(%error, "{MOUNTS} cannot be read");
            FsError::Later
        })?;
        let top = self.files.path(self.root.as_fd())?;
        for line in mounts.split(|&byte| byte == b'\n') {
            let mut fields = line.split(|&byte| byte == b' ');
            let Some(point) = fields.nth(MOUNT_POINT).map(unescaped) else {
                continue;
            };
            let below = std::path::Path::new(std::ffi::OsStr::from_bytes(&point));
            let Ok(below) = below.strip_prefix(&top) else {
                continue;
            };
            let name = below.as_os_str().as_bytes();
            let Ok(Some(root)) = host::open_child(&self.root, name, true) else {
                continue;
            };
            let number = || -> FsResult<u64> {
                let number = host::file_system_number(&root)?;
                Ok(fsid_below(&host::stat_known(&root)?, number))
            };
            if number().is_ok_and(|number| number == fsid) {
                // A mount that cannot be used does not hide another one of the same file system.
                let Ok(Child::Here(node, _)) = self.open_root(root) else {
                    continue;
                };
                let volume = Arc::clone(&node.volume);
                self.keep_open(node);
                return Ok(volume);
            }
        }
        Err(FsError::Stale)
    }
}

/// Decodes a path of /proc/self/mountinfo, in which spaces and some other characters are escaped as
/// three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.first_chunk::<3>().filter(|_| byte == b'\\');
        let number = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(byte);
                rest = after;
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn mount_points_are_read_as_they_are() {
        for (field, path) in [
            (&b"/plain"[..], &b"/plain"[..]),
            (br"/with\040space\134", br"/with space\"),
            (br"/odd\09", br"/odd\09"),
            (br"\04", br"\04"),
            (br"/\777", br"/\777"),
        ] {
            assert_eq!(unescaped(field), path);
        }
    }
}
