//! Listings of directories.

use super::*;

/// The kernel walks along a name that it knows without a check of permissions.
#[test]
fn a_listing_of_a_private_directory_lets_the_kernel_keep_no_name() {
    let mut fixture = fixture();
    let times = &mut fixture.options().attributes;
    (times.file_min, times.file_max) = (Duration::from_secs(500), Duration::from_secs(500));
    let set_mode = |mode| SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    let core = &fixture.core;
    let made = fixture.run(core.mkdir(&fixture.user, ROOT, b"d", 0o700));
    let private = made.unwrap().stat.unwrap().ino;
    let making = core.create(&fixture.user, 1, private, b"f", 0o644, WRITE);
    let (_, opened) = fixture.run(making).unwrap();
    fixture.close(opened.file).unwrap();
    let f = Bytes::from_static(b"f");
    assert_eq!(fixture.list_plus(private), [(f.clone(), None)]);
    // Everybody may search it now. The name is used no longer than the directory's attributes are.
    let setting = core.setattr(&fixture.user, private, None, set_mode(0o711));
    fixture.run(setting).unwrap();
    let [(name, Some(trust))] = &fixture.list_plus(private)[..] else {
        panic!("the kernel may know it");
    };
    assert_eq!(*name, f);
    assert!(*trust <= fixture.core.options.attributes.directory_max);
    fixture.options().lookup_cache = LookupCache::None;
    assert_eq!(fixture.list_plus(private), [(f, None)]);
}

/// Programs believe the types that a listing tells them: `find` does not descend into what is no directory.
#[test]
fn a_listing_knows_the_type_of_every_entry() {
    let without = |handles| Fault::NoAttributes { handles };
    for (readdirplus, fault) in [
        (true, Fault::None),
        (false, Fault::None),
        (true, without(true)),
        (true, without(false)),
    ] {
        let fixture = fixture();
        fixture.core.readdirplus.set(readdirplus);
        fixture.server.plan(move |proc, _| match proc {
            nfs::Readdirplus::NUMBER => fault,
            _ => Fault::None,
        });
        fixture.create(b"file");
        let (core, user) = (&fixture.core, &fixture.user);
        fixture
            .run(core.mkdir(user, ROOT, b"below", 0o755))
            .unwrap();
        fixture
            .run(core.symlink(user, ROOT, b"link", b"file"))
            .unwrap();
        for plus in [true, false] {
            let directory = fixture.run(core.opendir(user, 1, ROOT)).unwrap().number;
            let mut types = BTreeMap::new();
            let listing = core.readdir(directory, 0, plus, |listed| {
                types.insert(Bytes::copy_from_slice(&listed.name.0), listed.file_type);
                true
            });
            fixture.run(listing).unwrap();
            core.releasedir(directory);
            let expected = [
                (".", FileType::Directory),
                ("..", FileType::Directory),
                ("below", FileType::Directory),
                ("file", FileType::Regular),
                ("link", FileType::Symlink),
            ];
            let expected = expected.map(|(name, file_type)| (Bytes::from(name), file_type));
            assert_eq!(types, expected.into(), "{readdirplus} {fault:?} {plus}");
        }
    }
}

/// Regression test: a listing that had not left the beginning was not fetched again when a program went back to it,
/// such as that of an empty directory on a server that lists no `.` and `..`.
#[test]
fn a_listing_from_the_beginning_is_a_new_one() {
    let fixture = fixture();
    let core = &fixture.core;
    let opening = core.opendir(&fixture.user, 1, ROOT);
    let directory = fixture.run(opening).unwrap().number;
    let nothing = core.readdir(directory, 0, true, |_| false);
    fixture.run(nothing).unwrap();
    let (_, file) = fixture.create(b"new");
    fixture.close(file).unwrap();
    let mut found = false;
    let listing = core.readdir(directory, 0, true, |listed| {
        found |= listed.name.0[..] == *b"new";
        true
    });
    fixture.run(listing).unwrap();
    core.releasedir(directory);
    assert!(found);
}

