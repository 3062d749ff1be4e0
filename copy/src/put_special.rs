//! Copies links, pipes, sockets and devices from this machine to a server.
//!
//! SYMLINK, MKNOD and LINK return NFS3ERR_EXIST if another object has the name, but also if the
//! call was executed before and its reply was lost. So the client examines the existing object and
//! accepts it if it is the wanted one.

use nfs_binding::client::{NfsError, Object, Place, RpcClient};
use nfs_binding::proto::{
    DeviceNumber, FileHandle, FileType, LinkText, MAX_PATH, MknodWhat, SetAttributes, Status,
};
use rustix::fs::FileType as Kind;

use super::CopyError;
use super::local::{Meta, SET_ID};
use super::put::{Item, Put};

/// The object to create.
enum Wanted {
    Link(LinkText),
    Node(MknodWhat),
}

impl<C: RpcClient> Put<'_, C> {
    /// Creates a symbolic link, pipe, socket or device.
    pub(super) async fn special(&self, item: &Item, meta: &Meta) -> Result<FileHandle, CopyError> {
        let at = item.dir.at(item.name());
        let wanted = self.wanted(item, meta)?;
        match self.make_special(item, &wanted).await {
            Err(error) if error.status() == Some(Status::EXIST) => {}
            outcome => return Ok(outcome?.handle),
        }
        let dir = item.dir.info.remote;
        let there = self.mount.lookup(dir, item.name(), &at).await?;
        if self.is_wanted(&there, &wanted, &at).await? {
            return Ok(there.handle);
        }
        self.make_way(&there, item).await?;
        Ok(self.make_special(item, &wanted).await?.handle)
    }

    async fn make_special(&self, item: &Item, wanted: &Wanted) -> Result<Object, NfsError> {
        let (dir, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        match wanted {
            Wanted::Link(text) => self.mount.symlink(dir, name, text.clone(), &at).await,
            Wanted::Node(what) => self.mount.mknod(dir, name, what.clone(), &at).await,
        }
    }

    fn wanted(&self, item: &Item, meta: &Meta) -> Result<Wanted, CopyError> {
        let attributes = SetAttributes {
            mode: Some(meta.mode & !SET_ID),
            ..SetAttributes::default()
        };
        let device = DeviceNumber {
            major: rustix::fs::major(meta.rdev),
            minor: rustix::fs::minor(meta.rdev),
        };
        Ok(Wanted::Node(match meta.kind {
            Kind::Symlink => return self.link_text(item).map(Wanted::Link),
            Kind::Fifo => MknodWhat::Fifo(attributes),
            Kind::Socket => MknodWhat::Socket(attributes),
            Kind::CharacterDevice => MknodWhat::Character(attributes, device),
            _ => MknodWhat::Block(attributes, device),
        }))
    }

    fn link_text(&self, item: &Item) -> Result<LinkText, CopyError> {
        let local = &item.dir.info.local;
        let failed = |error| local.error("reading link", &item.local, error);
        let text = local.read_link(&item.local).map_err(failed)?;
        if text.len() > MAX_PATH as usize {
            return Err(failed(rustix::io::Errno::NAMETOOLONG));
        }
        Ok(LinkText(text.into()))
    }

    async fn is_wanted(
        &self,
        there: &Object,
        wanted: &Wanted,
        at: &(impl Place + ?Sized),
    ) -> Result<bool, CopyError> {
        let rdev = there.attributes.rdev;
        Ok(match (there.attributes.file_type, wanted) {
            (FileType::Symlink, Wanted::Link(text)) => {
                self.mount.readlink(there.handle, at).await? == text.0
            }
            (FileType::Fifo, Wanted::Node(MknodWhat::Fifo(_)))
            | (FileType::Socket, Wanted::Node(MknodWhat::Socket(_))) => true,
            (FileType::Character, Wanted::Node(MknodWhat::Character(_, device)))
            | (FileType::Block, Wanted::Node(MknodWhat::Block(_, device))) => rdev == *device,
            _ => false,
        })
    }

    /// Creates a hard link to an object that was already copied.
    pub(super) async fn link(
        &self,
        item: &Item,
        object: FileHandle,
        meta: &Meta,
    ) -> Result<(), CopyError> {
        let (dir, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        match self.mount.link(object, dir, name, &at).await {
            Err(error) if error.status() == Some(Status::EXIST) => {
                let there = self.mount.lookup(dir, name, &at).await?;
                let wanted = self.mount.getattr(object, &at).await?;
                let found = (there.attributes.fsid, there.attributes.fileid);
                if found != (wanted.fsid, wanted.fileid) {
                    self.make_way(&there, item).await?;
                    self.mount.link(object, dir, name, &at).await?;
                }
            }
            outcome => outcome?,
        }
        self.ledger.entry(meta.kind == Kind::RegularFile);
        Ok(())
    }

    /// Removes an existing object to make way for a new one, unless it is a directory.
    pub(super) async fn make_way(&self, there: &Object, item: &Item) -> Result<(), CopyError> {
        let at = item.dir.at(item.name());
        if there.attributes.file_type == FileType::Directory {
            return Err(CopyError::InTheWay {
                path: at.display(),
                is_directory: true,
            });
        }
        match self
            .mount
            .remove(item.dir.info.remote, item.name(), &at)
            .await
        {
            Err(error) if error.status() == Some(Status::NOENT) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}
