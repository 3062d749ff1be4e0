//! Tests of permissions.

use super::*;

on_both! {
    ; as root:
    new_objects_belong_to_the_caller,
    content_needs_permission,
    names_need_permission,
    attributes_need_ownership,
    strangers_cannot_name_the_present_owner,
    a_setattr_that_fails_changes_nothing,
    set_id_bits_go,
    sticky_directories,
    what_access_says,
    unreadable_directories
}

fn other() -> Caller {
    Caller::new(1002, 2002)
}

/// Creates a file that belongs to `user()`.
fn own_file(rig: &Fixture, name: &[u8], bits: u32) -> FileId {
    let how = HowToCreate::Guarded(mode(bits));
    let made = rig.fs.create(&user(), &rig.root(), name, &how);
    made.result.unwrap().id
}

fn new_objects_belong_to_the_caller(rig: &Fixture) {
    let top = rig.root();
    let none = SetAttributes::default();
    let fs = &rig.fs;
    own_file(rig, b"f", 0o600);
    fs.mkdir(&user(), &top, b"d", &mode(0o755)).result.unwrap();
    fs.symlink(&user(), &top, b"l", b"x", &none).result.unwrap();
    fs.mknod(&user(), &top, b"p", Special::Fifo, &none)
        .result
        .unwrap();
    for name in [b"f", b"d", b"l", b"p"] {
        let now = rig.attributes(&rig.find(&top, name).unwrap());
        assert_eq!((now.uid, now.gid), (1001, 2001), "{name:?}");
    }
    let shared = rig.mkdir(&top, b"shared");
    rig.set(
        &shared,
        SetAttributes {
            gid: Some(77),
            ..mode(0o2777)
        },
    );
    let how = HowToCreate::Guarded(mode(0o2755));
    let made = fs.create(&user(), &shared, b"f", &how).result.unwrap();
    assert_eq!((made.attributes.uid, made.attributes.gid), (1001, 77));
    assert_eq!(
        made.attributes.mode, 0o755,
        "no set-group-id of a foreign group"
    );
    // Only root can give objects away. Others are not refused, as knfsd does not refuse them either: some
    // clients send owner or group with every CREATE.
    let given = SetAttributes {
        uid: Some(1002),
        gid: Some(3000),
        ..none
    };
    let how = HowToCreate::Guarded(given.clone());
    for (who, owner) in [(user(), (1001, 2001)), (root(), (1002, 3000))] {
        let file = fs.create(&who, &top, b"x", &how).result.unwrap();
        let dir = fs.mkdir(&who, &top, b"y", &given).result.unwrap();
        for made in [&file, &dir] {
            assert_eq!((made.attributes.uid, made.attributes.gid), owner);
            assert_eq!(rig.attributes(&made.id), made.attributes);
        }
        fs.remove(&root(), &top, b"x").result.unwrap();
        fs.rmdir(&root(), &top, b"y").result.unwrap();
    }
}

fn content_needs_permission(rig: &Fixture) {
    let file = own_file(rig, b"f", 0o000);
    let read = |who: &Caller| {
        rig.fs
            .read(who, &file, 0, &mut [0; 4])
            .map(|read| read.count)
    };
    let write = |who: &Caller| {
        let change = rig
            .fs
            .write(who, &file, 0, &b"abcd".into(), Stable::Unstable);
        change.result.map(|written| written.count)
    };
    // The owner may have opened it before removing its own permissions.
    assert_eq!(write(&user()), Ok(4));
    assert_eq!(read(&user()), Ok(4));
    assert_eq!(read(&other()), Err(FsError::Access));
    assert_eq!(write(&other()), Err(FsError::Access));
    rig.set(&file, mode(0o040));
    let mut member = other();
    member.gids.push(2001);
    assert_eq!(read(&member), Ok(4));
    assert_eq!(write(&member), Err(FsError::Access));
    assert_eq!(read(&other()), Err(FsError::Access));
    rig.set(&file, mode(0o001));
    assert_eq!(read(&other()), Ok(4), "who executes has to read");
    assert_eq!(
        rig.fs.commit(&other(), &file, 0, 0).result,
        Err(FsError::Access)
    );
}

