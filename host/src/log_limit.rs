//! Rate limits for log messages that a peer can cause as often as it likes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of messages shown from one place in the program per [`WINDOW`]; the others are
/// counted.
const SHOWN: u32 = 10;
/// Length of the period for [`SHOWN`] messages.
const WINDOW: Duration = Duration::from_secs(60);

/// A rate limit for log messages: shows a few per minute and counts the others. Peers that are
/// refused retry again and again, and a line for each attempt would hide all other messages and
/// fill a disk. [`limited!`](crate::limited) has one limit for each place in the program.
#[derive(Debug, Default)]
pub struct LogLimit {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Start of the current period.
    since: Option<Instant>,
    shown: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Creates a limit with no messages shown yet.
    #[must_use]
    pub const fn new() -> Self {
        let state = State {
            since: None,
            shown: 0,
            suppressed: 0,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Returns `None` if the message must not be shown. Otherwise returns the number of messages
    /// suppressed since the last one that was shown.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |since: Instant| now.saturating_duration_since(since) >= WINDOW;
        if state.since.is_none_or(over) {
            state.since = Some(now);
            state.shown = 0;
        }
        if state.shown == SHOWN {
            state.suppressed += 1;
            return None;
        }
        state.shown += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

/// Logs a `tracing` event at a level such as `warn`, unless too many events came from the same
/// place in the last minute. Logs the number of suppressed events before the next one that is
/// shown.
#[macro_export]
macro_rules! limited {
    ($level:ident, $($what:tt)+) => {{
        static LIMIT: $crate::LogLimit = $crate::LogLimit::new();
        if let Some(suppressed) = LIMIT.pass() {
            if suppressed > 0 {
                tracing::$level!(suppressed, "messages like the next one were not shown");
            }
            tracing::$level!($($what)+);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_messages_a_minute_are_shown_and_the_rest_is_counted() {
        let (limit, start) = (LogLimit::new(), Instant::now());
        let pass = |millis| limit.pass_at(start + Duration::from_millis(millis));
        let shown = (0..1000).filter_map(pass).collect::<Vec<u64>>();
        assert_eq!(shown, [0; SHOWN as usize]);
        assert_eq!(pass(59_999), None);
        assert_eq!(pass(60_000), Some(991));
        assert_eq!(pass(60_001), Some(0));
    }
}
