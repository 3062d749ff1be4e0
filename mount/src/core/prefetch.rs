//! Names and attributes that READDIRPLUS brings before programs ask for them.
//!
//! A program that walks a tree by name, such as `git status`, looks up one name after the other, and each LOOKUP of first
//! contact waits for a round trip. After some LOOKUPs in one directory, a READDIRPLUS is sent beside the next one. Its
//! entries answer the lookups that follow, and if it has reached the end of the directory, names that it lacks do not
//! exist.
//!
//! Coherence: an entry answers for [`PRESENT`] after it was fetched, so that a name of first contact is hardly older than
//! one from a LOOKUP. Names that do not exist follow the same rule as those that were looked up (`ABSENT` in
//! [`find`](crate::core::find)): once a second, the attributes of the directory show whether somebody has changed it. Their
//! times may be coarse. So a listing is used for longer than `ABSENT` only if the directory had not changed for
//! [`SETTLED`] when it was fetched, and this client has not changed it since. Its own changes strike names from a listing, and a change by
//! another client ends all of it. An open of a file asks the server in any case.
//!
//! Servers find objects under names that they do not list: directories with snapshots, names in another case, or in
//! another Unicode form. So a listing shows only that plain names ([`is_listed_if_it_exists`]) do not exist, and only in
//! a file system that distinguishes case.
//!
//! Costs: a directory that does not end with the first reply, of [`FIRST`] bytes, is not read at once. Each fetch that
//! answered no lookup makes the next one wait for four times as many, so that random lookups in a directory of a million
//! files cost hardly more than before.

use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::select;
use nfs_binding::client::RpcClient;
use nfs_binding::proto::{Access, EntryPlus, FileHandle, HandleArgs, Verifier};
use rustix::io::Errno;

use crate::attributes::Version;
use crate::core::find::ABSENT;
use crate::core::listing::{Fetched, Repeat, is_dots};
use crate::core::{Connect, Core, NodeOf, UserOf};
use crate::lookups::{Listing, Lookups, Queues, Sibling};
use crate::node::Node;
use crate::options::LookupCache;

/// How long a fetched entry answers lookups, from when the first call of its listing was sent.
const PRESENT: Duration = Duration::from_secs(1);
/// How long a directory must not have changed for its times to show every later change. Some file systems count whole
/// seconds.
const SETTLED: Duration = Duration::from_secs(2);
/// The maximum length of the first reply for a directory, bytes: some 150 entries. Later ones may be twice as long each,
/// up to the length of any listing's replies.
const FIRST: u32 = 32 << 10;
/// The number of LOOKUPs in a directory, the last with a READDIRPLUS beside it: at first, and at most. One suffices if
/// the names of the directory above were looked up in the same way.
const LOOKUPS: (u32, u32) = (2, 1024);
/// The maximum number of fetches at the first LOOKUP in directories below one that have answered no other lookup yet.
const UNANSWERED: u8 = 4;
/// The time within which LOOKUPs in a directory belong together.
const TOGETHER: Duration = Duration::from_secs(3);
/// How long lookups wait for a READDIRPLUS that was sent for them, since it was sent. A server that is slow with it may
/// still answer LOOKUPs.
const WAIT: Duration = Duration::from_millis(100);
/// The maximum number of names of one listing.
const NAMES: usize = 4096;
/// The maximum number of names in the listings of all directories, some 20 MB. The oldest listings go first.
const ALL_NAMES: usize = 1 << 16;
/// The maximum length of a name that a listing can show not to exist. Servers answer ENAMETOOLONG for longer ones.
const LONGEST: usize = 255;
/// Directories that some servers have without listing them: snapshots.
const UNLISTED: [&[u8]; 5] = [b".zfs", b".snapshot", b".snapshots", b"~snapshot", b".ckpt"];
/// The maximum number of file systems whose comparison of names is remembered.
const FILE_SYSTEMS: usize = 64;
/// How long a listing is kept for names that do not exist.
const KEEP: Duration = Duration::from_secs(60);