/// The calls of opening and reading a directory that no program has used before: LOOKUP, ACCESS, GETATTR, READDIRPLUS.
#[test]
fn a_directory_is_opened_and_listed_with_one_call() {
    let fixture = fixture();
    let (core, user) = (&fixture.core, &fixture.user);
    let calls = || {
        [
            fixture.calls::<nfs::Lookup>(),
            fixture.calls::<nfs::Access>(),
            fixture.calls::<nfs::Getattr>(),
            fixture.calls::<nfs::Readdirplus>(),
        ]
    };
    let (_, file) = fixture.create(b"f");
    fixture.close(file).unwrap();
    let before = calls();
    let costs = |[lookup, access, getattr, readdirplus]: [u64; 4]| {
        let [l, a, g, r] = before;
        assert_eq!(
            calls(),
            [l + lookup, a + access, g + getattr, r + readdirplus]
        );
    };
    assert_eq!(fixture.names(), ["f"]);
    costs([0, 0, 0, 1]);
    // The kernel has a listing now, which has to be current.
    let open = || fixture.run(core.opendir(user, 1, ROOT)).unwrap();
    let opened = open();
    assert!(opened.keep);
    core.releasedir(opened.number);
    costs([0, 0, 1, 1]);
    // This client's own changes show in a listing that was opened before them.
    let root = core.node(ROOT).unwrap();
    root.listed.set(None);
    let opened = open();
    costs([0, 0, 1, 2]);
    let (_, file) = fixture.create(b"g");
    fixture.close(file).unwrap();
    assert_eq!(cookies(&fixture, opened.number, 0).unwrap().len(), 4);
    core.releasedir(opened.number);
    costs([0, 0, 1, 3]);
}

/// Databases open a directory to make its changes durable, again and again.
#[test]
fn a_directory_that_is_opened_and_not_listed_is_not_listed_for_each_opening() {
    let fixture = fixture();
    let core = &fixture.core;
    for n in 0..10 {
        let (_, file) = fixture.create(format!("f{n}").as_bytes());
        fixture.close(file).unwrap();
        let opening = core.opendir(&fixture.user, 1, ROOT);
        let opened = fixture.run(opening).unwrap();
        core.releasedir(opened.number);
    }
    assert_eq!(fixture.calls::<nfs::Readdirplus>(), 1);
    assert_eq!(fixture.names().len(), 10);
    // Programs read it again.
    core.node(ROOT).unwrap().listed.set(None);
    fixture.create(b"new");
    assert_eq!(fixture.names().len(), 11);
    assert_eq!(fixture.calls::<nfs::Readdirplus>(), 3);
}

#[test]
fn a_directory_that_a_user_may_not_read_is_not_opened() {
    let fixture = fixture();
    let core = &fixture.core;
    fixture.fails(nfs::Readdirplus::NUMBER, Status::ACCES);
    let opening = core.opendir(&fixture.user, 1, ROOT);
    assert_eq!(fixture.run(opening), Err(Errno::ACCESS));
    assert!(core.directories.borrow().is_empty());
}

/// The rest of a listing that was fetched before another client changed the directory.
#[test]
fn a_listing_from_before_a_change_is_not_taken_for_what_names_are_after_it() {
    let [one, two] = clients();
    let names = [b"a", b"b", b"c"];
    for name in names {
        let (_, file) = two.create(name);
        two.close(file).unwrap();
    }
    let core = &one.core;
    let opening = core.opendir(&one.user, 1, ROOT);
    let directory = one.run(opening).unwrap().number;
    let mut offset = 0;
    let mut kernel_takes = |count: usize| {
        let (from, mut taken) = (offset, 0);
        one.run(core.readdir(directory, from, true, |listed| {
            taken += 1;
            if taken > count {
                return false;
            }
            offset = listed.cookie;
            true
        }))
        .unwrap();
    };
    kernel_takes(1);
    let mut now = Vec::new();
    for name in names {
        two.run(two.core.unlink(&two.user, ROOT, name)).unwrap();
        let (ino, file) = two.create(name);
        two.close(file).unwrap();
        now.push(Some(ino));
    }
    let root = core.node(ROOT).unwrap();
    one.run(core.getattr_now(&one.user, &root)).unwrap();
    kernel_takes(100);
    core.releasedir(directory);
    let found: Vec<_> = names.iter().map(|name| one.find(*name)).collect();
    assert_eq!(found, now);
}

