//! Tests with servers that lose replies, restart, fill up and go away.

use std::cell::Cell;
use std::fs;

use nfs_binding::proto::{Procedure, Status, nfs};

use super::*;
use crate::CopyError;
use crate::Totals;
use crate::in_process::Fault;

/// The procedures whose repetition needs care.
pub(super) const CHANGES: [u32; 10] = [
    nfs::Setattr::NUMBER,
    nfs::Write::NUMBER,
    nfs::Create::NUMBER,
    nfs::Mkdir::NUMBER,
    nfs::Symlink::NUMBER,
    nfs::Mknod::NUMBER,
    nfs::Link::NUMBER,
    nfs::Remove::NUMBER,
    nfs::Rmdir::NUMBER,
    nfs::Rename::NUMBER,
];

#[test]
fn every_lost_reply_is_made_good() {
    let rig = Fixture::directory(wsize(16_384));
    make_odd_tree(&rig.local("tree"));
    rig.server.plan(|proc, _| match CHANGES.contains(&proc) {
        true => Fault::ReplyLost,
        false => Fault::None,
    });
    complete(&rig.put("tree", "copy"));
    same_trees(&rig.local("tree"), &rig.exported("copy"));
    rig.let_be_removed("copy");
    complete(&rig.remove("copy"));
    assert!(!rig.exported("copy").exists());
    for made in [
        rig.server.calls::<nfs::Link>(),
        rig.server.calls::<nfs::Mknod>(),
        rig.server.calls::<nfs::Symlink>(),
    ] {
        assert!(made > 0);
    }
}

#[test]
fn what_a_restart_loses_is_written_again() {
    // Restarts between WRITEs, before the COMMIT, and at both.
    for restarts in [
        vec![(true, 7)],
        vec![(false, 0)],
        vec![(true, 30), (false, 0), (false, 1)],
    ] {
        let rig = Fixture::directory(wsize(16_384));
        fs::write(rig.local("file"), pattern(1_000_003)).unwrap();
        rig.server.plan(move |proc, count| {
            let hit = |&(write, at): &(bool, u64)| {
                at == count
                    && proc
                        == if write {
                            nfs::Write::NUMBER
                        } else {
                            nfs::Commit::NUMBER
                        }
            };
            match restarts.iter().any(hit) {
                true => Fault::Restart,
                false => Fault::None,
            }
        });
        let report = rig.put("file", "file");
        complete(&report);
        assert_eq!(report.totals.bytes, 1_000_003);
        assert!(report.totals.bytes_again >= 1_000_003);
        same_trees(&rig.local("file"), &rig.exported("file"));
    }
}

#[test]
fn what_a_restart_loses_of_a_stream_is_written_again_from_memory() {
    let rig = Fixture::directory(wsize(16_384));
    rig.server.plan(|proc, count| match proc {
        nfs::Commit::NUMBER if count % 2 == 0 => Fault::Restart,
        _ => Fault::None,
    });
    let bytes = pattern(1_000_003);
    // Chunks of all lengths, so that pieces begin and end anywhere in them.
    let chunks = (0..).map(|n| n * n).take_while(|at| *at < bytes.len());
    let starts: Vec<usize> = chunks.chain([bytes.len()]).collect();
    let chunks = starts
        .windows(2)
        .map(|pair| Ok(bytes[pair[0]..pair[1]].to_vec()));
    let report = rig.put_stream(chunks.collect(), "file");
    complete(&report);
    assert_eq!((report.totals.files, report.totals.bytes), (1, 1_000_003));
    assert!(report.totals.bytes_again > 500_000, "{:?}", report.totals);
    assert!(fs::read(rig.exported("file")).unwrap() == bytes);
    assert!(rig.server.calls::<nfs::Commit>() > 4);
}

