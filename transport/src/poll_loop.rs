//! The poll loop that a client's `Runtime` and a server share.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use mio::{Events, Poll, Token};
use rdma::{Clock, Poller, Time};

use crate::readiness::MioReadiness;
use crate::timer::Timer;

/// The number of the first source. The loop's own tokens are below `1 << 32`; source `n` has the
/// tokens from `n << 32` on.
const FIRST_SOURCE: usize = 1;
const TIMER: Token = Token(0);
const WAKER: Token = Token(1);
/// The maximum number of readiness events fetched from the operating system at a time.
const EVENTS: usize = 256;
/// The maximum number of turns in a row without fetching readiness events. A source that always has
/// work must not starve the others.
const TURNS_WITHOUT_LOOK: u32 = 64;

/// A participant in the poll loop of a `Runtime` or a server.
pub trait PollSource {
    /// Joins the poll loop. Called once, before the loop first waits.
    ///
    /// # Errors
    /// The error of the operating system.
    fn attach(&mut self, poller: Poller) -> io::Result<()>;

    /// Gives the source what wakes the loop that it has joined, for what happens on other threads. Called
    /// before the source is first polled. Does nothing by default.
    fn set_waker(&mut self, _: Waker) {}

    /// Reports a readiness event with the token `first_token + local`. `closed` has the same
    /// meaning as for [`rdma::Device::ready`].
    fn ready(&mut self, local: usize, closed: bool);

    /// Makes progress. Returns whether anything happened that the source's user may have to handle.
    fn poll(&mut self, now: Time) -> bool;

    /// Lets what was sent in this turn of the loop go out now. [`PollSource::poll`] and [`PollSource::arm`] do
    /// that too, so it is called only where neither follows soon. Several replies that a server sends in one message wait
    /// for them all the same. Does nothing by default.
    fn flush(&mut self) {}

    /// Asks to be woken through the poll loop. Returns false if there is already something to poll.
    fn arm(&mut self) -> bool;

    /// Prepares for a sleep in which the source's owner takes no events: asks to be woken like
    /// [`PollSource::arm`], but only because of work of the device: events that are queued for the owner do
    /// not count. Returns false if there is something to poll.
    fn arm_without_owner(&mut self) -> bool {
        true
    }

    /// Returns when to call [`PollSource::poll`] even if no readiness event comes.
    fn next_deadline(&self) -> Option<Time>;

    /// Tells whether the loop busy-polls: `poll` then has to look for arrivals without a readiness
    /// event.
    fn set_busy_poll(&mut self, on: bool);
}

/// Wakes a poll loop from any thread. This costs a system call only while the loop sleeps.
#[derive(Debug)]
pub struct Wake {
    woken: AtomicBool,
    sleeping: AtomicBool,
    /// `None` for a loop that never sleeps ([`PollLoop::simulated`]).
    waker: Option<mio::Waker>,
}

impl Wake {
    /// Wakes the loop now, or keeps it from falling asleep.
    pub fn wake(&self) {
        // Both flags are sequentially consistent: either this thread sees that the loop is about to
        // sleep, or the loop sees, after it has announced that, that it was woken. No wake-up is
        // lost.
        self.woken.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(waker) = &self.waker
            && let Err(error) = waker.wake()
        {
            tracing::error!(%error, "cannot wake a poll loop");
        }
    }

    /// Returns whether [`Wake::wake`] was called since the last [`Wake::take`].
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// Returns whether [`Wake::wake`] was called since the last call of this function, and resets
    /// the flag.
    pub fn take(&self) -> bool {
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

/// The id of a source in its [`PollLoop`]. It is not used again while the loop lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(usize);

struct Entry {
    id: SourceId,
    source: Rc<RefCell<dyn PollSource>>,
}

/// The operating system's part of a loop.
struct System {
    poll: Poll,
    events: Events,
    timer: Timer,
    /// The number of waits for readiness events.
    waits: u64,
}

/// The result of arming every source ([`PollLoop::arm`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// There is work already: take another turn instead of sleeping.
    Awake,
    /// There is no work until a source becomes ready, the loop is woken, or the given time comes.
    Until(Option<Time>),
}

/// Polls sources, and sleeps in `mio` when none of them has work.
///
/// A loop calls [`PollLoop::turn`] and, when that made no progress and the loop's owner has no work
/// either, [`PollLoop::wait`].
pub struct PollLoop {
    /// The operating system's part, or `None` in a simulation, which makes no system calls.
    system: Option<System>,
    clock: Clock,
    wake: Arc<Wake>,
    entries: Vec<Entry>,
    next_id: usize,
    busy_poll: bool,
    turns: u32,
    /// Whether sources were armed and have not been polled since.
    armed: bool,
}

impl PollLoop {
    /// Creates a loop without sources.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let events = Events::with_capacity(EVENTS);
        let system = System {
            poll,
            events,
            timer,
            waits: 0,
        };
        Ok(Self::with(Some(system), Some(waker), Clock::monotonic()))
    }

