//! Open directories: READDIR and READDIRPLUS.
//!
//! The server's cookies are the kernel's offsets, so that a program can go back to any of them. Entries
//! that do not fit the kernel's buffer stay for its next request.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nfs_binding::client::{CookieCircle, Nfs3};
use nfs_binding::proto::{
    Access, Attributes, EntryPlus, FileType, Name, ReaddirArgs, ReaddirplusArgs, Verifier,
};
use rustix::io::Errno;

use crate::attributes::Version;
use crate::core::find::Stat;
use crate::core::{Connect, Core, NodeOf, UserOf};
use crate::kernel::WHOLE;
use crate::node::Node;
use crate::users::User;

/// How long an inode from a listing is kept without a reference of the kernel. A program that calls stat(2)
/// on what it has listed does so within this time, and then the names cost no LOOKUP.
const KEEP_UNREFERENCED: Duration = Duration::from_secs(5);

/// How long entries that were fetched when a directory was opened are used.
const KEEP_UNREAD: Duration = Duration::from_secs(1);

/// The number of names that a program may look up in a directory that it lists from the kernel's cache until the kernel
/// forgets the listing.
const LOOKED_UP: u32 = 32;

/// The number of entries of one listing whose types are asked for at the same time.
const TYPES_AT_ONCE: usize = 32;

/// Entries that were read, and where the listing goes on.
#[derive(Debug, Default)]
struct Stream {
    /// The cookie before the first of the entries.
    position: u64,
    entries: VecDeque<EntryPlus>,
    /// The version of the directory that the entries belong to; see [`Node::names_version`].
    version: u64,
    /// The number of the call that brought them.
    call: u64,
    verifier: Verifier,
    /// Whether nothing follows the entries.
    ended: bool,
    /// The cookies from which entries were fetched since the directory has the attributes in `unchanged`.
    circle: CookieCircle,
    /// The directory's attributes before the latest fetch.
    unchanged: Option<Version>,
    /// When the entries were fetched, if that was to open the directory and nobody has asked for them yet.
    unread: Option<Instant>,
}

/// The entries of a reply to READDIRPLUS.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) entries: Vec<EntryPlus>,
    /// Whether nothing follows the entries.
    pub(crate) eof: bool,
    pub(crate) verifier: Verifier,
    pub(crate) dir_attributes: Option<Attributes>,
    /// The version of the directory that the entries belong to; see [`Node::names_version`].
    pub(crate) version: u64,
    /// The number of the call, and when it began.
    pub(crate) call: u64,
    pub(crate) began: Instant,
}

/// Whether a call is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Repeated for as long as [`Core::ask`] repeats its calls.
    AsUsual,
    /// Not at all: no program has asked for it.
    Never,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory<A> {
    pub(crate) node: Rc<Node<A>>,
    pub(crate) user: Rc<User<A>>,
    stream: RefCell<Stream>,
}

/// An open directory, and whether the kernel may go on using its cached entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedDirectory {
    /// The number of the open directory.
    pub(crate) number: u64,
    /// Whether the kernel's cached listing is still valid.
    pub(crate) keep: bool,
}

/// An entry for the kernel.
#[derive(Debug)]
pub(crate) struct Listed<A> {
    pub(crate) name: Name,
    /// The offset behind it.
    pub(crate) cookie: u64,
    pub(crate) fileid: u64,
    pub(crate) file_type: FileType,
    /// Its object, if that is known.
    pub(crate) node: Option<Rc<Node<A>>>,
    /// The object's attributes, if the kernel may use both these and the name for a time. FUSE has one
    /// time for both here.
    pub(crate) stat: Option<Stat>,
}

