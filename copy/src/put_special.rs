//! Copies links, pipes, sockets and devices from this machine to a server.
//!
//! SYMLINK, MKNOD and LINK return NFS3ERR_EXIST if another object has the name, but also if the
//! call was executed before and its reply was lost. So the client examines the existing object and
//! accepts it if it is the wanted one. Another object is replaced.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{join_all, select};
use nfs_binding::client::{NfsError, Object, Place, RpcClient};
use nfs_binding::proto::{
    DeviceNumber, FileHandle, FileType, LinkText, MAX_PATH, MknodWhat, SetAttributes, Status,
};
use rustix::fs::FileType as Kind;

use super::CopyError;
use super::ledger::{Ledger, Leftover};
use super::local::{Meta, SET_ID};
use super::put::{Item, Put};
use super::temporary::random_name;

/// The maximum time for removing temporary names after an interrupt. The user waits for the end of the
/// process, and a server that does not answer must not delay it.
const CLEANING: Duration = Duration::from_secs(2);

/// A temporary name on the server. If the copy is interrupted while this exists, the name is recorded
/// as left over.
struct Temporary<'i, 'l> {
    ledger: &'l Ledger<'l>,
    item: &'i Item,
    name: Vec<u8>,
    /// Whether the server has answered that the object has this name.
    made: bool,
    /// Whether the name is no longer in use.
    done: bool,
}

impl Drop for Temporary<'_, '_> {
    fn drop(&mut self) {
        if !self.done {
            self.ledger.leftover(Leftover {
                dir: self.item.dir.info.remote,
                path: self.item.dir.at(&self.name).display(),
                target: self.item.dir.at(self.item.name()).display(),
                name: std::mem::take(&mut self.name),
                made: self.made,
            });
        }
    }
}

/// Returns whether the object of a REMOVE is gone afterwards.
pub(super) fn is_gone(removed: &Result<(), NfsError>) -> bool {
    match removed {
        Ok(()) => true,
        Err(error) => error.status() == Some(Status::NOENT),
    }
}

/// The object to create.
enum Wanted {
    Link(LinkText),
    Node(MknodWhat),
    /// A further name of an object.
    Name(FileHandle),
}

/// The object that has the name of the wanted one, and the error that says so.
type Other = (NfsError, Object);

