//! Tests of READDIR and READDIRPLUS.

use super::*;
use crate::proto::{Entry, ReaddirArgs, ReaddirplusArgs, encoded_len};

on_both! {
    results_are_as_long_as_asked_for,
    results_with_objects_are_as_long_as_asked_for,
    names_are_limited_apart,
    too_small_and_bad_cookies,
}

const FILES: usize = 200;

/// Creates a directory of files with names of many lengths.
fn fill(rig: &mut Fixture) -> FileHandle {
    let root = rig.root();
    let dir = rig.mkdir(root, "d");
    for number in 0..FILES {
        rig.create(dir, &format!("{number:03}{}", "x".repeat(number % 50)));
    }
    dir
}

/// Returns the length of the results without the status.
fn results_len<T: Xdr>(results: &NfsResult<T, Option<Attributes>>) -> u64 {
    encoded_len(results) - 4
}

fn results_are_as_long_as_asked_for(mut rig: Fixture) {
    let dir = fill(&mut rig);
    for count in [200, 333, 1024, 4096, u32::MAX] {
        let (mut cookie, mut verifier, mut names) = (0, [0; 8], Vec::new());
        loop {
            let args = ReaddirArgs {
                dir,
                cookie,
                verifier,
                count,
            };
            let results = rig.call::<nfs::Readdir>(&args);
            let len = results_len(&results);
            assert!(len <= u64::from(count), "{len} bytes of {count}");
            let ok = results.unwrap();
            verifier = ok.verifier;
            cookie = ok.entries.last().map_or(cookie, |entry| entry.cookie);
            names.extend(ok.entries.into_iter().map(|entry| entry.name));
            if ok.eof {
                break;
            }
            // The results are as full as possible: the next entry has at most this length.
            assert!(len + Entry::wire_len(53) > u64::from(count));
        }
        assert_eq!(names.len(), FILES + 2, "in pieces of {count}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), FILES + 2);
    }
}

fn results_with_objects_are_as_long_as_asked_for(mut rig: Fixture) {
    let dir = fill(&mut rig);
    for max_count in [400, 1024, 8192, u32::MAX] {
        let (mut cookie, mut verifier, mut seen) = (0, [0; 8], 0);
        loop {
            let args = ReaddirplusArgs {
                dir,
                cookie,
                verifier,
                dir_count: u32::MAX,
                max_count,
            };
            let results = rig.call::<nfs::Readdirplus>(&args);
            assert!(results_len(&results) <= u64::from(max_count));
            let ok = results.unwrap();
            assert!(ok.dir_attributes.is_some());
            verifier = ok.verifier;
            cookie = ok.entries.last().map_or(cookie, |entry| entry.cookie);
            seen += ok.entries.len();
            if seen < 60 {
                for entry in &ok.entries {
                    check(&mut rig, dir, entry);
                }
            }
            if ok.eof {
                break;
            }
        }
        assert_eq!(seen, FILES + 2, "in pieces of {max_count}");
    }
}

/// Checks that an entry agrees with LOOKUP and GETATTR.
fn check(rig: &mut Fixture, dir: FileHandle, entry: &crate::proto::EntryPlus) {
    let (Some(handle), Some(attributes)) = (entry.handle, &entry.attributes) else {
        assert_eq!(entry.name.as_ref(), b"..");
        return;
    };
    assert_eq!(attributes.fileid, entry.fileid);
    let now = rig.attributes(handle);
    assert_eq!((now.fileid, now.fsid), (attributes.fileid, attributes.fsid));
    let name = std::str::from_utf8(entry.name.as_ref()).unwrap();
    let found = rig.call::<nfs::Lookup>(&what(dir, name)).unwrap();
    assert_eq!(found.object, handle);
}

fn names_are_limited_apart(mut rig: Fixture) {
    let dir = fill(&mut rig);
    let mut list = |dir_count| {
        let args = ReaddirplusArgs {
            dir,
            cookie: 0,
            verifier: [0; 8],
            dir_count,
            max_count: 1 << 20,
        };
        let ok = rig.call::<nfs::Readdirplus>(&args).unwrap();
        let lens = ok
            .entries
            .iter()
            .map(|entry| Entry::wire_len(entry.name.as_ref().len()));
        (lens.sum::<u64>(), ok.entries.len(), ok.eof)
    };
    for dir_count in [100, 512, 2000] {
        let (len, _, eof) = list(dir_count);
        assert!(len <= u64::from(dir_count) && !eof);
        assert!(len + Entry::wire_len(53) > u64::from(dir_count));
    }
    // There is always one entry, because otherwise the client could not continue.
    assert_eq!((list(0).1, list(0).2), (1, false));
    assert!(list(u32::MAX).2);
}

fn too_small_and_bad_cookies(mut rig: Fixture) {
    let dir = fill(&mut rig);
    let args = ReaddirArgs {
        dir,
        cookie: 0,
        verifier: [0; 8],
        count: 0,
    };
    for count in [0, 50, 104, 120] {
        let refused = rig.call::<nfs::Readdir>(&ReaddirArgs { count, ..args });
        let refused = refused.unwrap_err();
        assert_eq!(refused.status, Status::TOOSMALL, "{count}");
        assert!(refused.attributes.is_some());
        let refused = rig.call::<nfs::Readdirplus>(&ReaddirplusArgs {
            dir,
            cookie: 0,
            verifier: [0; 8],
            dir_count: 4096,
            max_count: count,
        });
        assert_eq!(status(refused), Status::TOOSMALL, "{count}");
    }
    let count = 4096;
    let refused = rig.call::<nfs::Readdir>(&ReaddirArgs {
        cookie: 1,
        verifier: *b"not ours",
        count,
        ..args
    });
    assert_eq!(status(refused), Status::BAD_COOKIE);
    let root = rig.root();
    let file = rig.create(root, "f");
    let refused = rig.call::<nfs::Readdir>(&ReaddirArgs {
        dir: file,
        count,
        ..args
    });
    assert_eq!(status(refused), Status::NOTDIR);
}
