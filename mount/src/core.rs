//! The file system: what the kernel's requests mean in calls of NFS version 3.
//!
//! A [`Core`] belongs to one thread. Each request is a future; many are in progress at once. It knows
//! nothing of FUSE's formats, so that all of it is tested with a server in the same process. Its
//! methods are in the modules below, by subject.
//!
//! Caches follow Linux's own client. Attributes are trusted for some seconds ([`Cached`]), and names as
//! long as the attributes of their directory are. Names are dropped when another client changes the
//! directory. Such a change is inferred if new attributes differ from the cached ones and no modification
//! by this client overlapped the call that brought them; or if a modification was the only one in flight,
//! and the attributes before it, which the server reports (`wcc_data`), differ from the cached ones.

pub(crate) mod access;
pub(crate) mod direct;
pub(crate) mod files;
pub(crate) mod find;
pub(crate) mod forget;
pub(crate) mod hide;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod prefetch;
pub(crate) mod resent;
pub(crate) mod status;
pub(crate) mod transfer;
pub(crate) mod write_behind;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nfs_binding::client::{Limits, Nfs3, RpcClient};
use nfs_binding::proto::{Attributes, Failed, FileHandle, FileType, NfsResult, Status, WccData};
use onc_rpc::AuthSys;
use rdma::Pool;
use rpc_transport::CallError;
use rustix::io::Errno;
use slab::Slab;

use crate::attributes::{Cached, Learnt, Version};
use crate::copies::Copies;
use crate::core::files::OpenFile;
use crate::core::listing::OpenDirectory;
use crate::counts::{Counts, Observe};
use crate::errno::{of_call, of_status};
use crate::inodes::{Inodes, ROOT};
use crate::interrupts::Interrupts;
use crate::kernel::Kernel;
use crate::lookups::Queues;
use crate::node::{NameEntry, Node};
use crate::notify::Notify;
use crate::options::Options;
use crate::read_memory::ReadMemory;
use crate::users::{Requester, User, Users};

/// The pause before a call is repeated that the server answered with NFS3ERR_JUKEBOX. Each further
/// pause is twice as long, up to the second value.
const JUKEBOX: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// The maximum number of repetitions in a soft mount, and in a mount that is gone. The pauses add up to about 16 seconds.
const JUKEBOX_TRIES: u32 = 9;
/// The number of times that written data waits for memory in a hard mount: about five minutes. Not for ever, as a
/// call that can never be sent would keep programs and an unmount waiting.
const MEMORY_TRIES: u32 = 64;
/// The number of remembered names of one directory above which those that do not exist are forgotten.
const MANY_NAMES: usize = 1 << 16;
/// The maximum number of directories that a hard-linked object remembers as its places.
const PLACES: usize = 16;

/// The memory that a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Free memory alone, for READs ahead themselves.
    Free,
    /// Free memory, and the memory of data that was read ahead, which is dropped.
    ReadAheadToo,
    /// Memory for a call without which written data is lost: the call drops what was read ahead, and waits until
    /// there is enough.
    Awaited,
}

/// A way to call the server as any user.
pub(crate) trait Connect: 'static {
    /// A client that makes the calls of one user.
    type As: RpcClient + std::fmt::Debug;

    /// Returns the client for a credential.
    fn of(&self, credential: &AuthSys) -> Self::As;
}

/// Work that nobody waits for.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The user of a [`Core`].
pub(crate) type UserOf<C> = Rc<User<<C as Connect>::As>>;
/// A node of a [`Core`].
pub(crate) type NodeOf<C> = Rc<Node<<C as Connect>::As>>;

