//! Open files: OPEN, CREATE, FLUSH, FSYNC, RELEASE.
//!
//! NFS version 3 has no OPEN. Permissions are checked with ACCESS, which brings fresh attributes as
//! well, and so shows whether another client has changed the file since it was closed here:
//! close-to-open consistency. Closing a file waits until its data is on stable storage.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use nfs_binding::proto::{
    Access, CreateArgs, CreateHow, SetAttributes, SetTime, SetattrArgs, Verifier,
};
use rustix::io::Errno;

use crate::core::find::{Found, dir_op};
use crate::core::resent::Proof;
use crate::core::{Connect, Core, NodeOf, UserOf};
use crate::direct_run::DirectRun;
use crate::node::Node;
use crate::read_ahead::ReadAhead;
use crate::users::User;

/// The time within which the lookup and the `open` of one system call follow each other. The
/// attributes that the lookup has just brought need not be fetched again.
const ONE_SYSTEM_CALL: Duration = Duration::from_millis(2);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenMode {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// To execute it, which needs another permission than reading it.
    pub(crate) execute: bool,
    /// O_DIRECT.
    pub(crate) direct: bool,
    /// O_SYNC or O_DSYNC.
    pub(crate) sync: bool,
    /// O_EXCL.
    pub(crate) exclusive: bool,
    /// O_TRUNC. The kernel passes it on only with a CREATE. For an OPEN, it sends a SETATTR of the size
    /// instead.
    pub(crate) truncate: bool,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile<A> {
    pub(crate) node: Rc<Node<A>>,
    /// The user who opened it, on whose behalf it is read and written.
    pub(crate) user: Rc<User<A>>,
    pub(crate) mode: OpenMode,
    /// The serial number of the last write error that was reported to it.
    pub(crate) seen: Cell<u64>,
    /// The last parts of writes with O_DIRECT.
    pub(crate) direct: RefCell<Rc<DirectRun>>,
    pub(crate) read_ahead: RefCell<ReadAhead>,
}

/// The result of an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The number of the open file.
    pub(crate) file: u64,
    /// Whether the kernel's cached pages of the file are still valid.
    pub(crate) keep: bool,
}

impl<C: Connect> Core<C> {
    /// Opens a file.
    ///
    /// # Errors
    /// EACCES, or the error of ACCESS or GETATTR.
    pub(crate) async fn open(
        &self,
        user: &UserOf<C>,
        thread: u32,
        ino: u64,
        mode: OpenMode,
    ) -> Result<Opened, Errno> {
        let node = self.node(ino)?;
        let current = self.is_current(thread, &node);
        self.permit_open(user, &node, needed(mode), current).await?;
        self.until_invalidated(&node).await;
        Ok(self.opened(user, &node, mode))
    }

