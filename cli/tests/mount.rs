//! Tests of `mount` and `umount` as a user meets them. Those that need `/dev/fuse`, or root, say on
//! standard error that they were left out where there is none.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;
#[path = "mount/standard_options.rs"]
mod standard_options;

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::fuse::{has_namespaces, in_namespace, is_usable, left_out, mounted, until};
use common::{
    Proto, Running, Server, address, copy_program, is_iwarp, options, rpcrdma, rpcrdma_within, run,
};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A directory to export, one to mount at, and a server. Dropping it unmounts.
struct Place {
    dir: TempDir,
    server: Server,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Other users get there as well.
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["export", "mnt"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let export = dir.path().join("export");
        fs::set_permissions(&export, PermissionsExt::from_mode(0o777)).unwrap();
        let server = Server::of(&export);
        Self { dir, server }
    }

    /// Kills the server and starts one of `directory` in its place.
    #[track_caller]
    fn restart(&mut self, directory: &Path) {
        let export = common::export("data", directory, "no_root_squash");
        self.server.restart(["--export", &export]);
    }

    fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// Returns the words that mount the export at `at`.
    fn words_at(&self, at: &Path, more: &[&str]) -> Vec<String> {
        let url = self.server.url(Proto::Rdma, "/data");
        let mut words = vec!["mount".to_owned(), url, at.to_str().unwrap().to_owned()];
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.extend(options(Proto::Rdma, ""));
        words
    }

    fn words(&self, more: &[&str]) -> Vec<String> {
        self.words_at(&self.mnt(), more)
    }

    /// Starts a mount in the foreground, whose process may have so many descriptors.
    #[track_caller]
    fn within(&self, descriptors: u64) -> Running {
        let mut mount = rpcrdma_within(descriptors);
        let running = Running::start(mount.args(self.words(&["-f"])));
        until("a mount", || mounted(&self.mnt()).is_some());
        running
    }

    /// Starts a mount in the foreground. The process has prepared everything when it answers.
    #[track_caller]
    fn in_foreground(&self) -> Running {
        let running = Running::start(rpcrdma().args(self.words(&["-f"])));
        let missing = self.mnt().join("missing");
        until("a mount that answers", || {
            let answer = || fs::metadata(&missing).map_err(|error| error.kind());
            mounted(&self.mnt()).is_some() && answer().is_err_and(|it| it == ErrorKind::NotFound)
        });
        running
    }

