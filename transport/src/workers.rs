//! Worker threads for jobs that may block.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use onc_rpc::AcceptStatus;

use crate::poll_loop::Wake;
use crate::{ErrorReply, ServiceReply};

/// A job that a service left to a worker.
pub(crate) type Job = Box<dyn FnOnce() -> ServiceReply + Send>;

/// Runs jobs on threads, and wakes its owner's loop when one is done.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    wake: Arc<Wake>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(usize, Job)>,
    done: VecDeque<(usize, ServiceReply)>,
    /// The number of threads that wait for work.
    idle: usize,
    closed: bool,
}

impl Workers {
    /// Creates workers without threads: the owner runs the jobs itself ([`Workers::run_one`]).
    pub(crate) fn without_threads(wake: Arc<Wake>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            wake,
        });
        Self {
            shared,
            threads: Vec::new(),
        }
    }

    /// Starts `count` threads, at least one.
    pub(crate) fn new(count: usize, wake: Arc<Wake>) -> io::Result<Self> {
        let mut workers = Self::without_threads(wake);
        let shared = &workers.shared;
        for n in 0..count.max(1) {
            let shared = Arc::clone(shared);
            let builder = std::thread::Builder::new().name(format!("rpc-worker-{n}"));
            workers.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(workers)
    }

    /// Submits a job. The caller bounds the number of jobs. The reply comes out of
    /// [`Workers::take_done`] with `id`.
    pub(crate) fn submit(&self, id: usize, job: Job) {
        let mut state = self.shared.state();
        state.queue.push_back((id, job));
        let somebody_sleeps = state.idle > 0;
        drop(state);
        if somebody_sleeps {
            self.shared.work.notify_one();
        }
    }

    /// Runs the oldest waiting job on the calling thread. Returns false if none waits.
    pub(crate) fn run_one(&self) -> bool {
        let job = self.shared.state().queue.pop_front();
        let Some((id, job)) = job else {
            return false;
        };
        let reply = catch(job);
        self.shared.state().done.push_back((id, reply));
        self.shared.wake.wake();
        true
    }

    /// Appends the finished replies to `done`.
    pub(crate) fn take_done(&self, done: &mut VecDeque<(usize, ServiceReply)>) {
        done.append(&mut self.shared.state().done);
    }

    /// Drops the jobs that no thread has started, and waits for the started ones.
    pub(crate) fn close(&mut self) {
        let unstarted = {
            let mut state = self.shared.state();
            state.closed = true;
            std::mem::take(&mut state.queue)
        };
        drop(unstarted);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

thread_local! {
    /// Whether the current thread is a worker.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is a worker of a server. A worker runs nothing but jobs, so
/// thread state that a job leaves behind is seen by later jobs only.
#[must_use]
pub fn is_worker() -> bool {
    WORKER.get()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Ignores poisoning: no code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        WORKER.set(true);
        let mut state = self.state();
        loop {
            if let Some((id, job)) = state.queue.pop_front() {
                drop(state);
                let reply = catch(job);
                state = self.state();
                state.done.push_back((id, reply));
                // The owner takes all there are at once, so one wake-up does for several.
                if state.done.len() == 1 {
                    self.wake.wake();
                }
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// Runs a part of a service. A panic in it fails one call, not the server, in programs that unwind;
/// this workspace's release profile aborts.
#[inline]
pub(crate) fn catch<T>(work: impl FnOnce() -> Result<T, ErrorReply>) -> Result<T, ErrorReply> {
    // A panic that ends the process cannot be caught. To pass `work` to `catch_unwind` would only copy what it
    // owns, such as a request of some hundreds of bytes.
    if cfg!(panic = "abort") {
        return work();
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        rpcrdma_host::limited!(
            error,
            "a service panicked: the call is answered with SYSTEM_ERR"
        );
        Err(ErrorReply::Accepted(AcceptStatus::SystemErr))
    })
}

#[cfg(test)]
mod tests {
    use onc_rpc::Message;

    use super::*;
    use crate::PollLoop;

    #[test]
    fn without_threads_jobs_run_when_and_in_the_order_they_are_told_to() {
        let wake = Arc::clone(PollLoop::simulated(rdma::Clock::simulated()).wake());
        let workers = Workers::without_threads(Arc::clone(&wake));
        for id in [4, 2] {
            workers.submit(id, Box::new(|| Ok(Message::default())));
        }
        let mut done = VecDeque::new();
        workers.take_done(&mut done);
        assert!(done.is_empty() && !wake.take());
        assert!(workers.run_one() && wake.take());
        assert!(workers.run_one());
        assert!(!workers.run_one());
        workers.take_done(&mut done);
        let ids: Vec<usize> = done.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [4, 2]);
    }
}
