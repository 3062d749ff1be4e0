//! Tests of tree copies over TCP and RDMA, with several connections, several clients, and a server
//! that is replaced during the copy.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;
mod retransmissions;
#[path = "../../src/tests/tree.rs"]
mod tree;

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use fixture::{Mounted, Served};
use nfs_copy::{Report, Totals};
use tree::{Scratch, is_root, make_odd_tree, make_writable, pattern, same_trees, snapshot};

#[track_caller]
fn complete(report: &Report) {
    let texts: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert!(report.is_complete(), "{texts:#?}");
}

/// Creates a tree of unusual files, many small ones, and some that take many WRITEs.
fn make_tree(root: &Path) {
    make_odd_tree(root);
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..300 {
        fs::write(many.join(format!("{n}")), pattern(n * 13)).unwrap();
    }
    fs::write(root.join("large"), pattern(9_000_001)).unwrap();
}

#[test]
fn trees_go_and_come_back_over_each_transport() {
    let served = Served::start();
    for (at, options) in [
        "proto=tcp",
        "proto=rdma",
        "proto=tcp,nconnect=4",
        "rdma,nconnect=4",
    ]
    .into_iter()
    .enumerate()
    {
        let work = Scratch::new();
        let (tree, back) = (work.path().join("tree"), work.path().join("back"));
        make_tree(&tree);
        let session = Mounted::new(&served, options);
        let name = format!("copy-{at}");
        complete(&session.put(&tree, &name, &mut |_| {}));
        same_trees(&tree, &served.path().join(&name));
        complete(&session.get(&name, &back));
        same_trees(&tree, &back);
        assert_eq!(snapshot(&tree).len(), snapshot(&back).len());
    }
}

#[test]
fn two_clients_at_once_do_not_disturb_each_other() {
    let served = Served::start();
    thread::scope(|scope| {
        for (name, options) in [("one", "proto=rdma,wsize=65536"), ("two", "proto=tcp")] {
            let served = &served;
            scope.spawn(move || {
                let work = Scratch::new();
                let tree = work.path().join("tree");
                make_tree(&tree);
                let session = Mounted::new(served, options);
                complete(&session.put(&tree, name, &mut |_| {}));
                same_trees(&tree, &served.path().join(name));
                complete(&session.get(name, &work.path().join("back")));
                same_trees(&tree, &work.path().join("back"));
                if !is_root("removing files from a directory that nobody may write to") {
                    make_writable(&served.path().join(name));
                }
                complete(&session.remove(name));
                assert!(!served.path().join(name).exists());
            });
        }
    });
}

/// Copies while the server is stopped and another one is started in its place, each time after a
/// different part of the data.
fn survives_restarts(options: &str) {
    let mut served = Served::start();
    let work = Scratch::new();
    let tree = work.path().join("tree");
    make_tree(&tree);
    fs::write(tree.join("larger"), pattern(30_000_000)).unwrap();
    let addresses = served.addresses();
    let path = served.path().to_path_buf();
    let (moved, progress) = mpsc::channel::<u64>();
    let copier = thread::spawn({
        let (tree, back, options) = (tree.clone(), work.path().join("back"), options.to_owned());
        move || {
            let session = Mounted::at(addresses, &options);
            let mut report = |totals: &Totals| moved.send(totals.bytes).unwrap();
            complete(&session.put(&tree, "copy", &mut report));
            complete(&session.get("copy", &back));
        }
    });
    let mut restarts = 0;
    for bytes in progress {
        if restarts < 3 && bytes > restarts * 12_000_000 {
            served.restart();
            restarts += 1;
        }
    }
    copier.join().unwrap();
    assert_eq!(restarts, 3);
    same_trees(&tree, &path.join("copy"));
    same_trees(&tree, &work.path().join("back"));
}

#[test]
fn copies_over_tcp_survive_restarts_of_the_server() {
    survives_restarts("proto=tcp,wsize=262144");
}

#[test]
fn copies_over_rdma_survive_restarts_of_the_server() {
    survives_restarts("proto=rdma,wsize=262144,nconnect=2");
}