/// How long a listing answers lookups of its names, or of others if it does not show changes.
const ANSWERS: Duration = match PRESENT.as_nanos() > ABSENT.as_nanos() {
    true => PRESENT,
    false => ABSENT,
};

/// The answer of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Object,
    Absent,
}

/// A READDIRPLUS for lookups, from its beginning to its end.
struct Fetching<A>(Rc<Node<A>>);

impl<A> Drop for Fetching<A> {
    fn drop(&mut self) {
        self.0.lookups().fetching = None;
        self.0.progress.wake();
    }
}

impl<C: Connect> Core<C> {
    /// Returns what a listing says of a name: `Some(None)` if the name does not exist. Waits a little for a listing that
    /// is being fetched.
    ///
    /// # Errors
    /// EACCES, or the error of ACCESS or GETATTR.
    pub(crate) async fn listed_name(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
    ) -> Result<Option<Option<NodeOf<C>>>, Errno> {
        Self::until_fetched(user, directory).await;
        let Some(answer) = self.answer(user, directory, name) else {
            return Ok(None);
        };
        if !self.is_fresh(directory)
            || (answer == Answer::Absent && self.absence(directory).is_zero())
        {
            self.getattr_now(user, directory).await?;
        }
        self.permit(user, directory, Access::LOOKUP).await?;
        // The attributes may have shown a change.
        let Some(answer) = self.answer(user, directory, name) else {
            return Ok(None);
        };
        let now = Instant::now();
        let first = directory.lookups().has_answered(now);
        if first
            && let Some(above) = self.above(directory)
            && let Some(above) = &mut *above.lookups_below.borrow_mut()
        {
            above.unanswered_below = 0;
        }
        match answer {
            Answer::Absent => Ok(Some(None)),
            Answer::Object => Ok(self.take_sibling(directory, name).map(Some)),
        }
    }

    /// Waits for a listing that is being fetched, until [`WAIT`] after its call was sent.
    async fn until_fetched(user: &UserOf<C>, directory: &NodeOf<C>) {
        let fetching = || directory.lookups_below.borrow().as_ref()?.fetching;
        let Some(sent) = fetching() else {
            return;
        };
        let left = WAIT.saturating_sub(sent.elapsed());
        if !left.is_zero() {
            let ended = || fetching().is_none().then_some(());
            let ended = pin!(directory.progress.until(ended));
            select(ended, pin!(user.caller.sleep(left))).await;
        }
    }

    /// Returns whether the mount caches what lookups of fetched names need: names, and attributes of all types.
    fn keeps_entries(&self) -> bool {
        let times = &self.options.attributes;
        self.options.lookup_cache != LookupCache::None
            && !times.file_min.is_zero()
            && !times.directory_min.is_zero()
    }

    /// Returns the directory in which a directory was found.
    fn above(&self, directory: &NodeOf<C>) -> Option<NodeOf<C>> {
        let (above, _) = directory.places.borrow().first().cloned()?;
        self.inodes.borrow().get(above)
    }

    fn answer(&self, user: &UserOf<C>, directory: &NodeOf<C>, name: &[u8]) -> Option<Answer> {
        let lookups = directory.lookups_below.borrow();
        let lookups = lookups.as_ref()?;
        let is_current = |it: &&Listing<C::As>| it.version == directory.names_version.get();
        let newest = lookups.listing.as_deref().filter(is_current);
        if let Some(listing) = newest
            && let Some(entry) = listing.names.get(name)
        {
            // An object may have been changed by this client, under another name, and forgotten.
            let changed = self.inodes.borrow().changed_and_gone();
            let may =
                entry.is_some() && listing.fetched.elapsed() < PRESENT && listing.call > changed;
            return may.then_some(Answer::Object);
        }
        let listing = lookups.all_names().filter(is_current)?;
        let may = self.options.lookup_cache == LookupCache::All
            && !listing.names.contains_key(name)
            && is_listed_if_it_exists(name)
            && self.compares_bytes(directory)
            && listing.is_of(user)
            && listing.call > directory.unsure.get()
            && (listing.shows_changes_of(directory) || listing.fetched.elapsed() < ABSENT);
        may.then_some(Answer::Absent)
    }

