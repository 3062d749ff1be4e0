//! The locks of the memory file system; its module documentation says in which order they are
//! taken.

use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use rdma::IdMap;
use rpcrdma_host::{CountedRwLock, LockCounter};

use super::node::Node;

/// The number of parts of the table of objects, and of the lock of the tree.
const PARTS: usize = 32;

/// Counts how often a call waited while another one added an object or removed it.
static OBJECTS: LockCounter = LockCounter::new("objects in memory");
/// Counts how often a call waited because the tree was being changed.
static TREE: LockCounter = LockCounter::new("the tree in memory");

fn part(ino: u64) -> usize {
    (ino % PARTS as u64) as usize
}

/// All objects by inode number, in parts.
#[derive(Debug)]
pub(super) struct Nodes([CountedRwLock<IdMap<u64, Arc<Node>>>; PARTS]);

impl Nodes {
    pub(super) fn new() -> Self {
        let part = |_| CountedRwLock::new(&OBJECTS, IdMap::default());
        Self(std::array::from_fn(part))
    }

    pub(super) fn get(&self, ino: u64) -> Option<Arc<Node>> {
        self.0[part(ino)].read().get(&ino).cloned()
    }

    pub(super) fn insert(&self, node: Arc<Node>) {
        self.0[part(node.ino)].write().insert(node.ino, node);
    }

    pub(super) fn remove(&self, ino: u64) {
        let removed = self.0[part(ino)].write().remove(&ino);
        // The last reference can free much memory, so it goes without the lock.
        drop(removed);
    }

    /// Calls `visit` with every object.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&Node)) {
        for part in &self.0 {
            part.read().values().for_each(|node| visit(node));
        }
    }
}

/// The lock of the tree, in parts so that operations in different directories do not write to one cache
/// line. An operation in one directory holds its part for reading; one that concerns several directories
/// holds all parts for writing.
#[derive(Debug)]
pub(super) struct Tree([CountedRwLock<()>; PARTS]);

/// Held by an operation in one directory.
#[must_use]
pub(super) struct InDirectory<'a>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, ()>);

/// Held by an operation that excludes all others on the tree.
#[must_use]
pub(super) struct Alone<'a>(
    #[expect(dead_code, reason = "held")] [RwLockWriteGuard<'a, ()>; PARTS],
);

impl Tree {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| CountedRwLock::new(&TREE, ())))
    }

    /// Locks for an operation in the directory `ino`. Others in this and other directories go on
    /// meanwhile.
    pub(super) fn in_directory(&self, ino: u64) -> InDirectory<'_> {
        InDirectory(self.0[part(ino)].read())
    }

    /// Locks for an operation that concerns several objects of the tree, and waits until all others
    /// have ended.
    pub(super) fn alone(&self) -> Alone<'_> {
        // All threads take the parts in this order, so that no two of them wait for each other.
        Alone(std::array::from_fn(|at| self.0[at].write()))
    }
}
