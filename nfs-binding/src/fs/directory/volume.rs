//! The file systems of an export: the one that its directory is in, and those mounted below.
//!
//! What is mounted below the export's directory, and on btrfs every subvolume and snapshot, is a
//! file system of its own: inode numbers of one mean nothing in another. With `crossmnt` they are
//! part of the export, each with a number of its own in its objects' identities; otherwise an
//! empty directory stands in their place (`covered.rs`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use super::DirectoryOptions;
use super::host::{self, OpenFiles};
use super::key::{self, IdentityKey, Naming, NoIdentity};
use crate::fs::{FileId, FsError, FsResult};

/// How often opening a file is tried again when the kernel lacks memory for it.
const TRIES: usize = 100;

/// A file system, or the part of one that is in the export.
pub(super) struct Volume {
    /// Its number in identities.
    pub(super) fsid: u64,
    /// The number that clients see: 0 for the file system of the export's own directory.
    pub(super) shown: u64,
    /// Its number by the host (`f_fsid`).
    number: u64,
    naming: Naming,
    /// The device number that its directories have. (On an overlay, files can have others.)
    device: (u32, u32),
    /// The mount by which it was found: another one may allow less.
    mounted_as: u64,
    /// A directory of it, opened for reading: what the kernel wants to open files by handles.
    /// Nothing without the privilege, or where the file system cannot do that.
    mount: Option<OwnedFd>,
    /// Longest file, bytes.
    pub(super) max_file_size: u64,
    key: IdentityKey,
}

impl Volume {
    /// The file system of the directory `dir`. `own` for that of the export's own directory.
    ///
    /// # Errors
    /// Its files cannot be told apart ([`NoIdentity`]), or `dir` cannot be read.
    pub(super) fn open(
        files: &OpenFiles,
        dir: impl AsFd,
        stat: &Statx,
        options: &DirectoryOptions,
        own: bool,
    ) -> std::io::Result<Self> {
        let naming =
            Naming::find(&dir, stat, options.inode_reuse).map_err(|error: NoIdentity| {
                std::io::Error::new(std::io::ErrorKind::Unsupported, error)
            })?;
        let number = host::file_system_number(&dir)?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let fsid = match options.fsid {
            Some(fsid) if own => fsid,
            // Some file systems in memory have no number. They do not outlive a boot, and neither
            // does the device number that keeps them apart here.
            _ if number == 0 && !own => rustix::fs::makedev(device.0, device.1),
            _ => number,
        };
        let readable = files.reopen(dir.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let max_file_size = host::max_file_size(&readable);
        let mut volume = Self {
            fsid,
            shown: if own { 0 } else { fsid.max(1) },
            number,
            naming,
            device,
            mounted_as: stat.stx_mnt_id,
            mount: None,
            max_file_size,
            key: options.identity_key,
        };
        let root = volume.identify(&dir, stat).map_err(std::io::Error::other)?;
        volume.mount = Some(readable);
        if naming != Naming::Decodable || !matches!(volume.open_by_handle(&root), Ok(Some(_))) {
            volume.mount = None;
        }
        #[cfg(test)]
        if options.indexed {
            volume.mount = None;
        }
        Ok(volume)
    }

    /// Another subvolume of this file system, which has an object with these attributes.
    pub(super) fn beside(&self, number: u64, stat: &Statx) -> std::io::Result<Self> {
        Ok(Self {
            fsid: number,
            shown: number.max(1),
            number,
            naming: self.naming,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            mounted_as: stat.stx_mnt_id,
            mount: self.mount.as_ref().map(OwnedFd::try_clone).transpose()?,
            max_file_size: self.max_file_size,
            key: self.key,
        })
    }

    /// The identity of an object of this file system.
    pub(super) fn identify(&self, fd: impl AsFd, stat: &Statx) -> FsResult<FileId> {
        self.naming.identify(self.fsid, fd, stat, &self.key)
    }

    /// The identity of the empty directory in place of what has the root `mounted`.
    pub(super) fn covered(&self, mounted: &FileId) -> FileId {
        key::covered(self.fsid, mounted, &self.key)
    }

    /// Whether a directory with these attributes, found in this file system without crossing a
    /// mount point, is in another all the same: the root of a subvolume.
    pub(super) fn is_left_by(&self, stat: &Statx) -> bool {
        let directory = host::file_type(stat) == crate::proto::FileType::Directory;
        directory && self.device != (stat.stx_dev_major, stat.stx_dev_minor)
    }

    /// Whether an object with these attributes was found by the same mount.
    pub(super) fn is_mounted_as(&self, stat: &Statx) -> bool {
        self.mounted_as == stat.stx_mnt_id
    }

    /// Whether a directory with these attributes, whose file system has this number by the host,
    /// is in this one.
    pub(super) fn holds(&self, stat: &Statx, number: u64) -> bool {
        self.number == number
            && self.device == (stat.stx_dev_major, stat.stx_dev_minor)
            && self.mounted_as == stat.stx_mnt_id
    }

    /// Whether objects are found by an index rather than by the kernel.
    pub(super) fn is_indexed(&self) -> bool {
        self.mount.is_none()
    }

    /// Opens an object, as a descriptor that only names it. Nothing when the kernel cannot find it
    /// by this identity.
    ///
    /// # Errors
    /// [`FsError::Stale`] when the object is gone.
    pub(super) fn open_by_handle(&self, id: &FileId) -> FsResult<Option<OwnedFd>> {
        let Some(mount) = &self.mount else {
            return Ok(None);
        };
        let Some(handle) = key::decode(id)?.handle else {
            return Ok(None);
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let mut opened = handle.open(mount, flags);
        // The kernel can also return ENOMEM for a moment while another file with the same inode number is
        // being created, so this is retried.
        for _ in 0..TRIES {
            if opened.as_ref().err() != Some(&Errno::NOMEM) {
                break;
            }
            std::thread::yield_now();
            opened = handle.open(mount, flags);
        }
        match opened {
            Ok(fd) => Ok(Some(fd)),
            // The file system does not recognise the handle: it is from an earlier file system with the
            // same number, which has been recreated (mkfs) since.
            Err(Errno::INVAL | Errno::NOENT) => Err(FsError::Stale),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("fsid", &self.fsid)
            .field("naming", &self.naming)
            .field("indexed", &self.is_indexed())
            .finish_non_exhaustive()
    }
}

/// The file systems that an export was seen to have below its own.
#[derive(Debug, Default)]
pub(super) struct Crossed(Vec<Arc<Volume>>);

impl Crossed {
    /// Most file systems that are remembered.
    const MAX: usize = 4096;

    /// The one with this number.
    pub(super) fn by_fsid(&self, fsid: u64) -> Option<Arc<Volume>> {
        self.0.iter().find(|volume| volume.fsid == fsid).cloned()
    }

    /// The one that a directory with these attributes, and this number of its file system, is in.
    pub(super) fn of(&self, stat: &Statx, number: u64) -> Option<Arc<Volume>> {
        let held = self.0.iter().find(|volume| volume.holds(stat, number));
        held.cloned()
    }

    /// Remembers one.
    pub(super) fn add(&mut self, volume: Arc<Volume>) {
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push(volume);
    }

    /// Takes out those of which no object is open: they are found again when they are wanted, and
    /// can be unmounted meanwhile.
    pub(super) fn unused(&mut self) -> Vec<Arc<Volume>> {
        let (used, unused) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|volume| Arc::strong_count(volume) > 1);
        self.0 = used;
        unused
    }
}
