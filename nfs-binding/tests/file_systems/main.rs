//! Tests of file identities on file systems with peculiarities: overlays, btrfs with its snapshots,
//! xfs, and mounts below an export.
//!
//! The file systems are created in files and mounted in a mount namespace of the test's own, which
//! needs root and the tools that create them. If something is missing, a test reports that directly
//! on standard error, because the test harness hides the output of passing tests.
#![expect(
    clippy::unwrap_used,
    reason = "these are tests: what is unwrapped is asserted to be there"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::fs::{Caller, DirectoryFs, FileId, FileSystem, FsError, FsResult, Object};
use nfs_binding::proto::{Access, Attributes, Stable};
use onc_rpc::Bulk;

mod direct;
mod fuse;

/// The environment variable of the process in the mount namespace: an empty directory for it.
const INSIDE: &str = "FILE_SYSTEMS_TEST_DIRECTORY";

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs `command`. On failure, returns its error output.
fn run(command: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-ec", command]).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

fn must(command: &str) {
    if let Err(error) = run(command) {
        panic!("{error}");
    }
}

/// Runs the test `name` by starting this program again in a mount namespace of its own, and `test`
/// in there with an empty directory, if `setup` succeeds in it.
fn mounted(name: &str, setup: &str, test: impl FnOnce(&Path)) {
    if let Some(directory) = std::env::var_os(INSIDE) {
        let directory = PathBuf::from(directory);
        let setup = format!("cd '{}'; {setup}", directory.display());
        match run(&setup) {
            Ok(()) => test(&directory),
            Err(error) => say(&format!(
                "left out, for it cannot be set up here: {name}: {error}"
            )),
        }
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return say(&format!("left out, for it needs root: {name}"));
    }
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let done = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, directory.path())
        .status();
    match done {
        Ok(status) => assert!(status.success(), "{name}: see above"),
        Err(error) => say(&format!(
            "left out, for unshare does not work: {name}: {error}"
        )),
    }
}

fn options() -> DirectoryOptions {
    DirectoryOptions {
        sync: false,
        ..DirectoryOptions::default()
    }
}

fn crossing() -> DirectoryOptions {
    DirectoryOptions {
        crossmnt: true,
        ..options()
    }
}

fn open(path: &Path, options: DirectoryOptions) -> DirectoryFs {
    DirectoryFs::open(path, options).unwrap()
}

fn look_up(fs: &DirectoryFs, path: &str) -> Object {
    let mut found: Option<Object> = None;
    for name in path.split('/') {
        let dir = found.map_or_else(|| fs.root(), |object| object.id);
        let next = fs.lookup(&Caller::root(), &dir, name.as_bytes());
        found = Some(
            next.unwrap_or_else(|error| panic!("{path}: {error}"))
                .object,
        );
    }
    found.unwrap()
}

fn names(fs: &DirectoryFs, dir: &FileId) -> Vec<String> {
    let mut names = Vec::new();
    let listed = fs.readdir(&Caller::root(), dir, 0, [0; 8], true, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    });
    listed.unwrap();
    names.retain(|name| name != "." && name != "..");
    names
}

fn write(fs: &DirectoryFs, file: &FileId, data: &[u8]) {
    let data = Bulk::copy_from(data);
    let written = fs.write(&Caller::root(), file, 0, &data, Stable::Unstable);
    written.result.unwrap();
}

/// Returns the attributes as soon as the file system has found the object, or has found that it is
/// gone.
fn settled(fs: &DirectoryFs, id: &FileId) -> FsResult<Attributes> {
    let begun = Instant::now();
    loop {
        match fs.getattr(id) {
            Err(FsError::Later) if begun.elapsed() < Duration::from_secs(20) => {}
            other => return other,
        }
    }
}

const OVERLAY: &str = "mkdir lower upper work export; echo lower > lower/f; mkdir lower/d; \
     mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work export";

