//! Progress while the owner is away.
//!
//! The owner's thread does the device's work when it polls. While it computes or blocks, peers
//! still must be able to read and write the memory offered to them; then a background thread takes
//! its place. What it costs the owner is a store and two loads for each poll or wait: the thread
//! looks at the owner's *presence* once in a [`TICK`], parks when nothing goes on, and takes over
//! only after a whole tick in which the owner neither polled nor waited.
//!
//! No wake-up is lost:
//! - *The owner waits while bytes are in the socket.* Whatever arrives after the last read that
//!   found nothing more makes a new edge, which stays in the owner's `epoll` until harvested. That
//!   holds for whichever thread did the read. An edge that tells of a FIN behind the bytes says so
//!   to the owner, who then reads to the end; `poll(2)` tells the thread of it again and again.
//! - *The thread takes bytes whose edge the owner has not harvested yet.* Their events are queued
//!   under the lock. Either [`State::arm`] finds them there and the owner does not wait, or the
//!   owner is armed already, which the thread sees under the same lock, and wakes it.
//! - *The thread parks as the owner comes back.* The owner changes its presence under the lock, and
//!   looks there whether the thread is parked. The thread says so under the lock as well, and only
//!   if the presence is still what it was: one of them sees the other. Taking over works the same
//!   way. The look once in a tick needs no lock: it misses a change for a tick at most.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use mio::unix::pipe;
use rustix::event::{PollFd, PollFlags};

use super::state::State;

/// How long the owner may be away before the thread takes over (up to twice this).
const TICK: Duration = Duration::from_millis(1);
/// After this many ticks in which the owner only waited, the thread parks. So an owner that waits
/// often does not have to unpark it often; and the threads of many devices that wait, of which other
/// work on the machine would feel every tick, sleep.
const QUIET_TICKS: u32 = 3;
/// The presence's bit that says that the owner waits; the others count its polls and waits.
const WAITING: u64 = 1;

/// What the owner's thread and the background thread share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Changed under the lock alone, as is `live`.
    presence: AtomicU64,
    /// Live connections, to be read without the lock.
    live: AtomicUsize,
    stop: AtomicBool,
    /// Ends the thread's waiting for sockets.
    call_off: pipe::Sender,
    called_off: pipe::Receiver,
    /// Ends the owner's waiting.
    wake: pipe::Sender,
}

impl Shared {
    pub(super) fn new(state: State, wake: pipe::Sender) -> io::Result<Self> {
        let (call_off, called_off) = pipe::new()?;
        Ok(Self {
            state: Mutex::new(state),
            presence: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            call_off,
            called_off,
            wake,
        })
    }

    /// The state. A panic of a thread that held it is that thread's; the state stays usable.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner polls, or begins to wait. Only the owner calls this, with the state locked.
    pub(super) fn present(&self, state: &State, waiting: bool) {
        let polls = self.presence.load(Relaxed) & !WAITING;
        let presence = polls.wrapping_add(2) | u64::from(waiting);
        self.presence.store(presence, Relaxed);
        if state.progress.taken {
            ring(&self.call_off);
        }
    }

    /// The owner is done with the state for now; `thread` is the background thread.
    pub(super) fn leave(&self, state: &mut State, thread: &Thread) {
        let live = state.live();
        if self.live.load(Relaxed) != live {
            self.live.store(live, Relaxed);
        }
        if live > 0 && std::mem::take(&mut state.progress.idle) {
            thread.unpark();
        }
    }

