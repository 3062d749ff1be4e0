//! The end of a mount.

use super::*;

/// Runs the loop of a mount that is gone and whose server has sent this many replies whenever it is asked,
/// for so many ticks, which take no time. Returns whether the loop has ended.
fn ends(fixture: &Fixture, within: usize, replies: impl Fn() -> u64) -> bool {
    let queue = Queue::new();
    queue.close();
    let ticks = Cell::new(0);
    let tick = |_| {
        let (mut waited, ticks) = (false, &ticks);
        poll_fn(move |context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut waited, true) {
                ticks.set(ticks.get() + 1);
                return Poll::Ready(());
            }
            Poll::Pending
        })
    };
    let mut running = pin!(run(Rc::clone(&fixture.core), &queue, tick, replies));
    fixture
        .runtime
        .block_on(poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if ticks.get() > within => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }))
}

/// Enough ticks for all repetitions of a call in a soft mount.
const MANY: usize = 10_000;

/// Regression test: a READ that the server answered with NFS3ERR_JUKEBOX, such as one ahead of a program, kept the
/// process of a hard mount going for ever.
#[test]
fn a_mount_that_is_gone_does_not_repeat_reads_without_end() {
    let fixture = fixture();
    let file = fixture.open_file(b"file");
    fixture.fails(nfs::Read::NUMBER, Status::JUKEBOX);
    let core = Rc::clone(&fixture.core);
    fixture
        .core
        .spawn(async move { drop(core.read(file, 0, 100, false).await) });
    // The server is never silent.
    let replies = Cell::new(0);
    let answers = || {
        replies.set(replies.get() + 1);
        replies.get()
    };
    assert!(ends(&fixture, MANY, answers));
    assert!(fixture.calls::<nfs::Read>() > 1, "it was repeated");
}

/// Regression test: the process of a hard mount whose server was down went on for ever after `umount --force`.
#[test]
fn a_mount_that_is_gone_waits_for_a_silent_server_only_to_save_data() {
    let jukebox = |fixture: &Fixture, number| {
        fixture.server.plan(move |proc, _| match proc {
            _ if proc == number => Fault::Status(Status::JUKEBOX),
            _ => Fault::None,
        });
    };
    let write = |fixture: &Fixture| {
        let (_, file) = fixture.create(b"file");
        fixture.write(file, 0, vec![7; 100]);
        assert_eq!(fixture.core.unsaved_files(), 1);
        file
    };
    // Data that is not on the server.
    let unsaved = fixture();
    write(&unsaved);
    jukebox(&unsaved, nfs::Write::NUMBER);
    assert!(!ends(&unsaved, MANY, || 3));
    assert_eq!(unsaved.core.unsaved_files(), 1);
    // A server that answers.
    let answers = fixture();
    write(&answers);
    assert!(ends(&answers, 100, || 3));
    assert_eq!(answers.core.unsaved_files(), 0);
    // A request that nobody waits for any more.
    let left = fixture();
    left.core.spawn(std::future::pending());
    assert!(!ends(&left, 5, || 3));
    left.core.spawn(std::future::pending());
    assert!(ends(&left, 20, || 3));
}
