//! SETATTR, READLINK and FSSTAT.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nfs_binding::proto::{FsstatOk, HandleArgs, SetAttributes, SetattrArgs};
use rustix::io::Errno;

use crate::core::find::Stat;
use crate::core::{Connect, Core, NodeOf, UserOf};
use crate::node::Node;

impl<C: Connect> Core<C> {
    /// Sets attributes. Written data is brought to stable storage first, as Linux's client does. Data that the
    /// server has, but could lose in a restart, would be written again later: that would change the times, and
    /// undo a truncation.
    ///
    /// # Errors
    /// The error of SETATTR.
    pub(crate) async fn setattr(
        self: &Rc<Self>,
        user: &UserOf<C>,
        ino: u64,
        file: Option<u64>,
        attributes: SetAttributes,
    ) -> Result<Stat, Errno> {
        let node = self.node(ino)?;
        if let Some(size) = attributes.size
            && size > self.limits.max_file_size
        {
            return Err(Errno::FBIG);
        }
        let size = attributes.size;
        let opened = file.filter(|_| size.is_some());
        let opened = opened.map(|file| self.file(file)).transpose()?;
        let run = opened.as_ref().map(|file| file.direct.take());
        let alone = SetAttributes {
            size,
            ..SetAttributes::default()
        };
        // After a write with O_DIRECT that failed beyond the end, the kernel truncates the file to the size
        // that it believes. That would take away what other clients have appended meanwhile.
        let believed = node.sure_size.get()..=node.shown_size.get();
        let by_kernel = run.is_some_and(|run| run.is_undone())
            && size.is_some_and(|size| believed.contains(&size))
            && attributes == alone;
        // The kernel keeps writes away as well, but only as long as the process that asks lives.
        let resizing = match size {
            Some(_) => Some(Resizing::begin(&node).await),
            None => None,
        };
        let _unhiding = UnhideAtEnd(Rc::clone(self), Rc::clone(&node));
        if node.is_file() {
            self.sync(&node).await;
        }
        if attributes != SetAttributes::default() && !by_kernel {
            // ftruncate(2) needs no more permission than opening the file did.
            let user = opened.as_ref().map_or(user, |file| &file.user);
            let (core, user, node) = (Rc::clone(self), Rc::clone(user), Rc::clone(&node));
            let asking = Rc::new(());
            let asker = Rc::downgrade(&asking);
            // Runs to the end even if the process that asks is killed: otherwise the server could have a new
            // size of which this client does not know.
            let setting = async move {
                let outcome = core.set(&user, &node, attributes).await;
                drop(resizing);
                if asker.strong_count() == 0 {
                    // The process was killed, so its request was answered with an error, and the kernel
                    // does not know of the change.
                    core.forget_cached(&node, size.is_some());
                }
                outcome
            };
            self.to_the_end(setting).await?;
        }
        self.refresh(user, &node).await?;
        if size.is_none() {
            self.until_invalidated(&node).await;
        }
        let mut stat = self.stat(&node);
        if self.has_old_pages(&node) {
            // After a change of the size, the kernel can invalidate these pages only after this reply, so the reply
            // cannot wait for it. With no trust, the next request for the attributes comes here and waits.
            stat.trust = Duration::ZERO;
        }
        node.tell(&stat.attributes);
        Ok(stat)
    }

    /// Sends a SETATTR. For a new size, no data of the file may be unwritten or uncommitted.
    async fn set(
        &self,
        user: &UserOf<C>,
        node: &NodeOf<C>,
        attributes: SetAttributes,
    ) -> Result<(), Errno> {
        let size = attributes.size;
        let args = &SetattrArgs {
            object: node.handle,
            attributes,
            guard: None,
        };
        let change = self.change(node);
        let outcome = self
            .ask(user, |nfs| async move { nfs.setattr(args).await })
            .await;
        match outcome {
            Ok(wcc) => self.learn_change(&change, wcc),
            Err(error) => {
                node.attributes.borrow_mut().expire();
                return Err(self.stale(node, error));
            }
        }
        if size.is_some() {
            // What was read ahead may be beyond the new end.
            node.own_writes.set(node.own_writes.get() + 1);
        }
        Ok(())
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// The error of READLINK.
    pub(crate) async fn readlink(&self, user: &UserOf<C>, ino: u64) -> Result<Bytes, Errno> {
        let node = self.node(ino)?;
        let args = &HandleArgs {
            object: node.handle,
        };
        let call = self.begin();
        let ok = self
            .ask(user, |nfs| async move { nfs.readlink(args).await })
            .await
            .map_err(|error| self.stale(&node, error))?;
        self.learn_maybe(&node, ok.attributes, call);
        Ok(ok.text.0)
    }

    /// Returns space and numbers of files.
    ///
    /// # Errors
    /// The error of FSSTAT.
    pub(crate) async fn statfs(&self, user: &UserOf<C>, ino: u64) -> Result<FsstatOk, Errno> {
        let node = self.node(ino)?;
        let args = &HandleArgs {
            object: node.handle,
        };
        self.ask(user, |nfs| async move { nfs.fsstat(args).await })
            .await
    }
}

/// Begins to remove the hidden name of a file when dropped, if nobody needs the file any more. A file that was
/// closed and removed may have waited only for the COMMIT that precedes a SETATTR, also of a SETATTR that then fails or
/// whose process is killed.
struct UnhideAtEnd<C: Connect>(Rc<Core<C>>, NodeOf<C>);

impl<C: Connect> Drop for UnhideAtEnd<C> {
    fn drop(&mut self) {
        self.0.unhide_unused(&self.1);
    }
}

/// A change of a file's size. It lasts from before written data is sent until the reply. Writes wait
/// meanwhile. Otherwise the server could execute a WRITE before the SETATTR, which would cut off its data.
struct Resizing<A>(Rc<Node<A>>);

impl<A> Resizing<A> {
    /// Waits for the end of another change.
    async fn begin(node: &Rc<Node<A>>) -> Self {
        let free = || (!node.resizing.replace(true)).then_some(());
        node.progress.until(free).await;
        Self(Rc::clone(node))
    }
}

impl<A> Drop for Resizing<A> {
    fn drop(&mut self) {
        self.0.resizing.set(false);
        self.0.progress.wake();
    }
}
