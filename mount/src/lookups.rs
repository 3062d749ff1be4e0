//! The lookups in a directory so far, and the names that were fetched for them. The module
//! `prefetch` uses them.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
#[cfg(test)]
use std::time::Duration;
use std::time::Instant;

use nfs_binding::proto::{Attributes, FileHandle, NfsTime, Verifier};

use crate::users::User;

/// The directories that have listings, and when each of those was fetched, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Listings that may have objects.
    pub(crate) recent: VecDeque<(Instant, u64)>,
    /// Listings that only show which names do not exist.
    pub(crate) stripped: VecDeque<(Instant, u64)>,
}

impl Queues {
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.recent.len(), self.stripped.len())
    }
}

/// The object of an entry that no program has asked for.
#[derive(Debug)]
pub(crate) struct Sibling {
    pub(crate) handle: FileHandle,
    pub(crate) attributes: Attributes,
}

/// The names of a directory, from its beginning to its end or to some position.
#[derive(Debug)]
pub(crate) struct Listing<A> {
    /// The user for whom it was fetched, or `None` if there were several. Servers may hide entries that a user may not
    /// access, so a name that is not in the listing may exist for others.
    pub(crate) user: Option<Rc<User<A>>>,
    /// The names. One without an object exists or not: it has to be looked up.
    pub(crate) names: HashMap<Box<[u8]>, Option<Box<Sibling>>>,
    /// The version of the directory (`Node::names_version`).
    pub(crate) version: u64,
    /// The number of the first call.
    pub(crate) call: u64,
    /// When the first call began.
    pub(crate) fetched: Instant,
    /// The directory's times of last change, which all replies have unless somebody changes it meanwhile.
    pub(crate) times: (NfsTime, NfsTime),
    /// Whether the directory had not changed for as long as its times need.
    pub(crate) settled: bool,
    /// Where the listing goes on; `None` at the end of the directory, or if it has enough names.
    pub(crate) next: Option<(u64, Verifier)>,
    /// Whether the listing has all names.
    pub(crate) complete: bool,
    /// The number of replies.
    pub(crate) replies: u32,
    /// The number of names in all listings.
    pub(crate) all: Rc<Cell<usize>>,
}

impl<A> Drop for Listing<A> {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.names.len());
    }
}

impl<A> Listing<A> {
    /// Returns whether all of it was fetched for this user.
    pub(crate) fn is_of(&self, user: &User<A>) -> bool {
        self.user.as_ref().is_some_and(|it| it.is_same_as(user))
    }
}

/// The lookups in a directory so far.
#[derive(Debug)]
pub(crate) struct Lookups<A> {
    pub(crate) listing: Option<Box<Listing<A>>>,
    /// A listing of all names, while a later one of the same state of the directory does not have all of them yet.
    pub(crate) former: Option<Box<Listing<A>>>,
    /// The number of LOOKUPs since the last READDIRPLUS, and the time of the last of them.
    pub(crate) asked: u32,
    pub(crate) last: Option<Instant>,
    /// The number of LOOKUPs after which the next READDIRPLUS is sent, if no lookup has been answered since the last one.
    /// 0: there was no READDIRPLUS for lookups yet.
    pub(crate) patience: u32,
    /// The number of lookups that were answered since the last READDIRPLUS, and when the last one was.
    pub(crate) answered: u32,
    pub(crate) answered_last: Option<Instant>,
    /// The number of fetches at the first LOOKUP in directories below this one that have answered no lookup yet: those
    /// since one of them has answered its first.
    pub(crate) unanswered_below: u8,
    /// When the READDIRPLUS of this directory that lookups may wait for was sent, if one is in flight.
    pub(crate) fetching: Option<Instant>,
}

impl<A> Default for Lookups<A> {
    fn default() -> Self {
        Self {
            listing: None,
            former: None,
            asked: 0,
            last: None,
            patience: 0,
            answered: 0,
            answered_last: None,
            unanswered_below: 0,
            fetching: None,
        }
    }
}

impl<A> Lookups<A> {
    /// Strikes a name from the listings: it has to be looked up.
    pub(crate) fn strike(&mut self, name: &[u8]) {
        for listing in [&mut self.listing, &mut self.former].into_iter().flatten() {
            match listing.names.get_mut(name) {
                Some(entry) => *entry = None,
                // A name that is not in a listing of all names would be taken not to exist.
                None if listing.complete || listing.next.is_some() => {
                    listing.names.insert(name.into(), None);
                    listing.all.set(listing.all.get() + 1);
                }
                None => {}
            }
        }
    }

    /// Returns the listing that shows which names do not exist.
    pub(crate) fn all_names(&self) -> Option<&Listing<A>> {
        let mut listings = [&self.listing, &self.former].into_iter().flatten();
        listings.find(|it| it.complete).map(|it| &**it)
    }

    pub(crate) fn drop_all(&mut self) {
        (self.listing, self.former) = (None, None);
    }

    /// Counts an answered lookup.
    pub(crate) fn has_answered(&mut self, now: Instant) -> bool {
        self.answered = self.answered.saturating_add(1);
        self.asked = 0;
        self.answered_last = Some(now);
        self.answered == 1
    }

    /// Moves the time at which the names were fetched into the past.
    #[cfg(test)]
    pub(crate) fn age_by(&mut self, time: Duration) {
        for listing in [&mut self.listing, &mut self.former].into_iter().flatten() {
            listing.fetched = listing.fetched.checked_sub(time).unwrap();
        }
    }

    /// Returns the number of names, and whether they are all.
    #[cfg(test)]
    pub(crate) fn names(&self) -> (usize, bool) {
        let listing = self.listing.as_ref();
        listing.map_or((0, false), |it| (it.names.len(), it.complete))
    }
}
