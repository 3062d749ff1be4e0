//! Tests of copies onto existing objects.

use std::cell::Cell;
use std::fs;
use std::future::poll_fn;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::rc::Rc;

use nfs_binding::proto::{DeviceNumber, MknodWhat, Procedure, SetAttributes, Status, nfs};

use super::*;
use crate::in_process::Fault;

/// Creates a tree, and another that has other kinds of objects under the same names.
fn make_trees(new: &Path, old: &Path) {
    for root in [new, old] {
        fs::create_dir_all(root.join("merged")).unwrap();
    }
    fs::write(new.join("merged/new"), "new").unwrap();
    fs::write(old.join("merged/old"), "old").unwrap();
    fs::write(new.join("shorter"), "short").unwrap();
    fs::write(old.join("shorter"), pattern(10_000)).unwrap();
    symlink("new", new.join("link")).unwrap();
    symlink("old", old.join("link")).unwrap();
    symlink("same", new.join("same link")).unwrap();
    symlink("same", old.join("same link")).unwrap();
    symlink("x", new.join("link onto file")).unwrap();
    fs::write(old.join("link onto file"), "old").unwrap();
    fs::write(new.join("file onto link"), "new").unwrap();
    symlink("victim", old.join("file onto link")).unwrap();
    fs::write(old.join("victim"), "victim").unwrap();
    fs::write(new.join("file onto fifo"), "new").unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    mknodat(CWD, old.join("file onto fifo"), fifo, Mode::RUSR, 0).unwrap();
    mknodat(CWD, new.join("fifo onto file"), fifo, Mode::RUSR, 0).unwrap();
    fs::write(old.join("fifo onto file"), "old").unwrap();
    fs::write(new.join("hard one"), "hard").unwrap();
    fs::hard_link(new.join("hard one"), new.join("hard two")).unwrap();
    fs::write(old.join("hard one"), "not").unwrap();
    fs::write(old.join("hard two"), "linked").unwrap();
}

fn check_merged(new: &Path, merged: &Path) {
    let (wanted, got) = (snapshot(new), snapshot(merged));
    for (path, kept) in &wanted {
        assert_eq!(Some(kept), got.get(path), "{}", path.display());
    }
    assert_eq!(fs::read(merged.join("merged/old")).unwrap(), b"old");
    assert_eq!(fs::read(merged.join("victim")).unwrap(), b"victim");
    assert_eq!(got.len(), wanted.len() + 2);
}

#[test]
fn directories_are_merged_and_files_replaced_on_the_server() {
    let rig = Fixture::directory(AttachOptions::default());
    make_trees(&rig.local("new"), &rig.exported("there"));
    complete(&rig.put("new", "there"));
    check_merged(&rig.local("new"), &rig.exported("there"));
}

#[test]
fn directories_are_merged_and_files_replaced_on_the_server_in_memory() {
    let rig = Fixture::memory(AttachOptions::default());
    make_trees(&rig.local("new"), &rig.local("old"));
    complete(&rig.put("old", "there"));
    complete(&rig.put("new", "there"));
    complete(&rig.get("there", "back"));
    check_merged(&rig.local("new"), &rig.local("back"));
}

#[test]
fn directories_are_merged_and_files_replaced_here() {
    let rig = Fixture::directory(AttachOptions::default());
    make_trees(&rig.exported("new"), &rig.local("here"));
    complete(&rig.get("new", "here"));
    check_merged(&rig.exported("new"), &rig.local("here"));
}

#[test]
fn a_file_on_the_server_is_written_in_place() {
    use std::os::unix::fs::MetadataExt;
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.local("file"), "new").unwrap();
    fs::write(rig.exported("file"), "old and longer").unwrap();
    let before = fs::metadata(rig.exported("file")).unwrap().ino();
    complete(&rig.put("file", "file"));
    let after = fs::metadata(rig.exported("file")).unwrap();
    assert_eq!((after.ino(), after.len()), (before, 3));
}

