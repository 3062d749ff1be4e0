//! Time for state machines.
//!
//! Time is a value that the driver of a state machine passes to it. The same code therefore runs on
//! a virtual clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time, in nanoseconds since a fixed moment: that of the system's monotonic clock, or
/// the start of a simulation. State machines receive it as an argument and never read a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The fixed moment.
    pub const ZERO: Self = Self(0);

    /// Reads the monotonic clock. For the code that drives a state machine, not for the state
    /// machine.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // Never negative, and 64 bits last for 500 years.
        Self((now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64)
    }

    /// Creates a time from nanoseconds since the fixed moment.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the fixed moment.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

/// The source of time for the drivers of state machines. Clones are handles to the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// `None` stands for the monotonic clock.
    simulated: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// Returns the monotonic clock, which reads [`Time::now`].
    #[must_use]
    pub const fn monotonic() -> Self {
        Self { simulated: None }
    }

    /// Returns a simulated clock, which stands at [`Time::ZERO`] until it is advanced.
    #[must_use]
    pub fn simulated() -> Self {
        Self {
            simulated: Some(Arc::default()),
        }
    }

    /// Returns whether the clock is simulated.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Time {
        match &self.simulated {
            None => Time::now(),
            Some(nanos) => Time(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Advances a simulated clock. Has no effect if `to` is in the past or the clock is not
    /// simulated.
    pub fn advance_to(&self, to: Time) {
        if let Some(nanos) = &self.simulated {
            nanos.fetch_max(to.0, Ordering::Relaxed);
        }
    }
}
