//! Copies from this machine to a server: entries, directories, links.

use std::cell::{Cell, RefCell};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use nfs_binding::client::{Mount, NfsError, Object, Place, RpcClient};
use nfs_binding::proto::{FileHandle, FileType, SetAttributes, SetTime, Status};
use rdma::Pool;
use rustix::fs::{Dir as Entries, FileType as Kind};

use super::budget::Budget;
use super::descriptors::Descriptors;
use super::ledger::Ledger;
use super::links::{Links, Turn};
use super::local::{LocalDir, Meta, SET_ID, nfs_time};
use super::same::is_same;
use super::work::{Dir, run_all};
use super::{CopyError, CopyOptions, Owner, Report, Totals};

/// The maximum number of files that are copied again because the server had no room for them.
const MAX_PUT_OFF: usize = 1000;
/// The number of entries read from a local directory at a time.
const BATCH: usize = 512;

/// Copies the file or directory `local` to `remote`, a path from the export's root whose parent
/// exists. (Use [`Mount::destination`] to copy into an existing directory.) File data is read into
/// memory from `pool`, from which the transport sends it. `progress` is called after each step.
///
/// The [module documentation](super) says what happens to existing objects.
pub async fn put<C: RpcClient>(
    mount: &Mount<C>,
    pool: &Pool,
    local: &Path,
    remote: &[u8],
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Totals),
) -> Report {
    put_all(mount, pool, &[(local, remote)], options, progress).await
}

/// Copies several files or directories, each as [`put`] does to the path beside it. They are copied at the
/// same time, so no path may be another one's or lie below it.
pub async fn put_all<C: RpcClient>(
    mount: &Mount<C>,
    pool: &Pool,
    copies: &[(&Path, &[u8])],
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Totals),
) -> Report {
    let ledger = Ledger::new(progress);
    let put = Put::new(mount, pool, options, &ledger);
    // The last one runs first.
    let copies = copies.iter().rev();
    let first = copies.map(|&(local, remote)| Task::Start(local.into(), remote.into()));
    let limit = options.files_in_flight;
    let work = async {
        run_all(first.collect(), limit, &ledger, |task| put.run(task)).await;
        // One after the other, as by cp(1): then only those fail that do not fit by themselves.
        put.is_again.set(true);
        let again = put.put_off.take().into_iter().rev().map(Task::Copy);
        run_all(again.collect(), 1, &ledger, |task| put.run(task)).await;
    };
    ledger.run(&options.interrupt, work).await;
    put.remove_leftovers().await;
    ledger.report()
}

pub(super) struct Put<'a, C> {
    pub(super) mount: &'a Mount<C>,
    pub(super) pool: &'a Pool,
    pub(super) options: &'a CopyOptions,
    pub(super) budget: Budget,
    /// The number of files that may be open.
    pub(super) open_files: Budget,
    /// The working directory.
    here: LocalDir,
    /// A token that each partly listed directory clones, so that its count is theirs, and their
    /// maximum number.
    listings: (Rc<()>, usize),
    links: Links<(u64, u64), FileHandle, Item>,
    /// The files that failed because the server had no room while others were copied, which can have been
    /// in the way, at most [`MAX_PUT_OFF`]. They are copied again at the end.
    put_off: RefCell<Vec<Item>>,
    /// The number of files that are being copied.
    pub(super) copying: Cell<usize>,
    /// The number of incomplete files that were removed on the server.
    pub(super) removed: Cell<u64>,
    /// Whether these are being copied again.
    pub(super) is_again: Cell<bool>,
    pub(super) ledger: &'a Ledger<'a>,
}

pub(super) type PutDir = Dir<Sides>;

/// The local and remote side of a directory.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) local: LocalDir,
    pub(super) remote: FileHandle,
    /// The inode number on the server.
    fileid: u64,
    /// The local directory's attributes. `None` for the directory that contains the root of the
    /// copy.
    meta: Option<Meta>,
}

