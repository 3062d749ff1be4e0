//! The runtime that drives futures, connections and devices on the calling thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{Either, select};
use rdma::{Clock, Time};

use crate::PollSource;
use crate::poll_loop::{Armed, PollLoop, SourceId, Wake};

/// A single-threaded runtime. [`Runtime::block_on`] drives one future and every attached source on
/// the calling thread. Clones refer to the same runtime.
///
/// There are no tasks to spawn: for many calls in flight, collect their futures in one
/// `futures_util::stream::FuturesUnordered`, or join them.
#[derive(Clone)]
pub struct Runtime {
    inner: Rc<Inner>,
}

struct Inner {
    poll_loop: RefCell<PollLoop>,
    wake: Arc<Wake>,
    waker: Waker,
    clock: Clock,
    /// The generator state for first XIDs in a simulation. `None`: the operating system's random
    /// numbers are used.
    seed: Option<Cell<u64>>,
    timers: Timers,
    /// Whether a future is being polled, after which the sources are polled.
    in_turn: Cell<bool>,
    /// Whether a source may have something to send since the sources were polled.
    sent: Cell<bool>,
    /// Sources to remove as soon as the loop is not borrowed.
    leaving: RefCell<Vec<SourceId>>,
}

impl Inner {
    /// Removes sources that were detached while they were being polled.
    #[cold]
    fn leave(&self) {
        for id in self.leaving.take() {
            self.poll_loop.borrow_mut().remove(id);
        }
    }
}