#[test]
fn a_stream_that_fails_leaves_an_unfinished_file() {
    let rig = Fixture::directory(wsize(16_384));
    let broken = std::io::Error::other("broken pipe of the mind");
    let report = rig.put_stream(vec![Ok(pattern(300_000)), Err(broken)], "file");
    assert_eq!(
        texts(&report),
        ["reading standard input: broken pipe of the mind"]
    );
    assert_eq!(report.unfinished.len(), 1);
    assert_eq!(report.totals.files, 0);
}

/// Proves the assumption of the tests above: without a second WRITE, the data would be lost.
#[test]
fn a_restart_does_lose_what_was_not_committed() {
    use nfs_binding::client::Place;
    use nfs_binding::proto::{SetAttributes, Stable};
    let rig = Fixture::directory(AttachOptions::default());
    rig.server.plan(|proc, _| match proc {
        nfs::Commit::NUMBER => Fault::Restart,
        _ => Fault::None,
    });
    let (mount, at): (_, &[u8]) = (&rig.mount, b"file");
    let lost = async {
        let file = mount
            .create(mount.root(), at, SetAttributes::default(), at)
            .await?;
        let data = bytes::Bytes::from_static(b"data");
        let ok = mount
            .write(file.handle, 0, data, Stable::Unstable, at)
            .await?;
        let after = mount.commit(file.handle, at).await?;
        Ok::<_, nfs_binding::client::NfsError>((ok.verifier, after))
    };
    let (before, after) = rig.runtime.block_on(lost).unwrap();
    assert_ne!(before, after);
    assert_eq!(fs::read(rig.exported("file")).unwrap(), [0; 4]);
    assert_eq!(at.display().to_string(), "file");
}

#[test]
fn a_server_that_always_restarts_is_given_up() {
    let rig = Fixture::directory(wsize(16_384));
    fs::write(rig.local("file"), pattern(50_000)).unwrap();
    rig.server.plan(|proc, _| match proc {
        nfs::Commit::NUMBER => Fault::Restart,
        _ => Fault::None,
    });
    let report = rig.put("file", "file");
    let text = "the server restarted 10 times while file was written; given up";
    assert_eq!(texts(&report), [text]);
    assert_eq!(report.totals.files, 0);
}

#[test]
fn a_full_disk_is_reported_once_and_the_other_files_go_on() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::create_dir_all(rig.local("tree/a/b")).unwrap();
    for n in 0..5 {
        fs::write(rig.local(&format!("tree/a/b/big{n}")), pattern(100)).unwrap();
    }
    fs::write(rig.local("tree/empty"), "").unwrap();
    symlink("x", rig.local("tree/link")).unwrap();
    rig.server.plan(|proc, _| match proc {
        nfs::Write::NUMBER => Fault::Status(Status::NOSPC),
        _ => Fault::None,
    });
    let report = rig.put("tree", "copy");
    let text = "no space left on the server (NFS3ERR_NOSPC): writing copy/a/b/big";
    assert!(matches!(&texts(&report)[..], [only] if only.starts_with(text)));
    assert_eq!((report.totals.problems, report.more_no_space), (5, 4));
    assert!(!report.stopped && !report.is_complete());
    assert_eq!((report.totals.files, report.totals.directories), (1, 3));
    assert!(rig.exported("copy/link").symlink_metadata().is_ok());
}

#[test]
fn a_server_that_is_gone_ends_the_copy_with_one_message() {
    let rig = Fixture::directory(AttachOptions::default());
    make_odd_tree(&rig.local("tree"));
    let rounds = [("put", 20), ("get", 10), ("remove", 5)];
    for (what, after) in rounds {
        let made = Cell::new(0);
        let reported = match what {
            "put" => {
                rig.server.plan(move |_, _| gone_after(&made, after));
                rig.put("tree", "copy")
            }
            "get" => {
                make_odd_tree(&rig.exported("there"));
                rig.server.plan(move |_, _| gone_after(&made, after));
                rig.get("there", "back")
            }
            _ => {
                rig.server.plan(move |_, _| gone_after(&made, after));
                rig.remove("there")
            }
        };
        assert!(reported.stopped, "{what}");
        assert_eq!(reported.problems.len(), 1, "{what}: {:?}", texts(&reported));
        let text = texts(&reported).remove(0);
        assert!(
            text.starts_with("no reply from in process in 1.0s: "),
            "{text}"
        );
    }
    assert_eq!(rig.server.pool.in_use(), 0);
}

