//! Tests of export options and of the validity of handles.

use super::*;
use crate::proto::ReaddirplusArgs;
use crate::proto::{
    Access, AccessArgs, CommitArgs, CreateArgs, CreateHow, Data, LinkArgs, MkdirArgs, MknodArgs,
    MknodWhat, RenameArgs, SetattrArgs, Stable, SymlinkArgs, WriteArgs,
};

#[test]
fn nothing_changes_through_a_read_only_export() {
    let fs = memory();
    let mut rig = Fixture::new(vec![
        export("/rw", Arc::clone(&fs), ""),
        export("/ro", fs, "ro"),
    ]);
    let writable = rig.mount("/rw").unwrap();
    rig.create(writable, "f");
    let root = rig.mount("/ro").unwrap();
    let file = rig.call::<nfs::Lookup>(&what(root, "f")).unwrap().object;
    let none = SetAttributes::default;
    let text = crate::proto::LinkText::from(&b"t"[..]);
    let place = || at(root, "x");
    let refused = [
        status(rig.call::<nfs::Setattr>(&SetattrArgs {
            object: file,
            attributes: mode(0),
            guard: None,
        })),
        status(rig.call::<nfs::Write>(&WriteArgs {
            file,
            offset: 0,
            count: 1,
            stable: Stable::FileSync,
            data: Data::from(&b"x"[..]),
        })),
        status(rig.call::<nfs::Create>(&CreateArgs {
            place: place(),
            how: CreateHow::Unchecked(none()),
        })),
        status(rig.call::<nfs::Mkdir>(&MkdirArgs {
            place: place(),
            attributes: none(),
        })),
        status(rig.call::<nfs::Symlink>(&SymlinkArgs {
            place: place(),
            attributes: none(),
            text,
        })),
        status(rig.call::<nfs::Mknod>(&MknodArgs {
            place: place(),
            what: MknodWhat::Fifo(none()),
        })),
        status(rig.call::<nfs::Remove>(&what(root, "f"))),
        status(rig.call::<nfs::Rmdir>(&what(root, "f"))),
        status(rig.call::<nfs::Rename>(&RenameArgs {
            from: at(root, "f"),
            to: place(),
        })),
        status(rig.call::<nfs::Link>(&LinkArgs {
            object: file,
            link: place(),
        })),
        status(rig.call::<nfs::Commit>(&CommitArgs {
            file,
            offset: 0,
            count: 0,
        })),
    ];
    assert_eq!(refused, [Status::ROFS; 11]);
    let refused = rig.call::<nfs::Remove>(&what(root, "f")).unwrap_err();
    assert_eq!(refused.attributes.after, Some(rig.attributes(root)));
    let all = Access::from_bits_retain(!0);
    let ok = rig.call::<nfs::Access>(&AccessArgs {
        object: root,
        access: all,
    });
    assert_eq!(ok.unwrap().access, Access::READ | Access::LOOKUP);
    assert_eq!(rig.attributes(file).mode, 0o644);
}

#[test]
fn clients_are_checked_on_every_call() {
    let mut rig = Fixture::new(vec![export(
        "/m",
        memory(),
        "client=192.0.2.0/24,client=::1",
    )]);
    let root = rig.root();
    for (peer, allowed) in [
        ("192.0.2.77:1", true),
        ("[::1]:1", true),
        ("[::ffff:192.0.2.1]:1", true),
        ("198.51.100.1:1", false),
        ("[2001:db8::1]:1", false),
    ] {
        rig.peer = peer.parse().unwrap();
        let expected = if allowed { Status::OK } else { Status::ACCES };
        let mounted = rig.mount("/m");
        assert_eq!(mounted.err().unwrap_or(Status::OK), expected, "{peer}");
        let got = rig.call::<nfs::Getattr>(&HandleArgs { object: root });
        assert_eq!(status(got), expected, "{peer}");
        let made = rig.call::<nfs::Mkdir>(&MkdirArgs {
            place: at(root, peer),
            attributes: mode(0o700),
        });
        assert_eq!(status(made), expected, "{peer}");
    }
}

#[test]
fn root_is_squashed() {
    let mut rig = Fixture::new(vec![export(
        "/m",
        memory(),
        "root_squash,anonuid=7,anongid=8",
    )]);
    let root = rig.root();
    let made = rig.create(root, "f");
    let attributes = rig.attributes(made);
    assert_eq!((attributes.uid, attributes.gid), (7, 8));
    let chown = SetattrArgs {
        object: made,
        attributes: SetAttributes {
            uid: Some(0),
            ..SetAttributes::default()
        },
        guard: None,
    };
    assert_eq!(status(rig.call::<nfs::Setattr>(&chown)), Status::PERM);
    rig.credential = Credential::None;
    let made = rig.create(root, "g");
    assert_eq!(rig.attributes(made).uid, 7);
    rig.credential = user(55);
    let made = rig.create(root, "h");
    assert_eq!(rig.attributes(made).uid, 55);
}

