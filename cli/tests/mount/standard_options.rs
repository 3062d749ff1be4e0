//! The options of mount(8) for every type of file system, given to `rpcrdma mount` and to mount(8)
//! itself.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Place;
use crate::common::fuse::{has_namespaces, in_namespace, is_usable, left_out};
use crate::common::{self, Proto, Server, address, options, rpcrdma, run};

/// A directory with the helpers of mount(8), and a script's first lines that put it in the place of
/// `/sbin`; `$2` is where to mount, and `flags` prints the flags of the mount.
fn helpers(place: &Place) -> (PathBuf, String) {
    let sbin = place.dir.path().join("sbin");
    fs::create_dir(&sbin).unwrap();
    for name in ["mount.rpcrdma", "mount.fuse.rpcrdma"] {
        std::os::unix::fs::symlink(rpcrdma().get_program(), sbin.join(name)).unwrap();
    }
    let [_, options] = options(Proto::Rdma, "");
    let port = place.server.rdma.port();
    let script = format!(
        "mount --bind \"$1\" /sbin; mnt=$2
        flags() {{ awk -v at=\"$mnt\" '$5 == at {{ print $6 }}' /proc/self/mountinfo; }}
        as_helper() {{ mount -t rpcrdma -o \"{options},port={port}$1\" {}:/data \"$mnt\"; }}\n",
        address()
    );
    (sbin, script)
}

#[test]
fn mount_8_mounts_a_source_of_fstab_with_its_own_defaults() {
    if !(has_namespaces() && is_usable()) {
        return;
    }
    let place = Place::new();
    let (sbin, begin) = helpers(&place);
    let script = begin
        + "as_helper ''; flags; grep -cF ':/data rw' /proc/self/mountinfo; umount \"$mnt\"
        as_helper ,nosuid,nodev,noexec; flags; umount \"$mnt\"
        as_helper ,user; flags; umount \"$mnt\"
        as_helper ,strictatime,lazytime,dirsync,silent,nofail; flags; umount \"$mnt\"
        ln -s there \"$3/link\"; echo followed >\"$3/there\"
        as_helper ''; cat \"$mnt/link\"; umount \"$mnt\"
        as_helper ,nosymfollow; flags; ! cat \"$mnt/link\"; umount \"$mnt\"
        ! as_helper ,mand";
    let finished = in_namespace(&script, &[&sbin, &place.mnt(), &place.export()]).ok();
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let wanted = [
        "rw,noatime",
        "1",
        "rw,nosuid,nodev,noexec,noatime",
        "rw,nosuid,nodev,noexec,noatime",
        "rw,noatime",
        "followed",
        "rw,noatime,nosymfollow",
    ];
    assert_eq!(lines, wanted, "{finished:#?}");
    for said in [
        "option strictatime: the server keeps access times",
        "option lazytime: the server keeps",
        "Too many levels of symbolic links",
        "\"mand\" of nfs(5) or mount(8) is not supported here",
    ] {
        assert!(finished.stderr.contains(said), "{said}: {finished:#?}");
    }
}

#[test]
fn mount_8_finds_what_a_line_of_fstab_has_mounted() {
    if !(has_namespaces() && is_usable()) {
        return;
    }
    let place = Place::new();
    let (sbin, begin) = helpers(&place);
    let [_, options] = options(Proto::Rdma, "nosuid,lock");
    let fstab = place.dir.path().join("fstab");
    let (host, port) = (address(), place.server.rdma.port());
    let mnt = place.mnt();
    let line = format!(
        "{host}:/data {} rpcrdma {options},port={port} 0 0\n",
        mnt.display()
    );
    fs::write(&fstab, line).unwrap();
    // The second time, mount(8) finds that it is mounted.
    let script = begin
        + "mount --bind \"$3\" /etc/fstab; mount -a; mount -a; flags
        mount -o remount,ro \"$mnt\"; flags; umount \"$mnt\"; flags";
    let finished = in_namespace(&script, &[&sbin, &mnt, &fstab]).ok();
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(
        lines,
        ["rw,nosuid,noatime", "ro,nosuid,noatime"],
        "{finished:#?}"
    );
    let said = format!("note: remount leaves {options},port={port} as mounted");
    assert!(
        finished.stderr.contains(&said.replace("nosuid,lock,", "")),
        "{finished:#?}"
    );
}

#[test]
fn a_mount_changes_its_flags_while_it_is_used() {
    if !(has_namespaces() && is_usable()) {
        return;
    }
    let place = Place::new();
    let (sbin, begin) = helpers(&place);
    let script = begin
        + "as_helper ,ro; ! touch \"$mnt/one\"; mount -o remount,rw \"$mnt\"; touch \"$mnt/one\"
        mount -o remount,nosuid,noexec,nosymfollow \"$mnt\"; flags
        mount -o remount,suid,symfollow \"$mnt\"; flags
        ! mount -o remount,ro \"$mnt\" 3>\"$mnt/open\"; flags
        mount -o remount,ro \"$mnt\"; flags; ! touch \"$mnt/two\"
        \"$3\" mount -o remount,rw,nodev nfs://any/thing \"$mnt\"; flags; touch \"$mnt/two\"
        umount \"$mnt\"; ! \"$3\" mount -o remount,ro nfs://any/thing \"$mnt\"";
    let program = PathBuf::from(rpcrdma().get_program());
    let finished = in_namespace(&script, &[&sbin, &place.mnt(), &program]).ok();
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let wanted = [
        "rw,nosuid,noexec,noatime,nosymfollow",
        "rw,noexec,noatime",
        "rw,noexec,noatime",
        "ro,noexec,noatime",
        "rw,nodev,noexec,noatime",
    ];
    assert_eq!(lines, wanted, "{finished:#?}");
    for said in ["cannot remount", "busy", "nothing is mounted there"] {
        assert!(finished.stderr.contains(said), "{said}: {finished:#?}");
    }
    assert_eq!(
        finished.stderr.matches("Read-only file system").count(),
        2,
        "{finished:#?}"
    );
    assert!(place.export().join("two").exists());
}

#[test]
fn a_mount_that_becomes_synchronous_has_each_write_at_the_server() {
    if !(rustix::process::geteuid().is_root() && is_usable()) {
        left_out("only root can remount");
        return;
    }
    let place = Place::new();
    run(place.words(&[])).ok();
    let mnt = place.mnt();
    let changed = ["mount", "-o", "remount,sync", "nfs://any/thing"];
    run([&changed[..], &[mnt.to_str().unwrap()]].concat()).ok();
    let mut file = File::create(mnt.join("file")).unwrap();
    file.write_all(b"written").unwrap();
    assert_eq!(fs::read(place.export().join("file")).unwrap(), b"written");
    drop(file);
    place.umount(&[]).ok();
}

/// FUSE shows the sticky bit of directories to the kernel only with `default_permissions`.
#[test]
fn protected_links_need_default_permissions() {
    let protected = fs::read_to_string("/proc/sys/fs/protected_symlinks");
    let protected = protected.is_ok_and(|value| value.trim() == "1");
    if !(rustix::process::geteuid().is_root() && protected && is_usable()) {
        left_out("only root makes links of others, and fs.protected_symlinks has to be on");
        return;
    }
    let place = Place::new();
    let shared = place.export().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
    fs::write(place.export().join("file"), "x").unwrap();
    let link = shared.join("link");
    std::os::unix::fs::symlink("../file", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(65534), Some(65534)).unwrap();
    let read = || fs::read(place.mnt().join("shared/link")).map_err(|error| error.kind());
    run(place.words(&[])).ok();
    assert_eq!(read(), Ok(b"x".to_vec()));
    place.umount(&[]).ok();
    run(place.words(&["-o", "default_permissions"])).ok();
    assert_eq!(read(), Err(ErrorKind::PermissionDenied));
    place.umount(&[]).ok();
}

/// Tests what docs/fuse-programs.md says of `default_permissions`: the kernel decides by the owner
/// that the server reports.
#[test]
fn default_permissions_forbids_what_a_server_that_squashes_allows() {
    if !(has_namespaces() && is_usable()) {
        return;
    }
    let mut place = Place::new();
    let squashed = common::export("data", &place.export(), "all_squash");
    place.server = Server::start(["--export", &squashed]);
    let script = "setpriv --reuid=1000 --regid=1000 --clear-groups sh -c 'echo one >\"$1\"; \
        echo two >>\"$1\"' sh \"$1/$2\"";
    let written = |name: &str| {
        in_namespace(script, &[&place.mnt(), Path::new(name)]);
        fs::read_to_string(place.export().join(name)).unwrap()
    };
    run(place.words(&[])).ok();
    assert_eq!(written("without"), "one\ntwo\n");
    place.umount(&[]).ok();
    run(place.words(&["-o", "default_permissions"])).ok();
    assert_eq!(written("with"), "one\n");
    place.umount(&[]).ok();
}

#[test]
fn a_mount_says_where_locks_hold() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    for (option, noted) in [
        ("lock", true),
        ("local_lock=none", true),
        ("local_lock=all,nolock", false),
    ] {
        let said = run(place.words(&["-o", option])).ok().stderr;
        let note =
            format!("note: mount option {option}: locks hold among the programs of this machine");
        assert_eq!(said.contains(&note), noted, "{option}: {said}");
        place.umount(&[]).ok();
    }
}
