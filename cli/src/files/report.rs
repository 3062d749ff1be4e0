//! Progress and outcome of copies and removals.

use std::fmt;
use std::time::{Duration, Instant};

use nfs_binding::copy::{Report, Totals};

use crate::args::units::show_amount;
use crate::failure::Failure;
use crate::output;
use crate::progress::Status;

/// How often progress is shown: it is reported far more often than anybody can read.
const EVERY: Duration = Duration::from_millis(100);

/// Watches a copy.
pub(super) struct Watch {
    what: &'static str,
    status: Status,
    start: Instant,
    shown: Instant,
}

impl Watch {
    /// From now on. `what` is what is done to files: `copied`.
    pub(super) fn start(what: &'static str) -> Self {
        let now = Instant::now();
        Self {
            what,
            status: Status::new(),
            start: now,
            shown: now,
        }
    }

    /// Shows how far it is, on a terminal.
    pub(super) fn show(&mut self, totals: &Totals) {
        if self.shown.elapsed() >= EVERY {
            self.shown = Instant::now();
            self.status
                .show(Summary(self.what, totals, self.start.elapsed()));
        }
    }

    /// Says what has been done, and what went wrong with `at`.
    ///
    /// # Errors
    /// Anything went wrong.
    pub(super) fn finish(self, at: &impl fmt::Display, report: Report) -> Result<(), Failure> {
        let Self {
            what,
            status,
            start,
            ..
        } = self;
        drop(status);
        let totals = &report.totals;
        if totals.files + totals.directories + totals.others > 0 {
            output::line(Summary(what, totals, start.elapsed()))?;
        }
        if totals.bytes_again > 0 {
            let again = show_amount(totals.bytes_again);
            output::note(format_args!(
                "{again} were sent twice: the server restarted meanwhile"
            ));
        }
        if totals.owners_lost > 0 {
            let count = totals.owners_lost;
            output::note(format_args!(
                "{count} owners could not be kept: the server refuses"
            ));
        }
        if report.is_complete() {
            return Ok(());
        }
        if let ([problem], false) = (&report.problems[..], report.stopped) {
            return Err(Failure::Work(format!("{at}: {problem}")));
        }
        for problem in &report.problems {
            output::complain(problem);
        }
        let count = totals.problems;
        let reason = match report.stopped {
            true => "given up, since the server cannot be reached any more",
            false => "not complete",
        };
        Err(Failure::Work(format!("{at}: {reason} ({count} problems)")))
    }
}

/// `copied 12 files, 3 directories, 4.5 MiB in 0.2 s (22.5 MiB/s)`.
struct Summary<'a>(&'static str, &'a Totals, Duration);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, totals, elapsed) = self;
        write!(f, "{what} {} files", totals.files)?;
        if totals.directories > 0 {
            write!(f, ", {} directories", totals.directories)?;
        }
        if totals.others > 0 {
            write!(f, ", {} others", totals.others)?;
        }
        let seconds = elapsed.as_secs_f64();
        if totals.bytes > 0 {
            write!(f, ", {}", show_amount(totals.bytes))?;
        }
        write!(f, " in {seconds:.2} s")?;
        if totals.bytes > 0 && seconds > 0.0 {
            let rate = show_amount((totals.bytes as f64 / seconds) as u64);
            write!(f, " ({rate}/s)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_leave_out_what_is_not_there() {
        let mut totals = Totals {
            files: 2,
            bytes: 3 << 20,
            ..Totals::default()
        };
        let second = Duration::from_secs(1);
        let text = Summary("copied", &totals, second).to_string();
        assert_eq!(text, "copied 2 files, 3.0 MiB in 1.00 s (3.0 MiB/s)");
        (totals.bytes, totals.directories) = (0, 1);
        let text = Summary("removed", &totals, second).to_string();
        assert_eq!(text, "removed 2 files, 1 directories in 1.00 s");
    }
}