/// Regression test: on an overlay, the next file gets the inode number of a removed one at once.
/// Before the kernel's handles were used, 50 of 50 handles of removed files came to refer to the
/// next one.
#[test]
fn overlay_a_removed_file_is_not_the_next_one() {
    mounted(
        "overlay_a_removed_file_is_not_the_next_one",
        OVERLAY,
        |directory| {
            let export = directory.join("export");
            let fs = open(&export, options());
            let (mut ids, mut numbers) = (Vec::new(), Vec::new());
            for _ in 0..50 {
                fs::write(export.join("x"), b"x").unwrap();
                numbers.push(fs::metadata(export.join("x")).unwrap().ino());
                let id = look_up(&fs, "x").id;
                assert!(!ids.contains(&id), "{numbers:?}");
                ids.push(id);
                fs::remove_file(export.join("x")).unwrap();
                assert_eq!(settled(&fs, &id), Err(FsError::Stale));
            }
            numbers.sort_unstable();
            numbers.dedup();
            assert!(
                numbers.len() < 50,
                "no number was used again: nothing was tested"
            );
        },
    );
}

#[test]
fn overlay_a_file_is_the_same_before_and_after_it_is_copied_up() {
    let name = "overlay_a_file_is_the_same_before_and_after_it_is_copied_up";
    mounted(name, OVERLAY, |directory| {
        let export = directory.join("export");
        let fs = open(&export, options());
        let (file, dir) = (look_up(&fs, "f").id, look_up(&fs, "d").id);
        write(&fs, &file, b"UPPER");
        fs::write(export.join("d/new"), b"new").unwrap();
        assert_eq!(fs::read(directory.join("upper/f")).unwrap(), b"UPPER\n");
        assert_eq!((look_up(&fs, "f").id, look_up(&fs, "d").id), (file, dir));
        let again = open(&export, options());
        assert_eq!(
            (look_up(&again, "f").id, look_up(&again, "d").id),
            (file, dir)
        );
        // The kernel cannot open its files by handle, so an index finds them.
        let fresh = open(&export, options());
        assert_eq!(settled(&fresh, &file).unwrap().size, 6);
        // After another mount the file system counts as another one, unless it keeps its number.
        must(&format!(
            "cd '{}'; umount --lazy export; mount -t overlay overlay \
             -o lowerdir=lower,upperdir=upper,workdir=work export",
            directory.display()
        ));
        let numbered = DirectoryOptions {
            fsid: Some(7),
            ..options()
        };
        let id = look_up(&open(&export, numbered), "f").id;
        assert_eq!(settled(&open(&export, numbered), &id).unwrap().size, 6);
    });
}

/// A directory with files in both layers, which the kernel has to merge.
const MERGED: &str = "mkdir -p lower/d upper/d work export; \
     for n in $(seq 300); do echo > lower/d/lower$n; echo > upper/d/upper$n; done; \
     mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work export";

/// A cookie of an overlay's own is the number of an entry in a list that the kernel makes when the
/// directory is opened, so it meant another entry after a REMOVE, and `rm -r` left files behind.
#[test]
fn overlay_what_is_removed_while_it_is_listed_hides_nothing_else() {
    let name = "overlay_what_is_removed_while_it_is_listed_hides_nothing_else";
    mounted(name, MERGED, |directory| {
        let export = directory.join("export");
        let fs = open(&export, options());
        let (who, dir) = (Caller::root(), look_up(&fs, "d").id);
        // Clients also go on after an entry in the middle of a reply, of which they have used a
        // part.
        for (asked, used) in [(10, 10), (usize::MAX, 50)] {
            must(&format!(
                "cd '{}'; for n in $(seq 300); do echo > d/again$n; done",
                export.display()
            ));
            let (mut cookie, mut eof) = (0, false);
            while !eof {
                let mut listed = Vec::new();
                let listing = fs.readdir(&who, &dir, cookie, [0; 8], false, &mut |entry| {
                    let taken = listed.len() < asked;
                    if taken {
                        listed.push((entry.name.to_vec(), entry.cookie));
                    }
                    taken
                });
                eof = listing.unwrap().eof && listed.len() <= used;
                listed.truncate(used);
                for (name, at) in listed {
                    cookie = at;
                    if name != b"." && name != b".." {
                        assert_eq!(fs.remove(&who, &dir, &name).result, Ok(()));
                    }
                }
            }
            assert_eq!(names(&fs, &dir), [""; 0], "{asked} asked for");
        }
        assert_eq!(fs.rmdir(&who, &fs.root(), b"d").result, Ok(()));
    });
}

