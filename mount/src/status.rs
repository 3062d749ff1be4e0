//! SETATTR, READLINK and FSSTAT.

use std::rc::Rc;

use bytes::Bytes;
use nfs_binding::proto::{FsstatOk, HandleArgs, SetAttributes, SetattrArgs};
use rustix::io::Errno;

use crate::core::{Connect, Core, UserOf};
use crate::find::Stat;

impl<C: Connect> Core<C> {
    /// Sets attributes. Written data is sent first, so that it does not change the times later, nor
    /// what lies beyond a new size.
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
        if node.is_file() {
            self.flush(&node).await;
        }
        let size = attributes.size;
        if attributes != SetAttributes::default() {
            // ftruncate(2) needs no more permission than opening the file did.
            let opened = file.filter(|_| size.is_some());
            let opened = opened.map(|file| self.file(file)).transpose()?;
            let user = opened.as_ref().map_or(user, |file| &file.user);
            let args = &SetattrArgs {
                object: node.handle,
                attributes,
                guard: None,
            };
            let change = self.change(&node);
            let outcome = self
                .ask(user, |nfs| async move { nfs.setattr(args).await })
                .await;
            match outcome {
                Ok(wcc) => self.learn_change(&change, wcc),
                Err(error) => {
                    node.attributes.borrow_mut().expire();
                    return Err(self.stale(&node, error));
                }
            }
        }
        if let Some(size) = size {
            self.cut(&node, size);
        }
        self.refresh(user, &node).await?;
        Ok(self.stat(&node))
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
