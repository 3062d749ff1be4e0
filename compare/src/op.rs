//! The measured operations, performed with the raw client.

use std::fmt;

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt};
use nfs_binding::client::Nfs3;
use nfs_binding::proto::{
    Data, FileHandle, HandleArgs, ReadArgs, ReaddirplusArgs, SetAttributes, Stable, Verifier,
    WriteArgs,
};
use nfs_binding::server::MAX_TRANSFER;
use rpc_transport::Client;
use rpcrdma_programs::Long;
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::units::show_size;
use rpcrdma_setup::{Context, Failure};

/// The name of the file that is read and written.
const NAME: &[u8] = b"measured";
/// The name of the directory that the listing operation creates and lists.
const FOLDER: &[u8] = b"listed";
/// The length of long calls and replies, in bytes.
pub const LONG: u32 = 64 << 10;
/// A lower bound of the length in bytes of a directory entry in READDIRPLUS results. An entry with
/// its attributes and handle is longer.
const ENTRY: u32 = 128;
/// The number of files that are created at the same time.
const MAKING: usize = 32;
/// The longest record that is read or written as one operation, bytes: by several calls in flight.
pub const MAX_RECORD: u32 = 16 << 20;
/// One XDR word: the shortest reply with content.
const SHORT: u32 = 4;

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// NULL.
    Null,
    /// GETATTR of a file.
    Getattr,
    /// A read of this many bytes from the start of a file: one READ, or several in flight for more
    /// than [`MAX_TRANSFER`] bytes.
    Read(u32),
    /// An unstable write of this many bytes to the start of a file: one WRITE, or several in flight
    /// for more than [`MAX_TRANSFER`] bytes.
    Write(u32),
    /// A READDIRPLUS of this many bytes, of a larger directory.
    Readdirplus(u32),
    /// A call with this many bytes that are not DDP-eligible.
    LongCall(u32),
    /// A call with this many bytes that are not DDP-eligible, and a reply of the same length.
    LongBoth(u32),
}

impl Op {
    /// Returns the name in tables and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Getattr => "getattr",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Readdirplus(_) => "readdirplus",
            Self::LongCall(_) => "long-call",
            Self::LongBoth(_) => "long-both",
        }
    }

    /// Returns the bytes that the operation moves: of file data, of a listing, or of a long call or
    /// reply.
    pub fn size(self) -> Option<u32> {
        match self {
            Self::Null | Self::Getattr => None,
            Self::Read(size)
            | Self::Write(size)
            | Self::Readdirplus(size)
            | Self::LongCall(size)
            | Self::LongBoth(size) => Some(size),
        }
    }

    /// Returns the number of calls in flight that perform the operation.
    pub fn calls(self) -> u32 {
        match self {
            // A transfer of no bytes is a call, too.
            Self::Read(size) | Self::Write(size) => size.div_ceil(MAX_TRANSFER).max(1),
            _ => 1,
        }
    }

    /// Returns the first call that a client makes for this operation if it reads at most `rsize`
    /// and writes at most `wsize` bytes at a time.
    pub fn limited(self, rsize: Option<u32>, wsize: Option<u32>) -> Self {
        let least = |size: u32, limit: Option<u32>| limit.map_or(size, |limit| size.min(limit));
        match self {
            Self::Read(size) => Self::Read(least(size, rsize)),
            Self::Write(size) => Self::Write(least(size, wsize)),
            other => other,
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

/// The objects on a server that operations are performed on.
pub struct Target {
    nfs: Nfs3<Client>,
    /// `None` if only NULL is measured.
    file: Option<FileHandle>,
    data: Bytes,
    /// The directory for READDIRPLUS.
    folder: Option<FileHandle>,
    /// Encoded long calls. They are encoded once, because encoding is not part of the transfer.
    long: Vec<(Op, Long)>,
}

impl Target {
    /// Returns a target with an existing file and the data that WRITE writes to it. NULL needs
    /// neither.
    pub fn new(client: Client, file: Option<FileHandle>, data: Bytes) -> Self {
        Self {
            nfs: Nfs3::new(client),
            file,
            data,
            folder: None,
            long: Vec::new(),
        }
    }

    /// Creates the objects that `ops` need in the root of an export.
    ///
    /// # Errors
    /// The server refuses a call, or a READ does not return what was written.
    pub async fn create(mounted: &Mounted, ops: &[Op]) -> Result<Self, Failure> {
        let moved = ops.iter().filter_map(|op| match op {
            Op::Read(size) | Op::Write(size) => Some(*size),
            _ => None,
        });
        let size = moved.max().unwrap_or(1);
        let attributes = SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        };
        let mount = &mounted.mount;
        let creating = mount.create(mount.root(), NAME, attributes, NAME);
        let file = creating.await.map_err(Failure::work)?.handle;
        // The data is not all zeroes, so that no layer can treat it specially.
        let data: Vec<u8> = (0..size).map(|n| (n ^ n >> 8) as u8).collect();
        let mut target = Self::new(mounted.reached.client.clone(), Some(file), data.into());
        target.perform(Op::Write(size)).await?;
        target.check().await?;
        for &op in ops {
            match op {
                Op::Readdirplus(size) => target.folder = Some(folder(mounted, size).await?),
                Op::LongCall(len) => target.long.push((op, Long::new(len, SHORT))),
                Op::LongBoth(len) => target.long.push((op, Long::new(len, len))),
                Op::Null | Op::Getattr | Op::Read(_) | Op::Write(_) => {}
            }
        }
        Ok(target)
    }

    /// Checks that READs return the written data.
    async fn check(&self) -> Result<(), Failure> {
        for (offset, count) in pieces(self.data.len() as u32) {
            let read = self.read(offset, count).await?;
            let offset = offset as usize;
            if read.0 != self.data[offset..offset + count as usize] {
                return Err(Failure::work("READ: not the bytes that were written"));
            }
        }
        Ok(())
    }

    /// Reads `count` bytes with one call.
    async fn read(&self, offset: u32, count: u32) -> Result<Data, Failure> {
        let args = ReadArgs {
            file: self.file()?,
            offset: u64::from(offset),
            count,
        };
        let result = self.nfs.read(&args).await.context("READ")?;
        let read = result.map_err(|failed| refused("READ", failed.status))?;
        whole("READ", read.data.0.len() as u64, count)?;
        Ok(read.data)
    }

    /// Writes `count` bytes of the data with one call.
    async fn write(&self, offset: u32, count: u32) -> Result<(), Failure> {
        let len = self.data.len();
        let end = len.min((offset as usize).saturating_add(count as usize));
        let data = self.data.slice(len.min(offset as usize)..end);
        let args = WriteArgs {
            file: self.file()?,
            offset: u64::from(offset),
            count: data.len() as u32,
            stable: Stable::Unstable,
            data: data.into(),
        };
        let result = self.nfs.write(&args).await.context("WRITE")?;
        let written = result.map_err(|failed| refused("WRITE", failed.status))?;
        whole("WRITE", u64::from(written.count), count)
    }

    fn file(&self) -> Result<FileHandle, Failure> {
        self.file.ok_or_else(|| Failure::work("no file to work on"))
    }

    /// Performs one operation and checks its result.
    ///
    /// # Errors
    /// The call failed, or the server refused it or moved fewer bytes.
    pub async fn perform(&self, op: Op) -> Result<(), Failure> {
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
            Op::Read(count) if op.calls() == 1 => self.read(0, count).await.map(drop),
            Op::Write(count) if op.calls() == 1 => self.write(0, count).await,
            Op::Read(count) => {
                let calls = pieces(count).map(|(offset, count)| self.read(offset, count));
                try_join_all(calls).await.map(drop)
            }
            Op::Write(count) => {
                let calls = pieces(count).map(|(offset, count)| self.write(offset, count));
                try_join_all(calls).await.map(drop)
            }
            Op::Readdirplus(size) => {
                let dir = self.folder;
                let args = ReaddirplusArgs {
                    dir: dir.ok_or_else(|| Failure::work("no directory to list"))?,
                    cookie: 0,
                    verifier: Verifier::default(),
                    dir_count: size,
                    max_count: size,
                };
                let result = self.nfs.readdirplus(&args).await.context("READDIRPLUS")?;
                let listed = result.map_err(|failed| refused("READDIRPLUS", failed.status))?;
                match listed.eof {
                    false => Ok(()),
                    true => Err(Failure::work("READDIRPLUS: the directory is too small")),
                }
            }
            Op::LongCall(_) | Op::LongBoth(_) => {
                let long = self.long.iter().find(|(made, _)| *made == op);
                let (_, long) = long.ok_or_else(|| Failure::work("no long call was made"))?;
                let reply = self.nfs.rpc().call(long.call()).await.context(op.name())?;
                match long.is_answered(&reply) {
                    true => Ok(()),
                    false => Err(Failure::Work(format!("{}: a wrong answer", op.name()))),
                }
            }
        }
    }
}

