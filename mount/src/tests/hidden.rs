//! Files that are removed or replaced while they are open.

use super::*;

#[test]
fn a_file_that_is_removed_while_open_stays_until_it_is_closed() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![5; 100]);
    fixture
        .run(fixture.core.unlink(&fixture.user, ROOT, b"f"))
        .unwrap();
    assert_eq!(fixture.find(b"f"), None);
    let names = fixture.names();
    assert!(
        names.len() == 1 && names[0].starts_with(b".nfs"),
        "{names:?}"
    );
    let again = fixture.core.unlink(&fixture.user, ROOT, &names[0]);
    assert_eq!(fixture.run(again), Err(Errno::BUSY));
    let stat = fixture
        .run(fixture.core.getattr(&fixture.user, ino))
        .unwrap();
    assert_eq!((stat.attributes.nlink, stat.attributes.size), (0, 100));
    assert_eq!(fixture.read(file, 0, 200).len(), 100);
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), [""; 0]);
}

#[test]
fn a_file_that_is_closed_while_it_gets_its_hidden_name_leaves_none() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let core = &fixture.core;
    let unlink = core.unlink(&fixture.user, ROOT, b"f");
    let (removed, ()) = fixture.run(join(unlink, async {
        // The removal has begun, and waits for the server.
        poll_fn(|context| match core.hidden.get() {
            0 => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
        core.release(file);
    }));
    assert_eq!(removed, Ok(()));
    assert_eq!(fixture.names(), [""; 0]);
}

/// A program lists a directory right after it has closed a removed file, as `rm -r` does. The kernel sends the
/// READDIR before the removal of the hidden name has begun.
#[test]
fn a_listing_right_after_a_close_waits_for_the_hidden_name_to_go() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    fixture.unlink(b"f").unwrap();
    assert_eq!(fixture.names().len(), 1);
    let silent = Rc::new(Cell::new(true));
    let still = Rc::clone(&silent);
    fixture.server.plan(move |proc, _| match proc {
        nfs::Remove::NUMBER if still.get() => Fault::Status(Status::JUKEBOX),
        _ => Fault::None,
    });
    let core = &fixture.core;
    let opening = core.opendir(&fixture.user, 1, ROOT);
    let directory = fixture.run(opening).unwrap().number;
    let mut names = Vec::new();
    fixture.run(async {
        core.release(file);
        let mut listing = Box::pin(core.readdir(directory, 0, false, |listed| {
            names.push(Bytes::copy_from_slice(&listed.name.0));
            true
        }));
        let listed = fixture.calls::<nfs::Readdirplus>();
        for _ in 0..50 {
            assert!(poll!(&mut listing).is_pending());
            turn().await;
        }
        assert_eq!(fixture.calls::<nfs::Readdirplus>(), listed);
        silent.set(false);
        listing.await.unwrap();
    });
    core.releasedir(directory);
    names.retain(|name| name != "." && name != "..");
    assert_eq!(names, [""; 0]);
}

/// The kernel has not removed the hidden name itself, and would read it from its cache.
#[test]
fn a_cached_listing_with_a_hidden_name_is_not_used_after_the_last_close() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    fixture.unlink(b"f").unwrap();
    let opened = || {
        let opening = fixture.core.opendir(&fixture.user, 1, ROOT);
        fixture
            .core
            .releasedir(fixture.run(opening).unwrap().number);
        fixture
            .run(fixture.core.opendir(&fixture.user, 1, ROOT))
            .unwrap()
    };
    assert_eq!(fixture.names().len(), 1);
    assert!(opened().keep, "nothing has changed");
    let told = fixture.told.2.borrow().len();
    let next = fixture.run(async {
        fixture.core.release(file);
        // At once: the removal has not begun.
        fixture.core.opendir(&fixture.user, 1, ROOT).await
    });
    assert!(!next.unwrap().keep);
    assert_eq!(fixture.told.2.borrow()[told..], [ROOT], "its times differ");
}