fn gone_after(made: &Cell<u32>, after: u32) -> Fault {
    made.set(made.get() + 1);
    match made.get() > after {
        true => Fault::NoReply,
        false => Fault::None,
    }
}

#[test]
fn what_cannot_be_read_is_said_and_the_others_go_on() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::create_dir(rig.exported("tree")).unwrap();
    fs::write(rig.exported("tree/good"), "good").unwrap();
    fs::write(rig.exported("tree/bad"), "bad bad").unwrap();
    // The order of reading depends on the directory, so the fault depends on the content of the
    // call.
    rig.server.plan(|proc, count| match proc {
        nfs::Read::NUMBER if count == 0 => Fault::Status(Status::IO),
        _ => Fault::None,
    });
    let report = rig.get("tree", "back");
    assert_eq!(report.totals.problems, 1);
    assert_eq!((report.totals.files, report.totals.directories), (1, 1));
    let text = texts(&report).remove(0);
    assert!(
        text.starts_with("I/O error on the server (NFS3ERR_IO): reading tree/"),
        "{text}"
    );

    let report = rig.get("no such", "x");
    let text = "no such file or directory (NFS3ERR_NOENT): looking up no such";
    assert_eq!(texts(&report), [text]);
    let report = rig.put("no such", "x");
    let text = texts(&report).remove(0);
    assert!(
        text.ends_with("/no such: No such file or directory (os error 2)"),
        "{text}"
    );
    let report = rig.remove("no such");
    assert_eq!(report.totals.problems, 1);
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_reported() {
    let rig = Fixture::directory(wsize(4096));
    let file = rig.local("file");
    fs::write(&file, pattern(200_000)).unwrap();
    let (path, touched) = (file.clone(), Cell::new(false));
    rig.server.plan(move |proc, _| {
        if proc == nfs::Write::NUMBER && !touched.replace(true) {
            fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(100)
                .unwrap();
        }
        Fault::None
    });
    let report = rig.put("file", "file");
    assert_eq!(texts(&report), ["file changed while it was copied"]);
    assert!(matches!(report.problems[0], CopyError::Changed { .. }));
}

#[test]
fn a_file_that_changes_while_it_is_fetched_is_reported() {
    // READs that overlap come in any order, and one of them is in flight at a time.
    let in_flight = CopyOptions::default().bytes_in_flight;
    let cuts = [
        (100, in_flight, 100),
        (100, 4096, 3 * 4096),
        (300_000, in_flight, 200_000),
    ];
    for (len, in_flight, at_least) in cuts {
        let mut rig = Fixture::directory(rsize(4096));
        rig.options.bytes_in_flight = in_flight;
        let file = rig.exported("file");
        fs::write(&file, pattern(200_000)).unwrap();
        rig.server.plan(move |proc, count| {
            if proc == nfs::Read::NUMBER && count == 3 {
                let file = fs::OpenOptions::new().write(true).open(&file).unwrap();
                file.set_len(len).unwrap();
            }
            Fault::None
        });
        let report = rig.get("file", "file");
        assert_eq!(texts(&report), ["file changed while it was copied"]);
        // What the file had when it was listed, or as much of it as lies before the first READ that found
        // the end; and no zeroes in place of the rest.
        let copied = fs::read(rig.local("file")).unwrap();
        assert!(copied == pattern(200_000)[..copied.len()]);
        assert_eq!(copied.len() == 200_000, len > 200_000, "{}", copied.len());
        assert!(copied.len() >= at_least, "{}", copied.len());
    }
}

