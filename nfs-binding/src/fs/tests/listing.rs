//! Tests of READDIR.

use std::collections::BTreeSet;

use super::*;
use crate::fs::directory::host::STATS;

/// The number of files in a short directory.
const FEW: usize = 10;

on_both! {
    a_long_directory_in_pieces,
    entries_come_with_their_objects,
    a_listing_goes_on_after_changes,
    bad_cookies;
    as root:
}

/// Lists in pieces of `at_most` entries, and calls `between` after each piece.
fn pieces(
    rig: &Fixture,
    dir: &FileId,
    at_most: usize,
    mut between: impl FnMut(usize),
) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let (mut cookie, mut verifier) = (0, [0; 8]);
    for piece in 0.. {
        let mut taken = 0;
        let listing = rig
            .fs
            .readdir(&root(), dir, cookie, verifier, false, &mut |entry| {
                if taken == at_most {
                    return false;
                }
                taken += 1;
                cookie = entry.cookie;
                names.push(entry.name.to_vec());
                true
            })
            .unwrap();
        verifier = listing.verifier;
        if listing.eof {
            break;
        }
        assert_eq!(taken, at_most, "no end, but no more either");
        between(piece);
    }
    names
}

fn a_long_directory_in_pieces(rig: &Fixture) {
    let dir = rig.mkdir(&rig.root(), b"d");
    let mut expected: BTreeSet<_> = (0..1500)
        .map(|number| format!("file number {number}").into_bytes())
        .collect();
    for name in &expected {
        rig.create(&dir, name);
    }
    expected.extend([b".".to_vec(), b"..".to_vec()]);
    for at_most in [1, 7, 1000] {
        let names = pieces(rig, &dir, at_most, |_| ());
        assert_eq!(names.len(), expected.len(), "in pieces of {at_most}");
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

fn entries_come_with_their_objects(rig: &Fixture) {
    let dir = rig.mkdir(&rig.root(), b"d");
    rig.create(&dir, b"f");
    rig.mkdir(&dir, b"sub");
    let none = SetAttributes::default();
    rig.fs
        .symlink(&root(), &dir, b"l", b"f", &none)
        .result
        .unwrap();
    let mut seen = 0;
    let mut take = |entry: &DirEntry<'_>| {
        if entry.name != b".." {
            let object = entry.object.unwrap();
            assert_eq!(object.attributes.fileid, entry.fileid);
            assert_eq!(Ok(object.id), rig.find(&dir, entry.name));
            let now = Attributes {
                // Listing the directory changes its access time.
                atime: object.attributes.atime,
                ..rig.attributes(&object.id)
            };
            assert_eq!(*object.attributes, now);
        }
        seen += 1;
        true
    };
    let listing = rig
        .fs
        .readdir(&root(), &dir, 0, [0; 8], true, &mut take)
        .unwrap();
    assert_eq!(listing.attributes.mtime, rig.attributes(&dir).mtime);
    assert_eq!(seen, 5);
    let top = rig.root();
    let number = rig.attributes(&top).fileid;
    let mut take = |entry: &DirEntry<'_>| {
        assert!(
            entry.name != b".." || entry.fileid == number,
            "outside is seen"
        );
        assert!(entry.object.is_none());
        true
    };
    rig.fs
        .readdir(&root(), &top, 0, [0; 8], false, &mut take)
        .unwrap();
}

/// A listing with objects reads the metadata of each object once, and LOOKUP does so as well.
#[test]
fn metadata_of_an_entry_is_read_once() {
    let rig = Fixture::directory();
    let dir = rig.mkdir(&rig.root(), b"d");
    for number in 0..FEW {
        rig.create(&dir, format!("{number}").as_bytes());
    }
    let read_by = |work: &mut dyn FnMut()| {
        let before = STATS.get();
        work();
        STATS.get() - before
    };
    let mut seen = 0;
    let list = &mut || {
        let mut take = |entry: &DirEntry<'_>| {
            seen += usize::from(entry.object.is_some());
            true
        };
        let listing = rig
            .fs
            .readdir(&root(), &dir, 0, [0; 8], true, &mut take)
            .unwrap();
        assert!(listing.eof);
    };
    // That of the directory is read as well.
    assert_eq!(read_by(list), 1 + FEW);
    assert_eq!(seen, 1 + FEW);
    let look_up = &mut || {
        rig.fs.lookup(&root(), &dir, b"3").unwrap();
    };
    assert_eq!(read_by(look_up), 2, "of the directory and the file");
}

/// Entries that exist all the time are listed exactly once, whatever else is added or removed.
fn a_listing_goes_on_after_changes(rig: &Fixture) {
    let dir = rig.mkdir(&rig.root(), b"d");
    let name = |kind: &str, number: usize| format!("{kind} {number}").into_bytes();
    for number in 0..300 {
        rig.create(&dir, &name("stays", number));
        rig.create(&dir, &name("goes", number));
    }
    let names = pieces(rig, &dir, 10, |piece| {
        rig.create(&dir, &name("comes", piece));
        let gone = rig.fs.remove(&root(), &dir, &name("goes", piece)).result;
        assert_eq!(gone, Ok(()));
        let other = name("goes", 299 - piece);
        let moved = rig
            .fs
            .rename(&root(), &dir, &other, &dir, &name("moved", piece));
        assert_eq!(moved.result, Ok(()));
    });
    let mut stayed: Vec<_> = names
        .into_iter()
        .filter(|name| name.starts_with(b"stays"))
        .collect();
    stayed.sort();
    let mut expected: Vec<_> = (0..300).map(|number| name("stays", number)).collect();
    expected.sort();
    assert_eq!(stayed, expected);
}

fn bad_cookies(rig: &Fixture) {
    let top = rig.root();
    let file = rig.create(&top, b"f");
    let list = |dir: &FileId, cookie, verifier| {
        let listing = rig
            .fs
            .readdir(&root(), dir, cookie, verifier, false, &mut |_| true);
        listing.map(|listing| listing.verifier)
    };
    let verifier = list(&top, 0, [0; 8]).unwrap();
    assert_eq!(
        list(&top, 0, [9; 8]),
        Ok(verifier),
        "cookie 0 needs no verifier"
    );
    assert_eq!(list(&top, 1, [9; 8]), Err(FsError::BadCookie));
    assert_eq!(list(&top, u64::MAX, verifier), Err(FsError::BadCookie));
    assert_eq!(list(&file, 0, [0; 8]), Err(FsError::NotDirectory));
}
