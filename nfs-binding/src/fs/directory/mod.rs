//! Exports a directory of the host, with everything below it in the same mount.
//!
//! # Design
//!
//! * Objects are held by `O_PATH` descriptors, and every name is resolved as one component relative
//!   to a descriptor, by openat2(2) without following symbolic links. So a concurrent rename cannot
//!   lead out of the export. A file that the administrator moves out of the export stays reachable
//!   by its old handle, as with the Linux server (`no_subtree_check`).
//! * An object is identified by its file system and the kernel's handle in it (`key.rs`), never by
//!   a path: the identity survives renames and restarts. For a privileged server the kernel opens
//!   objects by handle; otherwise an index finds them (`find.rs`, `index.rs`).
//! * Handles can open objects anywhere in the file system. So the number of an export in handles
//!   depends on the identity of the exported directory, and handles become stale when another
//!   directory is exported.
//! * A file system mounted below, and a subvolume or snapshot of btrfs, is another file system
//!   (`volume.rs`). With `crossmnt` it is part of the export; otherwise an empty placeholder
//!   directory stands in its place (`placeholder.rs`).
//! * A server that runs as root executes every operation under its caller's identity, and the
//!   kernel checks permissions (`authority.rs`). Any other server executes all operations as its
//!   own user. The exceptions that NFS makes because servers do not see opens are in `permit.rs`.
//! * Data that RFC 1813 requires on stable storage is synced before the reply, unless that is
//!   turned off.
//! * READDIR cookies are the host's if these last, and are made of names otherwise (`cookies.rs`).
//! * Idle objects are closed (`idle_closer.rs`).
//!
//! Opening a directory sets the file mode creation mask (umask) of the process to 0, because
//! clients choose modes after applying their own masks.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use onc_rpc::Bulk;
use rpcrdma_host::{CountedRwLock, LockCounter};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Resource;
use smallvec::SmallVec;

use super::lock::locked;
use super::{
    Abilities, Caller, Change, DirEntry, DirectIoBytes, FileId, FileSystem, Found, FsError,
    FsResult, HowToCreate, Listing, NameRules, NonBlocking, Object, ObjectRef, Read, Renamed,
    Space, Special, Written,
};
use super::{name, permission, wcc};
use crate::proto::{
    Access, Attributes, FileType, NfsTime, Properties, SetAttributes, SetTime, Stable, Verifier,
    WccData,
};
use authority::Authority;
use direct::DirectIo;
use find::Finder;
use host::OpenFiles;
use idle_closer::CloserSignal;
use node::{Child, Node, Purpose};
use table::Tables;
use volume::{Crossed, Volume};

mod authority;
mod batch;
mod change;
mod content;
mod cookies;
mod crossing;
mod direct;
mod direct_file;
mod find;
#[cfg(test)]
pub(super) mod host;
#[cfg(not(test))]
mod host;
mod idle_closer;
mod index;
mod keeps;
mod key;
mod list;
mod make;
mod node;
mod nonblocking;
mod permit;
mod placeholder;
mod remove;
mod setattr;
mod shared_sync;
mod sync;
mod table;
mod volume;

pub(crate) use authority::capabilities_to_serve;
pub use authority::keep_identity;
pub(crate) use authority::{keep_identity_in_batch, keeps_identity, return_to_server};
pub use key::{IdentityKey, NoIdentity};

/// The maximum number of hard links to a file that PATHCONF reports. The kernel does not tell that
/// of a file system, and Linux's server reports the same for most.
const LINK_MAX: u32 = 255;
/// The maximum number of open objects is the number of descriptors that the process may have,
/// divided by this, unless an option sets it. An object takes one or two descriptors, so that
/// objects leave half of them to connections, to directories that are being read, and to file
/// systems below.
const SHARE_OF_DESCRIPTORS: u64 = 4;
/// The maximum number of objects kept open, however many descriptors there are.
const MAX_OPEN: usize = 16 << 10;
/// The number of locks for modifications. The identity of an object decides which of them it uses.
const STRIPES: usize = 64;

/// Counts how often a modification waited for another one.
static CHANGES: LockCounter = LockCounter::new("modifications in a directory");

/// Objects whose attributes or entries must be synced.
type Unstable = SmallVec<[Arc<Node>; 2]>;

