//! The names of a directory that were fetched for lookups.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use nfs_binding::proto::{Attributes, EntryPlus, FileHandle, NfsTime, Verifier};

use super::NAMES;
use crate::listing::{Fetched, is_dots};
use crate::node::Node;
use crate::users::User;

/// The directories that have listings, and when each of those was fetched, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Listings that may have objects.
    pub(super) recent: VecDeque<(Instant, u64)>,
    /// Listings that only show which names do not exist.
    pub(super) stripped: VecDeque<(Instant, u64)>,
}

impl Queues {
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.recent.len(), self.stripped.len())
    }
}

/// The object of an entry that no program has asked for.
#[derive(Debug)]
pub(super) struct Sibling {
    pub(super) handle: FileHandle,
    pub(super) attributes: Attributes,
}

/// The names of a directory, from its beginning to its end or to some position.
#[derive(Debug)]
pub(super) struct Listing<A> {
    /// The user for whom it was fetched, or `None` if there were several. Servers may hide entries that a user may not
    /// access, so a name that is not in the listing may exist for others.
    pub(super) user: Option<Rc<User<A>>>,
    /// The names. One without an object exists or not: it has to be looked up.
    pub(super) names: HashMap<Box<[u8]>, Option<Box<Sibling>>>,
    /// The version of the directory ([`Node::names_version`]).
    pub(super) version: u64,
    /// The number of the first call.
    pub(super) call: u64,
    /// When the first call began.
    pub(super) fetched: Instant,
    /// The directory's times of last change, which all replies have unless somebody changes it meanwhile.
    pub(super) times: (NfsTime, NfsTime),
    /// Whether the directory had not changed for [`SETTLED`].
    pub(super) settled: bool,
    /// Where the listing goes on; `None` at the end of the directory, or if it has enough names.
    pub(super) next: Option<(u64, Verifier)>,
    /// Whether the listing has all names.
    pub(super) complete: bool,
    /// The number of replies.
    pub(super) replies: u32,
    /// The number of names in all listings.
    pub(super) all: Rc<Cell<usize>>,
}

impl<A> Drop for Listing<A> {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.names.len());
    }
}

impl<A> Listing<A> {
    /// Returns whether the times of the directory show every change since it was fetched. If this client has changed it
    /// since, its times may be too coarse to show a later change by another client.
    pub(super) fn shows_changes_of(&self, directory: &Node<A>) -> bool {
        self.settled && directory.changing.get() == 0 && self.call > directory.changed_by_us.get()
    }

    /// Returns whether all of it was fetched for this user.
    pub(super) fn is_of(&self, user: &User<A>) -> bool {
        self.user.as_ref().is_some_and(|it| it.is_same_as(user))
    }

    /// Adds the entries of a reply. `is_known` says whether an object is in the table, where its attributes are kept.
    pub(super) fn keep(&mut self, fetched: &Fetched, is_known: impl Fn(&FileHandle) -> bool) {
        let sibling = |entry: &EntryPlus| {
            let handle = entry.handle.filter(|handle| !is_known(handle))?;
            let attributes = entry.attributes.clone()?;
            Some(Box::new(Sibling { handle, attributes }))
        };
        let before = self.names.len();
        for entry in fetched.entries.iter().filter(|entry| !is_dots(entry)) {
            // A name that is in the listing already may have been struck from it.
            self.names
                .entry((&*entry.name.0).into())
                .or_insert_with(|| sibling(entry));
        }
        self.all.set(self.all.get() + self.names.len() - before);
        self.replies += 1;
        self.complete = fetched.eof;
        let last = fetched.entries.last().map(|last| last.cookie);
        self.next = last
            .filter(|_| !fetched.eof && self.names.len() < NAMES)
            .map(|cookie| (cookie, fetched.verifier));
    }
}