    #[track_caller]
    fn umount(&self, more: &[&str]) -> common::Finished {
        run([&["umount", self.mnt().to_str().unwrap()], more].concat())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if mounted(&self.mnt()).is_some() {
            run(["umount", "--lazy", self.mnt().to_str().unwrap()]);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_started() {
    let usage = |args: &[&str], said: &str| {
        let finished = run(args);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        assert!(finished.stderr.contains(said), "{finished:#?}");
    };
    let url = "nfs://127.0.0.1/data";
    usage(&["mount", url], "MOUNTPOINT");
    usage(&["mount", "/data", "/mnt"], "/data");
    usage(
        &["mount", url, "/mnt", "-o", "acregmin=soon"],
        "acregmin=soon",
    );
    usage(
        &["mount", url, "/mnt", "-o", "lookupcache=some"],
        "lookupcache=some",
    );
    usage(&["mount", url, "/mnt", "-o", "softer"], "did you mean");
    usage(
        &["mount", url, "/mnt", "-o", "proto=tcp,features=ddp"],
        "features",
    );
    usage(
        &["ls", url, "-o", "remount"],
        "only `rpcrdma mount` has something to change",
    );
    usage(&["umount"], "MOUNTPOINT");
}

/// Files that programs open in the mount take no descriptors of the mount process.
#[test]
fn many_files_are_open_in_a_mount_with_few_descriptors() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let mount = place.within(64);
    let open: Vec<File> = (0..300)
        .map(|name| {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(place.mnt().join(name.to_string()))
                .unwrap();
            write!(file, "content of {name}").unwrap();
            file
        })
        .collect();
    for (name, file) in open.into_iter().enumerate() {
        file.sync_all().unwrap();
        let there = fs::read_to_string(place.export().join(name.to_string()));
        assert_eq!(there.unwrap(), format!("content of {name}"));
    }
    // A command that another test starts has these files open too until it runs.
    place.umount(&["--lazy"]).ok();
    mount.finish().ok();
}

#[test]
fn the_process_in_the_background_says_why_it_could_not_mount() {
    let listener = TcpListener::bind((address(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let dir = tempfile::tempdir().unwrap();
    let url = format!("nfs://{}:{port}/data", address());
    let mut words = vec!["mount".to_owned(), url, dir.path().display().to_string()];
    words.extend(options(Proto::Rdma, ""));
    let said = run(&words).fails_with(&["cannot connect", "rpcrdma serve"]);
    assert_eq!(said.stderr.lines().count(), 1, "{said:#?}");
}

#[test]
fn what_cannot_be_mounted_at_is_named() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let missing = place.dir.path().join("missing");
    run(place.words_at(&missing, &[]))
        .fails_with(&["missing: there is no such directory", "mkdir -p"]);
    let file = place.dir.path().join("file");
    fs::write(&file, "").unwrap();
    run(place.words_at(&file, &[])).fails_with(&["file: is not a directory"]);
    place.umount(&[]).fails_with(&["nothing is mounted there"]);
    run(["umount", "/proc"]).fails_with(&["a mount of type proc"]);
    let missing = run(["umount", missing.to_str().unwrap()]);
    missing.fails_with(&[
        "missing: there is no such directory",
        "findmnt -t fuse.rpcrdma",
    ]);
    // One failure does not keep the others from being unmounted.
    run(place.words(&[])).ok();
    run(["umount", "/proc", place.mnt().to_str().unwrap()]).fails_with(&["proc"]);
    assert_eq!(mounted(&place.mnt()), None);
}

#[test]
fn without_the_device_the_message_says_what_to_do() {
    if !has_namespaces() {
        return;
    }
    let place = Place::new();
    let script = "mount -t tmpfs none /dev; exec \"$@\"";
    let mut words = vec![PathBuf::from(rpcrdma().get_program())];
    // The process in the background would need /dev/null as well.
    words.extend(place.words(&["-f"]).iter().map(PathBuf::from));
    let words: Vec<&Path> = words.iter().map(PathBuf::as_path).collect();
    in_namespace(script, &words).fails_with(&["/dev/fuse", "modprobe fuse"]);
}

#[test]
fn a_mount_in_the_background_has_a_log_and_ends_with_umount() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let log = place.dir.path().join("log");
    let words = place.words(&["-vv", "--log", log.to_str().unwrap()]);
    let returned = run(&words).ok();
    // Messages from before it has mounted are shown, later ones are in the log.
    assert_eq!(&*returned.stdout, "");
    assert!(
        returned.stderr.lines().count() > 0 && !returned.stderr.contains("panicked"),
        "{returned:#?}"
    );
    assert_eq!(mounted(&place.mnt()).as_deref(), Some("fuse.rpcrdma"));
    fs::write(place.mnt().join("file"), "through the mount").unwrap();
    let there = fs::read_to_string(place.export().join("file")).unwrap();
    assert_eq!(there, "through the mount");
    place.umount(&[]).ok();
    assert_eq!(mounted(&place.mnt()), None);
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
    let timed = |line: &str| line.starts_with("20") && line.contains("Z ");
    assert!(said.lines().all(timed), "{said}");
    // A log that cannot be written: nothing stays mounted.
    let words = place.words(&["--log", "/no/such/folder"]);
    run(&words).fails_with(&["/no/such/folder"]);
    until("no mount", || mounted(&place.mnt()).is_none());
}

/// Looks up all files of a tree, as `git status` does, and lists it as `ls -l` and as `ls` do.
#[test]
fn a_tree_is_looked_up_and_listed_with_few_calls() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let files = |root: &Path| -> Vec<PathBuf> {
        let names = (0..10).flat_map(|d| (0..12).map(move |f| format!("d{d}/f{f}")));
        names.map(|name| root.join(name)).collect()
    };
    for file in files(&place.export()) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    // Each mount knows nothing of the files at its beginning.
    let calls = |work: &dyn Fn(&Path)| {
        let log = place.dir.path().join("log");
        run(place.words(&["-vv", "--log", log.to_str().unwrap()])).ok();
        let count = || {
            let said = fs::read_to_string(&log).unwrap();
            said.lines()
                .filter(|line| line.contains(" call xid="))
                .count()
        };
        let before = count();
        work(&place.mnt());
        let calls = count() - before;
        place.umount(&[]).ok();
        fs::remove_file(&log).unwrap();
        calls
    };
    let stat_all = |mnt: &Path| {
        for file in files(mnt) {
            assert_eq!(fs::symlink_metadata(file).unwrap().len(), 1);
        }
    };
    let looked_up = calls(&stat_all);
    // Without a listing of each directory, that takes 130 LOOKUPs.
    assert!((10..=43).contains(&looked_up), "{looked_up}");
    let list = |mnt: &Path, attributes: bool| {
        for directory in fs::read_dir(mnt).unwrap() {
            for file in fs::read_dir(directory.unwrap().path()).unwrap() {
                assert!(!attributes || file.unwrap().metadata().unwrap().len() == 1);
            }
        }
    };
    let names = calls(&|mnt| list(mnt, false));
    let attributes = calls(&|mnt| list(mnt, true));
    assert!((11..=25).contains(&names), "{names}");
    assert!(attributes <= names + 2, "{attributes} {names}");
}

/// Regression test: the old data stayed behind the new, as the kernel takes the file for a new one.
#[test]
fn a_file_that_has_appeared_at_the_server_is_truncated_by_an_open_that_would_create_it() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let _running = place.in_foreground();
    let (here, there) = (place.mnt().join("file"), place.export().join("file"));
    assert!(!here.exists());
    fs::write(&there, [b'x'; 100]).unwrap();
    fs::write(&here, "hi\n").unwrap();
    assert_eq!(fs::read_to_string(&there).unwrap(), "hi\n");
    assert_eq!(fs::read_to_string(&here).unwrap(), "hi\n");
}

/// Regression test: after fchmod(2), fstat(2) showed a number that stat(2) had not.
#[test]
fn a_file_has_one_inode_number_also_where_that_of_the_server_is_taken() {
    if !(has_namespaces() && is_usable()) {
        return;
    }
    let mut place = Place::new();
    let export = place.export();
    // A server with two file systems below its export, which number their files alike.
    let script = "for dir in one two; do mkdir \"$0/$dir\"; mount -t tmpfs none \"$0/$dir\"
        echo >\"$0/$dir/file\"; done; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .args([export.as_os_str(), rpcrdma().get_program()]);
    let exported = common::export("data", &export, "no_root_squash,crossmnt");
    place.server = Server::start_command(command, 0, 0, ["--export", &exported]);
    let _running = place.in_foreground();
    let [one, two] = ["one", "two"].map(|dir| place.mnt().join(dir).join("file"));
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let numbers = [number(&one), number(&two)];
    assert_ne!(numbers[0], numbers[1]);
    let file = File::open(&two).unwrap();
    file.set_permissions(PermissionsExt::from_mode(0o600))
        .unwrap();
    assert_eq!(file.metadata().unwrap().ino(), numbers[1]);
    assert_eq!([number(&one), number(&two)], numbers);
}

#[test]
fn a_mount_says_what_is_in_use() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let words = place.words(&["-v", "-o", "rsize=65536,nconnect=2,soft"]);
    let said = Running::start(rpcrdma().args(&words)).finish().ok().stderr;
    let line = said
        .lines()
        .find(|line| line.starts_with("options in use: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let device = if is_iwarp() {
        "device=iwarp"
    } else {
        "device="
    };
    for word in [
        "vers=3",
        "rsize=65536",
        "wsize=",
        "nconnect=2",
        "soft",
        device,
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert!(line.contains("registration="), "{line}");
    assert!(said.contains("RPC-over-RDMA version"), "{said}");
    place.umount(&[]).ok();
    until("no mount", || mounted(&place.mnt()).is_none());
    let words = place.words(&[]);
    let silent = Running::start(rpcrdma().args(&words)).finish().ok();
    assert_eq!(silent.stderr, "");
    place.umount(&[]).ok();
}

/// A handle belongs to the directory that was exported when it was issued. Regression test: a
/// server that was restarted with another directory under the same name continued to read and write
/// the old one.
#[test]
fn a_mount_is_stale_while_its_exports_name_is_given_to_another_directory() {
    if !is_usable() {
        return;
    }
    let mut place = Place::new();
    let (mnt, export) = (place.mnt(), place.export());
    let old = place.dir.path().join("old");
    let running = place.in_foreground();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "old").unwrap();
    let is_stale = |result: std::io::Result<()>| {
        let error = result.expect_err("the handle was issued for another directory");
        let stale = rustix::io::Errno::STALE.raw_os_error();
        assert_eq!(error.raw_os_error(), Some(stale), "{error}");
    };
    fs::rename(&export, &old).unwrap();
    fs::create_dir(&export).unwrap();
    fs::write(export.join("other"), "").unwrap();
    place.restart(&export);
    is_stale(fs::read(mnt.join("dir/file")).map(drop));
    is_stale(fs::write(mnt.join("dir/new"), "new"));
    is_stale(fs::write(mnt.join("dir/file"), "changed"));
    is_stale(fs::read_dir(&mnt).map(drop));
    // A second mount of the same export. The server now identifies that export by the new
    // directory.
    let other = place.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    Running::start(rpcrdma().args(place.words_at(&other, &[])))
        .finish()
        .ok();
    assert!(other.join("other").exists());
    run(["umount", other.to_str().unwrap()]).ok();
    assert_eq!(fs::read_dir(old.join("dir")).unwrap().count(), 1);
    assert_eq!(fs::read(old.join("dir/file")).unwrap(), b"old");
    assert_eq!(fs::read_dir(&export).unwrap().count(), 1);
    // The handles are valid again once the old directory is exported, even though its path has
    // changed.
    place.restart(&old);
    assert_eq!(fs::read(mnt.join("dir/file")).unwrap(), b"old");
    fs::write(mnt.join("dir/file"), "changed").unwrap();
    assert_eq!(fs::read(old.join("dir/file")).unwrap(), b"changed");
    place.umount(&[]).ok();
    running.finish().ok();
}

#[test]
fn an_interrupt_unmounts() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let running = place.in_foreground();
    fs::write(place.mnt().join("file"), "x").unwrap();
    running.interrupt();
    let finished = running.finish().ok();
    let said: Vec<&str> = finished.stderr.lines().collect();
    assert!(
        said.len() == 1 && said[0].contains("is mounted at"),
        "{said:?}"
    );
    assert_eq!(mounted(&place.mnt()), None);
}

