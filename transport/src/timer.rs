//! Waking up on time.
//!
//! The time-out of `epoll_wait` has a granularity of a millisecond, which is ten times a network's
//! delay. A timerfd is exact; it is set only when a deadline is near, so that the far ones (a
//! call's time-out) cost nothing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use verbs::Time;

/// Deadlines farther away than this are left to `epoll_wait`.
const NEAR: Duration = Duration::from_millis(50);

/// Ends a wait in `mio` at a deadline.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    /// What the timerfd was last set to.
    set: Option<Time>,
}

impl Timer {
    /// A timer that reports to `token`.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Registered edge-triggered, as everything in `mio`: each expiry is one event, and the
        // timerfd need not be read.
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { fd, set: None })
    }

    /// Makes ready for a wait that must end at `deadline`, and says what time-out to give to
    /// `mio`. That time-out is right by itself, to the millisecond.
    pub(crate) fn timeout(&mut self, deadline: Time, now: Time) -> Duration {
        let left = deadline.since(now);
        if !left.is_zero() && left < NEAR && self.set != Some(deadline) {
            let value = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec {
                    tv_sec: 0,
                    tv_nsec: left.subsec_nanos().into(),
                },
            };
            match timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value) {
                Ok(_) => self.set = Some(deadline),
                Err(error) => tracing::warn!(%error, "deadlines are exact to a millisecond only"),
            }
        }
        left
    }
}