impl<C: Connect> Core<C> {
    /// Opens a directory. If the server has to be asked and the kernel has no listing of it, the first entries are
    /// fetched: their reply shows that the user may read the directory, and brings its attributes.
    ///
    /// # Errors
    /// EACCES, or the error of ACCESS, GETATTR, READDIR or READDIRPLUS.
    pub(crate) async fn opendir(
        &self,
        user: &UserOf<C>,
        thread: u32,
        ino: u64,
    ) -> Result<OpenedDirectory, Errno> {
        let node = self.node(ino)?;
        let directory = OpenDirectory {
            node: Rc::clone(&node),
            user: Rc::clone(user),
            stream: RefCell::default(),
        };
        let current = self.is_current(thread, &node);
        let permitted = self.remembered(user, &node, Access::READ);
        let is_listed = node.listed.get() == Some(node.names_version.get());
        let asks = !current || permitted.is_none();
        if asks
            && permitted != Some(false)
            && !is_listed
            && !node.opened_unread.get()
            && self.readdirplus.get()
        {
            self.hidden_are_gone(&node).await;
            let mut stream = Stream {
                unread: Some(Instant::now()),
                ..Stream::default()
            };
            let has_attributes = self.fetch_entries(&directory, &mut stream).await?;
            directory.stream.replace(stream);
            // Close-to-open: the reply need not have the directory's attributes (RFC 1813, section 3.3.17).
            if !has_attributes && !current {
                self.getattr_now(user, &node).await?;
            }
        } else {
            self.permit_open(user, &node, Access::READ, current).await?;
        }
        // The kernel reads from its cached listing without a request.
        self.hidden_are_gone(&node).await;
        self.until_invalidated(&node).await;
        let version = node.names_version.get();
        let keep = node.listed.replace(Some(version)) == Some(version) && self.is_fresh(&node);
        node.looked_up.set(keep.then_some(0));
        let number = self.directories.borrow_mut().insert(Rc::new(directory));
        Ok(OpenedDirectory {
            number: number as u64,
            keep,
        })
    }

    fn directory(&self, number: u64) -> Result<Rc<OpenDirectory<C::As>>, Errno> {
        let directories = self.directories.borrow();
        let index = usize::try_from(number).map_err(|_| Errno::BADF)?;
        directories.get(index).cloned().ok_or(Errno::BADF)
    }

    /// Handles the end of an open directory.
    pub(crate) fn releasedir(&self, number: u64) {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let directory = self.directories.borrow_mut().try_remove(index);
        if let Some(directory) = directory {
            directory.node.looked_up.set(None);
            if directory.stream.borrow().unread.is_some() {
                directory.node.opened_unread.set(true);
            }
            self.inodes.borrow_mut().drop_unused(directory.node.ino);
        }
    }

    /// Lists a directory from an offset on: passes entries to `add` until it returns false, which
    /// means that it has no room. `plus` says whether `add` wants objects.
    ///
    /// # Errors
    /// The error of READDIR or READDIRPLUS, or ELOOP if the server's cookies go round in a circle.
    pub(crate) async fn readdir(
        &self,
        number: u64,
        offset: u64,
        plus: bool,
        mut add: impl FnMut(&Listed<C::As>) -> bool,
    ) -> Result<(), Errno> {
        let directory = self.directory(number)?;
        directory.node.opened_unread.set(false);
        if offset == 0 {
            self.hidden_are_gone(&directory.node).await;
        }
        let mut stream = directory.stream.take();
        let of_opening = stream.unread.take().is_some_and(|fetched| {
            fetched.elapsed() < KEEP_UNREAD && Self::is_unchanged(&directory.node, &stream)
        });
        if stream.position != offset || (offset == 0 && !of_opening) {
            // The program went somewhere else or back to the beginning, or another one shares the open directory.
            stream = Stream {
                position: offset,
                verifier: stream.verifier,
                ..Stream::default()
            };
            if offset == 0 {
                stream.verifier = Verifier::default();
            } else if stream.verifier == Verifier::default() {
                // The beginning of this listing was from the kernel's cache.
                stream.verifier = directory.node.list_verifier.get();
            }
        }
        if stream.entries.is_empty() && !stream.ended {
            self.fetch_entries(&directory, &mut stream).await?;
            // New names come with attributes that are new.
            self.until_invalidated(&directory.node).await;
        }
        while let Some(entry) = stream.entries.front() {
            // This client itself may have removed or renamed it since it was listed.
            let is_old = directory.node.is_known_after(&entry.name.0, stream.call);
            let listed = self.listed(&directory.node, entry, plus && !is_old);
            if !add(&listed) {
                if let Some(node) = &listed.node {
                    self.inodes.borrow_mut().drop_unused(node.ino);
                }
                break;
            }
            if let Some(node) = &listed.node {
                match &listed.stat {
                    Some(stat) => node.tell(&stat.attributes),
                    None => {
                        let unreferenced = (Instant::now(), node.ino);
                        self.unreferenced.borrow_mut().push_back(unreferenced);
                    }
                }
                self.remember_of(&directory.node, stream.version, &listed.name.0, Some(node));
            }
            stream.position = entry.cookie;
            stream.entries.pop_front();
        }
        directory.stream.replace(stream);
        Ok(())
    }

