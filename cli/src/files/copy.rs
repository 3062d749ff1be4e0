//! The commands `get`, `put` and `cat`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use nfs_binding::client::{Follow, NfsError, NfsUrl, Object};
use nfs_copy::Totals;
use rpcrdma_setup::access::{Access, Mounted};
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::{Context, Failure};

use super::report::Watch;
use super::standard_input::standard_input;
use super::{each, umask, url};
use crate::args::{CaptureArgs, CatArgs, GetArgs, PutArgs};
use crate::client_capture;
use crate::output;

/// The number of READs in flight while a file is written to standard output in order.
const READ_AHEAD: usize = 8;

/// The mode of new files before the process's umask is applied.
const MODE: u32 = 0o666;

/// Returns whether a local path means standard input or output. The file of that name is `./-`.
///
/// # Errors
/// `-` and `-r` are both given: a stream has no directories.
fn is_stream(path: &Path, recursive: bool) -> Result<bool, Failure> {
    match (path.as_os_str() == "-", recursive) {
        (true, true) => {
            let text =
                "-r copies directories, and - is one stream: for a file of that name, write ./-";
            Err(Failure::usage(text))
        }
        (stream, _) => Ok(stream),
    }
}

/// Copies files from a server.
///
/// # Errors
/// Something could not be copied.
pub(crate) fn get(args: &GetArgs, catalog: &Catalog) -> Result<(), Failure> {
    let to_stream = is_stream(&args.target, args.recursive)?;
    let mut access = args.mount.access(catalog)?;
    let source = url(&args.source)?;
    client_capture::open(&mut access, &args.capture)?;
    if to_stream {
        return write_out(&access, &source);
    }
    let mounted = access.mount(&source)?;
    let target = local_target(&args.target, &source);
    let mut watch = Watch::start("copied", args.recursive)?;
    let options = watch.options_for_get(&access.mount);
    let mut progress = |totals: &Totals| watch.show(totals);
    let copying = nfs_copy::get(
        &mounted.mount,
        &mounted.path,
        &target,
        &options,
        &mut progress,
    );
    let report = mounted.reached.runtime.block_on(copying);
    watch.finish(&source, report)
}

/// Returns the target of a copy: the source's name in an existing directory, or the given path.
fn local_target(given: &Path, source: &NfsUrl) -> PathBuf {
    let name = source.file_name();
    if given.is_dir() && !name.is_empty() && name != b".." {
        given.join(OsStr::from_bytes(name))
    } else {
        given.to_owned()
    }
}

/// Copies files to a server.
///
/// # Errors
/// Something could not be copied.
pub(crate) fn put(args: &PutArgs, catalog: &Catalog) -> Result<(), Failure> {
    let from_stream = is_stream(&args.source, args.recursive)?;
    let mut access = args.mount.access(catalog)?;
    let url = url(&args.target)?;
    if from_stream {
        return put_input(access, &url, &args.capture);
    }
    // The source is checked first, so that a misspelt name fails before connecting.
    let source = &args.source;
    let kind = source
        .symlink_metadata()
        .context(format_args!("cannot read {}", source.display()))?
        .file_type();
    client_capture::open(&mut access, &args.capture)?;
    let mounted = access.mount(&url)?;
    let runtime = &mounted.reached.runtime;
    // As with cp(1), the content of `DIR/.` is copied to the target itself.
    let path = source.as_os_str().as_bytes();
    let len = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    let content = path[..len].ends_with(b"/.");
    let target = match source.file_name().filter(|_| !content) {
        Some(name) => {
            let finding = mounted.mount.destination(&mounted.path, name.as_bytes());
            runtime.block_on(finding).context(&url)?
        }
        None => mounted.path.clone(),
    };
    // As with cp(1), a trailing slash demands an existing directory as the target of a file.
    if url.path.ends_with(b"/") && target == mounted.path && !kind.is_dir() {
        let text = format!("{url}: no such directory, and a file has no slash at its end");
        return Err(Failure::Work(text));
    }
    let mut watch = Watch::start("copied", args.recursive)?;
    let options = watch.options(&access.mount);
    let mut progress = |totals: &Totals| watch.show(totals);
    let copying = nfs_copy::put(
        &mounted.mount,
        mounted.reached.pool(),
        source,
        &target,
        &options,
        &mut progress,
    );
    let report = runtime.block_on(copying);
    watch.finish(&url, report)
}

