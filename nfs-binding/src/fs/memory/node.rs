//! Objects of the memory file system.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use rpcrdma_host::{CountedRwLock, LockCounter};

use super::content::Content;
use super::shown::Shown;
use crate::fs::{FsError, FsResult, HandleMac, permission};
use crate::proto::{Attributes, DeviceNumber, NfsTime, SetAttributes, SetTime, Verifier};

/// The memory that each object counts for, bytes.
pub(super) const NODE_COST: u64 = 512;
/// The memory that a directory entry counts for besides its name, bytes. Beside an object of its own, an
/// entry takes about 180 bytes after the table of names has grown, and up to 250 while it is as empty as
/// [`Entries::remove`] lets it be.
const ENTRY_COST: u64 = 256;
// With its place in the table of objects.
const _: () = assert!(size_of::<Node>() + 64 <= NODE_COST as usize);
/// The maximum capacity of a table of names that is not shrunk, entries.
const SMALL_TABLE: usize = 7;
/// Counts how often a call waited for an object that another one used.
static STATE: LockCounter = LockCounter::new("an object in memory");
/// The cookie of `.`.
pub(super) const COOKIE_SELF: u64 = 1;
/// The cookie of `..`.
pub(super) const COOKIE_PARENT: u64 = 2;

/// An object. Its inode number is never reused.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ino: u64,
    /// The MAC of its handle.
    pub(super) mac: HandleMac,
    /// The attributes in `state` when it was last unlocked.
    shown: Shown,
    state: CountedRwLock<State>,
}

impl Node {
    /// Creates an object with the inode number of its attributes.
    pub(super) fn new(state: State) -> Self {
        Self {
            ino: state.attributes.fileid,
            mac: HandleMac::default(),
            shown: Shown::new(&state.attributes),
            state: CountedRwLock::new(&STATE, state),
        }
    }

    /// Returns the attributes. Takes no lock unless another thread is changing them just then.
    #[inline]
    pub(super) fn attributes(&self) -> Attributes {
        let shown = self.shown.load();
        shown.unwrap_or_else(|| self.state.read().attributes.clone())
    }

    /// Returns the attributes as [`Node::attributes`] does.
    ///
    /// # Errors
    /// [`FsError::Stale`] if its last name was removed since it was found.
    #[inline]
    pub(super) fn live_attributes(&self) -> FsResult<Attributes> {
        let attributes = self.attributes();
        match attributes.nlink {
            0 => Err(FsError::Stale),
            _ => Ok(attributes),
        }
    }

    /// Locks the state for reading.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Locks the state for changing it.
    pub(super) fn write(&self) -> Changing<'_> {
        Changing {
            shown: &self.shown,
            state: self.state.write(),
        }
    }
}

/// The state of an object while it is changed. When it is dropped, the new attributes are shown.
#[must_use]
pub(super) struct Changing<'a> {
    shown: &'a Shown,
    state: RwLockWriteGuard<'a, State>,
}

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.shown.store(&self.state.attributes);
    }
}

/// The mutable state of an object.
#[derive(Debug)]
pub(super) struct State {
    /// The attributes. Size and space used always agree with the body. Type, device number and inode
    /// number never change.
    pub(super) attributes: Attributes,
    pub(super) body: Body,
}

/// The content of an object.
#[derive(Debug)]
pub(super) enum Body {
    File {
        content: Content,
        /// The verifier of the exclusive CREATE that created the file.
        made_by: Option<Verifier>,
    },
    Directory(Entries),
    Symlink(Vec<u8>),
    /// A socket, a pipe, or a device with this number.
    Special(DeviceNumber),
}

/// The entries of a directory. Each keeps its cookie as long as it exists, and no cookie is reused,
/// so a listing can continue after any change.
#[derive(Debug)]
pub(super) struct Entries {
    /// The parent directory; the root is its own parent.
    pub(super) parent: u64,
    by_name: HashMap<Arc<[u8]>, Entry>,
    by_cookie: BTreeMap<u64, (Arc<[u8]>, Arc<Node>)>,
    next_cookie: u64,
    /// The number of entries that the table of `by_name` has room for. `HashMap::capacity` is lower after
    /// entries were removed, because their slots cannot be used again before the table is rebuilt.
    table: usize,
}

