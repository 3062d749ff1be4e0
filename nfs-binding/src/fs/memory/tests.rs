//! Tests of operations that race with the removal of an object's last name.

use std::thread;

use super::*;
use crate::fs::{HowToCreate, MemoryFs};

const TEXT: &[u8] = b"all of the content";

fn make(fs: &MemoryFs, name: &[u8]) -> FileId {
    let how = HowToCreate::Guarded(SetAttributes::default());
    let made = fs.create(&Caller::root(), &fs.root(), name, &how);
    let id = made.result.unwrap().id;
    let data = Bulk::from(bytes::Bytes::from_static(TEXT));
    let written = fs.write(&Caller::root(), &id, 0, &data, Stable::FileSync);
    assert_eq!(written.result.unwrap().count as usize, TEXT.len());
    id
}

/// Plays a race step by step: the object is found, its last name is removed, its state is read.
#[test]
fn what_was_found_before_its_last_name_went_is_stale() {
    let fs = MemoryFs::new(1 << 20).unwrap();
    let (who, root) = (Caller::root(), fs.root());
    let id = make(&fs, b"file");
    let used = fs.used();
    let found = fs.node(&id).unwrap();
    let read = |buf: &mut [u8]| fs.read_node(&found, &who, 0, |content| content.read(0, buf));
    let mut buf = [0; TEXT.len()];
    let before = read(&mut buf).unwrap();
    assert_eq!((before.count as usize, before.eof), (TEXT.len(), true));
    fs.remove(&who, &root, b"file").result.unwrap();
    assert_eq!(read(&mut buf).unwrap_err(), FsError::Stale);
    assert!(matches!(live(&found), Err(FsError::Stale)));
    // The remaining state is consistent.
    let state = shared(&found.state);
    assert_eq!((state.attributes.size, state.attributes.used), (0, 0));
    drop(state);
    assert!(fs.used() < used, "its memory is given back at once");

    let made = fs.mkdir(&who, &root, b"folder", &SetAttributes::default());
    let folder = fs.node(&made.result.unwrap().id).unwrap();
    fs.rmdir(&who, &root, b"folder").result.unwrap();
    assert!(matches!(live(&folder), Err(FsError::Stale)));
}

#[test]
fn whoever_reads_while_the_last_name_goes_sees_all_or_nothing() {
    let fs = MemoryFs::new(1 << 20).unwrap();
    for _ in 0..500 {
        let id = make(&fs, b"file");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut buf = [0; 64];
                    loop {
                        let read = fs.read(&Caller::root(), &id, 0, &mut buf);
                        let size = fs.getattr(&id).map(|attributes| attributes.size);
                        for size in [size, read.map(|read| u64::from(read.count))] {
                            match size {
                                Ok(size) => assert_eq!(size, TEXT.len() as u64),
                                Err(error) => {
                                    assert_eq!(error, FsError::Stale);
                                    return;
                                }
                            }
                        }
                    }
                });
            }
            scope.spawn(|| {
                let removed = fs.remove(&Caller::root(), &fs.root(), b"file");
                removed.result.unwrap();
            });
        });
    }
}
