//! Tests of removing and renaming.

use super::*;

on_both! {
    removal,
    renaming,
    renaming_over_what_exists,
    renaming_directories,
    no_cycles,
    a_moved_object_keeps_its_handle,
    concurrent_changes;
    as root:
}

fn rename(
    rig: &Fixture,
    from_dir: &FileId,
    from: &[u8],
    to_dir: &FileId,
    to: &[u8],
) -> FsResult<()> {
    rig.fs.rename(&root(), from_dir, from, to_dir, to).result
}

fn removal(rig: &Fixture) {
    let top = rig.root();
    rig.create(&top, b"f");
    let dir = rig.mkdir(&top, b"d");
    rig.create(&dir, b"inner");
    let fs = &rig.fs;
    assert_eq!(
        fs.remove(&root(), &top, b"none").result,
        Err(FsError::NotFound)
    );
    assert_eq!(
        fs.rmdir(&root(), &top, b"none").result,
        Err(FsError::NotFound)
    );
    assert_eq!(
        fs.remove(&root(), &top, b"d").result,
        Err(FsError::IsDirectory)
    );
    assert_eq!(
        fs.rmdir(&root(), &top, b"f").result,
        Err(FsError::NotDirectory)
    );
    assert_eq!(fs.rmdir(&root(), &top, b"d").result, Err(FsError::NotEmpty));
    let change = fs.remove(&root(), &dir, b"inner");
    assert_eq!(change.result, Ok(()));
    assert_ne!(
        change.wcc.before.unwrap().mtime,
        change.wcc.after.unwrap().mtime
    );
    assert_eq!(fs.rmdir(&root(), &top, b"d").result, Ok(()));
    assert_eq!(fs.remove(&root(), &top, b"f").result, Ok(()));
    assert!(rig.names(&top).is_empty());
    assert_eq!(rig.attributes(&top).nlink, 2);
}

fn renaming(rig: &Fixture) {
    let top = rig.root();
    let dir = rig.mkdir(&top, b"d");
    let file = rig.create(&top, b"f");
    assert_eq!(rename(rig, &top, b"f", &top, b"g"), Ok(()));
    assert_eq!(rig.find(&top, b"g"), Ok(file));
    assert_eq!(rig.find(&top, b"f"), Err(FsError::NotFound));
    let renamed = rig.fs.rename(&root(), &top, b"g", &dir, b"h");
    assert_eq!(renamed.result, Ok(()));
    for wcc in [renamed.from, renamed.to] {
        assert_ne!(wcc.before.unwrap().mtime, wcc.after.unwrap().mtime);
    }
    assert_eq!(rig.find(&dir, b"h"), Ok(file));
    assert_eq!(rig.names(&top), [b"d".to_vec()]);
    assert_eq!(
        rename(rig, &top, b"none", &dir, b"x"),
        Err(FsError::NotFound)
    );
    assert_eq!(
        rename(rig, &file, b"x", &dir, b"x"),
        Err(FsError::NotDirectory)
    );
}

fn renaming_over_what_exists(rig: &Fixture) {
    let top = rig.root();
    let dir = rig.mkdir(&top, b"d");
    let (one, two) = (rig.create(&top, b"1"), rig.create(&dir, b"2"));
    rig.write(&one, 0, b"one");
    assert_eq!(rename(rig, &top, b"1", &dir, b"2"), Ok(()));
    assert_eq!(rig.find(&dir, b"2"), Ok(one));
    assert_eq!(rig.fs.getattr(&two), Err(FsError::Stale));
    assert_eq!(rig.names(&dir), [b"2".to_vec()]);
    assert!(rig.names(&top) == [b"d".to_vec()]);
    // Both names refer to one object: both stay (RFC 1813, section 3.3.14).
    rig.fs.link(&root(), &one, &top, b"same").result.unwrap();
    assert_eq!(rename(rig, &dir, b"2", &top, b"same"), Ok(()));
    assert_eq!(rig.names(&dir), [b"2".to_vec()]);
    assert_eq!(rig.attributes(&one).nlink, 2);
    assert_eq!(rename(rig, &dir, b"2", &dir, b"2"), Ok(()));
    assert_eq!(
        rename(rig, &top, b"d", &top, b"same"),
        Err(FsError::NotDirectory)
    );
    assert_eq!(
        rename(rig, &top, b"same", &top, b"d"),
        Err(FsError::IsDirectory)
    );
}

