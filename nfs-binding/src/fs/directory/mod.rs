//! A directory of the host, with all below it that is in the same mount.
//!
//! # What holds it together
//!
//! * Objects are named by descriptors that only name (O_PATH), and every name is looked up as one
//!   component, relative to one, with openat2(2) told to follow no symbolic link and to cross no
//!   mount point. So nothing that is renamed meanwhile can lead out of the export; a directory that
//!   the host's administrator moves out of it stays reachable by its old handle while it is open
//!   here, as it does with the Linux server. A mount point below shows as an entry that nobody may
//!   look up.
//! * Handles are inode number and birth time, with a hint of where to look (`key.rs`). They outlive
//!   the server, and renames. What it costs to find a file that is not open is in `find.rs`.
//! * Run by the superuser, permissions are checked here, for the caller, from the permission bits
//!   (access control lists are not looked at), and new files are given to the caller. Run by
//!   anybody else, everything is done as that user, whoever calls.
//! * What RFC 1813 wants to be stable is synchronised before the reply, unless that is turned off.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use onc_rpc::Bulk;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Resource;
use smallvec::SmallVec;

use super::lock::locked;
use super::{
    Abilities, Caller, Change, DirEntry, FileId, FileSystem, Found, FsError, FsResult, HowToCreate,
    Listing, NameRules, Object, Read, Renamed, Space, Special, Written,
};
use super::{name, permission, wcc};
use crate::proto::{
    Access, Attributes, FileType, NfsTime, Properties, SetAttributes, SetTime, Stable, Verifier,
    WccData,
};
use find::Handle;
use host::OpenFiles;
use key::{Key, Trail};
use node::Node;
use scan::Index;
use table::Table;

mod change;
mod content;
mod find;
mod host;
mod key;
mod list;
mod make;
mod node;
mod remove;
mod scan;
mod sync;
mod table;

/// Longest file, bytes: what file offsets can say.
const MAX_FILE_SIZE: u64 = i64::MAX as u64;
/// Least number of hard links that the file systems of Linux allow a file.
const LINK_MAX: u32 = 255;
/// Of the descriptors that the process may have, one in so many names an object here. (It can have
/// a second one, for content; the rest is for connections, and for directories being read.)
const SHARE_OF_DESCRIPTORS: u64 = 4;
/// Most objects kept open however many descriptors there may be.
const MAX_OPEN: u64 = 16 << 10;
/// Locks that operations that change an object are spread over, by its inode number.
const STRIPES: usize = 64;

/// Objects whose attributes, or whose entries, are to be brought to stable storage.
type Unstable = SmallVec<[Arc<Node>; 2]>;

/// How to serve a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// Whether what RFC 1813 wants on stable storage is brought there before the reply (`sync` and
    /// `async` of exports(5)).
    pub sync: bool,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self { sync: true }
    }
}

/// A directory of the host as a file system.
pub struct DirectoryFs {
    root: Arc<Node>,
    /// What is mounted elsewhere is not part of the export.
    mount: u64,
    /// Whether birth times can be relied on.
    births: bool,
    files: OpenFiles,
    table: Mutex<Table>,
    index: Mutex<Option<Index>>,
    stripes: [Mutex<()>; STRIPES],
    verifier: AtomicU64,
    synchronise: Box<sync::Synchronise>,
    /// As whom everything is done, where that is not up to us.
    identity: Option<Caller>,
    options: DirectoryOptions,
}

impl DirectoryFs {
    /// Serves `path`.
    ///
    /// # Errors
    /// It is no directory, cannot be opened, or the host lacks what is needed: Linux 5.8 or later,
    /// and /proc.
    pub fn open(path: impl AsRef<Path>, options: DirectoryOptions) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path.as_ref(), flags, Mode::empty())?;
        let lacking = |what| {
            move |error| io::Error::new(io::ErrorKind::Unsupported, format!("{what}: {error}"))
        };
        let births = host::has_births(&root).map_err(io::Error::other)?;
        let stat = host::stat(&root).map_err(lacking("statx does not work here"))?;
        host::open_child(&root, b".").map_err(lacking("openat2 does not work here"))?;
        let files = OpenFiles::new().map_err(|error| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                format!("/proc is needed: {error}"),
            )
        })?;
        files.reopen(root.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let user = rustix::process::geteuid();
        let identity = (!user.is_root()).then(|| {
            tracing::warn!(
                uid = user.as_raw(),
                "not the superuser: every client's operations are done as this user",
            );
            let gids = rustix::process::getgroups().unwrap_or_default();
            Caller {
                uid: user.as_raw(),
                gid: rustix::process::getegid().as_raw(),
                gids: gids.into_iter().map(|gid| gid.as_raw()).collect(),
            }
        });
        let descriptors = rustix::process::getrlimit(Resource::Nofile).current;
        let open = descriptors.unwrap_or(u64::MAX) / SHARE_OF_DESCRIPTORS;
        Ok(Self {
            root: Arc::new(Node::new(Key::of(&stat, births), root, &stat)),
            mount: stat.stx_mnt_id,
            births,
            files,
            table: Mutex::new(Table::new(open.min(MAX_OPEN) as usize)),
            index: Mutex::default(),
            stripes: [const { Mutex::new(()) }; STRIPES],
            verifier: AtomicU64::new(getrandom::u64().map_err(io::Error::other)?),
            synchronise: Box::new(sync::by_kernel),
            identity,
            options,
        })
    }

    /// For whom an operation is really done.
    fn identity<'a>(&'a self, who: &'a Caller) -> &'a Caller {
        self.identity.as_ref().unwrap_or(who)
    }
}

