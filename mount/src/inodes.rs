//! The table of objects that the kernel knows.
//!
//! FUSE names an object by a number that also becomes its inode number, so the server's inode number
//! (`fileid`) is used as long as no other object has it. An object is what has a file handle: a file
//! that was removed and another one that got its inode number are different objects, and so are files
//! of different file systems below one export. If an object's number is taken, it gets a number of at
//! least 2⁶³ instead; these are never reused.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nfs_binding::proto::{Attributes, FileHandle};

use crate::attributes::Cached;
use crate::node::Node;

/// FUSE's number of the root.
pub(crate) const ROOT: u64 = 1;
/// The first of the numbers of objects whose inode number is taken. Servers normally have no such inode
/// numbers; if one does, its object gets a number from this range, too.
const SPARE: u64 = 1 << 63;

/// The objects that the kernel knows, by number and by file handle.
#[derive(Debug)]
pub(crate) struct Inodes<A> {
    by_number: HashMap<u64, Rc<Node<A>>>,
    by_handle: HashMap<FileHandle, u64>,
    spare: u64,
    changed_and_gone: u64,
}

impl<A> Inodes<A> {
    /// Creates a table with the root, which is never removed.
    pub(crate) fn new(root: Rc<Node<A>>) -> Self {
        let by_handle = HashMap::from([(root.handle, root.ino)]);
        Self {
            by_number: HashMap::from([(root.ino, root)]),
            by_handle,
            spare: SPARE,
            changed_and_gone: 0,
        }
    }

    /// Returns the object with a number.
    pub(crate) fn get(&self, ino: u64) -> Option<Rc<Node<A>>> {
        self.by_number.get(&ino).cloned()
    }

    /// Returns the object with a file handle.
    pub(crate) fn find(&self, handle: &FileHandle) -> Option<Rc<Node<A>>> {
        self.get(*self.by_handle.get(handle)?)
    }

    /// Adds an object that is not in the table. `call` brought its attributes, which are trusted for
    /// `trust`.
    pub(crate) fn add(
        &mut self,
        handle: FileHandle,
        attributes: Attributes,
        call: u64,
        now: Instant,
        trust: Duration,
    ) -> Rc<Node<A>> {
        let wanted = attributes.fileid;
        // Programs see the server's number of the root.
        let of_root = |root: &Rc<Node<A>>| root.attributes.borrow().get().fileid == wanted;
        let taken =
            self.by_number.contains_key(&wanted) || self.by_number.get(&ROOT).is_some_and(of_root);
        let free = wanted > ROOT && wanted < SPARE && !taken;
        let ino = if free {
            wanted
        } else {
            self.spare += 1;
            self.spare
        };
        let cached = Cached::new(attributes, call, now, trust);
        let node = Rc::new(Node::new(ino, handle, cached));
        self.by_number.insert(ino, Rc::clone(&node));
        self.by_handle.insert(handle, ino);
        node
    }

    /// Returns whether anything but the table holds an object.
    pub(crate) fn is_held(&self, ino: u64) -> bool {
        let node = self.by_number.get(&ino);
        node.is_some_and(|node| Rc::strong_count(node) > 1)
    }

    /// Removes an object if nothing needs it.
    pub(crate) fn drop_unused(&mut self, ino: u64) {
        let Some(node) = self.by_number.get(&ino) else {
            return;
        };
        if ino == ROOT || !node.is_unused() {
            return;
        }
        let node = Rc::clone(node);
        self.changed_and_gone = self.changed_and_gone.max(node.changed_by_us.get());
        self.by_number.remove(&ino);
        self.by_handle.remove(&node.handle);
        for (directory, name) in node.places.take() {
            if let Some(directory) = self.by_number.get(&directory) {
                let mut names = directory.names.borrow_mut();
                if names.get(&name).is_some_and(|entry| entry.ino == Some(ino)) {
                    names.remove(&name);
                }
            }
        }
    }

    /// Returns the number of the latest call that had begun when this client last modified an object that is not in the
    /// table any more. What calls up to this number have brought may be from before the modification.
    pub(crate) fn changed_and_gone(&self) -> u64 {
        self.changed_and_gone
    }

    /// Returns all objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<Node<A>>> {
        self.by_number.values()
    }

    /// Returns the number of objects.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(byte: u8) -> FileHandle {
        FileHandle::new(&[byte; 8]).unwrap()
    }

    fn attributes(fileid: u64) -> Attributes {
        Attributes {
            fileid,
            ..Attributes::default()
        }
    }

    fn table() -> Inodes<()> {
        let cached = Cached::new(attributes(2), 0, Instant::now(), Duration::ZERO);
        Inodes::new(Rc::new(Node::new(ROOT, handle(0), cached)))
    }

    fn add(table: &mut Inodes<()>, byte: u8, fileid: u64) -> Rc<Node<()>> {
        let now = Instant::now();
        table.add(handle(byte), attributes(fileid), 0, now, Duration::ZERO)
    }

    #[test]
    fn an_object_has_the_servers_number_if_no_other_has_it() {
        let mut table = table();
        let first = add(&mut table, 1, 77);
        assert_eq!(first.ino, 77);
        // The same number on another file system, or of a file that took the place of a removed one.
        let second = add(&mut table, 2, 77);
        assert_ne!(second.ino, 77);
        assert_eq!(table.find(&handle(2)).unwrap().ino, second.ino);
        assert_eq!(table.find(&handle(1)).unwrap().ino, 77);
        // Numbers that mean something else to FUSE.
        assert!(add(&mut table, 3, 0).ino > SPARE);
        assert!(add(&mut table, 4, ROOT).ino > SPARE);
        assert!(add(&mut table, 5, u64::MAX).ino > SPARE);
        // The root's, also that of another file system below it.
        assert!(add(&mut table, 6, 2).ino > SPARE);
    }

    #[test]
    fn an_object_stays_while_the_kernel_or_an_open_file_needs_it() {
        let mut table = table();
        let node = add(&mut table, 1, 77);
        node.lookups.set(2);
        node.opens.set(1);
        table.drop_unused(77);
        node.lookups.set(0);
        table.drop_unused(77);
        assert!(table.get(77).is_some());
        node.opens.set(0);
        table.drop_unused(77);
        assert!(table.get(77).is_none() && table.find(&handle(1)).is_none());
        table.drop_unused(ROOT);
        assert!(table.get(ROOT).is_some());
        assert_eq!(table.len(), 1);
    }
}