/// Options of an exported directory. Option names are those of exports(5).
#[derive(Clone, Copy, Debug)]
pub struct DirectoryOptions {
    /// Whether data that RFC 1813 requires on stable storage is synced before the reply (`sync` and
    /// `async`).
    pub sync: bool,
    /// The number of the file system in objects' identities (`fsid=`), instead of the host's.
    pub fsid: Option<u64>,
    /// Whether file systems mounted below the directory, and subvolumes, are part of the export
    /// (`crossmnt`).
    pub crossmnt: bool,
    /// Whether to export a file system in which a later file cannot be distinguished from a removed
    /// one with the same inode number (`inode_reuse`, which exports(5) does not have).
    pub inode_reuse: bool,
    /// The maximum number of objects kept open, each with up to two descriptors. Default: a quarter
    /// of the descriptors that the process may have.
    pub most_open: Option<usize>,
    /// Whether data is read and written without the page cache (`O_DIRECT`) where its alignment and
    /// the file system allow that. Objects then take up to three descriptors.
    pub direct_io: bool,
    /// The secret key of identities that do not fit into a handle and are hashed. Changing the key
    /// invalidates them.
    pub identity_key: IdentityKey,
    /// Whether objects are found by an index even if the kernel could open them by handle (for
    /// tests).
    #[cfg(test)]
    pub(crate) indexed: bool,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            sync: true,
            fsid: None,
            crossmnt: false,
            inode_reuse: false,
            most_open: None,
            direct_io: false,
            identity_key: IdentityKey::from_bytes([0; 16]),
            #[cfg(test)]
            indexed: false,
        }
    }
}

/// A directory of the host as a file system.
pub struct DirectoryFs(Arc<Served>);

/// The state that operations and background threads share.
struct Served {
    root: Arc<Node>,
    /// The root's identity, which is part of that of the export.
    root_identity: Vec<u8>,
    /// The root's identity as the root of a mount, independent of `fsid=`.
    mounted: FileId,
    files: OpenFiles,
    authority: Authority,
    tables: Tables,
    crossed: Mutex<Crossed>,
    /// The roots of other exports, which are not crossed into.
    other_exports: OnceLock<Vec<FileId>>,
    finder: Finder,
    /// Objects that are no longer in the table, or never were, for the idle closer to sync and close. They
    /// were in use when they were evicted, or the last call that used them must not wait.
    evicted: Mutex<Vec<Arc<Node>>>,
    /// Descriptors for the idle closer to close, because closing can take time.
    closing: Mutex<Vec<OwnedFd>>,
    /// About how many of these two are of calls that must not wait.
    queued: AtomicUsize,
    /// Whether the host has swapped memory out, as of the last round of the idle closer.
    swapped: AtomicBool,
    closer_signal: Arc<CloserSignal>,
    stripes: [CountedRwLock<()>; STRIPES],
    verifier: AtomicU64,
    synchronise: Box<sync::Synchronise>,
    /// The state of direct I/O, if the export has that.
    direct_io: Option<DirectIo>,
    options: DirectoryOptions,
    /// A reference for the threads that it starts.
    myself: Weak<Self>,
}

impl DirectoryFs {
    /// Exports `path`.
    ///
    /// # Errors
    /// `path` is not a directory or cannot be opened, its file system cannot identify files
    /// ([`NoIdentity`]), or the host lacks Linux 5.8 or /proc.
    pub fn open(path: impl AsRef<Path>, options: DirectoryOptions) -> io::Result<Self> {
        Self::with(path.as_ref(), options, Box::new(sync::by_kernel))
    }

