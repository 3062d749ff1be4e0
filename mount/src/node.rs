//! One object of the server that the kernel knows.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use nfs_binding::proto::{Access, Attributes, FileHandle, FileType, NfsTime, Verifier};
use rustix::io::Errno;

use crate::attributes::Cached;
use crate::dirty::Dirty;
use crate::hull::Hull;
use crate::lookups::Lookups;
use crate::notify::Notify;
use crate::users::User;

/// The version of a [`NameEntry`] that may be wrong. Directories have later ones.
pub(crate) const OUTDATED: u64 = 0;

/// The remembered result of looking up a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameEntry {
    /// The inode, or `None` if there was no such name.
    pub(crate) ino: Option<u64>,
    /// [`Node::names_version`] when that was found, or [`OUTDATED`].
    pub(crate) version: u64,
    /// The number of the latest call that had begun then.
    pub(crate) call: u64,
}

/// A user's permissions, as far as the server has told them.
#[derive(Debug)]
pub(crate) struct Granted<A> {
    pub(crate) user: Rc<User<A>>,
    /// The permissions that it has granted or refused.
    pub(crate) asked: Access,
    /// The permissions that it has granted.
    pub(crate) access: Access,
    /// The object's ctime: permissions change with it.
    pub(crate) ctime: NfsTime,
}

impl<A> Granted<A> {
    pub(crate) fn is_of(&self, user: &Rc<User<A>>) -> bool {
        Rc::ptr_eq(&self.user, user) || self.user.is_same_as(user)
    }
}

/// The name to which a file was renamed because it was removed or replaced while open.
#[derive(Debug)]
pub(crate) struct Hidden<A> {
    pub(crate) directory: Rc<Node<A>>,
    pub(crate) name: Vec<u8>,
    pub(crate) user: Rc<User<A>>,
}

/// The last error of a WRITE or COMMIT. Each file that was open then reports it once: at the next `fsync` or
/// `close`, or earlier at a `write` that is synchronous or finds ENOSPC, EDQUOT or EFBIG.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteError {
    /// The number of errors so far.
    pub(crate) serial: u64,
    pub(crate) last: Option<Errno>,
}

/// The writes that append to a file and have no place in it yet.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    /// Their numbers, in the order in which they came.
    pub(crate) queue: RefCell<VecDeque<u64>>,
    /// Woken when one of them has its place, or is given up.
    pub(crate) ended: Notify,
}

/// The attributes by which the kernel decides what a file may do when it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permissions {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Permissions {
    pub(crate) fn of(attributes: &Attributes) -> Self {
        Self {
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
        }
    }
}

/// An object of the server. All of its state belongs to one thread.
#[derive(Debug)]
pub(crate) struct Node<A> {
    /// FUSE's number of the object: the server's inode number if that is free.
    pub(crate) ino: u64,
    pub(crate) handle: FileHandle,
    /// The number of times that the kernel was told of this inode and has not forgotten.
    pub(crate) lookups: Cell<u64>,
    /// The number of open files of it.
    pub(crate) opens: Cell<u32>,
    pub(crate) attributes: RefCell<Cached>,
    /// The directories and names under which it was found.
    pub(crate) places: RefCell<Vec<(u64, Box<[u8]>)>>,
    /// The permissions of users, the latest last.
    pub(crate) granted: RefCell<Vec<Granted<A>>>,

    /// Modifications by this client that are in flight.
    pub(crate) changing: Cell<u32>,
    /// The number of the latest call that had begun when this client's last modification ended.
    /// Attributes from calls up to this number may be from before the modification.
    pub(crate) changed_by_us: Cell<u64>,

