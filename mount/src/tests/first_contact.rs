//! Lookups of names that no program here has looked up before, and what they cost.

use super::*;

/// The calls for names and attributes so far.
fn all(fixture: &Fixture) -> u64 {
    fixture.calls::<nfs::Lookup>()
        + fixture.calls::<nfs::Access>()
        + fixture.calls::<nfs::Getattr>()
        + fixture.calls::<nfs::Readdirplus>()
}

impl Fixture {
    fn find_below(&self, ino: u64, name: &str) -> Option<u64> {
        let looking = self.core.lookup(&self.user, 1, ino, name.as_bytes());
        self.run(looking).unwrap().stat.map(|stat| stat.ino)
    }

    /// Makes so many files in a directory, which the kernel forgets.
    fn make_files(&self, directory: u64, count: usize) {
        for n in 0..count {
            let name = format!("f{n}");
            let (core, user) = (&self.core, &self.user);
            let making = core.mknod(
                user,
                directory,
                name.as_bytes(),
                FileType::Regular,
                0o644,
                nfs_binding::proto::DeviceNumber::default(),
            );
            let ino = self.run(making).unwrap().stat.unwrap().ino;
            self.core.forget(ino, 1);
        }
    }

    fn make_below(&self, parent: u64, name: &str) -> u64 {
        let making = self.core.mkdir(&self.user, parent, name.as_bytes(), 0o755);
        self.run(making).unwrap().stat.unwrap().ino
    }