#[test]
fn exports_do_not_mix() {
    let mut rig = Fixture::new(vec![export("/a", memory(), ""), export("/b", memory(), "")]);
    let (a, b) = (rig.mount("/a").unwrap(), rig.mount("/b").unwrap());
    assert_ne!(rig.attributes(a).fsid, rig.attributes(b).fsid);
    let file = rig.create(a, "f");
    let renamed = rig.call::<nfs::Rename>(&RenameArgs {
        from: at(a, "f"),
        to: at(b, "f"),
    });
    let failed = renamed.unwrap_err();
    assert_eq!(failed.status, Status::XDEV);
    assert!(failed.attributes.from_dir.after.is_some());
    let linked = rig.call::<nfs::Link>(&LinkArgs {
        object: file,
        link: at(b, "f"),
    });
    assert_eq!(status(linked), Status::XDEV);
}

/// A failed RENAME or LINK reports the attributes of both objects. The thread that serves all
/// connections must not read them from a disk.
#[test]
fn a_worker_answers_if_either_handle_is_of_a_file_system_that_blocks() {
    let host = tempfile::tempdir().unwrap();
    let disk = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
    let mut rig = Fixture::new(vec![
        export("/a", memory(), ""),
        export("/b", memory(), ""),
        export("/disk", Arc::new(disk), "ro"),
    ]);
    let [a, b, disk] = ["/a", "/b", "/disk"].map(|path| rig.mount(path).unwrap());
    for (one, other, later) in [
        (a, a, false),
        (a, b, false),
        (a, disk, true),
        (disk, a, true),
    ] {
        let rename = RenameArgs {
            from: at(one, "a name that is not short enough to be stored inline"),
            to: at(other, "f"),
        };
        assert_eq!(rig.is_later::<nfs::Rename>(&rename), later);
        let link = LinkArgs {
            object: one,
            link: at(other, "f"),
        };
        assert_eq!(rig.is_later::<nfs::Link>(&link), later);
    }
}

#[test]
fn forged_handles_are_refused() {
    let mut rig = Fixture::memory();
    let root = rig.root();
    let mut bytes = root.as_bytes().to_vec();
    // Garbage has another status than a handle that looks like one of another key.
    for (handle, answer) in [
        (FileHandle::new(b"").unwrap(), Status::BADHANDLE),
        (FileHandle::new(&[0; 64]).unwrap(), Status::BADHANDLE),
        (
            FileHandle::new(&bytes[..bytes.len() - 1]).unwrap(),
            Status::STALE,
        ),
        (
            {
                *bytes.last_mut().unwrap() ^= 1;
                FileHandle::new(&bytes).unwrap()
            },
            Status::STALE,
        ),
    ] {
        let got = rig.call::<nfs::Getattr>(&HandleArgs { object: handle });
        assert_eq!(status(got), answer);
        let refused = rig.call::<nfs::Remove>(&what(handle, "f")).unwrap_err();
        assert_eq!(refused.status, answer);
        assert_eq!(refused.attributes.after, None);
    }
}

#[test]
fn handles_outlive_the_server_but_not_its_key() {
    let fs = memory();
    let mut rig = Fixture::new(vec![export("/m", Arc::clone(&fs), "")]);
    let root = rig.root();
    let file = rig.create(root, "f");
    let mut again = Fixture::new(vec![
        export("/other", memory(), ""),
        export("/m", Arc::clone(&fs), ""),
    ]);
    assert_eq!(again.attributes(file), rig.attributes(file));
    let mut without = Fixture::new(vec![export("/other", memory(), "")]);
    let got = without.call::<nfs::Getattr>(&HandleArgs { object: file });
    assert_eq!(status(got), Status::STALE);
    let mut emptied = Fixture::new(vec![export("/m", memory(), "")]);
    let got = emptied.call::<nfs::Getattr>(&HandleArgs { object: file });
    assert_eq!(status(got), Status::STALE);
    rig.server = NfsServer::new(vec![export("/m", fs, "")], HandleKey::random().unwrap()).unwrap();
    let got = rig.call::<nfs::Getattr>(&HandleArgs { object: file });
    // As with knfsd, users see "Stale file handle", and clients look the file up again. For
    // BADHANDLE, Linux's client reports "Unknown error 521".
    assert_eq!(status(got), Status::STALE);
}

