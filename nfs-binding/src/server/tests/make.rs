//! Tests of procedures that create and remove names.

use super::*;
use crate::proto::{
    CreateArgs, CreateHow, DeviceNumber, FileType, LinkArgs, LookupOk, MkdirArgs, MknodArgs,
    MknodWhat, RenameArgs, SymlinkArgs,
};

on_both! {
    everything_can_be_made_and_found,
    creation_is_exclusive_or_guarded,
    removal,
    renaming_and_linking,
    names_that_are_refused,
}

fn find(rig: &mut Fixture, dir: FileHandle, name: &str) -> Result<LookupOk, Status> {
    let found = rig.call::<nfs::Lookup>(&what(dir, name));
    found.map_err(|failed| {
        assert!(failed.attributes.is_some(), "the directory's attributes");
        failed.status
    })
}

fn everything_can_be_made_and_found(mut rig: Fixture) {
    let root = rig.root();
    let none = SetAttributes::default;
    let create = CreateArgs {
        place: at(root, "file"),
        how: CreateHow::Unchecked(mode(0o640)),
    };
    let mkdir = MkdirArgs {
        place: at(root, "directory"),
        attributes: mode(0o750),
    };
    let symlink = SymlinkArgs {
        place: at(root, "symlink"),
        attributes: none(),
        text: crate::proto::LinkText::from(&b"file"[..]),
    };
    let mut made = vec![
        (FileType::Regular, "file", rig.call::<nfs::Create>(&create)),
        (
            FileType::Directory,
            "directory",
            rig.call::<nfs::Mkdir>(&mkdir),
        ),
        (
            FileType::Symlink,
            "symlink",
            rig.call::<nfs::Symlink>(&symlink),
        ),
    ];
    let device = DeviceNumber { major: 5, minor: 6 };
    for (file_type, name, what) in [
        (
            FileType::Character,
            "c",
            MknodWhat::Character(none(), device),
        ),
        (FileType::Block, "b", MknodWhat::Block(none(), device)),
        (FileType::Socket, "s", MknodWhat::Socket(none())),
        (FileType::Fifo, "p", MknodWhat::Fifo(none())),
    ] {
        let place = at(root, name);
        let args = MknodArgs { place, what };
        made.push((file_type, name, rig.call::<nfs::Mknod>(&args)));
    }
    for (file_type, name, made) in made {
        let made = made.unwrap();
        let attributes = made.attributes.unwrap();
        assert_eq!(attributes.file_type, file_type);
        assert_ne!(
            made.dir_wcc.before.unwrap().mtime,
            made.dir_wcc.after.unwrap().mtime
        );
        let found = find(&mut rig, root, name).unwrap();
        assert_eq!(Some(found.object), made.object);
        assert_eq!(found.attributes.unwrap(), attributes);
        assert_eq!(found.dir_attributes.unwrap(), rig.attributes(root));
    }
    assert_eq!(find(&mut rig, root, "none").unwrap_err(), Status::NOENT);
    let file = find(&mut rig, root, "file").unwrap().object;
    assert_eq!(find(&mut rig, file, "x").unwrap_err(), Status::NOTDIR);
    let args = MknodArgs {
        place: at(root, "x"),
        what: MknodWhat::Other(FileType::Regular),
    };
    let refused = rig.call::<nfs::Mknod>(&args).unwrap_err();
    assert_eq!(refused.status, Status::BADTYPE);
    assert!(refused.attributes.after.is_some());
}

fn creation_is_exclusive_or_guarded(mut rig: Fixture) {
    let root = rig.root();
    let mut create = |how| {
        let args = CreateArgs {
            place: at(root, "f"),
            how,
        };
        let made = rig.call::<nfs::Create>(&args);
        made.map(|ok| ok.object.unwrap()).map_err(|failed| {
            assert!(failed.attributes.before.is_some());
            failed.status
        })
    };
    let file = create(CreateHow::Exclusive([1; 8])).unwrap();
    assert_eq!(create(CreateHow::Exclusive([1; 8])), Ok(file));
    assert_eq!(create(CreateHow::Exclusive([2; 8])), Err(Status::EXIST));
    assert_eq!(create(CreateHow::Guarded(mode(0o600))), Err(Status::EXIST));
    assert_eq!(create(CreateHow::Unchecked(mode(0o600))), Ok(file));
}

