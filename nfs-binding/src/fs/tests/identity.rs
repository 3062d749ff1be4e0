//! Tests that a file has one identity and two files have two, across restarts and renames, with and
//! without the privilege to open files by kernel handles.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::host::rig;
use super::*;

/// Returns options with which `/` can be exported on every host, including overlays of containers.
fn accepting_reuse() -> DirectoryOptions {
    DirectoryOptions {
        inode_reuse: true,
        ..asynchronous()
    }
}

fn follow(rig: &Fixture, path: &str) -> FileId {
    path.split('/').fold(rig.root(), |dir, name| {
        rig.find(&dir, name.as_bytes()).unwrap()
    })
}

/// Runs `test` with the privileges of this process, and with a server that must find files by its
/// index.
fn both_ways(test: impl Fn(&mut Fixture, &Path)) {
    for indexed in [false, true] {
        let (mut rig, path) = rig();
        rig.options.indexed = indexed;
        rig.restart();
        test(&mut rig, &path);
    }
}

/// Returns the attributes as soon as the file system stops answering "try again later".
fn settled(rig: &Fixture, id: &FileId) -> FsResult<Attributes> {
    let begun = Instant::now();
    loop {
        match rig.fs.getattr(id) {
            Err(FsError::Later) if begun.elapsed() < Duration::from_secs(20) => {}
            other => return other,
        }
    }
}

fn is_settled(rig: &Fixture, id: &FileId) {
    settled(rig, id).unwrap();
}

#[test]
fn handles_outlive_a_restart_however_deep() {
    both_ways(|rig, path| {
        let deep = (0..200).map(|n| format!("{n}")).collect::<Vec<_>>();
        let deep = deep.join("/");
        std::fs::create_dir_all(path.join(&deep)).unwrap();
        std::fs::write(path.join(&deep).join("f"), b"deep").unwrap();
        std::fs::write(path.join("top"), b"top").unwrap();
        let names = ["top".to_owned(), format!("{deep}/f"), "0/1/2".to_owned()];
        let handles = names.clone().map(|name| follow(rig, &name));
        let root_handle = rig.root();
        rig.restart();
        assert_eq!(rig.root(), root_handle);
        for handle in &handles {
            is_settled(rig, handle);
        }
        assert_eq!(rig.read(&handles[0], 0, 10).0, b"top");
        assert_eq!(rig.read(&handles[1], 0, 10).0, b"deep");
        assert_eq!(rig.names(&handles[2]), [b"3".to_vec()]);
        // A lookup returns the same handle as before.
        for (name, handle) in names.iter().zip(handles) {
            assert_eq!(follow(rig, name), handle);
        }
    });
}

#[test]
fn handles_outlive_a_restart_after_moves() {
    both_ways(|rig, path| {
        let a = rig.mkdir(&rig.root(), b"a");
        let b = rig.mkdir(&a, b"b");
        let file = rig.create(&b, b"f");
        rig.write(&file, 0, b"content");
        let top = rig.root();
        let moved = rig.fs.rename(&root(), &a, b"b", &top, b"moved").result;
        assert_eq!(moved, Ok(()));
        rig.restart();
        is_settled(rig, &file);
        assert_eq!(rig.read(&file, 0, 10).0, b"content");
        // The host moves the file to a new directory while the server is not running.
        drop(std::mem::replace(
            &mut rig.fs,
            Arc::new(MemoryFs::new(1 << 20).unwrap()),
        ));
        std::fs::create_dir_all(path.join("x/y")).unwrap();
        std::fs::rename(path.join("moved"), path.join("x/y/z")).unwrap();
        rig.restart();
        is_settled(rig, &file);
        assert_eq!(rig.read(&file, 0, 10).0, b"content");
        is_settled(rig, &b);
        assert_eq!(rig.names(&b), [b"f".to_vec()]);
    });
}