    pub(super) fn stop(&self, thread: &Thread) {
        self.stop.store(true, Relaxed);
        ring(&self.call_off);
        thread.unpark();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// The background thread.
    pub(super) fn run(&self) {
        let mut quiet = 0;
        while !self.is_stopped() {
            let before = self.presence.load(Relaxed);
            if self.live.load(Relaxed) == 0 || quiet >= QUIET_TICKS {
                self.park(before);
                quiet = 0;
                continue;
            }
            thread::park_timeout(TICK);
            if self.presence.load(Relaxed) != before {
                quiet = 0;
            } else if before & WAITING != 0 {
                quiet += 1;
            } else {
                self.take_over(before);
            }
        }
    }

    /// Sleeps until the owner wakes the thread, unless there is something to watch and the owner's
    /// presence has changed.
    fn park(&self, presence: u64) {
        let mut state = self.state();
        let watched = state.live() > 0 && self.presence.load(Relaxed) != presence;
        if watched || self.is_stopped() {
            return;
        }
        state.progress.idle = true;
        drop(state);
        thread::park();
        self.state().progress.idle = false;
    }

    /// Does the owner's work until its presence changes.
    fn take_over(&self, presence: u64) {
        let here = || self.presence.load(Relaxed) != presence || self.is_stopped();
        let mut ready = None;
        loop {
            let sockets = {
                let mut state = self.state();
                if here() {
                    break;
                }
                state.progress.taken = true;
                state.run_live(ready.as_deref());
                self.wake_if_armed(&state);
                self.live.store(state.live(), Relaxed);
                state.live_sockets()
            };
            if sockets.is_empty() {
                break;
            }
            let mut waits: Vec<PollFd<'_>> = sockets
                .iter()
                .map(|(_, socket, interest)| PollFd::new(&**socket, *interest))
                .collect();
            waits.push(PollFd::new(&self.called_off, PollFlags::IN));
            if let Err(error) = rustix::event::poll(&mut waits, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::warn!(%error, "cannot wait for connections");
                break;
            }
            let found = waits.iter().zip(&sockets);
            let found = found.filter(|(wait, _)| !wait.revents().is_empty());
            ready = Some(found.map(|(_, (index, ..))| *index).collect::<Vec<_>>());
        }
        let mut state = self.state();
        // Whoever rings does it under the lock, and only while this is so: no ring is left behind.
        state.progress.taken = false;
        hush(&self.called_off);
        // The owner came while events were made: it sees them, or armed before and is woken here.
        self.wake_if_armed(&state);
    }

    /// Tells an owner that waits of events that it did not cause.
    fn wake_if_armed(&self, state: &State) {
        if state.armed && !state.events.is_empty() {
            ring(&self.wake);
        }
    }
}

/// What the background thread does, as far as its owner must know.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// It is parked, or about to be.
    idle: bool,
    /// It does the owner's work.
    taken: bool,
}

/// Starts the background thread of a device.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<thread::JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name("iwarp".into())
        .spawn(move || shared.run())
}

/// Makes a pipe readable.
fn ring(mut pipe: &pipe::Sender) {
    match pipe.write(&[1]) {
        Ok(_) => {}
        // Full: it is readable for sure.
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => tracing::warn!(%error, "cannot wake a thread"),
    }
}

/// Empties a pipe.
pub(super) fn hush(mut pipe: &pipe::Receiver) {
    let mut bytes = [0; 64];
    while matches!(pipe.read(&mut bytes), Ok(n) if n > 0) {}
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::Options;
    use super::super::endpoint::Limits;
    use super::*;

    /// An owner that polls without a pause changes its presence whenever it has the lock: the thread
    /// would look for ever for a moment in which it has not.
    #[test]
    #[cfg_attr(miri, ignore = "opens pipes")]
    fn with_nothing_to_watch_the_thread_parks_whatever_the_owner_does() {
        let limits = Limits {
            send_wr: 1,
            recv_wr: 1,
            gather: 1,
            scatter: 1,
        };
        let (wake, _woken) = pipe::new().unwrap();
        let state = State::new(Options::default(), limits);
        let shared = Arc::new(Shared::new(state, wake).unwrap());
        shared.present(&shared.state(), false);
        let parking = Arc::clone(&shared);
        let thread = thread::spawn(move || parking.park(0));
        let start = Instant::now();
        while !shared.state().progress.idle {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "it does not park"
            );
        }
        shared.stop(thread.thread());
        thread.join().unwrap();
        assert!(!shared.state().progress.idle);
    }
}
