//! Changes of directories: MKDIR, MKNOD, SYMLINK, LINK, REMOVE, RMDIR, RENAME.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use nfs_binding::client::Nfs3;
use nfs_binding::proto::{
    CreateOk, DeviceNumber, DirOpArgs, FileType, LinkText, MkdirArgs, MknodArgs, MknodWhat,
    NfsResult, NfsTime, SetAttributes, SetTime, SymlinkArgs, WccAttributes, WccData,
};
use rpc_transport::CallError;
use rustix::io::Errno;

use crate::core::find::{Found, dir_op};
use crate::core::hide::Hide;
use crate::core::resent::{Noting, Proof};
use crate::core::{Connect, Core, NodeOf, UserOf};

impl<C: Connect> Core<C> {
    /// Makes an entry with `call`, which sets `resent` if it is sent more than once; `proof` says
    /// by what the object is recognised then.
    pub(crate) async fn make<'u, R>(
        &self,
        (user, resent): (&'u UserOf<C>, &'u Cell<bool>),
        directory: &NodeOf<C>,
        name: &[u8],
        proof: Proof<'_>,
        call: impl Fn(Nfs3<Noting<'u, C::As>>) -> R,
    ) -> Result<NodeOf<C>, Errno>
    where
        R: Future<Output = Result<NfsResult<CreateOk, WccData>, CallError>>,
    {
        let change = self.change(directory);
        let ok = match self.ask_noting(user, resent, call).await {
            Ok(ok) => ok,
            Err(error) => {
                // What is remembered of the name was wrong, or may be.
                directory.outdate_name(name);
                drop(change);
                if error == Errno::EXIST
                    && resent.get()
                    && let Some(node) = self.made_before(user, directory, name, proof).await
                {
                    return Ok(node);
                }
                return Err(self.stale(directory, error));
            }
        };
        self.learn_change(&change, ok.dir_wcc);
        let known = ok.object.zip(ok.attributes);
        let node = match known {
            Some((handle, attributes)) => self
                .intern(handle, Some(attributes), change.call)
                .ok_or(Errno::IO)?,
            // RFC 1813 allows that the reply lacks them.
            None => {
                let args = &DirOpArgs {
                    what: dir_op(directory, name),
                };
                let call = self.begin();
                let found = self
                    .ask(user, |nfs| async move { nfs.lookup(args).await })
                    .await?;
                let attributes = match found.attributes {
                    Some(attributes) => attributes,
                    None => {
                        let args = &nfs_binding::proto::HandleArgs {
                            object: found.object,
                        };
                        self.ask(user, |nfs| async move { nfs.getattr(args).await })
                            .await?
                    }
                };
                self.intern(found.object, Some(attributes), call)
                    .ok_or(Errno::IO)?
            }
        };
        self.remember(directory, name, Some(&node));
        Ok(node)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The error of MKDIR.
    pub(crate) async fn mkdir(
        &self,
        user: &UserOf<C>,
        parent: u64,
        name: &[u8],
        permissions: u32,
    ) -> Result<Found, Errno> {
        let directory = self.node(parent)?;
        let (mark, resent) = (self.mark(), Cell::new(false));
        let args = &MkdirArgs {
            place: dir_op(&directory, name),
            attributes: marked(permissions, mark),
        };
        let proof = Proof::Mark(FileType::Directory, mark);
        let node = self
            .make((user, &resent), &directory, name, proof, |nfs| async move {
                nfs.mkdir(args).await
            })
            .await?;
        Ok(self.found(&directory, &node))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The error of SYMLINK.
    pub(crate) async fn symlink(
        &self,
        user: &UserOf<C>,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Found, Errno> {
        let directory = self.node(parent)?;
        let args = &SymlinkArgs {
            place: dir_op(&directory, name),
            attributes: mode(0o777),
            text: LinkText::from(target),
        };
        let (proof, resent) = (Proof::Target(target), Cell::new(false));
        let node = self
            .make((user, &resent), &directory, name, proof, |nfs| async move {
                nfs.symlink(args).await
            })
            .await?;
        Ok(self.found(&directory, &node))
    }

    /// Makes a file, a pipe, a socket or a device.
    ///
    /// # Errors
    /// The error of CREATE or MKNOD; EINVAL for another type.
    pub(crate) async fn mknod(
        &self,
        user: &UserOf<C>,
        parent: u64,
        name: &[u8],
        file_type: FileType,
        permissions: u32,
        device: DeviceNumber,
    ) -> Result<Found, Errno> {
        let directory = self.node(parent)?;
        let (mark, resent) = (self.mark(), Cell::new(false));
        let attributes = marked(permissions, mark);
        let what = match file_type {
            FileType::Regular => {
                // mknod(2) fails if the name exists. Only an exclusive CREATE can be sent again.
                let node = self
                    .make_file(user, &directory, name, permissions, true)
                    .await?;
                return Ok(self.found(&directory, &node));
            }
            FileType::Fifo => MknodWhat::Fifo(attributes),
            FileType::Socket => MknodWhat::Socket(attributes),
            FileType::Character => MknodWhat::Character(attributes, device),
            FileType::Block => MknodWhat::Block(attributes, device),
            FileType::Directory | FileType::Symlink => return Err(Errno::INVAL),
        };
        let args = &MknodArgs {
            place: dir_op(&directory, name),
            what,
        };
        let proof = Proof::Mark(file_type, mark);
        let node = self
            .make((user, &resent), &directory, name, proof, |nfs| async move {
                nfs.mknod(args).await
            })
            .await?;
        Ok(self.found(&directory, &node))
    }

    /// Makes a hard link.
    ///
    /// # Errors
    /// The error of LINK.
    pub(crate) async fn link(
        &self,
        user: &UserOf<C>,
        ino: u64,
        parent: u64,
        name: &[u8],
    ) -> Result<Found, Errno> {
        let (node, directory) = (self.node(ino)?, self.node(parent)?);
        let changes = (self.change(&node), self.change(&directory));
        let ok = match self.send_link(user, &node, (&directory, name)).await {
            Ok(ok) => ok,
            Err(error) => {
                directory.outdate_name(name);
                return Err(self.stale(&node, error));
            }
        };
        self.learn_change(&changes.1, ok.dir_wcc);
        // LINK has no attributes from before it. It changes neither the data nor its time: if these are not
        // the cached ones, another client has changed them.
        let ctime = node.attributes.borrow().version().ctime;
        let before = ok.attributes.as_ref().map(|after| WccAttributes {
            size: after.size,
            mtime: after.mtime,
            ctime,
        });
        let after = WccData {
            before,
            after: ok.attributes,
        };
        self.learn_change(&changes.0, after);
        drop(changes);
        self.refresh(user, &node).await?;
        self.remember(&directory, name, Some(&node));
        self.until_invalidated(&node).await;
        Ok(self.found(&directory, &node))
    }

    /// Removes a name that is not a directory. An open file without another name gets a `.nfs` name instead
    /// (silly rename), even if the calling process is killed meanwhile.
    ///
    /// # Errors
    /// The error of REMOVE.
    pub(crate) async fn unlink(
        self: &Rc<Self>,
        user: &UserOf<C>,
        parent: u64,
        name: &[u8],
    ) -> Result<(), Errno> {
        let directory = self.node(parent)?;
        if self.is_hidden_name(&directory, name) {
            return Err(Errno::BUSY);
        }
        if let Some(node) = self.would_be_lost(user, &directory, name).await? {
            let (core, user, name) = (Rc::clone(self), Rc::clone(user), name.to_vec());
            let hiding = async move {
                let hidden = core.hide(&user, &directory, &name, &node, Hide::Rename);
                let hidden = hidden.await.map(drop);
                hidden.map_err(|error| core.stale(&directory, error))
            };
            return self.to_the_end(hiding).await;
        }
        let args = &DirOpArgs {
            what: dir_op(&directory, name),
        };
        let change = self.change(&directory);
        let resent = Cell::new(false);
        let removed = self
            .send_removal(user, &directory, &resent, |nfs| async move {
                nfs.remove(args).await
            })
            .await;
        self.removed(&directory, name, &change, removed)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The error of RMDIR.
    pub(crate) async fn rmdir(
        &self,
        user: &UserOf<C>,
        parent: u64,
        name: &[u8],
    ) -> Result<(), Errno> {
        let directory = self.node(parent)?;
        let inner = directory.last_known(name);
        let inner = inner.and_then(|ino| self.inodes.borrow().get(ino));
        if let Some(inner) = &inner {
            self.hidden_are_gone(inner).await;
        }
        let args = &DirOpArgs {
            what: dir_op(&directory, name),
        };
        let change = self.change(&directory);
        let resent = Cell::new(false);
        let removed = self
            .send_removal(user, &directory, &resent, |nfs| async move {
                nfs.rmdir(args).await
            })
            .await;
        self.removed(&directory, name, &change, removed)
    }

    fn removed(
        &self,
        directory: &NodeOf<C>,
        name: &[u8],
        change: &crate::core::Change<'_, C>,
        outcome: Result<WccData, Errno>,
    ) -> Result<(), Errno> {
        match outcome {
            Ok(wcc) => {
                self.learn_change(change, wcc);
                self.expire_named(directory, name);
                self.remember(directory, name, None);
                Ok(())
            }
            Err(error) => {
                directory.outdate_name(name);
                Err(self.stale(directory, error))
            }
        }
    }

    /// Notes that the attributes of a name's object have changed.
    fn expire_named(&self, directory: &NodeOf<C>, name: &[u8]) {
        let ino = directory.last_known(name);
        let node = ino.and_then(|ino| self.inodes.borrow().get(ino));
        if let Some(node) = node {
            // Its ctime and number of links change by this client alone.
            node.changed_by_us.set(self.calls.get());
            node.attributes.borrow_mut().expire();
        }
    }

    /// Renames an object, also if the process that asks is killed meanwhile: otherwise an open file could have a name
    /// that is not known here, and would be lost with it. An open file that is replaced stays until it is closed, under
    /// a hidden name.
    ///
    /// # Errors
    /// The error of RENAME.
    pub(crate) async fn rename(
        self: &Rc<Self>,
        user: &UserOf<C>,
        (from, old): (u64, &[u8]),
        (to, new): (u64, &[u8]),
    ) -> Result<(), Errno> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        if self.is_hidden_name(&from, old) || self.is_hidden_name(&to, new) {
            return Err(Errno::BUSY);
        }
        let moved = from.last_known(old);
        let lost = self.would_be_lost(user, &to, new).await?;
        let lost = lost.filter(|lost| moved != Some(lost.ino));
        let (core, user) = (Rc::clone(self), Rc::clone(user));
        let (old, new) = (old.to_vec(), new.to_vec());
        let renaming = async move {
            let rename = || core.rename_at_server(&user, (&from, &old), (&to, &new));
            let Some(lost) = lost else {
                return rename().await;
            };
            // Even if it is closed meanwhile, it is not removed before the outcome is known.
            lost.opens.set(lost.opens.get() + 1);
            let hidden = core.hide(&user, &to, &new, &lost, Hide::Link).await;
            let renamed = match hidden {
                Ok(_) => rename().await,
                Err(error) => Err(error),
            };
            if renamed.is_err() && hidden == Ok(Hide::Rename) {
                core.give_name_back(&user, &to, &new, &lost).await;
            }
            lost.opens.set(lost.opens.get() - 1);
            core.unhide_unused(&lost);
            core.inodes.borrow_mut().drop_unused(lost.ino);
            renamed
        };
        self.to_the_end(renaming).await
    }

    async fn rename_at_server(
        self: &Rc<Self>,
        user: &UserOf<C>,
        (from, old): (&NodeOf<C>, &[u8]),
        (to, new): (&NodeOf<C>, &[u8]),
    ) -> Result<(), Errno> {
        let moved = from.last_known(old);
        let moved = moved.and_then(|ino| self.inodes.borrow().get(ino));
        // Without a version, or if it rises meanwhile, another client may have given the old name to another
        // object.
        let version = from.known_name(old).map(|_| from.names_version.get());
        let same = from.ino == to.ino;
        let from_change = self.change(from);
        let to_change = (!same).then(|| self.change(to));
        let renaming = self.send_rename(user, (from, old), (to, new), moved.as_ref());
        let wcc = match renaming.await {
            Ok(wcc) => wcc,
            Err(error) => {
                from.outdate_name(old);
                to.outdate_name(new);
                return Err(self.stale(from, error));
            }
        };
        self.expire_named(to, new);
        self.expire_named(from, old);
        match &to_change {
            Some(to_change) => {
                self.learn_change(&from_change, wcc.from_dir);
                self.learn_change(to_change, wcc.to_dir);
            }
            None => {
                // Both are of one directory, before and after one change.
                let wcc = WccData {
                    before: wcc.from_dir.before,
                    after: wcc.to_dir.after,
                };
                self.learn_change(&from_change, wcc);
            }
        }
        self.remember(from, old, None);
        match moved {
            Some(node) => {
                self.remember(to, new, Some(&node));
                if version != Some(from.names_version.get()) {
                    to.outdate_name(new);
                }
            }
            None => self.forget_name(to, new),
        }
        Ok(())
    }
}

/// Returns attributes that set the permissions, and the time of last access by which the call is
/// recognised.
fn marked(permissions: u32, mark: NfsTime) -> SetAttributes {
    SetAttributes {
        atime: SetTime::To(mark),
        ..mode(permissions)
    }
}

/// Returns attributes that set the permissions.
fn mode(permissions: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(permissions),
        ..SetAttributes::default()
    }
}