    /// Of a directory: names that were looked up.
    pub(crate) names: RefCell<HashMap<Box<[u8]>, NameEntry>>,
    /// Rises when another client has changed the directory.
    pub(crate) names_version: Cell<u64>,
    /// The number of the latest call that had begun when the directory was changed so that it is unknown whether this
    /// client alone has changed it. A name that was found absent before may exist.
    pub(crate) unsure: Cell<u64>,
    /// Of a directory: the lookups in it, and names that were fetched for more of them.
    pub(crate) lookups_below: RefCell<Option<Box<Lookups<A>>>>,
    /// Of a directory: the version that the kernel has a listing of.
    pub(crate) listed: Cell<Option<u64>>,
    /// Of a directory: the number of lookups in it while a program lists it from the kernel's cache; `None` if none does.
    pub(crate) looked_up: Cell<Option<u32>>,
    /// Of a directory: the verifier of its latest listing from the server.
    pub(crate) list_verifier: Cell<Verifier>,
    /// Of a directory: whether a program has opened it last without reading its entries.
    pub(crate) opened_unread: Cell<bool>,
    /// Of a directory: the number of files that have a hidden name in it. It stays in the table until they are gone.
    pub(crate) hides: Cell<u32>,
    /// Of a directory: the number of hidden files that are being removed.
    pub(crate) unhiding: Cell<u32>,
    /// Woken when one of them is gone.
    pub(crate) hidden_gone: Notify,

    /// Rises when another client has changed the data.
    pub(crate) data_version: Cell<u64>,
    /// The version of the data in the kernel's page cache.
    pub(crate) paged: Cell<Option<u64>>,
    /// The last invalidation of pages that was begun for the file, or 0; see
    /// [`crate::kernel::Kernel::invalidate_pages`].
    pub(crate) page_invalidation: Cell<u64>,
    /// The last invalidation of attributes that was begun for the object, or 0.
    pub(crate) attribute_invalidation: Cell<u64>,
    /// The range that contains all parts of the file that may be in the kernel's page cache.
    pub(crate) cached: Cell<Hull>,
    /// The owner and the mode in the last reply to the kernel; `None` if it was made to forget them.
    pub(crate) shown_permissions: Cell<Option<Permissions>>,
    /// The size that the kernel takes the file to have: what it was last told, or its writes led to.
    pub(crate) shown_size: Cell<u64>,
    /// The size that the kernel takes the file to have at least: that of [`Node::shown_size`] does not count if it
    /// comes from parts of a write with O_DIRECT, of which another part may still fail.
    pub(crate) sure_size: Cell<u64>,
    pub(crate) appends: Appends,
    /// Rises with each write, and each change of the size, by this client.
    pub(crate) own_writes: Cell<u64>,
    /// Written data that is not on the server's stable storage.
    pub(crate) dirty: RefCell<Dirty<Rc<User<A>>>>,
    /// Whether this client is changing the size.
    pub(crate) resizing: Cell<bool>,
    /// Woken when a COMMIT, a modification by this client or a READDIRPLUS for lookups ends.
    pub(crate) progress: Notify,
    pub(crate) write_error: Cell<WriteError>,
    /// Whether a COMMIT is in flight, or about to be.
    pub(crate) committing: Cell<bool>,
    /// Whether a task brings all data to stable storage.
    pub(crate) saving: Cell<bool>,
    /// The number of those who wait until the server has all data.
    pub(crate) draining: Cell<u32>,
    /// The number of those who wait until all data is on stable storage.
    pub(crate) syncing: Cell<u32>,
    pub(crate) hidden: RefCell<Option<Hidden<A>>>,
    /// The thread that looked this object up with a call that brought its attributes, and when: an
    /// `open` that follows at once need not fetch them again.
    pub(crate) just_found: Cell<Option<(u32, std::time::Instant)>>,
}

