//! Tests of content and attributes of files.

use bytes::Bytes;

use super::*;

on_both! {
    what_is_written_is_read,
    pieces_are_written_in_order,
    writes_say_what_they_changed,
    holes_read_as_zeroes,
    offsets_beyond_four_gibibytes,
    truncation_and_extension,
    times_have_nanoseconds,
    a_guard_holds_or_not,
    impossible_offsets,
    content_of_other_objects,
    commit_and_verifier;
    as root:
    concurrent_writers
}

fn what_is_written_is_read(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    assert_eq!(rig.read(&file, 0, 10), (vec![], true));
    let data: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
    rig.write(&file, 0, &data);
    assert_eq!(rig.read(&file, 0, 300_000), (data.clone(), true));
    assert_eq!(
        rig.read(&file, 70_001, 99),
        (data[70_001..70_100].to_vec(), false)
    );
    assert_eq!(
        rig.read(&file, 299_990, 100),
        (data[299_990..].to_vec(), true)
    );
    assert_eq!(rig.read(&file, 300_000, 100), (vec![], true));
    rig.write(&file, 65_530, b"across a boundary");
    assert_eq!(rig.read(&file, 65_530, 17).0, b"across a boundary");
    assert_eq!(rig.attributes(&file).size, 300_000);
}

/// Pieces of many lengths, and more pieces than one system call accepts.
fn pieces_are_written_in_order(rig: &Fixture) {
    for (n, lengths) in [
        vec![1, 65_536, 3, 4096],
        vec![65_536; 16],
        (0..1500).map(|n| n % 7 + 1).collect(),
    ]
    .into_iter()
    .enumerate()
    {
        let file = rig.create(&rig.root(), format!("f{n}").as_bytes());
        let len: usize = lengths.iter().sum();
        let whole: Vec<u8> = (0..len).map(|n| (n * 31 % 251) as u8).collect();
        let mut rest = Bytes::from(whole.clone());
        let pieces = lengths.iter().map(|&len| rest.split_to(len));
        let data: Bulk = pieces.collect();
        for offset in [0, 70_003] {
            let change = rig
                .fs
                .write(&root(), &file, offset, &data, Stable::FileSync);
            assert_eq!(change.result.unwrap().count as usize, len);
            assert_eq!(rig.read(&file, offset, len), (whole.clone(), true));
        }
    }
}

fn writes_say_what_they_changed(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    let before = rig.attributes(&file);
    for stable in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
        let change = rig.fs.write(&root(), &file, 0, &b"12345".into(), stable);
        assert!(change.result.unwrap().committed as u32 >= stable as u32);
    }
    let first = rig
        .fs
        .write(&root(), &file, 5, &b"6".into(), Stable::Unstable);
    let wcc_before = first.wcc.before.unwrap();
    assert_eq!(wcc_before.size, 5);
    assert!(wcc_before.mtime >= before.mtime);
    assert_eq!(first.wcc.after.unwrap().size, 6);
    let again = rig
        .fs
        .write(&root(), &file, 0, &b"".into(), Stable::Unstable);
    assert_eq!(again.wcc.before.unwrap().size, 6);
    assert_eq!(again.result.unwrap().count, 0);
}

fn holes_read_as_zeroes(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    rig.write(&file, 10 << 20, b"end");
    let attributes = rig.attributes(&file);
    assert_eq!(attributes.size, (10 << 20) + 3);
    assert!(attributes.used < 1 << 20, "{} bytes used", attributes.used);
    let (data, eof) = rig.read(&file, (10 << 20) - 5, 8);
    assert_eq!((data.as_slice(), eof), (&b"\0\0\0\0\0end"[..], true));
    assert!(
        rig.read(&file, 1 << 20, 1 << 20)
            .0
            .iter()
            .all(|&byte| byte == 0)
    );
}

fn offsets_beyond_four_gibibytes(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    let at = (5 << 30) + 1;
    rig.write(&file, at, b"far");
    assert_eq!(rig.attributes(&file).size, at + 3);
    assert_eq!(rig.read(&file, at, 10), (b"far".to_vec(), true));
    assert_eq!(rig.read(&file, 1, 2), (vec![0, 0], false));
}

fn truncation_and_extension(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    rig.write(&file, 0, b"0123456789");
    rig.set(&file, size(4));
    assert_eq!(rig.read(&file, 0, 10), (b"0123".to_vec(), true));
    rig.set(&file, size(8));
    assert_eq!(rig.read(&file, 0, 10), (b"0123\0\0\0\0".to_vec(), true));
    rig.set(&file, size(1 << 40));
    assert!(rig.attributes(&file).used < 1 << 20);
    rig.set(&file, size(0));
    assert_eq!(rig.attributes(&file).size, 0);
    let dir = rig.mkdir(&rig.root(), b"d");
    let result = rig.fs.setattr(&root(), &dir, &size(0), None).result;
    assert_eq!(result, Err(FsError::IsDirectory));
    let result = rig.fs.setattr(&root(), &file, &size(u64::MAX), None).result;
    assert_eq!(result, Err(FsError::FileTooLarge));
}

