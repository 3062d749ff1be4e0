//! The `mkdir` command.

use nfs_binding::proto::SetAttributes;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::{Context, Failure};

use super::{each, umask};
use crate::args::MkdirArgs;

/// The mode of new directories before the process's umask is applied.
const MODE: u32 = 0o777;

/// Creates directories.
///
/// # Errors
/// One of them cannot be created.
pub(crate) fn mkdir(args: &MkdirArgs, catalog: &Catalog) -> Result<(), Failure> {
    let access = args.mount.access(catalog)?;
    let mode = MODE & !umask();
    each(&args.urls, |url| {
        let mounted = access.mount(url)?;
        let (mount, path) = (&mounted.mount, &mounted.path);
        let making = async {
            if args.parents {
                mount.mkdir_all(path, mode).await?;
                return Ok(());
            }
            let (dir, name) = mount.resolve_parent(path).await?;
            let attributes = SetAttributes {
                mode: Some(mode),
                ..SetAttributes::default()
            };
            mount
                .mkdir(dir.handle, &name, attributes, path)
                .await
                .map(drop)
        };
        let made: Result<(), nfs_binding::client::NfsError> =
            mounted.reached.runtime.block_on(making);
        made.context(url)
    })
}