    /// Counts a lookup in a directory. A program that asks for the attributes of each name that it lists, as `ls -l` does,
    /// makes a request for each if the names are from the kernel's cache, and a LOOKUP unless its answer is known here.
    /// READDIRPLUS brings hundreds at a time, so the kernel is made to forget the listing, and lists the rest anew.
    pub(crate) fn looked_up(&self, directory: &NodeOf<C>) {
        let Some(before) = directory.looked_up.get().filter(|_| self.readdirplus.get()) else {
            return;
        };
        if before < LOOKED_UP {
            directory.looked_up.set(Some(before + 1));
            return;
        }
        directory.looked_up.set(None);
        if self.positive_trust(directory).is_zero() {
            // The kernel may not use what a listing brings.
            return;
        }
        directory.listed.set(None);
        // Nobody waits for it: a listing that goes on from the cache is right as well.
        self.kernel.invalidate_pages(directory.ino, WHOLE);
    }

    /// Returns whether nobody is known to have changed a directory since entries were fetched.
    fn is_unchanged(directory: &Node<C::As>, stream: &Stream) -> bool {
        stream.version == directory.names_version.get()
            && directory.changing.get() == 0
            && directory.changed_by_us.get() < stream.call
            && !directory.attributes.borrow().is_expired()
    }

    /// Removes objects that were listed a while ago and that the kernel has not looked up since.
    pub(crate) fn drop_unreferenced(&self, now: Instant) {
        let mut unreferenced = self.unreferenced.borrow_mut();
        let mut inodes = self.inodes.borrow_mut();
        while let Some((listed, ino)) = unreferenced.front().copied()
            && now.saturating_duration_since(listed) >= KEEP_UNREFERENCED
        {
            unreferenced.pop_front();
            // A request that is under way may make a reference of the kernel.
            match inodes.is_held(ino) {
                true => unreferenced.push_back((now, ino)),
                false => inodes.drop_unused(ino),
            }
        }
    }

    fn listed(&self, directory: &NodeOf<C>, entry: &EntryPlus, plus: bool) -> Listed<C::As> {
        // FUSE does not want the objects of these; and `..` of the root leads out of the mount.
        let dots = is_dots(entry);
        let known = entry.handle.zip(entry.attributes.as_ref());
        let node = known
            .filter(|_| plus && !dots)
            .and_then(|(handle, attributes)| {
                // Attributes of known objects were stored when the reply arrived. Entries are used later,
                // so storing them again could bring back old ones.
                let node = self.inodes.borrow().find(&handle);
                node.or_else(|| self.intern(handle, Some(attributes.clone()), self.calls.get()))
            });
        // The kernel checks no permission to search for a name that it was told. And attributes that
        // are out of date would be taken for true. A listing does not wait for each of its files until the
        // kernel has forgotten old pages: a program that asks for the attributes does.
        let current = node.as_ref().filter(|node| !self.has_old_pages(node));
        let stat = current.and_then(|node| {
            let mut stat = self.stat(node);
            stat.trust = stat.trust.min(self.positive_trust(directory));
            (!stat.trust.is_zero()).then_some(stat)
        });
        Listed {
            name: entry.name.clone(),
            cookie: entry.cookie,
            fileid: entry.fileid,
            file_type: match (dots, &entry.attributes) {
                (true, _) => FileType::Directory,
                (false, Some(attributes)) => attributes.file_type,
                // The user may not search the directory, or the object is gone: whoever asks for it gets an
                // error.
                (false, None) => FileType::Regular,
            },
            node,
            stat,
        }
    }

