//! From a handle to the object: open already, remembered, led to by its trail, or found by a scan.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::DirectoryFs;
use super::host;
use super::key::{self, Key, Trail};
use super::node::Node;
use super::scan::Index;
use crate::fs::lock::locked;
use crate::fs::{FileId, FsError, FsResult, Object};

/// Directories within each other on a remembered way: what a path can hold.
const MAX_DEPTH: usize = 2048;

/// Open now, with the trail that its handle has.
pub(super) struct Handle {
    pub(super) node: Arc<Node>,
    pub(super) trail: Trail,
}

impl DirectoryFs {
    /// The object of a handle.
    pub(super) fn find(&self, id: &FileId) -> FsResult<Handle> {
        let (key, trail) = key::decode(id)?;
        if key == self.root.key {
            let node = Arc::clone(&self.root);
            return Ok(Handle { node, trail });
        }
        {
            let mut table = locked(&self.table);
            if let Some(node) = table.open(&key) {
                return Ok(Handle { node, trail });
            }
            if table.is_gone(&key) {
                return Err(FsError::Stale);
            }
        }
        let node = match self.by_place(key)? {
            Some(node) => node,
            None => match self.by_trail(&self.root, key, trail, 0)? {
                Some(node) => node,
                None => self.by_scan(key, trail)?,
            },
        };
        Ok(Handle { node, trail })
    }

    /// An entry of a directory, opened, and kept open.
    pub(super) fn child(&self, dir: &Handle, name: &[u8]) -> FsResult<Handle> {
        let path = host::open_child(&dir.node, name)?;
        self.keep(&dir.node, dir.trail, name, path)
    }

    /// Keeps open what was opened as the entry `name` of `dir`.
    pub(super) fn keep(
        &self,
        dir: &Node,
        dir_trail: Trail,
        name: &[u8],
        path: std::os::fd::OwnedFd,
    ) -> FsResult<Handle> {
        let stat = host::stat(&path)?;
        let key = Key::of(&stat, self.births);
        if key == self.root.key {
            // The root was moved into itself by nobody: a bind mount that statx did not tell.
            return Err(FsError::Access);
        }
        let node = Node::new(key, path, &stat);
        let mut table = locked(&self.table);
        let trail = table.saw(key, dir.key, name, self.trail_below(dir, dir_trail));
        let (node, closed) = table.keep_open(node);
        drop(table);
        // Closing can take time: not under the lock.
        self.let_go(closed);
        Ok(Handle { node, trail })
    }

    /// The trail of what is in a directory.
    pub(super) fn trail_below(&self, dir: &Node, trail: Trail) -> Trail {
        if dir.key == self.root.key {
            Trail::default()
        } else {
            trail.below(dir.key.ino)
        }
    }

    /// An open object, for a reply.
    pub(super) fn object(&self, handle: &Handle) -> FsResult<Object> {
        Ok(Object {
            id: key::encode(handle.node.key, &handle.trail),
            attributes: handle.node.attributes()?,
        })
    }

    /// Where it was last seen, if it still is there.
    fn by_place(&self, key: Key) -> FsResult<Option<Arc<Node>>> {
        let mut names = Vec::new();
        let mut at = key;
        let mut node = loop {
            if at == self.root.key {
                break Arc::clone(&self.root);
            }
            let mut table = locked(&self.table);
            if let Some(open) = table.open(&at) {
                break open;
            }
            let Some(place) = table.place(&at) else {
                return Ok(None);
            };
            if names.len() == MAX_DEPTH {
                return Ok(None);
            }
            names.push((at, place.name, place.trail));
            at = place.parent;
        };
        for (key, name, trail) in names.into_iter().rev() {
            let Some(found) = self.open_if(&node, &name, key, trail)? else {
                locked(&self.table).left(&key, &node.key, &name);
                return Ok(None);
            };
            node = found;
        }
        Ok(Some(node))
    }

