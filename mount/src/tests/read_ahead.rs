//! Reading ahead, and its memory.

use super::*;

/// The bytes that each of the open files has read ahead.
fn read_ahead(fixture: &Fixture, files: &[u64]) -> Vec<usize> {
    let bytes = |&file| fixture.core.file(file).unwrap().read_ahead.borrow().bytes();
    files.iter().map(bytes).collect()
}

#[test]
fn what_all_files_have_read_ahead_is_limited_and_given_up_when_nobody_reads() {
    let fixture = fixture();
    let limit = 1 << 20;
    fixture.core.read_memory.replace(ReadMemory::new(limit));
    let files: Vec<u64> = (0..6u8)
        .map(|n| {
            let (ino, file) = fixture.create(&[b'a' + n]);
            fixture.write(file, 0, vec![n; 2 << 20]);
            fixture.close(file).unwrap();
            fixture.open(ino)
        })
        .collect();
    for file in &files {
        for part in 0..8 {
            let at = part * (16 << 10);
            assert_eq!(fixture.read(*file, at, 16 << 10).len(), 16 << 10);
        }
        let sum: usize = read_ahead(&fixture, &files).iter().sum();
        assert!(sum <= limit, "{sum}");
    }
    let kept = read_ahead(&fixture, &files);
    assert!(kept[0] == 0 && kept[5] > 0, "{kept:?}");
    // The first one goes on where it was.
    let more = fixture.read(files[0], 8 * (16 << 10), 16 << 10);
    assert_eq!(&more[..], &[0; 16 << 10][..]);
    assert!(read_ahead(&fixture, &files)[0] > 0);
    let later = Instant::now() + Duration::from_secs(6);
    fixture.core.read_memory.borrow_mut().drop_idle(later);
    assert_eq!(read_ahead(&fixture, &files), [0; 6]);
}

/// If a call finds no memory, data that was read ahead is dropped, and the call is made again.
#[test]
fn a_call_without_memory_makes_files_give_up_what_they_have_read_ahead() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 2 << 20]);
    fixture.close(file).unwrap();
    let file = fixture.open(ino);
    for part in 0..4 {
        fixture.read(file, part * (16 << 10), 16 << 10);
    }
    assert!(read_ahead(&fixture, &[file])[0] > 0);
    let core = &fixture.core;
    let make = |name: &'static [u8]| core.mkdir(&fixture.user, ROOT, name, 0o755);
    let failures = Rc::new(Cell::new(1));
    let left = Rc::clone(&failures);
    fixture.server.plan(move |proc, _| match left.get() {
        1.. if proc == nfs::Mkdir::NUMBER => {
            left.set(left.get() - 1);
            Fault::NoMemory
        }
        _ => Fault::None,
    });
    fixture.run(make(b"d")).unwrap();
    assert_eq!(read_ahead(&fixture, &[file]), [0]);
    // With nothing to give up, it fails.
    failures.set(1);
    let error = fixture.run(make(b"e")).map(|_| ());
    assert_eq!(error, Err(Errno::MSGSIZE));
}

/// A READ ahead that finds no memory is given up alone, as it is worth no more than what is there.
#[test]
fn reading_ahead_without_memory_drops_nothing_that_has_arrived() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 2 << 20]);
    fixture.close(file).unwrap();
    let files = [fixture.open(ino), fixture.open(ino)];
    for part in 0..4 {
        fixture.read(files[0], part * (16 << 10), 16 << 10);
    }
    let before = read_ahead(&fixture, &files);
    assert!(before[0] > 0);
    fixture.read(files[1], 0, 16 << 10);
    let reads = Rc::new(Cell::new(0));
    let seen = Rc::clone(&reads);
    fixture.server.plan(move |proc, _| match proc {
        nfs::Read::NUMBER => {
            seen.set(seen.get() + 1);
            match seen.get() {
                1 => Fault::None,
                _ => Fault::NoMemory,
            }
        }
        _ => Fault::None,
    });
    fixture.read(files[1], 16 << 10, 16 << 10);
    assert!(reads.get() > 1, "nothing was read ahead");
    assert_eq!(read_ahead(&fixture, &files)[0], before[0]);
}

/// Memory that is short is kept for READs that somebody waits for.
#[test]
fn a_read_whose_data_could_not_be_read_ahead_is_made_by_itself() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 1 << 20]);
    fixture.close(file).unwrap();
    let file = fixture.open(ino);
    let begun = fixture.calls::<nfs::Read>();
    fixture.server.plan(move |proc, made| match proc {
        nfs::Read::NUMBER if made <= begun + 1 => Fault::NoMemory,
        _ => Fault::None,
    });
    let data = fixture.read(file, 0, 16 << 10);
    assert_eq!(&data[..], &[1; 16 << 10][..]);
    assert!(fixture.calls::<nfs::Read>() >= begun + 2);
}