    /// Fetches the entries from the position of a stream on. Returns whether the reply had the directory's attributes.
    async fn fetch_entries(
        &self,
        directory: &OpenDirectory<C::As>,
        stream: &mut Stream,
    ) -> Result<bool, Errno> {
        // In a directory that changes, an old cookie may have a new place.
        let version = directory.node.attributes.borrow().version();
        if stream.unchanged.replace(version) != Some(version) {
            stream.circle = CookieCircle::default();
        }
        // A listing that goes round in a circle would never end. Linux's own client returned ELOOP for it before 5.18.
        if stream.circle.closes(stream.position) {
            tracing::warn!(
                ino = directory.node.ino,
                cookie = stream.position,
                "the cookies of the server's listing go round in a circle"
            );
            return Err(Errno::LOOP);
        }
        let fetched = self.fetch_from(directory, stream).await;
        let (mut entries, eof, has_attributes) = match fetched {
            // The directory has changed, and the server does not know the position any more.
            Err(Errno::IO) if stream.position != 0 && stream.verifier != Verifier::default() => {
                stream.verifier = Verifier::default();
                self.fetch_from(directory, stream).await?
            }
            outcome => outcome?,
        };
        let valid = |name: &[u8]| !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
        if entries.iter().any(|entry| !valid(&entry.name.0))
            || (entries.is_empty() && !eof)
            || entries
                .last()
                .is_some_and(|last| last.cookie == stream.position)
        {
            tracing::warn!(
                ino = directory.node.ino,
                "the server's listing makes no sense"
            );
            return Err(Errno::IO);
        }
        self.fetch_types(directory, &mut entries).await;
        directory.node.list_verifier.set(stream.verifier);
        stream.entries = entries.into();
        stream.ended = eof;
        Ok(has_attributes)
    }

    /// Fetches the attributes of entries that came without. FUSE cannot say that a type is unknown, and
    /// programs believe the type that they are told: `find` and `rm -r` would pass over directories.
    async fn fetch_types(&self, directory: &OpenDirectory<C::As>, entries: &mut [EntryPlus]) {
        let lacks = |entry: &&mut EntryPlus| entry.attributes.is_none() && !is_dots(entry);
        let mut lacking: Vec<&mut EntryPlus> = entries.iter_mut().filter(lacks).collect();
        for some in lacking.chunks_mut(TYPES_AT_ONCE) {
            let all = some.iter_mut().map(async |entry| {
                let found = match entry.handle {
                    Some(handle) => self.attributes_of(&directory.user, handle).await,
                    None => self
                        .ask_name(&directory.user, &directory.node, &entry.name.0)
                        .await
                        .map(|node| {
                            // The kernel gets no reference to it.
                            let unreferenced = (Instant::now(), node.ino);
                            self.unreferenced.borrow_mut().push_back(unreferenced);
                            node.attributes.borrow().get().clone()
                        }),
                };
                entry.attributes = found.ok();
            });
            join_all(all).await;
        }
    }

