//! What is going on: always on a terminal, and elsewhere now and then when it takes long.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// How often something is said where there is no terminal. What takes less says nothing.
const EVERY: Duration = Duration::from_secs(30);

/// One line on standard error that says what is being done; gone when dropped. It moves only when
/// told to: a thread of its own would take processor time from what is measured. Without a terminal
/// it is a line every half minute, for whoever reads a log.
pub(crate) struct Status {
    bar: Option<ProgressBar>,
    said: Cell<Instant>,
}

impl Status {
    /// An empty line.
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            said: Cell::new(Instant::now()),
        }
    }

    /// Says this from now on.
    pub(crate) fn show(&self, what: impl fmt::Display) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(output::shown(what));
                bar.tick();
            }
            None if is_due(self.said.get(), Instant::now()) => {
                self.said.set(Instant::now());
                output::note(what);
            }
            None => {}
        }
    }
}

/// Whether silence has lasted long enough.
fn is_due(said: Instant, now: Instant) -> bool {
    now.saturating_duration_since(said) >= EVERY
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
        assert!(!is_due(start, start + EVERY - Duration::from_millis(1)));
        assert!(is_due(start, start + EVERY));
        assert!(!is_due(start + EVERY, start));
    }
}
