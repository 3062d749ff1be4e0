//! A model of one direction of a link with a delay and a rate.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Time;

/// Maximum delay. A longer one is probably a typing error, and would look like a hang.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Minimum rate in bits per second. A lower one is probably a typing error, and would look like a
/// hang.
const MIN_RATE: u64 = 1_000;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// One direction of a link: a propagation delay, and a rate at which bytes are serialised.
///
/// All users of the link share one shaper, so that their messages queue behind each other as they
/// would at a network port. The shaper counts the bytes that it is given and adds no framing.
#[derive(Clone, Debug)]
pub struct Shaper {
    delay: Duration,
    rate_bits_per_s: Option<u64>,
    /// Time at which the last byte so far has been serialised.
    free_at: Time,
}

impl Shaper {
    /// Creates an idle link. Without a rate, bytes take no time to serialise; a rate of zero counts
    /// as one bit per second.
    #[must_use]
    pub fn new(delay: Duration, rate_bits_per_s: Option<u64>) -> Self {
        Self {
            delay,
            rate_bits_per_s: rate_bits_per_s.map(|rate| rate.max(1)),
            free_at: Time::ZERO,
        }
    }

    /// Sends `bytes` at `now`, behind everything sent before, and returns the time at which the
    /// last byte arrives. Arrivals are in the order of the calls.
    pub fn release(&mut self, now: Time, bytes: u64) -> Time {
        self.free_at = self.free_at.max(now) + self.serialisation(bytes);
        self.free_at + self.delay
    }

