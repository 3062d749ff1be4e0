//! Time as the state machines see it.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some fixed moment: that of the system's monotonic clock, or a simulation's
/// start. State machines are given it and never ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The fixed moment itself.
    pub const ZERO: Self = Self(0);

    /// The monotonic clock. For the code around a state machine, not for one.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // Never negative, and in 64 bits, which last for 500 years.
        Self((now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64)
    }

    /// From nanoseconds since the fixed moment.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the fixed moment.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after.
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

/// Where drivers of state machines get the time from. Cloning gives another handle to the same
/// clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Nothing: the monotonic clock.
    simulated: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// The monotonic clock: [`Time::now`].
    #[must_use]
    pub const fn monotonic() -> Self {
        Self { simulated: None }
    }

    /// A clock that stands at [`Time::ZERO`] until it is set.
    #[must_use]
    pub fn simulated() -> Self {
        Self {
            simulated: Some(Arc::default()),
        }
    }

    /// Whether it is one that is set, and not one that runs.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        match &self.simulated {
            None => Time::now(),
            Some(nanos) => Time(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Moves a simulated clock on. No effect when that would put it back, or on a clock that runs
    /// by itself.
    pub fn advance_to(&self, to: Time) {
        if let Some(nanos) = &self.simulated {
            nanos.fetch_max(to.0, Ordering::Relaxed);
        }
    }
}
