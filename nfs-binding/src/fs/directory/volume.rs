//! The file systems of an export: that of its directory, and those mounted below.
//!
//! A file system mounted below the export's directory, and on btrfs every subvolume and snapshot,
//! is separate: inode numbers of one mean nothing in another. With `crossmnt` they are part of the
//! export, each with a number of its own in its objects' identities. Otherwise an empty placeholder
//! directory stands in their place (`placeholder.rs`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use super::DirectoryOptions;
use super::cookies;
use super::direct_file::DirectVolume;
use super::host::{self, Listed, OpenFiles};
use super::key::{self, IdentityKey, Naming, NoIdentity};
use super::shared_sync::SharedSync;
use crate::fs::{FileId, FsError, FsResult};

/// The maximum number of attempts to open a file while the kernel returns ENOMEM.
const TRIES: usize = 100;

/// Returns the `fsid` that clients see for a file system below the export's own, which has 0.
fn shown_below(fsid: u64) -> u64 {
    fsid.max(1)
}

/// Returns the number in identities of a file system below the export's own, which has a directory with these
/// attributes. `number` is the host's number of the file system.
pub(super) fn fsid_below(stat: &Statx, number: u64) -> u64 {
    match number {
        // FUSE has no numbers, tmpfs has them since Linux 5.13, and other file systems in memory since 6.7. The
        // device number distinguishes those without one as long as they are mounted: after a reboot or another
        // mount, it can be that of another file system.
        0 => key::device(stat),
        number => number,
    }
}

/// A file system, or the part of one that is in the export.
pub(super) struct Volume {
    /// The file system's number in identities.
    pub(super) fsid: u64,
    /// The `fsid` that clients see: 0 for the file system of the export's own directory.
    pub(super) shown: u64,
    /// The host's number of the file system (`f_fsid`).
    number: u64,
    naming: Naming,
    /// The device number of its directories. (On an overlay, files can have others.)
    device: (u32, u32),
    /// The mount through which it was found. Another mount may allow less.
    mounted_as: u64,
    /// A directory of the file system that is open for reading, which the kernel needs for syncing
    /// the file system, and for opening files by handle.
    pub(super) directory: OwnedFd,
    /// Whether the kernel opens files by handle: not without the privilege, and not if the file
    /// system does not support it.
    opens_handles: bool,
    /// Syncs of the whole file system. A volume made by [`Volume::subvolume`] shares them, because it
    /// shares the open file description, and the kernel reports a lost write only once for each
    /// description.
    pub(super) sync: Arc<SharedSync>,
    /// The maximum file size, bytes.
    pub(super) max_file_size: u64,
    /// Whether the cookies of its directories last. Otherwise they are made here (`cookies.rs`).
    cookies_last: bool,
    /// The state of direct I/O in it.
    pub(super) direct: DirectVolume,
    /// Whether the attributes of its open objects are in memory.
    pub(super) keeps_attributes: bool,
    /// Whether all of it is in memory.
    pub(super) in_memory: bool,
    /// Whether it cannot be asked to read only what is in memory.
    refuses_nowait: AtomicBool,
    key: IdentityKey,
}

/// How data is read without waiting for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// With `RWF_NOWAIT`, which returns only what is in memory. For what is not, Linux begins to read
    /// ahead since version 5.9: it does not wait for the data, but it may look up blocks and submit I/O.
    Cached,
    /// In any way: it is in memory.
    Memory,
}

