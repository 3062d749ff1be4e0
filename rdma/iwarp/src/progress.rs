//! Progress while the owner does not poll.
//!
//! The owner's thread does the device's work when it polls. While it computes or blocks, peers must
//! still be able to read and write the memory offered to them, so a background thread takes over. (Between a
//! `Device::arm` that returned true and the next poll it rests, because the owner says that it waits.)
//! The owner maintains its *presence*: that it polls, has polled or waits. Decisions that follow
//! from it are made under the lock that a poll takes anyway. The thread reads the presence once per
//! tick without the lock, parks when there is nothing to do, and takes over only after a whole
//! tick in which the owner neither polled nor waited. A poll may take longer than a tick and does
//! not count as absence. Ticks become longer, up to [`LONGEST_TICK`], while the owner polls in each
//! of them, as the loop of a busy server does: a tick costs some ten microseconds of processor time,
//! and there is one thread for each loop. They are short again once the owner was absent or waited.
//!
//! No wake-up is lost:
//! - *The owner waits while bytes are in the socket.* Data that arrives after the last read that
//!   found no more makes a new edge, which stays in the owner's `epoll` until harvested, whichever
//!   thread did the read. An edge that reports a FIN behind the bytes tells the owner so, and it
//!   then reads to the end; for the thread, `poll(2)` reports the FIN again and again.
//! - *The thread takes bytes whose edge the owner has not harvested yet.* Their events are queued
//!   under the lock. Either [`State::arm`] finds them there and the owner does not wait, or the
//!   owner is already armed, which the thread sees under the same lock, and wakes it.
//! - *The thread parks as the owner returns.* The owner changes its presence, then takes the lock
//!   and checks whether the thread is parked. The thread makes and records its decision under the
//!   lock: either it sees that the owner polls, or the owner sees that it is parked. Taking over
//!   works the same way. Because the presence changes before the lock is taken, the thread cannot
//!   take the lock again and again ahead of an owner that has returned.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::Duration;

use mio::unix::pipe;
use rustix::event::{PollFd, PollFlags};

use super::state::State;

/// The shortest tick. The thread takes over after the owner has been absent for at least one tick and at
/// most about two.
const TICK: Duration = Duration::from_millis(1);
/// The longest tick. A peer waits for up to about twice this when an owner that has polled all the time
/// becomes absent.
const LONGEST_TICK: Duration = Duration::from_millis(8);
/// Ticks become twice as long after the owner has polled in this many consecutive ticks.
const BUSY_TICKS: u32 = 8;
/// The thread parks once the owner has only waited for this long. If it parked at once, an owner that
/// waits often would unpark it often; if much later, the ticks of all waiting devices would disturb other
/// work on the machine.
const QUIET: Duration = Duration::from_millis(3);
/// The bit of the presence that says that the owner waits. The other bits change with every poll
/// and wait.
const WAITING: u64 = 1;

/// The state that the owner's thread and the background thread share.
pub(super) struct Shared {
    state: Mutex<State>,
    presence: AtomicU64,
    /// Number of live connections, readable without the lock and changed under it.
    live: AtomicUsize,
    stop: AtomicBool,
    /// Interrupts the thread's wait for sockets.
    interrupt: pipe::Sender,
    interrupted: pipe::Receiver,
    /// Interrupts the owner's wait.
    wake: pipe::Sender,
}

impl Shared {
    pub(super) fn new(state: State, wake: pipe::Sender) -> io::Result<Self> {
        let (interrupt, interrupted) = pipe::new()?;
        Ok(Self {
            state: Mutex::new(state),
            presence: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            interrupt,
            interrupted,
            wake,
        })
    }

    /// Locks the state. If a thread panicked while holding the lock, the state stays usable.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the owner polls, has polled, or begins to wait. Only the owner calls this:
    /// before it takes the lock for a poll, and under the lock otherwise.
    pub(super) fn present(&self, waiting: bool) {
        let polls = self.presence.load(Relaxed) & !WAITING;
        let presence = polls.wrapping_add(2) | u64::from(waiting);
        self.presence.store(presence, Relaxed);
    }

    /// Interrupts the thread if it has taken over. Called by the owner with the lock held.
    pub(super) fn interrupt(&self, state: &mut State) {
        if state.progress.taken {
            state.counters.system_calls += signal_pipe(&self.interrupt);
        }
    }

    /// Ends the owner's use of the state for now. Returns true if the thread must be unparked,
    /// preferably without the lock, which it takes at once.
    #[must_use]
    pub(super) fn leave(&self, state: &mut State) -> bool {
        // The owner was present until now, which may have been for longer than a tick.
        self.present(false);
        let live = state.live();
        if self.live.load(Relaxed) != live {
            self.live.store(live, Relaxed);
        }
        live > 0 && std::mem::take(&mut state.progress.idle)
    }