#[test]
fn directories_and_others_do_not_replace_each_other() {
    let rig = Fixture::directory(AttachOptions::default());
    for (directory, file) in [
        (rig.local("a"), rig.exported("a")),
        (rig.exported("b"), rig.local("b")),
    ] {
        fs::create_dir(&directory).unwrap();
        fs::write(&file, "file").unwrap();
    }
    symlink(rig.local("elsewhere"), rig.local("c")).unwrap();
    fs::create_dir(rig.local("elsewhere")).unwrap();
    fs::create_dir_all(rig.exported("tree/c")).unwrap();
    fs::write(rig.exported("tree/c/trap"), "trap").unwrap();

    let no_directory = "exists, and is not a directory: none can be made in its place";
    let directory = "exists, and is a directory: it is not replaced";
    assert_eq!(texts(&rig.put("a", "a")), [format!("a {no_directory}")]);
    assert!(texts(&rig.get("a", "a"))[0].ends_with(directory));
    assert!(texts(&rig.get("b", "b"))[0].ends_with(no_directory));
    assert_eq!(texts(&rig.put("b", "b")), [format!("b {directory}")]);
    for entry in [rig.exported("a"), rig.local("b")] {
        assert_eq!(fs::read(entry).unwrap(), b"file");
    }

    // A link below the root of the copy is not followed: another user may have put it there to
    // divert the copy.
    fs::create_dir(rig.local("back")).unwrap();
    symlink(rig.local("elsewhere"), rig.local("back/c")).unwrap();
    assert!(texts(&rig.get("tree", "back"))[0].ends_with(no_directory));
    assert_eq!(fs::read_dir(rig.local("elsewhere")).unwrap().count(), 0);

    // The user named the root of the copy, so it is followed even if it is a link.
    complete(&rig.get("tree/c", "c"));
    assert!(rig.local("elsewhere/trap").exists());
}

#[test]
fn a_file_takes_the_place_of_another_here_at_once() {
    use std::os::unix::fs::MetadataExt;
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.exported("file"), "new").unwrap();
    fs::write(rig.local("file"), "old and longer").unwrap();
    fs::hard_link(rig.local("file"), rig.local("other name")).unwrap();
    complete(&rig.get("file", "file"));
    assert_eq!(fs::read(rig.local("file")).unwrap(), b"new");
    assert_eq!(fs::metadata(rig.local("file")).unwrap().nlink(), 1);
    assert_eq!(
        fs::read(rig.local("other name")).unwrap(),
        b"old and longer"
    );
    assert_eq!(fs::read_dir(rig.work.path()).unwrap().count(), 2);
}

#[test]
fn a_device_that_is_named_as_the_target_stays() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.exported("file"), "new").unwrap();
    let target = Path::new("/dev/null");
    let progress = &mut |_: &_| {};
    let get = get(&rig.mount, b"file", target, &rig.options, progress);
    let report = rig.runtime.block_on(get);
    let text =
        "/dev/null is a device or a pipe: it is not replaced by a file (standard output is -)";
    assert_eq!(texts(&report), [text]);
    symlink(target, rig.local("link")).unwrap();
    let text = texts(&rig.get("file", "link")).remove(0);
    assert!(text.contains("link is a device or a pipe"), "{text}");
    assert!(rig.local("link").is_symlink());
    // Nor is it replaced by another kind of object.
    symlink("nowhere", rig.exported("link")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    mknodat(CWD, rig.local("fifo"), fifo, Mode::RUSR, 0).unwrap();
    let text = texts(&rig.get("link", "fifo")).remove(0);
    assert!(text.contains("fifo is a device or a pipe"), "{text}");
    assert!(!rig.local("fifo").is_symlink());
    let text = texts(&rig.get("file", "new/")).remove(0);
    assert!(
        text.ends_with("new/: Not a directory (os error 20)"),
        "{text}"
    );
}

