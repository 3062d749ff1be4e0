//! Events that come in bursts, and are to be told of once.

use std::time::Duration;

use crate::Time;

/// Without another one for this long, a burst is over.
const QUIET: Duration = Duration::from_secs(60);

/// Tells the first event of a burst from those that follow: peers which are refused try again and
/// again, and a line in a log for each of them would bury all others.
///
/// ```
/// # use verbs::{Burst, Time};
/// let second = 1_000_000_000;
/// let mut refusals = Burst::default();
/// assert!(refusals.begins(Time::from_nanos(5 * second)));
/// assert!(!refusals.begins(Time::from_nanos(6 * second)), "the same one");
/// assert!(refusals.begins(Time::from_nanos(99 * second)), "it had eased");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Burst {
    last: Option<Time>,
}

impl Burst {
    /// An event at `now`: whether a burst begins with it, none having come for a minute.
    pub fn begins(&mut self, now: Time) -> bool {
        let last = self.last.replace(now);
        last.is_none_or(|last| now.since(last) >= QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_lasts_until_nothing_came_for_a_while() {
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        let mut burst = Burst::default();
        assert!(burst.begins(at(0)), "even at the clock's beginning");
        // It lasts, however long, while events are closer than that.
        for seconds in [0, 30, 89, 148, 207] {
            assert!(!burst.begins(at(seconds)), "{seconds}");
        }
        assert!(burst.begins(at(267)));
        assert!(!burst.begins(at(268)));
    }
}