    /// Checks that a file or directory may be opened, and fetches its attributes unless they are `current`
    /// ([`Core::is_current`]): an open notices what others have changed (`cto`).
    ///
    /// # Errors
    /// EACCES, or the error of ACCESS or GETATTR.
    pub(crate) async fn permit_open(
        &self,
        user: &UserOf<C>,
        node: &NodeOf<C>,
        want: Access,
        current: bool,
    ) -> Result<(), Errno> {
        let granted = match self.remembered(user, node, want) {
            Some(_) if !current => {
                self.getattr_now(user, node).await?;
                self.remembered(user, node, want)
            }
            known => known,
        };
        let granted = match granted {
            Some(granted) => granted,
            None => self.fetch_access(user, node).await?.contains(want),
        };
        match granted {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }

    /// Returns whether an open need not fetch attributes: the lookup of the same system call has, or changes by others
    /// are noticed later (`nocto`).
    pub(crate) fn is_current(&self, thread: u32, node: &NodeOf<C>) -> bool {
        let just_found = node
            .just_found
            .take()
            .is_some_and(|(finder, at)| finder == thread && at.elapsed() < ONE_SYSTEM_CALL);
        just_found || (!self.options.close_to_open && self.is_fresh(node))
    }

    fn opened(&self, user: &UserOf<C>, node: &NodeOf<C>, mode: OpenMode) -> Opened {
        node.opens.set(node.opens.get() + 1);
        let version = node.data_version.get();
        let keep = node.paged.replace(Some(version)) == Some(version);
        let file = OpenFile {
            node: Rc::clone(node),
            user: Rc::clone(user),
            mode,
            seen: Cell::new(node.write_error.get().serial),
            direct: RefCell::default(),
            read_ahead: RefCell::default(),
        };
        let file = self.files.borrow_mut().insert(Rc::new(file)) as u64;
        Opened { file, keep }
    }

    /// Returns an open file.
    ///
    /// # Errors
    /// EBADF for a number that the kernel should not have.
    pub(crate) fn file(&self, number: u64) -> Result<Rc<OpenFile<C::As>>, Errno> {
        let files = self.files.borrow();
        let index = usize::try_from(number).map_err(|_| Errno::BADF)?;
        files.get(index).cloned().ok_or(Errno::BADF)
    }

    /// Creates a file and opens it. Without O_EXCL, a file that has appeared meanwhile is opened, and with
    /// O_TRUNC emptied: the kernel takes the file for a new one and sends no SETATTR.
    ///
    /// # Errors
    /// The error of CREATE; for an existing file that of [`Core::open`], or of SETATTR.
    pub(crate) async fn create(
        self: &Rc<Self>,
        user: &UserOf<C>,
        thread: u32,
        parent: u64,
        name: &[u8],
        permissions: u32,
        mode: OpenMode,
    ) -> Result<(Found, Opened), Errno> {
        let directory = self.node(parent)?;
        let made = self
            .make_file(user, &directory, name, permissions, mode.exclusive)
            .await;
        match made {
            Ok(node) => {
                let opened = self.opened(user, &node, mode);
                Ok((self.found(&directory, &node), opened))
            }
            Err(Errno::EXIST) if !mode.exclusive => {
                let node = self.ask_name(user, &directory, name).await?;
                if !node.is_file() {
                    return Err(Errno::EXIST);
                }
                let current = self.is_current(thread, &node);
                self.permit_open(user, &node, needed(mode), current).await?;
                if mode.truncate {
                    // Before the file counts as open, so that nothing is left open if this fails or the
                    // process is killed.
                    let empty = SetAttributes {
                        size: Some(0),
                        ..SetAttributes::default()
                    };
                    self.setattr(user, node.ino, None, empty).await?;
                }
                self.until_invalidated(&node).await;
                let mut opened = self.opened(user, &node, mode);
                opened.keep &= !mode.truncate;
                Ok((self.found(&directory, &node), opened))
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a file that does not exist.
    pub(crate) async fn make_file(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
        permissions: u32,
        exclusive: bool,
    ) -> Result<NodeOf<C>, Errno> {
        let mode = SetAttributes {
            mode: Some(permissions),
            ..SetAttributes::default()
        };
        let how = match exclusive {
            true => CreateHow::Exclusive(self.verifier()),
            false => CreateHow::Guarded(mode.clone()),
        };
        let args = &CreateArgs {
            place: dir_op(directory, name),
            how,
        };
        let (proof, resent) = (Proof::None, Cell::new(false));
        let node = self
            .make((user, &resent), directory, name, proof, |nfs| async move {
                nfs.create(args).await
            })
            .await?;
        if exclusive {
            // The server keeps the verifier in attributes until they are set.
            let attributes = SetAttributes {
                atime: SetTime::ServerTime,
                mtime: SetTime::ServerTime,
                ..mode
            };
            let args = &SetattrArgs {
                object: node.handle,
                attributes,
                guard: None,
            };
            let change = self.change(&node);
            let wcc = self
                .ask(user, |nfs| async move { nfs.setattr(args).await })
                .await?;
            self.learn_change(&change, wcc);
        }
        Ok(node)
    }

    /// Returns a verifier for an exclusive CREATE, which no other call of any client has.
    fn verifier(&self) -> Verifier {
        let mut verifier = [0; 8];
        verifier[..4].copy_from_slice(&self.random.to_be_bytes());
        verifier[4..].copy_from_slice(&(self.begin() as u32).to_be_bytes());
        verifier
    }

    /// Handles FLUSH, which the kernel sends for each close(2): brings the data to stable storage.
    ///
    /// # Errors
    /// The error of a write, if it was not reported to this open file before.
    pub(crate) async fn close(self: &Rc<Self>, number: u64) -> Result<(), Errno> {
        let file = self.file(number)?;
        if file.mode.write {
            self.sync(&file.node).await;
            self.until_attributes_invalidated(&file.node).await;
        }
        Self::report(&file.node, &file.seen)
    }

    /// Handles an fsync(2).
    ///
    /// # Errors
    /// See [`Core::close`].
    pub(crate) async fn fsync(self: &Rc<Self>, number: u64) -> Result<(), Errno> {
        let file = self.file(number)?;
        self.sync(&file.node).await;
        self.until_attributes_invalidated(&file.node).await;
        Self::report(&file.node, &file.seen)
    }

    /// Handles the end of an open file. The kernel does not wait for that.
    pub(crate) fn release(self: &Rc<Self>, number: u64) {
        let Ok(file) = self.file(number) else {
            return;
        };
        self.files.borrow_mut().remove(number as usize);
        let node = Rc::clone(&file.node);
        node.opens.set(node.opens.get() - 1);
        self.unhide_unused(&node);
        self.inodes.borrow_mut().drop_unused(node.ino);
    }
}

/// Returns the permissions that opening a file in this way needs. O_TRUNC needs that to write, also without
/// O_WRONLY.
fn needed(mode: OpenMode) -> Access {
    let mut needed = Access::empty();
    if mode.execute {
        needed |= Access::EXECUTE;
    } else if mode.read {
        needed |= Access::READ;
    }
    if mode.write || mode.truncate {
        needed |= Access::MODIFY | Access::EXTEND;
    }
    needed
}