impl Volume {
    /// Opens the file system of the directory `dir`. `own` is true for the file system of the
    /// exported directory itself.
    ///
    /// # Errors
    /// Its files cannot be identified ([`NoIdentity`]), or `dir` cannot be read.
    pub(super) fn open(
        files: &OpenFiles,
        dir: impl AsFd,
        stat: &Statx,
        options: &DirectoryOptions,
        own: bool,
    ) -> std::io::Result<Self> {
        let file_system = host::file_system_type(&dir)?;
        let naming = Naming::find(&dir, file_system, stat, options.inode_reuse).map_err(
            |error: NoIdentity| std::io::Error::new(std::io::ErrorKind::Unsupported, error),
        )?;
        if key::end_with_cache(&dir, file_system) {
            rpcrdma_host::limited!(
                warn,
                "files of FAT and exFAT have no lasting identity: clients get ESTALE for a file that \
                 the kernel has dropped from its cache, at the latest after another mount"
            );
        }
        let number = host::file_system_number(&dir)?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let fsid = match options.fsid {
            Some(fsid) if own => fsid,
            _ if own => number,
            _ => fsid_below(stat, number),
        };
        let directory = files.reopen(dir.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let max_file_size = host::max_file_size(&directory);
        let mut volume = Self {
            fsid,
            shown: if own { 0 } else { shown_below(fsid) },
            number,
            naming,
            device,
            mounted_as: stat.stx_mnt_id,
            directory,
            opens_handles: naming == Naming::Decodable,
            sync: Arc::new(SharedSync::new()),
            max_file_size,
            cookies_last: host::cookies_last(file_system),
            direct: DirectVolume::new(),
            keeps_attributes: host::keeps_attributes(file_system),
            in_memory: host::is_in_memory(file_system),
            refuses_nowait: AtomicBool::new(false),
            key: options.identity_key,
        };
        let root = volume.identify(&dir, stat).map_err(std::io::Error::other)?;
        volume.opens_handles = matches!(volume.open_by_handle(&root), Ok(Some(_)));
        #[cfg(test)]
        if options.indexed {
            volume.opens_handles = false;
        }
        Ok(volume)
    }

    /// Creates the volume of another subvolume of this file system, which has an object with these
    /// attributes.
    pub(super) fn subvolume(&self, number: u64, stat: &Statx) -> std::io::Result<Self> {
        Ok(Self {
            fsid: number,
            shown: shown_below(number),
            number,
            naming: self.naming,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            mounted_as: stat.stx_mnt_id,
            directory: self.directory.try_clone()?,
            opens_handles: self.opens_handles,
            sync: Arc::clone(&self.sync),
            max_file_size: self.max_file_size,
            cookies_last: self.cookies_last,
            direct: DirectVolume::new(),
            keeps_attributes: self.keeps_attributes,
            in_memory: self.in_memory,
            refuses_nowait: AtomicBool::new(self.refuses_nowait.load(Ordering::Relaxed)),
            key: self.key,
        })
    }

    /// Returns the `fsid` that clients see for the file system `fsid`. `self` is that of the export's
    /// own directory.
    pub(super) fn shown_of(&self, fsid: u64) -> u64 {
        match fsid == self.fsid {
            true => self.shown,
            false => shown_below(fsid),
        }
    }

    /// Returns the identity of an object of this file system.
    pub(super) fn identify(&self, fd: impl AsFd, stat: &Statx) -> FsResult<FileId> {
        self.naming.identify(self.fsid, fd, stat, &self.key)
    }

    /// Returns the identity of the placeholder directory that is the entry `name` of `dir`.
    pub(super) fn placeholder(&self, dir: &FileId, name: &[u8]) -> FileId {
        key::placeholder(self.fsid, dir, name, &self.key)
    }

    /// Returns whether a directory with these attributes, found without crossing a mount point,
    /// belongs to another file system nevertheless: it is the root of a subvolume.
    pub(super) fn is_subvolume_root(&self, stat: &Statx) -> bool {
        let directory = host::file_type(stat) == crate::proto::FileType::Directory;
        directory && self.device != (stat.stx_dev_major, stat.stx_dev_minor)
    }

    /// Returns whether an object with these attributes was found through the same mount.
    pub(super) fn is_mounted_as(&self, stat: &Statx) -> bool {
        self.mounted_as == stat.stx_mnt_id
    }

    /// Returns whether a directory is in this file system. `number` is the host's number of the
    /// directory's file system.
    pub(super) fn holds(&self, stat: &Statx, number: u64) -> bool {
        self.number == number
            && self.device == (stat.stx_dev_major, stat.stx_dev_minor)
            && self.mounted_as == stat.stx_mnt_id
    }

    /// Lists a directory, which was just opened, from `cookie` (0: the start) until `take` returns
    /// false. Returns whether the end was reached. Cookies stay valid while entries are added and
    /// removed, and over restarts.
    pub(super) fn list(
        &self,
        dir: impl AsFd,
        cookie: u64,
        take: impl FnMut(&Listed<'_>) -> FsResult<bool>,
    ) -> FsResult<bool> {
        match self.cookies_last {
            true => host::list(dir, cookie, take),
            false => cookies::list(dir, cookie, &self.key, cookies::AT_ONCE, take),
        }
    }

    /// Returns how data of its files is read without waiting, if that is possible. `swapped` returns
    /// whether the host has swapped memory out.
    pub(super) fn reads(&self, swapped: impl FnOnce() -> bool) -> Option<Reads> {
        match self.in_memory {
            true => (!swapped()).then_some(Reads::Memory),
            false => (!self.refuses_nowait.load(Ordering::Relaxed)).then_some(Reads::Cached),
        }
    }

    /// Records that the file system cannot be asked to read only what is in memory.
    pub(super) fn refuses_nowait(&self) {
        self.refuses_nowait.store(true, Ordering::Relaxed);
    }

    /// Returns whether objects are found by an index rather than by the kernel.
    pub(super) fn is_indexed(&self) -> bool {
        !self.opens_handles
    }

    /// Opens an object with `O_PATH`. Returns `None` if the kernel cannot open it by this identity.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the object is gone.
    pub(super) fn open_by_handle(&self, id: &FileId) -> FsResult<Option<OwnedFd>> {
        if !self.opens_handles {
            return Ok(None);
        }
        let Some(handle) = key::decode(id)?.handle else {
            return Ok(None);
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let mut opened = handle.open(&self.directory, flags);
        // The kernel can also return ENOMEM for a moment while another file with the same inode
        // number is being created, so this is retried.
        for _ in 0..TRIES {
            if opened.as_ref().err() != Some(&Errno::NOMEM) {
                break;
            }
            std::thread::yield_now();
            opened = handle.open(&self.directory, flags);
        }
        match opened {
            Ok(fd) => Ok(Some(fd)),
            // The file system does not recognise the handle: it is from an earlier file system with
            // the same number, which has been recreated (mkfs) since.
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

/// The file systems that were found below an export.
#[derive(Debug, Default)]
pub(super) struct Crossed(Vec<Arc<Volume>>);

impl Crossed {
    /// The maximum number of remembered file systems.
    const MAX: usize = 4096;

    /// Returns the file system with this number.
    pub(super) fn by_fsid(&self, fsid: u64) -> Option<Arc<Volume>> {
        self.0.iter().find(|volume| volume.fsid == fsid).cloned()
    }

    /// Returns the file system of a directory with these attributes. `number` is the host's number
    /// of its file system.
    pub(super) fn of(&self, stat: &Statx, number: u64) -> Option<Arc<Volume>> {
        let held = self.0.iter().find(|volume| volume.holds(stat, number));
        held.cloned()
    }

    /// Returns whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a file system.
    pub(super) fn add(&mut self, volume: Arc<Volume>) {
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push(volume);
    }

    /// Removes and returns the file systems of which no object is open, for the caller to close.
    /// The idle closer does this in each round, since an open file system cannot be unmounted. A
    /// file system that is needed later is opened again.
    pub(super) fn unused(&mut self) -> Vec<Arc<Volume>> {
        let (used, unused) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|volume| Arc::strong_count(volume) > 1);
        self.0 = used;
        unused
    }
}
