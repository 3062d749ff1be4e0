//! Data that is written behind: restarts of the server, sizes, limits and errors.

use super::*;

/// The server restarts before each of the first COMMITs, and loses what was not committed.
#[test]
fn what_the_server_loses_before_a_commit_is_written_again() {
    let (fixture, exported) = on_disk();
    let (_, file) = fixture.create(b"f");
    let data: Vec<u8> = (0..400_000u32).map(|n| n as u8).collect();
    for (index, piece) in data.chunks(50_000).enumerate() {
        fixture.write(file, index as u64 * 50_000, piece.to_vec());
    }
    fixture.server.plan(
        |procedure, count| match procedure == nfs::Commit::NUMBER && count < 3 {
            true => Fault::Restart,
            false => Fault::None,
        },
    );
    fixture.run(fixture.core.fsync(file)).unwrap();
    assert!(fixture.calls::<nfs::Commit>() >= 4);
    assert_eq!(fixture.core.unwritten.get(), 0);
    assert_eq!(std::fs::read(exported.path().join("f")).unwrap(), data);
    fixture.server.plan(|_, _| Fault::None);
    fixture.close(file).unwrap();
}

/// Data that a restarted server has lost is written again, which sets the time to that of the WRITE.
#[test]
fn a_time_that_was_set_stays_if_the_server_restarts_before_the_file_is_closed() {
    let (fixture, _exported) = on_disk();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 400_000]);
    let time = NfsTime {
        seconds: 5,
        nanos: 0,
    };
    let mtime = SetAttributes {
        mtime: SetTime::To(time),
        ..SetAttributes::default()
    };
    let setting = fixture.core.setattr(&fixture.user, ino, None, mtime);
    let stat = fixture.run(setting).unwrap();
    assert_eq!(stat.attributes.mtime, time);
    let mut up = true;
    fixture.server.plan(move |proc, _| match proc {
        nfs::Commit::NUMBER if std::mem::take(&mut up) => Fault::Restart,
        _ => Fault::None,
    });
    fixture.close(file).unwrap();
    let node = fixture.core.node(ino).unwrap();
    let asked = fixture.core.attributes_of(&fixture.user, node.handle);
    assert_eq!(fixture.run(asked).unwrap().mtime, time);
}

/// The server restarts, which a COMMIT notices, while it does not answer the SETATTR.
#[test]
fn nothing_is_written_again_once_a_truncation_is_under_way() {
    let (fixture, exported) = on_disk();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 400_000]);
    let silent = Rc::new(Cell::new(true));
    let still = Rc::clone(&silent);
    let mut restarts = false;
    fixture.server.plan(move |proc, made| match proc {
        nfs::Setattr::NUMBER if still.get() => {
            restarts |= made == 0;
            Fault::Status(Status::JUKEBOX)
        }
        nfs::Commit::NUMBER if std::mem::take(&mut restarts) => Fault::Restart,
        _ => Fault::None,
    });
    let empty = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    let core = &fixture.core;
    fixture.run(async {
        let mut truncate = Box::pin(core.setattr(&fixture.user, ino, None, empty));
        while fixture.calls::<nfs::Setattr>() == 0 {
            assert!(poll!(&mut truncate).is_pending());
            turn().await;
        }
        let writes = fixture.calls::<nfs::Write>();
        core.fsync(file).await.unwrap();
        silent.set(false);
        assert_eq!(truncate.await.unwrap().attributes.size, 0);
        assert_eq!(fixture.calls::<nfs::Write>(), writes);
    });
    fixture.close(file).unwrap();
    assert_eq!(std::fs::read(exported.path().join("f")).unwrap(), b"");
}

#[test]
fn a_small_file_is_written_with_one_call_and_no_commit() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 1000]);
    fixture.write(file, 1000, vec![2; 1000]);
    fixture.close(file).unwrap();
    assert_eq!(fixture.calls::<nfs::Write>(), 1);
    assert_eq!(fixture.calls::<nfs::Commit>(), 0);
    let stat = fixture
        .run(fixture.core.getattr(&fixture.user, ino))
        .unwrap();
    assert_eq!(stat.attributes.size, 2000);
}

