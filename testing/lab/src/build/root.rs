//! Builds trees from packages: QEMU, and the guest's root file system.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::build::{Site, extract};
use crate::cache;
use crate::command::Tool;
use crate::error::Error;

/// The users that the packages' scripts would have created.
const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1::/:/bin/false
bin:x:2:2::/:/bin/false
_rpc:x:101:65534::/run/rpcbind:/bin/false
statd:x:102:65534::/var/lib/nfs:/bin/false
tcpdump:x:103:65534::/:/bin/false
nobody:x:65534:65534::/nonexistent:/bin/false
";

/// The files that the guest needs and no package contains.
const FILES: [(&str, &str); 11] = [
    ("etc/passwd", PASSWD),
    (
        "etc/group",
        "root:x:0:\ndaemon:x:1:\nbin:x:2:\ntcpdump:x:103:\nnogroup:x:65534:\n",
    ),
    ("etc/hosts", "127.0.0.1 localhost guest\n"),
    ("etc/hostname", "guest\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n\
         rpc: files\nnetgroup: files\n",
    ),
    ("etc/exports", ""),
    ("etc/netconfig", NETCONFIG),
    ("var/lib/nfs/etab", ""),
    ("var/lib/nfs/rmtab", ""),
    ("var/lib/nfs/xtab", ""),
    ("var/lib/nfs/state", ""),
];

/// The transports that libtirpc supports. Its package creates this file when it is configured.
const NETCONFIG: &str = "\
udp        tpi_clts      v     inet     udp     -       -
tcp        tpi_cots_ord  v     inet     tcp     -       -
udp6       tpi_clts      v     inet6    udp     -       -
tcp6       tpi_cots_ord  v     inet6    tcp     -       -
local      tpi_cots_ord  -     loopback -       -       -
";

/// The directories that are mount points or are written to.
const FOLDERS: [&str; 14] = [
    "dev",
    "export",
    "lab",
    "mnt",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "var/lib/nfs/nfsdcld",
    "var/lib/nfs/rpc_pipefs",
    "var/lib/nfs/sm",
    "var/lib/nfs/sm.bak",
    "var/lib/nfs/v4recovery",
];

/// The links that alternatives would have created, if no package contains them.
const LINKS: [(&str, &str); 4] = [
    ("usr/bin/awk", "mawk"),
    ("usr/bin/which", "which.debianutils"),
    ("usr/bin/sh", "dash"),
    ("etc/mtab", "/proc/mounts"),
];

/// Extracts QEMU with its libraries, for use with `LD_LIBRARY_PATH`.
pub(super) fn qemu(site: &Site<'_>, to: &Path) -> Result<(), Error> {
    // The C library is the machine's own, because it has to match the machine's dynamic linker.
    let needed = |name: &str| name != "libc6";
    let packages = site.pins.qemu.iter();
    let packages: Vec<_> = packages
        .filter(|package| needed(&package.name))
        .cloned()
        .collect();
    site.apt.download(&packages, site.log)?;
    extract::skeleton(to)?;
    extract::packages(site, &packages, to)
}

/// Builds the guest's root: packages, and the files that their scripts would have created.
pub(super) fn guest(site: &Site<'_>, to: &Path) -> Result<(), Error> {
    site.apt.download(&site.pins.guest, site.log)?;
    // The tree is beside the step's key, which is not part of the guest.
    let tree = to.join("tree");
    fs::create_dir_all(&tree).map_err(Error::file(&tree))?;
    extract::skeleton(&tree)?;
    extract::packages(site, &site.pins.guest, &tree)?;
    for folder in FOLDERS {
        let folder = tree.join(folder);
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    }
    for (path, text) in FILES {
        cache::write(&tree.join(path), text)?;
    }
    for (path, target) in LINKS {
        let link = tree.join(path);
        if link.symlink_metadata().is_err() {
            symlink(target, &link).map_err(Error::file(&link))?;
        }
    }
    Tool::new("ldconfig").arg("-r").arg(&tree).run(site.stop)?;
    Ok(())
}