    /// Fetches entries with READDIRPLUS: those from a position on that fit a reply of `count` bytes. Stores the attributes
    /// of the directory and of known objects, and keeps the entries for lookups.
    ///
    /// # Errors
    /// The error of READDIRPLUS.
    pub(crate) async fn readdirplus(
        &self,
        user: &UserOf<C>,
        node: &NodeOf<C>,
        (cookie, verifier): (u64, Verifier),
        count: u32,
        repeat: Repeat,
    ) -> Result<Fetched, Errno> {
        let args = &ReaddirplusArgs {
            dir: node.handle,
            cookie,
            verifier,
            dir_count: count,
            max_count: count,
        };
        let version = node.names_version.get();
        let began = Instant::now();
        let before = {
            let cached = node.attributes.borrow();
            (cached.version(), cached.unchanged_for(began))
        };
        let call = self.begin();
        let outcome = match repeat {
            Repeat::AsUsual => {
                let listed = self.ask(user, |nfs| async move { nfs.readdirplus(args).await });
                listed.await
            }
            Repeat::Never => {
                let outcome = Nfs3::new(&user.caller).readdirplus(args).await;
                self.outcome(outcome)
            }
        };
        let ok = match outcome {
            Ok(ok) => ok,
            Err(error) => {
                if error == Errno::OPNOTSUPP && cookie == 0 {
                    self.readdirplus.set(false);
                }
                return Err(self.stale(node, error));
            }
        };
        let version = self.learn_names(node, ok.dir_attributes.clone(), call, version);
        if let Some(after) = &ok.dir_attributes {
            self.has_proven(user, node, Access::READ, after.ctime);
        }
        for entry in &ok.entries {
            if let (Some(handle), Some(attributes)) = (entry.handle, &entry.attributes)
                && let Some(known) = self.inodes.borrow().find(&handle)
            {
                self.learn(&known, attributes.clone(), call);
            }
        }
        let fetched = Fetched {
            entries: ok.entries,
            eof: ok.eof,
            verifier: ok.verifier,
            dir_attributes: ok.dir_attributes,
            version,
            call,
            began,
        };
        self.keep_entries(user, node, cookie, &fetched, before);
        Ok(fetched)
    }

    /// Fetches entries. Returns them, whether nothing follows, and whether the reply had the directory's attributes.
    async fn fetch_from(
        &self,
        directory: &OpenDirectory<C::As>,
        stream: &mut Stream,
    ) -> Result<(Vec<EntryPlus>, bool, bool), Errno> {
        let (node, user) = (&directory.node, &directory.user);
        let (dir, cookie, verifier) = (node.handle, stream.position, stream.verifier);
        // Also where the kernel wants no objects: it wants their types.
        if self.readdirplus.get() {
            let position = (cookie, verifier);
            let listed = self.readdirplus(user, node, position, self.limits.list, Repeat::AsUsual);
            match listed.await {
                Ok(fetched) => {
                    (stream.version, stream.call) = (fetched.version, fetched.call);
                    stream.verifier = fetched.verifier;
                    let has_attributes = fetched.dir_attributes.is_some();
                    return Ok((fetched.entries, fetched.eof, has_attributes));
                }
                Err(Errno::OPNOTSUPP) if cookie == 0 => {}
                Err(error) => return Err(error),
            }
        }
        let args = &ReaddirArgs {
            dir,
            cookie,
            verifier,
            count: self.limits.list,
        };
        let call = self.begin();
        let ok = self
            .ask(user, |nfs| async move { nfs.readdir(args).await })
            .await
            .map_err(|error| self.stale(node, error))?;
        let has_attributes = ok.dir_attributes.is_some();
        self.learn_maybe(node, ok.dir_attributes, call);
        stream.verifier = ok.verifier;
        let entries = ok.entries.into_iter().map(|entry| EntryPlus {
            fileid: entry.fileid,
            name: entry.name,
            cookie: entry.cookie,
            attributes: None,
            handle: None,
        });
        Ok((entries.collect(), ok.eof, has_attributes))
    }
}

/// Returns whether an entry is the directory itself or the one above it.
pub(crate) fn is_dots(entry: &EntryPlus) -> bool {
    matches!(&entry.name.0[..], b"." | b"..")
}
