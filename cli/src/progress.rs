//! What is going on, on a terminal. Elsewhere nothing is shown: only results are.

use std::fmt;
use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

/// One line on standard error that says what is being done; gone when dropped. It moves only when
/// told to: a thread of its own would take processor time from what is measured.
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
}

impl Drop for Status {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