/// The file system; see the module documentation.
pub(crate) struct Core<C: Connect> {
    pub(crate) connect: C,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    /// Whether the server has READDIRPLUS, as far as is known.
    pub(crate) readdirplus: Cell<bool>,
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) pool: Pool,
    pub(crate) copies: Copies,
    pub(crate) users: Users<C::As>,
    pub(crate) inodes: RefCell<Inodes<C::As>>,
    pub(crate) files: RefCell<Slab<Rc<OpenFile<C::As>>>>,
    pub(crate) read_memory: RefCell<ReadMemory<C::As>>,
    pub(crate) directories: RefCell<Slab<Rc<OpenDirectory<C::As>>>>,
    /// Inodes from listings to which the kernel may hold no reference, and when they were listed. No FORGET
    /// comes for them.
    pub(crate) unreferenced: RefCell<VecDeque<(Instant, u64)>>,
    /// Directories whose names are kept for lookups.
    pub(crate) listings: RefCell<Queues>,
    /// The number of these names.
    pub(crate) listed_names: Rc<Cell<usize>>,
    /// Whether names in a file system (`fsid`) differ if their case does, as far as the server was asked.
    pub(crate) compares_bytes: RefCell<HashMap<u64, bool>>,
    /// Bytes of memory that unwritten and uncommitted data takes, in all files (`Dirty::total`).
    pub(crate) unwritten: Cell<usize>,
    /// Woken when `unwritten` falls.
    pub(crate) unwritten_less: Notify,
    /// Files with such data.
    pub(crate) unsaved: RefCell<Vec<NodeOf<C>>>,
    /// Numbers the calls that bring attributes.
    pub(crate) calls: Cell<u64>,
    /// A random number of this mount.
    pub(crate) random: u32,
    /// Numbers the names of hidden files.
    pub(crate) hidden: Cell<u32>,
    /// The number of writes with O_DIRECT that wait until the kernel has forgotten pages.
    pub(crate) direct_waiting: Cell<u32>,
    /// Woken when the kernel has forgotten the pages of a file, or the attributes of an object.
    pub(crate) invalidated: Notify,
    pub(crate) counts: Counts,
    /// The source of what the transport of `connect` has counted, if anybody may ask.
    pub(crate) observe: RefCell<Option<Observe>>,
    /// Work to begin. The driver of the file system takes it.
    tasks: RefCell<Vec<Task>>,
    pub(crate) interrupts: Interrupts,
    /// Whether the kernel has ended the mount, so that no program can use it any more.
    pub(crate) gone: Cell<bool>,
}

/// The parts that a [`Core`] is made of.
pub(crate) struct Parts<C> {
    pub(crate) connect: C,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) readdirplus: bool,
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) pool: Pool,
    pub(crate) copies: Copies,
    pub(crate) root: FileHandle,
    pub(crate) root_attributes: Attributes,
    /// A random number, by which names and verifiers of several clients differ.
    pub(crate) random: u32,
}

impl<C: Connect> Core<C> {
    pub(crate) fn new(parts: Parts<C>) -> Rc<Self> {
        let now = Instant::now();
        let trust = parts.options.attributes.directory_min;
        let cached = Cached::new(parts.root_attributes, 0, now, trust);
        let root = Rc::new(Node::new(ROOT, parts.root, cached));
        let read_memory = parts.pool.limit() / 4;
        Rc::new(Self {
            connect: parts.connect,
            options: parts.options,
            limits: parts.limits,
            readdirplus: Cell::new(parts.readdirplus),
            kernel: parts.kernel,
            pool: parts.pool,
            copies: parts.copies,
            users: Users::new(),
            inodes: RefCell::new(Inodes::new(root)),
            files: RefCell::default(),
            read_memory: RefCell::new(ReadMemory::new(read_memory)),
            directories: RefCell::default(),
            unreferenced: RefCell::default(),
            listings: RefCell::default(),
            listed_names: Rc::default(),
            compares_bytes: RefCell::default(),
            unwritten: Cell::new(0),
            unwritten_less: Notify::default(),
            unsaved: RefCell::default(),
            calls: Cell::new(0),
            random: parts.random,
            hidden: Cell::new(0),
            direct_waiting: Cell::new(0),
            invalidated: Notify::default(),
            counts: Counts::default(),
            observe: RefCell::default(),
            tasks: RefCell::default(),
            interrupts: Interrupts::default(),
            gone: Cell::new(false),
        })
    }

    /// Returns the user of a request.
    pub(crate) fn user(&self, requester: Requester) -> UserOf<C> {
        let make = |credential: &AuthSys| self.connect.of(credential);
        self.users.of(requester, Instant::now(), make)
    }

