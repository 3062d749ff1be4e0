//! The return of memory that was needed only for earlier traffic.
//!
//! Queues grow with the calls in flight, and keep their memory, so that steady traffic allocates none. After a burst on
//! each of thousands of connections that would be most of a server's memory. So while there is traffic, a timer looks at
//! all connections: one that has sent nothing for a whole interval gives the memory of its queues back, once. An idle
//! server has no timer. A call costs nothing for this. Each look is done in steps of [`AT_ONCE`] connections, between which
//! the server handles events.
//!
//! What was freed stays in the heap of the process. Once 4 MiB have been freed, the pool's and the allocator's free memory
//! is returned to the system.

use std::mem;
use std::time::Duration;

use rdma::QpId;

use super::{CallEvent, Driver, Link};
use crate::rdma::timers::Timer;

/// Number of freed bytes from which on free memory is returned to the system. That takes milliseconds.
const MUCH: usize = 4 << 20;
/// The maximum number of connections that one step of a look is for, and the time until the next step.
const AT_ONCE: usize = 1000;
const NEXT_STEP: Duration = Duration::from_millis(1);

/// One pass over all connections, which frees the queues of those that have been quiet since the
/// pass before.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The connections that no step has been for yet.
    left: Vec<QpId>,
    /// Whether any of the others has sent something since the last look.
    traffic: bool,
}

/// Messages that a connection had sent when the last pass came to it.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Number of requests posted until then.
    posted: u64,
    /// Whether it has sent anything since it last gave memory back.
    keeps: bool,
}

impl Traffic {
    /// Records how many requests have been posted. Returns whether there are new ones.
    fn look(&mut self, posted: u64) -> bool {
        let changed = mem::replace(&mut self.posted, posted) != posted;
        self.keeps |= changed;
        changed
    }
}

impl Link {
    /// Frees memory that earlier traffic needed, and returns the number of bytes freed.
    fn give_back(&mut self) -> usize {
        self.queue.give_back() + self.connection.give_back()
    }
}

impl<E: CallEvent> Driver<E> {
    /// Sets the timer for [`Driver::give_back`], if there is such an interval and no timer yet.
    pub(in crate::rdma) fn plan_give_back(&mut self) {
        if let Some(after) = self.give_back_after
            && !mem::replace(&mut self.gives_back, true)
        {
            self.timers.set(self.now + after, Timer::GiveBack);
        }
    }

    /// Records that `bytes` of memory were freed, or `usize::MAX` if the number is not known. Once
    /// they are many ([`MUCH`]), free memory goes back to the system.
    pub(super) fn note_freed(&mut self, bytes: usize) {
        if bytes > 0 {
            self.freed = self.freed.saturating_add(bytes);
            self.plan_give_back();
        }
    }

    /// Frees the memory that connections needed for earlier traffic and that have been quiet since the last look: one step
    /// of the present look, or of a new one. At the end of a look, returns free memory to the system if it has become
    /// much.
    #[cold]
    pub(in crate::rdma) fn give_back(&mut self) {
        if self.look.left.is_empty() {
            self.look.left.extend(self.links.keys());
        }
        let (mut quiet, mut freed) = (Vec::new(), 0_usize);
        let from = self.look.left.len().saturating_sub(AT_ONCE);
        for qp in self.look.left.drain(from..) {
            // It may have ended since the look began.
            let Some(link) = self.links.get_mut(&qp) else {
                continue;
            };
            if link.traffic.look(link.queue.posted()) {
                self.look.traffic = true;
            } else if mem::take(&mut link.traffic.keeps) {
                quiet.push(qp);
                freed += link.give_back();
            }
        }
        let ends = self.look.left.is_empty();
        let idle = ends && !self.look.traffic;
        if !quiet.is_empty() || idle {
            freed += self.device.give_back(&quiet);
        }
        if idle {
            freed += rdma::shrink(&mut self.inbox) + rdma::shrink(&mut self.events);
        }
        self.freed = self.freed.saturating_add(freed);
        if !ends {
            self.timers.set(self.now + NEXT_STEP, Timer::GiveBack);
            return;
        }
        let look = mem::take(&mut self.look);
        self.gives_back = false;
        if self.freed >= MUCH {
            self.freed = 0;
            self.device.pool().give_back();
        }
        if look.traffic {
            self.plan_give_back();
        }
    }
}
