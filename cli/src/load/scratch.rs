//! The directory on a server for what the calls need.

use nfs_binding::client::{Follow, NfsUrl};
use nfs_binding::proto::SetAttributes;
use nfs_copy::{CopyOptions, Interrupt};
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::catalog::Tuning;
use rpcrdma_setup::{Context, Failure};

use super::target::Target;

/// A directory in a mounted export.
pub(super) struct Scratch {
    mounted: Mounted,
    path: Vec<u8>,
    /// Its address.
    pub(super) url: NfsUrl,
}

impl Scratch {
    /// Creates the directory in that which the user named. `index` distinguishes those of this process;
    /// `interrupt` ends connecting.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub(super) fn create(
        target: &Target,
        tuning: &Tuning,
        index: usize,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        let mut access = target.access(tuning)?;
        access.interrupt = Some(interrupt);
        let mounted = access.mount(&target.url)?;
        let name = format!(".rpcrdma-load-{}-{index}", std::process::id()).into_bytes();
        let runtime = mounted.reached.runtime.clone();
        runtime
            .block_on(async {
                let mount = &mounted.mount;
                let parent = mount.resolve(&mounted.path, Follow::Yes).await?.handle;
                let attributes = SetAttributes {
                    mode: Some(0o700),
                    ..SetAttributes::default()
                };
                mount.mkdir(parent, &name, attributes, &name[..]).await
            })
            .context("cannot make a directory")?;
        let inside = |path: &[u8]| [path, &name[..]].join(&b'/');
        Ok(Self {
            path: inside(&mounted.path),
            url: NfsUrl {
                path: inside(&target.url.path),
                ..target.url.clone()
            },
            mounted,
        })
    }

    /// Removes the directory, with all that is in it.
    ///
    /// # Errors
    /// The server refuses.
    pub(super) fn remove(self) -> Result<(), Failure> {
        let options = CopyOptions {
            recursive: true,
            ..CopyOptions::default()
        };
        let mut ignore = |_: &_| ();
        let removing = nfs_copy::remove(&self.mounted.mount, &self.path, &options, &mut ignore);
        let report = self.mounted.reached.runtime.block_on(removing);
        match report.problems.into_iter().next() {
            None => Ok(()),
            Some(error) => Err(error).context("cannot remove what the calls needed"),
        }
    }
}
