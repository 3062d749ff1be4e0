//! An export in use: procedures on one object.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use rpc_transport::CallError;

use super::error::{NfsError, Op, Place, checked};
use super::nfs3::Nfs3;
use super::rpc::RpcClient;
use crate::proto::{
    Access, AccessArgs, Attributes, CommitArgs, Failed, FileHandle, FsinfoOk, FsstatOk, HandleArgs,
    NfsResult, PathconfOk, ReadArgs, ReadOk, SetAttributes, SetattrArgs, Stable, Status, Verifier,
    WriteArgs, WriteOk,
};

/// Pause before a call is made again that the server answered with NFS3ERR_JUKEBOX. Each further
/// pause is twice as long.
const JUKEBOX_FIRST: Duration = Duration::from_millis(50);
/// How often it is made again: 25 seconds in all, after which the user is told.
const JUKEBOX_TRIES: u32 = 9;

/// An object on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its handle.
    pub handle: FileHandle,
    /// Its attributes when it was looked at.
    pub attributes: Attributes,
}

/// Lengths that client and server agree on, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest READ.
    pub rsize: u32,
    /// Longest WRITE.
    pub wsize: u32,
    /// Longest READDIR or READDIRPLUS.
    pub list: u32,
    /// Longest file.
    pub max_file_size: u64,
}

/// An export in use. See [`Mount::attach`].
#[derive(Debug)]
pub struct Mount<C> {
    pub(super) nfs: Nfs3<C>,
    pub(super) root: FileHandle,
    pub(super) export: Vec<u8>,
    pub(super) limits: Limits,
    /// Whether READDIRPLUS is used: the options said so, and the server has not refused it.
    pub(super) readdirplus: Cell<bool>,
    pub(super) read_only: bool,
}

impl<C: RpcClient> Mount<C> {
    /// The raw procedures.
    pub fn nfs(&self) -> &Nfs3<C> {
        &self.nfs
    }