fn times_have_nanoseconds(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    let time = |seconds, nanos| NfsTime { seconds, nanos };
    let set = SetAttributes {
        atime: SetTime::To(time(1_000_000_001, 123_456_789)),
        mtime: SetTime::To(time(1, 999_999_999)),
        ..SetAttributes::default()
    };
    let before = rig.attributes(&file).ctime;
    rig.set(&file, set.clone());
    let now = rig.attributes(&file);
    assert_eq!(now.atime, time(1_000_000_001, 123_456_789));
    assert_eq!(now.mtime, time(1, 999_999_999));
    assert!(now.ctime >= before);
    rig.set(
        &file,
        SetAttributes {
            mtime: SetTime::ServerTime,
            ..SetAttributes::default()
        },
    );
    let now = rig.attributes(&file);
    assert!(now.mtime >= before);
    assert_eq!(now.atime, time(1_000_000_001, 123_456_789));
    let bad = SetAttributes {
        mtime: SetTime::To(time(1, 1_000_000_000)),
        ..SetAttributes::default()
    };
    let result = rig.fs.setattr(&root(), &file, &bad, None).result;
    assert_eq!(result, Err(FsError::Invalid));
    let link = rig
        .fs
        .symlink(&root(), &rig.root(), b"l", b"f", &SetAttributes::default());
    let link = link.result.unwrap().id;
    rig.set(&link, set);
    assert_eq!(rig.attributes(&link).mtime, time(1, 999_999_999));
    assert_ne!(rig.attributes(&file).mtime, time(1, 999_999_999));
}

fn a_guard_holds_or_not(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    let ctime = rig.attributes(&file).ctime;
    let wrong = NfsTime {
        seconds: ctime.seconds - 1,
        ..ctime
    };
    let set = mode(0o640);
    let refused = rig.fs.setattr(&root(), &file, &set, Some(wrong));
    assert_eq!(refused.result, Err(FsError::NotSync));
    assert_eq!(refused.wcc.after.unwrap().ctime, ctime);
    assert_eq!(
        rig.fs.setattr(&root(), &file, &set, Some(ctime)).result,
        Ok(())
    );
    assert_eq!(rig.attributes(&file).mode, 0o640);
}

fn impossible_offsets(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    for offset in [i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        let write = rig
            .fs
            .write(&root(), &file, offset, &b"xy".into(), Stable::Unstable);
        assert_eq!(write.result.unwrap_err(), FsError::FileTooLarge);
        assert_eq!(rig.read(&file, offset, 10), (vec![], true));
    }
}

fn content_of_other_objects(rig: &Fixture) {
    let dir = rig.mkdir(&rig.root(), b"d");
    let fifo = rig
        .fs
        .mknod(&root(), &rig.root(), b"p", Special::Fifo, &mode(0o666))
        .result
        .unwrap()
        .id;
    let read = |id: &FileId| rig.fs.read(&root(), id, 0, &mut [0; 4]).unwrap_err();
    assert_eq!(read(&dir), FsError::IsDirectory);
    assert_eq!(read(&fifo), FsError::Invalid);
    let write = |id: &FileId| {
        let change = rig.fs.write(&root(), id, 0, &b"x".into(), Stable::Unstable);
        change.result.unwrap_err()
    };
    assert_eq!(write(&dir), FsError::IsDirectory);
    assert_eq!(write(&fifo), FsError::Invalid);
    assert_eq!(
        rig.fs.readlink(&root(), &dir).unwrap_err(),
        FsError::Invalid
    );
    let commit = rig.fs.commit(&root(), &dir, 0, 0).result;
    assert_eq!(commit, Err(FsError::IsDirectory));
}

fn commit_and_verifier(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    let verifier = rig.fs.write_verifier();
    rig.write(&file, 0, b"unstable");
    let commit = rig.fs.commit(&root(), &file, 0, 0);
    assert_eq!(commit.result, Ok(()));
    assert_eq!(commit.wcc.after.unwrap().size, 8);
    assert_eq!(rig.fs.write_verifier(), verifier);
    rig.write(&file, 8, b" more");
    assert_eq!(rig.read(&file, 0, 20).0, b"unstable more");
}

/// Concurrent writers of one file do not lose each other's data, and each sees its own change.
fn concurrent_writers(rig: &Fixture) {
    let file = rig.create(&rig.root(), b"f");
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            scope.spawn(move || {
                for block in 0..50 {
                    let offset = (block * 4 + writer) * 1000;
                    let change = rig.fs.write(
                        &user(),
                        &file,
                        offset,
                        &vec![writer as u8; 1000].into(),
                        Stable::Unstable,
                    );
                    assert_eq!(change.result.unwrap_err(), FsError::Access);
                    rig.write(&file, offset, &[writer as u8; 1000]);
                }
            });
        }
    });
    let (data, _) = rig.read(&file, 0, 1 << 20);
    assert_eq!(data.len(), 200_000);
    for (index, block) in data.chunks(1000).enumerate() {
        assert!(block.iter().all(|&byte| usize::from(byte) == index % 4));
    }
}