/// Regression test: handles once contained the path of an object. The name that a client first
/// looked up after a restart then decided the handle, and one client saw two inodes for one file.
#[test]
fn the_names_of_a_file_have_one_handle_whichever_is_looked_up_first() {
    both_ways(|rig, path| {
        for dir in ["a", "b/c"] {
            std::fs::create_dir_all(path.join(dir)).unwrap();
        }
        std::fs::write(path.join("a/f"), b"linked").unwrap();
        std::fs::hard_link(path.join("a/f"), path.join("b/c/f")).unwrap();
        let before = follow(rig, "a/f");
        rig.restart();
        assert_eq!(follow(rig, "b/c/f"), before);
        assert_eq!(follow(rig, "a/f"), before);
        rig.restart();
        std::fs::rename(path.join("a/f"), path.join("b/g")).unwrap();
        assert_eq!(follow(rig, "b/g"), before);
    });
}

#[test]
fn handles_of_what_is_gone_are_stale_at_once_after_a_restart() {
    both_ways(|rig, path| {
        let file = rig.create(&rig.root(), b"f");
        let dir = rig.mkdir(&rig.root(), b"d");
        std::fs::remove_file(path.join("f")).unwrap();
        // Creates another file, which may get the same inode number.
        std::fs::write(path.join("g"), b"other").unwrap();
        std::fs::remove_dir(path.join("d")).unwrap();
        rig.restart();
        let begun = Instant::now();
        assert_eq!(settled(rig, &file), Err(FsError::Stale));
        assert_eq!(settled(rig, &dir), Err(FsError::Stale));
        assert_eq!(rig.fs.getattr(&file), Err(FsError::Stale), "remembered");
        // A single later index suffices for an object that was removed after the first.
        let late = rig.create(&rig.root(), b"late");
        rig.restart();
        std::fs::remove_file(path.join("late")).unwrap();
        assert_eq!(settled(rig, &late), Err(FsError::Stale));
        // This once took ten seconds for each.
        assert!(begun.elapsed() < Duration::from_secs(9));
    });
}

/// Regression test: inode numbers are reused. On overlays and file systems without birth times, a
/// handle of a removed file once gave access to a later one.
#[test]
fn a_later_file_with_the_same_inode_number_is_another() {
    both_ways(|rig, path| {
        let mut seen = std::collections::HashMap::new();
        for round in 0..50 {
            std::fs::write(path.join("f"), b"x").unwrap();
            let number = std::fs::metadata(path.join("f")).unwrap().ino();
            let id = rig.find(&rig.root(), b"f").unwrap();
            assert_eq!(seen.insert(id, round), None, "inode {number}");
            std::fs::remove_file(path.join("f")).unwrap();
        }
    });
}

#[test]
fn another_file_system_below_is_an_empty_directory() {
    // Every host has this file system.
    let fs = DirectoryFs::open("/", accepting_reuse()).unwrap();
    let top = fs.root();
    let found = fs.lookup(&root(), &top, b"proc").unwrap().object;
    assert!(found.mounted.is_some());
    assert_eq!(found.attributes.file_type, FileType::Directory);
    assert_eq!(fs.getattr(&found.id), Ok(found.attributes.clone()));
    let mut names = Vec::new();
    let mut take = |entry: &DirEntry<'_>| {
        names.push(entry.name.to_vec());
        true
    };
    let listing = fs.readdir(&root(), &found.id, 0, [0; 8], true, &mut take);
    assert!(listing.unwrap().eof);
    assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
    let inside = fs.lookup(&root(), &found.id, b"self");
    assert_eq!(inside.unwrap_err(), FsError::NotFound);
    let how = HowToCreate::Unchecked(SetAttributes::default());
    let made = fs.create(&root(), &found.id, b"x", &how).result;
    assert_eq!(made.unwrap_err(), FsError::ReadOnly);
    let removed = fs.rmdir(&root(), &top, b"proc").result;
    assert_eq!(removed, Err(FsError::Access));
    assert!(fs.space(&root(), &found.id).is_ok());
    let mut seen = false;
    fs.readdir(&root(), &top, 0, [0; 8], true, &mut |entry| {
        if entry.name == b"proc" {
            seen = entry.object.as_ref().map(|object| object.id) == Some(found.id);
        }
        true
    })
    .unwrap();
    assert!(seen);
}