    /// The entry `name` of `dir`, if it is the object `key`; `trail` is that of its handle.
    fn open_if(
        &self,
        dir: &Node,
        name: &[u8],
        key: Key,
        trail: Trail,
    ) -> FsResult<Option<Arc<Node>>> {
        let path = match host::open_child(dir, name) {
            Ok(path) => path,
            Err(FsError::NotFound | FsError::NotDirectory | FsError::Access) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = host::stat(&path)?;
        if Key::of(&stat, self.births) != key {
            return Ok(None);
        }
        let node = Node::new(key, path, &stat);
        let mut table = locked(&self.table);
        table.saw(key, dir.key, name, trail);
        let (node, closed) = table.keep_open(node);
        drop(table);
        self.let_go(closed);
        Ok(Some(node))
    }

    /// Names in `dir` of which `wanted` holds, given the inode number and whether it can be a
    /// directory.
    fn names_in(&self, dir: &Node, wanted: impl Fn(u64, bool) -> bool) -> FsResult<Vec<Vec<u8>>> {
        let opened = self
            .files
            .reopen(dir.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        host::list(&opened, 0, |entry| {
            let dots = matches!(entry.name, b"." | b"..");
            if !dots && wanted(entry.ino, entry.maybe_directory) {
                names.push(entry.name.to_vec());
            }
            Ok(true)
        })?;
        Ok(names)
    }

    /// Follows the trail of a handle down from `dir`, which is `level` steps below the root.
    fn by_trail(
        &self,
        dir: &Node,
        key: Key,
        trail: Trail,
        level: usize,
    ) -> FsResult<Option<Arc<Node>>> {
        let Some(&step) = trail.steps().get(level) else {
            return self.in_directory(dir, key, trail);
        };
        // Several can have the same 16 bits.
        for name in self.names_in(dir, |ino, directory| directory && key::step_of(ino) == step)? {
            let Ok(path) = host::open_child(dir, &name) else {
                continue;
            };
            let stat = host::stat(&path)?;
            let below = Node::new(Key::of(&stat, self.births), path, &stat);
            if below.file_type != crate::proto::FileType::Directory {
                continue;
            }
            if let Some(node) = self.by_trail(&below, key, trail, level + 1)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// The object, if it is in `dir`.
    fn in_directory(&self, dir: &Node, key: Key, trail: Trail) -> FsResult<Option<Arc<Node>>> {
        for name in self.names_in(dir, |ino, _| ino == key.ino)? {
            if let Some(node) = self.open_if(dir, &name, key, trail)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Looks for the object everywhere.
    ///
    /// The index it uses is not made anew for each call: while it is young, an object that is not
    /// in it may have come since, and the client is asked to try again.
    fn by_scan(&self, key: Key, trail: Trail) -> FsResult<Arc<Node>> {
        let mut index = locked(&self.index);
        if let Some(index) = &*index
            && let Some(node) = self.by_index(index, key, trail)?
        {
            return Ok(node);
        }
        if index.as_ref().is_some_and(|index| !index.is_old()) {
            return Err(FsError::Later);
        }
        let made = Index::new(&self.files, self.root.as_fd(), self.root.key.ino)?;
        let made = index.insert(made);
        if let Some(node) = self.by_index(made, key, trail)? {
            return Ok(node);
        }
        drop(locked(&self.table).remove(key));
        Err(FsError::Stale)
    }

    /// The object, if it is where the index says.
    fn by_index(&self, index: &Index, key: Key, trail: Trail) -> FsResult<Option<Arc<Node>>> {
        'ways: for way in index.ways(key.ino) {
            let mut dir = Arc::clone(&self.root);
            let mut dir_trail = Trail::default();
            for ino in way {
                let below = self.trail_below(&dir, dir_trail);
                let name = self.names_in(&dir, |at, directory| directory && at == ino)?;
                let Some(name) = name.first() else {
                    continue 'ways;
                };
                let Ok(path) = host::open_child(&dir, name) else {
                    continue 'ways;
                };
                dir = self.keep(&dir, dir_trail, name, path)?.node;
                dir_trail = below;
            }
            if let Some(node) = self.in_directory(&dir, key, trail)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }
}
