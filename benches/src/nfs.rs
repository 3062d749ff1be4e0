//! Whole operations of NFS, with client and server on one thread as in [`crate::calls`]. The server
//! has a file system in memory.

use std::sync::Arc;

use bytes::Bytes;
use nfs_binding::client::{AttachOptions, Mount, Nfs3};
use nfs_binding::fs::memory::MemoryFs;
use nfs_binding::proto::{
    FileHandle, HandleArgs, ReadArgs, ReaddirplusArgs, SetAttributes, Stable, WriteArgs,
};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer, Squash};
use rdma::trace::Trace;
use rpc_transport::Client;

use crate::calls::{Carrier, Ends, Outcomes};

/// The limit of the file system in memory, bytes.
const MEMORY: u64 = 256 << 20;
/// The path of the export.
const PATH: &str = "/measured";
/// The number of entries of the directory.
const ENTRIES: u32 = 1000;

/// An NFS client, the server that it is connected to, a file and a directory.
pub struct NfsEnds {
    ends: Ends,
    nfs: Nfs3<Client>,
    file: FileHandle,
    directory: FileHandle,
}

impl NfsEnds {
    /// Connects a client to a server, and creates a file of `len` bytes and a directory of a
    /// thousand entries. Both ends busy-poll.
    ///
    /// # Errors
    /// The error of the operating system, or a call failed.
    pub fn new(carrier: Carrier, len: usize) -> Outcomes<Self> {
        Self::traced(carrier, len, None)
    }

    /// Does the same, with an observer of the calls at both ends.
    ///
    /// # Errors
    /// The error of the operating system, or a call failed.
    pub fn traced(carrier: Carrier, len: usize, trace: Option<&Trace>) -> Outcomes<Self> {
        let export = Export {
            path: PATH.to_owned(),
            backend: Arc::new(MemoryFs::new(MEMORY)?),
            options: ExportOptions {
                squash: Squash::None,
                secure: false,
                ..ExportOptions::default()
            },
        };
        let service = NfsServer::new(vec![export], HandleKey::random()?)?;
        let mut ends = Ends::traced(carrier, Box::new(service), trace)?;
        let client = ends.client.clone();
        let none = SetAttributes::default;
        let making = async {
            let options = AttachOptions::default();
            let (mount, _) = Mount::attach(&client, &client, PATH.as_bytes(), &options).await?;
            let made = mount.mkdir(mount.root(), b"listed", none(), &b"listed"[..]);
            let directory = made.await?.handle;
            for number in 0..ENTRIES {
                let name = format!("entry-{number:06}").into_bytes();
                let made = mount.create(directory, &name, none(), &name[..]);
                made.await?;
            }
            let made = mount.create(mount.root(), b"file", none(), &b"file"[..]);
            Outcomes::Ok((made.await?.handle, directory))
        };
        let (file, directory) = ends.run(making)??;
        let mut ends = Self {
            nfs: Nfs3::new(client),
            ends,
            file,
            directory,
        };
        ends.write(&vec![7; len].into())?;
        Ok(ends)
    }

    /// Returns the lengths of the RPC messages, in bytes, that `operation` sends and receives.
    ///
    /// # Errors
    /// The operation's.
    pub fn lengths(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Outcomes<()>,
    ) -> Outcomes<(usize, usize)> {
        let before = self.ends.client.stats();
        operation(self)?;
        let after = self.ends.client.stats();
        Ok((
            usize::try_from(after.bytes_sent - before.bytes_sent)?,
            usize::try_from(after.bytes_received - before.bytes_received)?,
        ))
    }

    /// Makes a call without arguments and results.
    ///
    /// # Errors
    /// The call failed.
    pub fn null(&mut self) -> Outcomes<()> {
        let call = self.nfs.null(&());
        self.ends.run(call)??;
        Ok(())
    }

    /// Reads attributes.
    ///
    /// # Errors
    /// The call failed.
    pub fn getattr(&mut self) -> Outcomes<()> {
        let args = HandleArgs { object: self.file };
        let call = self.nfs.getattr(&args);
        let attributes = self.ends.run(call)??;
        attributes.map_err(|failed| failed.status.to_string())?;
        Ok(())
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// The call failed, or the file is shorter.
    pub fn read(&mut self, count: u32) -> Outcomes<()> {
        let args = ReadArgs {
            file: self.file,
            offset: 0,
            count,
        };
        let call = self.nfs.read(&args);
        let read = self.ends.run(call)??;
        let read = read.map_err(|failed| failed.status.to_string())?;
        match read.count == count {
            true => Ok(()),
            false => Err("the file is shorter".into()),
        }
    }

    /// Writes data.
    ///
    /// # Errors
    /// The call failed.
    pub fn write(&mut self, data: &Bytes) -> Outcomes<()> {
        let args = WriteArgs {
            file: self.file,
            offset: 0,
            count: u32::try_from(data.len())?,
            stable: Stable::Unstable,
            data: data.clone().into(),
        };
        let call = self.nfs.write(&args);
        let written = self.ends.run(call)??;
        written.map_err(|failed| failed.status.to_string())?;
        Ok(())
    }

    /// Lists a directory with objects, in results of at most `count` bytes.
    ///
    /// # Errors
    /// The call failed.
    pub fn readdirplus(&mut self, count: u32) -> Outcomes<()> {
        let args = ReaddirplusArgs {
            dir: self.directory,
            cookie: 0,
            verifier: [0; 8],
            dir_count: count,
            max_count: count,
        };
        let call = self.nfs.readdirplus(&args);
        let listed = self.ends.run(call)??;
        listed.map_err(|failed| failed.status.to_string())?;
        Ok(())
    }
}
