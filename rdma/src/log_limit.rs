//! Messages in a log that a peer can cause as often as it likes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Messages of one place in the program that are shown in a [`WINDOW`]; further ones are counted.
const SHOWN: u32 = 10;
/// How long that many may take.
const WINDOW: Duration = Duration::from_secs(60);

/// Lets a few messages in a minute pass, and counts the others: peers which are refused try again and again,
/// and a line for each of them would bury all others, and fill a disk. [`limited!`](crate::limited) has one
/// for each place in the program.
#[derive(Debug, Default)]
pub struct LogLimit {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the present window began.
    since: Option<Instant>,
    shown: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Nothing was said yet.
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

    /// Whether a message is to be shown, and how many were not since the last time that one was.
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

/// A `tracing` event at a level, like `warn`, unless too many came from the same place in the last minute.
/// Says before the next that is shown how many were not.
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
