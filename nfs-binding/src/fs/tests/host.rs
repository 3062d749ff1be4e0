//! Tests of features that only one of the file systems has: restarts and changes by the host, or a
//! memory limit.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use super::*;

/// Returns a served directory of the host, and the path to it.
pub(super) fn rig() -> (Fixture, std::path::PathBuf) {
    let rig = Fixture::directory();
    let path = rig.host.as_ref().unwrap().path().to_path_buf();
    (rig, path)
}

#[test]
fn changes_by_the_host_are_seen() {
    let (rig, path) = rig();
    let file = rig.create(&rig.root(), b"f");
    rig.write(&file, 0, b"ours");
    std::fs::rename(path.join("f"), path.join("g")).unwrap();
    std::fs::write(path.join("g"), b"theirs").unwrap();
    assert_eq!(rig.read(&file, 0, 10).0, b"theirs");
    assert_eq!(rig.find(&rig.root(), b"g"), Ok(file));
    std::fs::remove_file(path.join("g")).unwrap();
    assert_eq!(rig.fs.getattr(&file), Err(FsError::Stale));
    assert_eq!(
        rig.fs.read(&root(), &file, 0, &mut [0; 4]).unwrap_err(),
        FsError::Stale
    );
}

#[test]
fn symbolic_links_lead_nowhere() {
    let (rig, path) = rig();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), b"secret").unwrap();
    symlink(outside.path(), path.join("out")).unwrap();
    symlink("..", path.join("up")).unwrap();
    symlink("/proc/self/root", path.join("magic")).unwrap();
    symlink(outside.path().join("secret"), path.join("file")).unwrap();
    let top = rig.root();
    for name in [&b"out"[..], b"up", b"magic", b"file"] {
        let link = rig.find(&top, name).unwrap();
        assert_eq!(rig.attributes(&link).file_type, FileType::Symlink);
        let lookup = rig.fs.lookup(&root(), &link, b"secret");
        assert_eq!(lookup.unwrap_err(), FsError::NotDirectory);
        let read = rig.fs.read(&root(), &link, 0, &mut [0; 4]);
        assert_eq!(read.unwrap_err(), FsError::Invalid);
        let write = rig
            .fs
            .write(&root(), &link, 0, &b"x".into(), Stable::FileSync);
        assert_eq!(write.result.unwrap_err(), FsError::Invalid);
        let cut = rig.fs.setattr(&root(), &link, &size(0), None).result;
        assert_eq!(cut, Err(FsError::Invalid));
        rig.set(&link, mode(0o777));
        let how = HowToCreate::Unchecked(size(0));
        let create = rig.fs.create(&root(), &top, name, &how).result;
        assert_eq!(create.unwrap_err(), FsError::Exists);
    }
    if privileged() {
        let link = rig.find(&top, b"file").unwrap();
        let given = SetAttributes {
            uid: Some(1001),
            ..SetAttributes::default()
        };
        rig.set(&link, given);
        let secret = std::fs::metadata(outside.path().join("secret")).unwrap();
        assert_ne!(secret.uid(), 1001);
    }
    assert_eq!(
        std::fs::read(outside.path().join("secret")).unwrap(),
        b"secret"
    );
}

#[test]
fn a_directory_swapped_for_a_link_leads_nowhere() {
    let (rig, path) = rig();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("f"), b"secret").unwrap();
    let dir = rig.mkdir(&rig.root(), b"d");
    rig.create(&dir, b"f");
    std::fs::rename(path.join("d"), path.join("was d")).unwrap();
    symlink(outside.path(), path.join("d")).unwrap();
    let file = rig.find(&dir, b"f").unwrap();
    rig.write(&file, 0, b"ours");
    assert_eq!(std::fs::read(path.join("was d/f")).unwrap(), b"ours");
    assert_eq!(std::fs::read(outside.path().join("f")).unwrap(), b"secret");
}