impl Runtime {
    /// Creates a runtime to which no transport is attached yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with(PollLoop::new()?, None))
    }

    /// Creates a runtime for a simulation. It never sleeps, takes the time from `clock`, and
    /// derives random numbers from `seed`. The code that sets the clock calls [`Runtime::step`].
    #[must_use]
    pub fn simulated(clock: Clock, seed: u64) -> Self {
        Self::with(PollLoop::simulated(clock), Some(Cell::new(seed)))
    }

    fn with(poll_loop: PollLoop, seed: Option<Cell<u64>>) -> Self {
        let wake = Arc::clone(poll_loop.wake());
        Self {
            inner: Rc::new(Inner {
                clock: poll_loop.clock().clone(),
                poll_loop: RefCell::new(poll_loop),
                waker: Waker::from(Arc::clone(&wake)),
                wake,
                seed,
                timers: Timers::default(),
                in_turn: Cell::new(false),
                sent: Cell::new(false),
                leaving: RefCell::new(Vec::new()),
            }),
        }
    }

    /// Returns the current time of the clock that sources are given.
    #[must_use]
    pub fn now(&self) -> Time {
        self.inner.clock.now()
    }

    /// Returns a random number that a peer cannot expect, for a client's first XID.
    pub(crate) fn random(&self) -> io::Result<u32> {
        if let Some(seed) = &self.inner.seed {
            // The high half of one step of Knuth's MMIX generator.
            let next = seed.get().wrapping_mul(6_364_136_223_846_793_005);
            seed.set(next.wrapping_add(1_442_695_040_888_963_407));
            return Ok((seed.get() >> 32) as u32);
        }
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(u32::from_ne_bytes(random))
    }

    /// Turns busy polling on or off: with it, [`Runtime::block_on`] polls all the time instead of
    /// sleeping, which lowers latency and fully uses one core. The setting applies to all present
    /// and future sources.
    pub fn set_busy_poll(&self, on: bool) {
        self.inner.poll_loop.borrow_mut().set_busy_poll(on);
    }

    /// Returns the number of system calls by which its loop has waited for events. Those of transports are in
    /// their counters.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        self.inner.poll_loop.borrow().system_calls()
    }

    /// Attaches a transport or another participant of the poll loop. [`crate::Client`] attaches its
    /// transport by itself.
    ///
    /// # Errors
    /// The error of [`PollSource::attach`].
    pub fn attach(&self, source: Rc<RefCell<dyn PollSource>>) -> io::Result<SourceId> {
        self.inner.poll_loop.borrow_mut().add(source)
    }

    /// Removes a source: at once or, while it is being polled, right afterwards.
    pub fn detach(&self, id: SourceId) {
        match self.inner.poll_loop.try_borrow_mut() {
            Ok(mut poll_loop) => poll_loop.remove(id),
            Err(_) => self.inner.leaving.borrow_mut().push(id),
        }
    }

    /// Runs a future to completion. Its wakers work from any thread.
    ///
    /// Must not be called from within a source. It may be called from within a future that another
    /// `block_on` of the same runtime drives; that future is not polled meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let inner = &*self.inner;
        let mut future = pin!(future);
        inner.wake.wake();
        loop {
            match self.turn(future.as_mut()) {
                Turn::Done(output) => {
                    // An outer `block_on` shares the flag, and its future may have been woken
                    // meanwhile.
                    inner.wake.wake();
                    return output;
                }
                Turn::Progress => {}
                // Returns at once if the future was woken since it was polled.
                Turn::Idle => inner.poll_loop.borrow_mut().wait(inner.timers.next()),
            }
        }
    }

    /// Does the work of [`Runtime::block_on`] between two sleeps, for a simulation: polls the
    /// future if it was woken, and polls every source, until no work is left. Before the first call
    /// for a future, call [`Runtime::wake`].
    ///
    /// Stops after `turns` turns at the latest, so that the caller can check invariants.
    pub fn step<F: Future + ?Sized>(
        &self,
        mut future: Pin<&mut F>,
        turns: u32,
    ) -> Stepped<F::Output> {
        for _ in 0..turns {
            match self.turn(future.as_mut()) {
                Turn::Done(output) => return Stepped::Done(output),
                Turn::Progress => {}
                Turn::Idle => {
                    let next = self.inner.timers.next();
                    let armed = self.inner.poll_loop.borrow_mut().arm(next);
                    if let Armed::Until(deadline) = armed {
                        return Stepped::Idle(deadline);
                    }
                }
            }
        }
        Stepped::Busy
    }

    /// Makes the next turn poll the future.
    pub fn wake(&self) {
        self.inner.wake.wake();
    }

    /// Returns whether the sources are polled soon, so that what a source has to send now can wait for more: the
    /// runtime is polling its future.
    pub(crate) fn will_poll(&self) -> bool {
        let inner = &*self.inner;
        let in_turn = inner.in_turn.get();
        if in_turn {
            inner.sent.set(true);
        }
        in_turn
    }

    fn turn<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Turn<F::Output> {
        let inner = &*self.inner;
        let mut progress = false;
        if inner.wake.is_woken() && inner.poll_loop.borrow().is_armed() {
            // Polled first, which disarms them. The future, or the caller of `block_on` once the future is
            // done, may compute for long. While a device is armed, its background thread leaves the work to
            // the owner, and RDMA Reads and Writes of peers would wait.
            progress = self.poll_sources();
        }
        if inner.wake.take() {
            let outer = inner.in_turn.replace(true);
            let polled = future.poll(&mut Context::from_waker(&inner.waker));
            inner.in_turn.set(outer);
            if let Poll::Ready(output) = polled {
                if inner.sent.take() {
                    // The caller may compute for long before anything polls the sources again.
                    inner.poll_loop.borrow().flush();
                }
                return Turn::Done(output);
            }
        }
        match self.poll_sources() || progress {
            true => Turn::Progress,
            false => Turn::Idle,
        }
    }

    /// Polls every source, and wakes the timers that are due. Returns whether a source made progress.
    fn poll_sources(&self) -> bool {
        let inner = &*self.inner;
        let now = self.now();
        let progress = inner.poll_loop.borrow_mut().turn(now);
        // A source may have sent something after it let the rest go out, such as the reply to a callback.
        inner.sent.set(progress);
        if !inner.leaving.borrow().is_empty() {
            inner.leave();
        }
        inner.timers.fire(now);
        progress
    }

    /// Returns a future that completes after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Returns a future that completes at `deadline`.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        Sleep {
            inner: Rc::clone(&self.inner),
            deadline,
            timer: None,
        }
    }

    /// Runs `future` for at most `limit`, then drops it.
    ///
    /// # Errors
    /// [`Elapsed`] if the future did not complete in time.
    pub async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        match select(pin!(future), self.sleep(limit)).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(((), _)) => Err(Elapsed { limit }),
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

/// The result of one turn of [`Runtime::block_on`].
enum Turn<T> {
    /// The future completed.
    Done(T),
    /// A source made progress.
    Progress,
    /// No source had work, but the future may have been woken.
    Idle,
}

/// The result of [`Runtime::step`].
#[derive(Debug, PartialEq, Eq)]
pub enum Stepped<T> {
    /// The future completed.
    Done(T),
    /// There is more work to do now.
    Busy,
    /// There is no work until a source has an event or, if a time is given, that time comes.
    Idle(Option<Time>),
}

/// The error of a future that did not complete in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not done after {limit:?}")]
pub struct Elapsed {
    /// The time limit.
    pub limit: Duration,
}

/// The timers of sleeping futures. The number distinguishes timers with the same deadline.
#[derive(Default)]
struct Timers {
    waiting: RefCell<BTreeMap<(Time, u64), Waker>>,
    serial: Cell<u64>,
}

impl Timers {
    fn next(&self) -> Option<Time> {
        Some(self.waiting.borrow().first_key_value()?.0.0)
    }

    /// Wakes every timer that is due. The map is not borrowed meanwhile, because a waker is foreign
    /// code.
    #[inline]
    fn fire(&self, now: Time) {
        if self.next().is_some_and(|deadline| deadline <= now) {
            self.fire_due(now);
        }
    }