    pub(super) fn stop(&self, thread: &Thread) {
        self.stop.store(true, Relaxed);
        signal_pipe(&self.interrupt);
        thread.unpark();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Runs the background thread.
    pub(super) fn run(&self) {
        let mut pace = Pace::default();
        while !self.is_stopped() {
            let before = self.presence.load(Relaxed);
            if self.live.load(Relaxed) == 0 || pace.quiet >= QUIET {
                self.park();
                pace = Pace::default();
                continue;
            }
            thread::park_timeout(pace.tick);
            if self.presence.load(Relaxed) != before {
                pace.polled();
            } else if before & WAITING != 0 {
                pace.waited();
            } else {
                self.take_over(before);
                pace = Pace::default();
            }
        }
    }

    fn is_waiting(&self) -> bool {
        self.presence.load(Relaxed) & WAITING != 0
    }

    /// Sleeps until the owner wakes the thread, if there are no live connections or the owner waits
    /// and so watches them itself.
    fn park(&self) {
        let mut state = self.state();
        self.live.store(state.live(), Relaxed);
        if (state.live() > 0 && !self.is_waiting()) || self.is_stopped() {
            return;
        }
        state.progress.idle = true;
        drop(state);
        thread::park();
        self.state().progress.idle = false;
    }

    /// Does the owner's work until its presence changes.
    fn take_over(&self, presence: u64) {
        if let Err(TryLockError::WouldBlock) = self.state.try_lock() {
            // The owner holds the lock, maybe in a long poll.
            return;
        }
        let mut ready: Option<Vec<usize>> = None;
        loop {
            let mut state = self.state();
            if self.presence.load(Relaxed) != presence || self.is_stopped() {
                return self.give_back(&mut state);
            }
            state.progress.taken = true;
            state.run_live(ready.as_deref());
            self.wake_if_armed(&mut state);
            self.live.store(state.live(), Relaxed);
            let sockets = state.live_sockets();
            if sockets.is_empty() {
                return self.give_back(&mut state);
            }
            // The wait below.
            state.counters.system_calls += 1;
            drop(state);
            let mut waits: Vec<PollFd<'_>> = sockets
                .iter()
                .map(|(_, socket, interest)| PollFd::new(&**socket, *interest))
                .collect();
            waits.push(PollFd::new(&self.interrupted, PollFlags::IN));
            if let Err(error) = rustix::event::poll(&mut waits, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::warn!(%error, "cannot wait for connections");
                return self.give_back(&mut self.state());
            }
            if self.presence.load(Relaxed) != presence {
                // The owner wants the lock and must not wait for another iteration of this loop.
                return self.give_back(&mut self.state());
            }
            let found = waits.iter().zip(&sockets);
            let found = found.filter(|(wait, _)| !wait.revents().is_empty());
            ready = Some(found.map(|(_, (index, ..))| *index).collect());
        }
    }

    /// Returns the work to the owner.
    fn give_back(&self, state: &mut State) {
        // The pipe is written only under the lock and only while the thread has taken over, so no
        // byte is left behind.
        state.progress.taken = false;
        state.counters.system_calls += drain_pipe(&self.interrupted);
        // If the owner returned while events were made, it sees them; if it was armed before, it is
        // woken here.
        self.wake_if_armed(state);
    }

    /// Wakes a waiting owner if there are events.
    fn wake_if_armed(&self, state: &mut State) {
        if state.armed && !state.events.is_empty() {
            state.woken = true;
            state.counters.system_calls += signal_pipe(&self.wake);
        }
    }
}

/// The length of the thread's ticks.
#[derive(Debug, PartialEq, Eq)]
struct Pace {
    tick: Duration,
    /// Number of consecutive ticks of this length in which the owner polled.
    busy: u32,
    /// How long the owner has only waited.
    quiet: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            tick: TICK,
            busy: 0,
            quiet: Duration::ZERO,
        }
    }
}

impl Pace {
    /// Records a tick in which the owner polled.
    fn polled(&mut self) {
        self.quiet = Duration::ZERO;
        self.busy += 1;
        if self.busy >= BUSY_TICKS {
            self.busy = 0;
            self.tick = LONGEST_TICK.min(self.tick * 2);
        }
    }

    /// Records a tick in which the owner only waited.
    fn waited(&mut self) {
        self.quiet += self.tick;
        self.busy = 0;
        self.tick = TICK;
    }
}

/// Starts the background thread of a device.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<thread::JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name("iwarp".into())
        .spawn(move || shared.run())
}

