//! Counts of a mount, by requests, bytes and names.

use super::*;
use crate::counts::RequestKind;

#[test]
fn bytes_are_counted_by_where_they_came_from() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 1000]);
    let counted = |fixture: &Fixture| fixture.core.statistics();
    let found = counted(&fixture);
    assert_eq!((found.written, found.written_direct), (1000, 0));
    assert_eq!((found.unsaved.0 > 0, found.server_written), (true, 0));
    assert_eq!((found.unsaved_files, found.open_files), (1, 1));
    // Not sent yet: it comes from what was written.
    assert_eq!(fixture.read(file, 0, 1000).len(), 1000);
    let found = counted(&fixture);
    assert_eq!(
        (found.read_back, found.read_fetched, found.server_read),
        (1000, 0, 0)
    );
    fixture.close(file).unwrap();
    let found = counted(&fixture);
    assert_eq!((found.server_written, found.unsaved.0), (1000, 0));
    assert_eq!((found.unsaved_files, found.open_files), (0, 0));
    let file = fixture.open(ino);
    assert_eq!(fixture.read(file, 0, 400).len(), 400);
    let first = counted(&fixture);
    let read = |it: &crate::MountStatistics| it.read_ahead + it.read_back + it.read_fetched;
    assert_eq!(read(&first), 1400);
    assert!(first.server_read >= 400, "{first:?}");
    let direct = fixture.core.read(file, 0, 200, true);
    assert_eq!(fixture.run(direct).unwrap().len(), 200);
    let found = counted(&fixture);
    assert_eq!((found.read_direct, read(&found)), (200, 1600));
    assert_eq!(found.read_fetched, first.read_fetched + 200);
    assert_eq!(fixture.write_direct(file, 0, 512), Ok(512));
    let found = counted(&fixture);
    assert_eq!((found.written, found.written_direct), (1512, 512));
    assert_eq!(found.server_written, 1512);
}

#[test]
fn direct_reads_are_counted_as_such_wherever_the_data_came_from() {
    let fixture = fixture();
    let file = fixture.open_file(b"f");
    fixture.write(file, 0, vec![1; 1000]);
    let direct = fixture.core.read(file, 0, 1000, true);
    assert_eq!(fixture.run(direct).unwrap().len(), 1000);
    let found = fixture.core.statistics();
    assert_eq!((found.read_direct, found.read_back), (1000, 1000));
}

#[test]
fn names_and_attributes_are_counted_by_whether_the_server_was_asked() {
    let fixture = fixture();
    assert_eq!(fixture.find(b"none"), None);
    let (ino, file) = fixture.create(b"f");
    fixture.close(file).unwrap();
    let names = |fixture: &Fixture| {
        let found = fixture.core.statistics();
        (found.names_known, found.names_asked)
    };
    assert_eq!(names(&fixture), (0, 1));
    assert_eq!(fixture.find(b"f"), Some(ino));
    assert_eq!(names(&fixture), (1, 1), "its creation has told");
    // The name is known, and the server is asked for the attributes, which are too old.
    let node = fixture.core.node(ino).unwrap();
    node.attributes.borrow_mut().expire();
    assert_eq!(fixture.find(b"f"), Some(ino));
    assert_eq!(names(&fixture), (1, 2));
    let attributes = |fixture: &Fixture| {
        let found = fixture.core.statistics();
        (found.attributes_known, found.attributes_asked)
    };
    let get = || {
        fixture
            .run(fixture.core.getattr(&fixture.user, ino))
            .unwrap()
    };
    assert_eq!(get().ino, ino);
    assert_eq!(attributes(&fixture), (1, 0));
    node.attributes.borrow_mut().expire();
    assert_eq!(get().ino, ino);
    assert_eq!(attributes(&fixture), (1, 1));
}

/// Regression test: with `actimeo=0`, to look up a known name took a GETATTR of its directory and one of the object.
#[test]
fn without_a_cache_of_attributes_a_lookup_is_one_call() {
    let mut fixture = fixture();
    fixture.options().attributes = AttributeTimes::NONE;
    let (ino, file) = fixture.create(b"f");
    fixture.close(file).unwrap();
    assert_eq!(fixture.find(b"f"), Some(ino));
    let made = || {
        (
            fixture.calls::<nfs::Lookup>(),
            fixture.calls::<nfs::Getattr>(),
        )
    };
    let before = made();
    for again in 1..=3 {
        assert_eq!(fixture.find(b"f"), Some(ino));
        assert_eq!(made(), (before.0 + again, before.1));
    }
    // What a program asks for itself is asked of the server each time.
    let get = fixture.core.getattr(&fixture.user, ino);
    fixture.run(get).unwrap();
    assert_eq!(made(), (before.0 + 3, before.1 + 1));
    // A name that somebody else has removed is not there.
    assert_eq!(fixture.find(b"none"), None);
    assert_eq!(fixture.find(b"none"), None);
    assert_eq!(made(), (before.0 + 5, before.1 + 1));
}

#[test]
fn calls_that_the_server_puts_off_and_hidden_files_are_counted() {
    let fixture = fixture();
    let file = fixture.open_file(b"f");
    let failures = Cell::new(2);
    fixture.server.plan(move |proc, _| match failures.get() {
        1.. if proc == nfs::Mkdir::NUMBER => {
            failures.set(failures.get() - 1);
            Fault::Status(Status::JUKEBOX)
        }
        _ => Fault::None,
    });
    let making = fixture.core.mkdir(&fixture.user, ROOT, b"d", 0o755);
    fixture.run(making).unwrap();
    assert_eq!(fixture.core.statistics().delays, 2);
    assert_eq!(fixture.core.statistics().hidden, 0);
    fixture.removes_while_open(b"f", file);
    assert_eq!(fixture.core.statistics().hidden, 1);
}

#[test]
fn each_kind_of_request_has_a_count_and_a_name_of_its_own() {
    let fixture = fixture();
    for (at, kind) in RequestKind::ALL.iter().enumerate() {
        for _ in 0..=at {
            fixture.core.counts.request(*kind);
        }
    }
    let found = fixture.core.statistics();
    let names: BTreeSet<&str> = RequestKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), RequestKind::ALL.len());
    for (at, kind) in RequestKind::ALL.iter().enumerate() {
        assert_eq!(found.requests(*kind), at as u64 + 1);
    }
}

/// Regression test: each question to a mount that did not answer stayed in its queue.
#[test]
fn a_mount_that_does_not_answer_has_one_question_and_one_that_has_ended_none() {
    let queue = Arc::new(Queue::new());
    let mut handle = crate::StatisticsHandle::new(&queue);
    for _ in 0..3 {
        assert!(handle.ask(Duration::ZERO).is_none());
        assert_eq!(queue.len(), 1);
    }
    let ended = Arc::new(Queue::new());
    ended.close();
    let mut handle = crate::StatisticsHandle::new(&ended);
    assert!(handle.ask(Duration::from_secs(60)).is_none());
    assert_eq!(ended.len(), 0);
}
