//! Tests that trees arrive unchanged.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nfs_binding::proto::{Procedure, Status, nfs};

use super::*;
use crate::in_process::Fault;
use crate::{Owner, Sparse, Totals};

#[test]
fn an_odd_tree_goes_to_memory_and_comes_back() {
    let plain_lists = AttachOptions {
        readdirplus: false,
        ..wsize(16_384)
    };
    for options in [AttachOptions::default(), longest(4096), plain_lists] {
        let rig = Fixture::memory(options);
        make_odd_tree(&rig.local("tree"));
        if !is_root("keeping set-id bits of files that root owns on the server") {
            let suid = rig.local("tree/suid");
            fs::set_permissions(suid, fs::Permissions::from_mode(0o755)).unwrap();
        }
        complete(&rig.put("tree", "copy"));
        complete(&rig.get("copy", "back"));
        same_trees(&rig.local("tree"), &rig.local("back"));
        assert_eq!(rig.server.pool.in_use(), 0, "all memory came back");
        assert!(rig.server.most_under_way() > 8, "calls overlap");
    }
}

#[test]
fn an_odd_tree_goes_to_a_directory_and_comes_back() {
    let rig = Fixture::directory(longest(65_536));
    make_odd_tree(&rig.local("tree"));
    let there = rig.put("tree", "copy");
    complete(&there);
    same_trees(&rig.local("tree"), &rig.exported("copy"));
    let back = rig.get("copy", "back");
    complete(&back);
    same_trees(&rig.local("tree"), &rig.local("back"));
    for totals in [there.totals, back.totals] {
        let counted = totals.files + totals.directories + totals.others;
        assert_eq!(counted, snapshot(&rig.local("tree")).len() as u64);
        assert_eq!(totals.bytes_again, 0);
    }
    rig.let_be_removed("copy");
    let gone = rig.remove("copy").totals;
    for totals in [there.totals, back.totals] {
        let of = |t: &Totals| (t.files, t.directories, t.others);
        assert_eq!(of(&totals), of(&gone), "all three count alike");
    }
    assert!(
        rig.server.calls::<nfs::Commit>() > 0,
        "long files are committed"
    );
}

#[test]
fn copying_again_changes_nothing() {
    let rig = Fixture::directory(AttachOptions::default());
    make_odd_tree(&rig.local("tree"));
    if !is_root("copying over what nobody may write to") {
        make_writable(&rig.local("tree"));
    }
    complete(&rig.put("tree", "copy"));
    complete(&rig.put("tree", "copy"));
    same_trees(&rig.local("tree"), &rig.exported("copy"));
    complete(&rig.get("copy", "back"));
    complete(&rig.get("copy", "back"));
    same_trees(&rig.local("tree"), &rig.local("back"));
}

#[test]
fn a_tree_goes_onto_the_exports_root() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::create_dir(rig.local("tree")).unwrap();
    fs::write(rig.local("tree/file"), "content").unwrap();
    complete(&rig.put("tree", "/"));
    assert_eq!(fs::read(rig.exported("file")).unwrap(), b"content");
    complete(&rig.get("/", "back"));
    same_trees(&rig.local("tree"), &rig.local("back"));
}

#[test]
fn holes_stay_holes() {
    let rig = Fixture::directory(AttachOptions::default());
    make_odd_tree(&rig.local("tree"));
    let sent = rig.put("tree/sparse", "sparse");
    complete(&sent);
    // 60 001 bytes of data, in blocks of 4 KiB, which local file systems allocate.
    assert!(
        sent.totals.bytes < 80_000,
        "{} bytes sent",
        sent.totals.bytes
    );
    let room = |path: PathBuf| fs::metadata(path).unwrap().blocks() * 512;
    assert!(room(rig.exported("sparse/middle")) < 64 << 10);
    assert!(room(rig.exported("sparse/all")) < 16 << 10);
    complete(&rig.get("sparse", "back"));
    assert!(room(rig.local("back/middle")) < 64 << 10);
    assert!(room(rig.local("back/all")) < 16 << 10);
    same_trees(&rig.local("tree/sparse"), &rig.local("back"));
}