impl std::fmt::Debug for DirectoryFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryFs")
            .field("root", &self.root.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl FileSystem for DirectoryFs {
    fn blocks(&self) -> bool {
        true
    }

    fn root(&self) -> FileId {
        key::encode(self.root.key, &Trail::default())
    }

    fn write_verifier(&self) -> Verifier {
        self.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    fn getattr(&self, file: &FileId) -> FsResult<Attributes> {
        self.find(file)?.node.attributes()
    }

    fn setattr(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()> {
        let who = self.identity(who);
        self.change(file, |handle, now, unstable| {
            if guard.is_some_and(|guard| guard != now.ctime) {
                return Err(FsError::NotSync);
            }
            let plan = permission::plan_setattr(now, set, who)?;
            self.apply(&handle.node, &plan)?;
            unstable.push(Arc::clone(&handle.node));
            Ok(())
        })
    }

    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        let dir = self.find(dir)?;
        let directory = dir.node.attributes()?;
        permission::require_search(&directory, self.identity(who))?;
        name::check(name)?;
        let object = match name {
            b"." => self.object(&dir)?,
            b".." => self.parent(&dir)?,
            _ => self.entry(&dir, name)?,
        };
        Ok(Found { object, directory })
    }

    fn access(
        &self,
        who: &Caller,
        file: &FileId,
        wanted: Access,
    ) -> FsResult<(Access, Attributes)> {
        let attributes = self.getattr(file)?;
        let access = permission::access(&attributes, self.identity(who), wanted);
        Ok((access, attributes))
    }

    fn readlink(&self, _: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        let node = self.find(link)?.node;
        if node.file_type != FileType::Symlink {
            return Err(FsError::Invalid);
        }
        let target = rustix::fs::readlinkat(&*node, c"", Vec::new())?;
        Ok((target.into_bytes(), node.attributes()?))
    }

    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read> {
        self.read_content(self.identity(who), file, offset, buf)
    }

    fn write(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written> {
        self.write_content(self.identity(who), file, offset, data, stable)
    }

    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object> {
        self.create_file(self.identity(who), dir, name, how)
    }

    fn mkdir(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.make_directory(self.identity(who), dir, name, set)
    }

    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.make_symlink(self.identity(who), dir, name, target, set)
    }

    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        self.make_special(self.identity(who), dir, name, what, set)
    }

    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.take_away(self.identity(who), dir, name, false)
    }

    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.take_away(self.identity(who), dir, name, true)
    }

    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        self.move_name(self.identity(who), from_dir, from, to_dir, to)
    }

    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes> {
        self.add_link(self.identity(who), file, dir, name)
    }

    fn readdir(
        &self,
        who: &Caller,
        dir: &FileId,
        cookie: u64,
        verifier: Verifier,
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing> {
        self.list(self.identity(who), dir, (cookie, verifier), objects, take)
    }

    fn space(&self, _: &Caller, file: &FileId) -> FsResult<Space> {
        let stat = rustix::fs::fstatvfs(&*self.find(file)?.node)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space {
            total_bytes: bytes(stat.f_blocks),
            free_bytes: bytes(stat.f_bfree),
            available_bytes: bytes(stat.f_bavail),
            total_files: stat.f_files,
            free_files: stat.f_ffree,
            available_files: stat.f_favail,
        })
    }

    fn abilities(&self, file: &FileId) -> FsResult<Abilities> {
        self.find(file)?;
        Ok(Abilities {
            max_file_size: MAX_FILE_SIZE,
            time_delta: NfsTime {
                seconds: 0,
                nanos: 1,
            },
            properties: Properties::LINK
                | Properties::SYMLINK
                | Properties::HOMOGENEOUS
                | Properties::CAN_SET_TIME,
        })
    }

    fn name_rules(&self, file: &FileId) -> FsResult<NameRules> {
        let stat = rustix::fs::fstatvfs(&*self.find(file)?.node)?;
        Ok(NameRules {
            link_max: LINK_MAX,
            name_max: u32::try_from(stat.f_namemax).unwrap_or(u32::MAX),
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })
    }

    fn commit(&self, who: &Caller, file: &FileId, offset: u64, count: u32) -> Change<()> {
        self.commit_content(self.identity(who), file, offset, count)
    }
}
