//! The test file.

use bytes::Bytes;
use nfs_binding::client::Follow;
use nfs_binding::proto::{FileHandle, SetAttributes, Stable};
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::{Context, Failure};

use super::op::{FILE_SIZE, READ_SIZE, WRITE_SIZE};

/// The number of WRITEs that fill the file, and of READs that check it.
pub const CALLS: u64 = FILE_SIZE / WRITE_SIZE as u64;

/// The test file in a mounted export.
pub(super) struct Fixture {
    mounted: Mounted,
    directory: FileHandle,
    name: Vec<u8>,
    /// The file.
    pub(super) file: FileHandle,
    /// Each [`WRITE_SIZE`] bytes of its content.
    pub(super) data: Bytes,
}

impl Fixture {
    /// Creates the file in the directory that was mounted, and fills it. `index` distinguishes the
    /// files of this process.
    ///
    /// # Errors
    /// The server refuses a call, or cannot do READs and WRITEs of the sizes that are measured.
    pub(super) fn create(mounted: Mounted, index: usize) -> Result<Self, Failure> {
        let limits = mounted.mount.limits();
        if limits.rsize < READ_SIZE || limits.wsize < WRITE_SIZE {
            let (rsize, wsize) = (limits.rsize, limits.wsize);
            return Err(Failure::Work(format!(
                "READ of {READ_SIZE} and WRITE of {WRITE_SIZE} bytes are measured, and the \
                 limits here are {rsize} and {wsize}"
            )));
        }
        let name = format!(".rpcrdma-load-{}-{index}", std::process::id()).into_bytes();
        // Not all zeroes, so that no server can treat it specially.
        let data: Vec<u8> = (0..WRITE_SIZE).map(|n| (n ^ n >> 8) as u8).collect();
        let runtime = mounted.reached.runtime.clone();
        let (directory, file) = runtime
            .block_on(async {
                let mount = &mounted.mount;
                let directory = mount.resolve(&mounted.path, Follow::Yes).await?.handle;
                let attributes = SetAttributes {
                    mode: Some(0o600),
                    ..SetAttributes::default()
                };
                let made = mount.create(directory, &name, attributes, &name[..]).await;
                made.map(|made| (directory, made.handle))
            })
            .context("cannot make the test file")?;
        let fixture = Self {
            mounted,
            directory,
            name,
            file,
            data: data.into(),
        };
        match fixture.fill() {
            Ok(()) => Ok(fixture),
            Err(failure) => {
                // The file is of no use, and the failure that counts is the first one.
                drop(fixture.remove());
                Err(failure)
            }
        }
    }

    fn fill(&self) -> Result<(), Failure> {
        let mount = &self.mounted.mount;
        self.mounted.reached.runtime.block_on(async {
            for call in 0..CALLS {
                let (offset, data) = (call * u64::from(WRITE_SIZE), self.data.clone());
                let (at, how) = (&self.name[..], Stable::Unstable);
                let ok = mount.write(self.file, offset, data, how, at).await;
                let written = ok.context("cannot fill the test file")?.count;
                if written != WRITE_SIZE {
                    let text = format!("WRITE: {written} bytes moved of {WRITE_SIZE}");
                    return Err(Failure::Work(text));
                }
            }
            Ok(())
        })
    }

    /// Checks that the file still has its content: the WRITEs that were measured repeat it.
    ///
    /// # Errors
    /// The server lost or changed bytes, or refuses a call.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mount = &self.mounted.mount;
        self.mounted.reached.runtime.block_on(async {
            for call in 0..CALLS {
                let offset = call * u64::from(WRITE_SIZE);
                let at = &self.name[..];
                let ok = mount.read(self.file, offset, WRITE_SIZE, at).await;
                if ok.context("cannot read the test file")?.data.0.to_bytes() != self.data {
                    let text = format!("READ at {offset}: not the bytes that were written");
                    return Err(Failure::Work(text));
                }
            }
            Ok(())
        })
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The server refuses.
    pub(super) fn remove(self) -> Result<(), Failure> {
        let mount = &self.mounted.mount;
        let removing = mount.remove(self.directory, &self.name, &self.name[..]);
        let removed = self.mounted.reached.runtime.block_on(removing);
        removed.context("cannot remove the test file")
    }

    /// Returns the address of the server.
    pub(super) fn server(&self) -> std::net::SocketAddr {
        self.mounted.reached.client.remote()
    }
}