/// An entry to copy.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) dir: Rc<PutDir>,
    /// The name in the local directory.
    pub(super) local: Box<[u8]>,
    /// The name on the server, if it differs. Only the root of the copy has one.
    remote: Option<Box<[u8]>>,
    /// Whether its copy has failed and is made again at the end.
    pub(super) is_put_off: Cell<bool>,
}

impl Item {
    pub(super) fn name(&self) -> &[u8] {
        self.remote.as_deref().unwrap_or(&self.local)
    }

    /// Returns whether a symbolic link of this name is followed. As with cp(1), that is one that the user named,
    /// unless directories are copied.
    pub(super) fn follows(&self, options: &CopyOptions) -> bool {
        self.remote.is_some() && !options.recursive
    }
}

enum Task {
    /// A root of the copy, and its path on the server.
    Start(Box<Path>, Box<[u8]>),
    Copy(Item),
    /// A directory to list, from where an earlier task has ended.
    List(Rc<PutDir>, Option<Partial>),
    Finish(Rc<PutDir>),
}

/// A directory that is partly listed, which counts among `Put::listings`.
struct Partial {
    entries: Entries,
    counted: Rc<()>,
}

/// The outcome of copying an entry.
enum Outcome {
    Done,
    Directory(Task),
    /// Copied. The given entries waited for it and can continue.
    Release(Vec<Item>),
    Wait,
    /// The entry is copied again at the end. The given entries waited for it and can continue.
    PutOff(Vec<Item>),
}

impl<'a, C> Put<'a, C> {
    pub(super) fn new(
        mount: &'a Mount<C>,
        pool: &'a Pool,
        options: &'a CopyOptions,
        ledger: &'a Ledger<'a>,
    ) -> Self {
        let descriptors = Descriptors::left(options.files_in_flight);
        Self {
            mount,
            pool,
            options,
            budget: Budget::new(bytes_in_flight(options, pool)),
            open_files: Budget::new(descriptors.files),
            here: LocalDir::current(descriptors.directories),
            listings: (Rc::default(), descriptors.listings),
            links: Links::default(),
            put_off: RefCell::default(),
            copying: Cell::new(0),
            removed: Cell::new(0),
            is_again: Cell::new(false),
            ledger,
        }
    }

    /// Returns the maximum number of bytes of file data in flight.
    pub(super) fn bytes_in_flight(&self) -> usize {
        bytes_in_flight(self.options, self.pool)
    }
}

fn bytes_in_flight(options: &CopyOptions, pool: &Pool) -> usize {
    options.bytes_in_flight.min(pool.limit() / 4)
}