#[test]
fn zeroes_become_holes_or_not_as_asked() {
    let mut rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.local("zeroes"), vec![0; 1 << 20]).unwrap();
    complete(&rig.put("zeroes", "zeroes"));
    for (sparse, at_least) in [(Sparse::Never, 1 << 20), (Sparse::Always, 0)] {
        rig.options.sparse = sparse;
        complete(&rig.get("zeroes", "back"));
        let back = fs::metadata(rig.local("back")).unwrap();
        assert_eq!(back.len(), 1 << 20);
        assert!(back.blocks() * 512 >= at_least);
        assert_eq!(at_least == 0, back.blocks() == 0);
        fs::remove_file(rig.local("back")).unwrap();
    }
}

#[test]
fn a_directory_of_five_thousand_entries_goes_and_comes_back() {
    let rig = Fixture::memory(AttachOptions::default());
    let many = rig.local("many");
    fs::create_dir(&many).unwrap();
    for n in 0..5000 {
        let name = many.join(format!("entry-{n:05}"));
        match n % 10 {
            0 => fs::write(name, n.to_string()).unwrap(),
            // Each file that comes back is synced, which on a busy machine takes long; no link is.
            _ => symlink(n.to_string(), name).unwrap(),
        }
    }
    let counts = |totals: Totals| (totals.files, totals.others, totals.directories);
    let all = (500, 4500, 1);
    let mut steps = Vec::new();
    let pool = &rig.server.pool;
    let progress = &mut |totals: &Totals| steps.push(*totals);
    let put = put(&rig.mount, pool, &many, b"many", &rig.options, progress);
    let report = rig.runtime.block_on(put);
    complete(&report);
    assert_eq!(counts(report.totals), all);
    assert_eq!(steps.last(), Some(&report.totals));
    assert!(steps.is_sorted_by_key(|totals| (totals.files, totals.bytes)));
    assert!(rig.server.most_under_way() <= rig.options.files_in_flight);

    complete(&rig.get("many", "back"));
    same_trees(&many, &rig.local("back"));

    let removed = rig.remove("many");
    complete(&removed);
    assert_eq!(counts(removed.totals), all);
    let left = rig.mount.list_all(rig.mount.root(), b"".as_slice());
    assert_eq!(rig.runtime.block_on(left).unwrap(), []);
}

#[test]
fn single_files_and_links_are_copied_too() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.local("file"), pattern(5000)).unwrap();
    set_mtime(&rig.local("file"), 1_500_000_000, 5);
    symlink("file", rig.local("link")).unwrap();
    complete(&rig.put("file", "a file"));
    complete(&rig.put("link", "a link"));
    same_trees(&rig.local("file"), &rig.exported("a file"));
    complete(&rig.get("a file", "file back"));
    complete(&rig.get("a link", "link back"));
    same_trees(&rig.local("file"), &rig.local("file back"));
    assert_eq!(
        fs::read_link(rig.local("link back")).unwrap(),
        Path::new("file")
    );
}

#[test]
fn a_tree_is_removed_and_what_links_lead_to_is_not() {
    let rig = Fixture::directory(AttachOptions::default());
    make_odd_tree(&rig.exported("tree"));
    fs::write(rig.exported("kept"), "kept").unwrap();
    symlink(rig.exported("kept"), rig.exported("tree/to file")).unwrap();
    symlink(rig.exported(""), rig.exported("tree/to directory")).unwrap();
    rig.let_be_removed("tree");
    complete(&rig.remove("tree"));
    assert!(!rig.exported("tree").exists());
    assert_eq!(fs::read(rig.exported("kept")).unwrap(), b"kept");
}

/// Tests what an ordinary user is refused, where the tests above have root succeed.
#[test]
fn what_an_ordinary_user_may_not_write_to_is_told() {
    if rustix::process::geteuid().is_root() {
        let line = b"left out, for root may do all of it: what an ordinary user is refused\n";
        std::io::stderr().write_all(line).unwrap();
        return;
    }
    let rig = Fixture::directory(AttachOptions::default());
    make_odd_tree(&rig.exported("tree"));
    let report = rig.remove("tree");
    let refused = "permission denied (NFS3ERR_ACCES): removing tree/locked/file";
    assert!(
        texts(&report).iter().any(|text| text == refused),
        "{:?}",
        texts(&report)
    );
    assert!(rig.exported("tree/locked/file").exists());
    assert!(!rig.exported("tree/names").exists(), "the others went on");
}

