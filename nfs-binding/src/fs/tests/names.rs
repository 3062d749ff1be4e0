//! Tests of valid names and their meaning.

use super::*;

on_both! {
    odd_names,
    refused_names,
    link_targets,
    dots,
    creation_modes,
    links_share_an_object,
    a_name_that_others_are_renamed_to_is_always_found,
    stale_and_foreign_handles;
    as root:
    exclusive_creation_is_repeatable,
    kinds_of_objects
}

fn odd_names(rig: &Fixture) {
    let long = vec![b'x'; 255];
    let names: [&[u8]; 5] = [b"\xff\xfe", b"new\nline", b"...", b" ", &long];
    for name in names {
        let file = rig.create(&rig.root(), name);
        assert_eq!(rig.find(&rig.root(), name), Ok(file));
    }
    let mut sorted: Vec<_> = names.iter().map(|name| name.to_vec()).collect();
    sorted.sort();
    assert_eq!(rig.names(&rig.root()), sorted);
}

fn refused_names(rig: &Fixture) {
    let top = rig.root();
    let file = rig.create(&top, b"f");
    let long = vec![b'x'; 256];
    let none = SetAttributes::default();
    for (name, error) in [
        (&b""[..], FsError::Access),
        (b"a/b", FsError::Access),
        (b"/", FsError::Access),
        (b"a\0b", FsError::Access),
        (&long, FsError::NameTooLong),
    ] {
        let fs = &rig.fs;
        let how = HowToCreate::Unchecked(none.clone());
        let results = [
            fs.lookup(&root(), &top, name).map(|_| ()),
            fs.create(&root(), &top, name, &how).result.map(|_| ()),
            fs.mkdir(&root(), &top, name, &none).result.map(|_| ()),
            fs.symlink(&root(), &top, name, b"t", &none)
                .result
                .map(|_| ()),
            fs.mknod(&root(), &top, name, Special::Fifo, &none)
                .result
                .map(|_| ()),
            fs.link(&root(), &file, &top, name).result.map(|_| ()),
            fs.remove(&root(), &top, name).result,
            fs.rmdir(&root(), &top, name).result,
            fs.rename(&root(), &top, b"f", &top, name).result,
            fs.rename(&root(), &top, name, &top, b"g").result,
        ];
        for (operation, result) in results.into_iter().enumerate() {
            assert_eq!(result, Err(error), "operation {operation} of {name:?}");
        }
    }
    assert_eq!(rig.names(&top), [b"f".to_vec()]);
}

/// Regression test: a lookup failed if the object lost the name between two steps of it.
fn a_name_that_others_are_renamed_to_is_always_found(rig: &Fixture) {
    const RENAMES: u32 = 3000;
    let top = rig.root();
    rig.create(&top, b"name");
    std::thread::scope(|scope| {
        let renaming = scope.spawn(|| {
            for _ in 0..RENAMES {
                rig.create(&top, b"new");
                let renamed = rig.fs.rename(&root(), &top, b"new", &top, b"name");
                renamed.result.unwrap();
            }
        });
        while !renaming.is_finished() {
            rig.fs.lookup(&root(), &top, b"name").unwrap();
        }
    });
}

fn link_targets(rig: &Fixture) {
    let (top, none) = (rig.root(), SetAttributes::default());
    let make = |name: &[u8], target: &[u8]| {
        let made = rig.fs.symlink(&root(), &top, name, target, &none);
        made.result.map(|object| object.id)
    };
    // Some hosts' file systems have a lower limit than their kernel.
    let longest = if rig.host.is_none() { 4095 } else { 1000 };
    let target = vec![b'x'; longest];
    let link = make(b"longest", &target).unwrap();
    assert_eq!(rig.fs.readlink(&root(), &link).unwrap().0, target);
    for len in [4096, 4097, 8192] {
        let made = make(b"long", &vec![b'x'; len]);
        assert_eq!(made, Err(FsError::NameTooLong), "{len}");
    }
    for target in [&b""[..], b"a\0b"] {
        assert_eq!(make(b"odd", target), Err(FsError::Invalid));
    }
    assert_eq!(rig.names(&top), [b"longest"]);
}

