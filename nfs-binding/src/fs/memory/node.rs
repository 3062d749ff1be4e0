//! Objects of the memory file system.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock};

use super::content::Content;
use crate::fs::{FsError, FsResult, permission};
use crate::proto::{Attributes, NfsTime, SetAttributes, SetTime, Verifier};

/// The memory that each object counts for, bytes.
pub(super) const NODE_COST: u64 = 512;
/// The memory that a directory entry counts for besides its name, bytes.
const ENTRY_COST: u64 = 128;
/// The number of entries that are listed at a time.
const BATCH: usize = 64;
/// The cookie of `.`.
const COOKIE_SELF: u64 = 1;
/// The cookie of `..`.
const COOKIE_PARENT: u64 = 2;

/// An object. Its inode number is never reused.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ino: u64,
    pub(super) state: RwLock<State>,
}

/// The mutable state of an object.
#[derive(Debug)]
pub(super) struct State {
    /// The attributes. Size and space used always agree with the body.
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
    Special,
}

/// The entries of a directory. Each keeps its cookie as long as it exists, and no cookie is reused,
/// so a listing can continue after any change.
#[derive(Debug)]
pub(super) struct Entries {
    /// The parent directory; the root is its own parent.
    pub(super) parent: u64,
    by_name: HashMap<Arc<[u8]>, (u64, u64)>,
    by_cookie: BTreeMap<u64, Arc<[u8]>>,
    next_cookie: u64,
}

impl Entries {
    /// Creates an empty directory.
    pub(super) fn new(parent: u64) -> Self {
        Self {
            parent,
            by_name: HashMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: COOKIE_PARENT + 1,
        }
    }

    /// Returns the memory that an entry counts for, bytes.
    pub(super) fn cost(name: &[u8]) -> u64 {
        ENTRY_COST + name.len() as u64
    }

    /// Returns the inode number of a name.
    pub(super) fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|&(_, ino)| ino)
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
    pub(super) fn insert(&mut self, name: &[u8], ino: u64) {
        let name: Arc<[u8]> = name.into();
        self.by_cookie.insert(self.next_cookie, Arc::clone(&name));
        self.by_name.insert(name, (self.next_cookie, ino));
        self.next_cookie += 1;
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((cookie, _)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    /// Returns some entries after `cookie` with their cookies and inode numbers, or none at the
    /// end. `own` is the directory's inode number.
    pub(super) fn after(&self, own: u64, cookie: u64) -> Vec<(u64, Arc<[u8]>, u64)> {
        let mut out = Vec::with_capacity(BATCH);
        if cookie < COOKIE_SELF {
            out.push((COOKIE_SELF, Arc::from(&b"."[..]), own));
        }
        if cookie < COOKIE_PARENT {
            out.push((COOKIE_PARENT, Arc::from(&b".."[..]), self.parent));
        }
        let named = self.by_cookie.range(cookie.saturating_add(1)..);
        out.extend(named.take(BATCH).filter_map(|(&cookie, name)| {
            let &(_, ino) = self.by_name.get(name)?;
            Some((cookie, Arc::clone(name), ino))
        }));
        out
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
            Body::Special => {}
        }
    }
}