impl<A> Node<A> {
    pub(crate) fn new(ino: u64, handle: FileHandle, attributes: Cached) -> Self {
        Self {
            ino,
            handle,
            lookups: Cell::new(0),
            opens: Cell::new(0),
            attributes: RefCell::new(attributes),
            places: RefCell::default(),
            granted: RefCell::default(),
            changing: Cell::new(0),
            changed_by_us: Cell::new(0),
            names: RefCell::default(),
            names_version: Cell::new(OUTDATED + 1),
            unsure: Cell::new(0),
            lookups_below: RefCell::default(),
            listed: Cell::new(None),
            looked_up: Cell::new(None),
            list_verifier: Cell::default(),
            opened_unread: Cell::new(false),
            hides: Cell::new(0),
            unhiding: Cell::new(0),
            hidden_gone: Notify::default(),
            data_version: Cell::new(0),
            paged: Cell::new(None),
            page_invalidation: Cell::new(0),
            attribute_invalidation: Cell::new(0),
            cached: Cell::default(),
            shown_permissions: Cell::new(None),
            shown_size: Cell::new(0),
            sure_size: Cell::new(0),
            appends: Appends::default(),
            own_writes: Cell::new(0),
            dirty: RefCell::default(),
            resizing: Cell::new(false),
            progress: Notify::default(),
            write_error: Cell::default(),
            committing: Cell::new(false),
            saving: Cell::new(false),
            draining: Cell::new(0),
            syncing: Cell::new(0),
            hidden: RefCell::default(),
            just_found: Cell::new(None),
        }
    }

    pub(crate) fn file_type(&self) -> FileType {
        self.attributes.borrow().get().file_type
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    pub(crate) fn is_file(&self) -> bool {
        self.file_type() == FileType::Regular
    }

    /// Returns whether nothing but the table needs the node.
    pub(crate) fn is_unused(&self) -> bool {
        self.lookups.get() == 0
            && self.opens.get() == 0
            && self.hides.get() == 0
            && self.dirty.borrow().is_empty()
            && self.hidden.borrow().is_none()
    }

    /// Returns what is known of the lookups in a directory.
    pub(crate) fn lookups(&self) -> RefMut<'_, Lookups<A>> {
        RefMut::map(self.lookups_below.borrow_mut(), |it| {
            &mut **it.get_or_insert_default()
        })
    }

    /// Makes lookups of a name in a directory not use the names that were fetched.
    pub(crate) fn strike(&self, name: &[u8]) {
        if let Some(lookups) = &mut *self.lookups_below.borrow_mut() {
            lookups.strike(name);
        }
    }

    /// Returns what a name was last found to be, if no other client has changed the directory since.
    pub(crate) fn known_name(&self, name: &[u8]) -> Option<Option<u64>> {
        let names = self.names.borrow();
        let entry = names.get(name)?;
        let is_sure = entry.ino.is_some() || entry.call > self.unsure.get();
        (is_sure && entry.version == self.names_version.get()).then_some(entry.ino)
    }

    /// Returns the object that a name was last found to be. Another client may have changed the directory
    /// since, but the kernel may still use the name without a LOOKUP.
    pub(crate) fn last_known(&self, name: &[u8]) -> Option<u64> {
        self.names.borrow().get(name)?.ino
    }

    /// Returns whether a name was looked up or changed after a call had begun, so that the results of that
    /// call may be older than what is remembered.
    pub(crate) fn is_known_after(&self, name: &[u8], call: u64) -> bool {
        let names = self.names.borrow();
        names.get(name).is_some_and(|entry| entry.call > call)
    }

    /// Makes the next lookup of a name ask the server, because something went wrong with it. An object stays
    /// remembered ([`Node::last_known`]): an open file must not be lost with a name that the kernel still has
    /// for it.
    pub(crate) fn outdate_name(&self, name: &[u8]) {
        self.strike(name);
        let mut names = self.names.borrow_mut();
        match names.get_mut(name) {
            Some(entry) if entry.ino.is_some() => entry.version = OUTDATED,
            _ => drop(names.remove(name)),
        }
    }

    /// Notes that the kernel is told attributes.
    pub(crate) fn tell(&self, attributes: &Attributes) {
        self.sure_size.set(attributes.size);
        self.shown_size.set(attributes.size);
        self.shown_permissions
            .set(Some(Permissions::of(attributes)));
    }

    /// Records an error of a WRITE or COMMIT.
    pub(crate) fn write_failed(&self, error: Errno) {
        let serial = self.write_error.get().serial + 1;
        let last = Some(error);
        self.write_error.set(WriteError { serial, last });
    }
}
