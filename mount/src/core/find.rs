//! LOOKUP and GETATTR, and what is remembered of their results. [`crate::core::prefetch`] answers lookups of first contact.

use std::rc::Rc;
use std::time::{Duration, Instant};

use nfs_binding::proto::{Access, Attributes, DirOp, DirOpArgs, HandleArgs, Name};
use rustix::io::Errno;

use crate::core::{Connect, Core, NodeOf, UserOf};
use crate::inodes::ROOT;
use crate::node::Node;
use crate::options::LookupCache;

/// The time for which a name is assumed not to exist before the directory's attributes are fetched
/// again; they show whether another client has created the name. It is short, because for a missing
/// name an open looks the same as a lookup, and so cannot be answered afresh. It costs one call per
/// second for each directory in which programs look for missing names.
pub(crate) const ABSENT: Duration = Duration::from_secs(1);
/// The permission bits that let everybody search a directory.
const SEARCHABLE: u32 = 0o111;

/// The reply to the kernel about an object: its inode number and attributes.
#[derive(Clone, Debug)]
pub(crate) struct Stat {
    /// FUSE's number of the object.
    pub(crate) ino: u64,
    /// The attributes, with the size that this client's writes lead to.
    pub(crate) attributes: Attributes,
    /// How long the kernel may use the attributes.
    pub(crate) trust: Duration,
}

/// The reply to the kernel about a name that it looks up.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The object, or `None` if the name does not exist.
    pub(crate) stat: Option<Stat>,
    /// How long the kernel may use the name without asking again.
    pub(crate) trust: Duration,
}

impl Stat {
    /// Returns the inode number that programs see: FUSE's number, which LOOKUP and READDIRPLUS tell the kernel
    /// as well. The root, which the kernel never looks up, has that of the server.
    pub(crate) fn shown_ino(&self) -> u64 {
        match self.ino {
            ROOT => self.attributes.fileid,
            ino => ino,
        }
    }
}