/// An entry whose turn comes long after it was listed is looked up again: it may have been written to or
/// replaced.
#[test]
fn what_was_listed_long_ago_is_looked_up_again() {
    let mut rig = Fixture::directory(rsize(4096));
    rig.options.files_in_flight = 1;
    fs::create_dir(rig.exported("tree")).unwrap();
    let files = ["a", "b", "c", "d"].map(|name| rig.exported("tree").join(name));
    for file in &files {
        fs::write(file, "").unwrap();
    }
    let mut begun = false;
    let progress = &mut |totals: &Totals| {
        if totals.files == 1 && !std::mem::replace(&mut begun, true) {
            for file in &files[..2] {
                fs::write(file, "new").unwrap();
            }
            for file in &files[2..] {
                fs::write(file.with_extension("new"), "new").unwrap();
                fs::rename(file.with_extension("new"), file).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(3050));
        }
    };
    let local = rig.local("tree");
    let get = get(&rig.mount, b"tree", &local, &rig.options, progress);
    complete(&rig.runtime.block_on(get));
    let copied = ["a", "b", "c", "d"].map(|name| fs::read(local.join(name)).unwrap());
    let new = copied.iter().filter(|content| *content == b"new").count();
    assert_eq!(new, 3, "all but the first: {copied:?}");
}

/// A name that has got another file since it was listed is that file.
#[test]
fn a_file_that_is_replaced_after_it_was_listed_is_copied() {
    let mut rig = Fixture::directory(rsize(4096));
    rig.options.files_in_flight = 1;
    fs::create_dir(rig.exported("tree")).unwrap();
    let files = ["a", "b", "c"].map(|name| rig.exported("tree").join(name));
    for file in &files {
        fs::write(file, "old").unwrap();
    }
    let mut begun = false;
    let progress = &mut |totals: &Totals| {
        if totals.files == 1 && !std::mem::replace(&mut begun, true) {
            for file in &files {
                fs::write(file.with_extension("new"), "new").unwrap();
                fs::rename(file.with_extension("new"), file).unwrap();
            }
        }
    };
    let local = rig.local("tree");
    let get = get(&rig.mount, b"tree", &local, &rig.options, progress);
    complete(&rig.runtime.block_on(get));
    let copied = ["a", "b", "c"].map(|name| fs::read(local.join(name)).unwrap());
    let new = copied.iter().filter(|content| *content == b"new").count();
    assert_eq!(new, 2, "all but the first: {copied:?}");
}

/// The root of a copy, and files with several names, are looked up again as well.
#[test]
fn a_file_that_is_replaced_before_it_is_read_is_copied() {
    for links in [false, true] {
        let rig = Fixture::directory(AttachOptions::default());
        fs::create_dir(rig.exported("tree")).unwrap();
        fs::write(rig.exported("tree/a"), "old").unwrap();
        if links {
            fs::hard_link(rig.exported("tree/a"), rig.exported("tree/b")).unwrap();
        }
        let tree = rig.exported("tree");
        rig.server.plan(move |proc, count| {
            if proc == nfs::Read::NUMBER && count == 0 {
                for name in names(&tree) {
                    fs::write(tree.join("new"), name.as_bytes()).unwrap();
                    fs::rename(tree.join("new"), tree.join(name)).unwrap();
                }
            }
            Fault::None
        });
        match links {
            false => {
                complete(&rig.get("tree/a", "a"));
                assert_eq!(fs::read(rig.local("a")).unwrap(), b"a");
            }
            true => {
                complete(&rig.get("tree", "tree"));
                let copied = ["tree/a", "tree/b"].map(|name| fs::read(rig.local(name)).unwrap());
                assert_eq!(copied, [b"a", b"b"]);
            }
        }
    }
}

/// A handle that is stale although its name was looked up again is an error.
#[test]
fn a_file_that_stays_stale_is_given_up() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.exported("file"), "content").unwrap();
    rig.server.plan(|proc, _| match proc {
        nfs::Read::NUMBER => Fault::Status(Status::STALE),
        _ => Fault::None,
    });
    let report = rig.get("file", "file");
    assert_eq!(report.totals.problems, 1, "{:?}", texts(&report));
    assert_eq!(rig.server.calls::<nfs::Read>(), 2);
}