#[test]
fn a_directory_moved_out_has_no_parent_here() {
    let (rig, path) = rig();
    let outside = tempfile::tempdir_in(path.parent().unwrap()).unwrap();
    let dir = rig.mkdir(&rig.root(), b"d");
    assert!(rig.fs.lookup(&root(), &dir, b"..").is_ok());
    std::fs::rename(path.join("d"), outside.path().join("d")).unwrap();
    let up = rig.fs.lookup(&root(), &dir, b"..");
    assert_eq!(up.unwrap_err(), FsError::Access);
}

#[test]
fn synchronous_operations_work_on_everything() {
    let host = tempfile::tempdir().unwrap();
    let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
    let top = fs.root();
    let how = HowToCreate::Exclusive([7; 8]);
    let file = fs.create(&root(), &top, b"f", &how).result.unwrap().id;
    for stable in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
        let written = fs
            .write(&root(), &file, 0, &b"x".into(), stable)
            .result
            .unwrap();
        assert_eq!(written.committed, stable);
    }
    assert_eq!(fs.commit(&root(), &file, 0, 0).result, Ok(()));
    let none = SetAttributes::default();
    let link = fs
        .symlink(&root(), &top, b"l", b"f", &none)
        .result
        .unwrap()
        .id;
    let now = SetAttributes {
        mtime: SetTime::ServerTime,
        ..none
    };
    assert_eq!(fs.setattr(&root(), &link, &now, None).result, Ok(()));
    assert_eq!(fs.rename(&root(), &top, b"l", &top, b"m").result, Ok(()));
    assert_eq!(fs.remove(&root(), &top, b"m").result, Ok(()));
}

#[test]
fn a_file_written_can_be_executed_after_commit() {
    let (rig, path) = rig();
    let file = rig.create(&rig.root(), b"script");
    rig.write(&file, 0, &std::fs::read("/bin/true").unwrap());
    rig.set(&file, mode(0o755));
    assert_eq!(rig.fs.commit(&root(), &file, 0, 0).result, Ok(()));
    let status = std::process::Command::new(path.join("script")).status();
    assert!(status.unwrap().success());
}

#[test]
fn exclusive_creation_is_known_after_a_restart() {
    let (mut rig, _) = rig();
    let how = HowToCreate::Exclusive([0xfe; 8]);
    let made = rig.fs.create(&root(), &rig.root(), b"f", &how).result;
    rig.restart();
    let again = rig.fs.create(&root(), &rig.root(), b"f", &how).result;
    assert_eq!(again.unwrap().id, made.unwrap().id);
}

#[test]
fn the_write_verifier_changes_with_a_restart() {
    let (mut rig, _) = rig();
    let before = rig.fs.write_verifier();
    rig.restart();
    assert_ne!(rig.fs.write_verifier(), before);
}

#[test]
fn directories_only() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = DirectoryOptions::default();
    assert!(DirectoryFs::open(file.path(), options).is_err());
    assert!(DirectoryFs::open(Path::new("/does/not/exist"), options).is_err());
}

#[test]
fn the_least_memory_holds_a_file_of_any_name() {
    let fs = MemoryFs::new(MemoryFs::LEAST).unwrap();
    let top = fs.root();
    let how = HowToCreate::Unchecked(SetAttributes::default());
    let name = [b'n'; MAX_NAME_LEN];
    let file = fs.create(&root(), &top, &name, &how).result.unwrap().id;
    let data = vec![1; 1 << 10].into();
    let written = fs.write(&root(), &file, 0, &data, Stable::Unstable).result;
    assert_eq!(written.unwrap().count, 1 << 10);
}