#[test]
fn with_crossmnt_another_file_system_below_is_part_of_the_export() {
    let options = DirectoryOptions {
        crossmnt: true,
        ..accepting_reuse()
    };
    let fs = DirectoryFs::open("/", options).unwrap();
    let proc = fs.lookup(&root(), &fs.root(), b"proc").unwrap().object;
    assert_eq!(proc.mounted, None);
    assert_ne!(proc.attributes.fsid, 0, "clients have to tell them apart");
    let version = fs.lookup(&root(), &proc.id, b"version").unwrap().object;
    let mut text = [0; 5];
    fs.read(&root(), &version.id, 0, &mut text).unwrap();
    assert_eq!(&text, b"Linux");
    let up = fs.lookup(&root(), &proc.id, b"..").unwrap().object;
    assert_eq!(up.id, fs.root());
    // The handle of an object in a crossed file system is found after a restart, too.
    let again = DirectoryFs::open("/", options).unwrap();
    assert_eq!(
        again.getattr(&proc.id).map(|a| a.fileid),
        Ok(proc.attributes.fileid)
    );
    // The handle is stale if the file system is no longer part of the export.
    let without = DirectoryFs::open("/", accepting_reuse()).unwrap();
    assert_eq!(without.getattr(&proc.id), Err(FsError::Stale));
}

/// `/proc` returns handles with generation 0 and has no birth times: an old handle could come to
/// refer to another file.
#[test]
fn a_file_system_that_cannot_tell_files_apart_is_refused_unless_that_is_accepted() {
    let error = DirectoryFs::open("/proc", asynchronous()).unwrap_err();
    assert!(error.to_string().contains("inode_reuse"), "{error}");
    let options = DirectoryOptions {
        inode_reuse: true,
        ..asynchronous()
    };
    assert!(DirectoryFs::open("/proc", options).is_ok());
}

#[test]
fn fsid_names_the_file_system_in_place_of_the_hosts_number() {
    let (mut rig, _) = rig();
    let file = rig.create(&rig.root(), b"f");
    rig.options.fsid = Some(7);
    rig.restart();
    assert_eq!(rig.fs.getattr(&file), Err(FsError::Stale));
    let named = rig.find(&rig.root(), b"f").unwrap();
    assert_ne!(named, file);
    assert_eq!(named.as_bytes()[..8], 7_u64.to_be_bytes());
    assert_eq!(
        named.as_bytes()[8..],
        file.as_bytes()[8..],
        "and nothing else"
    );
}

/// FSINFO reports the maximum file size of the file system, and not the maximum offset.
#[test]
fn the_largest_file_is_one_that_the_host_takes() {
    let (rig, path) = rig();
    let most = rig.fs.abilities(&rig.root()).unwrap().max_file_size;
    let file = std::fs::File::create(path.join("large")).unwrap();
    assert!(
        file.set_len(most).is_ok() || most == i64::MAX as u64,
        "{most}"
    );
    if most < i64::MAX as u64 {
        assert!(file.set_len(most + 1).is_err(), "{most}");
    }
}

#[test]
fn device_numbers_that_do_not_fit_are_refused() {
    let (rig, _) = rig();
    for (major, minor) in [(0x1000, 1), (1, 0x10_0000)] {
        let device = DeviceNumber { major, minor };
        for what in [Special::Character(device), Special::Block(device)] {
            let made = rig.fs.mknod(&root(), &rig.root(), b"d", what, &mode(0o600));
            assert_eq!(made.result.unwrap_err(), FsError::Invalid);
        }
    }
}