/// A file of an export of this machine can be its own target.
#[test]
fn a_file_is_not_copied_onto_itself() {
    use std::os::unix::fs::MetadataExt;
    let rig = Fixture::directory(AttachOptions::default());
    fs::create_dir(rig.exported("tree")).unwrap();
    fs::write(rig.exported("tree/file"), "content").unwrap();
    let exported = rig.exported.as_ref().unwrap().path();
    let at = |name: &str| exported.join(name);
    let put = |from: &str, to: &str| {
        let from = at(from);
        let (pool, progress) = (&rig.server.pool, &mut |_: &_| {});
        let put = put(
            &rig.mount,
            pool,
            &from,
            to.as_bytes(),
            &rig.options,
            progress,
        );
        rig.runtime.block_on(put)
    };
    let get = |from: &str, to: &str| {
        let (to, progress) = (at(to), &mut |_: &_| {});
        let get = get(&rig.mount, from.as_bytes(), &to, &rig.options, progress);
        rig.runtime.block_on(get)
    };
    let itself = "tree/file: source and target are the same file or directory";
    assert_eq!(texts(&put("tree/file", "tree/file")), [itself]);
    assert_eq!(texts(&get("tree/file", "tree/file")), [itself]);
    let itself = "tree: source and target are the same file or directory";
    assert_eq!(texts(&put("tree", "tree")), [itself]);
    assert_eq!(texts(&get("tree", "tree")), [itself]);
    assert_eq!(fs::read(at("tree/file")).unwrap(), b"content");
    symlink("file", at("tree/link")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    mknodat(CWD, at("tree/fifo"), fifo, Mode::RUSR, 0).unwrap();
    for name in ["tree/link", "tree/fifo"] {
        let before = fs::symlink_metadata(at(name)).unwrap().ino();
        let itself = format!("{name}: source and target are the same file or directory");
        assert_eq!(texts(&get(name, name)), [itself]);
        assert_eq!(fs::symlink_metadata(at(name)).unwrap().ino(), before);
        fs::remove_file(at(name)).unwrap();
    }

    // Nor is a directory copied into itself, which would never end.
    let report = put("tree", "tree/copy");
    let into = "tree/copy is a directory that this copy is made in: it is not copied into itself";
    assert_eq!(texts(&report), [into]);
    assert!(!at("tree/copy").exists());
    let report = get("tree", "tree/copy");
    let into = "tree/copy is a directory that this copy is made in: it is not copied into itself";
    assert_eq!(texts(&report), [into]);
    assert_eq!(fs::read(at("tree/copy/file")).unwrap(), b"content");
    assert!(!at("tree/copy/copy").exists());
    // The directory is reached on the way down.
    let report = put("", "tree/copy/all");
    let into = "tree/copy/all/tree/copy is a directory that this copy is made in: it is not copied into itself";
    assert_eq!(texts(&report), [into]);
    assert_eq!(fs::read(at("tree/copy/all/tree/file")).unwrap(), b"content");
}

/// A log that a program appends to at every step of the copy keeps its content and its name.
#[test]
fn a_file_that_changes_is_not_copied_onto_itself() {
    use std::os::unix::fs::MetadataExt;
    let rig = Fixture::directory(AttachOptions::default());
    let log = rig.exported("log");
    fs::write(&log, "content").unwrap();
    let before = fs::metadata(&log).unwrap();
    // Each copy meets the append at other points between its calls.
    for _ in 0..10 {
        let (pool, put_progress, get_progress) =
            (&rig.server.pool, &mut |_: &_| {}, &mut |_: &_| {});
        let put = put(&rig.mount, pool, &log, b"log", &rig.options, put_progress);
        let put = rig.runtime.block_on(appending(&log, put));
        let get = get(&rig.mount, b"log", &log, &rig.options, get_progress);
        let get = rig.runtime.block_on(appending(&log, get));
        for report in [put, get] {
            let itself = "log: source and target are the same file or directory";
            assert_eq!(texts(&report), [itself]);
            assert_eq!(report.unfinished, []);
        }
    }
    let after = fs::metadata(&log).unwrap();
    assert_eq!(after.ino(), before.ino());
    assert!(fs::read_to_string(&log).unwrap().starts_with("content"));
}

/// Runs `copying`, and appends to the file each time before it continues.
async fn appending(file: &Path, copying: impl Future<Output = Report>) -> Report {
    let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
    let mut copying = pin!(copying);
    poll_fn(|context| {
        file.write_all(b"more").unwrap();
        copying.as_mut().poll(context)
    })
    .await
}

/// Other names of an existing file keep its content, as with `cp -a`.
#[test]
fn a_file_with_further_names_on_the_server_is_replaced() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.exported("a"), "old").unwrap();
    fs::hard_link(rig.exported("a"), rig.exported("b")).unwrap();
    fs::hard_link(rig.exported("a"), rig.exported("snapshot")).unwrap();
    fs::create_dir(rig.local("tree")).unwrap();
    fs::write(rig.local("tree/a"), "new a").unwrap();
    fs::write(rig.local("tree/b"), "new b").unwrap();
    complete(&rig.put("tree", ""));
    let content = |name: &str| fs::read_to_string(rig.exported(name)).unwrap();
    assert_eq!(
        ["a", "b", "snapshot"].map(content),
        ["new a", "new b", "old"]
    );
}

