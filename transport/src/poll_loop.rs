//! Waiting: what a client's `Runtime` and a server's loop have in common.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::{Events, Poll, Token};
use rdma::{Clock, Time};

use crate::Source;
use crate::readiness::MioReadiness;
use crate::timer::Timer;

/// The loop's own tokens are below this; source `n` has those from `n << 32` on, `n` from 1.
const FIRST_SOURCE: usize = 1;
const TIMER: Token = Token(0);
const WAKER: Token = Token(1);
/// Readiness events taken from the operating system at a time.
const EVENTS: usize = 256;
/// Turns in a row without a look at the operating system's readiness events. A source that always
/// has something to do must not starve the others.
const TURNS_WITHOUT_LOOK: u32 = 64;

/// Wakes a loop, from any thread. Costs a system call only while the loop sleeps.
#[derive(Debug)]
pub struct Wake {
    woken: AtomicBool,
    sleeping: AtomicBool,
    /// Nothing for a loop that never sleeps ([`PollLoop::simulated`]).
    waker: Option<mio::Waker>,
}

impl Wake {
    /// Wakes the loop now, or keeps it from falling asleep.
    pub fn wake(&self) {
        // Both flags are sequentially consistent: either this sees that the loop is about to
        // sleep, or the loop sees, after saying so, that it was woken. No wake-up is lost.
        self.woken.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(waker) = &self.waker
            && let Err(error) = waker.wake()
        {
            tracing::error!(%error, "cannot wake a poll loop");
        }
    }

    /// Whether it was woken since the last time [`Wake::take`] was asked.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// Whether it was woken since the last time this was asked.
    pub(crate) fn take(&self) -> bool {
        self.woken.load(Ordering::SeqCst) && self.woken.swap(false, Ordering::SeqCst)
    }
}

impl std::task::Wake for Wake {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Self::wake(self);
    }
}

/// A source's name in its [`PollLoop`]. Not reused while the loop lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(usize);

struct Entry {
    id: SourceId,
    source: Rc<RefCell<dyn Source>>,
}

/// What a loop sleeps in.
struct System {
    poll: Poll,
    events: Events,
    timer: Timer,
}

/// What a loop's owner may do when every source is armed ([`PollLoop::arm`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// There is something to do already: take another turn.
    Awake,
    /// Nothing to do until a source becomes ready, the loop is woken, or this time, if any, comes.
    Until(Option<Time>),
}

/// Steps sources, and sleeps in `mio` when none has anything to do.
///
/// One turn of a loop: [`PollLoop::turn`]; when that made no progress and the loop's owner has
/// nothing to do either, [`PollLoop::wait`].
pub struct PollLoop {
    /// Nothing when a simulation decides when the next turn is.
    system: Option<System>,
    clock: Clock,
    wake: Arc<Wake>,
    entries: Vec<Entry>,
    next_id: usize,
    busy_poll: bool,
    turns: u32,
}

