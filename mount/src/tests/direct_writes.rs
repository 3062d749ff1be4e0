//! Writes with O_DIRECT that fail.

use super::*;

/// The kernel truncates a file to the size that it believes after a write with O_DIRECT behind that has
/// failed.
#[test]
fn a_direct_write_that_fails_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    let write = |at| two.write_direct(direct, at, 4096);
    let truncate = |size| two.truncate(seen, direct, size);
    assert_eq!(write(100), Err(Errno::NOSPC));
    assert_eq!(truncate(100), 1000, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 1000);
    // A program's own is obeyed, also after a failure of which the kernel made nothing.
    assert_eq!(truncate(1000), 1000);
    assert_eq!(write(0), Err(Errno::NOSPC));
    assert_eq!(truncate(50), 50);
    assert_eq!(one.read_anew(ino).len(), 50);
    two.server.plan(|_, _| Fault::None);
    assert_eq!(write(50), Ok(4096));
    assert_eq!(truncate(4146), 4146);
    assert_eq!(truncate(10), 10);
    assert_eq!(one.read_anew(ino).len(), 10);
}

/// A listing brings the new size here, but not to the kernel, which truncates the file to the old one.
#[test]
fn a_size_that_the_kernel_is_not_told_does_not_count_for_a_direct_write_that_fails() {
    let (runtime, server, mount) = server();
    let one = client(&runtime, &server, &mount, 1);
    let (ino, file) = one.create(b"f");
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    let private = SetAttributes {
        mode: Some(0o700),
        ..SetAttributes::default()
    };
    let setting = one.core.setattr(&one.user, ROOT, None, private);
    one.run(setting).unwrap();
    let two = client(&runtime, &server, &mount, 2);
    let seen = two.find(b"f").unwrap();
    let direct = two.open(seen);
    let file = one.open(ino);
    one.write(file, 100, vec![1; 900]);
    one.close(file).unwrap();

    assert_eq!(two.list_plus(ROOT), [(Bytes::from("f"), None)]);
    let node = two.core.node(seen).unwrap();
    assert_eq!(node.attributes.borrow().get().size, 1000);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(two.write_direct(direct, 100, 4096), Err(Errno::NOSPC));
    assert_eq!(two.truncate(seen, direct, 100), 1000);
    assert_eq!(one.read_anew(ino).len(), 1000);
}

/// The kernel sends the parts of a long write at once, and takes all of it for failed if one fails.
#[test]
fn a_direct_write_that_fails_in_part_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let (sent, other_fails) = (two.calls::<nfs::Write>(), Rc::new(Cell::new(false)));
    let fails = Rc::clone(&other_fails);
    two.server.plan(move |proc, made| match proc {
        nfs::Write::NUMBER if made > sent => Fault::Status(match fails.get() {
            true => Status::NOSPC,
            false => Status::JUKEBOX,
        }),
        _ => Fault::None,
    });
    let mode = WriteMode {
        through: true,
        direct: true,
        ..WriteMode::default()
    };
    let part = |at| {
        let data = Bytes::from(vec![2; 4096]);
        Box::pin(two.core.write(direct, at, data, mode))
    };
    two.run(async {
        let (first, other) = select(part(100), part(4196)).await.factor_first();
        assert_eq!(first, Ok(4096));
        other_fails.set(true);
        assert_eq!(other.await, Err(Errno::NOSPC));
    });
    assert!(two.truncate(seen, direct, 100) > 1000);
    assert!(one.read_anew(ino).len() > 1000);
}

/// The first part has failed before the mount handles the second one.
#[test]
fn a_direct_write_whose_first_part_fails_early_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let part = |at| two.write_direct(direct, at, 4096);
    let truncate = |size| two.truncate(seen, direct, size);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(100), Err(Errno::NOSPC));
    two.server.plan(|_, _| Fault::None);
    assert_eq!(part(4196), Ok(4096));
    assert!(truncate(100) > 1000, "the kernel's");
    assert!(one.read_anew(ino).len() > 1000);
    // A later write is one of its own, also where that one has ended.
    assert_eq!(part(8292), Ok(4096));
    assert_eq!(truncate(10), 10);
    assert_eq!(one.read_anew(ino).len(), 10);
}

/// The first part has succeeded before the mount handles the second one.
#[test]
fn a_direct_write_whose_last_part_fails_late_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let part = |at| two.write_direct(direct, at, 4096);
    let truncate = |size| two.truncate(seen, direct, size);
    assert_eq!(part(100), Ok(4096));
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(4196), Err(Errno::NOSPC));
    assert_eq!(truncate(100), 4196, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 4196);
    // A write that has ended comes before one of two parts.
    two.server.plan(|_, _| Fault::None);
    assert_eq!([part(4196), part(8292)], [Ok(4096); 2]);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(12388), Err(Errno::NOSPC));
    assert_eq!(truncate(8292), 12388, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 12388);
    // A program's own is obeyed.
    assert_eq!(truncate(8292), 8292);
    assert_eq!(one.read_anew(ino).len(), 8292);
}

