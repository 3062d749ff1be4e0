//! Tests that handles end with the export that they were issued for: another directory under its
//! name is another export, though the kernel opens the files of both by handle.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::proto::{
    Access, AccessArgs, CommitArgs, CreateArgs, CreateHow, Data, LinkArgs, MkdirArgs, ReadArgs,
    ReaddirArgs, ReaddirplusArgs, RenameArgs, SetattrArgs, Stable, WriteArgs,
};

/// Starts a server of these directories, with a key that lasts. `indexed` makes it find files as a
/// server without the privilege to open them by handle.
fn serve(indexed: bool, exports: &[(&str, &Path)]) -> Fixture {
    let exports = exports.iter().map(|(name, directory)| {
        let options = DirectoryOptions {
            sync: false,
            most_open: crate::fs::tests::MOST_OPEN,
            indexed,
            ..DirectoryOptions::default()
        };
        let fs = DirectoryFs::open(directory, options).unwrap();
        export(name, Arc::new(fs), "")
    });
    Fixture::new(exports.collect())
}

/// Returns the status of GETATTR as soon as the server has searched for the object.
fn settled(rig: &mut Fixture, object: FileHandle) -> Status {
    let begun = Instant::now();
    loop {
        match status(rig.call::<nfs::Getattr>(&HandleArgs { object })) {
            Status::JUKEBOX if begun.elapsed() < Duration::from_secs(20) => {}
            status => return status,
        }
    }
}

/// Handles of an export, and its name for messages.
struct Issued {
    root: FileHandle,
    dir: FileHandle,
    file: FileHandle,
}

/// Takes handles of an export's root, of a directory in it, and of a file in that.
fn issued(rig: &mut Fixture, export: &str) -> Issued {
    let root = rig.mount(export).unwrap();
    let dir = rig.mkdir(root, "dir");
    let file = rig.create(dir, "file");
    Issued { root, dir, file }
}

impl Issued {
    fn all(&self) -> [FileHandle; 3] {
        [self.root, self.dir, self.file]
    }

    /// Asserts that the server does nothing with the handles. `other` is a directory that it
    /// serves.
    #[track_caller]
    fn are_stale(&self, rig: &mut Fixture, other: FileHandle) {
        for object in self.all() {
            // At once: nothing is searched for.
            let got = rig.call::<nfs::Getattr>(&HandleArgs { object });
            assert_eq!(status(got), Status::STALE);
        }
        let &Self { dir, file, .. } = self;
        let none = SetAttributes::default;
        let access = Access::READ;
        let list = (0, [0; 8], 4096);
        let refused = [
            status(rig.call::<nfs::Setattr>(&SetattrArgs {
                object: file,
                attributes: mode(0),
                guard: None,
            })),
            status(rig.call::<nfs::Lookup>(&what(dir, "file"))),
            status(rig.call::<nfs::Access>(&AccessArgs {
                object: file,
                access,
            })),
            status(rig.call::<nfs::Read>(&ReadArgs {
                file,
                offset: 0,
                count: 1,
            })),
            status(rig.call::<nfs::Write>(&WriteArgs {
                file,
                offset: 0,
                count: 1,
                stable: Stable::FileSync,
                data: Data::from(&b"x"[..]),
            })),
            status(rig.call::<nfs::Create>(&CreateArgs {
                place: at(dir, "new"),
                how: CreateHow::Unchecked(none()),
            })),
            status(rig.call::<nfs::Mkdir>(&MkdirArgs {
                place: at(dir, "new"),
                attributes: none(),
            })),
            status(rig.call::<nfs::Remove>(&what(dir, "file"))),
            status(rig.call::<nfs::Rename>(&RenameArgs {
                from: at(dir, "file"),
                to: at(other, "file"),
            })),
            status(rig.call::<nfs::Rename>(&RenameArgs {
                from: at(other, "own"),
                to: at(dir, "own"),
            })),
            status(rig.call::<nfs::Link>(&LinkArgs {
                object: file,
                link: at(other, "file"),
            })),
            status(rig.call::<nfs::Readdir>(&ReaddirArgs {
                dir,
                cookie: list.0,
                verifier: list.1,
                count: list.2,
            })),
            status(rig.call::<nfs::Readdirplus>(&ReaddirplusArgs {
                dir,
                cookie: list.0,
                verifier: list.1,
                dir_count: list.2,
                max_count: list.2,
            })),
            status(rig.call::<nfs::Commit>(&CommitArgs {
                file,
                offset: 0,
                count: 0,
            })),
        ];
        assert_eq!(refused, [Status::STALE; 14]);
    }

    /// Asserts that the server finds all objects.
    #[track_caller]
    fn are_valid(&self, rig: &mut Fixture) {
        for object in self.all() {
            assert_eq!(settled(rig, object), Status::OK);
        }
    }
}

/// Returns a directory with these directories in it.
fn with_directories(names: &[&str]) -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    for name in names {
        fs::create_dir(host.path().join(name)).unwrap();
    }
    host
}

