//! Procedures on names in directories of a mounted export.

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

/// Every method takes the directory's handle and a name in it. `at` is the path of the entry, for
/// errors.
impl<C: RpcClient> Mount<C> {
    /// Looks up a name (LOOKUP).
    ///
    /// # Errors
    /// See [`NfsError`].
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

    /// Creates a file, or opens an existing one (CREATE UNCHECKED). `attributes` are set as far as
    /// the server sets them. A retransmission does no harm unless `attributes` has a size: then it may
    /// truncate again.
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
        let how = CreateHow::Unchecked(attributes);
        self.create_as(dir, name, how, at).await
    }

    /// Creates a file that must not exist (CREATE GUARDED). If the reply is lost and the server restarts,
    /// the retransmission finds the file that the call has made, and fails with NFS3ERR_EXIST.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn create_new(
        &self,
        dir: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let how = CreateHow::Guarded(attributes);
        self.create_as(dir, name, how, at).await
    }

    async fn create_as(
        &self,
        dir: FileHandle,
        name: &[u8],
        how: CreateHow,
        at: &(impl Place + ?Sized),
    ) -> Result<Object, NfsError> {
        let place = dir_op(dir, name);
        let args = CreateArgs { place, how };
        let call = || self.nfs.create(&args);
        self.make(Op::Create, (dir, name), at, call).await
    }

    /// Creates a directory (MKDIR).
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

    /// Creates a symbolic link with the target `text` (SYMLINK).
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

    /// Creates a named pipe, a socket or a device (MKNOD).
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

    /// Creates a hard link to an object (LINK).
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

    /// Removes a name that is not a directory (REMOVE).
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

    /// Removes an empty directory (RMDIR).
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

    /// Renames an object and replaces an existing target (RENAME).
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

    /// Creates an entry with `call`. If the reply lacks the new object's handle or attributes,
    /// which RFC 1813 allows, further calls fetch them.
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

    /// Modifies directories with `call`, whose result carries no further information.
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
