//! Tests of the MOUNT program.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::proto::{Flavors, MkdirArgs, SetattrArgs};

fn names(list: &crate::proto::MountList) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    list.mounts
        .iter()
        .map(|entry| (text(entry.host.as_ref()), text(entry.path.as_ref())))
        .collect()
}

#[test]
fn a_mount_gives_the_root_and_flavors() {
    let mut rig = Fixture::memory();
    let args = MountArgs {
        path: MountPath::from(&b"/m"[..]),
    };
    let ok = rig.call::<mnt::Mount>(&args).unwrap();
    assert_eq!(ok.flavors, Flavors(vec![Flavors::SYS, Flavors::NONE]));
    assert_eq!(
        rig.attributes(ok.handle).file_type,
        crate::proto::FileType::Directory
    );
    for same in ["m", "/m/", "//m", "/./m"] {
        assert_eq!(rig.mount(same), Ok(ok.handle), "{same}");
    }
}

#[test]
fn what_is_not_exported_is_not_mounted() {
    let mut rig = Fixture::memory();
    let root = rig.root();
    rig.create(root, "file");
    let long = format!("/m/{}", "x".repeat(256));
    for (path, error) in [
        ("/", Status::NOENT),
        ("/other", Status::NOENT),
        ("/mm", Status::NOENT),
        ("/m/none", Status::NOENT),
        ("/m/../etc", Status::INVAL),
        ("/m/file", Status::NOTDIR),
        ("/m/file/x", Status::NOTDIR),
        (&long, Status::NAMETOOLONG),
    ] {
        assert_eq!(rig.mount(path), Err(error), "{path}");
    }
}

#[test]
fn directories_below_and_exports_within() {
    let mut rig = Fixture::new(vec![
        export("/a", memory(), ""),
        export("/a/b/inner", memory(), ""),
    ]);
    let a = rig.mount("/a").unwrap();
    let b = rig.mkdir(a, "b");
    rig.call::<nfs::Mkdir>(&MkdirArgs {
        place: at(b, "inner"),
        attributes: mode(0o700),
    })
    .unwrap();
    assert_eq!(rig.mount("/a/b"), Ok(b));
    let inner = rig.mount("/a/b/inner").unwrap();
    assert_ne!(rig.attributes(inner).fsid, rig.attributes(b).fsid);
}

#[test]
fn the_root_can_be_exported() {
    let mut rig = Fixture::new(vec![export("/", memory(), "")]);
    let root = rig.mount("/").unwrap();
    let dir = rig.mkdir(root, "d");
    assert_eq!(rig.mount("/d"), Ok(dir));
    assert_eq!(rig.mount("d"), Ok(dir));
}

#[test]
fn mounts_are_listed_until_unmounted() {
    let mut rig = Fixture::new(vec![export("/a", memory(), ""), export("/b", memory(), "")]);
    let path = |path: &str| MountArgs {
        path: MountPath::from(path.as_bytes()),
    };
    for _ in 0..2 {
        rig.mount("/a").unwrap();
        rig.mount("/b").unwrap();
    }
    rig.peer = "198.51.100.9:2".parse().unwrap();
    rig.mount("/a").unwrap();
    let entry = |host: &str, path: &str| (host.to_owned(), path.to_owned());
    let (one, other) = ("192.0.2.1", "198.51.100.9");
    let all = [entry(one, "/a"), entry(one, "/b"), entry(other, "/a")];
    assert_eq!(names(&rig.call::<mnt::Dump>(&())), all);
    rig.call::<mnt::Unmount>(&path("/b"));
    assert_eq!(names(&rig.call::<mnt::Dump>(&())), all, "not its own");
    rig.call::<mnt::Unmount>(&path("/a"));
    assert_eq!(names(&rig.call::<mnt::Dump>(&())), all[..2]);
    rig.peer = "192.0.2.1:9".parse().unwrap();
    rig.call::<mnt::UnmountAll>(&());
    assert_eq!(names(&rig.call::<mnt::Dump>(&())), []);
}

#[test]
fn the_list_of_mounts_is_bounded() {
    let mut rig = Fixture::memory();
    for host in 0..1100u32 {
        rig.peer = SocketAddr::from((std::net::Ipv4Addr::from_bits(host), 1));
        rig.mount("/m").unwrap();
    }
    let mounts = names(&rig.call::<mnt::Dump>(&()));
    assert_eq!(mounts.len(), 1024);
    assert_eq!(mounts[1023].0, "0.0.4.75");
}