#[test]
fn handles_end_when_the_exports_name_is_given_to_another_directory() {
    for indexed in [false, true] {
        let host = with_directories(&["a", "b"]);
        let [a, b] = ["a", "b"].map(|name| host.path().join(name));
        let handles = issued(&mut serve(indexed, &[("data", &a)]), "data");
        fs::write(b.join("own"), b"").unwrap();
        let mut other = serve(indexed, &[("data", &b)]);
        let root = other.mount("data").unwrap();
        handles.are_stale(&mut other, root);
        // The old directory may be exported beside it, under another name.
        let mut both = serve(indexed, &[("data", &b), ("old", &a)]);
        let root = both.mount("old").unwrap();
        handles.are_stale(&mut both, root);
        assert_eq!(fs::read(a.join("dir/file")).unwrap(), b"");
        assert_eq!(fs::read_dir(&b).unwrap().count(), 1, "nothing came into it");
        handles.are_valid(&mut serve(indexed, &[("data", &a)]));
    }
}

/// The directory that was exported is renamed, and another one made in its place.
#[test]
fn handles_end_when_the_exported_directory_is_replaced() {
    for indexed in [false, true] {
        let host = with_directories(&["rp"]);
        let [rp, old] = ["rp", "rp.old"].map(|name| host.path().join(name));
        let mut rig = serve(indexed, &[("data", &rp)]);
        let handles = issued(&mut rig, "data");
        fs::rename(&rp, &old).unwrap();
        fs::create_dir(&rp).unwrap();
        fs::write(rp.join("own"), b"").unwrap();
        // A server that is running has the directory open, and goes on with it.
        handles.are_valid(&mut rig);
        assert_eq!(rig.mount("data"), Ok(handles.root));
        let mut again = serve(indexed, &[("data", &rp)]);
        let root = again.mount("data").unwrap();
        handles.are_stale(&mut again, root);
        // What is exported is the directory: it may have another place.
        handles.are_valid(&mut serve(indexed, &[("data", &old)]));
    }
}

/// An inode number that is used again does not make another directory the same one.
#[test]
fn handles_end_when_the_exported_directory_is_removed_and_made_again() {
    let host = with_directories(&["rp"]);
    let rp = host.path().join("rp");
    let mut seen = Vec::new();
    for _ in 0..20 {
        let mut rig = serve(false, &[("data", &rp)]);
        let root = rig.mount("data").unwrap();
        for &old in &seen {
            assert_eq!(settled(&mut rig, old), Status::STALE);
        }
        seen.push(root);
        fs::remove_dir(&rp).unwrap();
        assert_eq!(settled(&mut rig, root), Status::STALE);
        assert_eq!(rig.mount("data"), Err(Status::NOENT));
        drop(rig);
        fs::create_dir(&rp).unwrap();
    }
}

#[test]
fn the_two_names_of_one_directory_are_two_exports() {
    let host = with_directories(&["a"]);
    let a = host.path().join("a");
    let mut rig = serve(false, &[("one", &a), ("two", &a)]);
    let handles = issued(&mut rig, "one");
    let two = rig.mount("two").unwrap();
    assert_ne!(two, handles.root);
    let fsid = |rig: &mut Fixture, handle| rig.attributes(handle).fsid;
    assert_ne!(fsid(&mut rig, two), fsid(&mut rig, handles.root));
    let renamed = rig.call::<nfs::Rename>(&RenameArgs {
        from: at(handles.dir, "file"),
        to: at(two, "file"),
    });
    assert_eq!(status(renamed), Status::XDEV);
    let linked = rig.call::<nfs::Link>(&LinkArgs {
        object: handles.file,
        link: at(two, "file"),
    });
    assert_eq!(status(linked), Status::XDEV);
    let mut one = serve(false, &[("two", &a)]);
    handles.are_stale(&mut one, two);
    assert_eq!(settled(&mut one, two), Status::OK);
}

#[test]
fn the_handles_of_an_outer_export_end_with_it_and_not_those_of_the_inner_one() {
    let host = with_directories(&["outer", "outer/inner"]);
    let outer = host.path().join("outer");
    let inner = outer.join("inner");
    let mut rig = serve(false, &[("outer", &outer), ("outer/inner", &inner)]);
    let handles = issued(&mut rig, "outer/inner");
    let root = rig.mount("outer").unwrap();
    let through = rig.call::<nfs::Lookup>(&what(root, "inner")).unwrap();
    // A directory below an export can be mounted, too: it is then of the outer export.
    let mut single = serve(false, &[("outer", &outer)]);
    assert_eq!(single.mount("outer/inner"), Ok(through.object));
    assert_eq!(settled(&mut single, through.object), Status::OK);
    assert_eq!(settled(&mut single, handles.file), Status::STALE);
    let mut left = serve(false, &[("outer/inner", &inner)]);
    for object in [root, through.object] {
        assert_eq!(settled(&mut left, object), Status::STALE);
    }
    handles.are_valid(&mut left);
    // The name of the inner export is given to the outer one's directory.
    let mut swapped = serve(false, &[("outer/inner", &outer)]);
    let root = swapped.mount("outer/inner").unwrap();
    handles.are_stale(&mut swapped, root);
}