    /// Returns whether the server has said that names in the file system of a directory differ if their case does.
    fn compares_bytes(&self, directory: &NodeOf<C>) -> bool {
        let fsid = directory.attributes.borrow().get().fsid;
        let known = self.compares_bytes.borrow();
        known.get(&fsid).copied().unwrap_or(false)
    }

    /// Asks the server whether names in the file system of a directory differ if their case does (PATHCONF), unless it
    /// was asked before. Until there is an answer, a listing does not show that a name does not exist.
    fn ask_for_comparison(self: &Rc<Self>, user: &UserOf<C>, directory: &NodeOf<C>) {
        let fsid = directory.attributes.borrow().get().fsid;
        {
            let mut known = self.compares_bytes.borrow_mut();
            if known.contains_key(&fsid) {
                return;
            }
            if known.len() >= FILE_SYSTEMS {
                known.clear();
            }
            known.insert(fsid, false);
        }
        let (core, user, directory) = (Rc::clone(self), Rc::clone(user), Rc::clone(directory));
        self.spawn(async move {
            let args = &HandleArgs {
                object: directory.handle,
            };
            let rules = core.ask(&user, |nfs| async move { nfs.pathconf(args).await });
            if let Ok(rules) = rules.await {
                let mut known = core.compares_bytes.borrow_mut();
                known.insert(fsid, !rules.case_insensitive);
            }
        });
    }

    /// Puts the object of an entry into the table.
    fn take_sibling(&self, directory: &NodeOf<C>, name: &[u8]) -> Option<NodeOf<C>> {
        let (sibling, version, call, fetched) = {
            let mut lookups = directory.lookups();
            let listing = lookups.listing.as_mut()?;
            let sibling = listing.names.get_mut(name)?.take()?;
            (sibling, listing.version, listing.call, listing.fetched)
        };
        let Sibling { handle, attributes } = *sibling;
        let known = self.inodes.borrow().find(&handle);
        let node = known.unwrap_or_else(|| {
            let (trust, _) = self.trust(attributes.file_type);
            let mut inodes = self.inodes.borrow_mut();
            let node = inodes.add(handle, attributes, call, fetched, trust);
            // The kernel gets no reference to it if the lookup fails or is interrupted.
            let unreferenced = (Instant::now(), node.ino);
            self.unreferenced.borrow_mut().push_back(unreferenced);
            node
        });
        self.remember_of(directory, version, name, Some(&node));
        Some(node)
    }

    /// Returns how much longer a name that a listing lacks is taken not to exist, or `None` if that does not depend on a
    /// listing that may miss a change.
    pub(crate) fn unsettled_absence(&self, directory: &NodeOf<C>, name: &[u8]) -> Option<Duration> {
        if directory.known_name(name).is_some() {
            return None;
        }
        let lookups = directory.lookups_below.borrow();
        let listing = lookups.as_ref()?.all_names()?;
        (!listing.shows_changes_of(directory))
            .then(|| ABSENT.saturating_sub(listing.fetched.elapsed()))
    }