fn dots(rig: &Fixture) {
    let top = rig.root();
    let one = rig.mkdir(&top, b"1");
    let two = rig.mkdir(&one, b"2");
    let find = |dir: &FileId, name: &[u8]| {
        let found = rig.fs.lookup(&root(), dir, name)?;
        Ok::<_, FsError>(found.object.attributes.fileid)
    };
    let number = |id: &FileId| Ok(rig.attributes(id).fileid);
    assert_eq!(find(&two, b"."), number(&two));
    assert_eq!(find(&two, b".."), number(&one));
    assert_eq!(find(&one, b".."), number(&top));
    assert_eq!(find(&top, b"."), number(&top));
    // The parent of the root is the root: nothing above it is shown.
    assert_eq!(find(&top, b".."), number(&top));
    for name in [&b"."[..], b".."] {
        let none = SetAttributes::default();
        let made = rig.fs.mkdir(&root(), &one, name, &none).result;
        assert_eq!(made.unwrap_err(), FsError::Exists);
        let how = HowToCreate::Unchecked(none);
        let made = rig.fs.create(&root(), &one, name, &how).result;
        assert_eq!(made.unwrap_err(), FsError::Exists);
        assert_eq!(
            rig.fs.rmdir(&root(), &one, name).result,
            Err(FsError::Invalid)
        );
        assert_eq!(
            rig.fs.remove(&root(), &one, name).result,
            Err(FsError::Invalid)
        );
        let renamed = rig.fs.rename(&root(), &one, name, &top, b"new").result;
        assert_eq!(renamed, Err(FsError::Invalid));
        let renamed = rig.fs.rename(&root(), &one, b"2", &top, name).result;
        assert_eq!(renamed, Err(FsError::Invalid));
    }
}

fn creation_modes(rig: &Fixture) {
    let top = rig.root();
    let set = SetAttributes {
        size: Some(3),
        ..mode(0o640)
    };
    let guarded = HowToCreate::Guarded(set.clone());
    let made = rig.fs.create(&root(), &top, b"f", &guarded);
    assert_ne!(
        made.wcc.before.unwrap().mtime,
        made.wcc.after.unwrap().mtime
    );
    let file = made.result.unwrap();
    assert_eq!((file.attributes.mode, file.attributes.size), (0o640, 3));
    assert_eq!(file.attributes.file_type, FileType::Regular);
    let again = rig.fs.create(&root(), &top, b"f", &guarded);
    assert_eq!(again.result.unwrap_err(), FsError::Exists);
    rig.write(&file.id, 0, b"content");
    let keeping = HowToCreate::Unchecked(mode(0o777));
    let kept = rig.fs.create(&root(), &top, b"f", &keeping).result.unwrap();
    assert_eq!((kept.id, kept.attributes.mode), (file.id, 0o640));
    assert_eq!(kept.attributes.size, 7);
    let cutting = HowToCreate::Unchecked(size(0));
    let cut = rig.fs.create(&root(), &top, b"f", &cutting).result.unwrap();
    assert_eq!((cut.id, cut.attributes.size), (file.id, 0));
    rig.mkdir(&top, b"d");
    let over = rig.fs.create(&root(), &top, b"d", &keeping).result;
    assert_eq!(over.unwrap_err(), FsError::Exists);
    let in_file = rig.fs.create(&root(), &file.id, b"x", &keeping).result;
    assert_eq!(in_file.unwrap_err(), FsError::NotDirectory);
}

fn exclusive_creation_is_repeatable(rig: &Fixture) {
    let top = rig.root();
    let create = |verifier: u64| {
        let how = HowToCreate::Exclusive(verifier.to_be_bytes());
        rig.fs.create(&user(), &top, b"f", &how).result
    };
    let first = create(0xfedc_ba98_7654_3210).unwrap();
    assert_eq!(first.attributes.uid, user().uid);
    assert_eq!(create(0xfedc_ba98_7654_3210).unwrap().id, first.id);
    assert_eq!(create(0xfedc_ba98_7654_3211).unwrap_err(), FsError::Exists);
    assert_eq!(create(0x0edc_ba98_0654_3210).unwrap_err(), FsError::Exists);
    let time = SetAttributes {
        atime: SetTime::ServerTime,
        mtime: SetTime::ServerTime,
        ..mode(0o644)
    };
    let set = rig.fs.setattr(&user(), &first.id, &time, None).result;
    assert_eq!(set, Ok(()));
    assert_eq!(create(0xfedc_ba98_7654_3210).unwrap_err(), FsError::Exists);
}

