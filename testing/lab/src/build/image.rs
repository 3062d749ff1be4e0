//! Builds the boot files of the machine: an initramfs, and the image of the root file system.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use crate::build::{Part, Site};
use crate::cache;
use crate::command::Tool;
use crate::error::Error;

/// The time-out of creating a file system.
const LIMIT: Duration = Duration::from_secs(300);
/// The free space in the image in bytes, besides an eighth of the size of its files: programs of the
/// lanes are copied there, with the information that backtraces need. The file has holes instead.
const ROOM: u64 = 512 << 20;
/// The commands that the initramfs uses, all of BusyBox.
const COMMANDS: [&str; 6] = ["modprobe", "mount", "sh", "sleep", "switch_root", "insmod"];

/// Builds `root.ext4`.
pub(super) fn disk(site: &Site<'_>, to: &Path) -> Result<(), Error> {
    let tree = to.join("tree");
    let root = site.cache.step(Part::Root.name()).join("tree");
    let modules = site.cache.step(Part::Kernel.name()).join("modules/lib");
    // The trees are hard links: files are only added, never written to.
    for (from, to) in [(root, tree.clone()), (modules, tree.join("usr/lib"))] {
        Tool::new("cp")
            .args(["--archive", "--link"])
            .args([from.join("."), to])
            .run(site.stop)?;
    }
    script(&tree.join("init"), &site.scripts.init)?;

    let used = Tool::new("du")
        .args(["--summarize", "--bytes"])
        .arg(&tree)
        .run(site.stop)?;
    let used: u64 = used
        .split_whitespace()
        .next()
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or_default();
    let size = (used + used / 8 + ROOM) >> 10;
    Tool::new("mke2fs")
        .args([
            "-q",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            "-m",
            "0",
            "-L",
            "root",
            "-d",
        ])
        .arg(&tree)
        .arg(to.join("root.ext4"))
        .arg(format!("{size}k"))
        .limit(LIMIT)
        .run(site.stop)?;
    cache::remove(&tree)
}

/// Builds `initramfs.cpio`: BusyBox and the modules that are needed for mounting the root file
/// system.
pub(super) fn initramfs(site: &Site<'_>, to: &Path) -> Result<(), Error> {
    let tree = to.join("tree");
    for folder in ["bin", "proc", "sys", "dev", "newroot"] {
        let folder = tree.join(folder);
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    }
    let early = site.cache.step(Part::Kernel.name()).join("early");
    Tool::new("cp")
        .args(["--archive".into(), early.join("."), tree.clone()])
        .run(site.stop)?;
    let busybox = site.cache.step(Part::Root.name()).join("tree/bin/busybox");
    fs::copy(&busybox, tree.join("bin/busybox")).map_err(Error::file(&busybox))?;
    for name in COMMANDS {
        let link = tree.join("bin").join(name);
        symlink("busybox", &link).map_err(Error::file(&link))?;
    }
    symlink("bin", tree.join("sbin")).map_err(Error::file(tree.join("sbin")))?;
    script(&tree.join("init"), &site.scripts.initramfs)?;

    let names = Tool::new("find")
        .args([".", "-print0"])
        .folder(&tree)
        .run(site.stop)?;
    let list = to.join("names");
    cache::write(&list, &names)?;
    let image = to.join("initramfs.cpio");
    Tool::new("cpio")
        .args([
            "--create",
            "--null",
            "--format=newc",
            "--owner=+0:+0",
            "--quiet",
        ])
        .folder(&tree)
        .input(File::open(&list).map_err(Error::file(&list))?)
        .output(File::create(&image).map_err(Error::file(&image))?)
        .run(site.stop)?;
    fs::remove_file(&list).map_err(Error::file(&list))?;
    cache::remove(&tree)
}

fn script(path: &Path, text: &str) -> Result<(), Error> {
    cache::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(Error::file(path))
}