/// Data is not lost if the server answers a WRITE that asks for stable storage with UNSTABLE.
#[test]
fn data_that_was_not_written_through_gets_a_commit() {
    let (fixture, exported) = on_disk();
    fixture.server.never_stable.set(true);
    let (_, file) = fixture.create(b"f");
    let through = WriteMode {
        through: true,
        ..WriteMode::default()
    };
    let data = Bytes::from(vec![1; 100]);
    let writing = fixture.core.write(file, 0, data, through);
    assert_eq!(fixture.run(writing), Ok(100));
    assert_eq!(fixture.calls::<nfs::Commit>(), 1);
    // One WRITE, which asks for stable storage.
    fixture.write(file, 100, vec![1; 100]);
    fixture.close(file).unwrap();
    assert_eq!(fixture.calls::<nfs::Commit>(), 2);
    assert_eq!(fixture.core.unsaved_files(), 0);
    assert_eq!(std::fs::read(exported.path().join("f")).unwrap(), [1; 200]);
}

/// Written data is visible to its program before it is sent, holes included: a short reply
/// would be the end of the file to the kernel.
#[test]
fn a_read_sees_written_data_and_the_holes_before_it() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    fixture.write(file, 10_000, vec![7; 10]);
    assert_eq!(fixture.calls::<nfs::Write>(), 0);
    assert_eq!(&fixture.read(file, 0, 4096)[..], &[0; 4096][..]);
    let end = fixture.read(file, 9_990, 4096);
    assert_eq!(&end[..], &[[0; 10], [7; 10]].concat()[..]);
    fixture.close(file).unwrap();
}

#[test]
fn an_error_of_a_write_is_reported_once_to_each_open_file() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    let other = fixture.open(ino);
    fixture.write(file, 0, vec![1; 1000]);
    fixture
        .server
        .plan(|procedure, _| match procedure == nfs::Write::NUMBER {
            true => Fault::Status(Status::NOSPC),
            false => Fault::None,
        });
    let sync = |file| fixture.run(fixture.core.fsync(file));
    assert!(!fixture.told.0.borrow().contains(&ino));
    assert_eq!(sync(file), Err(Errno::NOSPC));
    // The kernel must not show what is lost: neither now, nor to whoever opens the file next.
    assert!(fixture.told.0.borrow().contains(&ino));
    let mode = OpenMode {
        read: true,
        ..WRITE
    };
    let next = fixture.run(fixture.core.open(&fixture.user, 1, ino, mode));
    let next = next.unwrap();
    assert!(!next.keep);
    fixture.core.release(next.file);
    assert_eq!(sync(file), Ok(()));
    assert_eq!(fixture.close(other), Err(Errno::NOSPC));
    // Not to one that was opened later.
    assert_eq!(fixture.close(fixture.open(ino)), Ok(()));
    assert_eq!(fixture.close(file), Ok(()));
}

/// A shortage of memory loses no data, however long it lasts; in a soft mount, the program learns of the loss.
#[test]
fn written_data_waits_for_memory_in_a_hard_mount() {
    for (procedure, hard) in [
        (nfs::Write::NUMBER, true),
        (nfs::Commit::NUMBER, true),
        (nfs::Write::NUMBER, false),
    ] {
        let (mut fixture, exported) = on_disk();
        fixture.options().hard = hard;
        let (_, file) = fixture.create(b"f");
        let failures = Rc::new(Cell::new(40));
        let left = Rc::clone(&failures);
        fixture.server.plan(move |proc, _| match left.get() {
            1.. if proc == procedure => {
                left.set(left.get() - 1);
                Fault::NoMemory
            }
            _ => Fault::None,
        });
        // Two WRITEs, so that a COMMIT follows.
        fixture.write(file, 0, vec![1; 128 << 10]);
        let synced = fixture.run(fixture.core.fsync(file));
        let expected = if hard { Ok(()) } else { Err(Errno::MSGSIZE) };
        assert_eq!(synced, expected, "{procedure}");
        if hard {
            assert_eq!(failures.get(), 0, "{procedure}");
            let data = std::fs::read(exported.path().join("f")).unwrap();
            assert_eq!(data.len(), 128 << 10);
            assert!(data.iter().all(|&byte| byte == 1), "{procedure}");
        }
    }
}

