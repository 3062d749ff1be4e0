//! Calls of NFS version 3, and the files that they need.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use nfs_binding::client::{Nfs3, encoded, results};
use nfs_binding::proto::{
    CreateArgs, CreateHow, DirOp, FileHandle, HandleArgs, MkdirArgs, Name, NfsResult, Procedure,
    ReadArgs, ReaddirplusArgs, SetAttributes, Stable, Verifier, WriteArgs, nfs,
};
use nfs_binding::server::MAX_TRANSFER;
use rpc_transport::{Call, Reply};

use super::{Calls, Failed, Server, Workload};

/// A lower bound of the length in bytes of a directory entry in READDIRPLUS results. An entry with
/// its attributes and handle is longer.
const ENTRY: u32 = 128;
/// The length in bytes of what is read to check a file: its reply fits the shortest receives.
const SAMPLE: u32 = 512;
/// The number of files that are created at the same time.
const MAKING: usize = 32;

/// Calls of one procedure on one object.
pub(super) enum Made {
    Null,
    Getattr(FileHandle),
    /// Reads of this many bytes from the start, by calls of at most [`MAX_TRANSFER`].
    Read(FileHandle, u32),
    /// Writes of these bytes to the start, by calls of at most [`MAX_TRANSFER`].
    Write(FileHandle, Bytes),
    /// Listings of this many bytes.
    Readdirplus(FileHandle, u32),
}

impl Calls for Made {
    fn name(&self) -> &'static str {
        match self {
            Self::Null => nfs::Null::NAME,
            Self::Getattr(_) => nfs::Getattr::NAME,
            Self::Read(..) => nfs::Read::NAME,
            Self::Write(..) => nfs::Write::NAME,
            Self::Readdirplus(..) => nfs::Readdirplus::NAME,
        }
    }

    fn call(&self, number: u64) -> Call {
        match self {
            Self::Null => encoded::<nfs::Null>(&()),
            &Self::Getattr(object) => encoded::<nfs::Getattr>(&HandleArgs { object }),
            &Self::Read(file, size) => {
                let (offset, count) = piece(size, number);
                let offset = u64::from(offset);
                encoded::<nfs::Read>(&ReadArgs {
                    file,
                    offset,
                    count,
                })
            }
            Self::Write(file, data) => {
                let (offset, count) = piece(data.len() as u32, number);
                let at = offset as usize;
                encoded::<nfs::Write>(&WriteArgs {
                    file: *file,
                    offset: u64::from(offset),
                    count,
                    stable: Stable::Unstable,
                    data: data.slice(at..at + count as usize).into(),
                })
            }
            &Self::Readdirplus(dir, size) => encoded::<nfs::Readdirplus>(&ReaddirplusArgs {
                dir,
                cookie: 0,
                verifier: Verifier::default(),
                dir_count: size,
                max_count: size,
            }),
        }
    }

    fn check(&self, number: u64, reply: &Reply) -> Result<(), Failed> {
        let name = self.name();
        let unreadable = |error| Failed::new(name, error);
        match self {
            Self::Null => results::<nfs::Null>(reply).map_err(unreadable),
            Self::Getattr(_) => {
                let result = results::<nfs::Getattr>(reply).map_err(unreadable)?;
                done(name, result).map(drop)
            }
            &Self::Read(_, size) => {
                let result = results::<nfs::Read>(reply).map_err(unreadable)?;
                let moved = done(name, result)?.data.0.len() as u64;
                whole(name, moved, piece(size, number).1)
            }
            Self::Write(_, data) => {
                let result = results::<nfs::Write>(reply).map_err(unreadable)?;
                let moved = done(name, result)?.count;
                whole(name, moved.into(), piece(data.len() as u32, number).1)
            }
            Self::Readdirplus(..) => {
                let result = results::<nfs::Readdirplus>(reply).map_err(unreadable)?;
                match done(name, result)?.eof {
                    false => Ok(()),
                    true => Err(Failed::new(name, "the directory is too small")),
                }
            }
        }
    }
}

/// Returns the offset and the length of a call of a record of `size` bytes, in which calls are at
/// most [`MAX_TRANSFER`] long.
fn piece(size: u32, number: u64) -> (u32, u32) {
    let pieces = u64::from(size.div_ceil(MAX_TRANSFER).max(1));
    let offset = (number % pieces) as u32 * MAX_TRANSFER;
    (offset, MAX_TRANSFER.min(size - offset))
}