/// A program has found the hidden name in a listing. The removal has been begun, but not been sent.
#[test]
fn a_hidden_file_that_is_opened_by_its_name_stays_until_it_is_closed_again() {
    let mut fixture = fixture();
    fixture.options().close_to_open = false;
    let file = fixture.open_file(b"f");
    fixture.unlink(b"f").unwrap();
    let names = fixture.names();
    let ino = fixture.find(&names[0]).unwrap();
    // The next open needs no call.
    let other = fixture.open(ino);
    fixture.close(other).unwrap();
    let again = fixture.run(async {
        fixture.core.release(file);
        let opening = fixture.core.open(&fixture.user, 1, ino, WRITE);
        opening.await.unwrap().file
    });
    assert_eq!(fixture.read(again, 0, 200).len(), 100);
    fixture.close(again).unwrap();
    assert_eq!(fixture.names(), [""; 0]);
}

/// A SETATTR brings the data of a closed file to stable storage before the file system itself does, also if the
/// server refuses the SETATTR.
#[test]
fn a_change_of_attributes_leaves_no_hidden_name() {
    for refused in [false, true] {
        let (fixture, _exported) = on_disk();
        let (ino, file) = fixture.create(b"f");
        fixture.unlink(b"f").unwrap();
        fixture.write(file, 0, vec![1; 128 << 10]);
        fixture.run(async { fixture.core.release(file) });
        assert_eq!(fixture.names().len(), 1);
        if refused {
            fixture.fails(nfs::Setattr::NUMBER, Status::ACCES);
        }
        let mode = SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        };
        let setting = fixture.core.setattr(&fixture.user, ino, None, mode);
        assert_eq!(fixture.run(setting).is_err(), refused);
        assert_eq!(fixture.names(), [""; 0]);
    }
}

/// Regression test: the new name was forgotten, and the kernel, which moves its own, does not look it up.
#[test]
fn a_file_that_is_renamed_and_removed_while_open_stays_also_if_others_change_the_directory() {
    let [one, two] = clients();
    let file = one.open_file(b"job.tmp");
    let (_, other) = two.create(b"foreign");
    two.close(other).unwrap();
    let version = || one.core.node(ROOT).unwrap().names_version.get();
    let before = version();
    // The reply shows the change.
    let (_, own) = one.create(b"own");
    one.close(own).unwrap();
    assert!(version() > before);
    one.rename(b"job.tmp", b"job").unwrap();
    one.removes_while_open(b"job", file);
    assert_eq!(one.names(), ["foreign", "own"]);
}

/// Regression test: both names were forgotten.
#[test]
fn a_file_that_could_not_be_renamed_stays_if_it_is_removed_while_open() {
    for renamed_then in [false, true] {
        let fixture = fixture();
        let file = fixture.open_file(b"f");
        fixture.fails(nfs::Rename::NUMBER, Status::ACCES);
        assert_eq!(fixture.rename(b"f", b"g"), Err(Errno::ACCESS));
        fixture.server.plan(|_, _| Fault::None);
        if renamed_then {
            fixture.rename(b"f", b"g").unwrap();
        }
        let name: &[u8] = if renamed_then { b"g" } else { b"f" };
        fixture.removes_while_open(name, file);
    }
}