    /// The export's root.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        self.root
    }

    /// The export's path, as the server knows it.
    #[must_use]
    pub fn export(&self) -> &[u8] {
        &self.export
    }

    /// The lengths in use.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Makes a call until the server no longer asks to try again later (RFC 1813, section 2.6,
    /// NFS3ERR_JUKEBOX).
    pub(super) async fn patiently<T, F, R>(
        &self,
        op: Op,
        at: &(impl Place + ?Sized),
        make: impl Fn() -> R,
    ) -> Result<T, NfsError>
    where
        R: Future<Output = Result<NfsResult<T, F>, CallError>>,
    {
        let mut pause = JUKEBOX_FIRST;
        for _ in 0..JUKEBOX_TRIES {
            match make().await {
                Ok(Err(Failed {
                    status: Status::JUKEBOX,
                    ..
                })) => self.nfs.rpc().sleep(pause).await,
                outcome => return checked(outcome, op, at),
            }
            pause *= 2;
        }
        checked(make().await, op, at)
    }

    /// Refuses a change that the options do not allow.
    pub(super) fn writable(&self, op: Op, at: &(impl Place + ?Sized)) -> Result<(), NfsError> {
        if self.read_only {
            let path = at.display();
            return Err(NfsError::ReadOnly { op, path });
        }
        Ok(())
    }

    /// Attributes of an object.
    ///
    /// # Errors
    /// See [`NfsError`]; so for every method here.
    pub async fn getattr(
        &self,
        object: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<Attributes, NfsError> {
        let args = HandleArgs { object };
        self.patiently(Op::Find, at, || self.nfs.getattr(&args))
            .await
    }

    /// Sets attributes of an object.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn setattr(
        &self,
        object: FileHandle,
        attributes: SetAttributes,
        at: &(impl Place + ?Sized),
    ) -> Result<(), NfsError> {
        self.writable(Op::SetAttributes, at)?;
        let args = SetattrArgs {
            object,
            attributes,
            guard: None,
        };
        let call = || self.nfs.setattr(&args);
        self.patiently(Op::SetAttributes, at, call).await.map(drop)
    }

    /// Which of the permissions the caller has.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn access(
        &self,
        object: FileHandle,
        access: Access,
        at: &(impl Place + ?Sized),
    ) -> Result<Access, NfsError> {
        let args = AccessArgs { object, access };
        let ok = self
            .patiently(Op::Find, at, || self.nfs.access(&args))
            .await?;
        Ok(ok.access & access)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn readlink(
        &self,
        object: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<Bytes, NfsError> {
        let args = HandleArgs { object };
        let ok = self
            .patiently(Op::ReadLink, at, || self.nfs.readlink(&args))
            .await?;
        Ok(ok.text.0)
    }

    /// Reads once, at most `count` bytes. Fewer come back at the end of the file, and when the
    /// server likes; at least one comes back unless the file ends.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn read(
        &self,
        file: FileHandle,
        offset: u64,
        count: u32,
        at: &(impl Place + ?Sized),
    ) -> Result<ReadOk, NfsError> {
        let args = ReadArgs {
            file,
            offset,
            count,
        };
        let ok = self
            .patiently(Op::Read, at, || self.nfs.read(&args))
            .await?;
        // Data that was placed directly is as long as the chunk; `count` must agree with it.
        let problem = if ok.data.0.len() as u64 != u64::from(ok.count) {
            "as count and data differ in length"
        } else if ok.count > count {
            "as there is more data than was asked for"
        } else if ok.count == 0 && count > 0 && !ok.eof {
            "as there is neither data nor an end of file"
        } else {
            return Ok(ok);
        };
        Err(self.nonsense(Op::Read, at, problem))
    }

    /// Writes once. The server may take fewer bytes than it was given, but at least one.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn write(
        &self,
        file: FileHandle,
        offset: u64,
        data: Bytes,
        stable: Stable,
        at: &(impl Place + ?Sized),
    ) -> Result<WriteOk, NfsError> {
        self.writable(Op::Write, at)?;
        let len = data.len();
        let args = WriteArgs {
            file,
            offset,
            count: len as u32,
            stable,
            data: data.into(),
        };
        let ok = self
            .patiently(Op::Write, at, || self.nfs.write(&args))
            .await?;
        let problem = if u64::from(ok.count) > len as u64 {
            "as more was written than was sent"
        } else if ok.count == 0 && len > 0 {
            "as nothing was written and there is no error"
        } else if (ok.committed as u32) < stable as u32 {
            "as less is on stable storage than was asked for"
        } else {
            return Ok(ok);
        };
        Err(self.nonsense(Op::Write, at, problem))
    }

    /// Brings all that was written to a file to stable storage. Data that was written under
    /// another verifier than the one returned may be lost, and has to be written again (RFC 1813,
    /// section 3.3.7).
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn commit(
        &self,
        file: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<Verifier, NfsError> {
        self.writable(Op::Commit, at)?;
        let args = CommitArgs {
            file,
            offset: 0,
            count: 0,
        };
        let ok = self
            .patiently(Op::Commit, at, || self.nfs.commit(&args))
            .await?;
        Ok(ok.verifier)
    }

    /// Space and files of the file system that holds `object`.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn fsstat(
        &self,
        object: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<FsstatOk, NfsError> {
        let args = HandleArgs { object };
        self.patiently(Op::FsInfo, at, || self.nfs.fsstat(&args))
            .await
    }

    /// Abilities of the file system that holds `object`.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn fsinfo(
        &self,
        object: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<FsinfoOk, NfsError> {
        let args = HandleArgs { object };
        self.patiently(Op::FsInfo, at, || self.nfs.fsinfo(&args))
            .await
    }

    /// POSIX limits of `object`.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn pathconf(
        &self,
        object: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<PathconfOk, NfsError> {
        let args = HandleArgs { object };
        self.patiently(Op::FsInfo, at, || self.nfs.pathconf(&args))
            .await
    }

    pub(super) fn nonsense(
        &self,
        op: Op,
        at: &(impl Place + ?Sized),
        what: &'static str,
    ) -> NfsError {
        let path = at.display();
        NfsError::Nonsense { op, path, what }
    }
}