/// The rest of a listing that was fetched before this client itself removed and renamed what is in it.
#[test]
fn a_listing_does_not_bring_back_names_that_this_client_has_removed() {
    let fixture = fixture();
    let (core, user) = (&fixture.core, &fixture.user);
    for name in [b"a", b"b", b"c"] {
        let (_, file) = fixture.create(name);
        fixture.close(file).unwrap();
    }
    let directory = fixture.run(core.opendir(user, 1, ROOT)).unwrap().number;
    let mut offset = 0;
    let mut kernel_takes = |count: usize| {
        let (from, mut objects) = (offset, BTreeMap::new());
        let mut taken = 0;
        let listing = core.readdir(directory, from, true, |listed| {
            taken += 1;
            if taken > count {
                return false;
            }
            offset = listed.cookie;
            objects.insert(
                Bytes::copy_from_slice(&listed.name.0),
                listed.node.is_some(),
            );
            true
        });
        fixture.run(listing).unwrap();
        objects
    };
    kernel_takes(1);
    fixture.run(core.unlink(user, ROOT, b"b")).unwrap();
    let renaming = core.rename(user, (ROOT, b"c"), (ROOT, b"d"));
    fixture.run(renaming).unwrap();
    let rest = kernel_takes(100);
    core.releasedir(directory);
    // Their names may be listed, but as what they are not any more.
    let has_object = |name: &'static str| rest.get(name.as_bytes()).copied();
    assert_eq!(has_object("a"), Some(true));
    assert_eq!([has_object("b"), has_object("c")], [Some(false); 2]);
    for (name, exists) in [(b"a", true), (b"b", false), (b"c", false), (b"d", true)] {
        assert_eq!(fixture.find(name).is_some(), exists, "{name:?}");
    }
}

/// Attributes that the server sent before a rename, and that arrive after its reply, are not trusted.
#[test]
fn attributes_from_before_a_rename_are_not_trusted_after_it() {
    let fixture = fixture();
    let (core, user) = (&fixture.core, &fixture.user);
    let (ino, file) = fixture.create(b"a");
    fixture.close(file).unwrap();
    let node = core.node(ino).unwrap();
    fixture.run(core.getattr_now(user, &node)).unwrap();
    let call = core.begin();
    let before = fixture.run(core.attributes_of(user, node.handle)).unwrap();
    fixture.rename(b"a", b"b").unwrap();
    core.learn(&node, before, call);
    assert!(!core.is_fresh(&node));
    let now = fixture.run(core.getattr(user, ino)).unwrap();
    let at_server = fixture.run(core.attributes_of(user, node.handle)).unwrap();
    assert_eq!(now.attributes.ctime, at_server.ctime);
}

/// A listing whose names the kernel may not keep gives it no references to the listed inodes.
#[test]
fn listed_objects_that_nobody_looks_up_leave_the_table() {
    let (runtime, server, mount) = server();
    let other = client(&runtime, &server, &mount, 2);
    for name in [b"a", b"b", b"c"] {
        let (_, file) = other.create(name);
        other.close(file).unwrap();
    }
    let private = SetAttributes {
        mode: Some(0o700),
        ..SetAttributes::default()
    };
    let setting = other.core.setattr(&other.user, ROOT, None, private);
    other.run(setting).unwrap();
    let fixture = client(&runtime, &server, &mount, 1);
    let listed = fixture.list_plus(ROOT);
    assert!(listed.len() == 3 && listed.iter().all(|(_, trust)| trust.is_none()));
    let core = &fixture.core;
    let table = || core.inodes.borrow().len();
    assert_eq!(table(), 4);
    // What a program looks up at once needs no LOOKUP, and stays.
    let lookups = fixture.calls::<nfs::Lookup>();
    let found = fixture.find(b"b").unwrap();
    assert_eq!(fixture.calls::<nfs::Lookup>(), lookups);
    core.drop_unreferenced(Instant::now());
    assert_eq!(table(), 4);
    // A request that has found its object goes on to make a reference of the kernel.
    let a = core.node(ROOT).unwrap().known_name(b"a").flatten();
    let a = core.node(a.unwrap()).unwrap();
    a.attributes.borrow_mut().expire();
    drop(a);
    let getattrs = fixture.calls::<nfs::Getattr>();
    let later = Instant::now() + Duration::from_secs(6);
    let a = fixture.run(async {
        let mut find = Box::pin(core.lookup(&fixture.user, 1, ROOT, b"a"));
        while fixture.calls::<nfs::Getattr>() == getattrs {
            assert!(poll!(&mut find).is_pending(), "it asks for attributes");
            turn().await;
        }
        core.drop_unreferenced(later);
        find.await.unwrap().stat.unwrap().ino
    });
    assert!(core.node(a).is_ok());
    assert_eq!(table(), 3);
    for ino in [a, found] {
        core.forget(ino, 1);
    }
    assert_eq!(table(), 1);
}

