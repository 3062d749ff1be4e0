//! A directory of the host, with all below it that is in the same mount.
//!
//! # What holds it together
//!
//! * Objects are named by descriptors that only name (O_PATH), and every name is looked up as one
//!   component, relative to one, with openat2(2) told to follow no symbolic link. So nothing that
//!   is renamed meanwhile can lead out of the export. A file that the host's administrator moves
//!   out of it stays reachable by its old handle, as with the Linux server (`no_subtree_check`).
//! * An object is identified by its file system and by what the kernel calls it there (`key.rs`),
//!   never by a path: the identity outlives renames and restarts. The kernel finds objects by it,
//!   for a privileged server; otherwise an index does (`find.rs`, `index.rs`).
//! * What is mounted below, and a subvolume or snapshot of btrfs, is another file system
//!   (`volume.rs`): it is crossed into with `crossmnt`, and is an empty directory otherwise
//!   (`covered.rs`).
//! * Run by the superuser, every operation is done as its caller, and the kernel decides what the
//!   caller may do (`authority.rs`). Run by anybody else, everything is done as that user, whoever
//!   calls. What NFS allows beyond that, because servers do not see opens, is in `permit.rs`.
//! * What RFC 1813 wants to be stable is synchronised before the reply, unless that is turned off.
//! * What nobody uses any more is closed (`keeper.rs`).
//!
//! Opening a directory sets the file mode creation mask of the process to 0: modes are the
//! clients' to choose, who have applied masks of their own.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

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
use authority::Authority;
use find::Finder;
use host::OpenFiles;
use keeper::Bell;
use node::{Child, Node};
use table::Table;
use volume::{Crossed, Volume};

mod authority;
mod change;
mod content;
mod covered;
mod crossing;
mod find;
mod host;
mod index;
mod keeper;
mod key;
mod list;
mod make;
mod node;
mod permit;
mod remove;
mod setattr;
mod sync;
mod table;
mod volume;

pub use authority::keep_identity;
pub use key::{IdentityKey, NoIdentity};

/// Least number of hard links that the file systems of Linux allow a file.
const LINK_MAX: u32 = 255;
/// Of the descriptors that the process may have, one in so many names an object here, if nothing
/// else is said. (It can have a second one, for content; the rest is for connections, and for
/// directories being read.)
const SHARE_OF_DESCRIPTORS: u64 = 4;
/// Most objects kept open however many descriptors there may be.
const MAX_OPEN: usize = 16 << 10;
/// Locks that operations that change an object are spread over, by its inode number.
const STRIPES: usize = 64;

/// Objects whose attributes, or whose entries, are to be brought to stable storage.
type Unstable = SmallVec<[Arc<Node>; 2]>;

/// How to serve a directory. Names of options are those of exports(5).
#[derive(Clone, Copy, Debug)]
pub struct DirectoryOptions {
    /// Whether what RFC 1813 wants on stable storage is brought there before the reply (`sync` and
    /// `async`).
    pub sync: bool,
    /// The number of the file system in objects' identities (`fsid=`), instead of the one that the
    /// host has for it.
    pub fsid: Option<u64>,
    /// Whether file systems that are mounted below the directory, and subvolumes, are part of the
    /// export (`crossmnt`).
    pub crossmnt: bool,
    /// Whether a file system is served that cannot tell a removed file from a later one with the
    /// same inode number (`inode_reuse`, which exports(5) has not).
    pub inode_reuse: bool,
    /// Objects that are kept open, at most; each can take two descriptors. Without it, a quarter of
    /// those that the process may have.
    pub most_open: Option<usize>,
    /// Secret for identities that do not fit into a handle and are hashed. With another one, those
    /// mean nothing any more.
    pub identity_key: IdentityKey,
    /// Whether objects are found by an index even where the kernel could open them.
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
            identity_key: IdentityKey::from_bytes([0; 16]),
            #[cfg(test)]
            indexed: false,
        }
    }
}

/// A directory of the host as a file system.
pub struct DirectoryFs(Arc<Served>);

/// State that operations and background threads share.
struct Served {
    root: Arc<Node>,
    /// The identity of the root as that of a file system, whatever `fsid=` says.
    mounted: Option<FileId>,
    files: OpenFiles,
    authority: Authority,
    table: Mutex<Table>,
    crossed: Mutex<Crossed>,
    /// Roots of other exports, which are not crossed into.
    apart: OnceLock<Vec<FileId>>,
    finder: Finder,
    /// Objects that made room for others while they were in use.
    parting: Mutex<Vec<Arc<Node>>>,
    bell: Arc<Bell>,
    stripes: [Mutex<()>; STRIPES],
    verifier: AtomicU64,
    synchronise: Box<sync::Synchronise>,
    options: DirectoryOptions,
    /// For threads that it starts.
    myself: Weak<Self>,
}

