//! The time of copies by a processor.

use std::ops::Add;
use std::time::Duration;

use rpc_transport::rdma::CostModel;

/// Whether the bytes that a processor copies are in its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// They are: the program has just written them, or the device places data into the cache.
    #[default]
    Warm,
    /// They are not, and come from memory.
    Cold,
}

/// Rates in bytes per second, from a warm and a cold cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRate {
    /// From the cache.
    pub warm: u64,
    /// From memory.
    pub cold: u64,
}

/// The cost of copies by the processors of both ends. A reply waits for each of them, one after the
/// other.
///
/// That is exact where nothing else happens on the way of a call while a processor copies. Of a
/// message in several Sends, a receiver can copy one part while the next arrives, so there the cost
/// is an upper bound.
///
/// The defaults are round figures, of which that of a warm cache is the default of
/// [`CostModel::copy_rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCosts {
    /// Copies before a message is sent: a long message is assembled in memory that can be
    /// registered.
    pub sender: CopyRate,
    /// Copies after a message was received: short messages are copied out of their receives, and
    /// bulk data that was not placed is copied to where it belongs.
    pub receiver: CopyRate,
    /// Which of the rates apply.
    pub cache: Cache,
}

impl Default for CopyCosts {
    fn default() -> Self {
        let rate = CopyRate {
            warm: 10_000_000_000,
            cold: 5_000_000_000,
        };
        Self {
            sender: rate,
            receiver: rate,
            cache: Cache::Warm,
        }
    }
}

impl CopyCosts {
    /// Costs of nothing.
    pub const NONE: Self = Self {
        sender: CopyRate::NONE,
        receiver: CopyRate::NONE,
        cache: Cache::Warm,
    };

    /// Returns the rate of copies at the receiver in bytes per second.
    #[must_use]
    pub fn receiver_rate(&self) -> u64 {
        self.receiver.of(self.cache)
    }

    /// Returns the time of copies of this length.
    #[must_use]
    pub fn time(&self, copied: Copied) -> Duration {
        let at = |rate: CopyRate, bytes: u64| match rate.of(self.cache) {
            CostModel::UNLIMITED => Duration::ZERO,
            rate => {
                let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        };
        at(self.sender, copied.before_sending) + at(self.receiver, copied.after_receiving)
    }
}

impl CopyRate {
    const NONE: Self = Self {
        warm: CostModel::UNLIMITED,
        cold: CostModel::UNLIMITED,
    };

    fn of(self, cache: Cache) -> u64 {
        match cache {
            Cache::Warm => self.warm,
            Cache::Cold => self.cold,
        }
    }
}

/// Bytes that the processors of both ends copy for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Before a message is sent.
    pub before_sending: u64,
    /// After a message was received, bulk data that was not placed included.
    pub after_receiving: u64,
    /// The bulk data among them.
    pub unplaced: u64,
}

impl Add for Copied {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            before_sending: self.before_sending + other.before_sending,
            after_receiving: self.after_receiving + other.after_receiving,
            unplaced: self.unplaced + other.unplaced,
        }
    }
}