    /// Creates a loop that makes no system calls. The owner of `clock` decides when its turns are,
    /// and calls [`PollLoop::arm`] where [`PollLoop::wait`] would sleep. Its sources become ready
    /// by themselves and are not attached to a poller.
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
            armed: false,
        }
    }

    /// Returns the clock whose time the sources are given.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the handle that wakes the loop from other threads.
    #[must_use]
    pub fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Returns the number of system calls by which the loop has waited, or looked, for events. Those of its
    /// sources are not among them.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        let system = self.system.as_ref();
        system.map_or(0, |system| system.waits + system.timer.settings())
    }

    /// Adds a source.
    ///
    /// # Errors
    /// The error of [`PollSource::attach`].
    pub fn add(&mut self, source: Rc<RefCell<dyn PollSource>>) -> io::Result<SourceId> {
        let id = SourceId(self.next_id);
        if let Some(system) = &self.system {
            let poller = MioReadiness::poller(system.poll.registry(), id.0 << 32)?;
            source.borrow_mut().attach(poller)?;
        }
        let waker = Waker::from(Arc::clone(&self.wake));
        let mut joined = source.borrow_mut();
        joined.set_waker(waker);
        joined.set_busy_poll(self.busy_poll);
        drop(joined);
        self.next_id += 1;
        self.entries.push(Entry { id, source });
        Ok(id)
    }

    /// Removes a source.
    pub fn remove(&mut self, id: SourceId) {
        self.entries.retain(|entry| entry.id != id);
    }

    /// Turns busy polling on or off: with it, the loop polls all the time instead of sleeping.
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
        self.armed = false;
        let mut progress = false;
        for entry in &self.entries {
            progress |= entry.source.borrow_mut().poll(now);
        }
        progress
    }

    /// Lets what was sent in this turn go out, although the loop neither polls nor waits now.
    pub fn flush(&self) {
        for entry in &self.entries {
            entry.source.borrow_mut().flush();
        }
    }

    /// Returns whether sources were armed and have not been polled since. Until then they act as if
    /// the owner of the loop was asleep: their next event wakes it.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Sleeps until a source has work, `deadline` or the deadline of a source is reached, or the
    /// loop is woken. Returns at once if one of these holds already, and always with busy polling.
    pub fn wait(&mut self, deadline: Option<Time>) {
        if let Armed::Until(deadline) = self.arm(deadline) {
            self.sleep(deadline);
        }
    }

    /// Arms every source, so that its next event wakes the loop. Returns until when the loop may sleep: the
    /// earliest deadline of a source, or `deadline`.
    pub fn arm(&mut self, deadline: Option<Time>) -> Armed {
        if self.busy_poll {
            // The hint frees execution resources for the other hardware thread of the core.
            std::hint::spin_loop();
            return Armed::Awake;
        }
        if self.wake.is_woken() {
            // Not armed: an armed source assumes that the loop goes to sleep, and it will not.
            return Armed::Awake;
        }
        self.armed = true;
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

    /// Sleeps like [`PollLoop::wait`], for an owner that takes no events until another thread wakes it (a
    /// server with all jobs in use). Events that are queued for the owner do not prevent the sleep. New work
    /// of a device, such as a completion, ends it, so that devices make progress meanwhile.
    pub fn wait_for_wake(&mut self) {
        if let Armed::Until(deadline) = self.arm_without_owner() {
            self.sleep(deadline);
        }
    }

    /// Arms every source for an owner that takes no events ([`PollSource::arm_without_owner`]).
    /// Returns until when the loop may sleep.
    pub fn arm_without_owner(&mut self) -> Armed {
        if self.busy_poll {
            std::hint::spin_loop();
            return Armed::Awake;
        }
        self.armed = true;
        for entry in &self.entries {
            if !entry.source.borrow_mut().arm_without_owner() {
                return Armed::Awake;
            }
        }
        Armed::Until(self.next_deadline())
    }

    /// Returns the earliest deadline of all sources.
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

    /// Fetches readiness events from the operating system and passes them to their sources.
    fn look(&mut self, timeout: Option<Duration>) {
        self.turns = 0;
        let Some(system) = &mut self.system else {
            return;
        };
        system.waits += 1;
        let System { poll, events, .. } = system;
        if let Err(error) = poll.poll(events, timeout) {
            if error.kind() != io::ErrorKind::Interrupted {
                // This does not happen with a valid epoll descriptor. Continuing slowly is better
                // than failing calls that may still be answered.
                tracing::error!(%error, "waiting for events failed");
                std::thread::sleep(Duration::from_millis(1));
            }
            return;
        }
        for event in &*events {
            let Token(token) = event.token();
            let id = SourceId(token >> 32);
            // Entries are in ascending order of id, because new ones are appended.
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

/// Returns the earlier of two optional deadlines.
pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