impl<C: RpcClient> Put<'_, C> {
    /// Creates a symbolic link, pipe, socket or device.
    pub(super) async fn special(&self, item: &Item, meta: &Meta) -> Result<FileHandle, CopyError> {
        let wanted = self.wanted(item, meta)?;
        self.make(item, &wanted).await
    }

    /// Creates a hard link to an object that was already copied.
    pub(super) async fn link(
        &self,
        item: &Item,
        object: FileHandle,
        meta: &Meta,
    ) -> Result<(), CopyError> {
        self.make(item, &Wanted::Name(object)).await?;
        self.ledger.entry(meta.kind == Kind::RegularFile);
        Ok(())
    }

    /// Creates an object under its own name. Another object with the name is replaced.
    async fn make(&self, item: &Item, wanted: &Wanted) -> Result<FileHandle, CopyError> {
        let other = match self.make_as(item, item.name(), wanted).await? {
            Ok(object) => return Ok(object),
            Err((_, other)) => other,
        };
        let make = async |name: &[u8]| {
            let made = self.make_as(item, name, wanted).await?;
            made.map_err(|(error, _)| error)
        };
        let may_be_same = matches!(wanted, Wanted::Name(_));
        self.replace(item, &other, may_be_same, make).await
    }

    /// Creates an object under a name, unless another object has it, which is returned.
    async fn make_as(
        &self,
        item: &Item,
        name: &[u8],
        wanted: &Wanted,
    ) -> Result<Result<FileHandle, Other>, NfsError> {
        let (mount, dir) = (self.mount, item.dir.info.remote);
        let at = item.dir.at(item.name());
        let made = match wanted {
            Wanted::Link(text) => mount.symlink(dir, name, text.clone(), &at).await,
            Wanted::Node(what) => mount.mknod(dir, name, what.clone(), &at).await,
            Wanted::Name(object) => match mount.link(*object, dir, name, &at).await {
                Ok(()) => return Ok(Ok(*object)),
                Err(error) => Err(error),
            },
        };
        match made {
            Err(error) if error.status() == Some(Status::EXIST) => {
                let there = mount.lookup(dir, name, &at).await?;
                Ok(match self.is_wanted(&there, wanted, &at).await? {
                    true => Ok(there.handle),
                    false => Err((error, there)),
                })
            }
            made => Ok(Ok(made?.handle)),
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
    ) -> Result<bool, NfsError> {
        let rdev = there.attributes.rdev;
        Ok(match (there.attributes.file_type, wanted) {
            (FileType::Symlink, Wanted::Link(text)) => {
                self.mount.readlink(there.handle, at).await? == text.0
            }
            (_, Wanted::Name(object)) => {
                let wanted = self.mount.getattr(*object, at).await?;
                let found = (there.attributes.fsid, there.attributes.fileid);
                found == (wanted.fsid, wanted.fileid)
            }
            (FileType::Fifo, Wanted::Node(MknodWhat::Fifo(_)))
            | (FileType::Socket, Wanted::Node(MknodWhat::Socket(_))) => true,
            (FileType::Character, Wanted::Node(MknodWhat::Character(_, device)))
            | (FileType::Block, Wanted::Node(MknodWhat::Block(_, device))) => rdev == *device,
            _ => false,
        })
    }

    /// Replaces an existing object, unless it is a directory. `make` creates the new object under a
    /// temporary name, which is then renamed: the existing object stays if that is refused. If the
    /// copy ends between the two, the temporary name is recorded as left over. `may_be_same`: `make` gives an
    /// object one more name, and the existing object can be that one.
    pub(super) async fn replace<T>(
        &self,
        item: &Item,
        there: &Object,
        may_be_same: bool,
        make: impl AsyncFnOnce(&[u8]) -> Result<T, NfsError>,
    ) -> Result<T, CopyError> {
        let (dir, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        if there.attributes.file_type == FileType::Directory {
            return Err(CopyError::InTheWay {
                path: at.display(),
                is_directory: true,
            });
        }
        let failed = |error| item.dir.info.local.error("copying", &item.local, error);
        let mut temporary = Temporary {
            ledger: self.ledger,
            item,
            name: random_name(name).map_err(failed)?,
            made: false,
            done: false,
        };
        let made = make(&temporary.name).await;
        temporary.made = made.is_ok();
        let renamed = match &made {
            Ok(_) => {
                let from = (dir, &*temporary.name);
                self.mount.rename(from, (dir, name), &at).await
            }
            Err(_) => Ok(()),
        };
        // The object may have been made though the reply says otherwise. RENAME may be refused, and does
        // nothing if both names are links to one object. Then the temporary name is still there.
        if may_be_same || made.is_err() || renamed.is_err() {
            let removed = self.mount.remove(dir, &temporary.name, &at).await;
            // If the server has refused to make it, there is nothing to remove.
            let refused = made.as_ref().is_err_and(|error| error.status().is_some());
            temporary.done = refused || is_gone(&removed);
        } else {
            temporary.done = true;
        }
        let made = made?;
        match renamed {
            // If the RENAME was executed before and its reply was lost, the name has another object by now.
            Err(error) if error.status() == Some(Status::NOENT) => {
                let now = self.mount.lookup(dir, name, &at).await?;
                match now.attributes.fileid == there.attributes.fileid {
                    true => Err(error.into()),
                    false => Ok(made),
                }
            }
            outcome => Ok(outcome.map(|()| made)?),
        }
    }

    /// Removes the temporary names that an interrupted copy has left on the server. Those that remain
    /// after [`CLEANING`], or that cannot be removed, stay recorded.
    pub(super) async fn remove_leftovers(&self) {
        let leftovers = self.ledger.take_leftovers();
        let gone: Vec<Cell<bool>> = leftovers.iter().map(|_| Cell::new(false)).collect();
        // Without an interrupt, `replace` has tried REMOVE already, and it failed.
        if self.ledger.interrupted() && !self.ledger.stopped() && !leftovers.is_empty() {
            let removing = leftovers.iter().zip(&gone).map(async |(left, gone)| {
                let at = left.name.as_slice();
                let removed = self.mount.remove(left.dir, &left.name, at).await;
                // It still had its temporary name, so no RENAME has put it in the target's place.
                if removed.is_ok() {
                    self.ledger.untouched(&left.target);
                }
                // NOENT proves that the name is gone only if the object had been made: the interrupted RENAME
                // has then moved it. Otherwise the server may still execute the creation.
                gone.set(removed.is_ok() || (left.made && is_gone(&removed)));
            });
            let limit = self.mount.nfs().rpc().sleep(CLEANING);
            select(pin!(join_all(removing)), pin!(limit)).await;
        }
        for (left, gone) in leftovers.into_iter().zip(gone) {
            if !gone.get() {
                self.ledger.leftover(left);
            }
        }
    }
}