fn removal(mut rig: Fixture) {
    let root = rig.root();
    rig.create(root, "f");
    let dir = rig.mkdir(root, "d");
    rig.create(dir, "f");
    let refused = rig.call::<nfs::Rmdir>(&what(root, "d")).unwrap_err();
    assert_eq!(refused.status, Status::NOTEMPTY);
    assert!(refused.attributes.before.is_some() && refused.attributes.after.is_some());
    assert_eq!(
        status(rig.call::<nfs::Remove>(&what(root, "d"))),
        Status::ISDIR
    );
    assert_eq!(
        status(rig.call::<nfs::Rmdir>(&what(root, "f"))),
        Status::NOTDIR
    );
    assert_eq!(
        status(rig.call::<nfs::Remove>(&what(root, "x"))),
        Status::NOENT
    );
    let wcc = rig.call::<nfs::Remove>(&what(dir, "f")).unwrap();
    assert_ne!(wcc.before.unwrap().mtime, wcc.after.unwrap().mtime);
    assert_eq!(status(rig.call::<nfs::Rmdir>(&what(root, "d"))), Status::OK);
    let gone = rig.call::<nfs::Getattr>(&HandleArgs { object: dir });
    assert_eq!(status(gone), Status::STALE);
    let gone = rig.call::<nfs::Lookup>(&what(dir, "f")).unwrap_err();
    assert_eq!((gone.status, gone.attributes), (Status::STALE, None));
}

fn renaming_and_linking(mut rig: Fixture) {
    let root = rig.root();
    let dir = rig.mkdir(root, "d");
    let file = rig.create(root, "f");
    let ok = rig.call::<nfs::Link>(&LinkArgs {
        object: file,
        link: at(dir, "g"),
    });
    let ok = ok.unwrap();
    assert_eq!(ok.attributes.unwrap().nlink, 2);
    assert_ne!(
        ok.dir_wcc.before.unwrap().mtime,
        ok.dir_wcc.after.unwrap().mtime
    );
    let refused = rig.call::<nfs::Link>(&LinkArgs {
        object: file,
        link: at(root, "d"),
    });
    let refused = refused.unwrap_err();
    assert_eq!(refused.status, Status::EXIST);
    assert_eq!(refused.attributes.attributes.unwrap().nlink, 2);
    let rename = |from, to| RenameArgs { from, to };
    let ok = rig
        .call::<nfs::Rename>(&rename(at(root, "f"), at(dir, "h")))
        .unwrap();
    for wcc in [ok.from_dir, ok.to_dir] {
        assert_ne!(wcc.before.unwrap().mtime, wcc.after.unwrap().mtime);
    }
    assert_eq!(find(&mut rig, dir, "h").unwrap().object, file);
    let refused = rig.call::<nfs::Rename>(&rename(at(root, "f"), at(dir, "h")));
    let refused = refused.unwrap_err();
    assert_eq!(refused.status, Status::NOENT);
    assert!(refused.attributes.from_dir.after.is_some());
    assert!(refused.attributes.to_dir.after.is_some());
    let cycle = rig.call::<nfs::Rename>(&rename(at(root, "d"), at(dir, "x")));
    assert_eq!(status(cycle), Status::INVAL);
}

fn names_that_are_refused(mut rig: Fixture) {
    let root = rig.root();
    let long = "x".repeat(256);
    let very_long = "x".repeat(4000);
    for (name, error) in [
        ("", Status::ACCES),
        ("a/b", Status::ACCES),
        (&long, Status::NAMETOOLONG),
        (&very_long, Status::NAMETOOLONG),
    ] {
        assert_eq!(find(&mut rig, root, name).unwrap_err(), error);
        let args = MkdirArgs {
            place: at(root, name),
            attributes: mode(0o700),
        };
        assert_eq!(status(rig.call::<nfs::Mkdir>(&args)), error);
    }
    assert_eq!(find(&mut rig, root, "..").unwrap().object, root);
}