/// Regression test: the signal ended the process, which left a dead mount and lost data that was not yet written.
#[test]
fn an_interrupt_unmounts_also_while_traffic_is_captured() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let file = place.dir.path().join("mount.pcapng");
    let words = place.words(&["-f", "--capture", file.to_str().unwrap()]);
    let running = Running::start(rpcrdma().args(words));
    until("a mount", || mounted(&place.mnt()).is_some());
    fs::write(place.mnt().join("file"), "x").unwrap();
    running.interrupt();
    running.finish().ok();
    assert_eq!(mounted(&place.mnt()), None);
    let written = fs::read_to_string(place.export().join("file")).unwrap();
    assert_eq!(written, "x");
    let capture = fs::read(&file).unwrap();
    let (mut rest, mut blocks) = (&capture[..], 0);
    while !rest.is_empty() {
        rest = pcap_parser::parse_block_le(rest)
            .expect("a damaged block")
            .0;
        blocks += 1;
    }
    assert!(blocks > 10, "{blocks} blocks");
}

#[test]
fn a_mount_in_use_stays_unless_it_may_go_later() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    run(place.words(&[])).ok();
    let path = place.mnt().join("file");
    let mut file = File::create(&path).unwrap();
    place.umount(&[]).fails_with(&["is in use", "--lazy"]);
    file.write_all(b"before ").unwrap();
    place.umount(&["--lazy"]).ok();
    assert_eq!(mounted(&place.mnt()), None);
    assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    // The open file still works.
    file.write_all(b"and after").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let there = fs::read_to_string(place.export().join("file")).unwrap();
    assert_eq!(there, "before and after");
}

