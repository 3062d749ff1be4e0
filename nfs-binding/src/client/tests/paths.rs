//! Tests of paths and listings.

use std::os::unix::fs::symlink;

use super::super::{Follow, MAX_LINKS};
use super::*;
use crate::proto::FileType;

#[test]
fn paths_are_followed_as_they_are_here() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/b/file"), "found").unwrap();
    symlink("../b", at("a/b/back")).unwrap();
    symlink("a/b/back/back", at("chain")).unwrap();
    symlink("/srv/data/a", at("a/b/absolute")).unwrap();
    symlink("/etc/passwd", at("outside")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    let server = serve(&[("/srv/data", &directory)]);
    let (mount, _) = attach(&server, "/srv/data", AttachOptions::default()).unwrap();
    let resolve = |path: &str, follow| run(mount.resolve(path.as_bytes(), follow));
    let file = resolve("a/b/file", Follow::Yes).unwrap();
    assert_eq!(file.attributes.size, 5);
    for path in [
        "/a//b/./file",
        "a/b/c/../file",
        "a/b/back/file",
        "chain/file",
        "a/b/absolute/b/file",
        "../../a/b/file",
        "a/../a/b/back/../b/file",
    ] {
        assert_eq!(resolve(path, Follow::Yes).unwrap(), file, "{path}");
    }
    assert_eq!(resolve("", Follow::Yes).unwrap().handle, mount.root());
    let kind = |path, follow| resolve(path, follow).unwrap().attributes.file_type;
    assert_eq!(kind("chain", Follow::No), FileType::Symlink);
    assert_eq!(kind("chain", Follow::Yes), FileType::Directory);

    let text = |path| resolve(path, Follow::Yes).unwrap_err().to_string();
    assert_eq!(
        text("outside"),
        "symbolic link outside leads out of the export, to /etc/passwd"
    );
    assert_eq!(text("loop"), "too many symbolic links: loop");
    assert_eq!(
        text("dangling"),
        "no such file or directory (NFS3ERR_NOENT): looking up nowhere"
    );
    assert_eq!(
        text("a/b/file/x"),
        "not a directory (NFS3ERR_NOTDIR): looking up a/b/file/x"
    );

    // Creates the maximum number of links in a row, and one more.
    symlink("a/b/file", at("link-0")).unwrap();
    for n in 1..=MAX_LINKS {
        symlink(format!("link-{}", n - 1), at(&format!("link-{n}"))).unwrap();
    }
    let most = format!("link-{}", MAX_LINKS - 1);
    assert_eq!(resolve(&most, Follow::Yes).unwrap(), file);
    assert!(resolve(&format!("link-{MAX_LINKS}"), Follow::Yes).is_err());
}

#[test]
fn missing_directories_are_made() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("a")).unwrap();
    symlink("a", at("link")).unwrap();
    fs::write(at("file"), "").unwrap();
    let server = serve(&[("/srv", &directory)]);
    let (mount, _) = attach(&server, "/srv", AttachOptions::default()).unwrap();
    let made = run(mount.mkdir_all(b"/link/b/c", 0o750)).unwrap();
    assert!(at("a/b/c").is_dir());
    assert_eq!(made.attributes.mode & 0o777, 0o750);
    assert_eq!(run(mount.mkdir_all(b"a/b/c", 0o700)).unwrap(), made);
    assert_eq!(
        run(mount.mkdir_all(b"", 0o700)).unwrap().handle,
        mount.root()
    );
    for path in ["file", "file/x"] {
        let error = run(mount.mkdir_all(path.as_bytes(), 0o755)).unwrap_err();
        assert_eq!(error.status(), Some(Status::NOTDIR), "{path}");
    }

    let destination = |path: &str| run(mount.destination(path.as_bytes(), b"name")).unwrap();
    assert_eq!(destination("link/b"), b"link/b/name");
    assert_eq!(destination("/"), b"name");
    assert_eq!(destination("file"), b"file");
    assert_eq!(destination("a/new"), b"a/new");
    let (parent, name) = run(mount.resolve_parent(b"/link/new/")).unwrap();
    assert_eq!(parent, run(mount.resolve(b"a", Follow::No)).unwrap());
    assert_eq!(name, b"new");
    for (path, what) in [
        ("", "export's root"),
        ("/", "export's root"),
        ("a/..", "`..`"),
    ] {
        let error = run(mount.resolve_parent(path.as_bytes())).unwrap_err();
        assert!(matches!(error, NfsError::NoName { .. }), "{error:?}");
        assert!(error.to_string().contains(what), "{path:?}: {error}");
    }
}

#[test]
fn listings_are_complete_with_and_without_objects() {
    let directory = tempfile::tempdir().unwrap();
    let names: std::collections::BTreeSet<Vec<u8>> = (0..900)
        .map(|n| format!("entry-{n}").into_bytes())
        .collect();
    for name in &names {
        fs::write(
            directory.path().join(std::str::from_utf8(name).unwrap()),
            "",
        )
        .unwrap();
    }
    let server = serve(&[("/srv", &directory)]);
    let list = |mount: &Mount<_>| run(mount.list_all(mount.root(), AT)).unwrap();
    let (plus, _) = attach(&server, "/srv", AttachOptions::default()).unwrap();
    let plain_lists = AttachOptions {
        readdirplus: false,
        ..AttachOptions::default()
    };
    let (plain, _) = attach(&server, "/srv", plain_lists).unwrap();
    let entries = list(&plus);
    assert!(
        entries
            .iter()
            .all(|entry| entry.handle.is_some() && entry.attributes.is_some())
    );
    for entries in [entries, list(&plain)] {
        assert_eq!(entries.len(), names.len());
        assert!(
            entries
                .iter()
                .all(|entry| names.contains(&entry.name.0[..]))
        );
    }

    // A server without READDIRPLUS is asked only once.
    use crate::proto::Procedure;
    server.plan(|proc, _| match proc {
        nfs::Readdirplus::NUMBER => Fault::Status(Status::NOTSUPP),
        _ => Fault::None,
    });
    let before = server.calls::<nfs::Readdirplus>();
    assert_eq!(list(&plus).len(), names.len());
    assert_eq!(list(&plus).len(), names.len());
    assert_eq!(server.calls::<nfs::Readdirplus>(), before + 1);
}
