//! Tests with servers that have no room at first, so that files are copied again at the end.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use nfs_binding::proto::{Procedure, Status, nfs};

use super::*;
use crate::in_process::Fault;

/// Makes a directory with two files of 50,000 bytes of data and a hole of at most 150,000, and files of
/// the same names on the server, with content and without. Returns the number of bytes of both.
fn make_two(rig: &Fixture) -> u64 {
    fs::create_dir(rig.local("tree")).unwrap();
    fs::create_dir(rig.exported("copy")).unwrap();
    for (name, earlier) in [("one", "earlier"), ("other", "")] {
        let file = File::create(rig.local("tree").join(name)).unwrap();
        file.write_all_at(&pattern(50_000), 0).unwrap();
        file.set_len(200_000).unwrap();
        fs::write(rig.exported("copy").join(name), earlier).unwrap();
    }
    2 * 200_000
}

fn paths(list: &[DisplayPath]) -> Vec<String> {
    let mut paths: Vec<String> = list.iter().map(ToString::to_string).collect();
    paths.sort();
    paths
}

/// Regression test: the file still counted as incomplete, and its bytes counted twice.
#[test]
fn a_file_that_gets_room_in_the_end_is_complete() {
    for stays in [false, true] {
        let rig = Fixture::directory(wsize(4096));
        let all = make_two(&rig);
        let failed = Cell::new(false);
        rig.server.plan(move |proc, count| match proc {
            nfs::Write::NUMBER if count == 12 && !failed.replace(true) => {
                Fault::Status(Status::NOSPC)
            }
            // The user may not remove it, as if it were somebody else's in a sticky directory.
            nfs::Remove::NUMBER if stays => Fault::Status(Status::ACCES),
            _ => Fault::None,
        });
        let report = rig.put("tree", "copy");
        complete(&report);
        assert_eq!(rig.server.calls::<nfs::Remove>(), 1, "one was put off");
        assert_eq!((&*report.unfinished, &*report.no_room), (&[][..], &[][..]));
        assert_eq!(report.lost, []);
        let totals = report.totals;
        assert_eq!((totals.files, totals.incomplete_removed), (2, 0));
        let there = totals.bytes - totals.bytes_removed + totals.holes;
        assert_eq!((totals.begun, there), (all, all), "{totals:?}");
        same_trees(&rig.local("tree"), &rig.exported("copy"));
    }
}

/// Regression test: files were named twice, and the content that one attempt had written counted as earlier
/// content in the next.
#[test]
fn a_file_that_gets_no_room_is_named_once() {
    for stays in [false, true] {
        let rig = Fixture::directory(wsize(4096));
        make_two(&rig);
        rig.server.plan(move |proc, count| match proc {
            nfs::Write::NUMBER if count > 5 => Fault::Status(Status::NOSPC),
            nfs::Remove::NUMBER if stays => Fault::Status(Status::ACCES),
            _ => Fault::None,
        });
        let report = rig.put("tree", "copy");
        let both = ["copy/one", "copy/other"].map(str::to_owned);
        let remain = if stays { &both[..] } else { &[] };
        assert_eq!(report.totals.problems, 2, "{:?}", texts(&report));
        assert_eq!(paths(&report.no_room), remain);
        assert_eq!(paths(&report.lost), both[..1]);
        assert_eq!(report.unfinished, []);
        let totals = report.totals;
        assert_eq!(totals.incomplete_removed, if stays { 0 } else { 2 });
        if !stays {
            assert_eq!((totals.bytes, totals.holes), (totals.bytes_removed, 0));
        }
    }
}
