//! A file system in memory: fast, bounded, and lost when the process ends.
//!
//! Locking: no call for a file takes a lock that calls for other files take, except for reading.
//! The table of objects is in parts, each object has a lock, and so has the tree (`Tree`).
//! Attributes are read without the object's lock (`shown.rs`).
//!
//! * What adds an object, or removes a name of one that is not a directory, holds the lock of the
//!   tree together with others of its kind, and examines and changes its directory under that
//!   directory's lock.
//! * RMDIR, RENAME and LINK hold the lock of the tree alone, so nothing that they have examined
//!   changes meanwhile.
//!
//! A thread that waits for the lock of an object holds that of no other object, with two
//! exceptions. The lock of an object that a thread has just created is known to no other thread.
//! And a lookup, a listing or a removal holds its directory's lock while it reads objects in it: all who wait
//! for one another in this way go down the tree, which has no circles. So there are no deadlocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use onc_rpc::Bulk;
use rdma::Clock;

use super::{
    Abilities, Caller, Change, DirEntry, FileId, FileSystem, Found, FsError, FsResult, HowToCreate,
    Listing, NameRules, Object, ObjectRef, Read, Renamed, Space, Special, Written,
};
use super::{MAX_NAME_LEN, name, permission, wcc};
use crate::proto::{
    Access, Attributes, DeviceNumber, FileType, NfsTime, Properties, SetAttributes, Stable,
    Verifier, WccData,
};
use budget::Budget;
use content::Content;
use locks::{Nodes, Tree};
use node::{Body, COOKIE_PARENT, COOKIE_SELF, Entries, NODE_COST, Node, State};

mod budget;
mod content;
mod list;
mod locks;
mod node;
mod shown;
mod tree;

use self::tree::NewObject;

/// The inode number of the root.
const ROOT: u64 = 1;
/// The maximum number of hard links to a file.
const LINK_MAX: u32 = 65_000;
/// The mode of objects that are created without one.
const DEFAULT_FILE_MODE: u32 = 0o600;

/// A file system in memory.
///
/// Written data is already as stable as it will ever be, so every WRITE is FILE_SYNC. Handles
/// become stale after a restart.
#[derive(Debug)]
pub struct MemoryFs {
    /// A random number in every handle, which distinguishes this instance from others.
    instance: u64,
    verifier: Verifier,
    nodes: Nodes,
    tree: Tree,
    next_ino: AtomicU64,
    budget: Arc<Budget>,
    clock: Clock,
}

/// The error of creating a file system when the system has no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("no random numbers: {0}")]
pub struct NoRandomness(getrandom::Error);

impl MemoryFs {
    /// The minimum useful limit in bytes: memory for one small file with any name.
    pub const LEAST: u64 = 4 << 10;

    /// Creates an empty file system that takes at most `limit` bytes for all objects and names. Its
    /// root belongs to root; all users may create files in it and remove their own (mode 1777).
    ///
    /// # Errors
    /// [`NoRandomness`] if the system has no random numbers.
    pub fn new(limit: u64) -> Result<Self, NoRandomness> {
        let instance = getrandom::u64().map_err(NoRandomness)?;
        let verifier = getrandom::u64().map_err(NoRandomness)?.to_be_bytes();
        Ok(Self::with(limit, instance, verifier, Clock::monotonic()))
    }

    /// Creates a deterministic file system for a simulation. Attributes get their times from
    /// `clock` (whose zero counts as the epoch).
    #[must_use]
    pub fn simulated(limit: u64, instance: u64, clock: Clock) -> Self {
        Self::with(limit, instance, instance.to_be_bytes(), clock)
    }

    fn with(limit: u64, instance: u64, verifier: Verifier, clock: Clock) -> Self {
        let fs = Self {
            instance,
            verifier,
            nodes: Nodes::new(),
            tree: Tree::new(),
            next_ino: AtomicU64::new(ROOT),
            budget: Arc::new(Budget::new(limit)),
            clock,
        };
        let plan = SetAttributes {
            mode: Some(0o1777),
            uid: Some(0),
            gid: Some(0),
            ..SetAttributes::default()
        };
        let root = fs.new_node(
            FileType::Directory,
            Body::Directory(Entries::new(ROOT)),
            &plan,
        );
        debug_assert_eq!(root.ino, ROOT);
        fs.nodes.insert(root);
        fs
    }

    /// Returns the current time, for attributes.
    fn now(&self) -> NfsTime {
        let since = match self.clock.is_simulated() {
            true => self.clock.now().since(rdma::Time::ZERO),
            false => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        };
        NfsTime {
            seconds: u32::try_from(since.as_secs()).unwrap_or(u32::MAX),
            nanos: since.subsec_nanos(),
        }
    }