    fn with(
        path: &Path,
        options: DirectoryOptions,
        synchronise: Box<sync::Synchronise>,
    ) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let lacking = |what| {
            move |error| io::Error::new(io::ErrorKind::Unsupported, format!("{what}: {error}"))
        };
        let stat = host::stat(&root).map_err(lacking("statx does not work here"))?;
        host::open_child(&root, b".", false).map_err(|error| match error {
            FsError::NotSupported | FsError::Invalid => {
                lacking("openat2 does not work here")(error)
            }
            other => io::Error::other(other),
        })?;
        let files = OpenFiles::new().map_err(|error| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                format!("/proc is needed: {error}"),
            )
        })?;
        rustix::process::umask(Mode::empty());
        let volume = Arc::new(Volume::open(&files, &root, &stat, &options, true)?);
        let id = volume.identify(&root, &stat).map_err(io::Error::other)?;
        let root_identity = key::of_export(&id, host::file_system_type(&root)?, &stat);
        let mounted = key::of_root(&stat, &options.identity_key);
        let authority = Authority::find()?;
        let open = options.most_open.unwrap_or_else(|| {
            let descriptors = rustix::process::getrlimit(Resource::Nofile).current;
            let share = match options.direct_io {
                true => SHARE_OF_DESCRIPTORS + SHARE_OF_DESCRIPTORS / 2,
                false => SHARE_OF_DESCRIPTORS,
            };
            let share = descriptors.unwrap_or(u64::MAX) / share;
            usize::try_from(share).unwrap_or(usize::MAX)
        });
        let verifier = getrandom::u64().map_err(io::Error::other)?;
        let served = Arc::new_cyclic(|myself| Served {
            root: Arc::new(Node::new(id, volume, root, &stat)),
            root_identity,
            mounted,
            files,
            authority,
            tables: Tables::new(open.min(MAX_OPEN)),
            crossed: Mutex::default(),
            other_exports: OnceLock::new(),
            finder: Finder::default(),
            evicted: Mutex::default(),
            closing: Mutex::default(),
            queued: AtomicUsize::new(0),
            swapped: AtomicBool::new(host::has_swapped()),
            closer_signal: Arc::default(),
            stripes: [const { CountedRwLock::new(&CHANGES, ()) }; STRIPES],
            verifier: AtomicU64::new(verifier),
            synchronise,
            direct_io: options.direct_io.then(DirectIo::new),
            options,
            myself: Weak::clone(myself),
        });
        idle_closer::start(&served, idle_closer::ROUND)?;
        Ok(Self(served))
    }
}

