//! What a copy has done, and what went wrong.

use std::cell::{Cell, RefCell};
use std::pin::pin;

use futures_util::future::{Either, select};
use nfs_binding::client::DisplayPath;

use super::{CopyError, Interrupt, MAX_PROBLEMS, Report, Totals};

/// Kept while a copy runs; all its tasks write to it.
pub(super) struct Ledger<'p> {
    totals: Cell<Totals>,
    problems: RefCell<Vec<CopyError>>,
    unfinished: RefCell<Vec<DisplayPath>>,
    stopped: Cell<bool>,
    interrupted: Cell<bool>,
    progress: RefCell<&'p mut dyn FnMut(&Totals)>,
}

impl<'p> Ledger<'p> {
    pub(super) fn new(progress: &'p mut dyn FnMut(&Totals)) -> Self {
        Self {
            totals: Cell::default(),
            problems: RefCell::default(),
            unfinished: RefCell::default(),
            stopped: Cell::new(false),
            interrupted: Cell::new(false),
            progress: RefCell::new(progress),
        }
    }

    /// Counts, and tells the user's callback.
    pub(super) fn count(&self, change: impl FnOnce(&mut Totals)) {
        let mut totals = self.totals.get();
        change(&mut totals);
        self.totals.set(totals);
        // A callback that copies in turn has a ledger of its own, so this is never borrowed twice.
        (self.progress.borrow_mut())(&totals);
    }

    /// Counts a name that is done and is no directory's. All copies and removals count names, so
    /// that what they say of one tree agrees.
    pub(super) fn entry(&self, is_file: bool) {
        self.count(|totals| match is_file {
            true => totals.files += 1,
            false => totals.others += 1,
        });
    }

    /// Notes what went wrong.
    pub(super) fn problem(&self, error: CopyError) {
        tracing::debug!(%error, "copy");
        if error.is_fatal() && self.stopped.replace(true) {
            // Every call that was in flight ends like this: once is enough.
            return;
        }
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MAX_PROBLEMS {
            problems.push(error);
        }
        drop(problems);
        self.count(|totals| totals.problems += 1);
    }

    /// Does `work` to its end, or until it is interrupted. Dropping it then cancels its calls, and
    /// what guards half-done files acts.
    pub(super) async fn run(&self, interrupt: &Interrupt, work: impl Future<Output = ()>) {
        if let Either::Right(((), _)) = select(pin!(work), pin!(interrupt.wait())).await {
            self.interrupted.set(true);
        }
    }

    /// Notes a file on the server that is not what it was to be.
    pub(super) fn unfinished(&self, path: DisplayPath) {
        let mut unfinished = self.unfinished.borrow_mut();
        if unfinished.len() < MAX_PROBLEMS {
            unfinished.push(path);
        }
    }

    /// Whether there is no point in going on.
    pub(super) fn stopped(&self) -> bool {
        self.stopped.get()
    }

    /// The end of it: takes the lists out.
    pub(super) fn report(&self) -> Report {
        Report {
            totals: self.totals.get(),
            problems: self.problems.take(),
            unfinished: self.unfinished.take(),
            stopped: self.stopped.get(),
            interrupted: self.interrupted.get(),
        }
    }
}
