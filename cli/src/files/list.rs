//! The commands `exports`, `ls` and `stat`.

use nfs_binding::client::{DisplayPath, Follow, Mount3, NfsUrl, Object};
use nfs_binding::proto::{Attributes, FileType};
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::units::show_date;
use rpcrdma_setup::{Context, Failure};

use super::each;
use crate::args::{ExportsArgs, LsArgs, StatArgs};
use crate::output;
use crate::ping::server;

/// Lists the exports of a server.
///
/// # Errors
/// The server cannot be reached.
pub(crate) fn exports(args: &ExportsArgs, catalog: &Catalog) -> Result<(), Failure> {
    let access = args.mount.access(catalog)?;
    only_what_matters(&access.mount)?;
    let (host, port) = server(&args.server)?;
    let reached = access.reach_mountd(&host, port)?;
    let mountd = Mount3::new(reached.client.clone());
    let list = reached.runtime.block_on(mountd.export(&()));
    for export in list.context(&args.server)?.exports {
        let path = DisplayPath::from(&export.path.0[..]);
        let groups: Vec<String> = export
            .groups
            .iter()
            .map(|group| DisplayPath::from(&group.0[..]).to_string())
            .collect();
        match groups.is_empty() {
            true => output::line(format_args!("{path}  everyone"))?,
            false => output::line(format_args!("{path}  {}", groups.join(",")))?,
        }
    }
    Ok(())
}

/// Checks that no mount option is given that could only affect calls of NFS: only MOUNT is called.
fn only_what_matters(mount: &MountOptions) -> Result<(), Failure> {
    let idle = [
        ("rsize=", "reads", mount.attach.rsize.is_some()),
        ("wsize=", "writes", mount.attach.wsize.is_some()),
    ];
    match idle.into_iter().find(|(_, _, idle)| *idle) {
        Some((name, what, _)) => Err(Failure::Usage(format!(
            "{name}: exports {what} nothing, so it would have no effect"
        ))),
        None => Ok(()),
    }
}

/// Lists directories.
///
/// # Errors
/// One of them cannot be listed.
pub(crate) fn ls(args: &LsArgs, catalog: &Catalog) -> Result<(), Failure> {
    let access = args.mount.access(catalog)?;
    let titles = args.urls.len() > 1;
    each(&args.urls, |url| {
        if titles {
            output::line(format_args!("{url}:"))?;
        }
        list(&access.mount(url)?, url, args.long)
    })
}

fn list(mounted: &Mounted, url: &NfsUrl, long: bool) -> Result<(), Failure> {
    let (mount, path, runtime) = (&mounted.mount, &mounted.path, &mounted.reached.runtime);
    let object = runtime
        .block_on(mount.resolve(path, Follow::Yes))
        .context(url)?;
    if object.attributes.file_type != FileType::Directory {
        let name = DisplayPath::from(url.file_name());
        return print(mounted, url, &name, &object, long);
    }
    let mut entries = runtime
        .block_on(mount.list_all(object.handle, path))
        .context(url)?;
    entries.sort_by(|a, b| a.name.0.cmp(&b.name.0));
    for entry in entries {
        let name = DisplayPath::from(&entry.name.0[..]);
        if !long {
            output::line(&name)?;
            continue;
        }
        let known = entry.handle.zip(entry.attributes);
        let object = match known {
            Some((handle, attributes)) => Object { handle, attributes },
            None => {
                let looking = mount.lookup(object.handle, &entry.name.0, path);
                runtime.block_on(looking).context(url)?
            }
        };
        print(mounted, url, &name, &object, true)?;
    }
    Ok(())
}

fn print(
    mounted: &Mounted,
    url: &NfsUrl,
    name: &DisplayPath,
    object: &Object,
    long: bool,
) -> Result<(), Failure> {
    if !long {
        return output::line(name);
    }
    let it = &object.attributes;
    let target = link_target(mounted, url, object)?;
    output::line(format_args!(
        "{}{} {:>3} {:>6} {:>6} {:>12} {} UTC {name}{target}",
        type_letter(it.file_type),
        permissions(it.mode),
        it.nlink,
        it.uid,
        it.gid,
        it.size,
        show_date(u64::from(it.mtime.seconds)),
    ))
}

/// Returns ` -> TARGET` for a symbolic link, and an empty text for other objects.
fn link_target(mounted: &Mounted, url: &NfsUrl, object: &Object) -> Result<String, Failure> {
    if object.attributes.file_type != FileType::Symlink {
        return Ok(String::new());
    }
    let reading = mounted.mount.readlink(object.handle, &mounted.path);
    let target = mounted.reached.runtime.block_on(reading).context(url)?;
    Ok(format!(" -> {}", DisplayPath::from(&target[..])))
}

/// Shows attributes.
///
/// # Errors
/// One of the files cannot be found.
pub(crate) fn stat(args: &StatArgs, catalog: &Catalog) -> Result<(), Failure> {
    let access = args.mount.access(catalog)?;
    each(&args.urls, |url| {
        let mounted = access.mount(url)?;
        let finding = mounted.mount.resolve(&mounted.path, Follow::No);
        let object = mounted.reached.runtime.block_on(finding).context(url)?;
        let target = link_target(&mounted, url, &object)?;
        let it = &object.attributes;
        output::line(format_args!("  name: {url}{target}"))?;
        output::line(format_args!(
            "  type: {}  size: {}  used: {}  links: {}  fileid: {}",
            type_name(it.file_type),
            it.size,
            it.used,
            it.nlink,
            it.fileid
        ))?;
        output::line(format_args!(
            "  mode: {:04o} ({})  uid: {}  gid: {}",
            it.mode & 0o7777,
            permissions(it.mode),
            it.uid,
            it.gid
        ))?;
        let Attributes {
            atime,
            mtime,
            ctime,
            ..
        } = it;
        for (what, time) in [("access", atime), ("modify", mtime), ("change", ctime)] {
            output::line(format_args!(
                "{what}: {}.{:09} UTC",
                show_date(u64::from(time.seconds)),
                time.nanos
            ))?;
        }
        Ok(())
    })
}

fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Block => 'b',
        FileType::Character => 'c',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
    }
}

fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Block => "block device",
        FileType::Character => "character device",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
        FileType::Fifo => "named pipe",
    }
}

/// Formats permissions like ls(1): `rwxr-xr-x`, with `s`, `S`, `t` and `T`.
fn permissions(mode: u32) -> String {
    let mut out = String::with_capacity(9);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_show_special_bits() {
        assert_eq!(permissions(0o755), "rwxr-xr-x");
        assert_eq!(permissions(0o4755), "rwsr-xr-x");
        assert_eq!(permissions(0o2644), "rw-r-Sr--");
        assert_eq!(permissions(0o1777), "rwxrwxrwt");
    }
}