impl Drop for DirectoryFs {
    fn drop(&mut self) {
        self.0.closer_signal.close();
        self.0.finder.closing.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for DirectoryFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryFs")
            .field("root", &self.0.root.id)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl FileSystem for DirectoryFs {
    fn blocks(&self) -> bool {
        true
    }

    fn nonblocking(&self) -> Option<&dyn NonBlocking> {
        Some(&*self.0)
    }

    fn root(&self) -> FileId {
        self.0.root.id
    }

    fn root_identity(&self) -> Vec<u8> {
        self.0.root_identity.clone()
    }

    fn mounted_root(&self) -> Option<FileId> {
        Some(self.0.mounted)
    }

    fn set_other_exports(&self, roots: &[FileId]) {
        // The first call suffices: the exports do not change while they are served.
        let _ = self.0.other_exports.set(roots.to_vec());
    }

    fn write_verifier(&self) -> Verifier {
        self.0.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    fn getattr(&self, file: &FileId) -> FsResult<Attributes> {
        match self.0.placeholder(file) {
            Some(attributes) => Ok(attributes),
            None => self.0.attributes(file),
        }
    }

    fn setattr(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()> {
        self.0.set_attributes(who, file, set, guard)
    }

    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        match self.0.placeholder(dir) {
            Some(directory) => placeholder::lookup(dir, directory, name),
            None => self.0.look_up(who, dir, name),
        }
    }

    fn access(
        &self,
        who: &Caller,
        file: &FileId,
        wanted: Access,
    ) -> FsResult<(Access, Attributes)> {
        match self.0.placeholder(file) {
            Some(attributes) => Ok((placeholder::access(wanted), attributes)),
            None => self.0.allowed_access(who, file, wanted),
        }
    }

    fn readlink(&self, _: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        self.0.link_text(link)
    }

    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read> {
        self.0.read_content(who, file, offset, buf)
    }

    fn read_unit(&self, file: &FileId) -> FsResult<u32> {
        match &self.0.direct_io {
            Some(_) => Ok(self.0.find(file)?.volume.direct.unit()),
            None => Ok(1),
        }
    }

    fn direct_io(&self) -> Option<DirectIoBytes> {
        self.0.direct_io.as_ref().map(DirectIo::bytes)
    }

    fn write(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written> {
        self.0.write_content(who, file, offset, data, stable)
    }

    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object> {
        self.0.create_file(who, dir, name, how)
    }

    fn mkdir(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.0.make_directory(who, dir, name, set)
    }

    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.0.make_symlink(who, dir, name, target, set)
    }

    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        self.0.make_special(who, dir, name, what, set)
    }

    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.0.remove_entry(who, dir, name, false)
    }

    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.0.remove_entry(who, dir, name, true)
    }

    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        self.0.rename_entry(who, from_dir, from, to_dir, to)
    }

    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes> {
        self.0.add_link(who, file, dir, name)
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
        match self.0.placeholder(dir) {
            Some(attributes) => Ok(placeholder::list(dir, attributes, cookie, objects, take)),
            None => self.0.list(who, dir, (cookie, verifier), objects, take),
        }
    }

    fn space(&self, _: &Caller, file: &FileId) -> FsResult<Space> {
        let stat = self.0.room(file)?;
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
        Ok(Abilities {
            max_file_size: self.0.or_root(file)?.volume.max_file_size,
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
        let stat = self.0.room(file)?;
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
        self.0.commit_content(who, file, offset, count)
    }
}

impl Served {
    /// Returns the attributes of an object.
    fn attributes(&self, file: &FileId) -> FsResult<Attributes> {
        let node = self.find(file)?;
        node.attributes()
            .inspect_err(|error| self.forget_if_gone(&node, *error))
    }

    /// Returns the attributes of a placeholder directory if `id` identifies one.
    fn placeholder(&self, id: &FileId) -> Option<Attributes> {
        placeholder::find(&self.root.volume, id)
    }

    /// Closes an object that no longer exists, if its error says so. Other errors may be temporary.
    fn forget_if_gone(&self, node: &Node, error: FsError) {
        if error == FsError::Stale {
            self.forget(node);
        }
    }

    /// Closes an object that no longer exists.
    fn forget(&self, node: &Node) {
        let mut table = self.tables.of(&node.id);
        let closed = table.remove(&node.id);
        if self.is_indexed(node) {
            table.remember_gone(node.id);
        }
        drop(table);
        // Closing can take time, so it happens without the lock.
        drop(closed);
    }

    /// Returns an object, or the export's root for a placeholder directory.
    fn or_root(&self, file: &FileId) -> FsResult<Arc<Node>> {
        match self.placeholder(file) {
            Some(_) => Ok(Arc::clone(&self.root)),
            None => self.find(file),
        }
    }

    /// Returns size and limits of the file system of an object (statvfs(3)).
    fn room(&self, file: &FileId) -> FsResult<rustix::fs::StatVfs> {
        Ok(rustix::fs::fstatvfs(&*self.or_root(file)?)?)
    }

    /// Executes READLINK. Every caller with the link's handle may read it.
    fn link_text(&self, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        let node = self.find(link)?;
        if node.file_type != FileType::Symlink {
            return Err(FsError::Invalid);
        }
        let target = rustix::fs::readlinkat(&*node, c"", Vec::new())?;
        Ok((target.into_bytes(), node.attributes()?))
    }

    /// Closes objects that were not used for the given number of rounds. A program counts as
    /// complete if it has not changed for `complete`.
    fn close_idle(&self, rounds: u64, complete: Duration) {
        let keeps = |node: &Node| self.must_stay_open(node) && !permit::is_program(node, complete);
        for node in self.tables.next_round(rounds, keeps) {
            self.handle_evicted(Some(node));
        }
        self.close_queued();
        self.swapped.store(host::has_swapped(), Ordering::Relaxed);
        let unused = locked(&self.crossed).unused();
        // Closing can take time, so it happens without the lock.
        drop(unused);
    }

    /// Closes the objects and descriptors that were queued for that.
    fn close_queued(&self) {
        self.queued.store(0, Ordering::Relaxed);
        let evicted = std::mem::take(&mut *locked(&self.evicted));
        let closing = std::mem::take(&mut *locked(&self.closing));
        for node in evicted {
            self.handle_evicted(Some(node));
        }
        // Closing can take time, so it happens without the locks.
        drop(closing);
    }
}