    /// Returns the number of bytes used.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.budget.used()
    }

    fn id(&self, ino: u64) -> FileId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.instance.to_be_bytes());
        bytes[8..].copy_from_slice(&ino.to_be_bytes());
        FileId::new(&bytes).expect("16 bytes are under the limit")
    }

    fn node(&self, id: &FileId) -> FsResult<Arc<Node>> {
        let bytes: [u8; 16] = id.as_bytes().try_into().map_err(|_| FsError::BadHandle)?;
        let value = u128::from_be_bytes(bytes);
        if (value >> 64) as u64 != self.instance {
            return Err(FsError::Stale);
        }
        self.by_ino(value as u64)
    }

    fn by_ino(&self, ino: u64) -> FsResult<Arc<Node>> {
        self.nodes.get(ino).ok_or(FsError::Stale)
    }

    fn object(&self, node: &Node) -> Object {
        Object {
            id: self.id(node.ino),
            attributes: node.attributes(),
            mounted: None,
        }
    }

    /// Creates an object with the next inode number that is not yet in the table. Its cost must
    /// already have been taken.
    fn new_node(&self, file_type: FileType, body: Body, plan: &SetAttributes) -> Arc<Node> {
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        let rdev = match &body {
            Body::Special(rdev) => *rdev,
            _ => DeviceNumber::default(),
        };
        let mut state = State {
            attributes: Attributes {
                file_type,
                nlink: if file_type == FileType::Directory {
                    2
                } else {
                    1
                },
                rdev,
                fsid: 0,
                fileid: ino,
                ..Attributes::default()
            },
            body,
        };
        state.update_times(self.now());
        state.attributes.atime = state.attributes.mtime;
        state.apply(plan, self.now());
        Arc::new(Node::new(state))
    }

    /// Changes one object under its lock, and records its attributes before and after.
    fn change<T>(&self, id: &FileId, change: impl FnOnce(&mut State) -> FsResult<T>) -> Change<T> {
        let node = match self.node(id) {
            Ok(node) => node,
            Err(error) => return Change::refused(error),
        };
        let mut state = node.write();
        if state.attributes.nlink == 0 {
            // Its last name was removed while this thread waited for the lock.
            return Change::refused(FsError::Stale);
        }
        let before = wcc(&state.attributes);
        let result = change(&mut state);
        Change {
            wcc: WccData {
                before: Some(before),
                after: Some(state.attributes.clone()),
            },
            result,
        }
    }

    /// Reads the content at `offset` with `read`, which returns the number of bytes.
    fn read_with(
        &self,
        who: &Caller,
        id: &FileId,
        offset: u64,
        read: impl FnOnce(&Content) -> usize,
    ) -> FsResult<Read> {
        let node = self.node(id)?;
        self.read_node(&node, who, offset, read)
    }

    /// Reads the content of `node` at `offset` with `read`, which returns the number of bytes.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the object was removed meanwhile, and an error for objects without
    /// file content.
    fn read_node(
        &self,
        node: &Node,
        who: &Caller,
        offset: u64,
        read: impl FnOnce(&Content) -> usize,
    ) -> FsResult<Read> {
        let state = live(node)?;
        let content = match &state.body {
            Body::File { content, .. } => content,
            Body::Directory(_) => return Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Special(_) => return Err(FsError::Invalid),
        };
        permission::require_io(&state.attributes, who, permission::READ)?;
        let count = read(content);
        Ok(Read {
            count: count as u32,
            eof: offset.saturating_add(count as u64) >= content.size(),
            attributes: state.attributes.clone(),
        })
    }
}

/// Locks the state of an object for reading. Fails with [`FsError::Stale`] if its last name was
/// removed since it was found: its content is gone then, and must not be reported as an empty file.
fn live(node: &Node) -> FsResult<RwLockReadGuard<'_, State>> {
    let state = node.read();
    match state.attributes.nlink {
        0 => Err(FsError::Stale),
        _ => Ok(state),
    }
}

/// Returns the content of a file for modification, or the error for another type of object.
fn file(state: &mut State) -> FsResult<&mut Content> {
    match &mut state.body {
        Body::File { content, .. } => Ok(content),
        Body::Directory(_) => Err(FsError::IsDirectory),
        Body::Symlink(_) | Body::Special(_) => Err(FsError::Invalid),
    }
}

impl Drop for MemoryFs {
    fn drop(&mut self) {
        // A directory holds its objects. Without this, the last reference to the root could drop
        // the whole tree, with a depth of calls that clients choose.
        self.nodes.for_each(|node| {
            if let Body::Directory(entries) = &mut node.write().body {
                entries.clear();
            }
        });
    }
}

impl FileSystem for MemoryFs {
    fn blocks(&self) -> bool {
        false
    }

    fn root(&self) -> FileId {
        self.id(ROOT)
    }