#[test]
fn exports_are_listed_with_their_clients() {
    let mut rig = Fixture::new(vec![
        export("/a", memory(), "client=10.0.0.0/8,client=::1"),
        export("name", memory(), ""),
    ]);
    let list = rig.call::<mnt::Export>(&()).exports;
    assert_eq!(list[0].path.as_ref(), b"/a");
    assert_eq!(list[0].groups[0].as_ref(), b"10.0.0.0/8");
    assert_eq!(list[0].groups[1].as_ref(), b"::1");
    assert_eq!(list[1].path.as_ref(), b"name");
    assert!(list[1].groups.is_empty());
}

#[test]
fn directories_of_the_host_are_mounted_by_a_worker() {
    let mut rig = Fixture::directory();
    let root = rig.root();
    let dir = rig.mkdir(root, "d");
    assert_eq!(rig.mount("/m/d"), Ok(dir));
}

impl Fixture {
    /// Calls MNT as a user of this host.
    fn mount_as(&mut self, user: u32, path: &str) -> Status {
        let args = MountArgs {
            path: MountPath::from(path.as_bytes()),
        };
        let mut out = Encoder::new();
        args.encode(&mut out);
        let request = self.request(MOUNT_PROGRAM, mnt::Mount::NUMBER, out.finish());
        let request = request.from_origin(rpc_transport::PeerOrigin::ThisHost { user: Some(user) });
        let reply = self.server.call(request).complete().unwrap();
        let mounted = <mnt::Mount as Procedure>::Results::decode(&mut Decoder::new(&reply));
        status(mounted.unwrap())
    }
}

/// A directory of mode 0700 protects what is below it from MNT of other users of the host.
#[test]
fn a_user_of_this_host_mounts_what_it_may_pass() {
    let mut rig = Fixture::memory();
    let root = rig.root();
    let private = rig.mkdir(root, "private");
    rig.mkdir(private, "below");
    rig.call::<nfs::Setattr>(&SetattrArgs {
        object: private,
        attributes: mode(0o700),
        guard: None,
    })
    .unwrap();
    rig.mkdir(root, "public");
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(rig.mount_as(own, "/m/private/below"), Status::OK);
    // A server that is not root's does not admit other users at all.
    let other = if own == 0 { Status::OK } else { Status::ACCES };
    assert_eq!(rig.mount_as(4711, "/m/public"), other);
    assert_eq!(rig.mount_as(4711, "/m/private/below"), Status::ACCES);
}

/// MNT leads from one export into another. There a user has the identity that the inner export's options
/// give it.
#[test]
fn a_user_of_this_host_mounts_what_it_may_pass_in_an_export_below() {
    let device = |path: &str| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    let is_mount = device("/dev/shm").is_some_and(|shm| Some(shm) != device("/dev"));
    if !rustix::process::geteuid().is_root() || !is_mount {
        eprintln!("left out, for it needs the superuser and a file system at /dev/shm");
        return;
    }
    let made = tempfile::tempdir_in("/dev/shm").unwrap();
    for (name, mode) in [("", 0o755), ("public", 0o755), ("private", 0o700)] {
        let path = made.path().join(name);
        std::fs::create_dir_all(path.join("below")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let at = |below: &str| {
        let name = made.path().file_name().unwrap().to_str().unwrap();
        format!("/top/shm/{name}/{below}")
    };
    let rig_with = |options: &str| {
        let exports = [
            "top=/dev:async,inode_reuse,insecure,all_squash".to_owned(),
            format!("shm=/dev/shm:nohide,async,inode_reuse,insecure,{options}"),
        ]
        .map(|text| {
            ExportSpec::parse(&text)
                .unwrap()
                .open(&key(), None, false)
                .unwrap()
        });
        Fixture::new(exports.into())
    };
    let mut rig = rig_with("root_squash");
    for user in [0, 4711] {
        assert_eq!(rig.mount_as(user, &at("public/below")), Status::OK);
    }
    assert_eq!(rig.mount_as(0, &at("private/below")), Status::OK);
    assert_eq!(rig.mount_as(4711, &at("private/below")), Status::ACCES);
    // The user owns a directory of mode 0700, but not if the inner export squashes all.
    let private = made.path().join("private");
    std::os::unix::fs::chown(private, Some(4711), None).unwrap();
    assert_eq!(rig.mount_as(4711, &at("private/below")), Status::OK);
    let mut rig = rig_with("all_squash");
    assert_eq!(rig.mount_as(4711, &at("private/below")), Status::ACCES);
}
