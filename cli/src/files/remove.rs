//! The `rm` command.

use nfs_binding::client::{Follow, components};
use nfs_binding::proto::Status;
use nfs_copy::Totals;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::{Context, Failure};

use super::each;
use super::report::Watch;
use crate::args::RmArgs;

/// Removes files.
///
/// # Errors
/// One of them could not be removed.
pub(crate) fn rm(args: &RmArgs, catalog: &Catalog) -> Result<(), Failure> {
    let access = args.mount.access(catalog)?;
    each(&args.urls, |url| {
        let mounted = access.mount(url)?;
        if components(&mounted.path).next().is_none() {
            let text = format!("{url}: is an export's root, which cannot be removed");
            return Err(Failure::Work(text));
        }
        let runtime = &mounted.reached.runtime;
        let found = runtime.block_on(mounted.mount.resolve(&mounted.path, Follow::No));
        if let Err(error) = found {
            if args.force && error.status() == Some(Status::NOENT) {
                return Ok(());
            }
            return Err(error).context(url);
        }
        let mut watch = Watch::start("removed", args.recursive)?;
        let options = watch.options(&access.mount);
        let mut progress = |totals: &Totals| watch.show(totals);
        let removing = nfs_copy::remove(&mounted.mount, &mounted.path, &options, &mut progress);
        let report = runtime.block_on(removing);
        watch.finish(url, report)
    })
}