fn names_need_permission(rig: &Fixture) {
    let dir = rig.mkdir(&rig.root(), b"d");
    let file = rig.create(&dir, b"f");
    let none = SetAttributes::default();
    let fs = &rig.fs;
    let denied = FsError::Access;
    assert!(fs.lookup(&user(), &dir, b"f").is_ok());
    let how = HowToCreate::Unchecked(none.clone());
    assert_eq!(
        fs.create(&user(), &dir, b"x", &how).result.unwrap_err(),
        denied
    );
    assert_eq!(
        fs.mkdir(&user(), &dir, b"x", &none).result.unwrap_err(),
        denied
    );
    assert_eq!(fs.remove(&user(), &dir, b"f").result, Err(denied));
    assert_eq!(
        fs.link(&user(), &file, &dir, b"x").result.unwrap_err(),
        denied
    );
    let top = rig.root();
    assert_eq!(
        fs.rename(&user(), &dir, b"f", &top, b"x").result,
        Err(denied)
    );
    let made = fs.create(&user(), &dir, b"f", &how).result;
    assert_eq!(
        made.map(|object| object.id).unwrap(),
        file,
        "opening needs no permission"
    );
    rig.set(&dir, mode(0o644));
    assert_eq!(fs.lookup(&user(), &dir, b"f").unwrap_err(), denied);
    assert!(fs.lookup(&root(), &dir, b"f").is_ok());
}

fn attributes_need_ownership(rig: &Fixture) {
    let file = own_file(rig, b"f", 0o666);
    let set = |who: &Caller, set: SetAttributes| rig.fs.setattr(who, &file, &set, None).result;
    let none = SetAttributes::default();
    let past = SetTime::To(NfsTime::default());
    assert_eq!(set(&other(), mode(0o777)), Err(FsError::Perm));
    assert_eq!(set(&user(), mode(0o777)), Ok(()));
    let chown = |uid| SetAttributes {
        uid: Some(uid),
        ..none.clone()
    };
    let chgrp = |gid| SetAttributes {
        gid: Some(gid),
        ..none.clone()
    };
    assert_eq!(set(&user(), chown(1002)), Err(FsError::Perm));
    assert_eq!(set(&user(), chown(1001)), Ok(()), "it is its own already");
    assert_eq!(set(&user(), chgrp(5)), Err(FsError::Perm));
    let mut member = user();
    member.gids.push(5);
    assert_eq!(set(&member, chgrp(5)), Ok(()));
    assert_eq!(rig.attributes(&file).gid, 5);
    let mtime = |mtime| SetAttributes {
        mtime,
        ..none.clone()
    };
    assert_eq!(set(&other(), mtime(past)), Err(FsError::Perm));
    assert_eq!(
        set(&other(), mtime(SetTime::ServerTime)),
        Ok(()),
        "it may write"
    );
    assert_eq!(set(&other(), size(3)), Ok(()), "it may write");
    rig.set(&file, mode(0o644));
    assert_eq!(
        set(&other(), mtime(SetTime::ServerTime)),
        Err(FsError::Access)
    );
    assert_eq!(set(&other(), size(0)), Err(FsError::Access));
    assert_eq!(set(&root(), chown(1002)), Ok(()));
    assert_eq!(rig.attributes(&file).uid, 1002);
}

/// Setting the owner to the present one clears set-id bits, which is a change.
fn strangers_cannot_name_the_present_owner(rig: &Fixture) {
    let file = own_file(rig, b"f", 0o6777);
    for (uid, gid) in [
        (Some(1001), None),
        (None, Some(2001)),
        (Some(1001), Some(2001)),
    ] {
        let set = SetAttributes {
            uid,
            gid,
            ..SetAttributes::default()
        };
        let stranger = rig.fs.setattr(&other(), &file, &set, None).result;
        assert_eq!(stranger, Err(FsError::Perm), "{uid:?} {gid:?}");
        assert_eq!(rig.attributes(&file).mode, 0o6777);
    }
}