impl PollLoop {
    /// A loop without sources.
    ///
    /// # Errors
    /// What the operating system refused.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let events = Events::with_capacity(EVENTS);
        let system = System {
            poll,
            events,
            timer,
        };
        Ok(Self::with(Some(system), Some(waker), Clock::monotonic()))
    }

    /// A loop that touches no operating system: whoever owns `clock` decides when its turns are,
    /// and uses [`PollLoop::arm`] where [`PollLoop::wait`] would sleep. Its sources become ready by
    /// themselves and are not attached to anything.
    #[must_use]
    pub fn simulated(clock: Clock) -> Self {
        Self::with(None, None, clock)
    }

    fn with(system: Option<System>, waker: Option<mio::Waker>, clock: Clock) -> Self {
        Self {
            system,
            clock,
            wake: Arc::new(Wake {
                woken: AtomicBool::new(false),
                sleeping: AtomicBool::new(false),
                waker,
            }),
            entries: Vec::new(),
            next_id: FIRST_SOURCE,
            busy_poll: false,
            turns: 0,
        }
    }

    /// The clock that sources are to be given the time of.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What wakes it from other threads.
    #[must_use]
    pub fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Takes a source in.
    ///
    /// # Errors
    /// What [`Source::attach`] says.
    pub fn add(&mut self, source: Rc<RefCell<dyn Source>>) -> io::Result<SourceId> {
        let id = SourceId(self.next_id);
        if let Some(system) = &self.system {
            let poller = MioReadiness::poller(system.poll.registry(), id.0 << 32)?;
            source.borrow_mut().attach(poller)?;
        }
        source.borrow_mut().set_busy_poll(self.busy_poll);
        self.next_id += 1;
        self.entries.push(Entry { id, source });
        Ok(id)
    }

    /// Lets go of a source.
    pub fn remove(&mut self, id: SourceId) {
        self.entries.retain(|entry| entry.id != id);
    }

    /// Whether to look for arrivals all the time instead of sleeping.
    pub fn set_busy_poll(&mut self, on: bool) {
        self.busy_poll = on;
        for entry in &self.entries {
            entry.source.borrow_mut().set_busy_poll(on);
        }
    }

    /// Polls every source once. Returns whether any made progress.
    pub fn turn(&mut self, now: Time) -> bool {
        self.turns += 1;
        if self.turns >= TURNS_WITHOUT_LOOK {
            self.look(Some(Duration::ZERO));
        }
        let mut progress = false;
        for entry in &self.entries {
            progress |= entry.source.borrow_mut().poll(now);
        }
        progress
    }

    /// Sleeps until a source has something to do, `deadline` or a source's own deadline is
    /// reached, or the loop is woken. Returns at once when that is the case already, and always
    /// when busy-polling.
    pub fn wait(&mut self, deadline: Option<Time>) {
        if let Armed::Until(deadline) = self.arm(deadline) {
            self.sleep(deadline);
        }
    }

    /// Has every source wake the loop at its next event, and says how long there is nothing to do
    /// otherwise: at most until `deadline`.
    pub fn arm(&mut self, deadline: Option<Time>) -> Armed {
        if self.busy_poll {
            // The processor's other thread, if it has one, is not to pay for this one's spinning.
            std::hint::spin_loop();
            return Armed::Awake;
        }
        let mut deadline = deadline;
        for entry in &self.entries {
            let mut source = entry.source.borrow_mut();
            if !source.arm() {
                return Armed::Awake;
            }
            deadline = earlier(deadline, source.next_deadline());
        }
        match self.wake.is_woken() {
            true => Armed::Awake,
            false => Armed::Until(deadline),
        }
    }

    /// As [`PollLoop::wait`], but sleeps on although sources have something to tell: for an owner
    /// that cannot take anything more until it is woken.
    pub fn wait_for_wake(&mut self) {
        let deadline = self.next_deadline();
        self.sleep(deadline);
    }

    /// The earliest deadline of a source.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let sources = self.entries.iter().map(|entry| entry.source.borrow());
        sources.filter_map(|source| source.next_deadline()).min()
    }

    fn sleep(&mut self, deadline: Option<Time>) {
        let Some(system) = &mut self.system else {
            return;
        };
        self.wake.sleeping.store(true, Ordering::SeqCst);
        if self.wake.is_woken() {
            self.wake.sleeping.store(false, Ordering::SeqCst);
            return;
        }
        let now = self.clock.now();
        let timeout = deadline.and_then(|deadline| system.timer.timeout(deadline, now));
        self.look(timeout);
        self.wake.sleeping.store(false, Ordering::SeqCst);
    }

    /// Takes readiness events from the operating system and hands them to their sources.
    fn look(&mut self, timeout: Option<Duration>) {
        self.turns = 0;
        let Some(System { poll, events, .. }) = &mut self.system else {
            return;
        };
        if let Err(error) = poll.poll(events, timeout) {
            if error.kind() != io::ErrorKind::Interrupted {
                // Not a thing that happens to a valid epoll descriptor. Going on slowly is better
                // than ending calls that may still be answered.
                tracing::error!(%error, "waiting for events failed");
                std::thread::sleep(Duration::from_millis(1));
            }
            return;
        }
        for event in &*events {
            let Token(token) = event.token();
            let id = SourceId(token >> 32);
            // Entries are in ascending order of id: new ones go to the end.
            if let Ok(at) = self.entries.binary_search_by_key(&id.0, |entry| entry.id.0) {
                let local = token & 0xffff_ffff;
                let closed = event.is_read_closed() || event.is_error();
                self.entries[at].source.borrow_mut().ready(local, closed);
            }
        }
    }
}

impl std::fmt::Debug for PollLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollLoop")
            .field("sources", &self.entries.len())
            .field("busy_poll", &self.busy_poll)
            .finish_non_exhaustive()
    }
}

/// The earlier of two deadlines, either of which may be absent.
pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
