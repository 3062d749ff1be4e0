//! The commands `exports`, `ls` and `stat`.

use nfs_binding::client::{DisplayPath, Follow, Mount3, NfsError, NfsUrl, Object};
use nfs_binding::proto::{Attributes, FileType, NfsTime, Status};
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::units::show_date;
use rpcrdma_setup::{Context, Failure};
use serde_json::{Value, json};

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
    let mut entries = Vec::new();
    for export in list.context(&args.server)?.exports {
        let path = DisplayPath::from(&export.path.0[..]);
        let groups: Vec<String> = export
            .groups
            .iter()
            .map(|group| DisplayPath::from(&group.0[..]).to_string())
            .collect();
        if args.json {
            entries.push(json!({"path": path.to_string(), "groups": groups}));
            continue;
        }
        match groups.is_empty() {
            true => output::line(format_args!("{path}  everyone"))?,
            false => output::line(format_args!("{path}  {}", groups.join(",")))?,
        }
    }
    match args.json {
        true => output::json(&entries.into()),
        false => Ok(()),
    }
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
    let mut listings = Vec::new();
    let mut is_first = true;
    let listed = each(&args.urls, |url| {
        if titles && !args.json {
            if !std::mem::take(&mut is_first) {
                output::line("")?;
            }
            output::line(format_args!("{url}:"))?;
        }
        let mut entries = Vec::new();
        list(&access.mount(url)?, url, args, &mut |mounted, entry| {
            match args.json {
                true => entries.push(entry.json(mounted)?),
                false if args.long => print(mounted, &entry)?,
                false => output::line(DisplayPath::from(entry.name))?,
            }
            Ok(())
        })?;
        listings.push(json!({"url": url.to_string(), "entries": entries}));
        Ok(())
    });
    match args.json {
        true => output::ended(listed, output::json(&listings.into())),
        false => listed,
    }
}

/// An object and its name.
struct Entry<'a> {
    url: NfsUrl,
    name: &'a [u8],
    /// `None` if nothing needs its attributes.
    object: Option<Object>,
}

/// Passes what a URL names to `show`: the file, or the entries of the directory in the order of their names.
fn list(
    mounted: &Mounted,
    url: &NfsUrl,
    args: &LsArgs,
    show: &mut dyn FnMut(&Mounted, Entry<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mount, path, runtime) = (&mounted.mount, &mounted.path, &mounted.reached.runtime);
    let object = runtime
        .block_on(mount.resolve(path, Follow::Yes))
        .map_err(|error| not_found(url, &error))?;
    if object.attributes.file_type != FileType::Directory {
        let entry = Entry {
            url: url.clone(),
            name: url.file_name(),
            object: Some(object),
        };
        return show(mounted, entry);
    }
    let mut entries = runtime
        .block_on(mount.list_all(object.handle, path))
        .context(url)?;
    entries.retain(|entry| args.all || !entry.name.0.starts_with(b"."));
    entries.sort_by(|a, b| a.name.0.cmp(&b.name.0));
    for entry in entries {
        let name = &entry.name.0[..];
        let known = entry.handle.zip(entry.attributes);
        let object = match known {
            _ if !args.long && !args.json => None,
            Some((handle, attributes)) => Some(Object { handle, attributes }),
            None => {
                let looking = mount.lookup(object.handle, name, path);
                Some(runtime.block_on(looking).context(url)?)
            }
        };
        let url = below(url, name);
        show(mounted, Entry { url, name, object })?;
    }
    Ok(())
}

/// Returns the failure for an object that was not found, with what to type to see the names that there are.
fn not_found(url: &NfsUrl, error: &NfsError) -> Failure {
    let path = url.path.strip_suffix(b"/").unwrap_or(&url.path);
    let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    match error.status() {
        Some(Status::NOENT) if end > 0 => {
            let path = path[..end].to_vec();
            let parent = NfsUrl {
                path,
                ..url.clone()
            };
            Failure::Work(format!(
                "{url}: {error} (`rpcrdma ls {parent}` lists what is there)"
            ))
        }
        _ => Failure::Work(format!("{url}: {error}")),
    }
}

/// Returns the URL of a name in the directory of another URL.
fn below(url: &NfsUrl, name: &[u8]) -> NfsUrl {
    let mut path = url.path.clone();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend(name);
    NfsUrl {
        path,
        ..url.clone()
    }
}

/// Prints a line of a long listing.
fn print(mounted: &Mounted, entry: &Entry<'_>) -> Result<(), Failure> {
    let Some(object) = &entry.object else {
        return Ok(());
    };
    let name = DisplayPath::from(entry.name);
    let it = &object.attributes;
    let target = link_target(mounted, &entry.url, object)?;
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
    let target = read_link(mounted, url, object)?;
    Ok(format!(" -> {target}"))
}

/// Returns the target of a symbolic link.
fn read_link(mounted: &Mounted, url: &NfsUrl, object: &Object) -> Result<DisplayPath, Failure> {
    let reading = mounted.mount.readlink(object.handle, &mounted.path);
    let target = mounted.reached.runtime.block_on(reading).context(url)?;
    Ok(DisplayPath::from(&target[..]))
}

/// Shows attributes.
///
/// # Errors
/// One of the files cannot be found.
pub(crate) fn stat(args: &StatArgs, catalog: &Catalog) -> Result<(), Failure> {
    let access = args.mount.access(catalog)?;
    let mut files = Vec::new();
    let shown = each(&args.urls, |url| {
        let mounted = access.mount(url)?;
        let finding = mounted.mount.resolve(&mounted.path, Follow::No);
        let found = mounted.reached.runtime.block_on(finding);
        let object = found.map_err(|error| not_found(url, &error))?;
        if args.json {
            let entry = Entry {
                url: url.clone(),
                name: url.file_name(),
                object: Some(object),
            };
            files.push(entry.json(&mounted)?);
            return Ok(());
        }
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
    });
    match args.json {
        true => output::ended(shown, output::json(&files.into())),
        false => shown,
    }
}

impl Entry<'_> {
    /// Returns name, URL and attributes. A name that is no text is escaped; its URL is exact.
    fn json(&self, mounted: &Mounted) -> Result<Value, Failure> {
        let mut value = json!({
            "name": DisplayPath::from(self.name).to_string(),
            "url": self.url.to_string(),
        });
        let Some(object) = &self.object else {
            return Ok(value);
        };
        let it = &object.attributes;
        let date = |time: NfsTime| {
            let date = show_date(u64::from(time.seconds)).replace(' ', "T");
            format!("{date}.{:09}Z", time.nanos)
        };
        value["type"] = type_name(it.file_type).into();
        value["mode"] = format!("{:04o}", it.mode & 0o7777).into();
        for (key, number) in [
            ("links", it.nlink.into()),
            ("uid", it.uid.into()),
            ("gid", it.gid.into()),
            ("size", it.size),
            ("used", it.used),
            ("fileid", it.fileid),
        ] {
            value[key] = number.into();
        }
        for (key, time) in [
            ("access", it.atime),
            ("modify", it.mtime),
            ("change", it.ctime),
        ] {
            value[key] = date(time).into();
        }
        if it.file_type == FileType::Symlink {
            let target = read_link(mounted, &self.url, object)?;
            value["target"] = target.to_string().into();
        }
        Ok(value)
    }
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