const BTRFS: &str = "truncate -s 200M image; mkfs.btrfs -q image; mkdir export; \
     mount -o loop image export; cd export; btrfs -q subvolume create live; \
     echo live > live/f; mkdir live/d; btrfs -q subvolume snapshot live snap";

/// Regression test: a snapshot has the inode numbers and birth times of the live tree, so a write
/// to one file went to the other.
#[test]
fn btrfs_a_snapshot_is_not_the_live_tree() {
    mounted(
        "btrfs_a_snapshot_is_not_the_live_tree",
        BTRFS,
        |directory| {
            let export = directory.join("export");
            let fs = open(&export, crossing());
            let (live, snap) = (look_up(&fs, "live/f"), look_up(&fs, "snap/f"));
            assert_ne!(live.id, snap.id);
            assert_eq!(live.attributes.fileid, snap.attributes.fileid);
            assert_ne!(
                live.attributes.fsid, snap.attributes.fsid,
                "clients tell them apart by it"
            );
            write(&fs, &live.id, b"LIVE");
            assert_eq!(fs::read(export.join("live/f")).unwrap(), b"LIVE\n");
            assert_eq!(fs::read(export.join("snap/f")).unwrap(), b"live\n");
            let dir = look_up(&fs, "snap").id;
            assert_eq!(fs.remove(&Caller::root(), &dir, b"f").result, Ok(()));
            assert_eq!(fs.getattr(&snap.id), Err(FsError::Stale));
            assert!(fs.getattr(&live.id).is_ok() && export.join("live/f").exists());
            // After a restart, each is found in its own subvolume.
            let inner = look_up(&fs, "snap/d").id;
            let again = open(&export, crossing());
            assert_eq!(settled(&again, &live.id).unwrap().size, 5);
            assert_eq!(look_up(&again, "snap/d").id, inner);
            let other = open(&export, crossing());
            assert!(
                settled(&other, &inner).is_ok(),
                "without having been looked up"
            );
            let up = other.lookup(&Caller::root(), &dir, b"..").unwrap().object;
            assert_eq!(up.id, other.root());
        },
    );
}

#[test]
fn btrfs_subvolumes_are_empty_directories_without_crossmnt() {
    let name = "btrfs_subvolumes_are_empty_directories_without_crossmnt";
    mounted(name, BTRFS, |directory| {
        let export = directory.join("export");
        let fs = open(&export, options());
        for subvolume in ["live", "snap"] {
            let object = look_up(&fs, subvolume);
            assert!(object.mounted.is_some());
            assert!(names(&fs, &object.id).is_empty());
            let refused = fs.rmdir(&Caller::root(), &fs.root(), subvolume.as_bytes());
            assert_eq!(refused.result, Err(FsError::Access));
        }
        assert!(export.join("live/f").exists());
        // A subvolume can be exported by itself.
        let live = open(&export.join("live"), options());
        assert_eq!(look_up(&fs, "live").mounted, live.mounted_root());
        assert_eq!(names(&live, &live.root()), ["f", "d"]);
    });
}

const COPY: &str = "truncate -s 32M image; mke2fs -q -F -t ext4 image; mkdir export; \
     mount -o loop image export; mkdir export/copy; echo live > export/f; umount export; \
     cp image other; mount -o loop image export; mount -o loop other export/copy; \
     echo other > export/copy/f";