/// umount(8) takes both options at once.
#[test]
fn a_forced_lazy_unmount_takes_a_mount_that_stays_in_use() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    run(place.words(&[])).ok();
    let mut file = File::create(place.mnt().join("file")).unwrap();
    place.umount(&["-fl"]).ok();
    assert_eq!(mounted(&place.mnt()), None);
    // The kernel may keep what is written, but cannot bring it to the server.
    file.write_all(b"x")
        .and_then(|()| file.sync_all())
        .unwrap_err();
}

/// Executes a program as the user `uid`, after the commands in `more`. Returns what it prints for
/// `-u`.
fn executed_by(uid: u32, program: &Path, more: &str) -> String {
    let script = format!("{more} exec \"$0\" -u");
    let mut command = Command::new("setpriv");
    let user = [format!("--reuid={uid}"), format!("--regid={uid}")];
    command
        .args(user)
        .args(["--clear-groups", "sh", "-c", &script]);
    let finished = Running::start(command.arg(program)).finish().ok();
    finished.stdout.trim().to_owned()
}

/// Regression test: the kernel executed the file with the mode that it had before, and gave the
/// program root's rights.
#[test]
fn a_program_that_somebody_writes_to_loses_its_set_id_bits() {
    if !(rustix::process::geteuid().is_root() && is_usable()) {
        left_out("only root mounts with set-id bits");
        return;
    }
    if rustix::thread::no_new_privs().unwrap() {
        left_out("set-id bits have no effect here (no_new_privs)");
        return;
    }
    let place = Place::new();
    run(place.words(&["-o", "suid"])).ok();
    let program = place.mnt().join("id");
    let made = |more: &str| {
        // By another process, as in `copy_program`.
        let mut copy = Command::new("cp");
        let copied = copy.arg("/usr/bin/id").arg(&program).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(&program, PermissionsExt::from_mode(0o6777)).unwrap();
        executed_by(65534, &program, more)
    };
    assert_eq!(made(""), "0");
    // With and without the page cache.
    assert_eq!(made("printf x >>\"$0\";"), "65534");
    fs::remove_file(&program).unwrap();
    let direct =
        "dd if=/dev/zero of=\"$0\" bs=4096 count=1 seek=100 oflag=direct conv=notrunc status=none;";
    assert_eq!(made(direct), "65534");
    fs::remove_file(&program).unwrap();
    place.umount(&[]).ok();
}