    /// Counts a LOOKUP that is about to be sent. Begins to fetch entries if there were enough in this directory.
    pub(crate) fn count_lookup(self: &Rc<Self>, user: &UserOf<C>, directory: &NodeOf<C>) {
        if !self.readdirplus.get() || !self.keeps_entries() {
            return;
        }
        self.ask_for_comparison(user, directory);
        let now = Instant::now();
        let together = |last: Option<Instant>| {
            last.is_some_and(|last| now.saturating_duration_since(last) < TOGETHER)
        };
        let above = self.above(directory).filter(|above| {
            let above = above.lookups_below.borrow();
            above.as_ref().is_some_and(|above| {
                together(above.answered_last) && above.unanswered_below < UNANSWERED
            })
        });
        let mut lookups = directory.lookups();
        if !together(lookups.last) {
            lookups.asked = 0;
        }
        lookups.last = Some(now);
        lookups.asked += 1;
        let is_first = lookups.patience == 0;
        let patience = match is_first || lookups.answered > 0 {
            true if above.is_some() => 1,
            true => LOOKUPS.0,
            false => lookups.patience,
        };
        if lookups.fetching.is_some() || lookups.asked < patience {
            return;
        }
        let position = lookups.position(directory.names_version.get());
        let Some((cookie, verifier, replies)) = position else {
            return;
        };
        lookups.patience = match is_first || lookups.answered > 0 {
            true => LOOKUPS.0 * 4,
            false => (lookups.patience * 4).min(LOOKUPS.1),
        };
        (lookups.asked, lookups.answered) = (0, 0);
        lookups.fetching = Some(now);
        drop(lookups);
        if is_first
            && patience == 1
            && let Some(above) = above
        {
            above.lookups().unanswered_below += 1;
        }
        let max = self.limits.list;
        let count = FIRST.saturating_mul(1 << replies.min(10)).min(max);
        let (core, user) = (Rc::clone(self), Rc::clone(user));
        let fetching = Fetching(Rc::clone(directory));
        self.spawn(async move {
            let directory = &fetching.0;
            let position = (cookie, verifier);
            // `readdirplus` itself stores the entries of unknown objects (`keep_entries`).
            let listed = core.readdirplus(&user, directory, position, count, Repeat::Never);
            match listed.await {
                Ok(fetched) => core.remember_known(directory, &fetched),
                Err(error) => {
                    tracing::debug!(ino = directory.ino, %error, "names were not fetched");
                }
            }
        });
    }

    /// Keeps the entries of a reply for lookups, if they are the first of the directory or go on where the kept ones end.
    /// `cookie` is the position of which they were asked.
    pub(crate) fn keep_entries(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        cookie: u64,
        fetched: &Fetched,
        (before, unchanged_for): (Version, Duration),
    ) {
        let Some(attributes) = fetched.dir_attributes.as_ref() else {
            return;
        };
        if !self.keeps_entries() {
            return;
        }
        let mut lookups = directory.lookups();
        let after = Version::from(attributes);
        let times = (after.mtime, after.ctime);
        if overlaps(directory, fetched) || fetched.version != directory.names_version.get() {
            lookups.drop_all();
            return;
        }
        if cookie == 0 {
            let all = [lookups.listing.take(), lookups.former.take()];
            let all = all.into_iter().flatten().find(|it| it.complete);
            lookups.former = all.filter(|it| it.version == fetched.version && it.times == times);
            lookups.listing = Some(Box::new(Listing {
                user: Some(Rc::clone(user)),
                names: HashMap::new(),
                version: fetched.version,
                call: fetched.call,
                fetched: fetched.began,
                times,
                settled: before == after && unchanged_for >= SETTLED,
                next: None,
                complete: false,
                replies: 0,
                all: Rc::clone(&self.listed_names),
            }));
            let mut listings = self.listings.borrow_mut();
            listings.recent.push_back((fetched.began, directory.ino));
        }
        let Some(listing) = &mut lookups.listing else {
            return;
        };
        let goes_on = listing.next.is_some_and(|(next, _)| next == cookie);
        if cookie != 0 && !goes_on {
            return;
        }
        if listing.times != times || listing.version != fetched.version {
            lookups.drop_all();
            return;
        }
        if !listing.is_of(user) {
            listing.user = None;
        }
        listing.keep(fetched, |handle| {
            self.inodes.borrow().find(handle).is_some()
        });
        if listing.complete {
            lookups.former = None;
        }
        drop(lookups);
        if self.listed_names.get() > ALL_NAMES {
            self.drop_listings(Instant::now());
        }
    }

    /// Remembers the names of objects that are in the table, as a LOOKUP of each would have.
    fn remember_known(&self, directory: &NodeOf<C>, fetched: &Fetched) {
        if overlaps(directory, fetched) || fetched.version != directory.names_version.get() {
            return;
        }
        for entry in fetched.entries.iter().filter(|entry| !is_dots(entry)) {
            let known = entry.handle.filter(|_| entry.attributes.is_some());
            let known = known.and_then(|handle| self.inodes.borrow().find(&handle));
            if let Some(node) = known
                && !directory.is_known_after(&entry.name.0, fetched.call)
            {
                self.remember_of(directory, fetched.version, &entry.name.0, Some(&node));
            }
        }
    }