/// A copy of a file system has the same number, and files with the same inode numbers and
/// generations.
#[test]
fn a_copy_of_the_exports_file_system_below_it_is_not_crossed_into() {
    let name = "a_copy_of_the_exports_file_system_below_it_is_not_crossed_into";
    mounted(name, COPY, |directory| {
        let export = directory.join("export");
        let fs = open(&export, crossing());
        let live = look_up(&fs, "f");
        let copy = look_up(&fs, "copy");
        assert!(copy.mounted.is_some() && names(&fs, &copy.id).is_empty());
        write(&fs, &live.id, b"LIVE");
        assert_eq!(fs::read(export.join("copy/f")).unwrap(), b"other\n");
        // Exported by itself with a number of its own, it is a different file system.
        let numbered = DirectoryOptions {
            fsid: Some(7),
            ..options()
        };
        let other = open(&export.join("copy"), numbered);
        assert_ne!(look_up(&other, "f").id, live.id);
    });
}

const READ_ONLY: &str = "mkdir export export/data export/view; echo data > export/data/f; \
     mount --bind export/data export/view; mount -o remount,bind,ro export/view";

/// If the same directory is mounted a second time with fewer rights, it must not be served with the
/// rights of the first mount.
#[test]
fn a_bind_mount_below_an_export_is_not_crossed_into() {
    let name = "a_bind_mount_below_an_export_is_not_crossed_into";
    mounted(name, READ_ONLY, |directory| {
        let fs = open(&directory.join("export"), crossing());
        let view = look_up(&fs, "view");
        assert!(view.mounted.is_some() && names(&fs, &view.id).is_empty());
        assert_eq!(names(&fs, &look_up(&fs, "data").id), ["f"]);
    });
}

const MOUNTS: &str = "mkdir export export/below; mount -t tmpfs tmpfs export/below; \
     mkdir 'export/below/a b'; echo below > 'export/below/a b/f'; \
     mkdir 'export/below/a b/deeper'; mount -t tmpfs tmpfs 'export/below/a b/deeper'; \
     echo deeper > 'export/below/a b/deeper/f'";

#[test]
fn mounts_below_are_crossed_into_with_crossmnt_and_found_after_a_restart() {
    let name = "mounts_below_are_crossed_into_with_crossmnt_and_found_after_a_restart";
    mounted(name, MOUNTS, |directory| {
        let export = directory.join("export");
        let fs = open(&export, crossing());
        let paths = ["below/a b/f", "below/a b/deeper/f", "below/a b/deeper"];
        let objects = paths.map(|path| look_up(&fs, path));
        let mut numbers = objects
            .clone()
            .map(|object| object.attributes.fsid)
            .to_vec();
        numbers.dedup();
        assert_eq!(numbers.len(), 2, "two file systems");
        for object in &objects {
            let again = open(&export, crossing());
            let attributes = settled(&again, &object.id);
            assert_eq!(attributes, Ok(object.attributes.clone()));
        }
        let up = fs
            .lookup(&Caller::root(), &objects[2].id, b"..")
            .unwrap()
            .object;
        assert_eq!(up.id, look_up(&fs, "below/a b").id);
        // A hard link or a rename from one to the other has the result that the host returns.
        let below = look_up(&fs, "below/a b").id;
        let linked = fs
            .link(&Caller::root(), &objects[1].id, &below, b"g")
            .result;
        assert_eq!(linked.unwrap_err(), FsError::CrossDevice);
        let plain = open(&export, options());
        assert_eq!(plain.getattr(&objects[0].id), Err(FsError::Stale));
        assert!(names(&plain, &look_up(&plain, "below").id).is_empty());
    });
}

#[test]
fn a_file_system_below_that_was_only_listed_can_be_unmounted() {
    let name = "a_file_system_below_that_was_only_listed_can_be_unmounted";
    let setup = "mkdir -p export/below; mount -t tmpfs tmpfs export/below";
    mounted(name, setup, |directory| {
        let export = directory.join("export");
        let fs = open(&export, crossing());
        assert_eq!(names(&fs, &fs.root()), ["below"]);
        let unmount = format!("umount '{}'", export.join("below").display());
        let begun = Instant::now();
        while let Err(error) = run(&unmount) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        }
    });
}

