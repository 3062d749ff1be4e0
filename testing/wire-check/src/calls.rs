//! Makes the calls, and checks their results.

use bytes::Bytes;
use nfs_binding::client::{Mount3, Nfs3};
use nfs_binding::proto::{
    Access, AccessArgs, CommitArgs, CreateArgs, CreateHow, DirOp, DirOpArgs, FileHandle,
    HandleArgs, LinkArgs, LinkText, MkdirArgs, MknodArgs, MknodWhat, MountArgs, MountPath, Name,
    NfsResult, ReadArgs, ReaddirArgs, ReaddirplusArgs, RenameArgs, SetAttributes, SetattrArgs,
    Stable, Status, SymlinkArgs, WriteArgs,
};
use onc_rpc::{AcceptStatus, Message};
use rpc_transport::{Call, CallError, Client, ErrorReply, ReplyRoom};

use crate::error::Error;

/// A length in bytes that exceeds the default inline threshold, and takes several iWARP segments.
const LARGE: usize = 300 << 10;
/// A length in bytes that fits in a Send.
const SMALL: u32 = 64;
/// Lengths of READs and WRITEs in bytes: inline, with and without round-up, in one and in several
/// aligned receive segments, and too long for them.
const LENGTHS: [usize; 8] = [100, 3001, 5001, 8192, 40_002, 65_536, 100_003, 1 << 20];
/// A number of entries that exceeds an inline reply.
const FILES: usize = 64;
/// A program that does not exist here but that tshark knows: the lock manager.
const LOCK_MANAGER: (u32, u32) = (100_021, 4);

fn called<T>(what: &'static str, outcome: Result<T, CallError>) -> Result<T, Error> {
    outcome.map_err(Error::ours(what))
}

fn succeeded<T, F>(
    what: &'static str,
    outcome: Result<NfsResult<T, F>, CallError>,
) -> Result<T, Error> {
    called(what, outcome)?.map_err(|failed| Error::ours(what)(failed.status))
}

fn failed<T, F>(
    what: &'static str,
    status: Status,
    outcome: Result<NfsResult<T, F>, CallError>,
) -> Result<(), Error> {
    match called(what, outcome)? {
        Err(failed) if failed.status == status => Ok(()),
        Err(failed) => Err(Error::ours(what)(format!(
            "{} instead of {status}",
            failed.status
        ))),
        Ok(_) => Err(Error::ours(what)(format!("success instead of {status}"))),
    }
}

fn at(dir: FileHandle, name: &str) -> DirOp {
    let name = Name::from(name.as_bytes());
    DirOp { dir, name }
}

/// Returns a name that makes a call longer than the default inline threshold. Names are not
/// DDP-eligible, so the whole call is sent in a Position Zero Read chunk.
pub(crate) fn long_name() -> String {
    "n".repeat(4096)
}

/// Makes the calls. Returns the handle of a long file.
pub(crate) async fn make(client: &Client, export: &str) -> Result<FileHandle, Error> {
    let mountd = Mount3::new(client);
    let nfs = Nfs3::new(client);
    let path = MountPath::from(export.as_bytes());
    let mounted = called("MNT", mountd.mount(&MountArgs { path }).await)?;
    let root = mounted.map_err(|_| Error::ours("MNT")("refused"))?.handle;

    called("NULL", nfs.null(&()).await)?;
    succeeded("GETATTR", nfs.getattr(&HandleArgs { object: root }).await)?;
    let missing = DirOpArgs {
        what: at(root, "missing"),
    };
    failed("LOOKUP", Status::NOENT, nfs.lookup(&missing).await)?;

    let long = DirOpArgs {
        what: at(root, &long_name()),
    };
    failed("LOOKUP", Status::NAMETOOLONG, nfs.lookup(&long).await)?;

    let file = create(&nfs, root, "large").await?;
    let data: Vec<u8> = (0..LARGE).map(|n| (n / 7 % 251) as u8).collect();
    write_and_read(&nfs, file, Bytes::from(data)).await?;
    links(&nfs, root).await?;
    listings(&nfs, root).await?;

    let unknown = Call {
        prog: LOCK_MANAGER.0,
        vers: LOCK_MANAGER.1,
        proc: 0,
        args: Message::default(),
        reply: ReplyRoom::default(),
    };
    match client.call(unknown).await {
        Err(CallError::Refused(ErrorReply::Accepted(AcceptStatus::ProgUnavail))) => Ok(file),
        other => Err(Error::ours("a program that is not there")(format!(
            "{other:?}"
        ))),
    }
}

async fn create(nfs: &Nfs3<&Client>, dir: FileHandle, name: &str) -> Result<FileHandle, Error> {
    let args = CreateArgs {
        place: at(dir, name),
        how: CreateHow::Guarded(SetAttributes::default()),
    };
    let made = succeeded("CREATE", nfs.create(&args).await)?;
    made.object
        .ok_or_else(|| Error::ours("CREATE")("no handle"))
}