impl<C: Connect> Core<C> {
    /// Looks a name up.
    ///
    /// # Errors
    /// The error of LOOKUP, except ENOENT, which is a result.
    pub(crate) async fn lookup(
        self: &Rc<Self>,
        user: &UserOf<C>,
        thread: u32,
        parent: u64,
        name: &[u8],
    ) -> Result<Found, Errno> {
        let directory = self.node(parent)?;
        self.looked_up(&directory);
        match self.find(user, &directory, name).await {
            Ok((node, asked)) => {
                // Close-to-open: only attributes that a call has just brought let the following `open`
                // skip its own call.
                let found = asked.then(|| (thread, Instant::now()));
                node.just_found.set(found);
                self.until_invalidated(&node).await;
                Ok(self.found(&directory, &node))
            }
            Err(Errno::NOENT) => Ok(Found {
                stat: None,
                trust: match self.options.lookup_cache {
                    LookupCache::All => {
                        let unsettled = self.unsettled_absence(&directory, name);
                        self.name_trust(&directory)
                            .min(self.absence(&directory))
                            .min(unsettled.unwrap_or(Duration::MAX))
                    }
                    _ => Duration::ZERO,
                },
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the object of a name, with fresh attributes, and whether a call has just brought those.
    async fn find(
        self: &Rc<Self>,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
    ) -> Result<(NodeOf<C>, bool), Errno> {
        let names = &self.counts;
        // Counts a known name by whether a call has brought, or not, the attributes of its object.
        let counted = |outcome: Result<bool, Errno>| {
            match outcome {
                Ok(false) => names.names_known.add(1),
                Ok(true) | Err(_) => names.names_asked.add(1),
            }
            outcome
        };
        // Without a cache of attributes, a known name takes a GETATTR of its directory and another one of its object.
        // One LOOKUP brings the attributes of both.
        let known = match self.caches_attributes() {
            true => self.known(user, directory, name).await?,
            false => None,
        };
        if let Some(known) = known {
            let Some(ino) = known else {
                names.names_known.add(1);
                return Err(Errno::NOENT);
            };
            let node = self.inodes.borrow().get(ino);
            if let Some(node) = node {
                match self.refresh(user, &node).await {
                    // It was replaced by another client.
                    Err(Errno::STALE) => {}
                    outcome => return counted(outcome).map(|asked| (node, asked)),
                }
            }
        }
        match self.listed_name(user, directory, name).await? {
            Some(Some(node)) => match self.refresh(user, &node).await {
                Err(Errno::STALE) => {}
                outcome => return counted(outcome).map(|asked| (node, asked)),
            },
            Some(None) => {
                names.names_known.add(1);
                return Err(Errno::NOENT);
            }
            None => {}
        }
        self.count_lookup(user, directory);
        names.names_asked.add(1);
        let node = self.ask_name(user, directory, name).await?;
        self.settled(user, &node).await?;
        Ok((node, true))
    }

    /// Returns whether attributes of any type are trusted for some time.
    fn caches_attributes(&self) -> bool {
        let times = &self.options.attributes;
        !times.file_max.is_zero() || !times.directory_max.is_zero()
    }

    /// Returns what a name is, if that is known and the user may know it: `Some(None)` if it does not
    /// exist.
    async fn known(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
    ) -> Result<Option<Option<u64>>, Errno> {
        let usable = |known: &Option<u64>| match self.options.lookup_cache {
            LookupCache::All => true,
            LookupCache::Positive => known.is_some(),
            LookupCache::None => false,
        };
        if directory
            .known_name(name)
            .is_none_or(|known| !usable(&known))
        {
            return Ok(None);
        }
        let is_absent = directory.known_name(name) == Some(None);
        if !self.is_fresh(directory) || (is_absent && self.absence(directory).is_zero()) {
            // One call makes all names of the directory usable again.
            self.getattr_now(user, directory).await?;
        }
        self.permit(user, directory, Access::LOOKUP).await?;
        Ok(directory.known_name(name))
    }

    /// Looks a name up at the server.
    pub(crate) async fn ask_name(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
    ) -> Result<NodeOf<C>, Errno> {
        let args = &DirOpArgs {
            what: dir_op(directory, name),
        };
        let version = directory.names_version.get();
        let call = self.begin();
        let outcome = self.ask(user, |nfs| async move { nfs.lookup(args).await });
        let ok = match outcome.await {
            Ok(ok) => ok,
            Err(Errno::NOENT) => {
                self.remember_of(directory, version, name, None);
                return Err(Errno::NOENT);
            }
            Err(error) => return Err(self.stale(directory, error)),
        };
        let ctime = ok.dir_attributes.as_ref().map(|after| after.ctime);
        let version = self.learn_names(directory, ok.dir_attributes, call, version);
        if let Some(ctime) = ctime {
            self.has_proven(user, directory, Access::LOOKUP, ctime);
        }
        let attributes = match ok.attributes {
            Some(attributes) => attributes,
            None => self.attributes_of(user, ok.object).await?,
        };
        let node = self
            .intern(ok.object, Some(attributes), call)
            .ok_or(Errno::IO)?;
        self.remember_of(directory, version, name, Some(&node));
        Ok(node)
    }

    /// Fetches the attributes of an object that may not be in the table.
    pub(crate) async fn attributes_of(
        &self,
        user: &UserOf<C>,
        object: nfs_binding::proto::FileHandle,
    ) -> Result<Attributes, Errno> {
        let args = &HandleArgs { object };
        self.ask(user, |nfs| async move { nfs.getattr(args).await })
            .await
    }

    /// Fetches the attributes of an object.
    ///
    /// # Errors
    /// The error of GETATTR.
    pub(crate) async fn getattr_now(
        &self,
        user: &UserOf<C>,
        node: &Node<C::As>,
    ) -> Result<(), Errno> {
        let call = self.begin();
        match self.attributes_of(user, node.handle).await {
            Ok(attributes) => self.learn(node, attributes, call),
            Err(error) => return Err(self.stale(node, error)),
        }
        Ok(())
    }

    /// Fetches the attributes of an object unless they are fresh. Returns whether it did.
    ///
    /// # Errors
    /// The error of GETATTR.
    pub(crate) async fn refresh(
        &self,
        user: &UserOf<C>,
        node: &Node<C::As>,
    ) -> Result<bool, Errno> {
        if self.is_fresh(node) {
            return Ok(false);
        }
        self.getattr_now(user, node).await?;
        self.settled(user, node).await?;
        Ok(true)
    }

    /// Repeats GETATTR until the cached attributes of a file are not expired. If a modification by this
    /// client overlapped the GETATTR and the ctimes are equal, it is unknown which attributes are newer:
    /// the new ones are ignored, and the cached ones, whose size may be too small, expire
    /// (`Cached::learn`).
    async fn settled(&self, user: &UserOf<C>, node: &Node<C::As>) -> Result<(), Errno> {
        while node.is_file() && node.attributes.borrow().is_expired() {
            if node.changing.get() > 0 {
                // While the same modifications are in flight, another GETATTR would be ambiguous as well.
                let mut first = true;
                let ended = || (!std::mem::replace(&mut first, false)).then_some(());
                node.progress.until(ended).await;
            }
            self.getattr_now(user, node).await?;
        }
        Ok(())
    }

    /// Returns the attributes of an object. Written data is sent first, so that size and times are
    /// the server's.
    ///
    /// # Errors
    /// The error of GETATTR.
    pub(crate) async fn getattr(
        self: &Rc<Self>,
        user: &UserOf<C>,
        ino: u64,
    ) -> Result<Stat, Errno> {
        let node = self.node(ino)?;
        if node.is_file() && !node.dirty.borrow().is_empty() {
            self.flush(&node).await;
        }
        let from = match self.refresh(user, &node).await? {
            true => &self.counts.attributes_asked,
            false => &self.counts.attributes_known,
        };
        from.add(1);
        self.until_invalidated(&node).await;
        let stat = self.stat(&node);
        node.tell(&stat.attributes);
        Ok(stat)
    }

    /// Returns the attributes of an object for the kernel. A caller that passes them on calls
    /// [`Node::tell`].
    pub(crate) fn stat(&self, node: &Node<C::As>) -> Stat {
        let mut attributes = node.attributes.borrow().get().clone();
        let mut trust = self.remaining(node);
        let dirty = node.dirty.borrow();
        // Data that waits for a COMMIT counts as well: the reply to its WRITE may not have been stored.
        attributes.size = attributes.size.max(dirty.kept_end());
        if dirty.end() > 0 {
            // The kernel asks again, which sends the data, when a program wants to know the times.
            trust = Duration::ZERO;
        }
        if node.hidden.borrow().is_some() {
            // The name that hides the file is not one of the user's.
            attributes.nlink = attributes.nlink.saturating_sub(1);
        }
        Stat {
            ino: node.ino,
            attributes,
            trust,
        }
    }

    /// Returns what the kernel is told of a name that exists, and counts that it was.
    pub(crate) fn found(&self, directory: &Node<C::As>, node: &Node<C::As>) -> Found {
        node.lookups.set(node.lookups.get() + 1);
        let stat = self.stat(node);
        node.tell(&stat.attributes);
        Found {
            stat: Some(stat),
            trust: self.positive_trust(directory),
        }
    }

    /// Returns how long the kernel may use a name of a directory that exists.
    pub(crate) fn positive_trust(&self, directory: &Node<C::As>) -> Duration {
        match self.options.lookup_cache {
            LookupCache::None => Duration::ZERO,
            _ => self.name_trust(directory),
        }
    }

    /// Returns how long the kernel may use names of a directory. It walks along known names without
    /// a check of permissions, so it has to ask again for each use of a name in a directory that not
    /// everybody may search. What is remembered here answers that without a call.
    fn name_trust(&self, directory: &Node<C::As>) -> Duration {
        let mode = directory.attributes.borrow().get().mode;
        match mode & SEARCHABLE == SEARCHABLE || self.options.default_permissions {
            true => self.remaining(directory),
            false => Duration::ZERO,
        }
    }

    /// Returns how much longer names of a directory are taken not to exist.
    pub(crate) fn absence(&self, directory: &Node<C::As>) -> Duration {
        match self.options.close_to_open {
            true => ABSENT.saturating_sub(directory.attributes.borrow().age(Instant::now())),
            false => Duration::MAX,
        }
    }

    /// Returns the server's inode number of an object, which is the kernel's as well except for a few.
    pub(crate) fn fileid(node: &Node<C::As>) -> u64 {
        node.attributes.borrow().get().fileid
    }

    /// Checks access(2) and chdir(2).
    ///
    /// # Errors
    /// EACCES, or the error of ACCESS.
    pub(crate) async fn access(
        &self,
        user: &UserOf<C>,
        ino: u64,
        (read, write, execute): (bool, bool, bool),
    ) -> Result<(), Errno> {
        let node = self.node(ino)?;
        let mut want = Access::empty();
        let directory = node.is_directory();
        if read {
            want |= Access::READ;
        }
        if write {
            want |= match directory {
                true => Access::MODIFY | Access::EXTEND | Access::DELETE,
                false => Access::MODIFY | Access::EXTEND,
            };
        }
        if execute {
            want |= match directory {
                true => Access::LOOKUP,
                false => Access::EXECUTE,
            };
        }
        match want.is_empty() {
            true => Ok(()),
            false => self.permit(user, &node, want).await,
        }
    }
}

/// Returns the arguments that name an entry of a directory.
pub(crate) fn dir_op<A>(directory: &Rc<Node<A>>, name: &[u8]) -> DirOp {
    DirOp {
        dir: directory.handle,
        name: Name::from(name),
    }
}