/// Regression test: the kernel read the directory from its cache.
#[test]
fn a_file_that_is_removed_while_open_leaves_no_name_in_a_directory_that_was_listed() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    run(place.words(&[])).ok();
    // The script runs in a process of its own, because a child of this process could keep the files
    // open for a moment. The second of two listings comes from the kernel's cache.
    let script = "cd \"$0\"; exec 3>3 4>4 5>5 6>6 7>7 8>8; rm 3 4 5 6 7 8; ls -A; ls -A
        exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-; echo closed; ls -A";
    for _ in 0..5 {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(place.mnt());
        let listed = Running::start(&mut command).finish().ok().stdout;
        let (open, closed) = listed.split_once("closed\n").unwrap();
        assert_eq!((open.lines().count(), closed), (12, ""), "{listed}");
    }
    place.umount(&[]).ok();
}

/// Regression test: when it ended, the process queried the state of the mount at its directory,
/// even if that was another mount by then. The query kept the other mount from being unmounted
/// meanwhile.
#[test]
fn a_process_whose_mount_has_gone_leaves_the_next_one_alone() {
    if !is_usable() {
        return;
    }
    // STATX_MNT_ID_UNIQUE
    let unique = StatxFlags::from_bits_retain(0x4000);
    let root = statx(CWD, "/", AtFlags::empty(), unique).unwrap();
    if root.stx_mask & unique.bits() == 0 {
        left_out("before Linux 6.8, the next mount can have the number of this one");
        return;
    }
    let place = Place::new();
    let signal = |running: &Running, signal| {
        let pid = Pid::from_raw(running.pid().try_into().unwrap());
        kill_process(pid.unwrap(), signal).unwrap();
    };
    let first = place.in_foreground();
    signal(&first, Signal::STOP);
    place.umount(&[]).ok();
    let second = place.in_foreground();
    // The second mount answers no requests from here on.
    signal(&second, Signal::STOP);
    signal(&first, Signal::CONT);
    first.finish().ok();
    signal(&second, Signal::CONT);
    place.umount(&[]).ok();
    second.finish().ok();
}