impl<C: RpcClient> Put<'_, C> {
    async fn start(&self, local: &Path, remote: &[u8]) -> Result<Task, CopyError> {
        let current = &self.here;
        let local = local.as_os_str().as_bytes();
        if nfs_binding::client::components(remote).next().is_none() {
            // Onto the export's root: the same as onto any directory that exists.
            let meta = current
                .stat(local)
                .map_err(|e| current.error("reading", local, e))?;
            if meta.kind != Kind::Directory {
                let path = b"".as_slice().into();
                return Err(CopyError::InTheWay {
                    path,
                    is_directory: true,
                });
            }
            if !self.options.recursive {
                let path = local.into();
                return Err(CopyError::NotRecursive { path });
            }
            let root = Object {
                handle: self.mount.root(),
                attributes: self
                    .mount
                    .getattr(self.mount.root(), b"".as_slice())
                    .await?,
            };
            let id = (root.handle, root.attributes.fileid);
            if is_same(self.mount, id, remote, || current.stat(local).ok()).await? {
                let path = local.into();
                return Err(CopyError::Same { path });
            }
            return self.open_dir(None, current, local, Vec::new(), &root, meta);
        }
        Ok(Task::Copy(self.root_item(local, remote).await?))
    }

    /// Returns the root of a copy from `local`, a path from the working directory, to `remote`.
    pub(super) async fn root_item(&self, local: &[u8], remote: &[u8]) -> Result<Item, CopyError> {
        let (parent, name) = self.mount.resolve_parent(remote).await?;
        let mut path: Vec<&[u8]> = nfs_binding::client::components(remote).collect();
        path.pop();
        let info = Sides {
            local: self.here.clone(),
            remote: parent.handle,
            fileid: parent.attributes.fileid,
            meta: None,
        };
        let dir = Dir::new(None, path.join(&b'/'), info);
        Ok(Item {
            dir,
            local: local.into(),
            remote: Some(name.into()),
            is_put_off: Cell::new(false),
        })
    }

    /// Runs one task. An error is recorded and ends only that task.
    async fn run(&self, task: Task) -> Vec<Task> {
        match task {
            Task::Start(local, remote) => match self.start(&local, &remote).await {
                Ok(first) => vec![first],
                Err(error) => {
                    self.ledger.problem(error);
                    Vec::new()
                }
            },
            Task::Copy(item) => {
                let dir = Rc::clone(&item.dir);
                match self.entry(item).await {
                    Ok(Outcome::Directory(list)) => vec![list],
                    Ok(Outcome::Wait) => Vec::new(),
                    Ok(Outcome::PutOff(items)) => items.into_iter().map(Task::Copy).collect(),
                    Ok(Outcome::Done) => self.ended(dir),
                    Ok(Outcome::Release(items)) => {
                        let mut tasks = self.ended(dir);
                        tasks.extend(items.into_iter().map(Task::Copy));
                        tasks
                    }
                    Err((error, released)) => {
                        self.ledger.problem(error);
                        let mut tasks = self.ended(dir);
                        tasks.extend(released.into_iter().map(Task::Copy));
                        tasks
                    }
                }
            }
            Task::List(dir, begun) => self.list(dir, begun),
            Task::Finish(dir) => {
                self.finish_dir(&dir).await;
                match dir.parent() {
                    Some(parent) => self.ended(Rc::clone(parent)),
                    None => Vec::new(),
                }
            }
        }
    }

    /// Counts an entry of a directory as done. Returns the task that follows.
    fn ended(&self, dir: Rc<PutDir>) -> Vec<Task> {
        match dir.end() {
            true => vec![Task::Finish(dir)],
            false => Vec::new(),
        }
    }

    fn list(&self, dir: Rc<PutDir>, begun: Option<Partial>) -> Vec<Task> {
        let local = &dir.info.local;
        let failed = |error| self.ledger.problem(local.error("listing", b"", error));
        let partial = match begun {
            Some(partial) => Ok(partial),
            None => local.entries().map(|entries| Partial {
                entries,
                counted: Rc::clone(&self.listings.0),
            }),
        };
        let mut partial = match partial {
            Ok(partial) => partial,
            Err(error) => {
                failed(error);
                return self.ended(dir);
            }
        };
        // The strong count includes this directory and the reference in `self.listings`. If no
        // descriptor is left to continue the listing later, all of the directory is read at once.
        let most = match Rc::strong_count(&partial.counted) <= self.listings.1 + 1 {
            true => BATCH,
            false => usize::MAX,
        };
        let mut names: Vec<Box<[u8]>> = Vec::new();
        while names.len() < most {
            match partial.entries.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        names.push(name.into());
                    }
                }
                Some(Err(error)) => {
                    failed(error);
                    break;
                }
                None => break,
            }
        }
        let more = names.len() == most;
        let mut tasks = Vec::with_capacity(names.len() + 1);
        let copies = names.into_iter().map(|local| {
            dir.begin();
            let dir = Rc::clone(&dir);
            Task::Copy(Item {
                dir,
                local,
                remote: None,
                is_put_off: Cell::new(false),
            })
        });
        let copies: Vec<Task> = copies.collect();
        match more {
            true => tasks.push(Task::List(dir, Some(partial))),
            false => tasks.extend(self.ended(dir)),
        }
        tasks.extend(copies);
        tasks
    }

    async fn entry(&self, item: Item) -> Result<Outcome, (CopyError, Vec<Item>)> {
        let alone = |error| (error, Vec::new());
        let side = &item.dir.info;
        let found = match item.follows(self.options) {
            true => side.local.stat_target(&item.local),
            false => side.local.stat(&item.local),
        };
        let meta = found.map_err(|error| alone(side.local.error("reading", &item.local, error)))?;
        if meta.kind == Kind::Directory {
            return self.make_dir(&item, meta).await.map_err(alone);
        }
        let is_device = matches!(meta.kind, Kind::BlockDevice | Kind::CharacterDevice);
        if is_device && !self.options.devices {
            self.ledger.count(|totals| totals.devices_left_out += 1);
            return Ok(Outcome::Done);
        }
        if meta.nlink < 2 {
            return match self.object(&item, &meta).await {
                Ok(_) => Ok(Outcome::Done),
                Err(error) => self.put_off(item, error, Vec::new()),
            };
        }
        match self.links.found(meta.key, meta.nlink, item) {
            Turn::Wait => Ok(Outcome::Wait),
            Turn::Link(item, object) => {
                self.link(&item, object, &meta).await.map_err(alone)?;
                Ok(Outcome::Done)
            }
            Turn::Copy(item) => match self.object(&item, &meta).await {
                Ok(object) => Ok(Outcome::Release(self.links.done(meta.key, object))),
                Err(error) => {
                    let released = self.links.failed(meta.key);
                    self.put_off(item, error, released)
                }
            },
        }
    }

    /// Puts off an entry whose copy failed with `error`, if that is to be made again. `released`: the
    /// entries that waited for it.
    fn put_off(
        &self,
        item: Item,
        error: CopyError,
        released: Vec<Item>,
    ) -> Result<Outcome, (CopyError, Vec<Item>)> {
        if !item.is_put_off.take() {
            return Err((error, released));
        }
        self.put_off.borrow_mut().push(item);
        Ok(Outcome::PutOff(released))
    }

    /// Returns whether a file whose copy failed with `error` is copied again at the end: there may be room for it
    /// if other incomplete files are removed, or were since the copy began. `removed`: their number then.
    pub(super) fn may_put_off(&self, error: &CopyError, removed: u64) -> bool {
        let others = self.copying.get() > 1 || self.removed.get() > removed;
        let is_full = self.put_off.borrow().len() >= MAX_PUT_OFF;
        others && !self.is_again.get() && error.is_no_space() && !is_full
    }

    /// Copies an object that is not a directory.
    async fn object(&self, item: &Item, meta: &Meta) -> Result<FileHandle, CopyError> {
        if meta.kind == Kind::RegularFile {
            return self.file(item).await;
        }
        let object = self.special(item, meta).await?;
        let at = item.dir.at(item.name());
        self.finish(object, meta, &at).await?;
        self.ledger.entry(false);
        Ok(object)
    }

    async fn make_dir(&self, item: &Item, meta: Meta) -> Result<Outcome, CopyError> {
        let (parent, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        if !self.options.recursive {
            // Only the root of the copy can get here.
            let path = (&*item.local).into();
            return Err(CopyError::NotRecursive { path });
        }
        let above = &item.dir.info.local;
        let here = || above.stat(&item.local).ok();
        // A directory is not copied into itself, which would not end: an export of this machine can
        // contain both.
        for dir in item.dir.up() {
            let target = (dir.info.remote, dir.info.fileid);
            if is_same(self.mount, target, dir, here).await? {
                let path = at.display();
                return Err(CopyError::IntoItself { path });
            }
        }
        // With this mode only the owner can fill the directory. It gets its own mode at the end.
        let attributes = SetAttributes {
            mode: Some(0o700),
            ..SetAttributes::default()
        };
        let remote = match self.mount.mkdir(parent, name, attributes, &at).await {
            // It existed before, or this call's first reply was lost.
            Err(error) if error.status() == Some(Status::EXIST) => {
                let there = self.mount.lookup(parent, name, &at).await?;
                if there.attributes.file_type != FileType::Directory {
                    let path = at.display();
                    return Err(CopyError::InTheWay {
                        path,
                        is_directory: false,
                    });
                }
                there
            }
            outcome => outcome?,
        };
        let id = (remote.handle, remote.attributes.fileid);
        if is_same(self.mount, id, &at, here).await? {
            let path = at.display();
            return Err(CopyError::Same { path });
        }
        let up = Some(Rc::clone(&item.dir));
        self.open_dir(up, above, &item.local, name.to_vec(), &remote, meta)
            .map(Outcome::Directory)
    }

    fn open_dir(
        &self,
        parent: Option<Rc<PutDir>>,
        above: &LocalDir,
        local: &[u8],
        name: Vec<u8>,
        remote: &Object,
        meta: Meta,
    ) -> Result<Task, CopyError> {
        let failed = |error| above.error("opening directory", local, error);
        let here = above.open_dir(local).map_err(failed)?;
        let info = Sides {
            local: here,
            remote: remote.handle,
            fileid: remote.attributes.fileid,
            meta: Some(meta),
        };
        Ok(Task::List(Dir::new(parent, name, info), None))
    }

    async fn finish_dir(&self, dir: &Rc<PutDir>) {
        let Some(meta) = &dir.info.meta else {
            return;
        };
        match self.finish(dir.info.remote, meta, &**dir).await {
            Ok(()) => self.ledger.count(|totals| totals.directories += 1),
            Err(error) => self.ledger.problem(error),
        }
    }

    /// Sets the mode, times and owner of the local object on the remote one.
    pub(super) async fn finish(
        &self,
        object: FileHandle,
        meta: &Meta,
        at: &impl Place,
    ) -> Result<(), CopyError> {
        let (atime, a) = nfs_time(meta.atime);
        let (mtime, m) = nfs_time(meta.mtime);
        let is_link = meta.kind == Kind::Symlink;
        let mut attributes = SetAttributes {
            // The mode of a symbolic link has no meaning, and servers differ in how they treat it.
            mode: (!is_link).then_some(meta.mode & !SET_ID),
            atime: SetTime::To(atime),
            mtime: SetTime::To(mtime),
            ..SetAttributes::default()
        };
        if self.options.owner.wanted() {
            attributes.uid = Some(meta.uid);
            attributes.gid = Some(meta.gid);
        }
        match self.mount.setattr(object, attributes.clone(), at).await {
            Err(error)
                if self.options.owner == Owner::IfRoot
                    && attributes.uid.is_some()
                    && error.status() == Some(Status::PERM) =>
            {
                (attributes.uid, attributes.gid) = (None, None);
                self.mount.setattr(object, attributes.clone(), at).await?;
                self.ledger.count(|totals| totals.owners_lost += 1);
            }
            outcome => outcome?,
        }
        // Set-id bits need a SETATTR of their own: a server may clear them when the owner changes,
        // even if the same SETATTR sets the mode (knfsd does). They are set only if the object now
        // has the owner and group of the source.
        let set_id = !is_link && meta.mode & SET_ID != 0;
        let set_id = set_id && self.has_owner(object, (meta.uid, meta.gid), at).await?;
        if set_id && !self.options.set_id && meta.kind != Kind::Directory {
            self.ledger.count(|totals| totals.set_ids_left_out += 1);
        } else if set_id {
            let attributes = SetAttributes {
                mode: Some(meta.mode),
                ..SetAttributes::default()
            };
            self.mount.setattr(object, attributes, at).await?;
        }
        if !(a && m) {
            let path = at.display();
            self.ledger.problem(CopyError::TimeRange { path });
        }
        Ok(())
    }

    async fn has_owner(
        &self,
        object: FileHandle,
        owner: (u32, u32),
        at: &impl Place,
    ) -> Result<bool, NfsError> {
        let there = self.mount.getattr(object, at).await?;
        Ok((there.uid, there.gid) == owner)
    }
}

impl Owner {
    /// Returns whether to try to set owners.
    pub(super) fn wanted(self) -> bool {
        match self {
            Self::No => false,
            Self::IfRoot => rustix::process::geteuid().is_root(),
            Self::Yes => true,
        }
    }
}
