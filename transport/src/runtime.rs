//! Drives futures, connections and devices from the calling thread.

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

use crate::Source;
use crate::poll_loop::{Armed, PollLoop, SourceId, Wake};

/// A single-threaded runtime: [`Runtime::block_on`] drives one future, and every source that takes
/// part, on the calling thread. Cloning gives another handle to the same one.
///
/// There are no tasks to spawn: many calls in flight are many futures in one
/// `futures_util::stream::FuturesUnordered`, or joined.
#[derive(Clone)]
pub struct Runtime {
    inner: Rc<Inner>,
}

struct Inner {
    poll_loop: RefCell<PollLoop>,
    wake: Arc<Wake>,
    waker: Waker,
    clock: Clock,
    /// What first XIDs are drawn from in a simulation; nothing: the operating system.
    seed: Option<Cell<u64>>,
    timers: Timers,
    /// Sources to let go of once nothing steps them.
    leaving: RefCell<Vec<SourceId>>,
}

impl Inner {
    /// Lets go of sources that were detached while they were stepped.
    #[cold]
    fn leave(&self) {
        for id in self.leaving.take() {
            self.poll_loop.borrow_mut().remove(id);
        }
    }
}

impl Runtime {
    /// A runtime without sources.
    ///
    /// # Errors
    /// What the operating system refused.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with(PollLoop::new()?, None))
    }

    /// A runtime in a simulation: it never sleeps, takes the time from `clock` and what has to be
    /// random from `seed`. Whoever sets the clock calls [`Runtime::step`].
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
                leaving: RefCell::new(Vec::new()),
            }),
        }
    }

    /// The time now, on the clock that sources are given.
    #[must_use]
    pub fn now(&self) -> Time {
        self.inner.clock.now()
    }

    /// A number that a peer does not expect, for a client's first XID.
    pub(crate) fn random(&self) -> io::Result<u32> {
        if let Some(seed) = &self.inner.seed {
            // The high half of a step of Knuth's MMIX generator.
            let next = seed.get().wrapping_mul(6_364_136_223_846_793_005);
            seed.set(next.wrapping_add(1_442_695_040_888_963_407));
            return Ok((seed.get() >> 32) as u32);
        }
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(u32::from_ne_bytes(random))
    }

    /// Whether [`Runtime::block_on`] looks for arrivals all the time instead of sleeping: lower
    /// latency, one core fully used. For the sources of now and of later.
    pub fn set_busy_poll(&self, on: bool) {
        self.inner.poll_loop.borrow_mut().set_busy_poll(on);
    }

    /// Takes a source in. [`crate::Client`] does this by itself.
    ///
    /// # Errors
    /// What [`Source::attach`] says.
    pub fn attach(&self, source: Rc<RefCell<dyn Source>>) -> io::Result<SourceId> {
        self.inner.poll_loop.borrow_mut().add(source)
    }

    /// Lets go of a source, now or, while it is being stepped, right after.
    pub fn detach(&self, id: SourceId) {
        match self.inner.poll_loop.try_borrow_mut() {
            Ok(mut poll_loop) => poll_loop.remove(id),
            Err(_) => self.inner.leaving.borrow_mut().push(id),
        }
    }

    /// Runs a future to its end. Wakers given to it work from any thread.
    ///
    /// Not to be called from within a source. It can be called from within a future that another
    /// `block_on` of the same runtime drives; that future is polled no further meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let inner = &*self.inner;
        let mut future = pin!(future);
        inner.wake.wake();
        loop {
            match self.turn(future.as_mut()) {
                Turn::Done(output) => {
                    // An outer `block_on` shares the flag, and may have been woken meanwhile.
                    inner.wake.wake();
                    return output;
                }
                Turn::Progress => {}
                // Returns at once when the waker was used since.
                Turn::Idle => inner.poll_loop.borrow_mut().wait(inner.timers.next()),
            }
        }
    }

    /// What [`Runtime::block_on`] does between two sleeps, for a simulation: polls the future if it
    /// was woken, and steps every source, until there is nothing left to do now. The first call for
    /// a future must come after [`Runtime::wake`].
    ///
    /// Stops after `turns` turns in any case, so that the caller can look at what happened.
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

    /// Has the future polled in the next turn.
    pub fn wake(&self) {
        self.inner.wake.wake();
    }

    fn turn<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Turn<F::Output> {
        let inner = &*self.inner;
        if inner.wake.take()
            && let Poll::Ready(output) = future.poll(&mut Context::from_waker(&inner.waker))
        {
            return Turn::Done(output);
        }
        let now = self.now();
        let progress = inner.poll_loop.borrow_mut().turn(now);
        if !inner.leaving.borrow().is_empty() {
            inner.leave();
        }
        inner.timers.fire(now);
        match progress {
            true => Turn::Progress,
            false => Turn::Idle,
        }
    }

    /// Completes after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Completes at `deadline`.
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
    /// [`Elapsed`] when it did not end in time.
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

/// What one turn of [`Runtime::block_on`] did.
enum Turn<T> {
    /// The future ended.
    Done(T),
    /// A source made progress.
    Progress,
    /// No source had anything to do; but the future may have been woken.
    Idle,
}

/// What [`Runtime::step`] did.
#[derive(Debug, PartialEq, Eq)]
pub enum Stepped<T> {
    /// The future ended.
    Done(T),
    /// There is more to do now.
    Busy,
    /// There is nothing to do until a source has an event or, if one is given, this time comes.
    Idle(Option<Time>),
}

/// A future did not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not done after {limit:?}")]
pub struct Elapsed {
    /// The time it had.
    pub limit: Duration,
}

/// What sleeping futures wait for. The number keeps two with the same deadline apart.
#[derive(Default)]
struct Timers {
    waiting: RefCell<BTreeMap<(Time, u64), Waker>>,
    serial: Cell<u64>,
}

impl Timers {
    fn next(&self) -> Option<Time> {
        Some(self.waiting.borrow().first_key_value()?.0.0)
    }

    /// Wakes everything that is due. Not while the map is borrowed: a waker is foreign code.
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

/// See [`Runtime::sleep`].
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
        // A whole millisecond is what epoll_wait would make of it; other processes may delay some.
        assert!(late[0] < Duration::from_micros(900), "{late:?}");
    }

    /// The same futures, and no time passes but the simulation's.
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

    /// The least channel there is: a slot, and the waker of whoever waits for it.
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