#[test]
fn a_forced_unmount_ends_what_waits_for_a_server_that_does_not_answer() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    fs::write(place.export().join("file"), [b'x'; 100_000]).unwrap();
    run(place.words(&[])).ok();
    let server = Pid::from_raw(place.server.pid().try_into().unwrap()).unwrap();
    let signal = |signal| kill_process(server, signal).unwrap();
    signal(Signal::STOP);
    let mut reader = Command::new("cat")
        .arg(place.mnt().join("file"))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // `cat` sleeps only when it waits for the server.
    let stat = format!("/proc/{}/stat", reader.id());
    until("a request", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(" (cat) S "))
    });
    place.umount(&[]).fails_with(&["is in use", "--force"]);
    place.umount(&["--force"]).ok();
    assert_eq!(mounted(&place.mnt()), None);
    assert!(!reader.wait().unwrap().success());
    signal(Signal::CONT);
}

/// Regression test: the pauses between attempts to connect had become longer than a call waits.
#[test]
fn the_first_request_after_a_restart_of_the_server_succeeds_with_softerr() {
    if !is_usable() {
        return;
    }
    let mut place = Place::new();
    fs::write(place.export().join("file"), "there").unwrap();
    // Calls give up after 2.5 s. That is less than the pause of up to 3 s that there once was between attempts to
    // connect, so with such a pause a call could end before the next attempt. It is also enough for a server on a busy
    // machine to answer.
    let soft = "softerr,timeo=25,retrans=0,noac,lookupcache=none";
    run(place.words(&["-o", soft])).ok();
    let file = place.mnt().join("file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "there");
    let (rdma, tcp) = (place.server.rdma.port(), place.server.tcp.port());
    let exported = common::export("data", &place.export(), "no_root_squash");
    let words = ["--export", &exported];
    // The longer the outage, the longer the pauses between the attempts of programs that try.
    for requests in [1, 4] {
        let elsewhere = Server::start(words);
        std::mem::replace(&mut place.server, elsewhere).kill();
        for _ in 0..requests {
            let error = fs::metadata(&file).unwrap_err();
            let timed_out = rustix::io::Errno::TIMEDOUT.raw_os_error();
            assert_eq!(error.raw_os_error(), Some(timed_out));
        }
        place.server = Server::start_on(rdma, tcp, words);
        assert_eq!(fs::read_to_string(&file).unwrap(), "there");
    }
    place.umount(&[]).ok();
}

#[test]
fn a_mount_over_another_one_ends_alone() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.export().join("below")).unwrap();
    run(place.words(&[])).ok();
    // The same export once more would be hard to tell from the first.
    run(place.words(&[])).fails_with(&["/data is mounted there already"]);
    let url = place.server.url(Proto::Rdma, "/data/below");
    let mut words = vec!["mount".to_owned(), "-f".to_owned(), url];
    words.push(place.mnt().to_str().unwrap().to_owned());
    words.extend(options(Proto::Rdma, ""));
    let above = Running::start(rpcrdma().args(words));
    until("the second mount", || !place.mnt().join("below").exists());
    place.umount(&[]).ok();
    above.finish().ok();
    assert!(place.mnt().join("below").exists(), "both are unmounted");
}

