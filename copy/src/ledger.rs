//! Totals and errors of a copy.

use std::cell::{Cell, RefCell};
use std::pin::pin;

use futures_util::future::{Either, select};
use nfs_binding::client::DisplayPath;
use nfs_binding::proto::FileHandle;

use super::{CopyError, Interrupt, MAX_PROBLEMS, Report, Totals};

/// A temporary name on the server that a copy has not removed or renamed, because it ended before.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) dir: FileHandle,
    pub(super) name: Vec<u8>,
    /// Whether the server has answered that the object has this name.
    pub(super) made: bool,
    /// The path of the object that it was to replace.
    pub(super) target: DisplayPath,
    pub(super) path: DisplayPath,
}

/// The record of a copy in progress. All its tasks write to it.
pub(super) struct Ledger<'p> {
    totals: Cell<Totals>,
    problems: RefCell<Vec<CopyError>>,
    more_no_space: Cell<u64>,
    unfinished: RefCell<Vec<DisplayPath>>,
    no_room: RefCell<Vec<DisplayPath>>,
    lost: RefCell<Vec<DisplayPath>>,
    leftovers: RefCell<Vec<Leftover>>,
    stopped: Cell<bool>,
    interrupted: Cell<bool>,
    progress: RefCell<&'p mut dyn FnMut(&Totals)>,
}

impl<'p> Ledger<'p> {
    pub(super) fn new(progress: &'p mut dyn FnMut(&Totals)) -> Self {
        Self {
            totals: Cell::default(),
            problems: RefCell::default(),
            more_no_space: Cell::new(0),
            unfinished: RefCell::default(),
            no_room: RefCell::default(),
            lost: RefCell::default(),
            leftovers: RefCell::default(),
            stopped: Cell::new(false),
            interrupted: Cell::new(false),
            progress: RefCell::new(progress),
        }
    }

    /// Updates the totals and calls the user's callback.
    pub(super) fn count(&self, change: impl FnOnce(&mut Totals)) {
        let mut totals = self.totals.get();
        change(&mut totals);
        self.totals.set(totals);
        // A callback that starts another copy has another ledger, so this borrow cannot conflict.
        (self.progress.borrow_mut())(&totals);
    }

    /// Counts a finished name that is not a directory. Copies and removals both count names, so
    /// their totals for one tree agree.
    pub(super) fn entry(&self, is_file: bool) {
        self.count(|totals| match is_file {
            true => totals.files += 1,
            false => totals.others += 1,
        });
    }

    /// Records an error.
    pub(super) fn problem(&self, error: CopyError) {
        tracing::debug!(%error, "copy");
        if error.is_fatal() && self.stopped.replace(true) {
            // Every call in flight fails with the same error: recording it once suffices.
            return;
        }
        let mut problems = self.problems.borrow_mut();
        let no_space = error.no_space();
        if no_space.is_some() && problems.iter().any(|one| one.no_space() == no_space) {
            self.more_no_space.set(self.more_no_space.get() + 1);
        } else if problems.len() < MAX_PROBLEMS {
            problems.push(error);
        }
        drop(problems);
        self.count(|totals| totals.problems += 1);
    }

    /// Runs `work` until it completes or is interrupted. An interrupt drops it, which cancels its
    /// calls and cleans up unfinished files.
    pub(super) async fn run(&self, interrupt: &Interrupt, work: impl Future<Output = ()>) {
        if let Either::Right(((), _)) = select(pin!(work), pin!(interrupt.wait())).await {
            self.interrupted.set(true);
        }
    }

    /// Records an incomplete file on the server. `no_room`: the server has no room for it. Of several attempts to
    /// copy it, the last one decides.
    pub(super) fn unfinished(&self, path: DisplayPath, no_room: bool) {
        self.removed(&path);
        let list = match no_room {
            true => &self.no_room,
            false => &self.unfinished,
        };
        let mut list = list.borrow_mut();
        if list.len() < MAX_PROBLEMS {
            list.push(path);
        }
    }

    /// Records that the earlier content of a file on the server is lost, unless that was an incomplete file of
    /// this copy.
    pub(super) fn lost(&self, path: DisplayPath) {
        if self.no_room.borrow().contains(&path) {
            return;
        }
        let mut list = self.lost.borrow_mut();
        if list.len() < MAX_PROBLEMS && !list.contains(&path) {
            list.push(path);
        }
    }

    /// Takes back that a file is incomplete and its earlier content lost: the file has its new content.
    pub(super) fn completed(&self, path: &DisplayPath) {
        self.removed(path);
        self.lost.borrow_mut().retain(|one| one != path);
    }

    /// Takes back that a file is incomplete: it was removed.
    pub(super) fn removed(&self, path: &DisplayPath) {
        for list in [&self.no_room, &self.unfinished] {
            list.borrow_mut().retain(|one| one != path);
        }
    }

    /// Takes back that a file is incomplete: it is as it was.
    pub(super) fn untouched(&self, path: &DisplayPath) {
        self.unfinished.borrow_mut().retain(|one| one != path);
    }

    /// Records a temporary name that may be on the server.
    pub(super) fn leftover(&self, leftover: Leftover) {
        self.leftovers.borrow_mut().push(leftover);
    }

    /// Returns the recorded temporary names, and forgets them.
    pub(super) fn take_leftovers(&self) -> Vec<Leftover> {
        self.leftovers.take()
    }

    /// Returns whether the copy was interrupted.
    pub(super) fn interrupted(&self) -> bool {
        self.interrupted.get()
    }

    /// Returns whether the copy was given up.
    pub(super) fn stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Ends the record and returns its totals and lists.
    pub(super) fn report(&self) -> Report {
        Report {
            totals: self.totals.get(),
            problems: self.problems.take(),
            more_no_space: self.more_no_space.get(),
            unfinished: self.unfinished.take(),
            no_room: self.no_room.take(),
            lost: self.lost.take(),
            leftovers: self
                .leftovers
                .take()
                .into_iter()
                .map(|left| left.path)
                .take(MAX_PROBLEMS)
                .collect(),
            stopped: self.stopped.get(),
            interrupted: self.interrupted.get(),
        }
    }
}
