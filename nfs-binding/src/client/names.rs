//! An export in use: procedures on names in directories.

use rpc_transport::CallError;

use super::error::{NfsError, Op, Place};
use super::mount::{Mount, Object};
use super::rpc::RpcClient;
use crate::proto::{
    Attributes, CreateArgs, CreateHow, CreateOk, DirOp, DirOpArgs, FileHandle, LinkArgs, LinkText,
    MkdirArgs, MknodArgs, MknodWhat, Name, NfsResult, RenameArgs, SetAttributes, SymlinkArgs,
};

fn dir_op(dir: FileHandle, name: &[u8]) -> DirOp {
    DirOp {
        dir,
        name: Name::from(name),
    }
}

/// Every method takes the directory's handle and a name in it; `at` is the path of the two, for
/// errors.
impl<C: RpcClient> Mount<C> {
    /// What a name names.
    ///
    /// # Errors
    /// See [`NfsError`]; so for every method here.
    pub async fn lookup(
        &self,
        dir: FileHandle,
        name: &[u8],
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let args = DirOpArgs {
            what: dir_op(dir, name),
        };
        let ok = self
            .patiently(Op::Find, at, || self.nfs.lookup(&args))
            .await?;
        self.object(ok.object, ok.attributes, at).await
    }

    /// Makes a file, or takes the one that is there, with `attributes` as far as the server sets
    /// them. Can be sent twice without harm.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn create(
        &self,
        dir: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let args = CreateArgs {
            place: dir_op(dir, name),
            how: CreateHow::Unchecked(attributes),
        };
        let call = || self.nfs.create(&args);
        self.make(Op::Create, (dir, name), at, call).await
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn mkdir(
        &self,
        dir: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let args = MkdirArgs {
            place: dir_op(dir, name),
            attributes,
        };
        let call = || self.nfs.mkdir(&args);
        self.make(Op::MakeDirectory, (dir, name), at, call).await
    }

    /// Makes a symbolic link that says `text`.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn symlink(
        &self,
        dir: FileHandle,
        name: &[u8],
        text: LinkText,
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let args = SymlinkArgs {
            place: dir_op(dir, name),
            attributes: SetAttributes::default(),
            text,
        };
        let call = || self.nfs.symlink(&args);
        self.make(Op::MakeLink, (dir, name), at, call).await
    }

    /// Makes a named pipe, a socket or a device.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn mknod(
        &self,
        dir: FileHandle,
        name: &[u8],
        what: MknodWhat,
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let args = MknodArgs {
            place: dir_op(dir, name),
            what,
        };
        let call = || self.nfs.mknod(&args);
        self.make(Op::Create, (dir, name), at, call).await
    }

    /// Gives an object a further name.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn link(
        &self,
        object: FileHandle,
        dir: FileHandle,
        name: &[u8],
        at: &(impl Place + ?Sized),
    ) -> Result<(), NfsError> {
        let args = LinkArgs {
            object,
            link: dir_op(dir, name),
        };
        self.change(Op::Create, at, || self.nfs.link(&args)).await
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn remove(
        &self,
        dir: FileHandle,
        name: &[u8],
        at: &(impl Place + ?Sized),
    ) -> Result<(), NfsError> {
        let args = DirOpArgs {
            what: dir_op(dir, name),
        };
        self.change(Op::Remove, at, || self.nfs.remove(&args)).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn rmdir(
        &self,
        dir: FileHandle,
        name: &[u8],
        at: &(impl Place + ?Sized),
    ) -> Result<(), NfsError> {
        let args = DirOpArgs {
            what: dir_op(dir, name),
        };
        self.change(Op::Remove, at, || self.nfs.rmdir(&args)).await
    }

    /// Gives an object another name, in place of what had that name.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn rename(
        &self,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        at: &(impl Place + ?Sized),
    ) -> Result<(), NfsError> {
        let args = RenameArgs {
            from: dir_op(from.0, from.1),
            to: dir_op(to.0, to.1),
        };
        self.change(Op::Rename, at, || self.nfs.rename(&args)).await
    }

    /// Makes an entry with `call`. RFC 1813 lets a server leave out the new object's handle and
    /// attributes.
    async fn make<E, F>(
        &self,
        op: Op,
        (dir, name): (FileHandle, &[u8]),
        at: &(impl Place + ?Sized),
        call: impl Fn() -> F,
    ) -> Result<Object, NfsError>
    where
        F: Future<Output = Result<NfsResult<CreateOk, E>, CallError>>,
    {
        self.writable(op, at)?;
        let ok = self.patiently(op, at, call).await?;
        match ok.object {
            Some(handle) => self.object(handle, ok.attributes, at).await,
            None => self.lookup(dir, name, at).await,
        }
    }

    /// Changes directories with `call`, whose result says nothing more.
    async fn change<T, E, F>(
        &self,
        op: Op,
        at: &(impl Place + ?Sized),
        call: impl Fn() -> F,
    ) -> Result<(), NfsError>
    where
        F: Future<Output = Result<NfsResult<T, E>, CallError>>,
    {
        self.writable(op, at)?;
        self.patiently(op, at, call).await.map(drop)
    }

    pub(crate) async fn object(
        &self,
        handle: FileHandle,
        attributes: Option<Attributes>,
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => self.getattr(handle, at).await?,
        };
        Ok(Object { handle, attributes })
    }
}