/// Regression test: each of several names of a file made the others try again, for ever.
#[test]
fn a_file_of_several_names_that_stays_stale_is_given_up() {
    let mut rig = Fixture::directory(AttachOptions::default());
    rig.options.recursive = true;
    fs::create_dir(rig.exported("tree")).unwrap();
    fs::write(rig.exported("tree/a"), "content").unwrap();
    fs::hard_link(rig.exported("tree/a"), rig.exported("tree/b")).unwrap();
    rig.server.plan(|proc, _| match proc {
        nfs::Read::NUMBER => Fault::Status(Status::STALE),
        _ => Fault::None,
    });
    let report = rig.get("tree", "tree");
    assert_eq!(report.totals.problems, 2, "{:?}", texts(&report));
    assert_eq!(rig.server.calls::<nfs::Read>(), 4);
}

/// A full disk is one reason, here as on a server.
#[test]
fn no_space_is_recognised_on_both_sides() {
    use std::io::ErrorKind;
    let local = |kind: ErrorKind| CopyError::Local {
        doing: "writing",
        path: "file".into(),
        source: kind.into(),
    };
    assert!(local(ErrorKind::StorageFull).is_no_space());
    assert!(local(ErrorKind::QuotaExceeded).is_no_space());
    assert!(!local(ErrorKind::PermissionDenied).is_no_space());
}

#[test]
fn a_pool_that_is_too_small_is_an_error() {
    let mut rig = Fixture::directory(wsize(65_536));
    fs::write(rig.local("file"), pattern(100_000)).unwrap();
    let pool = rdma::Pool::new(4096);
    rig.options.bytes_in_flight = 1;
    let (local, progress) = (rig.local("file"), &mut |_: &_| {});
    let put = put(&rig.mount, &pool, &local, b"file", &rig.options, progress);
    let report = rig.runtime.block_on(put);
    assert!(
        matches!(report.problems[..], [CopyError::Memory { .. }]),
        "{:?}",
        texts(&report)
    );
}

/// Returns the names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Interrupts the copy at the `count`th call of `procedure`.
fn interrupt_at(rig: &Fixture, procedure: u32, count: u64) {
    let interrupt = rig.options.interrupt.clone();
    rig.server.plan(move |proc, made| {
        if proc == procedure && made == count {
            interrupt.interrupt();
        }
        Fault::None
    });
}

#[test]
fn what_ends_a_get_leaves_no_half_file_and_the_old_one() {
    let mut rig = Fixture::directory(rsize(4096));
    fs::create_dir(rig.exported("tree")).unwrap();
    fs::write(rig.exported("tree/file"), pattern(500_000)).unwrap();
    fs::create_dir(rig.local("tree")).unwrap();
    fs::write(rig.local("tree/file"), "old").unwrap();

    interrupt_at(&rig, nfs::Read::NUMBER, 20);
    let report = rig.get("tree", "tree");
    assert!(report.interrupted && !report.is_complete());
    assert!(report.totals.bytes > 0, "something had arrived");
    assert_eq!((report.totals.files, report.problems.len()), (0, 0));
    assert_eq!(names(&rig.local("tree")), ["file"]);
    assert_eq!(fs::read(rig.local("tree/file")).unwrap(), b"old");

    rig.options.interrupt = crate::Interrupt::new();
    let failed = Cell::new(false);
    rig.server.plan(move |proc, _| match proc {
        nfs::Read::NUMBER if !failed.replace(true) => Fault::Status(Status::IO),
        _ => Fault::None,
    });
    assert_eq!(rig.get("tree", "tree").totals.problems, 1);
    assert_eq!(names(&rig.local("tree")), ["file"]);
    assert_eq!(fs::read(rig.local("tree/file")).unwrap(), b"old");

    rig.server.plan(|_, _| Fault::None);
    complete(&rig.get("tree", "tree"));
    same_trees(&rig.exported("tree"), &rig.local("tree"));
}