/// Nor does an error of another call with its name.
#[test]
fn an_open_file_stays_if_it_is_removed_after_a_call_with_its_name_has_failed() {
    let (core, user) = (
        |it: &Fixture| Rc::clone(&it.core),
        |it: &Fixture| Rc::clone(&it.user),
    );
    let exist = Err(Errno::EXIST);
    let cases: [&dyn Fn(&Fixture); 4] = [
        &|it| {
            let made = it.run(core(it).mkdir(&user(it), ROOT, b"f", 0o755));
            assert_eq!(made.map(|_| ()), exist);
        },
        &|it| {
            let (ino, other) = it.create(b"other");
            it.close(other).unwrap();
            let linked = it.run(core(it).link(&user(it), ino, ROOT, b"f"));
            assert_eq!(linked.map(|_| ()), exist);
        },
        &|it| {
            let (_, other) = it.create(b"other");
            it.close(other).unwrap();
            it.fails(nfs::Rename::NUMBER, Status::ACCES);
            assert_eq!(it.rename(b"other", b"f"), Err(Errno::ACCESS));
        },
        &|it| {
            let ino = it.find(b"f").unwrap();
            it.run(core(it).link(&user(it), ino, ROOT, b"g")).unwrap();
            it.fails(nfs::Remove::NUMBER, Status::ACCES);
            assert_eq!(it.unlink(b"f"), Err(Errno::ACCESS));
            it.server.plan(|_, _| Fault::None);
            it.unlink(b"g").unwrap();
        },
    ];
    for case in cases {
        let fixture = fixture();
        let file = fixture.open_file(b"f");
        case(&fixture);
        fixture.server.plan(|_, _| Fault::None);
        fixture.removes_while_open(b"f", file);
    }
}

/// The kernel removes a name that it has for an open file, but another client has put another file there.
#[test]
fn a_file_that_has_taken_the_name_of_an_open_one_is_not_hidden_for_it() {
    let [one, two] = clients();
    let file = one.open_file(b"f");
    two.find(b"f").unwrap();
    two.rename(b"f", b"moved").unwrap();
    let (_, other) = two.create(b"f");
    two.close(other).unwrap();
    let (_, own) = one.create(b"own");
    one.close(own).unwrap();
    one.rename(b"f", b"g").unwrap();
    // It is the other file that has been renamed.
    let root = one.core.node(ROOT).unwrap();
    assert_eq!(root.known_name(b"g"), None);
    one.unlink(b"g").unwrap();
    assert_eq!(one.names(), ["moved", "own"]);
    // The open one gets a hidden name when its own name is removed.
    one.find(b"moved").unwrap();
    one.removes_while_open(b"moved", file);
}

/// Nor can the file have its name back. Without a name, its data would be lost.
#[test]
fn an_open_file_that_is_not_replaced_stays_even_under_its_hidden_name() {
    for (procedure, calls) in [(nfs::Rename::NUMBER, 1), (nfs::Lookup::NUMBER, 0)] {
        let fixture = fixture();
        let file = fixture.open_file(b"f");
        let (_, other) = fixture.create(b"g");
        fixture.close(other).unwrap();
        fixture.server.plan(move |proc, made| match proc {
            nfs::Link::NUMBER => Fault::Status(Status::NOTSUPP),
            nfs::Rename::NUMBER if made == 1 => Fault::Status(Status::ACCES),
            _ if proc == procedure && made >= calls => Fault::Status(Status::ACCES),
            _ => Fault::None,
        });
        assert_eq!(fixture.rename(b"g", b"f"), Err(Errno::ACCESS));
        fixture.close(file).unwrap();
        let mut names = fixture.names();
        names.sort_unstable();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].starts_with(b".nfs"), "{names:?}");
        assert_eq!(names[1], "g");
        assert_eq!(fixture.core.node(ROOT).unwrap().hides.get(), 0);
    }
}

/// The server has no hard links, so the file that is to be replaced is renamed before.
#[test]
fn an_open_file_keeps_its_name_if_it_cannot_be_replaced() {
    let fixture = fixture();
    let file = fixture.open_file(b"f");
    let (_, other) = fixture.create(b"g");
    fixture.close(other).unwrap();
    fixture.server.plan(|proc, made| match proc {
        nfs::Link::NUMBER => Fault::Status(Status::NOTSUPP),
        nfs::Rename::NUMBER if made == 1 => Fault::Status(Status::ACCES),
        _ => Fault::None,
    });
    assert_eq!(fixture.rename(b"g", b"f"), Err(Errno::ACCESS));
    fixture.close(file).unwrap();
    let mut names = fixture.names();
    names.sort_unstable();
    assert_eq!(names, ["f", "g"]);
}

