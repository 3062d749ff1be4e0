//! Invalidations of the kernel's caches: it forgets the pages of files, or the attributes of objects.
//!
//! The kernel can invalidate a page only after the READ or WRITE request for it was answered, and the invalidation
//! blocks until then. A file whose READ the server does not answer must not delay the invalidation of other files,
//! for which requests wait ([`Core::until_invalidated`](crate::core::Core::until_invalidated)). So several threads
//! work, each on a different file. Attributes have threads of their own: the kernel forgets them at once, except
//! during an unmount, which waits for pages.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The maximum number of threads. If the invalidations of this many inodes are stuck, those of others wait. A thread is
/// started only when all others are busy.
const THREADS: usize = 128;
/// The maximum number of ranges of a queued inode. If there are more, all of the file is
/// invalidated.
const RANGES: usize = 256;

/// The inodes of which the kernel is to forget the pages, or the attributes, and the threads that see to it.
pub(crate) struct Invalidations(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when a queued inode can be taken, and when the mount ends.
    work_available: Condvar,
    /// Makes the kernel forget the pages of a range, or the attributes, of an inode, and waits for
    /// that.
    invalidate: Box<dyn Fn(u64, Range<u64>) + Send + Sync>,
    /// Called after each invalidation, with or without success.
    done: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    /// The number of the latest invalidation.
    last: u64,
    /// Inodes whose turn has not come, each once.
    queue: VecDeque<u64>,
    /// The invalidations of the queued inodes, by inode.
    queued: HashMap<u64, Queued>,
    /// Invalidations that are queued or have begun.
    unfinished: HashSet<u64>,
    /// Inodes that a thread is invalidating.
    busy: HashSet<u64>,
    /// The number of threads.
    threads: usize,
    /// The number of threads that wait on [`Shared::work_available`].
    idle: usize,
    /// Whether the mount has ended, and the threads are to end.
    closed: bool,
}

/// The invalidation of a queued inode.
struct Queued {
    number: u64,
    /// The parts of the file.
    ranges: Vec<Range<u64>>,
}

impl State {
    /// Removes the first queued inode that is not busy. Returns it and its invalidation.
    fn take(&mut self) -> Option<(u64, Queued)> {
        // Skips at most one inode for each thread: the queue has each inode once.
        let at = self.queue.iter().position(|ino| !self.busy.contains(ino))?;
        let ino = self.queue.remove(at)?;
        let queued = self.queued.remove(&ino)?;
        self.busy.insert(ino);
        Some((ino, queued))
    }

    fn has_more(&self) -> bool {
        self.queue.iter().any(|ino| !self.busy.contains(ino))
    }
}

impl Invalidations {
    /// Starts the first thread. `invalidate` makes the kernel forget pages or attributes of an inode and may
    /// block; `done` is called, on the same thread, after [`Invalidations::is_done`] has become true for
    /// an invalidation.
    ///
    /// # Errors
    /// The error of starting the thread.
    pub(crate) fn start(
        invalidate: impl Fn(u64, Range<u64>) + Send + Sync + 'static,
        done: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work_available: Condvar::new(),
            invalidate: Box::new(invalidate),
            done: Box::new(done),
        });
        let invalidations = Self(Arc::clone(&shared));
        let mut state = shared.state();
        shared.add_thread(&mut state)?;
        drop(state);
        Ok(invalidations)
    }

    /// Begins the invalidation of a range of an inode. Returns its number, which is that of an
    /// earlier call if it is still queued.
    pub(crate) fn begin(&self, ino: u64, range: Range<u64>) -> u64 {
        let mut state = self.0.state();
        if let Some(queued) = state.queued.get_mut(&ino) {
            let covers = |a: &Range<u64>, b: &Range<u64>| a.start <= b.start && b.end <= a.end;
            if !queued.ranges.iter().any(|other| covers(other, &range)) {
                queued.ranges.retain(|other| !covers(&range, other));
                queued.ranges.push(range);
                if queued.ranges.len() > RANGES {
                    queued.ranges.clear();
                    queued.ranges.push(0..u64::MAX);
                }
            }
            return queued.number;
        }
        state.last += 1;
        let number = state.last;
        state.queue.push_back(ino);
        let ranges = vec![range];
        state.queued.insert(ino, Queued { number, ranges });
        state.unfinished.insert(number);
        self.0.wake_or_start(&mut state);
        number
    }

    /// Returns whether an invalidation has ended, with or without success.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        !self.0.state().unfinished.contains(&number)
    }
}