/// Makes a pipe readable. Returns the number of system calls made.
fn signal_pipe(mut pipe: &pipe::Sender) -> u64 {
    match pipe.write(&[1]) {
        Ok(_) => {}
        // A full pipe is already readable.
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => tracing::warn!(%error, "cannot wake a thread"),
    }
    1
}

/// Empties a pipe. Returns the number of system calls made.
pub(super) fn drain_pipe(mut pipe: &pipe::Receiver) -> u64 {
    let mut bytes = [0; 64];
    let mut reads = 1;
    while matches!(pipe.read(&mut bytes), Ok(n) if n > 0) {
        reads += 1;
    }
    reads
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::Options;
    use super::super::endpoint::Limits;
    use super::*;

    fn shared(live: usize) -> Arc<Shared> {
        let limits = Limits {
            send_wr: 1,
            recv_wr: 1,
            gather: 1,
            scatter: 1,
        };
        let mut state = State::new(Options::default(), limits);
        state.live = live;
        let (wake, _) = pipe::new().unwrap();
        Arc::new(Shared::new(state, wake).unwrap())
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// An owner that polls without a pause has always just polled when the thread gets the lock.
    #[test]
    #[cfg_attr(miri, ignore = "opens pipes")]
    fn the_thread_parks_without_live_connections_whatever_the_owner_does() {
        let shared = shared(0);
        shared.present(false);
        let parking = Arc::clone(&shared);
        let thread = thread::spawn(move || parking.park());
        wait_until(|| shared.state().progress.idle);
        shared.stop(thread.thread());
        thread.join().unwrap();
        assert!(!shared.state().progress.idle);
    }

    /// The thread had decided to park; then the owner polled and went away.
    #[test]
    #[cfg_attr(miri, ignore = "opens pipes")]
    fn the_thread_does_not_park_while_the_owner_is_absent() {
        let shared = shared(1);
        shared.present(true);
        shared.present(false);
        let parking = Arc::clone(&shared);
        let thread = thread::spawn(move || parking.park());
        wait_until(|| thread.is_finished());
        assert_eq!(shared.live.load(Relaxed), 1, "and it looks again in a tick");
    }

    #[test]
    fn ticks_are_long_while_the_owner_polls_in_each_and_short_once_it_has_not() {
        let mut pace = Pace::default();
        let mut ticks = 0;
        while pace.tick < LONGEST_TICK {
            pace.polled();
            ticks += 1;
        }
        assert_eq!(ticks, 3 * BUSY_TICKS);
        for _ in 0..2 * BUSY_TICKS {
            pace.polled();
        }
        assert_eq!(pace.tick, LONGEST_TICK);
        pace.waited();
        assert_eq!(pace.tick, TICK);
        assert!(pace.quiet >= QUIET, "a long tick suffices to park");
        pace.polled();
        assert_eq!(pace.quiet, Duration::ZERO);
    }

    /// A poll that writes much data to TCP takes longer than a tick.
    #[test]
    #[cfg_attr(miri, ignore = "opens pipes")]
    fn an_owner_in_a_long_poll_is_not_away() {
        let shared = shared(1);
        shared.live.store(1, Relaxed);
        shared.present(false);
        let before = shared.presence.load(Relaxed);
        let mut state = shared.state();
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || other.take_over(before));
        // The thread does not wait for the lock.
        wait_until(|| thread.is_finished());
        assert!(!shared.leave(&mut state));
        drop(state);
        // An owner that has just released the lock does not count as absent either. (There is no
        // socket, so taking over would show in `live`.)
        shared.state().live = 0;
        shared.take_over(before);
        assert_eq!(shared.live.load(Relaxed), 1);
        shared.take_over(shared.presence.load(Relaxed));
        assert_eq!(shared.live.load(Relaxed), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens pipes")]
    fn the_thread_sleeps_while_the_owner_waits_and_is_woken_by_its_return() {
        let shared = shared(1);
        shared.live.store(1, Relaxed);
        shared.present(true);
        let thread = spawn(&shared).unwrap();
        wait_until(|| shared.state().progress.idle);
        thread::sleep(4 * TICK);
        assert!(shared.state().progress.idle, "it stays asleep");
        shared.present(false);
        let parked = shared.leave(&mut shared.state());
        assert!(parked);
        thread.thread().unpark();
        // Afterwards the owner is absent, and the thread takes over in the end. There is no socket,
        // so it returns the work at once, over and over.
        wait_until(|| shared.live.load(Relaxed) == 1 && !shared.state().progress.idle);
        assert!(!shared.leave(&mut shared.state()), "only once");
        shared.stop(thread.thread());
        thread.join().unwrap();
    }
}