fn a_setattr_that_fails_changes_nothing(rig: &Fixture) {
    let file = own_file(rig, b"f", 0o644);
    rig.write(&file, 0, b"content");
    let before = rig.attributes(&file);
    let past = SetTime::To(NfsTime::default());
    let given_away = SetAttributes {
        uid: Some(1002),
        mode: Some(0o777),
        size: Some(0),
        mtime: past,
        ..SetAttributes::default()
    };
    let foreign_group = SetAttributes {
        uid: None,
        gid: Some(5),
        ..given_away.clone()
    };
    let no_time = SetAttributes {
        uid: None,
        atime: SetTime::To(NfsTime {
            seconds: 0,
            nanos: 1_000_000_000,
        }),
        ..given_away.clone()
    };
    for (who, set, error) in [
        (user(), &given_away, FsError::Perm),
        (user(), &foreign_group, FsError::Perm),
        (user(), &no_time, FsError::Invalid),
        (other(), &given_away, FsError::Access),
    ] {
        let result = rig.fs.setattr(&who, &file, set, None).result;
        assert_eq!(result, Err(error), "{set:?}");
        assert_eq!(rig.attributes(&file), before);
    }
}

/// Sets an access control list in the host's format (`linux/posix_acl_xattr.h`). Each entry has a
/// tag, permissions and an id.
fn set_acl(rig: &Fixture, name: &str, entries: &[(u16, u16, u32)]) {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, who) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(who.to_le_bytes());
    }
    let path = rig.host.as_ref().unwrap().path().join(name);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "system.posix_acl_access", &value, flags).unwrap();
}

/// The host's access control lists take effect in both directions: they deny what the mode seems to
/// allow, and allow what it does not.
#[test]
fn access_control_lists_decide() {
    const NOBODY: u32 = u32::MAX;
    let (owner, user_of_list, group_of_file, mask, others) = (1, 2, 4, 0x10, 0x20);
    if !privileged() {
        return;
    }
    let rig = Fixture::directory();
    own_file(&rig, b"denied", 0o640);
    own_file(&rig, b"admitted", 0o600);
    let list = |group, named| {
        [
            (owner, 6, NOBODY),
            (user_of_list, named, 1002),
            (group_of_file, group, NOBODY),
            (mask, 6, NOBODY),
            (others, 0, NOBODY),
        ]
    };
    // The mode shows the mask as the group permissions: 0660 for both.
    set_acl(&rig, "denied", &list(0, 0));
    set_acl(&rig, "admitted", &list(0, 6));
    let mut member = Caller::new(1003, 3);
    member.gids.push(2001);
    let may = |who: &Caller, name: &[u8]| {
        let file = rig.find(&rig.root(), name).unwrap();
        let read = rig.fs.read(who, &file, 0, &mut [0; 4]).map(|_| ());
        let written = rig.fs.write(who, &file, 0, &b"x".into(), Stable::Unstable);
        let wanted = Access::READ | Access::MODIFY;
        let said = rig.fs.access(who, &file, wanted).unwrap().0;
        assert_eq!(said == wanted, read.is_ok() && written.result.is_ok());
        read
    };
    assert_eq!(may(&member, b"denied"), Err(FsError::Access));
    assert_eq!(may(&other(), b"denied"), Err(FsError::Access));
    assert_eq!(may(&user(), b"denied"), Ok(()));
    assert_eq!(may(&other(), b"admitted"), Ok(()));
    assert_eq!(may(&member, b"admitted"), Err(FsError::Access));
}

fn set_id_bits_go(rig: &Fixture) {
    let file = own_file(rig, b"f", 0o6777);
    assert_eq!(rig.attributes(&file).mode, 0o6777);
    let write = rig
        .fs
        .write(&other(), &file, 0, &b"x".into(), Stable::Unstable);
    assert_eq!(write.wcc.after.unwrap().mode, 0o777);
    rig.set(&file, mode(0o6777));
    let cut = rig.fs.setattr(&other(), &file, &size(0), None).result;
    assert_eq!((cut, rig.attributes(&file).mode), (Ok(()), 0o777));
    rig.set(&file, mode(0o6777));
    let given = SetAttributes {
        uid: Some(1002),
        ..SetAttributes::default()
    };
    rig.set(&file, given.clone());
    assert_eq!(rig.attributes(&file).mode, 0o777);
    let both = SetAttributes {
        mode: Some(0o4711),
        ..given
    };
    rig.set(&file, both);
    assert_eq!(
        rig.attributes(&file).mode,
        0o4711,
        "what is asked for is set"
    );
}