const FILE_MOUNT: &str = "mkdir other export export/below; mount -t tmpfs tmpfs other; \
     echo file > other/f; touch export/file; mount --bind other/f export/file; \
     mount --bind other export/below";

/// A file can be a mount point, too. It is not served, and does not hide the file system that it is
/// in.
#[test]
fn a_file_mounted_below_does_not_hide_its_file_system_after_a_restart() {
    let name = "a_file_mounted_below_does_not_hide_its_file_system_after_a_restart";
    mounted(name, FILE_MOUNT, |directory| {
        let export = directory.join("export");
        let fs = open(&export, crossing());
        let file = look_up(&fs, "below/f");
        let again = open(&export, crossing());
        assert_eq!(settled(&again, &file.id), Ok(file.attributes));
        for fs in [again, open(&export, options())] {
            let found = fs.lookup(&Caller::root(), &fs.root(), b"file");
            assert_eq!(found.unwrap_err(), FsError::Access);
            let mut listed = Vec::new();
            fs.readdir(&Caller::root(), &fs.root(), 0, [0; 8], true, &mut |entry| {
                listed.push((entry.name.to_vec(), entry.object.is_some()));
                true
            })
            .unwrap();
            assert!(listed.contains(&(b"file".to_vec(), false)), "{listed:?}");
        }
    });
}

/// Without `crossmnt`, a file system mounted below the export whose server does not answer does not
/// hold calls up.
#[test]
fn a_dead_mount_below_an_export_holds_nothing_up() {
    let name = "a_dead_mount_below_an_export_holds_nothing_up";
    mounted(
        name,
        "mkdir -p export/dead; test -c /dev/fuse",
        |directory| {
            let export = directory.join("export");
            // Nobody reads the kernel's requests.
            let server = fs::File::options().read(true).write(true).open("/dev/fuse");
            let server = server.unwrap();
            let mut mount = Command::new("mount");
            mount
                .args(["-i", "-t", "fuse", "dead"])
                .arg(export.join("dead"));
            mount.args(["-o", "fd=0,rootmode=40000,user_id=0,group_id=0"]);
            mount.stdin(server.try_clone().unwrap());
            if !mount.status().unwrap().success() {
                return say(&format!(
                    "left out, for FUSE cannot be mounted here: {name}"
                ));
            }
            // Only this one is left, so that the file system ends with it.
            drop(mount);
            let (done, found) = std::sync::mpsc::channel();
            let call = std::thread::spawn(move || {
                let fs = open(&export, options());
                let dead = look_up(&fs, "dead");
                let mut listed = None;
                fs.readdir(&Caller::root(), &fs.root(), 0, [0; 8], true, &mut |entry| {
                    if entry.name == b"dead" {
                        listed = entry.object.map(|object| object.id);
                    }
                    true
                })
                .unwrap();
                assert_eq!(listed, Some(dead.id));
                assert!(dead.mounted.is_some() && names(&fs, &dead.id).is_empty());
                let _ = done.send(());
            });
            let answered = found.recv_timeout(Duration::from_secs(10));
            drop(server);
            call.join().unwrap();
            assert_eq!(answered, Ok(()), "a call waited for the dead server");
        },
    );
}

/// A FUSE daemon gives its files other node ids when it is started again, so an old handle could
/// come to mean another file.
#[test]
fn fuse_is_refused_unless_it_has_birth_times_or_reuse_is_accepted() {
    let name = "fuse_is_refused_unless_it_has_birth_times_or_reuse_is_accepted";
    mounted(name, "mkdir plain births", |directory| {
        let [plain, births] = ["plain", "births"].map(|name| directory.join(name));
        let mounted = [(&plain, false), (&births, true)];
        let mounted = mounted.map(|(path, births)| fuse::Mounted::at(path, births));
        let [Some(_), Some(with_births)] = mounted else {
            return say(&format!(
                "left out, for FUSE cannot be mounted here: {name}"
            ));
        };
        let refused = DirectoryFs::open(&plain, options()).unwrap_err();
        assert!(refused.to_string().contains("inode_reuse"), "{refused}");
        let accepting = DirectoryOptions {
            inode_reuse: true,
            ..options()
        };
        open(&plain, accepting);
        let opened = DirectoryFs::open(&births, options());
        if with_births.asked_for_birth() {
            opened.unwrap();
        } else {
            say(&format!(
                "left out in part, for it needs birth times in FUSE (Linux 6.6): {name}"
            ));
        }
    });
}

