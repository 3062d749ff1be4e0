//! The stack of tasks, and the paths of the objects that they work on.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nfs_binding::client::{DisplayPath, Place};

use super::ledger::Ledger;

/// Runs `first` and the tasks that follow from them, at most `limit` at a time. New tasks run first,
/// so the stack holds the entries of the directories in progress and not of the whole tree.
///
/// The tasks of `first`, and those that `run` returns, are in order: the last runs first.
pub(super) async fn run_all<T, F>(
    first: Vec<T>,
    limit: usize,
    ledger: &Ledger<'_>,
    run: impl Fn(T) -> F,
) where
    F: Future<Output = Vec<T>>,
{
    let mut waiting = first;
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < limit.max(1)
            && let Some(task) = waiting.pop()
        {
            under_way.push(run(task));
        }
        match under_way.next().await {
            Some(follow) => waiting.extend(follow),
            None => return,
        }
        if ledger.stopped() {
            // Dropping the futures in progress cancels their calls.
            return;
        }
    }
}

/// A directory in progress: the data that its entries need, and how many of them are not done.
#[derive(Debug)]
pub(super) struct Dir<T> {
    parent: Option<Rc<Dir<T>>>,
    /// The name on the server; for the root, its path.
    name: Vec<u8>,
    /// The number of entries not done, plus one for the listing itself.
    pending: Cell<usize>,
    /// Data that depends on the kind of copy.
    pub(super) info: T,
}

impl<T> Dir<T> {
    /// Creates the state of a directory that is not yet listed.
    pub(super) fn new(parent: Option<Rc<Self>>, name: Vec<u8>, info: T) -> Rc<Self> {
        Rc::new(Self {
            parent,
            name,
            pending: Cell::new(1),
            info,
        })
    }

    pub(super) fn parent(&self) -> Option<&Rc<Self>> {
        self.parent.as_ref()
    }

    /// Returns the directory and those above it, up to the one that contains the root of the copy.
    pub(super) fn up(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |dir| dir.parent.as_deref())
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Counts an entry that was found.
    pub(super) fn begin(&self) {
        self.pending.set(self.pending.get() + 1);
    }

    /// Counts an entry or the listing as done. Returns true if it was the last.
    #[must_use]
    pub(super) fn end(&self) -> bool {
        self.pending.set(self.pending.get() - 1);
        self.pending.get() == 0
    }

    /// Returns the path of one of its entries, from the root of the copy.
    pub(super) fn at<'d>(&'d self, name: &'d [u8]) -> At<'d, T> {
        At { dir: self, name }
    }

    fn write_path(&self, out: &mut Vec<u8>) {
        if let Some(parent) = &self.parent {
            parent.write_path(out);
        }
        if !out.is_empty() && !self.name.is_empty() {
            out.push(b'/');
        }
        out.extend(&self.name);
    }
}

impl<T> Place for Dir<T> {
    fn display(&self) -> DisplayPath {
        let mut path = Vec::new();
        self.write_path(&mut path);
        path.as_slice().into()
    }
}

/// The path of an entry. It is built only when needed.
pub(super) struct At<'d, T> {
    dir: &'d Dir<T>,
    name: &'d [u8],
}

impl<T> At<'_, T> {
    pub(super) fn path(&self) -> Vec<u8> {
        let mut path = Vec::new();
        self.dir.write_path(&mut path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(self.name);
        path
    }
}

impl<T> Place for At<'_, T> {
    fn display(&self) -> DisplayPath {
        self.path().as_slice().into()
    }
}