/// The process that renames an open file onto another one is killed while the server does it.
#[test]
fn a_file_whose_renaming_is_cut_off_stays_if_it_is_removed_while_open() {
    let fixture = fixture();
    let (_, old) = fixture.create(b"g");
    fixture.close(old).unwrap();
    let file = fixture.open_file(b"f");
    fixture.server.plan(|proc, made| match proc {
        nfs::Rename::NUMBER if made == 0 => Fault::Status(Status::JUKEBOX),
        _ => Fault::None,
    });
    let core = &fixture.core;
    let rename = core.rename(&fixture.user, (ROOT, b"f"), (ROOT, b"g"));
    fixture.run(cut_off(rename, || fixture.calls::<nfs::Rename>() > 0));
    fixture.removes_while_open(b"g", file);
}

/// Another name keeps the file, so it need not be hidden.
#[test]
fn a_file_with_another_name_is_simply_removed_while_open() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture
        .run(fixture.core.link(&fixture.user, ino, ROOT, b"g"))
        .unwrap();
    fixture
        .run(fixture.core.unlink(&fixture.user, ROOT, b"f"))
        .unwrap();
    assert_eq!(fixture.names(), ["g"]);
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), ["g"]);
}

/// Regression test: while this client modified the file, attributes from a server whose clock had not moved were
/// not stored, and the number of links in the cache was that from before the other name was removed.
#[test]
fn an_open_file_whose_last_name_is_removed_during_a_write_stays_until_it_is_closed() {
    let backend = MemoryFs::simulated(64 << 20, 1, Clock::simulated());
    let (runtime, server, mount) = serve(Arc::new(backend));
    let one = client(&runtime, &server, &mount, 1);
    let two = client(&runtime, &server, &mount, 2);
    let file = one.open_file(b"f");
    let ino = one.find(b"f").unwrap();
    one.run(one.core.link(&one.user, ino, ROOT, b"g")).unwrap();
    one.unlink(b"g").unwrap();
    // The server has executed the write, and its reply has not come.
    let other = two.open(two.find(b"f").unwrap());
    two.write(other, 100, vec![6; 100]);
    two.close(other).unwrap();
    let node = one.core.node(ino).unwrap();
    let change = one.core.change(&node);
    one.unlink(b"f").unwrap();
    drop(change);
    assert_eq!(one.read(file, 0, 300).len(), 200);
    one.close(file).unwrap();
    assert_eq!(one.names(), [""; 0]);
}

#[test]
fn a_file_that_is_replaced_while_open_stays_until_it_is_closed() {
    let fixture = fixture();
    let (_, old) = fixture.create(b"old");
    fixture.write(old, 0, vec![1; 10]);
    let (_, new) = fixture.create(b"new");
    fixture.write(new, 0, vec![2; 20]);
    fixture.close(new).unwrap();
    let core = &fixture.core;
    fixture
        .run(core.rename(&fixture.user, (ROOT, b"new"), (ROOT, b"old")))
        .unwrap();
    assert_eq!(&fixture.read(old, 0, 50)[..], &[1; 10]);
    fixture.close(old).unwrap();
    assert_eq!(fixture.names(), ["old"]);
    let ino = fixture.find(b"old").unwrap();
    let file = fixture.open(ino);
    assert_eq!(&fixture.read(file, 0, 50)[..], &[2; 20]);
    fixture.close(file).unwrap();
}

/// Otherwise an `rmdir` right after a close would not wait until the hidden name is gone.
#[test]
fn a_directory_stays_in_the_table_while_it_has_a_hidden_file() {
    let fixture = fixture();
    let (core, user) = (&fixture.core, &fixture.user);
    let made = fixture.run(core.mkdir(user, ROOT, b"d", 0o755)).unwrap();
    let d = made.stat.unwrap().ino;
    let making = core.create(user, 1, d, b"f", 0o644, WRITE);
    let (_, opened) = fixture.run(making).unwrap();
    fixture.run(core.unlink(user, d, b"f")).unwrap();
    core.forget(d, 1);
    assert!(core.node(d).is_ok());
    fixture.close(opened.file).unwrap();
    assert_eq!(core.node(d).err(), Some(Errno::STALE));
}