/// Creates a file with this content in the server's directory, and checks that the beginning and the
/// end of what each call has written are read as they were. Returns the file's handle.
pub(super) async fn written(
    workload: &dyn Workload,
    server: Server<'_>,
    data: Bytes,
) -> Result<FileHandle, Failed> {
    let file = create(server, server.directory()?, name(workload, server)).await?;
    let (size, client) = (data.len() as u32, Nfs3::new(server));
    let write = Made::Write(file, data.clone());
    let pieces = u64::from(size.div_ceil(MAX_TRANSFER).max(1));
    for number in 0..pieces {
        let reply = nfs_binding::client::RpcClient::call(client.rpc(), write.call(number)).await;
        let reply = reply.map_err(|error| Failed::new(write.name(), error))?;
        write.check(number, &reply)?;
    }
    // Reading as much as was written would change what a WRITE is measured with: replies in several
    // messages have more receives posted.
    for number in 0..pieces {
        let (offset, len) = piece(size, number);
        let count = len.min(SAMPLE);
        for offset in [offset, offset + len - count] {
            let args = ReadArgs {
                file,
                offset: offset.into(),
                count,
            };
            let result = client.read(&args).await;
            let result = result.map_err(|error| Failed::new(nfs::Read::NAME, error))?;
            let read = done(nfs::Read::NAME, result)?;
            let at = offset as usize;
            if read.data.0 != data[at..at + count as usize] {
                let why = "not the bytes that were written";
                return Err(Failed::new(nfs::Read::NAME, why));
            }
        }
    }
    Ok(file)
}

/// Creates a directory whose listing exceeds `size` bytes. Returns its handle.
pub(super) async fn folder(
    workload: &dyn Workload,
    server: Server<'_>,
    size: u32,
) -> Result<FileHandle, Failed> {
    let args = MkdirArgs {
        place: DirOp {
            dir: server.directory()?,
            name: Name::from(name(workload, server).as_bytes()),
        },
        attributes: SetAttributes::default(),
    };
    let what = nfs::Mkdir::NAME;
    let made = Nfs3::new(server).mkdir(&args).await;
    let made = done(what, made.map_err(|error| Failed::new(what, error))?)?;
    let folder = made.object.ok_or_else(|| Failed::new(what, "no handle"))?;
    let files = stream::iter(0..size / ENTRY + 1)
        .map(|number| create(server, folder, format!("entry-{number:06}")));
    let mut made = files.buffer_unordered(MAKING);
    while let Some(result) = made.next().await {
        result?;
    }
    Ok(folder)
}

/// Returns the name of the object of a workload.
fn name(workload: &dyn Workload, server: Server<'_>) -> String {
    let size = workload.size().unwrap_or_default();
    format!("{}-{size}-{}", workload.name(), server.client())
}

/// Creates a file, or finds it. Returns its handle.
async fn create(server: Server<'_>, dir: FileHandle, name: String) -> Result<FileHandle, Failed> {
    let args = CreateArgs {
        place: DirOp {
            dir,
            name: Name::from(name.as_bytes()),
        },
        how: CreateHow::Unchecked(SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        }),
    };
    let what = nfs::Create::NAME;
    let made = Nfs3::new(server).create(&args).await;
    let made = done(what, made.map_err(|error| Failed::new(what, error))?)?;
    made.object.ok_or_else(|| Failed::new(what, "no handle"))
}

/// Returns the results of a call that the server has not refused.
fn done<T, F>(what: &'static str, result: NfsResult<T, F>) -> Result<T, Failed> {
    result.map_err(|failed| Failed::new(what, failed.status))
}

/// Checks that a call moved all bytes.
fn whole(what: &'static str, moved: u64, wanted: u32) -> Result<(), Failed> {
    if moved == u64::from(wanted) {
        return Ok(());
    }
    let why = format!("{moved} bytes moved of {wanted}: is the file shorter?");
    Err(Failed::new(what, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Op;

    #[test]
    fn a_record_is_divided_into_calls_of_the_longest_transfer() {
        let pieces = |op: Op| -> Vec<(u32, u32)> {
            let size = op.size().unwrap_or_default();
            (0..u64::from(op.calls()))
                .map(|number| piece(size, number))
                .collect()
        };
        assert_eq!(pieces(Op::Read(1)), [(0, 1)]);
        assert_eq!(pieces(Op::Write(MAX_TRANSFER)), [(0, MAX_TRANSFER)]);
        assert_eq!(
            pieces(Op::Read(2 * MAX_TRANSFER + 5)),
            [
                (0, MAX_TRANSFER),
                (MAX_TRANSFER, MAX_TRANSFER),
                (2 * MAX_TRANSFER, 5)
            ]
        );
        // The next operation begins anew.
        assert_eq!(piece(2 * MAX_TRANSFER + 5, 3), (0, MAX_TRANSFER));
        for op in [Op::Null, Op::Read(0), Op::Write(0)] {
            assert_eq!(op.calls(), 1, "{op}");
        }
        assert_eq!(piece(0, 9), (0, 0));
    }
}