/// Makes a WRITE with a Read chunk, and READs with a Write chunk and inline.
async fn write_and_read(nfs: &Nfs3<&Client>, file: FileHandle, data: Bytes) -> Result<(), Error> {
    let write = WriteArgs {
        file,
        offset: 0,
        count: data.len() as u32,
        stable: Stable::Unstable,
        data: data.clone().into(),
    };
    succeeded("WRITE", nfs.write(&write).await)?;
    let (offset, count) = (0, 0);
    let commit = CommitArgs {
        file,
        offset,
        count,
    };
    succeeded("COMMIT", nfs.commit(&commit).await)?;
    for (offset, count) in [(0, data.len() as u32), (5, SMALL)] {
        let read = ReadArgs {
            file,
            offset,
            count,
        };
        let found = succeeded("READ", nfs.read(&read).await)?;
        let start = offset as usize;
        if found.data.0 != data[start..start + count as usize] {
            return Err(Error::ours("READ")("other data than was written"));
        }
    }
    Ok(())
}

/// Makes the other procedures with bulk data.
async fn links(nfs: &Nfs3<&Client>, dir: FileHandle) -> Result<(), Error> {
    let text = "long/".repeat(200);
    let args = SymlinkArgs {
        place: at(dir, "link"),
        attributes: SetAttributes::default(),
        text: LinkText::from(text.as_bytes()),
    };
    let made = succeeded("SYMLINK", nfs.symlink(&args).await)?;
    let object = made
        .object
        .ok_or_else(|| Error::ours("SYMLINK")("no handle"))?;
    let read = succeeded("READLINK", nfs.readlink(&HandleArgs { object }).await)?;
    if read.text.0 != text.as_bytes() {
        return Err(Error::ours("READLINK")("another text than was written"));
    }
    Ok(())
}

/// Makes a READDIRPLUS inline, and one with a Reply chunk.
async fn listings(nfs: &Nfs3<&Client>, root: FileHandle) -> Result<(), Error> {
    let args = MkdirArgs {
        place: at(root, "dir"),
        attributes: SetAttributes::default(),
    };
    let made = succeeded("MKDIR", nfs.mkdir(&args).await)?;
    let dir = made
        .object
        .ok_or_else(|| Error::ours("MKDIR")("no handle"))?;
    for n in 0..FILES {
        create(
            nfs,
            dir,
            &format!("a file with a name of its own, number {n}"),
        )
        .await?;
    }
    for (what, dir, max_count) in [("root", root, 2048), ("dir", dir, 32 << 10)] {
        let args = ReaddirplusArgs {
            dir,
            cookie: 0,
            verifier: [0; 8],
            dir_count: max_count,
            max_count,
        };
        let listing = succeeded("READDIRPLUS", nfs.readdirplus(&args).await)?;
        if !listing.eof {
            return Err(Error::ours("READDIRPLUS")(format!("{what} did not fit")));
        }
    }
    Ok(())
}

/// Makes the calls of the procedures that [`make`] leaves out, and READs and WRITEs of lengths for
/// each transfer mode. Some fail, as the memory file system has no such objects.
pub(crate) async fn make_others(client: &Client, export: &str) -> Result<(), Error> {
    let mountd = Mount3::new(client);
    let nfs = Nfs3::new(client);
    let path = MountPath::from(export.as_bytes());
    let mount = MountArgs { path };
    called("MOUNT NULL", mountd.null(&()).await)?;
    let mounted = called("MNT", mountd.mount(&mount).await)?;
    let root = mounted.map_err(|_| Error::ours("MNT")("refused"))?.handle;
    called("DUMP", mountd.dump(&()).await)?;
    called("EXPORT", mountd.export(&()).await)?;

    let file = create(&nfs, root, "file").await?;
    for length in LENGTHS {
        let data: Vec<u8> = (0..length).map(|n| (n * 7 % 253) as u8).collect();
        write_and_read(&nfs, file, Bytes::from(data)).await?;
    }
    let attributes = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let args = SetattrArgs {
        object: file,
        attributes,
        guard: None,
    };
    succeeded("SETATTR", nfs.setattr(&args).await)?;
    let args = AccessArgs {
        object: file,
        access: Access::READ | Access::MODIFY,
    };
    succeeded("ACCESS", nfs.access(&args).await)?;
    // Whether the file system can do these does not matter here.
    let args = MknodArgs {
        place: at(root, "pipe"),
        what: MknodWhat::Fifo(SetAttributes::default()),
    };
    let _ = called("MKNOD", nfs.mknod(&args).await)?;
    let args = LinkArgs {
        object: file,
        link: at(root, "second"),
    };
    let _ = called("LINK", nfs.link(&args).await)?;
    let args = RenameArgs {
        from: at(root, "file"),
        to: at(root, "renamed"),
    };
    succeeded("RENAME", nfs.rename(&args).await)?;
    let args = ReaddirArgs {
        dir: root,
        cookie: 0,
        verifier: [0; 8],
        count: 4096,
    };
    succeeded("READDIR", nfs.readdir(&args).await)?;
    let object = HandleArgs { object: root };
    succeeded("FSSTAT", nfs.fsstat(&object).await)?;
    succeeded("FSINFO", nfs.fsinfo(&object).await)?;
    succeeded("PATHCONF", nfs.pathconf(&object).await)?;
    let what = at(root, "renamed");
    succeeded("REMOVE", nfs.remove(&DirOpArgs { what }).await)?;
    let args = MkdirArgs {
        place: at(root, "empty"),
        attributes: SetAttributes::default(),
    };
    succeeded("MKDIR", nfs.mkdir(&args).await)?;
    let what = at(root, "empty");
    succeeded("RMDIR", nfs.rmdir(&DirOpArgs { what }).await)?;
    called("UMNT", mountd.unmount(&mount).await)?;
    called("UMNTALL", mountd.unmount_all(&()).await)
}