/// Copies standard input to a file.
fn put_input(mut access: Access, url: &NfsUrl, captured: &CaptureArgs) -> Result<(), Failure> {
    if url.path.ends_with(b"/") {
        let text = format!("{url}: standard input has no name: write that of the file as well");
        return Err(Failure::Usage(text));
    }
    client_capture::open(&mut access, captured)?;
    let mode = MODE & !umask();
    let mounted = access.mount(url)?;
    let input = standard_input().context("cannot read standard input")?;
    let mut watch = Watch::start("copied", false)?;
    let options = watch.options(&access.mount);
    let mut progress = |totals: &Totals| watch.show(totals);
    let copying = nfs_copy::put_stream(
        &mounted.mount,
        mounted.reached.pool(),
        input,
        mode,
        &mounted.path,
        &options,
        &mut progress,
    );
    let report = mounted.reached.runtime.block_on(copying);
    watch.finish(url, report)
}

/// Writes files to standard output.
///
/// # Errors
/// One of them could not be read.
pub(crate) fn cat(args: &CatArgs, catalog: &Catalog) -> Result<(), Failure> {
    let access = args.mount.access(catalog)?;
    each(&args.urls, |url| write_out(&access, url))
}

/// Writes a file to standard output.
fn write_out(access: &Access, url: &NfsUrl) -> Result<(), Failure> {
    let mounted = access.mount(url)?;
    let runtime = &mounted.reached.runtime;
    let finding = mounted.mount.resolve(&mounted.path, Follow::Yes);
    let object = runtime.block_on(finding).context(url)?;
    runtime.block_on(cat_one(&mounted, url, &object))
}

async fn cat_one(mounted: &Mounted, url: &NfsUrl, object: &Object) -> Result<(), Failure> {
    let rsize = mounted.mount.limits().rsize;
    let size = object.attributes.size;
    // An empty range is read as well, to find out whether the file is readable.
    let starts = (0..=size.saturating_sub(1)).step_by(rsize as usize);
    let mut parts = stream::iter(starts)
        .map(|start| {
            let left = u32::try_from(size - start).unwrap_or(u32::MAX);
            read_range(mounted, object, start, left.min(rsize))
        })
        .buffered(READ_AHEAD);
    let mut left = size;
    while let Some(part) = parts.next().await {
        let part = part.context(url)?;
        let expected = left.min(rsize.into());
        let len: u64 = part.iter().map(|piece| piece.len() as u64).sum();
        for piece in part {
            output::bytes(&piece)?;
        }
        if len < expected {
            // What follows would be at a wrong place in the output.
            let text = format!("{url} became shorter while it was read");
            return Err(Failure::Work(text));
        }
        left -= expected;
    }
    Ok(())
}

/// Reads a range, in as many READs as the server needs.
async fn read_range(
    mounted: &Mounted,
    object: &Object,
    start: u64,
    len: u32,
) -> Result<Vec<Bytes>, NfsError> {
    let mut pieces = Vec::new();
    let mut have = 0;
    loop {
        let reading = mounted.mount.read(
            object.handle,
            start + u64::from(have),
            len - have,
            &mounted.path,
        );
        let read = reading.await?;
        have += read.data.0.len() as u32;
        let ended = read.eof || read.data.0.is_empty() || have >= len;
        pieces.extend(read.data.0.into_segments());
        if ended {
            return Ok(pieces);
        }
    }
}