#[test]
fn an_aborted_mount_is_not_left_behind() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    let control = place.dir.path().join("control");
    fs::create_dir(&control).unwrap();
    let fusectl = || {
        Command::new("mount")
            .args(["-t", "fusectl", "none"])
            .arg(&control)
            .output()
    };
    if !fusectl().is_ok_and(|done| done.status.success()) {
        left_out("only root can mount fusectl");
        return;
    }
    let running = place.in_foreground();
    let device = fs::metadata(place.mnt()).unwrap().dev();
    let abort = control.join(format!("{}/abort", rustix::fs::minor(device)));
    fs::write(abort, "1").unwrap();
    running.finish();
    let left = mounted(&place.mnt());
    let umount = Command::new("umount").arg(&control).status();
    assert!(umount.unwrap().success());
    assert_eq!(left, None);
}

#[test]
fn what_a_killed_process_has_left_is_cleaned_up() {
    if !is_usable() {
        return;
    }
    let place = Place::new();
    fs::write(place.export().join("file"), "there").unwrap();
    place.in_foreground().kill();
    let dead = fs::metadata(place.mnt()).unwrap_err();
    assert_eq!(
        dead.raw_os_error(),
        Some(rustix::io::Errno::NOTCONN.raw_os_error())
    );
    // By another mount at the same directory, and by `umount`.
    let second = place.in_foreground_again();
    let mut text = String::new();
    File::open(place.mnt().join("file"))
        .and_then(|mut file| file.read_to_string(&mut text))
        .unwrap();
    assert_eq!(text, "there");
    second.kill();
    place.umount(&[]).ok();
    assert_eq!(mounted(&place.mnt()), None);
    assert!(fs::read_dir(place.mnt()).unwrap().next().is_none());
}

impl Place {
    /// Starts a mount in the foreground where a dead one is.
    #[track_caller]
    fn in_foreground_again(&self) -> Running {
        let running = Running::start(rpcrdma().args(self.words(&["-f"])));
        until("a mount that works", || self.mnt().join("file").exists());
        running
    }
}

#[test]
fn mount_8_finds_the_helper_by_a_line_of_fstab() {
    if !(has_namespaces() && is_usable()) {
        return;
    }
    let place = Place::new();
    let url = place.server.url(Proto::Rdma, "/data");
    let [_, options] = options(Proto::Rdma, "nconnect=2");
    let mnt = place.mnt();
    let line = format!(
        "{url} {} rpcrdma {options},_netdev,noauto 0 0\n",
        mnt.display()
    );
    let (fstab, sbin) = (
        place.dir.path().join("fstab"),
        place.dir.path().join("sbin"),
    );
    fs::write(&fstab, line).unwrap();
    fs::create_dir(&sbin).unwrap();
    std::os::unix::fs::symlink(rpcrdma().get_program(), sbin.join("mount.rpcrdma")).unwrap();
    let script = "mount --bind \"$1\" /etc/fstab; mount --bind \"$2\" /sbin; mount \"$3\"
        grep fuse.rpcrdma /proc/self/mountinfo; echo through >\"$3/file\"; umount \"$3\"
        mount -t rpcrdma -o ro,port=\"$4\" nfs://127.0.0.1/data \"$3\"; cat \"$3/file\"
        ! touch \"$3/other\"; umount \"$3\"";
    let port = PathBuf::from(place.server.rdma.port().to_string());
    let finished = in_namespace(script, &[&fstab, &sbin, &mnt, &port]).ok();
    assert!(finished.stdout.contains(&url), "{finished:#?}");
    assert!(finished.stdout.ends_with("through\n"), "{finished:#?}");
    assert!(
        finished.stderr.contains("Read-only file system"),
        "{finished:#?}"
    );
    assert_eq!(
        fs::read_to_string(place.export().join("file")).unwrap(),
        "through\n"
    );
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    if !(has_namespaces() && is_usable()) {
        return;
    }
    let helper = std::env::var_os("PATH").is_some_and(|paths| {
        std::env::split_paths(&paths).any(|path| path.join("fusermount3").exists())
    });
    if !helper {
        left_out("fusermount3 is not installed");
        return;
    }
    let place = Place::new();
    // The user gets to neither where the program was built nor, often, FUSE's device.
    let program = place.dir.path().join("rpcrdma");
    copy_program(&program);
    let device = place.dir.path().join("fuse");
    let own = place.dir.path().join("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    let script = "mknod \"$1\" c 10 229; chmod 666 \"$1\"; mount --bind \"$1\" /dev/fuse; shift
        as() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }
        program=$1 url=$2 own=$3
        as \"$program\" mount \"$url\" \"$own\"
        as sh -c 'echo mine >\"$1/mine\"' sh \"$own\"; as cat \"$own/mine\"
        ! ls \"$own\"
        as \"$program\" umount \"$own\"; ! grep -F \" $own \" /proc/self/mountinfo
        for option in suid nosymfollow; do
            ! as \"$program\" mount -o \"$option\" \"$url\" \"$own\" || exit
        done
        ! PATH=/none \"$(command -v setpriv)\" --reuid=65534 --regid=65534 --clear-groups \"$program\" \\
            mount -f -o allow_other \"$url\" \"$own\"";
    let url = PathBuf::from(place.server.url(Proto::Rdma, "/data"));
    let finished = in_namespace(script, &[&device, &program, &url, &own]).ok();
    assert_eq!(finished.stdout, "mine\n", "{finished:#?}");
    for option in ["suid", "nosymfollow"] {
        let said = format!("mount option {option}: only root can mount with it");
        assert!(finished.stderr.contains(&said), "{finished:#?}");
    }
    // Root may not look into the mount of another user.
    assert!(
        finished.stderr.contains("Permission denied"),
        "{finished:#?}"
    );
    let meta = fs::metadata(place.export().join("mine")).unwrap();
    assert_eq!(meta.uid(), 65534);
}