/// Their types are asked for with a LOOKUP each, which puts them into the table.
#[test]
fn objects_that_are_listed_without_readdirplus_leave_the_table() {
    let (runtime, server, mount) = server();
    let other = client(&runtime, &server, &mount, 2);
    for name in [b"a", b"b", b"c"] {
        let (_, file) = other.create(name);
        other.close(file).unwrap();
    }
    let fixture = client(&runtime, &server, &mount, 1);
    let core = &fixture.core;
    core.readdirplus.set(false);
    assert_eq!(fixture.names(), ["a", "b", "c"]);
    assert_eq!(core.inodes.borrow().len(), 4);
    core.drop_unreferenced(Instant::now() + Duration::from_secs(6));
    assert_eq!(core.inodes.borrow().len(), 1);
}

/// Close-to-open consistency of a directory: opening it notices changes by others, as with Linux's client.
#[test]
fn the_kernel_forgets_a_listing_when_a_directory_is_opened_that_another_client_has_changed() {
    let [one, two] = clients();
    let keep = || {
        let opened = one.run(one.core.opendir(&one.user, 1, ROOT)).unwrap();
        one.core.releasedir(opened.number);
        opened.keep
    };
    assert_eq!([keep(), keep()], [false, true]);
    let (_, file) = two.create(b"new");
    two.close(file).unwrap();
    assert_eq!([keep(), keep()], [false, true]);
}

/// Lists the root in an open directory from an offset on, and returns the cookies.
fn cookies(fixture: &Fixture, directory: u64, offset: u64) -> Result<Vec<u64>, Errno> {
    let mut cookies = Vec::new();
    let listing = fixture.core.readdir(directory, offset, true, |listed| {
        cookies.push(listed.cookie);
        true
    });
    fixture.run(listing)?;
    Ok(cookies)
}

/// Opens the root with three files in it, and returns the number of the open directory. From now on, the replies to
/// READDIRPLUS end with one and the other of two cookies in turn, which lead back.
fn goes_round(fixture: &Fixture) -> u64 {
    for name in [b"a", b"b", b"c"] {
        let (_, file) = fixture.create(name);
        fixture.close(file).unwrap();
    }
    let opening = fixture.core.opendir(&fixture.user, 1, ROOT);
    let directory = fixture.run(opening).unwrap().number;
    let all = cookies(fixture, directory, 0).unwrap();
    let back = [all[1], all[2]];
    fixture.server.plan(move |proc, made| match proc {
        nfs::Readdirplus::NUMBER => Fault::LastCookie(back[made as usize % 2]),
        _ => Fault::None,
    });
    directory
}

/// Regression test: `ls` never ended if the server's cookies led back to where the listing had been.
#[test]
fn a_listing_that_goes_round_in_a_circle_ends_with_an_error() {
    let fixture = fixture();
    let directory = goes_round(&fixture);
    let mut offset = 0;
    let error = (0..20).find_map(|_| match cookies(&fixture, directory, offset) {
        Ok(cookies) => {
            offset = *cookies.last()?;
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(error, Some(Errno::LOOP));
    // A listing from the beginning is a new one.
    assert!(cookies(&fixture, directory, 0).is_ok());
}

/// An old cookie is no circle if the directory has changed, or if a program goes back to it.
#[test]
fn a_listing_may_come_to_an_old_cookie_again() {
    for changes in [true, false] {
        let fixture = fixture();
        let directory = goes_round(&fixture);
        let mut offset = 0;
        for n in 0..20 {
            let cookies = cookies(&fixture, directory, offset);
            assert!(cookies.is_ok(), "{changes} {n}: {cookies:?}");
            if changes {
                offset = *cookies.unwrap().last().unwrap();
                let (_, file) = fixture.create(format!("new {n}").as_bytes());
                fixture.close(file).unwrap();
            }
        }
    }
}

/// Attributes of the directory are optional in a reply to READDIRPLUS.
#[test]
fn an_opened_directory_is_current_though_the_listing_came_without_its_attributes() {
    let [one, two] = clients();
    let (_, file) = two.create(b"f");
    two.close(file).unwrap();
    assert!(one.find(b"f").is_some());
    two.unlink(b"f").unwrap();
    one.server.plan(|proc, _| match proc {
        nfs::Readdirplus::NUMBER => Fault::NoDirectoryAttributes,
        _ => Fault::None,
    });
    assert!(one.names().is_empty());
    assert_eq!(one.find(b"f"), None);
}