    fn write_verifier(&self) -> Verifier {
        self.verifier
    }

    fn getattr(&self, file: &FileId) -> FsResult<Attributes> {
        self.node(file)?.live_attributes()
    }

    fn setattr(
        &self,
        who: &Caller,
        id: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()> {
        self.change(id, |state| {
            if guard.is_some_and(|guard| guard != state.attributes.ctime) {
                return Err(FsError::NotSync);
            }
            let plan = permission::plan_setattr(&state.attributes, set, who)?;
            if let Some(size) = plan.size {
                file(state)?.resize(size, &self.budget)?;
                state.update_times(self.now());
            }
            if let Body::File { made_by, .. } = &mut state.body {
                // The client has received the reply to CREATE, so it will not repeat it.
                *made_by = None;
            }
            state.apply(&plan, self.now());
            Ok(())
        })
    }

    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        self.find(who, dir, name)
    }

    fn access(&self, who: &Caller, id: &FileId, wanted: Access) -> FsResult<(Access, Attributes)> {
        let attributes = self.getattr(id)?;
        let access = permission::access(&attributes, who, wanted);
        Ok((access, attributes))
    }

    fn readlink(&self, _: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        let node = self.node(link)?;
        let state = live(&node)?;
        match &state.body {
            Body::Symlink(target) => Ok((target.clone(), state.attributes.clone())),
            _ => Err(FsError::Invalid),
        }
    }

    fn read(&self, who: &Caller, id: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read> {
        self.read_with(who, id, offset, |content| content.read(offset, buf))
    }

    fn read_shared(
        &self,
        who: &Caller,
        id: &FileId,
        offset: u64,
        count: u32,
    ) -> FsResult<Option<(Read, Bulk)>> {
        let mut data = Bulk::new();
        let read = self.read_with(who, id, offset, |content| {
            data = content.share(offset, u64::from(count));
            data.len()
        })?;
        Ok(Some((read, data)))
    }

    fn write(
        &self,
        who: &Caller,
        id: &FileId,
        offset: u64,
        data: &Bulk,
        _: Stable,
    ) -> Change<Written> {
        self.change(id, |state| {
            file(state)?;
            permission::require_io(&state.attributes, who, permission::WRITE)?;
            if !data.is_empty() {
                file(state)?.write(offset, data, &self.budget)?;
                if !who.is_root() {
                    state.attributes.mode = permission::without_set_id(state.attributes.mode);
                }
                state.update_times(self.now());
            }
            Ok(Written {
                count: data.len() as u32,
                committed: Stable::FileSync,
            })
        })
    }

    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object> {
        self.create_file(who, dir, name, how)
    }

    fn mkdir(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        let new = NewObject {
            file_type: FileType::Directory,
            set,
            default_mode: 0o700,
        };
        self.make(who, dir, name, &new, |parent| {
            Body::Directory(Entries::new(parent))
        })
    }

    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        if let Err(error) = name::check_target(target) {
            return Change::refused(error);
        }
        // The permissions of a symbolic link have no meaning.
        let set = SetAttributes {
            mode: Some(0o777),
            ..set.clone()
        };
        let new = NewObject {
            file_type: FileType::Symlink,
            set: &set,
            default_mode: 0o777,
        };
        self.make(who, dir, name, &new, |_| Body::Symlink(target.to_vec()))
    }

    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        self.make_special(who, dir, name, what, set)
    }

    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.remove_entry(who, dir, name, false)
    }

    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.remove_entry(who, dir, name, true)
    }

    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        self.rename_entry(who, from_dir, from, to_dir, to)
    }

    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes> {
        self.add_link(who, file, dir, name)
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
        self.list(who, dir, (cookie, verifier), objects, take)
    }

    fn space(&self, _: &Caller, file: &FileId) -> FsResult<Space> {
        self.node(file)?;
        let (total, used) = (self.budget.limit(), self.budget.used());
        let free = total - used.min(total);
        Ok(Space {
            total_bytes: total,
            free_bytes: free,
            available_bytes: free,
            total_files: total / NODE_COST,
            free_files: free / NODE_COST,
            available_files: free / NODE_COST,
        })
    }

    fn abilities(&self, file: &FileId) -> FsResult<Abilities> {
        self.node(file)?;
        Ok(Abilities {
            max_file_size: content::MAX_FILE_SIZE,
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
        self.node(file)?;
        Ok(NameRules {
            link_max: LINK_MAX,
            name_max: MAX_NAME_LEN as u32,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })
    }

    fn commit(&self, who: &Caller, id: &FileId, _: u64, _: u32) -> Change<()> {
        self.change(id, |state| {
            file(state)?;
            permission::require_io(&state.attributes, who, permission::WRITE)
        })
    }
}

#[cfg(test)]
mod tests;