/// The device number takes the place of the number (`f_fsid`) that a FUSE file system does not have: when the
/// server searches for the file system after a restart, and when it finds a second mount of it.
#[test]
fn fuse_below_is_found_after_a_restart_and_crossed_into_once() {
    let name = "fuse_below_is_found_after_a_restart_and_crossed_into_once";
    mounted(name, "mkdir -p export/below export/again", |directory| {
        let export = directory.join("export");
        if fuse::Mounted::at(&export.join("below"), false).is_none() {
            return say(&format!(
                "left out, for FUSE cannot be mounted here: {name}"
            ));
        }
        let accepting = DirectoryOptions {
            inode_reuse: true,
            ..crossing()
        };
        let fs = open(&export, accepting);
        let below = look_up(&fs, "below");
        assert!(below.mounted.is_none());
        let restarted = open(&export, accepting);
        assert_eq!(settled(&restarted, &below.id), Ok(below.attributes));
        let bind = format!("cd '{}'; mount --bind below again", export.display());
        must(&bind);
        // Opens the first mount again, which the idle closer may have forgotten.
        look_up(&fs, "below");
        assert!(look_up(&fs, "again").mounted.is_some());
    });
}

/// The thread that serves all connections asks no file system in FUSE: its daemon may not answer.
#[test]
fn fuse_that_does_not_answer_is_left_to_workers() {
    let name = "fuse_that_does_not_answer_is_left_to_workers";
    let setup =
        "mkdir export; mount -t tmpfs tmpfs export; mkdir export/below; echo text > export/f";
    mounted(name, setup, |directory| {
        let export = directory.join("export");
        let Some(below) = fuse::Mounted::at(&export.join("below"), false) else {
            return say(&format!(
                "left out, for FUSE cannot be mounted here: {name}"
            ));
        };
        let accepting = DirectoryOptions {
            inode_reuse: true,
            ..crossing()
        };
        let fs = open(&export, accepting);
        let (slow, file) = (look_up(&fs, "below").id, look_up(&fs, "f").id);
        let (who, mut buf) = (Caller::root(), [0; 10]);
        assert_eq!(fs.read(&who, &file, 0, &mut buf).unwrap().count, 5);
        let (attempts, root) = (fs.nonblocking().unwrap(), fs.root());
        below.set_asleep(true);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| fs.getattr(&slow));
            below.wait_for_request();
            let (tell, told) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let mut buf = [0; 10];
                let read = attempts.read(&who, &file, 0, &mut buf);
                let others = (
                    attempts.getattr(&file).is_some(),
                    read.map(|read| read.count),
                );
                let below = [
                    attempts.lookup(&who, &root, b"below").is_some(),
                    attempts.getattr(&slow).is_some(),
                    attempts.access(&who, &slow, Access::READ).is_some(),
                ];
                tell.send((others, below)).unwrap();
            });
            let answers = told.recv_timeout(Duration::from_secs(20));
            let waits = !worker.is_finished();
            below.set_asleep(false);
            assert!(worker.join().unwrap().is_ok());
            assert_eq!(answers, Ok(((true, Some(5)), [false; 3])));
            assert!(waits, "the file system answered");
        });
    });
}

/// GETATTR and LOOKUP agree on which file system a placeholder directory belongs to: that of the
/// directory that it is in.
#[test]
fn a_placeholder_below_another_file_system_belongs_to_that() {
    let name = "a_placeholder_below_another_file_system_belongs_to_that";
    mounted(name, MOUNTS, |directory| {
        let export = directory.join("export");
        let deeper = open(&export.join("below/a b/deeper"), options());
        let other_exports = [deeper.mounted_root().unwrap()];
        let fs = open(&export, crossing());
        fs.set_other_exports(&other_exports);
        let (dir, inner) = (look_up(&fs, "below/a b"), look_up(&fs, "below/a b/deeper"));
        assert!(inner.mounted.is_some());
        assert_eq!(inner.attributes.fsid, dir.attributes.fsid);
        assert_eq!(fs.getattr(&inner.id), Ok(inner.attributes));
    });
}

