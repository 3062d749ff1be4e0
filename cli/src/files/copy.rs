//! The commands `get`, `put` and `cat`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use nfs_binding::client::{Follow, NfsError, NfsUrl, Object};
use nfs_binding::proto::{FileType, Status};
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
    only_to_here(&args.target)?;
    if let [more, ..] = &args.more[..] {
        return Err(Failure::Usage(format!(
            "{}: get copies one file or directory: write one command for each",
            more.display()
        )));
    }
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
    // The size of the one file is known when its copy begins.
    watch.expect((!args.recursive).then_some(0));
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

/// Checks that the target of `get` is a path of this machine.
fn only_to_here(target: &Path) -> Result<(), Failure> {
    match target
        .to_str()
        .filter(|text| text.parse::<NfsUrl>().is_ok())
    {
        Some(url) => Err(Failure::Usage(format!(
            "{url}: several URLs are not supported: get copies one file or directory to this machine, and put copies \
             from it (a local file of that name is ./{url})"
        ))),
        None => Ok(()),
    }
}

/// Returns the target of a copy: the source's name in an existing directory, or the given path. Neither begins or
/// ends with a `.` that nobody typed: the working directory is left out, and a source `DIR/.` has no name.
fn local_target(given: &Path, source: &NfsUrl) -> PathBuf {
    let name = source.file_name();
    let is_name = !name.is_empty() && name != b"." && name != b"..";
    if !given.is_dir() || !is_name {
        return given.to_owned();
    }
    let name = OsStr::from_bytes(name);
    let is_here = given.components().all(|part| part == Component::CurDir);
    match is_here {
        true => PathBuf::from(name),
        false => given.join(name),
    }
}

/// Copies files to a server.
///
/// # Errors
/// Something could not be copied.
pub(crate) fn put(args: &PutArgs, catalog: &Catalog) -> Result<(), Failure> {
    let sources = &args.sources[..];
    let [first, others @ ..] = sources else {
        return Err(Failure::usage("there is nothing to copy"));
    };
    if others.is_empty() && is_stream(first, args.recursive)? {
        let access = args.mount.access(catalog)?;
        return put_input(access, &url(&args.target)?, &args.capture);
    }
    let mut access = args.mount.access(catalog)?;
    let url = url(&args.target)?;
    if !others.is_empty() {
        check_several(sources)?;
    }
    // The sources are checked first, so that a misspelt name fails before connecting. As with cp(1), it does not
    // keep the others from being copied.
    let (sources, absent) = readable(sources)?;
    let size = total_size(&sources, args.recursive);
    client_capture::open(&mut access, &args.capture)?;
    let mounted = access.mount(&url)?;
    let targets = match others {
        [] => vec![target(&mounted, &url, first)?],
        _ => targets_within(&mounted, &url, &sources)?,
    };
    let mut watch = Watch::start("copied", args.recursive)?;
    watch.expect(size);
    let options = watch.options(&access.mount);
    let mut progress = |totals: &Totals| watch.show(totals);
    let copies = sources.iter().copied();
    let copies: Vec<(&Path, &[u8])> = copies.zip(targets.iter().map(Vec::as_slice)).collect();
    let copying = nfs_copy::put_all(
        &mounted.mount,
        mounted.reached.pool(),
        &copies,
        &options,
        &mut progress,
    );
    let report = mounted.reached.runtime.block_on(copying);
    output::ended(absent.map_or(Ok(()), Err), watch.finish(&url, report))
}

/// Returns the sources that can be read, and the failure of the others. All of these but the last are
/// printed.
///
/// # Errors
/// None can be read.
fn readable(sources: &[PathBuf]) -> Result<(Vec<&Path>, Option<Failure>), Failure> {
    let mut absent: Option<Failure> = None;
    let mut found = Vec::new();
    for source in sources {
        let read = source.symlink_metadata();
        match read.context(format_args!("cannot read {}", source.display())) {
            Ok(_) => found.push(source.as_path()),
            Err(failure) => {
                if let Some(earlier) = absent.replace(failure) {
                    output::complain(earlier);
                }
            }
        }
    }
    match absent {
        Some(failure) if found.is_empty() => Err(failure),
        absent => Ok((found, absent)),
    }
}

