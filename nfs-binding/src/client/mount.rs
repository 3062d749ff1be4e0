//! Procedures on objects of a mounted export.

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

/// The pause before a call is repeated that the server answered with NFS3ERR_JUKEBOX. Each further
/// pause is twice as long.
const JUKEBOX_FIRST: Duration = Duration::from_millis(50);
/// The maximum number of repetitions: after 25 seconds in total, the call fails.
const JUKEBOX_TRIES: u32 = 9;

/// An object on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The file handle.
    pub handle: FileHandle,
    /// The attributes at the time of the last lookup.
    pub attributes: Attributes,
}

/// The sizes that client and server agree on, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum READ.
    pub rsize: u32,
    /// The maximum WRITE.
    pub wsize: u32,
    /// The number of bytes of which the server wants WRITEs to be a multiple (`wtmult`).
    pub write_multiple: u32,
    /// The maximum READDIR or READDIRPLUS reply.
    pub list: u32,
    /// The maximum file size.
    pub max_file_size: u64,
}

/// A mounted export; see [`Mount::attach`].
#[derive(Debug)]
pub struct Mount<C> {
    pub(super) nfs: Nfs3<C>,
    pub(super) root: FileHandle,
    pub(super) export: Vec<u8>,
    pub(super) limits: Limits,
    /// Whether READDIRPLUS is used: the options allow it, and the server has not rejected it.
    pub(super) readdirplus: Cell<bool>,
    pub(super) read_only: bool,
}

impl<C: RpcClient> Mount<C> {
    /// Returns the client for raw procedures.
    pub fn nfs(&self) -> &Nfs3<C> {
        &self.nfs
    }

    /// Returns the handle of the export's root.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        self.root
    }

    /// Returns the export's path on the server.
    #[must_use]
    pub fn export(&self) -> &[u8] {
        &self.export
    }

    /// Returns the sizes in use.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Repeats a call while the server answers with NFS3ERR_JUKEBOX, "try again later" (RFC 1813,
    /// section 2.6).
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

    /// Fails if the mount is read-only.
    pub(super) fn writable(&self, op: Op, at: &(impl Place + ?Sized)) -> Result<(), NfsError> {
        if self.read_only {
            let path = at.display();
            return Err(NfsError::ReadOnly { op, path });
        }
        Ok(())
    }

    /// Returns the attributes of an object (GETATTR).
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn getattr(
        &self,
        object: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<Attributes, NfsError> {
        let args = HandleArgs { object };
        self.patiently(Op::Find, at, || self.nfs.getattr(&args))
            .await
    }

    /// Sets attributes of an object (SETATTR).
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

    /// Returns which of the permissions the caller has (ACCESS).
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

    /// Returns the target of a symbolic link (READLINK).
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

    /// Sends one READ of at most `count` bytes. The server may return fewer, but returns at least
    /// one byte before the end of the file.
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
        // Data that was placed in a write chunk is as long as the chunk; `count` must agree with
        // it.
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

    /// Sends one WRITE. The server may write fewer bytes than it was given, but at least one.
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

    /// Commits written data to stable storage (COMMIT). If the returned verifier differs from that
    /// of a WRITE, the data of the WRITE may be lost and has to be written again (RFC 1813, section
    /// 3.3.7).
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

    /// Returns the space and file counts of the file system that contains `object` (FSSTAT).
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

    /// Returns the capabilities of the file system that contains `object` (FSINFO).
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

    /// Returns the POSIX limits of `object` (PATHCONF).
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