#[test]
fn what_ends_a_put_tells_which_files_are_unfinished() {
    let mut rig = Fixture::directory(wsize(4096));
    fs::create_dir(rig.local("tree")).unwrap();
    fs::write(rig.local("tree/big"), pattern(500_000)).unwrap();
    fs::write(rig.local("tree/empty"), "").unwrap();
    interrupt_at(&rig, nfs::Write::NUMBER, 20);
    let report = rig.put("tree", "copy");
    assert!(report.interrupted && !report.is_complete());
    let left: Vec<String> = report.unfinished.iter().map(ToString::to_string).collect();
    assert_eq!(left, ["copy/big"]);
    assert!(fs::metadata(rig.exported("copy/big")).unwrap().len() < 500_000);

    rig.options.interrupt = crate::Interrupt::new();
    rig.server.plan(|proc, _| match proc {
        nfs::Write::NUMBER => Fault::Status(Status::NOSPC),
        _ => Fault::None,
    });
    let report = rig.put("tree", "copy");
    assert_eq!(report.unfinished, [], "{:?}", texts(&report));
    assert_eq!(report.totals.incomplete_removed, 1);

    rig.server.plan(|_, _| Fault::None);
    let report = rig.put("tree", "copy");
    complete(&report);
    assert!(report.unfinished.is_empty());
    same_trees(&rig.local("tree"), &rig.exported("copy"));
    assert_eq!(rig.server.pool.in_use(), 0);
}

/// Regression test: a part of the file stayed, as if copying again could complete it.
#[test]
fn a_file_that_can_have_no_room_is_removed() {
    for status in [Status::NOSPC, Status::DQUOT, Status::FBIG] {
        for fails in [false, true] {
            let rig = Fixture::directory(wsize(4096));
            fs::write(rig.local("file"), pattern(50_000)).unwrap();
            rig.server.plan(move |proc, count| match proc {
                nfs::Write::NUMBER if count > 5 => Fault::Status(status),
                nfs::Remove::NUMBER if fails => Fault::Status(status),
                _ => Fault::None,
            });
            let removed = u64::from(!fails);
            let stays = usize::from(fails);
            let chunks = || vec![Ok(pattern(50_000))];
            for report in [rig.put("file", "file"), rig.put_stream(chunks(), "other")] {
                assert_eq!(report.totals.problems, 1, "{:?}", texts(&report));
                assert_eq!(report.totals.incomplete_removed, removed);
                assert_eq!((report.unfinished.len(), report.no_room.len()), (0, stays));
            }
            let names = names(rig.exported.as_ref().unwrap().path());
            assert_eq!(names.len(), 2 * stays, "{names:?}");
            // A file that existed keeps its name, as its permissions would be lost with it.
            fs::write(rig.exported("other"), "old").unwrap();
            let report = rig.put_stream(chunks(), "other");
            assert_eq!(
                (report.totals.incomplete_removed, report.no_room.len()),
                (0, 1)
            );
            assert!(rig.exported("other").exists());
        }
    }
}

