//! What is going on, on a terminal. Elsewhere nothing is shown: only results are.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often the spinner moves.
const TICK: Duration = Duration::from_millis(120);

/// One line on standard error that says what is being done; gone when dropped.
pub(crate) struct Status {
    bar: Option<ProgressBar>,
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
        Self { bar }
    }

    /// Says this from now on.
    pub(crate) fn show(&self, what: impl fmt::Display) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
            bar.tick();
        }
    }

    /// Moves the spinner by itself. Not while something is measured: it takes processor time.
    pub(crate) fn spin(&self) {
        if let Some(bar) = &self.bar {
            bar.enable_steady_tick(TICK);
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