/// Divides a record of `size` bytes into calls: the offset and the length of each.
fn pieces(size: u32) -> impl Iterator<Item = (u32, u32)> {
    let offsets = (0..size).step_by(MAX_TRANSFER as usize);
    offsets.map(move |offset| (offset, MAX_TRANSFER.min(size - offset)))
}

/// Creates a directory whose listing exceeds `size` bytes.
async fn folder(mounted: &Mounted, size: u32) -> Result<FileHandle, Failure> {
    let mount = &mounted.mount;
    let attributes = SetAttributes::default();
    let making = mount.mkdir(mount.root(), FOLDER, attributes, FOLDER);
    let folder = making.await.map_err(Failure::work)?.handle;
    let files = stream::iter(0..size / ENTRY + 1).map(|number| async move {
        let name = format!("entry-{number:06}").into_bytes();
        let made = mount.create(folder, &name, SetAttributes::default(), &name[..]);
        made.await.map(drop)
    });
    let mut made = files.buffer_unordered(MAKING);
    while let Some(result) = made.next().await {
        result.map_err(Failure::work)?;
    }
    Ok(folder)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_divided_into_calls_of_the_longest_transfer() {
        assert_eq!(pieces(1).collect::<Vec<_>>(), [(0, 1)]);
        assert_eq!(
            pieces(MAX_TRANSFER).collect::<Vec<_>>(),
            [(0, MAX_TRANSFER)]
        );
        let three: Vec<_> = pieces(2 * MAX_TRANSFER + 5).collect();
        assert_eq!(
            three,
            [
                (0, MAX_TRANSFER),
                (MAX_TRANSFER, MAX_TRANSFER),
                (2 * MAX_TRANSFER, 5)
            ]
        );
        for size in [1, MAX_TRANSFER, MAX_TRANSFER + 1, MAX_RECORD] {
            assert_eq!(Op::Read(size).calls() as usize, pieces(size).count());
        }
        for op in [Op::Null, Op::Read(0), Op::Write(0)] {
            assert_eq!(op.calls(), 1, "{op}");
        }
    }
}
