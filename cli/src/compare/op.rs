//! The operations that are measured, on the raw layer of the client.

use std::fmt;

use bytes::Bytes;
use nfs_binding::client::Nfs3;
use nfs_binding::proto::{FileHandle, HandleArgs, ReadArgs, SetAttributes, Stable, WriteArgs};
use rpc_transport::Client;

use crate::args::units::show_size;
use crate::failure::{Context, Failure};
use crate::transport::Mounted;

/// The file's name.
const NAME: &[u8] = b"measured";

/// One kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// NULL.
    Null,
    /// GETATTR of a file.
    Getattr,
    /// READ of so many bytes from the start of a file.
    Read(u32),
    /// WRITE, unstable, of so many bytes to the start of a file.
    Write(u32),
}

impl Op {
    /// Its name in tables and rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Getattr => "getattr",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
        }
    }

    /// Bytes of file data that it moves.
    pub(crate) fn size(self) -> Option<u32> {
        match self {
            Self::Null | Self::Getattr => None,
            Self::Read(size) | Self::Write(size) => Some(size),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size() {
            Some(size) => write!(f, "{} {}", self.name(), show_size(u64::from(size))),
            None => write!(f, "{}", self.name()),
        }
    }
}

/// A file on a server to perform operations on.
pub(crate) struct Target {
    nfs: Nfs3<Client>,
    /// None: only NULL can be performed.
    file: Option<FileHandle>,
    data: Bytes,
}

impl Target {
    /// An existing file, and what WRITE writes to it. NULL needs neither.
    pub(crate) fn new(client: Client, file: Option<FileHandle>, data: Bytes) -> Self {
        Self {
            nfs: Nfs3::new(client),
            file,
            data,
        }
    }

    /// Makes a file of `size` bytes in the root of an export.
    ///
    /// # Errors
    /// The server refuses, or does not keep what is written.
    pub(crate) async fn create(mounted: &Mounted, size: u32) -> Result<Self, Failure> {
        let attributes = SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        };
        let mount = &mounted.mount;
        let creating = mount.create(mount.root(), NAME, attributes, NAME);
        let file = creating.await.map_err(Failure::work)?.handle;
        // Not all zeroes, so that no layer can make less of it than of other data.
        let data: Vec<u8> = (0..size).map(|n| (n ^ n >> 8) as u8).collect();
        let target = Self::new(mounted.reached.client.clone(), Some(file), data.into());
        target.perform(Op::Write(size)).await?;
        target.check().await?;
        Ok(target)
    }

    /// That a READ gives what was written: speed without that would be worth nothing.
    async fn check(&self) -> Result<(), Failure> {
        let args = ReadArgs {
            file: self.file()?,
            offset: 0,
            count: self.data.len() as u32,
        };
        let result = self.nfs.read(&args).await.context("READ")?;
        let read = result.map_err(|failed| refused("READ", failed.status))?;
        if read.data.0 != self.data {
            return Err(Failure::work("READ: not the bytes that were written"));
        }
        Ok(())
    }

    fn file(&self) -> Result<FileHandle, Failure> {
        self.file.ok_or_else(|| Failure::work("no file to work on"))
    }

    /// Performs one operation and checks that it did all that was asked for.
    ///
    /// # Errors
    /// The call failed, the server refused, or moved fewer bytes.
    pub(crate) async fn perform(&self, op: Op) -> Result<(), Failure> {
        match op {
            Op::Null => self.nfs.null(&()).await.context("NULL"),
            Op::Getattr => {
                let result = self
                    .nfs
                    .getattr(&HandleArgs {
                        object: self.file()?,
                    })
                    .await;
                let result = result.context("GETATTR")?;
                result.map_err(|failed| refused("GETATTR", failed.status))?;
                Ok(())
            }
            Op::Read(count) => {
                let args = ReadArgs {
                    file: self.file()?,
                    offset: 0,
                    count,
                };
                let result = self.nfs.read(&args).await.context("READ")?;
                let read = result.map_err(|failed| refused("READ", failed.status))?;
                whole("READ", read.data.0.len() as u64, count)
            }
            Op::Write(count) => {
                let data = self.data.slice(..self.data.len().min(count as usize));
                let args = WriteArgs {
                    file: self.file()?,
                    offset: 0,
                    count: data.len() as u32,
                    stable: Stable::Unstable,
                    data: data.into(),
                };
                let result = self.nfs.write(&args).await.context("WRITE")?;
                let written = result.map_err(|failed| refused("WRITE", failed.status))?;
                whole("WRITE", u64::from(written.count), count)
            }
        }
    }
}

fn refused(what: &str, status: nfs_binding::proto::Status) -> Failure {
    Failure::Work(format!("{what}: {status}"))
}

fn whole(what: &str, moved: u64, wanted: u32) -> Result<(), Failure> {
    if moved == u64::from(wanted) {
        return Ok(());
    }
    let text = format!("{what}: {moved} bytes moved of {wanted}: is the file shorter?");
    Err(Failure::Work(text))
}