    /// Begins work that nobody waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.borrow_mut().push(Box::pin(task));
    }

    /// Does work to its end in a task of its own, also if the process that waits for it is killed. Otherwise
    /// the server might execute a call whose outcome is not recorded here.
    pub(crate) async fn to_the_end<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
    ) -> T {
        let outcome = Rc::new((Cell::new(None), Notify::default()));
        let told = Rc::clone(&outcome);
        self.spawn(async move {
            told.0.set(Some(work.await));
            told.1.wake();
        });
        outcome.1.until(|| outcome.0.take()).await
    }

    /// Returns the work that was begun since the last call.
    pub(crate) fn take_tasks(&self) -> Vec<Task> {
        self.tasks.take()
    }

    /// Returns the object with a number.
    ///
    /// # Errors
    /// ESTALE for one that the kernel should not know.
    pub(crate) fn node(&self, ino: u64) -> Result<NodeOf<C>, Errno> {
        self.inodes.borrow().get(ino).ok_or(Errno::STALE)
    }

    /// Numbers a call that brings attributes.
    pub(crate) fn begin(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    /// Makes a call of a user. Repeats it while the server answers NFS3ERR_JUKEBOX, and once if there was no
    /// memory for it and data that was read ahead could be dropped. In a hard mount that is gone, only the calls that
    /// save written data are still repeated without end.
    pub(crate) async fn ask<'u, T, F, R>(
        &self,
        user: &'u User<C::As>,
        make: impl Fn(Nfs3<&'u C::As>) -> R,
    ) -> Result<T, Errno>
    where
        R: Future<Output = Result<NfsResult<T, F>, CallError>>,
    {
        self.ask_within(user, Memory::ReadAheadToo, make).await
    }

    /// Makes a call of a user as [`Core::ask`] does, with this memory.
    pub(crate) async fn ask_within<'u, T, F, R>(
        &self,
        user: &'u User<C::As>,
        memory: Memory,
        make: impl Fn(Nfs3<&'u C::As>) -> R,
    ) -> Result<T, Errno>
    where
        R: Future<Output = Result<NfsResult<T, F>, CallError>>,
    {
        let caller = &user.caller;
        self.repeat(user, memory, || make(Nfs3::new(caller))).await
    }

    /// Makes a call of a user with this memory, again as long as [`Core::ask`] says.
    pub(crate) async fn repeat<T, F, R>(
        &self,
        user: &User<C::As>,
        memory: Memory,
        make: impl Fn() -> R,
    ) -> Result<T, Errno>
    where
        R: Future<Output = Result<NfsResult<T, F>, CallError>>,
    {
        let (mut pause, longest) = JUKEBOX;
        let (mut tries, mut short_of_memory) = (0, 0);
        let mut relieved = memory == Memory::Free;
        let saves_data = memory == Memory::Awaited;
        let memory_tries = match memory {
            Memory::Free | Memory::ReadAheadToo => 0,
            Memory::Awaited if self.options.hard => MEMORY_TRIES,
            Memory::Awaited => JUKEBOX_TRIES,
        };
        loop {
            match make().await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(Failed {
                    status: Status::JUKEBOX,
                    ..
                })) if tries < JUKEBOX_TRIES
                    || (self.options.hard && (saves_data || !self.gone.get())) =>
                {
                    self.counts.delays.add(1);
                    user.caller.sleep(pause).await;
                    pause = (pause * 2).min(longest);
                    tries += 1;
                }
                Ok(Err(Failed { status, .. })) => return Err(of_status(status)),
                // Data that was read ahead may have taken the memory, and can be read again.
                Err(CallError::TooLarge(_))
                    if !relieved && self.read_memory.borrow_mut().drop_all() =>
                {
                    // A call that waits may find that other files have read ahead again.
                    relieved = memory != Memory::Awaited;
                }
                // Memory comes back, like a server.
                Err(error @ CallError::TooLarge(_)) if short_of_memory < memory_tries => {
                    tracing::warn!(%error, "written data waits until it can be sent");
                    user.caller.sleep(pause).await;
                    pause = (pause * 2).min(longest);
                    short_of_memory += 1;
                }
                Err(error) => {
                    tracing::warn!(%error, "a call got no results");
                    return Err(of_call(&error, self.options.softerr));
                }
            }
        }
    }

    /// Returns the results of a call that is not repeated.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) fn outcome<T, F>(
        &self,
        outcome: Result<NfsResult<T, F>, CallError>,
    ) -> Result<T, Errno> {
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Failed { status, .. })) => Err(of_status(status)),
            Err(error) => Err(of_call(&error, self.options.softerr)),
        }
    }

    /// Returns how long attributes of a type are trusted: at least and at most.
    pub(crate) fn trust(&self, file_type: FileType) -> (Duration, Duration) {
        let times = &self.options.attributes;
        match file_type {
            FileType::Directory => (times.directory_min, times.directory_max),
            _ => (times.file_min, times.file_max),
        }
    }

    /// Returns the node of an object that the server has named, with its attributes if they came
    /// along.
    pub(crate) fn intern(
        &self,
        handle: FileHandle,
        attributes: Option<Attributes>,
        call: u64,
    ) -> Option<NodeOf<C>> {
        let known = self.inodes.borrow().find(&handle);
        match (known, attributes) {
            (Some(node), Some(attributes)) => {
                self.learn(&node, attributes, call);
                Some(node)
            }
            (Some(node), None) => Some(node),
            (None, Some(attributes)) => {
                let (trust, _) = self.trust(attributes.file_type);
                let now = Instant::now();
                let mut inodes = self.inodes.borrow_mut();
                Some(inodes.add(handle, attributes, call, now, trust))
            }
            (None, None) => None,
        }
    }

    /// Stores attributes that a call without a modification brought.
    pub(crate) fn learn(&self, node: &Node<C::As>, attributes: Attributes, call: u64) {
        let ours = node.changing.get() > 0 || node.changed_by_us.get() >= call;
        let before = node.attributes.borrow().version();
        self.store(node, attributes, (call, !ours), ours);
        if ours && node.attributes.borrow().version() != before {
            node.unsure.set(self.calls.get());
        }
    }

    /// Stores the attributes of a reply, if the reply has any; otherwise the cached ones stay as they are.
    pub(crate) fn learn_maybe(
        &self,
        node: &Node<C::As>,
        attributes: Option<Attributes>,
        call: u64,
    ) {
        if let Some(attributes) = attributes {
            self.learn(node, attributes, call);
        }
    }

    /// Stores the attributes that a modification by this client brought.
    pub(crate) fn learn_change(&self, change: &Change<'_, C>, wcc: WccData) {
        let node = change.node;
        // With several modifications in flight, their order at the server is not known.
        let alone = node.changing.get() == 1 && node.changed_by_us.get() < change.call;
        if let Some(before) = wcc.before
            && alone
        {
            let cached = node.attributes.borrow().version();
            let before = Version::from(&before);
            if before != cached {
                self.forget_cached(node, before.data_differs(&cached));
            }
        } else {
            node.unsure.set(self.calls.get());
        }
        match wcc.after {
            Some(after) => self.store(node, after, (change.call, alone), true),
            None => node.attributes.borrow_mut().expire(),
        }
    }

    fn store(&self, node: &Node<C::As>, attributes: Attributes, call: (u64, bool), ours: bool) {
        let times = self.trust(attributes.file_type);
        let mut cached = node.attributes.borrow_mut();
        let learnt = cached.learn(attributes, call, Instant::now(), times);
        let now = cached.version();
        drop(cached);
        if let Learnt::Changed { from } = learnt
            && !ours
        {
            self.forget_cached(node, now.data_differs(&from));
        }
    }

    /// Returns how long the attributes of an object are still trusted.
    pub(crate) fn remaining(&self, node: &Node<C::As>) -> Duration {
        node.attributes.borrow().remaining(Instant::now())
    }

    pub(crate) fn is_fresh(&self, node: &Node<C::As>) -> bool {
        !self.remaining(node).is_zero()
    }

    /// Notes that a modification of an object by this client begins. It ends when the value is
    /// dropped.
    pub(crate) fn change<'n>(&'n self, node: &'n Node<C::As>) -> Change<'n, C> {
        node.changing.set(node.changing.get() + 1);
        Change {
            core: self,
            node,
            call: self.begin(),
        }
    }

    /// Remembers what a name in a directory was found to be.
    pub(crate) fn remember(
        &self,
        directory: &Node<C::As>,
        name: &[u8],
        node: Option<&Node<C::As>>,
    ) {
        self.remember_of(directory, directory.names_version.get(), name, node);
    }

    /// Remembers what a name was found to be in a version of its directory ([`Node::names_version`]). An
    /// entry of a later version stays, and one that is not of the directory's present version is not used.
    pub(crate) fn remember_of(
        &self,
        directory: &Node<C::As>,
        version: u64,
        name: &[u8],
        node: Option<&Node<C::As>>,
    ) {
        directory.strike(name);
        let mut names = directory.names.borrow_mut();
        if names.len() >= MANY_NAMES && node.is_none() {
            names.retain(|_, entry| entry.ino.is_some());
        }
        if names.get(name).is_some_and(|known| known.version > version) {
            return;
        }
        let entry = NameEntry {
            ino: node.map(|node| node.ino),
            version,
            call: self.calls.get(),
        };
        names.insert(name.into(), entry);
        if let Some(node) = node {
            let mut places = node.places.borrow_mut();
            let here = |(dir, other): &(u64, Box<[u8]>)| *dir == directory.ino && **other == *name;
            if !places.iter().any(here) {
                if places.len() >= PLACES {
                    places.remove(0);
                }
                if places.is_empty() {
                    // Nearly all objects have one.
                    places.reserve_exact(1);
                }
                places.push((directory.ino, name.into()));
            }
        }
    }

    /// Forgets a name that is no longer what is remembered of it, so that the next lookup asks the server.
    /// See [`Node::outdate_name`] for one that may still be the same.
    pub(crate) fn forget_name(&self, directory: &Node<C::As>, name: &[u8]) {
        directory.names.borrow_mut().remove(name);
        directory.strike(name);
    }

    /// Stores the attributes of a directory from a reply that also has names in it (LOOKUP, READDIRPLUS).
    /// Returns the version of the directory that the names belong to. `before` is the version at the time
    /// of the call.
    pub(crate) fn learn_names(
        &self,
        directory: &Node<C::As>,
        attributes: Option<Attributes>,
        call: u64,
        before: u64,
    ) -> u64 {
        let same = directory.names_version.get() == before;
        self.learn_maybe(directory, attributes, call);
        // The names of a reply are as new as its attributes. But if another reply has raised the version
        // since the call began, these names may be older.
        match same {
            true => directory.names_version.get(),
            false => before,
        }
    }

    /// Handles an object that the server does not know any more: its names have to be looked up
    /// again. (The kernel does so when it is told ESTALE.)
    pub(crate) fn stale(&self, node: &Node<C::As>, error: Errno) -> Errno {
        if error == Errno::STALE {
            node.attributes.borrow_mut().expire();
            for (directory, name) in node.places.borrow().iter() {
                if let Some(directory) = self.inodes.borrow().get(*directory) {
                    directory.outdate_name(name);
                }
            }
        }
        error
    }

    /// Handles FORGET: subtracts `lookups` from the number of times that the kernel looked an object up.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        let mut inodes = self.inodes.borrow_mut();
        if let Some(node) = inodes.get(ino) {
            node.lookups.set(node.lookups.get().saturating_sub(lookups));
            drop(node);
            inodes.drop_unused(ino);
        }
    }
}

/// A modification by this client in flight; see [`Core::change`].
pub(crate) struct Change<'n, C: Connect> {
    core: &'n Core<C>,
    pub(crate) node: &'n Node<C::As>,
    pub(crate) call: u64,
}

impl<C: Connect> Drop for Change<'_, C> {
    fn drop(&mut self) {
        self.node.changing.set(self.node.changing.get() - 1);
        // Calls that began before now may bring attributes from before the modification.
        self.node.changed_by_us.set(self.core.calls.get());
        // For those that wait with `Core::settled`.
        self.node.progress.wake();
    }
}
