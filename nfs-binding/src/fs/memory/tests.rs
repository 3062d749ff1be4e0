//! Tests of operations that race with the removal of an object's last name, and of what takes no lock.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

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
    let state = found.read();
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

/// Locks that are not waited for are not taken: a listing takes none for each entry.
#[test]
fn listings_lookups_and_attributes_wait_for_no_object_that_is_being_changed() {
    const ENTRIES: usize = 230;
    let fs = MemoryFs::new(1 << 20).unwrap();
    let names: Vec<_> = (0..ENTRIES).map(|number| number.to_string()).collect();
    let made: Vec<_> = names
        .iter()
        .map(|name| make(&fs, name.as_bytes()))
        .map(|id| fs.node(&id).unwrap())
        .collect();
    let read_all = || {
        let (who, root) = (Caller::root(), fs.root());
        let mut listed = Vec::new();
        let listing = fs.readdir(&who, &root, 0, [0; 8], true, &mut |entry| {
            let named = !matches!(entry.name, b"." | b"..");
            let object = entry.object.filter(|_| named);
            listed.extend(object.map(|object| object.attributes.clone()));
            true
        });
        assert!(listing.unwrap().eof);
        let looked_up = names.iter().map(|name| {
            let found = fs.lookup(&who, &root, name.as_bytes()).unwrap().object;
            assert_eq!(fs.getattr(&found.id).unwrap(), found.attributes);
            found.attributes
        });
        assert_eq!(listed, looked_up.collect::<Vec<_>>());
        listed
    };
    let before = read_all();
    assert_eq!(before.len(), ENTRIES);
    let mut changing: Vec<_> = made.iter().map(|node| node.write()).collect();
    for state in &mut changing {
        state.attributes.uid = 7;
    }
    thread::scope(|scope| {
        let (tell, told) = channel();
        scope.spawn(move || tell.send(read_all()).unwrap());
        let meanwhile = told.recv_timeout(Duration::from_secs(20));
        drop(changing);
        assert_eq!(meanwhile.expect("no lock is waited for"), before);
    });
    let changed = read_all();
    assert!(changed.iter().all(|attributes| attributes.uid == 7));
}

/// While names are those of files only, an unchecked CREATE never finds that its name exists.
#[test]
fn an_unchecked_create_succeeds_whatever_becomes_of_the_name() {
    /// Enough for many names to be removed between the two steps of a CREATE.
    const STEPS: usize = 50_000;
    let fs = MemoryFs::new(1 << 20).unwrap();
    let (root, before) = (fs.root(), fs.used());
    let names: [&[u8]; 2] = [b"a", b"b"];
    let race = |thread: usize| {
        let (who, mut seen) = (Caller::root(), [0; 3]);
        for step in 0..STEPS {
            let turn = step + thread;
            let (name, other) = (names[turn % 2], names[(turn + 1) % 2]);
            let how = HowToCreate::Unchecked(SetAttributes {
                size: Some(600),
                ..SetAttributes::default()
            });
            let made = fs.create(&who, &root, name, &how).result;
            let made = made.unwrap_or_else(|error| panic!("CREATE in step {step}: {error:?}"));
            // In some steps only, because LINK waits until all others have ended.
            if step.is_multiple_of(8) {
                match fs.link(&who, &made.id, &root, other).result {
                    Ok(_) => seen[0] += 1,
                    Err(FsError::Exists) => seen[1] += 1,
                    Err(FsError::Stale) => seen[2] += 1,
                    Err(error) => panic!("LINK in step {step}: {error:?}"),
                }
            }
            let gone = names[turn % 5 % 2];
            let removed = fs.remove(&who, &root, gone).result;
            assert!(matches!(removed, Ok(()) | Err(FsError::NotFound)));
        }
        seen
    };
    thread::scope(|scope| {
        let race = &race;
        let threads: Vec<_> = (0..4).map(|at| scope.spawn(move || race(at))).collect();
        let mut seen = [0; 3];
        for thread in threads {
            let by_one = thread.join().unwrap();
            seen.iter_mut()
                .zip(by_one)
                .for_each(|(all, one)| *all += one);
        }
        let [linked, existed, _] = seen;
        assert!(linked > 100 && existed > 100, "{seen:?}");
    });
    for name in names {
        let _ = fs.remove(&Caller::root(), &root, name);
    }
    assert_eq!(fs.used(), before);
}

