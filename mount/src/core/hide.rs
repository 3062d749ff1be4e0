//! Files that are removed, or replaced by a rename, while they are open.
//!
//! A server of NFS version 3 does not know which files are open, and would remove them. So such a file
//! keeps a name until it is closed: `.nfs`, its inode number, and a number of this mount, as with
//! Linux's own client. A removal renames the file to that. A rename onto an open file first gives it
//! that name as a second one (LINK), so that the name that is replaced exists at any moment; where the
//! server has no hard links, the file is renamed instead.

use std::cell::Cell;
use std::rc::Rc;

use nfs_binding::proto::DirOpArgs;
use rustix::io::Errno;

use crate::core::find::dir_op;
use crate::core::{Connect, Core, NodeOf, UserOf};
use crate::node::{Hidden, Node};

/// The way in which a file gets its hidden name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hide {
    /// Renames the object to the hidden name.
    Rename,
    /// Adds the hidden name as a second one, by a hard link.
    Link,
}

impl<C: Connect> Core<C> {
    /// Returns the file that would be lost with a name: one that is open and has no other name. If the name
    /// may be something else by now, the server is asked, as hiding would take the name from another file.
    ///
    /// # Errors
    /// The error of LOOKUP, except ENOENT.
    pub(crate) async fn would_be_lost(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
    ) -> Result<Option<NodeOf<C>>, Errno> {
        let node = directory.last_known(name);
        let mut node = node.and_then(|ino| self.inodes.borrow().get(ino));
        if node.as_ref().is_some_and(must_be_hidden) && directory.known_name(name).is_none() {
            node = match self.ask_name(user, directory, name).await {
                Ok(now) => Some(now),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error),
            };
        }
        let Some(node) = node else {
            return Ok(None);
        };
        if !must_be_hidden(&node) {
            // It may have been added to the table just now.
            self.inodes.borrow_mut().drop_unused(node.ino);
            return Ok(None);
        }
        if node.attributes.borrow().get().nlink > 1 {
            // The other names may be gone. The reply itself counts: during a write it may not be stored. Without a
            // reply, the file is hidden, as that loses nothing.
            let call = self.begin();
            match self.attributes_of(user, node.handle).await {
                Ok(now) => {
                    let has_others = now.nlink > 1;
                    self.learn(&node, now, call);
                    if has_others {
                        return Ok(None);
                    }
                }
                Err(error) => {
                    if self.stale(&node, error) == Errno::STALE {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(node))
    }

    /// Returns whether a name is that of a hidden file, which stays until the file is closed: as with
    /// Linux's own client, it is busy.
    pub(crate) fn is_hidden_name(&self, directory: &NodeOf<C>, name: &[u8]) -> bool {
        let ino = directory.last_known(name);
        let node = ino.and_then(|ino| self.inodes.borrow().get(ino));
        node.is_some_and(|node| {
            let hidden = node.hidden.borrow();
            hidden
                .as_ref()
                .is_some_and(|it| it.name == name && it.directory.ino == directory.ino)
        })
    }

    /// Gives a file a hidden name. Callers let this go on to its end ([`Core::to_the_end`]): if it is cut off
    /// after the server has renamed the file, nothing removes the hidden name. Returns how it was done.
    ///
    /// # Errors
    /// The error of RENAME.
    pub(crate) async fn hide(
        self: &Rc<Self>,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
        node: &NodeOf<C>,
        how: Hide,
    ) -> Result<Hide, Errno> {
        let number = self.hidden.get();
        self.hidden.set(number.wrapping_add(1));
        let (fileid, mount) = (Self::fileid(node), self.random);
        let hidden = format!(".nfs{fileid:016x}{mount:08x}{number:04x}").into_bytes();
        let change = self.change(directory);
        let linked = match how {
            Hide::Rename => None,
            Hide::Link => {
                let place = (directory, &*hidden);
                self.send_link(user, node, place).await.ok()
            }
        };
        let how = match linked {
            Some(wcc) => {
                self.learn_change(&change, wcc.dir_wcc);
                Hide::Link
            }
            None => {
                let (from, to) = ((directory, name), (directory, &*hidden));
                let wcc = self.send_rename(user, from, to, Some(node)).await?;
                self.learn_change(&change, wcc.to_dir);
                self.remember(directory, name, None);
                Hide::Rename
            }
        };
        self.remember(directory, &hidden, Some(node));
        node.attributes.borrow_mut().expire();
        directory.hides.set(directory.hides.get() + 1);
        let former = node.hidden.replace(Some(Hidden {
            directory: Rc::clone(directory),
            name: hidden,
            user: Rc::clone(user),
        }));
        if let Some(former) = former {
            // Another request has hidden the file meanwhile. One hidden name is enough.
            self.remove_hidden_name(&former).await;
        }
        // It may have been closed meanwhile.
        self.unhide_unused(node);
        Ok(how)
    }

    /// Gives a file back the name that [`Core::hide`] has taken from it, unless the name exists: a rename that has
    /// failed here may have been executed. If the file cannot have its name back, it keeps the hidden one for good:
    /// its data would be lost with that.
    pub(crate) async fn give_name_back(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
        node: &NodeOf<C>,
    ) {
        let absent = match self.ask_name(user, directory, name).await {
            Ok(other) => {
                // It may have been added to the table just now.
                self.inodes.borrow_mut().drop_unused(other.ino);
                return;
            }
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        };
        // From here on, nothing removes the hidden name.
        let Some(hidden) = node.hidden.take() else {
            return;
        };
        let (old, new) = ((directory, &*hidden.name), (directory, name));
        let change = self.change(directory);
        let renamed = match absent {
            Ok(()) => self.send_rename(user, old, new, Some(node)).await,
            Err(error) => Err(error),
        };
        match renamed {
            Ok(wcc) => {
                self.learn_change(&change, wcc.to_dir);
                self.forget_name(directory, &hidden.name);
                self.remember(directory, name, Some(node));
                node.attributes.borrow_mut().expire();
            }
            Err(error) => {
                let name = String::from_utf8_lossy(&hidden.name);
                tracing::warn!(%name, %error, "a file that may not have been replaced keeps this name");
            }
        }
        directory.hides.set(directory.hides.get() - 1);
        self.inodes.borrow_mut().drop_unused(directory.ino);
    }

    /// Begins to remove the hidden name of a file, if it has one and nobody needs the file any more:
    /// neither an open file nor data that is not on the server.
    pub(crate) fn unhide_unused(self: &Rc<Self>, node: &NodeOf<C>) {
        if is_needed(node) {
            return;
        }
        let hidden = node.hidden.borrow();
        let Some(hidden) = &*hidden else {
            return;
        };
        // Counted before the task is first polled: a program's next request may already wait to be handled.
        let unhiding = Unhiding::begin(&hidden.directory);
        let (core, node) = (Rc::clone(self), Rc::clone(node));
        self.spawn(async move {
            // A program may have opened it by its hidden name since. When that is closed, this begins again.
            if !is_needed(&node) {
                core.remove_hidden(&node).await;
            }
            drop(unhiding);
            core.inodes.borrow_mut().drop_unused(node.ino);
        });
    }

    /// Waits until the hidden files of a directory that were closed are gone, as a program that has
    /// closed them expects.
    pub(crate) async fn hidden_are_gone(&self, directory: &Node<C::As>) {
        let gone = || (directory.unhiding.get() == 0).then_some(());
        directory.hidden_gone.until(gone).await;
    }

    /// Removes the hidden name of a file that nobody has open any more.
    pub(crate) async fn remove_hidden(self: &Rc<Self>, node: &Node<C::As>) {
        let hidden = node.hidden.take();
        if let Some(hidden) = hidden {
            self.remove_hidden_name(&hidden).await;
        }
    }

    async fn remove_hidden_name(&self, hidden: &Hidden<C::As>) {
        let Hidden {
            directory,
            name,
            user,
        } = hidden;
        let args = &DirOpArgs {
            what: dir_op(directory, name),
        };
        let change = self.change(directory);
        let resent = Cell::new(false);
        let removed = self
            .send_removal(user, directory, &resent, |nfs| async move {
                nfs.remove(args).await
            })
            .await;
        match removed {
            Ok(wcc) => self.learn_change(&change, wcc),
            Err(error) => {
                let name = String::from_utf8_lossy(name);
                tracing::warn!(%name, %error, "a hidden file could not be removed");
            }
        }
        self.forget_name(directory, name);
        // The kernel, which has not removed it, may have it in a cached listing.
        directory.listed.set(None);
        self.forget_attributes(directory);
        directory.hides.set(directory.hides.get() - 1);
        self.inodes.borrow_mut().drop_unused(directory.ino);
    }
}

/// The removal of a hidden file of a directory, from its beginning to its end. Requests that list or remove the
/// directory wait for it ([`Core::hidden_are_gone`]).
struct Unhiding<A>(Rc<Node<A>>);

impl<A> Unhiding<A> {
    fn begin(directory: &Rc<Node<A>>) -> Self {
        directory.unhiding.set(directory.unhiding.get() + 1);
        Self(Rc::clone(directory))
    }
}

impl<A> Drop for Unhiding<A> {
    fn drop(&mut self) {
        self.0.unhiding.set(self.0.unhiding.get() - 1);
        self.0.hidden_gone.wake();
    }
}

/// Returns whether a file is open, or has data that is not on the server.
fn is_needed<A>(node: &Node<A>) -> bool {
    node.opens.get() > 0 || !node.dirty.borrow().is_empty()
}

/// Returns whether a node is a file that somebody still needs and that is not hidden yet.
fn must_be_hidden<A>(node: &Rc<Node<A>>) -> bool {
    node.is_file() && is_needed(node) && node.hidden.borrow().is_none()
}