/// The part that has failed before the mount handles the second one is not beyond the end of the file; the
/// write is.
#[test]
fn a_direct_write_that_fails_before_the_end_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let part = |at, len| two.write_direct(direct, at, len);
    let truncate = |size| two.truncate(seen, direct, size);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(0, 50), Err(Errno::NOSPC));
    two.server.plan(|_, _| Fault::None);
    assert_eq!(part(50, 4096), Ok(4096));
    assert_eq!(truncate(100), 4146, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 4146);
    // The kernel makes nothing of a failure of a whole write there.
    let file = one.open(ino);
    one.write(file, 4146, vec![1; 854]);
    one.close(file).unwrap();
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(0, 50), Err(Errno::NOSPC));
    assert_eq!(truncate(4146), 4146);
    assert_eq!(one.read_anew(ino).len(), 4146);
}

/// Reads a part of a file of 100,000 bytes through the page cache, and returns the file's inode and
/// the file, open for writes with O_DIRECT.
fn with_pages(fixture: &Fixture, offset: u64) -> (u64, u64) {
    let (ino, file) = fixture.create(b"f");
    assert_eq!(fixture.write_direct(file, 0, 100_000), Ok(100_000));
    assert_eq!(fixture.told.0.borrow()[..], [0; 0], "no page was read");
    fixture.read(file, offset, 4096);
    (ino, file)
}

/// The kernel drops the pages before an asynchronous write, and not after it: a page that a program
/// reads meanwhile has the old data.
#[test]
fn a_direct_write_ends_only_when_the_kernel_has_forgotten_pages_that_were_read_meanwhile() {
    let fixture = fixture();
    let (ino, file) = with_pages(&fixture, 8192);
    // Other parts of the file stay in the cache.
    for offset in [0, 12288] {
        assert_eq!(fixture.write_direct(file, offset, 8192), Ok(8192));
    }
    assert_eq!(fixture.told.0.borrow()[..], [0; 0]);
    fixture.told.1.borrow_mut().insert(ino);
    let core = &fixture.core;
    let direct = WriteMode {
        through: true,
        direct: true,
        ..WriteMode::default()
    };
    fixture.run(async {
        let data = Bytes::from(vec![3; 8192]);
        let mut writing = Box::pin(core.write(file, 4096, data, direct));
        while fixture.told.0.borrow().is_empty() {
            assert!(poll!(&mut writing).is_pending());
            turn().await;
        }
        for _ in 0..50 {
            assert!(poll!(&mut writing).is_pending());
            turn().await;
        }
        assert_eq!(fixture.told.0.borrow()[..], [ino]);
        // Nobody is kept waiting who is not concerned.
        assert_eq!(core.read(file, 4096, 10, false).await.unwrap().len(), 10);
        fixture.told.1.borrow_mut().clear();
        core.invalidated.wake();
        assert_eq!(writing.await, Ok(8192));
    });
}

/// The kernel sends only so many requests at a time that nobody waits for. If all of them waited
/// for a page whose READ it keeps back, none would end.
#[test]
fn not_all_direct_writes_wait_for_pages() {
    let fixture = fixture();
    let (ino, file) = with_pages(&fixture, 0);
    fixture.told.1.borrow_mut().insert(ino);
    let all = usize::from(crate::kernel::BACKGROUND);
    let core = &fixture.core;
    let direct = WriteMode {
        through: true,
        direct: true,
        ..WriteMode::default()
    };
    fixture.run(async {
        let write = |at| core.write(file, at, Bytes::from(vec![3; 10]), direct);
        let mut writing: Vec<_> = (0..all as u64).map(|at| Box::pin(write(at * 10))).collect();
        for _ in 0..2000 {
            let mut waiting = Vec::new();
            for mut write in writing {
                match poll!(&mut write) {
                    Poll::Ready(outcome) => assert_eq!(outcome, Ok(10)),
                    Poll::Pending => waiting.push(write),
                }
            }
            writing = waiting;
            turn().await;
        }
        assert_eq!(writing.len(), all / 2);
        fixture.told.1.borrow_mut().clear();
        core.invalidated.wake();
        for write in writing {
            assert_eq!(write.await, Ok(10));
        }
    });
}

/// The data reaches the server nevertheless.
#[test]
fn pages_are_forgotten_also_if_the_process_that_writes_is_killed() {
    let fixture = fixture();
    let (ino, file) = with_pages(&fixture, 0);
    let before = fixture.calls::<nfs::Write>();
    let core = &fixture.core;
    let mode = WriteMode {
        through: true,
        direct: true,
        ..WriteMode::default()
    };
    fixture.server.plan(move |proc, made| match proc {
        nfs::Write::NUMBER if made == before => Fault::Status(Status::JUKEBOX),
        _ => Fault::None,
    });
    let writing = core.write(file, 0, Bytes::from(vec![3; 10]), mode);
    fixture.run(cut_off(writing, || fixture.calls::<nfs::Write>() > before));
    assert_eq!(fixture.told.0.borrow()[..], [ino]);
}