#[test]
fn memory_is_bounded_and_given_back() {
    let limit = 1 << 20;
    let fs = MemoryFs::new(limit).unwrap();
    let top = fs.root();
    let empty = fs.used();
    let none = SetAttributes::default();
    let how = HowToCreate::Unchecked(none.clone());
    let file = fs.create(&root(), &top, b"f", &how).result.unwrap().id;
    let write = |offset: u64| {
        let change = fs.write(
            &root(),
            &file,
            offset,
            &vec![1; 32 << 10].into(),
            Stable::Unstable,
        );
        change.result.map(|written| written.count)
    };
    let full = (0..)
        .find(|n| write(n << 15) == Err(FsError::NoSpace))
        .unwrap();
    assert_eq!(full, 31, "the rest is less than a write");
    let space = fs.space(&root(), &top).unwrap();
    assert_eq!(space.total_bytes, limit);
    assert_eq!(space.free_bytes, limit - fs.used());
    let made = (0..).find_map(|n: u32| {
        let name = n.to_be_bytes().map(|byte| byte | 0x80);
        fs.mkdir(&root(), &top, &name, &none).result.err()
    });
    assert_eq!(made, Some(FsError::NoSpace));
    let target = vec![b'x'; 4000];
    let link = fs.symlink(&root(), &top, b"l", &target, &none).result;
    assert_eq!(link.unwrap_err(), FsError::NoSpace);
    // Overwriting needs no free space.
    assert_eq!(write(0), Ok(32 << 10));
    let mut names = Vec::new();
    let mut take = |entry: &DirEntry<'_>| {
        names.push(entry.name.to_vec());
        true
    };
    fs.readdir(&root(), &top, 0, [0; 8], false, &mut take)
        .unwrap();
    for name in names.iter().filter(|name| name.len() == 4) {
        assert_eq!(fs.rmdir(&root(), &top, name).result, Ok(()));
    }
    assert_eq!(fs.remove(&root(), &top, b"f").result, Ok(()));
    assert_eq!(fs.used(), empty);
}

/// A RENAME needs no memory but for a longer name.
#[test]
fn objects_are_renamed_in_a_full_memory() {
    let limit = MemoryFs::LEAST;
    let fs = MemoryFs::new(limit).unwrap();
    let (top, empty, none) = (fs.root(), fs.used(), SetAttributes::default());
    let how = HowToCreate::Unchecked(none.clone());
    fs.create(&root(), &top, b"a", &how).result.unwrap();
    let before = fs.used();
    let dir = fs.mkdir(&root(), &top, b"d", &none).result.unwrap().id;
    let object = fs.used() - before;
    let target = vec![b'x'; usize::try_from(limit - fs.used() - object).unwrap()];
    let link = fs.symlink(&root(), &top, b"l", &target, &none).result;
    assert!(link.is_ok() && fs.used() == limit, "{link:?}");

    let rename = |from_dir, from: &[u8], to_dir, to: &[u8]| {
        fs.rename(&root(), from_dir, from, to_dir, to).result
    };
    assert_eq!(rename(&top, b"a", &top, b"b"), Ok(()));
    assert_eq!(rename(&top, b"b", &dir, b"c"), Ok(()));
    assert_eq!(fs.used(), limit);
    assert_eq!(rename(&dir, b"c", &top, b"cc"), Err(FsError::NoSpace));
    assert!(fs.lookup(&root(), &dir, b"c").is_ok());
    // What is replaced makes room for what replaces it.
    assert_eq!(rename(&dir, b"c", &top, b"l"), Ok(()));
    assert_eq!(fs.used(), empty + 2 * object);
    assert_eq!(rename(&top, b"l", &dir, b"long"), Ok(()));
    assert_eq!(fs.used(), empty + 2 * object + 3);
    assert_eq!(rename(&dir, b"long", &dir, b"s"), Ok(()));
    assert_eq!(fs.used(), empty + 2 * object);
    assert_eq!(fs.remove(&root(), &dir, b"s").result, Ok(()));
    assert_eq!(fs.rmdir(&root(), &top, b"d").result, Ok(()));
    assert_eq!(fs.used(), empty);
}

#[test]
fn memory_handles_do_not_outlive_it() {
    let (one, two) = (
        MemoryFs::new(1 << 20).unwrap(),
        MemoryFs::new(1 << 20).unwrap(),
    );
    assert_eq!(two.getattr(&one.root()), Err(FsError::Stale));
}