const XFS: &str = "truncate -s 400M image; mkfs.xfs -q image; mkdir export; \
     mount -o loop image export";

#[test]
fn xfs_handles_outlive_a_restart_and_files_do_not_take_their_successors_place() {
    let name = "xfs_handles_outlive_a_restart_and_files_do_not_take_their_successors_place";
    mounted(name, XFS, |directory| {
        let export = directory.join("export");
        let fs = open(&export, options());
        let mut ids = Vec::new();
        for _ in 0..20 {
            fs::write(export.join("x"), b"x").unwrap();
            let id = look_up(&fs, "x").id;
            assert!(!ids.contains(&id));
            ids.push(id);
            fs::remove_file(export.join("x")).unwrap();
        }
        fs::write(export.join("kept"), b"kept").unwrap();
        let kept = look_up(&fs, "kept").id;
        let again = open(&export, options());
        assert_eq!(again.getattr(&kept).unwrap().size, 4);
        for id in &ids {
            assert_eq!(again.getattr(id), Err(FsError::Stale));
        }
    });
}

/// Makes an ext4 with this UUID at a time that `made` gives.
const WITH_UUID: &str = "E2FSPROGS_FAKE_TIME=$made \
     mke2fs -q -F -t ext4 -U 8e7b8b3c-5c33-4c3a-9f43-0a6a2b8a6a10 image";

/// A file system can take the place of another one, with its UUID and the same inode number and
/// generation for its root. The identity of an export does not change when its file system is
/// mounted again, and does when that is another one.
#[test]
fn an_export_is_another_one_in_a_file_system_that_was_made_again() {
    let name = "an_export_is_another_one_in_a_file_system_that_was_made_again";
    let setup = format!(
        "truncate -s 32M image; made=1500000000; {WITH_UUID}; mkdir export; \
         mount -o loop image export; mkdir export/d"
    );
    mounted(name, &setup, |directory| {
        let export = directory.join("export");
        let root = || open(&export, options()).root_identity();
        let below = || open(&export.join("d"), options()).root_identity();
        let after = |change: &str| {
            must(&format!(
                "cd '{}'; umount export; {change}; mount -o loop image export",
                directory.display()
            ));
        };
        let before = (root(), below());
        assert_ne!(before.0, before.1);
        after("true");
        assert_eq!((root(), below()), before);
        after(&format!("made=1600000000; {WITH_UUID}"));
        assert_ne!(root(), before.0, "made again with the same UUID");
        let id = open(&export, options()).root();
        assert!(
            before.0.starts_with(id.as_bytes()),
            "the birth alone differs"
        );
    });
}

/// The number of xfs is that of its device.
#[test]
fn an_export_is_another_one_in_an_xfs_that_was_made_again_on_its_device() {
    let name = "an_export_is_another_one_in_an_xfs_that_was_made_again_on_its_device";
    let setup = "truncate -s 400M image; mkdir export; mkfs.xfs -q image; \
         losetup -f --show image > device; mount $(cat device) export";
    mounted(name, setup, |directory| {
        let export = directory.join("export");
        let root = || open(&export, options()).root_identity();
        let with = |command: &str| must(&format!("cd '{}'; {command}", directory.display()));
        let before = root();
        with("umount export; mount $(cat device) export");
        let mounted_again = root();
        with("umount export; mkfs.xfs -q -f $(cat device); mount $(cat device) export");
        let made_again = root();
        with("umount export; losetup -d $(cat device)");
        assert_eq!(mounted_again, before);
        assert_ne!(made_again, before);
        assert_eq!(made_again[..8], before[..8], "it is the same device");
    });
}