    /// Lets a directory, its attributes and the names that were fetched get older.
    fn directory_age_by(&self, ino: u64, time: Duration) {
        let node = self.core.node(ino).unwrap();
        node.attributes.borrow_mut().age_by(time);
        node.lookups().age_by(time);
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// What `git status` does: it looks up all files, then lists all directories and looks for a file that may be in each.
#[test]
fn a_walk_of_a_tree_by_name_takes_few_calls_for_each_directory() {
    const DIRECTORIES: u64 = 20;
    const FILES: u64 = 8;
    let [one, two] = clients();
    for d in 0..DIRECTORIES {
        let directory = two.make_below(ROOT, &format!("d{d}"));
        two.make_files(directory, FILES as usize);
    }
    let before = all(&one);
    let mut directories = Vec::new();
    for d in 0..DIRECTORIES {
        let directory = one.find_below(ROOT, &format!("d{d}")).unwrap();
        for n in 0..FILES {
            assert!(one.find_below(directory, &format!("f{n}")).is_some());
        }
        directories.push(directory);
    }
    let looked_up = all(&one) - before;
    // A LOOKUP with a READDIRPLUS beside it in each, and another LOOKUP where it was not known yet that a tree is walked.
    assert!(looked_up <= 2 * DIRECTORIES + 5, "{looked_up}");
    for directory in directories {
        assert_eq!(one.list_plus(directory).len() as u64, FILES);
        assert_eq!(one.find_below(directory, ".gitignore"), None);
    }
    let listed = all(&one) - before - looked_up;
    assert_eq!(listed, DIRECTORIES);
    // Each name took a LOOKUP, and each listing an ACCESS and a READDIRPLUS.
    let without = DIRECTORIES * (1 + FILES) + DIRECTORIES * 3;
    assert!((looked_up + listed) * 3 < without);
}

#[test]
fn lookups_that_go_on_wait_for_the_names_that_are_being_fetched() {
    let [one, two] = clients();
    two.make_files(ROOT, 50);
    let before = one.calls::<nfs::Lookup>();
    one.run(async {
        let looking = (0..50).map(async |n| {
            let name = format!("f{n}");
            let found = one.core.lookup(&one.user, 1, ROOT, name.as_bytes()).await;
            assert!(found.unwrap().stat.is_some());
        });
        futures_util::future::join_all(looking).await;
    });
    assert_eq!(one.calls::<nfs::Lookup>(), before + 2);
    assert_eq!(one.calls::<nfs::Readdirplus>(), 1);
}

/// Lookups of some files of a directory that is too large to read.
#[test]
fn a_large_directory_is_not_read_for_a_few_lookups() {
    let [one, two] = clients();
    two.make_files(ROOT, 5000);
    for n in [4321, 17, 2222] {
        assert!(one.find_below(ROOT, &format!("f{n}")).is_some());
    }
    let root = one.core.node(ROOT).unwrap();
    assert_eq!(one.calls::<nfs::Readdirplus>(), 1);
    let (names, complete) = root.lookups().names();
    assert!((50..300).contains(&names) && !complete, "{names}");
    // The kernel has been told of three objects; the others take no place in the table.
    assert_eq!(one.core.inodes.borrow().len(), 4);
    // Names that do not exist are looked up, and are no reason to read all of it.
    for n in 0..1000 {
        assert_eq!(one.find_below(ROOT, &format!("none{n}")), None);
    }
    let fetched = one.calls::<nfs::Readdirplus>();
    assert!(fetched <= 6, "{fetched}");
    assert!(root.lookups().names().0 < 5000);
}

/// A program that looks up all files of a directory is spared most LOOKUPs, though it takes several replies.
#[test]
fn a_directory_of_several_replies_is_read_as_far_as_it_is_used() {
    let [one, two] = clients();
    two.make_files(ROOT, 1500);
    let before = one.calls::<nfs::Lookup>();
    for n in 0..1500 {
        assert!(one.find_below(ROOT, &format!("f{n}")).is_some());
    }
    let lookups = one.calls::<nfs::Lookup>() - before;
    let lists = one.calls::<nfs::Readdirplus>();
    assert!(lookups < 100 && lists < 20, "{lookups} {lists}");
}

/// Looks up two names of the root, which fetches all others.
fn fetched(files: usize) -> [Fixture; 2] {
    let [one, two] = clients();
    two.make_files(ROOT, files);
    for name in ["f0", "f1"] {
        assert!(one.find_below(ROOT, name).is_some());
    }
    let root = one.core.node(ROOT).unwrap();
    assert!(root.lookups().names().1);
    [one, two]
}

#[test]
fn a_name_that_another_client_makes_after_the_others_were_fetched_is_found_within_a_second() {
    let [one, two] = clients();
    two.make_files(ROOT, 4);
    let root = one.core.node(ROOT).unwrap();
    one.run(one.core.getattr_now(&one.user, &root)).unwrap();
    // The times show every change from now on.
    root.attributes.borrow_mut().unchanged_since_by(3 * SECOND);
    for name in ["f0", "f1"] {
        assert!(one.find_below(ROOT, name).is_some());
    }
    let looking = || {
        one.run(one.core.lookup(&one.user, 1, ROOT, b"new"))
            .unwrap()
    };
    let calls = all(&one);
    let absent = looking();
    assert!(absent.stat.is_none() && absent.trust <= SECOND && !absent.trust.is_zero());
    assert_eq!(all(&one), calls);
    let (_, file) = two.create(b"new");
    two.close(file).unwrap();
    one.directory_age_by(ROOT, SECOND);
    let getattrs = one.calls::<nfs::Getattr>();
    assert!(looking().stat.is_some());
    assert_eq!(one.calls::<nfs::Getattr>(), getattrs + 1);
}

/// Its modification times need not show a change within the same second. A directory that has not changed for longer
/// does.
#[test]
fn the_names_of_a_directory_that_has_just_changed_are_not_taken_for_all_for_long() {
    let [one, _two] = fetched(4);
    one.directory_age_by(ROOT, SECOND);
    let lookups = one.calls::<nfs::Lookup>();
    assert_eq!(one.find_below(ROOT, "none"), None);
    assert_eq!(one.calls::<nfs::Lookup>(), lookups + 1);
    // It has not changed since, and the names are fetched again.
    let root = one.core.node(ROOT).unwrap();
    root.attributes.borrow_mut().unchanged_since_by(3 * SECOND);
    for n in 0..8 {
        assert_eq!(one.find_below(ROOT, &format!("other {n}")), None);
    }
    let lookups = one.calls::<nfs::Lookup>();
    let getattrs = one.calls::<nfs::Getattr>();
    for n in 0..5 {
        one.directory_age_by(ROOT, SECOND);
        assert_eq!(one.find_below(ROOT, &format!("more {n}")), None);
        assert_eq!(one.find_below(ROOT, &format!("more {n} of it")), None);
    }
    assert_eq!(one.calls::<nfs::Lookup>(), lookups);
    assert_eq!(one.calls::<nfs::Getattr>(), getattrs + 5);
}

#[test]
fn what_was_fetched_is_not_used_after_a_second_or_a_change_by_another_client() {
    let [one, two] = fetched(6);
    let lookups = one.calls::<nfs::Lookup>();
    assert!(one.find_below(ROOT, "f2").is_some());
    assert_eq!(one.calls::<nfs::Lookup>(), lookups);
    one.directory_age_by(ROOT, SECOND);
    let (_, file) = two.create(b"f3");
    two.write(file, 0, vec![1; 100]);
    two.close(file).unwrap();
    let looking = one.core.lookup(&one.user, 1, ROOT, b"f3");
    let found = one.run(looking).unwrap().stat.unwrap();
    assert_eq!(found.attributes.size, 100);

    let [one, two] = fetched(6);
    two.unlink(b"f2").unwrap();
    let root = one.core.node(ROOT).unwrap();
    one.run(one.core.getattr_now(&one.user, &root)).unwrap();
    assert_eq!(one.find_below(ROOT, "f2"), None);
}

/// This client changes names after others of their directory were fetched, and the kernel forgets them.
#[test]
fn own_changes_show_in_names_that_were_fetched() {
    let fixture = fixture();
    let core = &fixture.core;
    fixture.make_files(ROOT, 8);
    for name in ["f0", "f1"] {
        assert!(fixture.find_below(ROOT, name).is_some());
    }
    let root = core.node(ROOT).unwrap();
    assert!(root.lookups().names().1);
    let (new, file) = fixture.create(b"new");
    fixture.close(file).unwrap();
    core.forget(new, 1);
    fixture.unlink(b"f2").unwrap();
    let f3 = fixture.find_below(ROOT, "f3").unwrap();
    fixture.rename(b"f3", b"f4").unwrap();
    core.forget(f3, 1);
    // What was fetched has to answer, or the server.
    root.names.borrow_mut().clear();
    assert!(root.lookups().names().1);
    assert_eq!(fixture.find_below(ROOT, "new"), Some(new));
    assert_eq!(fixture.find_below(ROOT, "f2"), None);
    assert_eq!(fixture.find_below(ROOT, "f3"), None);
    assert_eq!(fixture.find_below(ROOT, "f4"), Some(f3));
}

/// A file is written to under one of two names that were fetched, and the kernel forgets it.
#[test]
fn own_writes_show_in_the_attributes_of_names_that_were_fetched() {
    let [one, two] = clients();
    two.make_files(ROOT, 3);
    let f2 = two.find_below(ROOT, "f2").unwrap();
    let linking = two.core.link(&two.user, f2, ROOT, b"also f2");
    two.run(linking).unwrap();
    for name in ["f0", "f1"] {
        assert!(one.find_below(ROOT, name).is_some());
    }
    let lookups = one.calls::<nfs::Lookup>();
    let ino = one.find_below(ROOT, "also f2").unwrap();
    assert_eq!(one.calls::<nfs::Lookup>(), lookups);
    let file = one.open(ino);
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    one.core.forget(ino, 1);
    let looking = one.core.lookup(&one.user, 1, ROOT, b"f2");
    let found = one.run(looking).unwrap().stat.unwrap();
    assert_eq!(found.attributes.size, 100);
}

/// Objects that the kernel knows, in a directory that another client has changed.
#[test]
fn known_objects_are_found_again_without_a_lookup_of_each() {
    let [one, two] = fetched(20);
    for n in 0..20 {
        assert!(one.find_below(ROOT, &format!("f{n}")).is_some());
    }
    two.create(b"new");
    let root = one.core.node(ROOT).unwrap();
    one.run(one.core.getattr_now(&one.user, &root)).unwrap();
    let lookups = one.calls::<nfs::Lookup>();
    for n in 0..20 {
        assert!(one.find_below(ROOT, &format!("f{n}")).is_some());
    }
    assert!(one.calls::<nfs::Lookup>() <= lookups + 2);
}

#[test]
fn mounts_that_cache_no_names_or_attributes_fetch_none() {
    // The calls of each kind for ten names, also after a listing of them.
    let calls = |change: fn(&mut Options), lists: bool| {
        let [mut one, two] = clients();
        change(one.options());
        two.make_files(ROOT, 10);
        if lists {
            assert_eq!(one.names().len(), 10);
        }
        let lookups = one.calls::<nfs::Lookup>();
        for n in 0..10 {
            assert!(one.find_below(ROOT, &format!("f{n}")).is_some());
        }
        let lookups = one.calls::<nfs::Lookup>() - lookups;
        (lookups, one.calls::<nfs::Readdirplus>())
    };
    assert_eq!(calls(|_| (), false), (2, 1));
    assert_eq!(calls(|_| (), true), (0, 1));
    let no_names: fn(&mut Options) = |it| it.lookup_cache = LookupCache::None;
    let no_attributes: fn(&mut Options) = |it| it.attributes = AttributeTimes::NONE;
    for change in [no_names, no_attributes] {
        assert_eq!(calls(change, false), (10, 0));
        assert_eq!(calls(change, true), (10, 1));
    }
    // Names that do not exist are looked up each time.
    let [mut one, two] = clients();
    one.options().lookup_cache = LookupCache::Positive;
    two.make_files(ROOT, 3);
    let lookups = one.calls::<nfs::Lookup>();
    for _ in 0..5 {
        assert_eq!(one.find_below(ROOT, "none"), None);
    }
    assert_eq!(one.calls::<nfs::Lookup>(), lookups + 5);
}

/// The server refuses READDIRPLUS, which no program has asked for.
#[test]
fn a_refused_listing_harms_no_lookup() {
    for status in [Status::ACCES, Status::IO, Status::NOTSUPP] {
        let [one, two] = clients();
        two.make_files(ROOT, 40);
        one.fails(nfs::Readdirplus::NUMBER, status);
        for n in 0..40 {
            assert!(one.find_below(ROOT, &format!("f{n}")).is_some());
        }
        let tried = one.calls::<nfs::Readdirplus>();
        assert!(tried <= 3, "{status:?}: {tried}");
    }
}

/// A directory that is its own entry, as only a broken server has it.
#[test]
fn a_directory_below_itself_is_walked_like_any_other() {
    let fixture = fixture();
    let root = fixture.core.node(ROOT).unwrap();
    for name in [b"a", b"b", b"c"] {
        fixture.core.remember(&root, name, Some(&root));
    }
    fixture.make_files(ROOT, 10);
    for n in 0..10 {
        assert!(fixture.find_below(ROOT, &format!("f{n}")).is_some());
    }
}

/// Servers find objects under names that they do not list: directories with snapshots, and other forms of a name.
#[test]
fn names_that_a_server_may_have_without_listing_them_are_looked_up() {
    let [one, _two] = fetched(4);
    let asks = |name: &str| {
        let lookups = one.calls::<nfs::Lookup>();
        let looking = one.core.lookup(&one.user, 1, ROOT, name.as_bytes());
        let outcome = one
            .run(looking)
            .map(|found| found.stat.map(|stat| stat.ino));
        (outcome, one.calls::<nfs::Lookup>() - lookups)
    };
    assert_eq!(asks("none"), (Ok(None), 0));
    for name in [
        ".zfs",
        ".snapshot",
        ".snapshots",
        "~snapshot",
        ".ckpt",
        "Müller",
    ] {
        assert_eq!(asks(name), (Ok(None), 1), "{name}");
    }
    assert_eq!(asks(&"x".repeat(256)), (Err(Errno::NAMETOOLONG), 1));
}

/// A file system that has said (PATHCONF) that it does not distinguish case, or has said nothing.
#[test]
fn a_listing_does_not_show_that_a_name_in_another_case_does_not_exist() {
    for status in [None, Some(Status::NOTSUPP)] {
        let [one, two] = clients();
        two.make_files(ROOT, 4);
        one.server.plan(move |proc, _| match (proc, status) {
            (nfs::Pathconf::NUMBER, None) => Fault::CaseInsensitive,
            (nfs::Pathconf::NUMBER, Some(status)) => Fault::Status(status),
            _ => Fault::None,
        });
        for name in ["f0", "f1"] {
            assert!(one.find_below(ROOT, name).is_some());
        }
        let root = one.core.node(ROOT).unwrap();
        assert!(root.lookups().names().1);
        let lookups = one.calls::<nfs::Lookup>();
        for n in 0..3 {
            assert_eq!(one.find_below(ROOT, &format!("F{n}")), None);
        }
        assert_eq!(one.calls::<nfs::Lookup>(), lookups + 3);
        assert_eq!(one.calls::<nfs::Pathconf>(), 1);
    }
}

/// A server may hide entries that a user may not access, so that other users have more.
#[test]
fn a_listing_shows_the_absence_of_names_only_to_the_user_that_it_was_fetched_for() {
    let [one, two] = fetched(4);
    let other = one.core.user(Requester {
        uid: 1000,
        gid: 1000,
        pid: 0,
    });
    let looking = |user: &UserOf<InProcess>, name: &str| {
        let lookups = one.calls::<nfs::Lookup>();
        let looking = one.core.lookup(user, 1, ROOT, name.as_bytes());
        let found = one.run(looking).map(|found| found.stat.is_some());
        (found, one.calls::<nfs::Lookup>() - lookups)
    };
    assert_eq!(looking(&one.user, "none"), (Ok(false), 0));
    assert_eq!(looking(&other, "none of it"), (Ok(false), 1));
    assert_eq!(looking(&other, "f2"), (Ok(true), 0));
    // What the other user may not search is not shown to it, neither what is there nor what is not.
    let private = SetAttributes {
        mode: Some(0o700),
        ..SetAttributes::default()
    };
    let setting = two.core.setattr(&two.user, ROOT, None, private);
    two.run(setting).unwrap();
    let root = one.core.node(ROOT).unwrap();
    one.run(one.core.getattr_now(&one.user, &root)).unwrap();
    for name in ["f3", "none", "none at all"] {
        assert_eq!(looking(&other, name).0, Err(Errno::ACCESS), "{name}");
    }
}

/// A server that is slow with READDIRPLUS, or fetches the directory from tape, still answers LOOKUPs.
#[test]
fn lookups_do_not_wait_for_long_for_a_listing_that_no_program_has_asked_for() {
    for fault in [Fault::Status(Status::JUKEBOX), Fault::Slow] {
        let [one, two] = clients();
        two.make_files(ROOT, 3);
        let lookups = one.calls::<nfs::Lookup>();
        one.server.plan(move |proc, _| match proc {
            nfs::Readdirplus::NUMBER => fault,
            _ => Fault::None,
        });
        one.run(async {
            for name in ["f0", "f1", "f2"] {
                let looking = one.core.lookup(&one.user, 1, ROOT, name.as_bytes());
                assert!(looking.await.unwrap().stat.is_some());
            }
            assert_eq!(one.calls::<nfs::Readdirplus>(), 1);
            assert_eq!(one.calls::<nfs::Lookup>(), lookups + 3);
            let root = one.core.node(ROOT).unwrap();
            assert!(!root.lookups().names().1);
        });
        assert_eq!(one.calls::<nfs::Readdirplus>(), 1);
    }
}

/// The times of a server may be too coarse to tell a change by another client from one by this client just before it.
#[test]
fn after_an_own_change_a_listing_shows_the_absence_of_names_for_a_second_only() {
    let [one, _two] = clients();
    one.make_files(ROOT, 4);
    let root = one.core.node(ROOT).unwrap();
    root.attributes.borrow_mut().unchanged_since_by(3 * SECOND);
    for n in 0..2 {
        assert_eq!(one.find_below(ROOT, &format!("other {n}")), None);
    }
    assert!(root.lookups().names().1);
    let lookups_after = |name: &str| {
        let lookups = one.calls::<nfs::Lookup>();
        let looking = one.core.lookup(&one.user, 1, ROOT, name.as_bytes());
        let found = one.run(looking).unwrap();
        assert!(found.stat.is_none() && found.trust <= SECOND);
        one.calls::<nfs::Lookup>() - lookups
    };
    one.directory_age_by(ROOT, SECOND);
    assert_eq!(lookups_after("none"), 0);
    let (_, file) = one.create(b"own");
    one.close(file).unwrap();
    assert_eq!(lookups_after("none of it"), 1);
}

/// Listings that nobody uses take no memory for long.
#[test]
fn names_that_were_fetched_are_dropped() {
    let [one, _two] = fetched(100);
    let core = &one.core;
    assert!(core.listed_names.get() >= 100);
    core.drop_listings(Instant::now());
    assert!(core.listed_names.get() >= 100);
    core.drop_listings(Instant::now() + SECOND);
    assert_eq!(core.listed_names.get(), 0);
    assert_eq!(core.listings.borrow().len(), (0, 0));
}

/// Listings that only show which names do not exist are kept for a minute, and are looked at only when they are dropped.
#[test]
fn names_of_a_directory_that_has_not_changed_are_kept_longer() {
    let [one, _two] = clients();
    one.make_files(ROOT, 4);
    let root = one.core.node(ROOT).unwrap();
    root.attributes.borrow_mut().unchanged_since_by(3 * SECOND);
    for n in 0..2 {
        assert_eq!(one.find_below(ROOT, &format!("other {n}")), None);
    }
    let core = &one.core;
    let listings = || core.listings.borrow().len();
    assert_eq!(listings(), (1, 0));
    for age in [SECOND, 2 * SECOND, 59 * SECOND] {
        core.drop_listings(Instant::now() + age);
        assert_eq!(listings(), (0, 1));
        assert!(core.listed_names.get() >= 4 && root.lookups().names().1);
    }
    core.drop_listings(Instant::now() + 60 * SECOND);
    assert_eq!(listings(), (0, 0));
    assert_eq!(core.listed_names.get(), 0);
}

/// Lookups of names that exist, in a large directory of which all names are known, begin to fetch them once more.
#[test]
fn all_names_of_a_directory_stay_known_until_they_are_fetched_again() {
    let [one, two] = clients();
    two.make_files(ROOT, 300);
    let root = one.core.node(ROOT).unwrap();
    // So far, the attributes are those of before the files were made.
    one.run(one.core.getattr_now(&one.user, &root)).unwrap();
    root.attributes.borrow_mut().unchanged_since_by(3 * SECOND);
    assert_eq!(one.names().len(), 300);
    assert!(root.lookups().names().1);
    one.directory_age_by(ROOT, 2 * SECOND);
    for n in 200..202 {
        assert!(one.find_below(ROOT, &format!("f{n}")).is_some());
    }
    let (names, complete) = root.lookups().names();
    assert!(names < 300 && !complete);
    let lookups = one.calls::<nfs::Lookup>();
    for n in 0..10 {
        assert_eq!(one.find_below(ROOT, &format!("none{n}")), None);
    }
    assert_eq!(one.calls::<nfs::Lookup>(), lookups);
    // This client's own change shows.
    let (new, file) = one.create(b"none11");
    one.close(file).unwrap();
    one.core.forget(new, 1);
    assert_eq!(one.find_below(ROOT, "none11"), Some(new));
    // Another client's too.
    let (_, file) = two.create(b"none12");
    two.close(file).unwrap();
    one.directory_age_by(ROOT, SECOND);
    assert!(one.find_below(ROOT, "none12").is_some());
}

/// A lookup of a fetched name fails, so that the kernel does not learn of the object and never forgets it.
#[test]
fn an_object_whose_lookup_fails_leaves_the_table() {
    let [mut one, two] = clients();
    one.options().attributes.file_min = Duration::from_nanos(1);
    two.make_files(ROOT, 3);
    for name in ["f0", "f1"] {
        let ino = one.find_below(ROOT, name).unwrap();
        one.core.forget(ino, 1);
    }
    assert_eq!(one.core.inodes.borrow().len(), 1);
    one.fails(nfs::Getattr::NUMBER, Status::IO);
    let looking = one.core.lookup(&one.user, 1, ROOT, b"f2");
    assert_eq!(one.run(looking).err(), Some(Errno::IO));
    let later = Instant::now() + Duration::from_secs(6);
    one.core.drop_unreferenced(later);
    assert_eq!(one.core.inodes.borrow().len(), 1);
}