/// An object on the server stays if the one that was to replace it cannot be made or named.
#[test]
fn an_object_on_the_server_is_only_replaced_when_its_successor_exists() {
    let refusals = [
        ("fifo", nfs::Mknod::NUMBER, 1),
        ("symlink", nfs::Symlink::NUMBER, 1),
        ("hard", nfs::Link::NUMBER, 1),
        ("file", nfs::Create::NUMBER, 1),
        ("fifo", nfs::Rename::NUMBER, 0),
        ("hard", nfs::Rename::NUMBER, 0),
        ("file", nfs::Rename::NUMBER, 0),
    ];
    for (name, procedure, nth) in refusals {
        let rig = Fixture::directory(AttachOptions::default());
        let fifo = rustix::fs::FileType::Fifo;
        mknodat(CWD, rig.local("fifo"), fifo, Mode::RUSR, 0).unwrap();
        symlink("new", rig.local("symlink")).unwrap();
        fs::write(rig.local("file"), "new").unwrap();
        fs::create_dir(rig.local("hard")).unwrap();
        fs::write(rig.local("hard/a"), "new").unwrap();
        fs::hard_link(rig.local("hard/a"), rig.local("hard/b")).unwrap();
        fs::create_dir(rig.exported("hard")).unwrap();
        let old: &[&str] = match name {
            "hard" => &["hard/a", "hard/b"],
            name => &[name],
        };
        for name in old {
            fs::write(rig.exported(name), "old").unwrap();
        }
        if name == "file" {
            fs::hard_link(rig.exported(name), rig.exported("other name")).unwrap();
        }
        rig.server
            .plan(move |proc, count| match (proc, count) == (procedure, nth) {
                true => Fault::Status(Status::ACCES),
                false => Fault::None,
            });
        let report = rig.put(name, name);
        let texts = texts(&report);
        assert!(
            matches!(&texts[..], [only] if only.contains(name)),
            "{texts:?}"
        );
        assert_eq!(report.unfinished, [], "{name}");
        // The first of the two hard links is written in place.
        let kept = |name: &&&str| fs::read(rig.exported(name)).unwrap() == b"old";
        assert_eq!(old.iter().filter(kept).count(), 1, "{name}");
        for directory in [rig.exported(""), rig.exported("hard")] {
            let entries = fs::read_dir(directory).unwrap();
            let left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            let temporary = |name: &std::ffi::OsString| name.as_encoded_bytes()[0] == b'.';
            assert!(!left.iter().any(temporary), "{name}: {left:?}");
        }
    }
}

/// Objects are replaced also if each reply is lost and the call executed again.
#[test]
fn directories_are_merged_and_files_replaced_although_replies_are_lost() {
    let rig = Fixture::directory(AttachOptions::default());
    make_trees(&rig.local("new"), &rig.exported("there"));
    fs::hard_link(rig.exported("there/shorter"), rig.exported("other name")).unwrap();
    let changes = faults::CHANGES;
    rig.server
        .plan(move |proc, _| match changes.contains(&proc) {
            true => Fault::ReplyLost,
            false => Fault::None,
        });
    complete(&rig.put("new", "there"));
    check_merged(&rig.local("new"), &rig.exported("there"));
    assert!(rig.server.calls::<nfs::Rename>() > 4);
}