/// A server whose clock stands still says nothing of the order of two calls.
#[test]
fn a_size_is_never_smaller_than_what_was_written() {
    let backend = MemoryFs::simulated(64 << 20, 1, Clock::simulated());
    let (runtime, server, mount) = serve(Arc::new(backend));
    let fixture = client(&runtime, &server, &mount, 1);
    let (core, user) = (&fixture.core, &fixture.user);
    for round in 0..100u32 {
        let name = format!("f{round}").into_bytes();
        let (ino, file) = fixture.create(&name);
        let write = |at: u64| {
            let data = Bytes::from(vec![1; 64 << 10]);
            core.write(file, at, data, WriteMode::default())
        };
        // Two WRITEs are in flight at once, and a third one during the call that asks.
        let asked = fixture.run(async {
            write(0).await.unwrap();
            write(64 << 10).await.unwrap();
            core.flush(&core.node(ino).unwrap()).await;
            let (asked, found, written) = join3(
                core.getattr(user, ino),
                core.lookup(user, 1, ROOT, &name),
                write(0),
            )
            .await;
            written.unwrap();
            let found = found.unwrap().stat.unwrap();
            [asked.unwrap(), found].map(|stat| stat.attributes.size)
        });
        assert_eq!(asked, [128 << 10; 2], "round {round}");
        fixture.append(file, 128 << 10, vec![2; 10]);
        fixture.close(file).unwrap();
        assert_eq!(fixture.read_anew(ino).len(), (128 << 10) + 10);
        fixture.run(core.unlink(user, ROOT, &name)).unwrap();
    }
}

/// Data waits for the COMMIT while the size is asked for.
#[test]
fn a_size_counts_data_that_is_being_committed() {
    let (fixture, _exported) = on_disk();
    let (core, user) = (&fixture.core, &fixture.user);
    for round in 0..100u32 {
        let name = format!("f{round}").into_bytes();
        let (ino, file) = fixture.create(&name);
        fixture.write(file, 0, vec![1; 64 << 10]);
        fixture.write(file, 64 << 10, vec![2; 64 << 10]);
        let flushing = async { core.flush(&core.node(ino).unwrap()).await };
        fixture.run(flushing);
        // As if of the replies to the two WRITEs only the first one had been stored.
        let node = core.node(ino).unwrap();
        let early = Attributes {
            size: 64 << 10,
            ..node.attributes.borrow().get().clone()
        };
        core.learn(&node, early, core.begin());
        let stat = core.stat(&node);
        assert_eq!(stat.attributes.size, 128 << 10, "round {round}");
        let both = join(core.fsync(file), core.getattr(user, ino));
        let (synced, stat) = fixture.run(both);
        synced.unwrap();
        assert_eq!(stat.unwrap().attributes.size, 128 << 10, "round {round}");
        fixture.close(file).unwrap();
    }
}

#[test]
fn a_new_size_cuts_what_was_written_and_not_sent() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 1000]);
    assert_eq!(fixture.truncate(ino, file, 10), 10);
    fixture.write(file, 20, vec![2; 5]);
    let expected = [&[1; 10][..], &[0; 10], &[2; 5]].concat();
    assert_eq!(&fixture.read(file, 0, 100)[..], &expected[..]);
    fixture.close(file).unwrap();
    assert_eq!(&fixture.read_anew(ino)[..], &expected[..]);
}