impl DirectoryFs {
    /// Serves `path`.
    ///
    /// # Errors
    /// It is no directory, cannot be opened, its file system cannot tell files apart
    /// ([`NoIdentity`]), or the host lacks what is needed: Linux 5.8 or later, and /proc.
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
        let mounted = key::of_root(&root, &stat, &options.identity_key).ok();
        let authority = Authority::find()?;
        let open = options.most_open.unwrap_or_else(|| {
            let descriptors = rustix::process::getrlimit(Resource::Nofile).current;
            let share = descriptors.unwrap_or(u64::MAX) / SHARE_OF_DESCRIPTORS;
            usize::try_from(share).unwrap_or(usize::MAX)
        });
        let verifier = getrandom::u64().map_err(io::Error::other)?;
        let served = Arc::new_cyclic(|myself| Served {
            root: Arc::new(Node::new(id, volume, root, &stat)),
            mounted,
            files,
            authority,
            table: Mutex::new(Table::new(open.min(MAX_OPEN))),
            crossed: Mutex::default(),
            apart: OnceLock::new(),
            finder: Finder::default(),
            parting: Mutex::default(),
            bell: Arc::default(),
            stripes: [const { Mutex::new(()) }; STRIPES],
            verifier: AtomicU64::new(verifier),
            synchronise,
            options,
            myself: Weak::clone(myself),
        });
        keeper::start(&served, keeper::ROUND)?;
        Ok(Self(served))
    }
}

impl Drop for DirectoryFs {
    fn drop(&mut self) {
        self.0.bell.close();
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

    fn root(&self) -> FileId {
        self.0.root.id
    }

    fn mounted_root(&self) -> Option<FileId> {
        self.0.mounted
    }

    fn keep_apart(&self, roots: &[FileId]) {
        // Once is enough: what is exported does not change while it is served.
        let _ = self.0.apart.set(roots.to_vec());
    }

    fn write_verifier(&self) -> Verifier {
        self.0.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    fn getattr(&self, file: &FileId) -> FsResult<Attributes> {
        match covered::find(file) {
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
        match covered::find(dir) {
            Some(directory) => covered::lookup(dir, directory, name),
            None => self.0.look_up(who, dir, name),
        }
    }

    fn access(
        &self,
        who: &Caller,
        file: &FileId,
        wanted: Access,
    ) -> FsResult<(Access, Attributes)> {
        match covered::find(file) {
            Some(attributes) => Ok((covered::access(wanted), attributes)),
            None => self.0.what_may(who, file, wanted),
        }
    }

    fn readlink(&self, _: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        self.0.link_text(link)
    }

    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read> {
        self.0.read_content(who, file, offset, buf)
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
        self.0.take_away(who, dir, name, false)
    }

    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.0.take_away(who, dir, name, true)
    }

    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        self.0.move_name(who, from_dir, from, to_dir, to)
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
        match covered::find(dir) {
            Some(attributes) => Ok(covered::list(dir, attributes, cookie, objects, take)),
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
    /// Attributes of an object.
    fn attributes(&self, file: &FileId) -> FsResult<Attributes> {
        let node = self.find(file)?;
        let attributes = node.attributes();
        if attributes == Err(FsError::Stale) {
            self.forget(&node);
        }
        attributes
    }

    /// Closes an object that was seen to be gone.
    fn forget(&self, node: &Node) {
        let mut table = locked(&self.table);
        let closed = table.remove(&node.id);
        if self.is_indexed(node) {
            table.remember_gone(node.id);
        }
        drop(table);
        // Not under the lock: closing can take time.
        drop(closed);
    }

    /// An object; the root in place of a directory that covers another file system.
    fn or_root(&self, file: &FileId) -> FsResult<Arc<Node>> {
        match covered::find(file) {
            Some(_) => Ok(Arc::clone(&self.root)),
            None => self.find(file),
        }
    }

    /// Size and limits of the file system of an object (statvfs(3)).
    fn room(&self, file: &FileId) -> FsResult<rustix::fs::StatVfs> {
        Ok(rustix::fs::fstatvfs(&*self.or_root(file)?)?)
    }

    /// READLINK. Whoever can name a link may read it.
    fn link_text(&self, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        let node = self.find(link)?;
        if node.file_type != FileType::Symlink {
            return Err(FsError::Invalid);
        }
        let target = rustix::fs::readlinkat(&*node, c"", Vec::new())?;
        Ok((target.into_bytes(), node.attributes()?))
    }

    /// Closes what was not used for so many rounds of the keeper.
    fn close_idle(&self, rounds: u64) {
        // Without the privilege, a file that its owner may not write to any more, but has open for
        // writing, could not be opened again.
        let keeps = |node: &Node| {
            matches!(self.authority, Authority::Own(_))
                && node.is_writable()
                && permit::ask(node, rustix::fs::Access::WRITE_OK).is_err()
        };
        let mut idle = locked(&self.table).next_round(rounds, keeps);
        idle.append(&mut locked(&self.parting));
        for node in idle {
            self.let_go(Some(node));
        }
        let unused = locked(&self.crossed).unused();
        // Not under the lock: closing can take time.
        drop(unused);
    }
}
