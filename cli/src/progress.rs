//! Progress messages: on a terminal at every update, elsewhere every half minute or at every step.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// The interval of messages without a terminal. Shorter operations print none.
const EVERY: Duration = Duration::from_secs(30);

/// A status line on standard error, removed on drop. It moves only when it is updated, because a
/// thread of its own would take CPU time from measurements. Without a terminal, it is a line every
/// half minute, or one for each step, for the reader of a log.
pub(crate) struct Status {
    bar: Option<ProgressBar>,
    said: Cell<Instant>,
    /// The minimum time between lines without a terminal.
    every: Duration,
}

impl Status {
    /// Creates an empty status line.
    pub(crate) fn new() -> Self {
        Self::with_interval(EVERY)
    }

    /// Creates a status line for a few long steps. Without a terminal, every update prints a line.
    pub(crate) fn every_update() -> Self {
        Self::with_interval(Duration::ZERO)
    }

    fn with_interval(every: Duration) -> Self {
        let is_shown = io::stderr().is_terminal() && !output::is_quiet();
        let bar = is_shown.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            said: Cell::new(Instant::now()),
            every,
        }
    }

    /// Shows a new status.
    pub(crate) fn show(&self, what: impl fmt::Display) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(output::shown(what));
                bar.tick();
            }
            None if is_due(self.said.get(), Instant::now(), self.every) => {
                self.said.set(Instant::now());
                output::note(what);
            }
            None => {}
        }
    }
}

/// Returns whether enough time has passed since the last message.
fn is_due(said: Instant, now: Instant, every: Duration) -> bool {
    now.saturating_duration_since(said) >= every
}

impl Drop for Status {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_a_line_every_half_minute() {
        let start = Instant::now();
        let almost = start + EVERY - Duration::from_millis(1);
        assert!(!is_due(start, almost, EVERY));
        assert!(is_due(start, start + EVERY, EVERY));
        assert!(!is_due(start + EVERY, start, EVERY));
        assert!(is_due(start, start, Duration::ZERO), "each step");
    }
}