/// An entry of a directory, as it is found by its name.
#[derive(Debug)]
struct Entry {
    cookie: u64,
    node: Arc<Node>,
}

impl Entries {
    /// Creates an empty directory.
    pub(super) fn new(parent: u64) -> Self {
        Self {
            parent,
            by_name: HashMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: COOKIE_PARENT + 1,
            table: 0,
        }
    }

    /// Returns the memory that an entry counts for, bytes.
    pub(super) fn cost(name: &[u8]) -> u64 {
        ENTRY_COST + name.len() as u64
    }

    /// Returns the object with a name.
    pub(super) fn get(&self, name: &[u8]) -> Option<&Arc<Node>> {
        self.by_name.get(name).map(|entry| &entry.node)
    }

    /// Returns whether the directory has no entries except `.` and `..`.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the number of entries without `.` and `..`.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Adds a name that must not exist.
    pub(super) fn insert(&mut self, name: &[u8], node: Arc<Node>) {
        let name: Arc<[u8]> = name.into();
        let cookie = self.next_cookie;
        let listed = (Arc::clone(&name), Arc::clone(&node));
        self.by_cookie.insert(cookie, listed);
        self.by_name.insert(name, Entry { cookie, node });
        self.table = self.table.max(self.by_name.capacity());
        self.next_cookie += 1;
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(Entry { cookie, .. }) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
        let left = self.by_name.len();
        if left == 0 {
            self.clear();
        } else if self.table > SMALL_TABLE && left < self.table / 4 {
            // Otherwise clients could fill directories and empty them one by one, and each would keep memory
            // that counts for nothing. Half of the new table is free, so that the cost of shrinking is spread over
            // many changes.
            self.by_name.shrink_to(2 * left);
            self.table = self.by_name.capacity();
        }
    }

    /// Removes all names and frees their memory.
    pub(super) fn clear(&mut self) {
        self.by_name = HashMap::new();
        self.table = 0;
        self.by_cookie = BTreeMap::new();
    }

    /// Returns the entries after `cookie`, except `.` and `..`, with their cookies.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], &Node)> {
        let rest = self.by_cookie.range(cookie.saturating_add(1)..);
        rest.map(|(&cookie, (name, node))| (cookie, &**name, &**node))
    }

    /// Returns whether `cookie` was issued by this directory, or is 0.
    pub(super) fn is_issued(&self, cookie: u64) -> bool {
        cookie < self.next_cookie
    }
}

impl State {
    /// Returns the entries if this is a directory.
    pub(super) fn entries(&self) -> FsResult<&Entries> {
        match &self.body {
            Body::Directory(entries) => Ok(entries),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// Returns the entries for modification if this is a directory.
    pub(super) fn entries_mut(&mut self) -> FsResult<&mut Entries> {
        match &mut self.body {
            Body::Directory(entries) => Ok(entries),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// Sets the planned attributes, except sizes.
    pub(super) fn apply(&mut self, plan: &SetAttributes, now: NfsTime) {
        let attributes = &mut self.attributes;
        if let Some(mode) = plan.mode {
            attributes.mode = mode & permission::MODE_BITS;
        }
        attributes.uid = plan.uid.unwrap_or(attributes.uid);
        attributes.gid = plan.gid.unwrap_or(attributes.gid);
        for (time, set) in [
            (&mut attributes.atime, plan.atime),
            (&mut attributes.mtime, plan.mtime),
        ] {
            match set {
                SetTime::Keep => {}
                SetTime::ServerTime => *time = now,
                SetTime::To(to) => *time = to,
            }
        }
        attributes.ctime = now;
    }

    /// Updates the times after a change of the content.
    pub(super) fn update_times(&mut self, now: NfsTime) {
        self.attributes.mtime = now;
        self.attributes.ctime = now;
        match &self.body {
            Body::File { content, .. } => {
                self.attributes.size = content.size();
                self.attributes.used = content.allocated();
            }
            Body::Directory(entries) => {
                self.attributes.size = (entries.len() as u64 + 2) * ENTRY_COST;
                self.attributes.used = self.attributes.size;
            }
            Body::Symlink(target) => {
                self.attributes.size = target.len() as u64;
                self.attributes.used = self.attributes.size;
            }
            Body::Special(_) => {}
        }
    }
}