/// Regression test: an earlier file was lost without a word, and small files failed because large ones were
/// copied at the same time.
#[test]
fn what_does_not_fit_loses_the_earlier_file_and_not_its_neighbours() {
    let rig = Fixture::directory(wsize(4096));
    fs::create_dir(rig.local("tree")).unwrap();
    fs::create_dir(rig.exported("copy")).unwrap();
    for n in 0..3 {
        fs::write(rig.local(&format!("tree/large{n}")), pattern(50_000)).unwrap();
        fs::write(rig.exported(&format!("copy/large{n}")), "earlier").unwrap();
        fs::write(rig.local(&format!("tree/small{n}")), pattern(100)).unwrap();
        fs::write(rig.exported(&format!("copy/small{n}")), "earlier").unwrap();
    }
    // Room for 50,000 bytes, which never hold one of the large files.
    let root = rig.exported("copy");
    rig.server.plan(move |proc, _| {
        let files = fs::read_dir(&root).unwrap();
        let lens = files.map(|file| file.unwrap().metadata().map_or(0, |meta| meta.len()));
        match proc {
            nfs::Write::NUMBER if lens.sum::<u64>() > 40_000 => Fault::Status(Status::NOSPC),
            _ => Fault::None,
        }
    });
    let report = rig.put("tree", "copy");
    assert_eq!((report.totals.problems, report.more_no_space), (3, 2));
    let mut lost: Vec<String> = report.lost.iter().map(ToString::to_string).collect();
    lost.sort();
    assert_eq!(lost, ["copy/large0", "copy/large1", "copy/large2"]);
    assert_eq!(report.totals.incomplete_removed, 3);
    assert_eq!(
        (report.totals.files, names(&rig.exported("copy")).len()),
        (3, 3)
    );
    let there = report.totals.bytes - report.totals.bytes_removed;
    assert_eq!(there, 300, "{:?}", report.totals);
}

/// Failures other than lack of room are no reason to remove anything.
#[test]
fn a_file_that_may_be_needed_is_not_removed() {
    let content = || vec![Ok(pattern(50_000))];
    // It is somebody else's: its mode cannot be set.
    for size in [0, 100] {
        let rig = Fixture::directory(wsize(4096));
        fs::write(rig.local("file"), pattern(50_000)).unwrap();
        fs::write(rig.exported("file"), pattern(size)).unwrap();
        let refused = Cell::new(false);
        rig.server.plan(move |proc, count| match proc {
            nfs::Setattr::NUMBER if !refused.replace(true) => Fault::Status(Status::PERM),
            nfs::Write::NUMBER if count > 5 => Fault::Status(Status::NOSPC),
            _ => Fault::None,
        });
        let report = rig.put("file", "file");
        assert_eq!(report.totals.incomplete_removed, 0);
        assert_eq!((report.unfinished.len(), report.no_room.len()), (0, 1));
        assert!(rig.exported("file").exists());
    }
    // Its data are complete, and only its attributes were not set.
    for status in [Status::DQUOT, Status::NOSPC] {
        let rig = Fixture::directory(wsize(4096));
        fs::write(rig.local("file"), pattern(50_000)).unwrap();
        rig.server.plan(move |proc, _| match proc {
            nfs::Setattr::NUMBER => Fault::Status(status),
            _ => Fault::None,
        });
        let report = rig.put("file", "file");
        assert_eq!(report.totals.problems, 1, "{:?}", texts(&report));
        assert_eq!(report.totals.incomplete_removed, 0);
        assert_eq!((report.unfinished.len(), report.no_room.len()), (1, 0));
        assert!(fs::read(rig.exported("file")).unwrap() == pattern(50_000));
    }
    // The server may be writable again when the copy is repeated.
    let rig = Fixture::directory(wsize(4096));
    fs::write(rig.local("file"), pattern(50_000)).unwrap();
    rig.server.plan(|proc, count| match proc {
        nfs::Write::NUMBER if count > 5 => Fault::Status(Status::ROFS),
        _ => Fault::None,
    });
    for report in [rig.put("file", "file"), rig.put_stream(content(), "other")] {
        assert_eq!(report.totals.incomplete_removed, 0);
        assert_eq!((report.unfinished.len(), report.no_room.len()), (1, 0));
    }
    assert_eq!(names(rig.exported.as_ref().unwrap().path()).len(), 2);
}

