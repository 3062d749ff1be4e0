//! Waking up on time.
//!
//! The time-out of `epoll_wait` has a granularity of a millisecond, which is ten times a network's
//! delay, and costs a third of a microsecond at each wake-up. A timerfd is exact, and costs nothing
//! while it stays set.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rdma::Time;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

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
    /// `mio`.
    pub(crate) fn timeout(&mut self, deadline: Time, now: Time) -> Option<Duration> {
        let left = deadline.since(now);
        if left.is_zero() {
            return Some(Duration::ZERO);
        }
        // Set to an earlier time that is still to come, it ends the wait early; the next wait sets
        // it then. So the deadline of each of many calls, a minute away and always moving on,
        // costs one setting a minute.
        if self.set.is_some_and(|set| set > now && set <= deadline) {
            return None;
        }
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        match timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value) {
            Ok(_) => {
                self.set = Some(deadline);
                None
            }
            Err(error) => {
                tracing::warn!(%error, "deadlines are exact to a millisecond only");
                Some(left)
            }
        }
    }
}
