//! The calls that can be measured, with the objects that they need.

use nfs_binding::client::{Mount3, Nfs3, RpcClient};
use nfs_binding::proto::{
    CreateArgs, CreateHow, DirOp, FileHandle, HandleArgs, MountArgs, MountPath, Name, ReadArgs,
    ReaddirplusArgs, SetAttributes, Stable, Verifier, WriteArgs,
};
use rpcrdma_programs::Long;

use crate::client::Counted;
use crate::exports::EXPORT;

/// The minimum size of a directory entry in READDIRPLUS results, bytes. An entry with attributes
/// and handle is longer.
const ENTRY: u32 = 128;

/// A call to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// NULL.
    Null,
    /// GETATTR.
    Getattr,
    /// A READ of this many bytes.
    Read(u32),
    /// A WRITE of this many bytes, FILE_SYNC.
    Write(u32),
    /// A READDIRPLUS with this count, in bytes, of a directory whose listing fills it.
    Readdirplus(u32),
    /// A call and its reply with data that is not DDP-eligible.
    Long {
        /// The bytes of the call.
        call: u32,
        /// The bytes of the reply.
        reply: u32,
    },
}

/// The error of a call that could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("cannot simulate {what}: {why}")]
pub struct CannotMeasure {
    pub(super) what: &'static str,
    pub(super) why: String,
}

pub(super) fn failed<E: ToString>(what: &'static str) -> impl Fn(E) -> CannotMeasure {
    move |error| CannotMeasure {
        what,
        why: error.to_string(),
    }
}

/// Creates the file to read from or write to.
pub(super) async fn prepare(
    rpc: &Counted,
    nfs: &Nfs3<Counted>,
    operation: Operation,
) -> Result<FileHandle, CannotMeasure> {
    let path = MountPath::from(EXPORT.as_bytes());
    let mounted = Mount3::new(rpc.clone()).mount(&MountArgs { path }).await;
    let mounted = mounted.map_err(failed("MNT"))?;
    let root = mounted.map_err(|no| failed("MNT")(no.status))?.handle;
    let create = CreateArgs {
        place: DirOp {
            dir: root,
            name: Name::from(&b"file"[..]),
        },
        how: CreateHow::Unchecked(SetAttributes::default()),
    };
    let made = nfs.create(&create).await.map_err(failed("CREATE"))?;
    let made = made.map_err(|no| failed("CREATE")(no.status))?.object;
    let file = made.ok_or_else(|| failed("CREATE")("no handle"))?;
    match operation {
        Operation::Read(len) => make(nfs, file, Operation::Write(len), None).await?,
        Operation::Readdirplus(len) => {
            for number in 0..len / ENTRY + 1 {
                let name = format!("entry-{number:06}");
                let create = CreateArgs {
                    place: DirOp {
                        dir: root,
                        name: Name::from(name.as_bytes()),
                    },
                    how: CreateHow::Unchecked(SetAttributes::default()),
                };
                let made = nfs.create(&create).await.map_err(failed("CREATE"))?;
                made.map_err(|no| failed("CREATE")(no.status))?;
            }
            return Ok(root);
        }
        _ => {}
    }
    Ok(file)
}

pub(super) async fn make(
    nfs: &Nfs3<Counted>,
    file: FileHandle,
    operation: Operation,
    long: Option<&Long>,
) -> Result<(), CannotMeasure> {
    let offset = 0;
    match operation {
        Operation::Null => nfs.null(&()).await.map_err(failed("NULL")),
        Operation::Getattr => {
            let got = nfs.getattr(&HandleArgs { object: file }).await;
            let got = got.map_err(failed("GETATTR"))?;
            got.map(drop).map_err(|no| failed("GETATTR")(no.status))
        }
        Operation::Read(count) => {
            let args = ReadArgs {
                file,
                offset,
                count,
            };
            let read = nfs.read(&args).await.map_err(failed("READ"))?;
            let read = read.map_err(|no| failed("READ")(no.status))?;
            match read.data.0.len() == count as usize {
                true => Ok(()),
                false => Err(failed("READ")("fewer bytes than were asked for")),
            }
        }
        Operation::Readdirplus(count) => {
            let args = ReaddirplusArgs {
                dir: file,
                cookie: 0,
                verifier: Verifier::default(),
                dir_count: count,
                max_count: count,
            };
            let listed = nfs
                .readdirplus(&args)
                .await
                .map_err(failed("READDIRPLUS"))?;
            let listed = listed.map_err(|no| failed("READDIRPLUS")(no.status))?;
            match listed.eof {
                false => Ok(()),
                true => Err(failed("READDIRPLUS")("the directory is too small")),
            }
        }
        Operation::Long { .. } => {
            let long = long.ok_or_else(|| failed("a long call")("it was not made"))?;
            let reply = nfs.rpc().call(long.call()).await;
            let reply = reply.map_err(failed("a long call"))?;
            match long.is_answered(&reply) {
                true => Ok(()),
                false => Err(failed("a long call")("a wrong answer")),
            }
        }
        Operation::Write(count) => {
            let args = WriteArgs {
                file,
                offset,
                count,
                stable: Stable::FileSync,
                data: vec![0x77; count as usize].into(),
            };
            let written = nfs.write(&args).await.map_err(failed("WRITE"))?;
            let written = written.map_err(|no| failed("WRITE")(no.status))?;
            match written.count == count {
                true => Ok(()),
                false => Err(failed("WRITE")("fewer bytes than were sent")),
            }
        }
    }
}