impl Drop for Invalidations {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.work_available.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes or starts a thread if a queued inode is not busy.
    fn wake_or_start(self: &Arc<Self>, state: &mut State) {
        if !state.has_more() {
            return;
        }
        if state.idle > 0 {
            self.work_available.notify_one();
        } else if state.threads < THREADS
            && let Err(error) = self.add_thread(state)
        {
            // The existing threads work off the queue.
            tracing::warn!(%error, "no further thread to invalidate the kernel's caches");
        }
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let shared = Arc::clone(self);
        thread::Builder::new()
            .name("fuse-invalidate".into())
            .spawn(move || shared.work())?;
        state.threads += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.state();
        while !state.closed {
            let Some((ino, Queued { number, ranges })) = state.take() else {
                state.idle += 1;
                state = self
                    .work_available
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            // Several calls of `begin` may have notified this thread alone: the rest is passed on.
            self.wake_or_start(&mut state);
            drop(state);
            for range in ranges {
                (self.invalidate)(ino, range);
            }
            state = self.state();
            state.busy.remove(&ino);
            state.unfinished.remove(&number);
            drop(state);
            (self.done)();
            state = self.state();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Invalidations whose closure reports the inode and the range, and blocks for an inode until
    /// it is told to go on.
    struct Fixture {
        invalidations: Invalidations,
        begun: Receiver<(u64, Range<u64>)>,
        /// A message for each invalidation that is done.
        done: Receiver<()>,
        blocked: HashMap<u64, Sender<()>>,
    }

    const LONG: Duration = Duration::from_secs(20);

    fn blocking(inodes: impl IntoIterator<Item = u64>) -> Fixture {
        let (mut blocked, mut gates) = (HashMap::new(), HashMap::new());
        for ino in inodes {
            let (open, gate) = channel();
            blocked.insert(ino, open);
            gates.insert(ino, Mutex::new(gate));
        }
        let (begins, begun) = channel();
        let (ends, done) = channel();
        let invalidate = move |ino, range| {
            let _ = begins.send((ino, range));
            if let Some(gate) = gates.get(&ino) {
                let _ = gate.lock().unwrap().recv_timeout(LONG);
            }
        };
        let tell = move || {
            let _ = ends.send(());
        };
        let invalidations = Invalidations::start(invalidate, tell).unwrap();
        Fixture {
            invalidations,
            begun,
            done,
            blocked,
        }
    }

    impl Fixture {
        fn begin(&self, ino: u64) -> u64 {
            self.invalidations.begin(ino, 0..100)
        }

        fn begun(&self) -> u64 {
            self.begun.recv_timeout(LONG).unwrap().0
        }

        fn wait(&self, number: u64) {
            while !self.invalidations.is_done(number) {
                self.done.recv_timeout(LONG).unwrap();
            }
        }

        fn go_on(&self, ino: u64) {
            self.blocked[&ino].send(()).unwrap();
        }
    }

    #[test]
    fn a_file_whose_pages_cannot_be_forgotten_yet_holds_up_no_other() {
        let fixture = blocking([7]);
        assert!(fixture.invalidations.is_done(0));
        let stuck = fixture.begin(7);
        assert_eq!(fixture.begun(), 7);
        for ino in 10..40 {
            let number = fixture.begin(ino);
            fixture.wait(number);
            assert_eq!(fixture.begun(), ino);
        }
        assert!(!fixture.invalidations.is_done(stuck));
        fixture.go_on(7);
        fixture.wait(stuck);
    }

    #[test]
    fn later_changes_of_a_file_need_one_invalidation_after_the_one_that_has_begun() {
        let fixture = blocking([7]);
        let first = fixture.begin(7);
        assert_eq!(fixture.begun(), 7);
        let second = fixture.begin(7);
        assert_ne!(second, first);
        assert_eq!(fixture.begin(7), second);
        // Another file overtakes it.
        let other = fixture.begin(8);
        fixture.wait(other);
        assert_eq!(fixture.begun(), 8);
        fixture.go_on(7);
        fixture.wait(first);
        assert_eq!(fixture.begun(), 7);
        assert!(!fixture.invalidations.is_done(second));
        fixture.go_on(7);
        fixture.wait(second);
        let more = fixture.begun.recv_timeout(Duration::from_millis(50));
        assert!(more.is_err(), "{more:?}");
    }

    #[test]
    fn ranges_of_a_file_are_forgotten_together_and_each_once() {
        let fixture = blocking([7]);
        let begin = |range| fixture.invalidations.begin(7, range);
        begin(0..10);
        assert_eq!(fixture.begun(), 7);
        let second = begin(10..20);
        for range in [30..40, 12..15, 25..50] {
            assert_eq!(begin(range), second);
        }
        (0..3).for_each(|_| fixture.go_on(7));
        fixture.wait(second);
        let ranges: Vec<_> = fixture.begun.try_iter().collect();
        assert_eq!(ranges, [(7, 10..20), (7, 25..50)]);
        // However many there are, they take no more room.
        begin(0..10);
        assert_eq!(fixture.begun(), 7);
        let last = (0..=RANGES as u64 + 1)
            .map(|at| begin(at * 20..at * 20 + 10))
            .max();
        (0..3).for_each(|_| fixture.go_on(7));
        fixture.wait(last.unwrap());
        let ranges: Vec<_> = fixture.begun.try_iter().collect();
        assert_eq!(ranges, [(7, 0..u64::MAX)]);
    }

    #[test]
    fn many_files_wait_for_as_many_threads_as_there_may_be() {
        let all = 1..THREADS as u64 + 5;
        let fixture = blocking(all.clone());
        let numbers: Vec<u64> = all.clone().map(|ino| fixture.begin(ino)).collect();
        let mut begun: Vec<u64> = (0..THREADS).map(|_| fixture.begun()).collect();
        let short = Duration::from_millis(50);
        assert!(fixture.begun.recv_timeout(short).is_err(), "too many");
        all.for_each(|ino| fixture.go_on(ino));
        numbers.into_iter().for_each(|number| fixture.wait(number));
        begun.extend(fixture.begun.try_iter().map(|(ino, _)| ino));
        begun.sort_unstable();
        assert_eq!(begun, (1..THREADS as u64 + 5).collect::<Vec<_>>());
    }

    #[test]
    fn the_threads_end_with_the_queue() {
        let fixture = blocking(1..=4);
        let numbers: Vec<u64> = (1..=4).map(|ino| fixture.begin(ino)).collect();
        for _ in 1..=4 {
            fixture.begun();
        }
        // Three threads are idle at the end, and one is stuck.
        for (ino, number) in (1..=3).zip(numbers) {
            fixture.go_on(ino);
            fixture.wait(number);
        }
        drop(fixture.invalidations);
        fixture.blocked[&4].send(()).unwrap();
        // The closure goes with the last thread.
        let ended = fixture.begun.recv_timeout(LONG);
        assert_eq!(ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}