#[test]
fn too_much_unwritten_data_makes_writers_wait() {
    let mut fixture = fixture();
    fixture.options().unwritten = 256 << 10;
    fixture.options().attributes = AttributeTimes::NONE;
    let (ino, file) = fixture.create(b"f");
    for index in 0..64 {
        fixture.write(file, index * (64 << 10), vec![index as u8; 64 << 10]);
        let kept = fixture.core.unwritten.get();
        assert!(kept <= (256 << 10) + (64 << 10), "{kept}");
    }
    fixture.close(file).unwrap();
    let data = fixture.read_anew(ino);
    assert_eq!(data.len(), 64 * (64 << 10));
    assert!(
        data.chunks(64 << 10)
            .enumerate()
            .all(|(n, part)| part[5] == n as u8)
    );
}

/// A piece of one byte has a block of the pool, like a longer one.
#[test]
fn short_writes_count_for_the_memory_that_they_take() {
    let mut fixture = fixture();
    fixture.options().unwritten = 256 << 10;
    let (ino, file) = fixture.create(b"f");
    for at in 0..1000 {
        fixture.write(file, at, vec![at as u8]);
        let kept = fixture.core.unwritten.get();
        assert!(kept <= (256 << 10) + 4096, "{kept}");
    }
    assert!(fixture.calls::<nfs::Write>() > 0);
    fixture.close(file).unwrap();
    let expected: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    assert_eq!(&fixture.read_anew(ino)[..], &expected[..]);
}

/// Otherwise a program that never closes its file, such as a logger, would write for ever.
#[test]
fn a_writer_learns_that_the_server_is_full() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let write = |at: u64, mapped| {
        let mode = WriteMode {
            mapped,
            ..WriteMode::default()
        };
        let data = Bytes::from(vec![1; 64 << 10]);
        fixture.run(fixture.core.write(file, at, data, mode))
    };
    for (status, error) in [
        (Status::NOSPC, Errno::NOSPC),
        (Status::DQUOT, Errno::DQUOT),
        (Status::FBIG, Errno::FBIG),
    ] {
        fixture.fails(nfs::Write::NUMBER, status);
        // As much as is sent at once. The reply has come when the file has been flushed.
        write(0, false).unwrap();
        let node = fixture.core.file(file).unwrap();
        fixture.run(fixture.core.flush(&node.node));
        // Nobody would hear it from a write of mapped memory.
        assert_eq!(write(64 << 10, true), Ok(64 << 10));
        fixture.run(fixture.core.flush(&node.node));
        assert_eq!(write(64 << 10, false), Err(error));
        fixture.server.plan(|_, _| Fault::None);
        assert_eq!(write(64 << 10, false), Ok(64 << 10));
    }
    // Other errors wait for fsync or close.
    fixture.fails(nfs::Write::NUMBER, Status::IO);
    write(0, false).unwrap();
    let node = fixture.core.file(file).unwrap();
    fixture.run(fixture.core.flush(&node.node));
    assert_eq!(write(0, false), Ok(64 << 10));
    assert_eq!(fixture.close(file), Err(Errno::IO));
}

/// Regression test: of two threads that write with one open file, the second one got the error of the first
/// one's write, which succeeded.
#[test]
fn the_error_of_a_synchronous_write_is_told_to_that_write() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    let fails = |proc, made| match proc == nfs::Write::NUMBER && made == 0 {
        true => Fault::Status(Status::NOSPC),
        false => Fault::None,
    };
    fixture.server.plan(fails);
    let mode = WriteMode {
        through: true,
        ..WriteMode::default()
    };
    let core = &fixture.core;
    let write = |at| core.write(file, at, Bytes::from(vec![1; 4096]), mode);
    let node = core.node(ino).unwrap();
    fixture.run(async {
        let mut first = Box::pin(write(0));
        assert!(poll!(&mut first).is_pending());
        while node.write_error.get().serial == 0 {
            turn().await;
        }
        assert_eq!(write(4096).await, Ok(4096));
        assert_eq!(first.await, Err(Errno::NOSPC));
    });
    assert_eq!(fixture.close(file), Ok(()), "told twice");
}