fn kinds_of_objects(rig: &Fixture) {
    let top = rig.root();
    let device = DeviceNumber { major: 1, minor: 3 };
    for (name, what, file_type) in [
        (b"c", Special::Character(device), FileType::Character),
        (b"b", Special::Block(device), FileType::Block),
        (b"s", Special::Socket, FileType::Socket),
        (b"p", Special::Fifo, FileType::Fifo),
    ] {
        let made = rig.fs.mknod(&root(), &top, name, what, &mode(0o624)).result;
        let made = made.unwrap().attributes;
        assert_eq!((made.file_type, made.mode), (file_type, 0o624));
        if matches!(what, Special::Character(_) | Special::Block(_)) {
            assert_eq!(made.rdev, device);
            let refused = rig.fs.mknod(&user(), &top, b"x", what, &mode(0o600)).result;
            assert_eq!(refused.unwrap_err(), FsError::Perm);
        }
    }
    let target = b"/absolute/\xff/../target";
    let none = SetAttributes::default();
    let link = rig
        .fs
        .symlink(&root(), &top, b"l", target, &none)
        .result
        .unwrap();
    assert_eq!(link.attributes.file_type, FileType::Symlink);
    assert_eq!(link.attributes.size, target.len() as u64);
    assert_eq!(rig.fs.readlink(&root(), &link.id).unwrap().0, target);
    let dir = rig
        .fs
        .mkdir(&root(), &top, b"d", &mode(0o2750))
        .result
        .unwrap();
    assert_eq!(dir.attributes.mode, 0o2750);
    assert_eq!(rig.attributes(&top).nlink, 3);
    let inner = rig
        .fs
        .mkdir(&root(), &dir.id, b"i", &mode(0o700))
        .result
        .unwrap();
    assert_eq!(
        inner.attributes.mode, 0o2700,
        "the set-group-id bit is inherited"
    );
    assert_eq!(rig.fs.rmdir(&root(), &dir.id, b"i").result, Ok(()));
    assert_eq!(rig.attributes(&dir.id).nlink, 2);
}

fn links_share_an_object(rig: &Fixture) {
    let top = rig.root();
    let dir = rig.mkdir(&top, b"d");
    let file = rig.create(&top, b"f");
    let change = rig.fs.link(&root(), &file, &dir, b"g");
    assert_eq!(change.result.unwrap().nlink, 2);
    assert_ne!(
        change.wcc.before.unwrap().mtime,
        change.wcc.after.unwrap().mtime
    );
    let other = rig.find(&dir, b"g").unwrap();
    assert_eq!(other, file, "one object, one handle");
    rig.write(&other, 0, b"shared");
    assert_eq!(rig.read(&file, 0, 10).0, b"shared");
    let link = |file: &FileId, name: &[u8]| {
        let result = rig.fs.link(&root(), file, &top, name).result;
        result.map(|attributes| attributes.nlink)
    };
    assert_eq!(link(&file, b"d"), Err(FsError::Exists));
    assert_eq!(link(&dir, b"x"), Err(FsError::IsDirectory));
    // A directory into itself, and into one below it.
    for into in [&top, &dir] {
        let result = rig.fs.link(&root(), &top, into, b"x").result;
        assert_eq!(result.map(drop), Err(FsError::IsDirectory));
    }
    assert_eq!(rig.fs.remove(&root(), &top, b"f").result, Ok(()));
    assert_eq!(rig.attributes(&file).nlink, 1);
    assert_eq!(rig.read(&file, 0, 10).0, b"shared");
    assert_eq!(link(&file, b"h"), Ok(2));
    let none = SetAttributes::default();
    let symlink = rig
        .fs
        .symlink(&root(), &top, b"l", b"f", &none)
        .result
        .unwrap();
    assert_eq!(link(&symlink.id, b"m"), Ok(2));
    assert_eq!(rig.find(&top, b"m"), Ok(symlink.id));
}

fn stale_and_foreign_handles(rig: &Fixture) {
    let top = rig.root();
    let file = rig.create(&top, b"f");
    let dir = rig.mkdir(&top, b"d");
    rig.write(&file, 0, b"x");
    assert_eq!(rig.fs.remove(&root(), &top, b"f").result, Ok(()));
    assert_eq!(rig.fs.rmdir(&root(), &top, b"d").result, Ok(()));
    let again = rig.create(&top, b"f");
    assert_ne!(again, file);
    let fs = &rig.fs;
    assert_eq!(fs.getattr(&file), Err(FsError::Stale));
    assert_eq!(
        fs.read(&root(), &file, 0, &mut [0; 4]).unwrap_err(),
        FsError::Stale
    );
    let write = fs.write(&root(), &file, 0, &b"y".into(), Stable::Unstable);
    assert_eq!(write.result.unwrap_err(), FsError::Stale);
    assert_eq!(fs.lookup(&root(), &dir, b"x").unwrap_err(), FsError::Stale);
    let how = HowToCreate::Unchecked(SetAttributes::default());
    let made = fs.create(&root(), &dir, b"x", &how);
    assert_eq!(made.result.unwrap_err(), FsError::Stale);
    assert_eq!(
        fs.link(&root(), &file, &top, b"l").result.unwrap_err(),
        FsError::Stale
    );
    for bytes in [&b""[..], b"short", &[0xff; 47]] {
        let foreign = FileId::new(bytes).unwrap();
        assert_eq!(fs.getattr(&foreign), Err(FsError::BadHandle));
    }
}