/// Regression test: MKDIR said that the directory exists, after it had made it. Other file systems that assign
/// owners themselves are FAT with `uid=` and NFS with `root_squash`.
#[test]
fn an_export_whose_file_system_assigns_owners_takes_directories() {
    if !(rustix::process::geteuid().is_root() && is_usable()) {
        left_out("only root's server gives objects to another user");
        return;
    }
    let mut place = Place::new();
    let squashed = common::export("data", &place.export(), "all_squash");
    place.server = Server::start(["--export", &squashed]);
    run(place.words(&[])).ok();
    let again = common::export("again", &place.mnt(), "no_root_squash,inode_reuse");
    let server = Server::start(["--export", &again]);
    let made = server.url(Proto::Tcp, "/again/made");
    run(["mkdir", "-o", "proto=tcp", &made]).ok();
    assert_eq!(
        fs::metadata(place.export().join("made")).unwrap().uid(),
        65534
    );
    place.umount(&["--lazy"]).ok();
}

/// Regression test: a program that asks for the attributes of what it lists made a LOOKUP for each name, if another one
/// had listed the directory before.
#[test]
fn attributes_of_a_long_listing_come_many_at_a_time() {
    const FILES: usize = 20_000;
    if !is_usable() {
        return;
    }
    let mut place = Place::new();
    let many = place.export().join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..FILES {
        File::create(many.join(format!("file-{n}"))).unwrap();
    }
    let log = place.dir.path().join("log");
    let mut server = rpcrdma();
    server.stderr(File::create(&log).unwrap());
    let export = common::export("data", &place.export(), "no_root_squash");
    place.server = Server::start_command(server, 0, 0, ["-vv", "--export", &export]);
    run(place.words(&[])).ok();
    let mounted = place.mnt().join("many");
    for option in ["-U", "-lU"] {
        let mut ls = Command::new("ls");
        ls.arg(option).arg(&mounted);
        let listed = Running::start(&mut ls).finish().ok().stdout;
        assert!(listed.lines().count() >= FILES);
    }
    place.umount(&[]).ok();
    let log = fs::read_to_string(&log).unwrap();
    let calls = |name: &str| log.matches(&format!("procedure={name}")).count();
    let (lookups, listings) = (calls("LOOKUP"), calls("READDIRPLUS"));
    // What the C library reads at once from the cache of the kernel.
    assert!(lookups < 4000, "{lookups} LOOKUPs, {listings} READDIRPLUS");
    assert!((50..500).contains(&listings), "{listings}");
}