#[test]
fn exports_that_cannot_be_told_apart() {
    let new = |paths: &[&str]| {
        let exports = paths.iter().map(|path| export(path, memory(), ""));
        NfsServer::new(exports.collect(), key()).map(|_| ())
    };
    assert_eq!(new(&["/a", "/a/b", "name"]), Ok(()));
    assert_eq!(new(&["/a", "a/"]), Err(ExportsError::Twice("a/".into())));
    assert_eq!(new(&[""]), Err(ExportsError::Empty));
    let long = "x".repeat(1025);
    assert_eq!(new(&[&long]), Err(ExportsError::TooLong(long.clone())));
    let numbered = |a, b| {
        let exports = vec![export("/a", memory(), a), export("/b", memory(), b)];
        NfsServer::new(exports, key()).map(drop)
    };
    assert_eq!(
        numbered("fsid=7", "fsid=0x7"),
        Err(ExportsError::SameFsid {
            fsid: 7,
            other: "/a".into(),
            path: "/b".into()
        })
    );
    assert_eq!(numbered("fsid=7", "fsid=8"), Ok(()));
    assert_eq!(numbered("fsid=7", ""), Ok(()));
}

/// exports(5): with `nohide`, an export whose directory is mounted below another one is visible
/// there with its own options. Without it, an empty directory is visible. MNT leads to the same directory
/// as LOOKUP.
#[test]
fn an_export_below_another_is_seen_there_with_nohide() {
    let key = key();
    // Every host has this directory.
    let exports = |top: &str, options: &str| {
        [
            &format!("top=/:async,inode_reuse{top}"),
            &format!("proc=/proc:ro,async,inode_reuse,{options}"),
        ]
        .map(|text| {
            let spec = ExportSpec::parse(text).unwrap();
            spec.open(&key, None, false).unwrap()
        })
    };
    // With crossmnt of the other export it is visible as well, still with its own options.
    for (top, options, seen) in [
        ("", "nohide", true),
        ("", "nohide,client=198.51.100.1", false),
        ("", "hide", false),
        (",crossmnt", "hide", true),
        (",crossmnt", "hide,client=198.51.100.1", false),
    ] {
        let [top, proc] = exports(top, options);
        let mut rig = Fixture::new(vec![
            Export {
                options: ExportOptions {
                    crossmnt: top.options.crossmnt,
                    ..ExportOptions::for_server(false)
                },
                ..top
            },
            Export {
                options: ExportOptions {
                    secure: false,
                    ..proc.options.clone()
                },
                ..proc
            },
        ]);
        let root = rig.mount("/top").unwrap();
        let found = rig.call::<nfs::Lookup>(&what(root, "proc")).unwrap();
        let inside = rig.call::<nfs::Lookup>(&what(found.object, "version"));
        assert_eq!(inside.is_ok(), seen, "{options}");
        assert_eq!(rig.mount("/top/proc"), Ok(found.object), "{options}");
        let listed = rig.call::<nfs::Readdirplus>(&ReaddirplusArgs {
            dir: root,
            cookie: 0,
            verifier: [0; 8],
            dir_count: 64 << 10,
            max_count: 64 << 10,
        });
        let mut listed = listed.unwrap().entries.into_iter();
        let listed = listed.find(|entry| entry.name.as_ref() == b"proc").unwrap();
        assert_eq!(listed.handle, Some(found.object), "{options}");
        let fsid = |attributes: &Option<Attributes>| attributes.as_ref().unwrap().fsid;
        let same = fsid(&listed.attributes) == fsid(&found.attributes);
        assert!(
            same,
            "{options}: one file system by its name and in a listing"
        );
        let below = rig.call::<nfs::Lookup>(&what(found.object, "sys"));
        let below = below.map(|below| below.object);
        let below = below.map_err(|failed| failed.status);
        assert_eq!(below.is_ok(), seen, "{options}");
        assert_eq!(rig.mount("/top/proc/sys"), below, "{options}");
        let file = if seen { Status::NOTDIR } else { Status::NOENT };
        assert_eq!(rig.mount("/top/proc/version"), Err(file), "{options}");
        let own = rig
            .call::<nfs::Getattr>(&HandleArgs { object: root })
            .unwrap();
        let fsid = found.attributes.unwrap().fsid;
        assert_eq!(
            fsid != own.fsid,
            seen,
            "{options}: a file system of its own"
        );
        let made = MkdirArgs {
            place: at(found.object, "x"),
            attributes: mode(0o700),
        };
        assert_eq!(status(rig.call::<nfs::Mkdir>(&made)), Status::ROFS);
    }
}