    /// Drops listings that are out of date or too many, and the objects of those that do not answer any more.
    pub(crate) fn drop_listings(&self, now: Instant) {
        let mut queues = self.listings.borrow_mut();
        let Queues { recent, stripped } = &mut *queues;
        let age = |fetched| now.saturating_duration_since(fetched);
        while recent
            .front()
            .is_some_and(|(fetched, _)| age(*fetched) >= ANSWERS)
            && let Some(fetched) = recent.pop_front()
        {
            let useful = self.with_listing(fetched, |listing, node| {
                let useful = listing.complete
                    && listing.shows_changes_of(node)
                    && listing.version == node.names_version.get();
                listing.names.values_mut().for_each(|entry| *entry = None);
                useful
            });
            match useful {
                Some(true) => stripped.push_back(fetched),
                Some(false) => self.drop_listing(fetched),
                None => {}
            }
        }
        let is_over = |(fetched, _): &(Instant, u64)| {
            age(*fetched) >= KEEP || self.listed_names.get() > ALL_NAMES
        };
        while stripped.front().is_some_and(is_over)
            && let Some(fetched) = stripped.pop_front()
        {
            self.drop_listing(fetched);
        }
        while self.listed_names.get() > ALL_NAMES
            && let Some(fetched) = recent.pop_front()
        {
            self.drop_listing(fetched);
        }
    }

    /// Does something with the listing of a directory that was fetched at some time, if it is still there.
    fn with_listing<T>(
        &self,
        (fetched, ino): (Instant, u64),
        mut action: impl FnMut(&mut Listing<C::As>, &NodeOf<C>) -> T,
    ) -> Option<T> {
        let node = self.inodes.borrow().get(ino)?;
        let mut lookups = node.lookups_below.borrow_mut();
        let lookups = lookups.as_mut()?;
        let mut listings = [&mut lookups.listing, &mut lookups.former].into_iter();
        // A later listing has an entry of its own.
        let listing = listings.find_map(|it| it.as_mut().filter(|it| it.fetched == fetched))?;
        Some(action(listing, &node))
    }

    fn drop_listing(&self, (fetched, ino): (Instant, u64)) {
        let node = self.inodes.borrow().get(ino);
        let Some(node) = node else {
            return;
        };
        if let Some(lookups) = &mut *node.lookups_below.borrow_mut() {
            for listing in [&mut lookups.listing, &mut lookups.former] {
                listing.take_if(|it| it.fetched == fetched);
            }
        }
    }
}

/// Returns whether every server that compares names byte by byte lists a name under which it finds an object. Servers may
/// normalise characters that are not ASCII.
fn is_listed_if_it_exists(name: &[u8]) -> bool {
    name.is_ascii() && name.len() <= LONGEST && !UNLISTED.contains(&name)
}

/// Returns whether this client has changed the directory since entries were asked for.
fn overlaps<A>(directory: &Node<A>, fetched: &Fetched) -> bool {
    directory.changing.get() > 0 || directory.changed_by_us.get() >= fetched.call
}

impl<A> Listing<A> {
    /// Returns whether the times of the directory show every change since it was fetched. If this client has changed it
    /// since, its times may be too coarse to show a later change by another client.
    fn shows_changes_of(&self, directory: &Node<A>) -> bool {
        self.settled && directory.changing.get() == 0 && self.call > directory.changed_by_us.get()
    }

    /// Adds the entries of a reply. `is_known` says whether an object is in the table, where its attributes are kept.
    fn keep(&mut self, fetched: &Fetched, is_known: impl Fn(&FileHandle) -> bool) {
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

impl<A> Lookups<A> {
    /// Returns the position from which entries are fetched, and the number of replies so far.
    fn position(&self, version: u64) -> Option<(u64, Verifier, u32)> {
        match &self.listing {
            Some(listing) if listing.version == version && listing.fetched.elapsed() < PRESENT => {
                let (cookie, verifier) = listing.next?;
                Some((cookie, verifier, listing.replies))
            }
            _ => Some((0, Verifier::default(), 0)),
        }
    }
}