/// Removes a directory, unless another thread does, or adds to it.
fn empty_and_remove(fs: &MemoryFs, name: &[u8]) {
    let (who, root) = (Caller::root(), fs.root());
    if let Ok(found) = fs.lookup(&who, &root, name) {
        let _ = fs.remove(&who, &found.object.id, b"x");
        let _ = fs.rmdir(&who, &root, name);
    }
}

/// Threads that create, open, remove and link the same few names, and directories with content.
#[test]
fn threads_that_change_the_same_names_leave_nothing_behind() {
    let fs = MemoryFs::new(1 << 20).unwrap();
    let (who, root, before) = (Caller::root(), fs.root(), fs.used());
    let names: [&[u8]; 3] = [b"a", b"b", b"c"];
    let results = |thread: usize| {
        let (fs, who) = (&fs, Caller::root());
        move || {
            let mut removed = 0;
            for step in 0..3000 {
                let name = names[(step * 7 + thread) % 3];
                let how = match step % 2 {
                    0 => HowToCreate::Guarded(SetAttributes::default()),
                    _ => HowToCreate::Unchecked(SetAttributes {
                        size: Some(600),
                        ..SetAttributes::default()
                    }),
                };
                let made = fs.create(&who, &root, name, &how).result.map(drop);
                match (made, step % 2) {
                    // A guarded CREATE fails only if the name exists; another one only if the name
                    // is that of a directory. (The test before this one has no directories.)
                    (Ok(()), _) | (Err(FsError::Exists), _) => {}
                    (Err(error), _) => panic!("{error:?}"),
                }
                match fs.remove(&who, &root, name).result {
                    Ok(()) => removed += 1,
                    Err(FsError::NotFound) => {}
                    Err(FsError::IsDirectory) => empty_and_remove(fs, name),
                    Err(error) => panic!("{error:?}"),
                }
                // In some steps only: the names are to be those of files most of the time.
                if step % 5 == 0
                    && let Ok(dir) = fs
                        .mkdir(&who, &root, name, &SetAttributes::default())
                        .result
                {
                    let below = fs.create(&who, &dir.id, b"x", &how).result;
                    match below {
                        // It was empty until now, so another thread may have removed it.
                        Ok(_) | Err(FsError::Stale) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                    let full = fs.rmdir(&who, &root, name).result;
                    // Another thread may have emptied and removed it, and may have made a file of
                    // that name.
                    let may_be = [FsError::NotEmpty, FsError::NotFound, FsError::NotDirectory];
                    assert!(full.is_ok() || may_be.map(Err).contains(&full), "{full:?}");
                    let moved = fs
                        .rename(&who, &dir.id, b"x", &root, names[step % 3])
                        .result;
                    let _ = (moved, fs.rmdir(&who, &root, name));
                }
                let found = fs.lookup(&who, &root, name);
                if let Ok(found) = found {
                    let link = fs.link(&who, &found.object.id, &root, names[(step + 1) % 3]);
                    let _ = link;
                }
            }
            removed
        }
    };
    let removed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|at| scope.spawn(results(at))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(removed > 1000, "{removed}");
    // Whatever is left can be removed, and then all memory is back.
    let mut left = names.to_vec();
    left.retain(|name| fs.remove(&who, &root, name).result == Err(FsError::IsDirectory));
    for name in left {
        empty_and_remove(&fs, name);
        assert_eq!(fs.lookup(&who, &root, name).err(), Some(FsError::NotFound));
    }
    assert_eq!(fs.used(), before);
    assert_eq!(fs.getattr(&root).unwrap().nlink, 2);
    let mut objects = 0;
    fs.nodes.for_each(|_| objects += 1);
    assert_eq!(objects, 1, "only the root is left in the table");
}