/// An object stays if the one that was to replace it cannot be made.
#[test]
fn an_object_is_only_removed_when_its_successor_exists() {
    if rustix::process::geteuid().is_root() {
        println!("root may make devices");
        return;
    }
    let rig = Fixture::memory(AttachOptions::default());
    let device = DeviceNumber { major: 1, minor: 3 };
    let what = MknodWhat::Character(SetAttributes::default(), device);
    let root = rig.mount.root();
    let made = rig.mount.mknod(root, b"x", what, b"x".as_slice());
    rig.runtime.block_on(made).unwrap();
    fs::write(rig.local("x"), "old").unwrap();
    let report = rig.get("x", "x");
    assert_eq!(report.totals.problems, 1, "{:?}", texts(&report));
    assert_eq!(fs::read(rig.local("x")).unwrap(), b"old");
    assert_eq!(fs::read_dir(rig.work.path()).unwrap().count(), 1);
}

/// Files in `/proc` have content, although their size is 0.
#[test]
fn a_file_that_states_no_size_is_read_to_its_end() {
    let rig = Fixture::directory(wsize(4096));
    let (pool, progress) = (&rig.server.pool, &mut |_: &_| {});
    let from = Path::new("/proc/self/smaps");
    let put = put(&rig.mount, pool, from, b"smaps", &rig.options, progress);
    complete(&rig.runtime.block_on(put));
    let copied = fs::read_to_string(rig.exported("smaps")).unwrap();
    assert!(copied.len() > 4096 && copied.ends_with('\n'), "{copied}");
}

/// A log that is empty when it is opened and then grows with each call is not followed.
#[test]
fn an_empty_file_that_grows_is_reported() {
    let rig = Fixture::directory(wsize(4096));
    let log = rig.local("log");
    fs::write(&log, "").unwrap();
    rig.server.plan(move |proc, count| {
        if matches!(proc, nfs::Create::NUMBER | nfs::Write::NUMBER) && count < 20 {
            let mut log = fs::OpenOptions::new().append(true).open(&log).unwrap();
            log.write_all(&[b'x'; 8192]).unwrap();
        }
        Fault::None
    });
    let report = rig.put("log", "log");
    assert_eq!(texts(&report), ["log changed while it was copied"]);
    assert!(rig.server.calls::<nfs::Write>() < 2);
}

/// A new stream file has its mode from the start, and an existing one keeps its own.
#[test]
fn a_stream_that_ends_early_leaves_the_mode_as_it_is_to_be() {
    let rig = Fixture::directory(AttachOptions::default());
    let failing = || {
        vec![
            Ok(b"part".to_vec()),
            Err(std::io::ErrorKind::BrokenPipe.into()),
        ]
    };
    let mode = |name: &str| {
        let metadata = fs::metadata(rig.exported(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(rig.put_stream(failing(), "new").totals.problems, 1);
    assert_eq!(mode("new"), 0o644);
    fs::write(rig.exported("old"), "old").unwrap();
    fs::set_permissions(rig.exported("old"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(rig.put_stream(failing(), "old").totals.problems, 1);
    assert_eq!(mode("old"), 0o640);
}

/// A secret is not readable for others while it is written, whatever was there before, and its owner may
/// write to it.
#[test]
fn an_existing_file_has_its_owners_permissions_alone_while_it_is_written() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.local("secret"), "secret").unwrap();
    fs::set_permissions(rig.local("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    for before in [0o644, 0o400] {
        let there = rig.exported("secret");
        fs::write(&there, "").unwrap();
        fs::set_permissions(&there, fs::Permissions::from_mode(before)).unwrap();
        let seen = Rc::new(Cell::new(0));
        let at_write = Rc::clone(&seen);
        rig.server.plan(move |proc, _| {
            if proc == nfs::Write::NUMBER {
                at_write.set(fs::metadata(&there).unwrap().permissions().mode() & 0o777);
            }
            Fault::None
        });
        complete(&rig.put("secret", "secret"));
        assert_eq!(seen.get(), 0o600);
    }
}