    /// Returns the propagation delay.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the serialisation time of `bytes`, rounded up to a nanosecond.
    fn serialisation(&self, bytes: u64) -> Duration {
        let Some(rate) = self.rate_bits_per_s else {
            return Duration::ZERO;
        };
        let nanos = (u128::from(bytes) * 8 * NANOS_PER_SECOND).div_ceil(u128::from(rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The reason why a [`Delay`] or a [`Rate`] could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseLinkError {
    /// The text is not a number with a unit.
    #[error("{given:?} is not a {what}: write a whole number and a unit, as in {examples}")]
    Syntax {
        /// Kind of value that was expected.
        what: &'static str,
        /// The text.
        given: String,
        /// Examples of valid texts.
        examples: &'static str,
    },
    /// The value is out of range.
    #[error("{given:?} is out of range: {limit}")]
    Range {
        /// The text.
        given: String,
        /// The limit.
        limit: &'static str,
    },
}

/// Splits a text into the number at its start and the unit behind it.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    // A nonempty string of digits fails to parse only if it exceeds 64 bits.
    match digits.parse() {
        Ok(number) => Some((number, unit)),
        Err(_) if digits.is_empty() => None,
        Err(_) => Some((u64::MAX, unit)),
    }
}

/// A delay in the syntax of the command line: `0`, `250ns`, `100us`, `1ms`, `2s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay(pub Duration);

impl FromStr for Delay {
    type Err = ParseLinkError;

    fn from_str(text: &str) -> Result<Self, ParseLinkError> {
        let syntax = || ParseLinkError::Syntax {
            what: "delay",
            given: text.to_owned(),
            examples: "250ns, 100us, 1ms or 2s",
        };
        let (number, unit) = number_and_unit(text).ok_or_else(syntax)?;
        let nanos: u64 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "" if number == 0 => 0,
            _ => return Err(syntax()),
        };
        let delay = Duration::from_nanos(number.saturating_mul(nanos));
        if delay > MAX_DELAY {
            return Err(ParseLinkError::Range {
                given: text.to_owned(),
                limit: "it is at most 10s",
            });
        }
        Ok(Self(delay))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_nanos() {
            n if n % 1_000_000_000 == 0 => write!(f, "{}s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
            n => write!(f, "{n}ns"),
        }
    }
}

/// A rate in bits per second in the syntax of the command line, with decimal prefixes: `100m`,
/// `10g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = ParseLinkError;

    fn from_str(text: &str) -> Result<Self, ParseLinkError> {
        let syntax = || ParseLinkError::Syntax {
            what: "rate",
            given: text.to_owned(),
            examples: "64k, 100m or 10g (bits per second)",
        };
        let (number, unit) = number_and_unit(text).ok_or_else(syntax)?;
        let scale: u64 = match unit {
            "k" | "K" => 1_000,
            "m" | "M" => 1_000_000,
            "g" | "G" => 1_000_000_000,
            "" => 1,
            _ => return Err(syntax()),
        };
        match number.checked_mul(scale) {
            Some(rate) if rate >= MIN_RATE => Ok(Self(rate)),
            _ => Err(ParseLinkError::Range {
                given: text.to_owned(),
                limit: "a rate is at least 1k, and at most 2^64 bits per second",
            }),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n % 1_000_000_000 == 0 => write!(f, "{}g", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}m", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}k", n / 1_000),
            n => write!(f, "{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn delay_alone_does_not_queue() {
        let mut link = Shaper::new(MS, None);
        let now = Time::from_nanos(7);
        assert_eq!(link.release(now, 1 << 30), now + MS);
        assert_eq!(link.release(now, 1), now + MS);
    }

    #[test]
    fn bytes_queue_behind_what_is_in_the_link_and_an_idle_link_is_free() {
        // At 10 Gbit/s, 1250 bytes take a microsecond.
        let mut link = Shaper::new(MS, Some(10_000_000_000));
        let us = Duration::from_micros;
        assert_eq!(link.release(Time::ZERO, 1250), Time::ZERO + us(1001));
        assert_eq!(link.release(Time::ZERO, 2500), Time::ZERO + us(1003));
        let later = Time::ZERO + us(10);
        assert_eq!(link.release(later, 1250), later + us(1001));
    }

    #[test]
    fn huge_amounts_saturate() {
        let mut link = Shaper::new(MS, Some(0));
        assert_eq!(link.release(Time::ZERO, u64::MAX).as_nanos(), u64::MAX);
        assert_eq!(link.release(Time::ZERO, 1).as_nanos(), u64::MAX);
    }

    quickcheck! {
        fn arrivals_keep_the_order_and_are_never_early(
            delay: u32, rate: u32, sent: Vec<(u16, u16)>
        ) -> bool {
            let delay = Duration::from_nanos(u64::from(delay));
            let mut link = Shaper::new(delay, Some(u64::from(rate)));
            let (mut now, mut last) = (Time::ZERO, Time::ZERO);
            sent.into_iter().all(|(wait, bytes)| {
                now = now + Duration::from_nanos(u64::from(wait));
                let arrival = link.release(now, u64::from(bytes));
                let fine = arrival >= last && arrival >= now + delay;
                last = arrival;
                fine
            })
        }
    }

    #[test]
    fn delays_are_read_and_written() {
        for (text, nanos) in [
            ("0", 0),
            ("250ns", 250),
            ("100us", 100_000),
            ("100µs", 100_000),
            ("1ms", 1_000_000),
            ("10s", 10_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Delay(Duration::from_nanos(nanos))));
        }
        for delay in ["250ns", "100us", "1500us", "1ms", "2s"] {
            assert_eq!(delay.parse::<Delay>().unwrap().to_string(), delay);
        }
        for wrong in ["", "1", "ms", "-1ms", "1.5ms", "1 ms", "1h"] {
            let error = wrong.parse::<Delay>().unwrap_err();
            assert!(matches!(error, ParseLinkError::Syntax { .. }), "{wrong}");
        }
        for far in ["11s", "10001ms", "99999999999999999999999us"] {
            let error = far.parse::<Delay>().unwrap_err();
            assert!(matches!(error, ParseLinkError::Range { .. }), "{far}");
        }
    }

    #[test]
    fn rates_are_read_and_written() {
        for (text, bits) in [
            ("1000", 1_000),
            ("64k", 64_000),
            ("100M", 100_000_000),
            ("10g", 10_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Rate(bits)));
        }
        for rate in ["64k", "2500m", "10g", "1001"] {
            assert_eq!(rate.parse::<Rate>().unwrap().to_string(), rate);
        }
        for wrong in ["", "g", "10gbit", "-1g", "0x10"] {
            let error = wrong.parse::<Rate>().unwrap_err();
            assert!(matches!(error, ParseLinkError::Syntax { .. }), "{wrong}");
        }
        for far in ["0", "999", "99999999999g"] {
            let error = far.parse::<Rate>().unwrap_err();
            assert!(matches!(error, ParseLinkError::Range { .. }), "{far}");
        }
    }
}
