//! Tests of copies onto existing objects.

use std::fs;

use super::*;

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

    let no_directory = "exists, and is no directory: none can be made in its place";
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
    let text = "/dev/null is a device: it is not replaced by a file";
    assert_eq!(texts(&report), [text]);
    let text = texts(&rig.get("file", "new/")).remove(0);
    assert!(
        text.ends_with("new/: Not a directory (os error 20)"),
        "{text}"
    );
}