fn sticky_directories(rig: &Fixture) {
    let top = rig.root();
    own_file(rig, b"f", 0o666);
    rig.create(&top, b"of root");
    let fs = &rig.fs;
    assert_eq!(fs.remove(&other(), &top, b"f").result, Err(FsError::Perm));
    let moved = fs.rename(&other(), &top, b"f", &top, b"g").result;
    assert_eq!(moved, Err(FsError::Perm));
    let over = fs.rename(&user(), &top, b"f", &top, b"of root").result;
    assert_eq!(over, Err(FsError::Perm));
    assert_eq!(fs.rename(&user(), &top, b"f", &top, b"g").result, Ok(()));
    assert_eq!(fs.remove(&user(), &top, b"g").result, Ok(()));
    rig.set(&top, mode(0o777));
    assert_eq!(fs.remove(&user(), &top, b"of root").result, Ok(()));
}

fn what_access_says(rig: &Fixture) {
    let file = own_file(rig, b"f", 0o640);
    let dir = rig.mkdir(&rig.root(), b"d");
    let access = |who: &Caller, id: &FileId| {
        let all = Access::from_bits_retain(!0);
        rig.fs.access(who, id, all).unwrap().0
    };
    let changing = Access::MODIFY | Access::EXTEND;
    assert_eq!(access(&user(), &file), Access::READ | changing);
    assert_eq!(access(&root(), &file), Access::READ | changing);
    assert_eq!(access(&other(), &file), Access::empty());
    assert_eq!(access(&other(), &dir), Access::READ | Access::LOOKUP);
    let everything = Access::READ | Access::LOOKUP | Access::DELETE | changing;
    assert_eq!(access(&root(), &dir), everything);
    rig.set(&file, mode(0o711));
    assert_eq!(access(&other(), &file), Access::EXECUTE);
    let (some, _) = rig.fs.access(&root(), &file, Access::READ).unwrap();
    assert_eq!(some, Access::READ, "only what was asked about");
}

fn unreadable_directories(rig: &Fixture) {
    let dir = rig.mkdir(&rig.root(), b"d");
    rig.create(&dir, b"f");
    let list = || {
        let mut objects = 0;
        rig.fs
            .readdir(&user(), &dir, 0, [0; 8], true, &mut |entry| {
                objects += usize::from(entry.object.is_some());
                true
            })
            .map(|_| objects)
    };
    assert!(list().unwrap() >= 2);
    rig.set(&dir, mode(0o711));
    assert_eq!(list(), Err(FsError::Access));
    rig.set(&dir, mode(0o744));
    assert_eq!(list(), Ok(0), "names may be read, objects not");
}

/// Creates a file whose mode does not let its owner open it for reading and writing again.
fn read_only_file(rig: &Fixture, name: &[u8], bits: u32) -> FileId {
    let how = HowToCreate::Guarded(mode(bits));
    let made = rig.fs.create(&root(), &rig.root(), name, &how);
    made.result.unwrap().id
}

/// RFC 1813, section 4.4: the owner may write, because it may have opened the file before.
#[test]
fn an_unprivileged_server_keeps_a_read_only_file_writable_to_its_creator() {
    if !ordinary() {
        return;
    }
    let rig = Fixture::directory();
    for (name, bits) in [(b"r", 0o444), (b"w", 0o200), (b"-", 0)] {
        let file = read_only_file(&rig, name, bits);
        for stable in [Stable::FileSync, Stable::DataSync, Stable::Unstable] {
            let written = rig.fs.write(&root(), &file, 0, &b"data".into(), stable);
            assert!(written.result.is_ok(), "mode {bits:o}: {written:?}");
        }
        assert_eq!(rig.fs.commit(&root(), &file, 0, 0).result, Ok(()));
        rig.write(&file, 4, b"more");
    }
}

#[test]
fn an_unprivileged_server_makes_room_by_closing_what_it_can_open_again() {
    if !ordinary() {
        return;
    }
    let mut rig = Fixture::directory();
    rig.options.most_open = Some(3);
    rig.restart();
    let file = read_only_file(&rig, b"r", 0o444);
    for name in [b"1", b"2", b"3", b"4"] {
        rig.create(&rig.root(), name);
    }
    rig.write(&file, 0, b"data");
    // If all must stay open, one is closed nevertheless.
    for name in [b"a", b"b", b"c", b"d"] {
        read_only_file(&rig, name, 0o444);
    }
}