#[test]
fn directories_need_recursion() {
    let mut rig = Fixture::directory(AttachOptions::default());
    rig.options.recursive = false;
    fs::create_dir(rig.local("directory")).unwrap();
    fs::create_dir(rig.exported("there")).unwrap();
    let text = "is a directory, and -r was not given";
    let reports = [
        rig.put("directory", "copy"),
        rig.put("directory", "/"),
        rig.get("there", "back"),
        rig.remove("there"),
    ];
    for report in &reports {
        assert!(texts(report)[0].contains(text), "{:?}", texts(report));
        assert_eq!(report.totals.problems, 1);
    }
    // The source is a directory, and not the object that would be created.
    let source = rig.local("directory");
    for report in &reports[..2] {
        assert!(texts(report)[0].starts_with(source.to_str().unwrap()));
    }
    assert!(!rig.exported("copy").exists() && !rig.local("back").exists());
    assert!(rig.exported("there").exists());
}

#[test]
fn owners_are_kept_where_that_is_permitted() {
    if !is_root("giving files away") {
        return;
    }
    let mut rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.local("file"), "content").unwrap();
    std::os::unix::fs::chown(rig.local("file"), Some(1234), Some(5678)).unwrap();
    complete(&rig.put("file", "kept"));
    same_trees(&rig.local("file"), &rig.exported("kept"));
    complete(&rig.get("kept", "back"));
    same_trees(&rig.local("file"), &rig.local("back"));
    rig.options.owner = Owner::No;
    complete(&rig.put("file", "not kept"));
    assert_eq!(fs::metadata(rig.exported("not kept")).unwrap().uid(), 0);

    let refuse = |proc, count| match proc {
        nfs::Setattr::NUMBER if count % 2 == 0 => Fault::Status(Status::PERM),
        _ => Fault::None,
    };
    let first = rig.server.calls::<nfs::Setattr>();
    rig.server
        .plan(move |proc, count| refuse(proc, count - first.min(count)));
    rig.options.owner = Owner::IfRoot;
    let report = rig.put("file", "squashed");
    complete(&report);
    assert_eq!(report.totals.owners_lost, 1);
    rig.options.owner = Owner::Yes;
    let report = rig.put("file", "refused");
    let text = "operation not permitted (NFS3ERR_PERM): setting attributes of refused";
    assert_eq!(texts(&report), [text]);
}

#[test]
fn times_that_the_protocol_cannot_say_are_reported() {
    let rig = Fixture::directory(AttachOptions::default());
    fs::write(rig.local("old"), "content").unwrap();
    set_mtime(&rig.local("old"), -1, 0);
    let report = rig.put("old", "old");
    let text = "a time of old is out of NFS version 3's range, 1970 to 2106";
    assert_eq!(texts(&report), [text]);
    assert_eq!(fs::metadata(rig.exported("old")).unwrap().mtime(), 0);
}

/// A link that the user named is followed unless directories are copied, as with cp(1).
#[test]
fn a_link_that_is_named_is_followed_unless_directories_are_copied() {
    let mut rig = Fixture::directory(AttachOptions::default());
    for at in [rig.local(""), rig.exported("")] {
        fs::write(at.join("file"), "text").unwrap();
        fs::create_dir(at.join("dir")).unwrap();
        symlink("file", at.join("to-file")).unwrap();
        symlink("dir", at.join("to-dir")).unwrap();
        symlink("nowhere", at.join("dangling")).unwrap();
    }
    rig.options.recursive = false;
    complete(&rig.put("to-file", "copy"));
    complete(&rig.get("to-file", "copy"));
    for copy in [rig.local("copy"), rig.exported("copy")] {
        assert!(fs::symlink_metadata(&copy).unwrap().is_file());
        assert_eq!(fs::read(&copy).unwrap(), b"text");
    }
    for report in [rig.put("to-dir", "x"), rig.get("to-dir", "x")] {
        let text = texts(&report).remove(0);
        assert!(
            text.ends_with("to-dir is a directory, and -r was not given"),
            "{text}"
        );
    }
    for report in [rig.put("dangling", "x"), rig.get("dangling", "x")] {
        assert_eq!(report.totals.problems, 1, "{report:?}");
    }
    rig.options.recursive = true;
    complete(&rig.put("to-dir", "link"));
    assert!(rig.exported("link").is_symlink());
}
