//! The loop that runs the file system: requests come from the threads that read FUSE's device, and each
//! becomes a future on this one.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;

use crate::core::write_behind::INTERVAL;
use crate::core::{Connect, Core, Task};
use crate::interrupts::is_killed;

/// The period of the loop's timer. Each tick looks for killed processes, for data that was read ahead and
/// is not wanted, and for objects that nobody looked up, and starts write-back if [`INTERVAL`] has passed.
const LOOK: Duration = Duration::from_secs(1);

/// How long the loop waits, once nobody can use the mount any more and all written data is on the
/// server's stable storage, for a server that answers nothing.
const SILENCE: Duration = Duration::from_secs(10);

/// A request: it makes the future that answers it.
pub(crate) type Job<C> = Box<dyn FnOnce(&Rc<Core<C>>) -> Task + Send>;

struct State<C: Connect> {
    jobs: VecDeque<Job<C>>,
    closed: bool,
    waker: Option<Waker>,
}

/// The requests that have arrived.
pub(crate) struct Queue<C: Connect>(Mutex<State<C>>);

impl<C: Connect> Queue<C> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State {
            jobs: VecDeque::new(),
            closed: false,
            waker: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, from any thread.
    pub(crate) fn push(&self, job: Job<C>) {
        Self::add(self.state(), job);
    }

    /// Adds a request unless the queue is closed, from any thread. Returns whether it did.
    pub(crate) fn try_push(&self, job: Job<C>) -> bool {
        let state = self.state();
        let open = !state.closed;
        if open {
            Self::add(state, job);
        }
        open
    }

    fn add(mut state: MutexGuard<'_, State<C>>, job: Job<C>) {
        state.jobs.push_back(job);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the loop once all requests are answered, from any thread.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the number of requests that nobody has taken.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state().jobs.len()
    }

    /// Takes all requests, or leaves a waker if there are none. Returns whether more may come.
    fn take(&self, into: &mut VecDeque<Job<C>>, context: &Context<'_>) -> bool {
        let mut state = self.state();
        std::mem::swap(&mut state.jobs, into);
        if into.is_empty() {
            state.waker = Some(context.waker().clone());
        }
        !state.closed
    }
}

/// Futures in progress.
struct Running<C: Connect> {
    core: Rc<Core<C>>,
    tasks: FuturesUnordered<Task>,
}

impl<C: Connect> Running<C> {
    /// Polls what can go on. Returns whether something ended or began.
    fn advance(&mut self, context: &mut Context<'_>) -> bool {
        let ended = matches!(self.tasks.poll_next_unpin(context), Poll::Ready(Some(())));
        let begun = self.core.take_tasks();
        let any = !begun.is_empty();
        self.tasks.extend(begun);
        ended || any
    }
}

/// Measures how long a server has not answered.
struct Silence {
    replies: u64,
    lasted: Duration,
}

impl Silence {
    fn begin(replies: u64) -> Self {
        Self {
            replies,
            lasted: Duration::ZERO,
        }
    }

    /// Records a tick of the loop. Returns whether the server has been silent for too long.
    fn tick(&mut self, replies: u64) -> bool {
        if std::mem::replace(&mut self.replies, replies) != replies {
            self.lasted = Duration::ZERO;
        }
        self.lasted += LOOK;
        self.lasted >= SILENCE
    }
}

/// Runs the file system until the queue is closed, and all written data is on stable storage. `sleep`
/// makes a timer, and `replies` returns the number of replies so far.
///
/// After the queue was closed, nobody waits for a reply any more: if no written data is left and the
/// server answers nothing for [`SILENCE`], the loop ends. Calls that the server asks to repeat later are given up
/// after a few times, unless they save written data.
pub(crate) async fn run<C: Connect, S: Future<Output = ()>>(
    core: Rc<Core<C>>,
    queue: &Queue<C>,
    sleep: impl Fn(Duration) -> S,
    replies: impl Fn() -> u64,
) {
    let mut running = Running {
        core: Rc::clone(&core),
        tasks: FuturesUnordered::new(),
    };
    let mut jobs = VecDeque::new();
    let mut tick = Box::pin(sleep(LOOK));
    let mut sent = Instant::now();
    let mut silence: Option<Silence> = None;
    let answered = poll_fn(|context| {
        loop {
            while tick.as_mut().poll(context).is_ready() {
                tick.set(sleep(LOOK));
                if let Some(silence) = &mut silence
                    && silence.tick(replies())
                    && core.unsaved_files() == 0
                {
                    return Poll::Ready(false);
                }
                let now = Instant::now();
                core.interrupts.look(now, is_killed);
                core.read_memory.borrow_mut().drop_idle(now);
                core.drop_unreferenced(now);
                core.drop_listings(now);
                if now.saturating_duration_since(sent) >= INTERVAL {
                    sent = now;
                    core.send_everything();
                }
            }
            let open = queue.take(&mut jobs, context);
            if !open {
                core.gone.set(true);
                silence.get_or_insert_with(|| Silence::begin(replies()));
            }
            let new = !jobs.is_empty();
            let begun = jobs.drain(..).map(|job| job(&core));
            running.tasks.extend(begun);
            let any = running.advance(context);
            if !open && running.tasks.is_empty() && !new && !any {
                return Poll::Ready(true);
            }
            if !new && !any {
                return Poll::Pending;
            }
        }
    })
    .await;
    if !answered {
        return;
    }
    let mut silence = silence.unwrap_or_else(|| Silence::begin(replies()));
    let silent = pin!(async {
        loop {
            sleep(LOOK).await;
            if silence.tick(replies()) && core.unsaved_files() == 0 {
                return;
            }
        }
    });
    let end = pin!(complete(&mut running, Rc::clone(&core).end()));
    select(end, silent).await;
}

/// Runs a future, and all the work that it begins.
#[cfg(test)]
pub(crate) async fn drive<C: Connect, T>(core: &Rc<Core<C>>, future: impl Future<Output = T>) -> T {
    let mut running = Running {
        core: Rc::clone(core),
        tasks: FuturesUnordered::new(),
    };
    let value = complete(&mut running, future).await;
    poll_fn(|context| {
        while running.advance(context) {}
        match running.tasks.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    value
}

async fn complete<C: Connect, T>(running: &mut Running<C>, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        loop {
            if let Poll::Ready(value) = Pin::as_mut(&mut future).poll(context) {
                return Poll::Ready(value);
            }
            if !running.advance(context) {
                return Poll::Pending;
            }
        }
    })
    .await
}

impl<C: Connect> Core<C> {
    /// Returns the number of files with data that is not on stable storage.
    pub(crate) fn unsaved_files(&self) -> usize {
        self.unsaved.borrow().len()
    }

    /// Brings everything to an end: written data to stable storage, and hidden files.
    pub(crate) async fn end(self: Rc<Self>) {
        self.settle().await;
        let nodes: Vec<_> = self.inodes.borrow().all().cloned().collect();
        for node in nodes {
            self.remove_hidden(&node).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_the_silence_of_a_server() {
        let ticks = (SILENCE.as_secs() / LOOK.as_secs()) as usize;
        let mut silence = Silence::begin(7);
        assert!((1..ticks).all(|_| !silence.tick(7)));
        assert!(!silence.tick(8), "it answers");
        assert!((2..ticks).all(|_| !silence.tick(8)));
        assert!(silence.tick(8));
    }
}
