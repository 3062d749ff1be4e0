//! A timer for exact wake-ups.
//!
//! The time-out of `epoll_wait` has a granularity of a millisecond, which is ten times the delay of
//! a network, and costs a third of a microsecond at each wake-up. A timerfd is exact, and costs
//! nothing while its setting does not change.

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

/// A timerfd that ends a wait in `mio` at a deadline.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    /// The time that the timerfd was last set to.
    set: Option<Time>,
    /// The number of times that it was set.
    settings: u64,
}

impl Timer {
    /// Creates a timer that reports its expiry with `token`.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // The timerfd is edge-triggered, like everything in `mio`: each expiry is one event, and it
        // need not be read.
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self {
            fd,
            set: None,
            settings: 0,
        })
    }

    /// Returns the number of times that the timerfd was set.
    pub(crate) fn settings(&self) -> u64 {
        self.settings
    }

    /// Prepares a wait that must end at `deadline`. Returns the time-out to pass to `mio`.
    pub(crate) fn timeout(&mut self, deadline: Time, now: Time) -> Option<Duration> {
        let left = deadline.since(now);
        if left.is_zero() {
            return Some(Duration::ZERO);
        }
        // If the timerfd is set to an earlier time in the future, it ends this wait early, and the
        // next wait sets it again. So the deadlines of many calls, each a minute away and always
        // advancing, cost one setting per minute.
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
        self.settings += 1;
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