    #[cold]
    fn fire_due(&self, now: Time) {
        while self.next().is_some_and(|deadline| deadline <= now) {
            let first = self.waiting.borrow_mut().pop_first();
            if let Some((_, waker)) = first {
                waker.wake();
            }
        }
    }
}

/// The future of [`Runtime::sleep`].
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    inner: Rc<Inner>,
    deadline: Time,
    timer: Option<(Time, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.inner.clock.now() >= self.deadline {
            return Poll::Ready(());
        }
        let timers = &self.inner.timers;
        let key = self.timer.unwrap_or_else(|| {
            let serial = timers.serial.get();
            timers.serial.set(serial + 1);
            (self.deadline, serial)
        });
        let old = timers
            .waiting
            .borrow_mut()
            .insert(key, context.waker().clone());
        drop(old);
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            let waker = self.inner.timers.waiting.borrow_mut().remove(&key);
            drop(waker);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures_util::future::{join, pending};

    use super::*;

    #[test]
    fn sleeps_are_exact_below_the_granularity_of_epoll() {
        let runtime = Runtime::new().unwrap();
        let mut late: Vec<Duration> = (0..50)
            .map(|_| {
                let start = runtime.now();
                runtime.block_on(runtime.sleep(Duration::from_micros(200)));
                let slept = runtime.now() - start;
                assert!(slept >= Duration::from_micros(200));
                slept
            })
            .collect();
        late.sort();
        // Rounding to epoll_wait's granularity would take a whole millisecond. Other processes may
        // delay some of the timers.
        assert!(late[0] < Duration::from_micros(900), "{late:?}");
    }

    /// In simulated time, a sleep ends exactly when the simulated clock reaches its deadline, and
    /// the clock never goes back.
    #[test]
    fn a_simulated_clock_decides_when_a_sleep_ends() {
        let clock = Clock::simulated();
        let runtime = Runtime::simulated(clock.clone(), 1);
        let mut sleep = pin!(runtime.sleep(Duration::from_secs(3600)));
        runtime.wake();
        let until = Time::ZERO + Duration::from_secs(3600);
        assert_eq!(runtime.step(sleep.as_mut(), 10), Stepped::Idle(Some(until)));
        clock.advance_to(Time::from_nanos(until.as_nanos() - 1));
        assert_eq!(runtime.step(sleep.as_mut(), 10), Stepped::Idle(Some(until)));
        clock.advance_to(until);
        assert_eq!(runtime.step(sleep.as_mut(), 10), Stepped::Done(()));
        clock.advance_to(Time::ZERO);
        assert_eq!(runtime.now(), until, "a clock is not put back");
    }

    #[test]
    fn a_simulated_runtime_draws_from_its_seed_alone() {
        let draw = |seed| {
            let runtime = Runtime::simulated(Clock::simulated(), seed);
            [runtime.random().unwrap(), runtime.random().unwrap()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(7)[0], draw(7)[1]);
    }

    #[test]
    fn is_woken_from_another_thread() {
        let runtime = Runtime::new().unwrap();
        let (sender, receiver) = futures_channel();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender(7);
        });
        assert_eq!(runtime.block_on(receiver), 7);
        thread.join().unwrap();
    }

    /// Creates a minimal one-shot channel: a slot, and the waker of its receiver.
    fn futures_channel() -> (impl FnOnce(u32) + Send, impl Future<Output = u32>) {
        let slot = Arc::new(std::sync::Mutex::new((None, None::<Waker>)));
        let other = Arc::clone(&slot);
        let send = move |value| {
            let waker = {
                let mut slot = other.lock().unwrap();
                slot.0 = Some(value);
                slot.1.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        let receive = std::future::poll_fn(move |context| {
            let mut slot = slot.lock().unwrap();
            slot.1 = Some(context.waker().clone());
            slot.0.map_or(Poll::Pending, Poll::Ready)
        });
        (send, receive)
    }

    #[test]
    fn a_time_out_ends_what_never_ends_and_leaves_no_timer() {
        let runtime = Runtime::new().unwrap();
        let limit = Duration::from_millis(5);
        let result = runtime.block_on(runtime.timeout(limit, pending::<()>()));
        assert_eq!(result, Err(Elapsed { limit }));
        let hour = Duration::from_secs(3600);
        assert_eq!(runtime.block_on(runtime.timeout(hour, async { 3 })), Ok(3));
        assert_eq!(runtime.inner.timers.next(), None);
    }

    #[test]
    fn sleeps_run_side_by_side_and_nest() {
        let runtime = Runtime::new().unwrap();
        let start = Instant::now();
        let short = runtime.sleep(Duration::from_millis(10));
        let nested = async {
            runtime.sleep(Duration::from_millis(20)).await;
            runtime.block_on(runtime.sleep(Duration::from_millis(5)));
        };
        runtime.block_on(join(short, nested));
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(25), "{took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