/// An existing file is truncated before its first WRITE.
#[test]
fn a_put_that_ends_before_its_first_write_tells_what_it_truncated() {
    let mut rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.local("file"), "new").unwrap();
    fs::write(rig.exported("file"), "old and longer").unwrap();
    interrupt_at(&rig, nfs::Setattr::NUMBER, 1);
    let report = rig.put("file", "file");
    assert!(report.interrupted);
    let unfinished: Vec<String> = report.unfinished.iter().map(ToString::to_string).collect();
    assert_eq!(unfinished, ["file"]);

    rig.options.interrupt = crate::Interrupt::new();
    rig.server.plan(|proc, _| match proc {
        nfs::Create::NUMBER => Fault::Status(Status::DQUOT),
        _ => Fault::None,
    });
    let report = rig.put("file", "other");
    assert_eq!((report.totals.problems, report.unfinished.len()), (1, 0));

    // The SETATTR that empties the file may have changed some of it before it failed.
    rig.server.plan(|proc, _| match proc {
        nfs::Setattr::NUMBER => Fault::Status(Status::IO),
        _ => Fault::None,
    });
    fs::write(rig.exported("file"), "old and longer").unwrap();
    let report = rig.put("file", "file");
    assert_eq!((report.totals.problems, report.unfinished.len()), (1, 1));

    // A file of somebody else is as it was.
    rig.server.plan(|proc, _| match proc {
        nfs::Setattr::NUMBER => Fault::Status(Status::ACCES),
        _ => Fault::None,
    });
    let report = rig.put("file", "file");
    assert_eq!((report.totals.problems, report.unfinished.len()), (1, 0));
}

/// An object that has been made beside the one that it is to replace has a temporary name.
#[test]
fn what_interrupts_a_replacement_leaves_no_temporary_name() {
    for (made, fails) in [
        ("link", false),
        ("file", false),
        ("link", true),
        ("file", true),
    ] {
        let rig = Fixture::directory(AttachOptions::default());
        fs::write(rig.exported("file"), "old").unwrap();
        fs::hard_link(rig.exported("file"), rig.exported("other name")).unwrap();
        fs::write(rig.exported("link"), "old").unwrap();
        fs::write(rig.local("file"), "new").unwrap();
        symlink("x", rig.local("link")).unwrap();
        let interrupt = rig.options.interrupt.clone();
        // The RENAME is not executed, and its reply does not come before the interrupt.
        rig.server.plan(move |proc, _| match proc {
            nfs::Rename::NUMBER => {
                interrupt.interrupt();
                Fault::Status(Status::JUKEBOX)
            }
            nfs::Remove::NUMBER if fails => Fault::Status(Status::ACCES),
            _ => Fault::None,
        });
        let report = rig.put(made, made);
        assert!(report.interrupted, "{report:?}");
        assert_eq!(fs::read(rig.exported(made)).unwrap(), b"old");
        let listed = names(rig.exported.as_ref().unwrap().path());
        let left: Vec<&String> = listed.iter().filter(|name| name.starts_with('.')).collect();
        let reported: Vec<String> = report.leftovers.iter().map(ToString::to_string).collect();
        assert_eq!(left.len(), usize::from(fails), "{listed:?}");
        assert_eq!(left, reported.iter().collect::<Vec<_>>());
        // If its successor could not be removed, nobody knows whether the RENAME will still be executed.
        let unsure = usize::from(made == "file" && fails);
        assert_eq!(report.unfinished.len(), unsure, "{report:?}");
    }
}

/// A read-only mount sends no call, so the server has nothing incomplete.
#[test]
fn a_put_to_a_read_only_mount_leaves_nothing_unfinished() {
    let read_only = AttachOptions {
        read_only: true,
        ..AttachOptions::default()
    };
    let rig = Fixture::directory(read_only);
    fs::write(rig.local("file"), "new").unwrap();
    let report = rig.put("file", "file");
    assert_eq!(texts(&report), ["mounted read-only (-o ro): creating file"]);
    assert_eq!(report.unfinished, []);
}

#[test]
fn a_removal_can_be_interrupted() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::create_dir(rig.exported("tree")).unwrap();
    for n in 0..200 {
        fs::write(rig.exported("tree").join(n.to_string()), "").unwrap();
    }
    interrupt_at(&rig, nfs::Remove::NUMBER, 30);
    let report = rig.remove("tree");
    assert!(report.interrupted);
    let left = names(&rig.exported("tree")).len() as u64;
    assert!(left > 0 && left <= 200 - report.totals.files, "{left}");
}
