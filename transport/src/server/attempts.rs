//! Attempts to answer calls without waiting, which run on the loop in batches.
//!
//! A service can often tell only by trying whether a call has to wait (for a disk, for example). It
//! leaves an attempt ([`ServiceOutcome::Attempt`]); if that fails, the call becomes a job of a
//! worker. This spares most calls the two switches of threads that a job costs.
//!
//! The attempts of one turn of the loop run together, and no transport is used meanwhile. So an
//! attempt can leave the thread in a state in which the loop must not go on (the identity of a
//! caller), for the next attempt to find; [`after_attempts`] restores it. With sixteen calls of one
//! user in flight, this is one change of identity for all of them.

use std::cell::RefCell;

use super::*;

/// The maximum number of attempts in a batch. The first reply waits for the others.
const BATCH: usize = 16;

/// An attempt to answer the call with this index in `Server::running`.
pub(super) type Attempt = (usize, Box<dyn FnOnce() -> Attempted + Send>);

/// What restores the state of a thread.
type Restore = fn();

thread_local! {
    /// What restores the state of this thread after the batch that it executes, if it executes one.
    static RESTORE: RefCell<Option<Vec<Restore>>> = const { RefCell::new(None) };
}

/// Has the server call `restore` on this thread after the batch of attempts
/// ([`ServiceOutcome::Attempt`]) that the caller belongs to, before it uses a transport again. Returns
/// false, and does nothing, on a thread that does not execute a batch.
#[must_use]
pub fn after_attempts(restore: fn()) -> bool {
    RESTORE.with_borrow_mut(|batch| match batch {
        Some(restores) => {
            restores.push(restore);
            true
        }
        None => false,
    })
}

impl Server {
    /// Runs the attempts if there are so many that their replies should not wait for more.
    #[inline]
    pub(super) fn run_full_batch(&mut self, now: Time) {
        if self.attempts.len() >= BATCH {
            self.run_attempts(now);
        }
    }

    /// Runs the attempts of this turn, answers the calls that succeeded, and passes the others to
    /// workers.
    #[inline(never)]
    pub(super) fn run_attempts(&mut self, now: Time) {
        let mut attempts = std::mem::take(&mut self.attempts);
        let mut done = std::mem::take(&mut self.done);
        RESTORE.set(Some(Vec::new()));
        for (id, attempt) in attempts.drain(..) {
            match catch(|| Ok(attempt())) {
                Ok(Attempted::Done(reply)) => done.push_back((id, reply)),
                Ok(Attempted::Later(job)) => {
                    self.stats.jobs += 1;
                    self.workers.submit(id, job);
                }
                Err(denial) => done.push_back((id, Err(denial))),
            }
        }
        for restore in RESTORE.take().unwrap_or_default() {
            restore();
        }
        self.attempts = attempts;
        self.finish_all(&mut done, now);
        self.done = done;
    }
}