fn renaming_directories(rig: &Fixture) {
    let top = rig.root();
    let (a, b) = (rig.mkdir(&top, b"a"), rig.mkdir(&top, b"b"));
    let inner = rig.mkdir(&a, b"inner");
    rig.create(&inner, b"f");
    let links = |id: &FileId| rig.attributes(id).nlink;
    assert_eq!((links(&top), links(&a), links(&b)), (4, 3, 2));
    assert_eq!(rename(rig, &a, b"inner", &b, b"moved"), Ok(()));
    assert_eq!((links(&top), links(&a), links(&b)), (4, 2, 3));
    let above = rig.fs.lookup(&root(), &inner, b"..").unwrap();
    assert_eq!(above.object.attributes.fileid, rig.attributes(&b).fileid);
    assert_eq!(rig.names(&inner), [b"f".to_vec()]);
    assert_eq!(
        rename(rig, &top, b"a", &b, b"moved"),
        Err(FsError::NotEmpty)
    );
    assert_eq!(rename(rig, &b, b"moved", &top, b"a"), Ok(()));
    assert_eq!(rig.fs.getattr(&a), Err(FsError::Stale));
    assert_eq!(rig.find(&top, b"a"), Ok(inner));
    assert_eq!((links(&top), links(&b)), (4, 2));
}

fn no_cycles(rig: &Fixture) {
    let top = rig.root();
    let a = rig.mkdir(&top, b"a");
    let b = rig.mkdir(&a, b"b");
    let c = rig.mkdir(&b, b"c");
    assert_eq!(rename(rig, &top, b"a", &c, b"a"), Err(FsError::Invalid));
    assert_eq!(rename(rig, &top, b"a", &a, b"x"), Err(FsError::Invalid));
    assert_eq!(rename(rig, &a, b"b", &c, b"x"), Err(FsError::Invalid));
    assert_eq!(rig.find(&b, b"c"), Ok(c));
}

fn a_moved_object_keeps_its_handle(rig: &Fixture) {
    let top = rig.root();
    let (a, b) = (rig.mkdir(&top, b"a"), rig.mkdir(&top, b"b"));
    let file = rig.create(&a, b"f");
    rig.write(&file, 0, b"content");
    assert_eq!(rename(rig, &a, b"f", &b, b"g"), Ok(()));
    assert_eq!(rename(rig, &top, b"b", &a, b"b"), Ok(()));
    assert_eq!(rig.read(&file, 0, 10).0, b"content");
    assert_eq!(rig.find(&b, b"g"), Ok(file));
}

/// Threads that create, move and remove in the same directories leave a consistent tree.
fn concurrent_changes(rig: &Fixture) {
    let top = rig.root();
    let dirs = [rig.mkdir(&top, b"a"), rig.mkdir(&top, b"b")];
    std::thread::scope(|scope| {
        for worker in 0..4usize {
            scope.spawn(move || {
                let [from, to] = [dirs[worker % 2], dirs[1 - worker % 2]];
                for round in 0..40 {
                    let name = format!("{worker}-{round}").into_bytes();
                    let made = rig.mkdir(&from, &name);
                    rig.create(&made, b"f");
                    rename(rig, &from, &name, &to, &name).unwrap();
                    rig.names(&to);
                    // All threads compete for this name.
                    let _ = rig.fs.mkdir(&root(), &from, b"shared", &mode(0o700));
                    let _ = rename(rig, &from, b"shared", &to, b"shared");
                    let _ = rig.fs.rmdir(&root(), &to, b"shared");
                    if round % 2 == 0 {
                        rig.fs.remove(&root(), &made, b"f").result.unwrap();
                        rig.fs.rmdir(&root(), &to, &name).result.unwrap();
                    }
                }
            });
        }
    });
    for dir in &dirs {
        let _ = rig.fs.rmdir(&root(), dir, b"shared");
        let names = rig.names(dir);
        assert_eq!(names.len(), 40);
        assert_eq!(rig.attributes(dir).nlink, 42);
        for name in names {
            let inner = rig.find(dir, &name).unwrap();
            assert_eq!(rig.names(&inner), [b"f".to_vec()]);
        }
    }
}