/// Returns the name that a source gets in a directory, or `None` if its content goes to the directory itself: as
/// with cp(1), that of `DIR/.` does.
fn name_of(source: &Path) -> Option<&OsStr> {
    let path = source.as_os_str().as_bytes();
    let len = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    let path = &path[..len];
    source.file_name().filter(|_| !path.ends_with(b"/."))
}

/// Checks that several sources can go into one directory.
fn check_several(sources: &[PathBuf]) -> Result<(), Failure> {
    let mut names = HashMap::new();
    for source in sources {
        let shown = source.display();
        if source.as_os_str() == "-" {
            let text = "-: standard input has no name: copy it alone (a file of that name is ./-)";
            return Err(Failure::usage(text));
        }
        let Some(name) = name_of(source) else {
            let text = format!("{shown}: stands for what is in that directory: copy it alone");
            return Err(Failure::Usage(text));
        };
        if let Some(other) = names.insert(name, shown) {
            let text = format!("{other} and {}: would have the same name", source.display());
            return Err(Failure::Usage(text));
        }
    }
    Ok(())
}

/// Returns the size of the sources, if all are regular files.
fn total_size(sources: &[&Path], recursive: bool) -> Option<u64> {
    let mut size = Some(0_u64);
    for source in sources {
        let found = source.symlink_metadata().ok()?;
        // Without -r, the file is copied that a link leads to.
        let followed = match found.is_symlink() && !recursive {
            true => source.metadata().ok(),
            false => Some(found),
        };
        let len = followed.filter(Metadata::is_file).map(|file| file.len());
        size = size.zip(len).map(|(sum, len)| sum.saturating_add(len));
    }
    size
}

/// Returns the paths of several sources in the directory that the URL names.
fn targets_within(
    mounted: &Mounted,
    url: &NfsUrl,
    sources: &[&Path],
) -> Result<Vec<Vec<u8>>, Failure> {
    let finding = mounted.mount.resolve(&mounted.path, Follow::Yes);
    let found = mounted.reached.runtime.block_on(finding);
    let is_absent = |error: &NfsError| error.status() == Some(Status::NOENT);
    let problem = match &found {
        Err(error) if is_absent(error) => {
            "no such directory, and several files need one that exists"
        }
        Ok(found) if found.attributes.file_type != FileType::Directory => {
            "is not a directory, and several files need one"
        }
        _ => "",
    };
    if !problem.is_empty() {
        return Err(Failure::Work(format!("{url}: {problem}")));
    }
    found.context(url)?;
    let within = |name: &OsStr| [&mounted.path, &b"/"[..], name.as_bytes()].concat();
    let names = sources.iter().filter_map(|source| name_of(source));
    Ok(names.map(within).collect())
}

/// Returns the path of a source on the server.
fn target(mounted: &Mounted, url: &NfsUrl, source: &Path) -> Result<Vec<u8>, Failure> {
    let target = match name_of(source) {
        Some(name) => {
            let finding = mounted.mount.destination(&mounted.path, name.as_bytes());
            mounted.reached.runtime.block_on(finding).context(url)?
        }
        None => mounted.path.clone(),
    };
    // As with cp(1), a trailing slash demands an existing directory as the target of a file.
    let is_directory = || source.symlink_metadata().is_ok_and(|found| found.is_dir());
    if url.path.ends_with(b"/") && target == mounted.path && !is_directory() {
        let text = format!("{url}: no such directory, and a file has no slash at its end");
        return Err(Failure::Work(text));
    }
    Ok(target)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_the_working_directory_has_its_plain_name() {
        let target = |given: &str, source: &str| {
            let source: NfsUrl = source.parse().unwrap();
            local_target(Path::new(given), &source)
                .into_os_string()
                .into_string()
                .unwrap()
        };
        for (given, source, wanted) in [
            (".", "nfs://h/pub/src", "src"),
            ("./", "nfs://h/pub/src/", "src"),
            ("./.", "nfs://h/pub/src", "src"),
            ("..", "nfs://h/pub/src", "../src"),
            ("/", "nfs://h/pub/src", "/src"),
            // What is in a directory goes to the place itself.
            (".", "nfs://h/pub/src/.", "."),
            ("/", "nfs://h/pub/src/./", "/"),
            (".", "nfs://h/pub/..", "."),
            ("./not-there", "nfs://h/pub/src", "./not-there"),
        ] {
            assert_eq!(target(given, source), wanted, "{source} to {given}");
        }
    }
}
