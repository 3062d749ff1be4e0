//! From this machine to a server: entries, directories, links.

use std::path::Path;
use std::rc::Rc;

use rustix::fs::{Dir as Entries, FileType as Kind, Stat};
use verbs::Pool;

use super::budget::Budget;
use super::ledger::Ledger;
use super::links::{Links, Turn};
use super::local::{LocalDir, MODE_BITS, nfs_time};
use super::work::{Dir, run_all};
use super::{CopyError, CopyOptions, Owner, Report, Totals};
use crate::client::{Mount, Object, Place, RpcClient};
use crate::proto::{
    DeviceNumber, FileHandle, FileType, LinkText, MAX_PATH, MknodWhat, SetAttributes, SetTime,
    Status,
};

/// Entries that are taken from a local directory at a time.
const BATCH: usize = 512;

/// Copies the file or directory `local` to `remote`, a path from the export's root on, whose
/// parent exists. (Whether a copy onto a directory goes into it is for
/// [`Mount::destination`] to say.) File data is read into memory from `pool`, from which the
/// transport sends it. `progress` is called after each step.
///
/// See the [module's text](super) for what happens to what is there.
pub async fn put<C: RpcClient>(
    mount: &Mount<C>,
    pool: &Pool,
    local: &Path,
    remote: &[u8],
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Totals),
) -> Report {
    let ledger = Ledger::new(progress);
    let put = Put {
        mount,
        pool,
        options,
        budget: Budget::new(options.bytes_in_flight.min(pool.limit() / 4)),
        links: Links::default(),
        ledger: &ledger,
    };
    match put.start(local, remote).await {
        Ok(Some(first)) => {
            run_all(first, options.files_in_flight, &ledger, |task| {
                put.run(task)
            })
            .await;
        }
        Ok(None) => {}
        Err(error) => ledger.problem(error),
    }

    ledger.report()
}

pub(super) struct Put<'a, C> {
    pub(super) mount: &'a Mount<C>,
    pub(super) pool: &'a Pool,
    pub(super) options: &'a CopyOptions,
    pub(super) budget: Budget,
    links: Links<(u64, u64), FileHandle, Item>,
    pub(super) ledger: &'a Ledger<'a>,
}

pub(super) type PutDir = Dir<Sides>;

/// A directory's two sides.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) local: LocalDir,
    pub(super) remote: FileHandle,
    /// The local directory's attributes; none for the one that holds the root of the copy.
    stat: Option<Stat>,
}

/// An entry to copy.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) dir: Rc<PutDir>,
    /// Its name in the local directory.
    pub(super) local: Box<[u8]>,
    /// Its name on the server, if that is another: of the root of the copy.
    remote: Option<Box<[u8]>>,
}

impl Item {
    pub(super) fn name(&self) -> &[u8] {
        self.remote.as_deref().unwrap_or(&self.local)
    }
}

enum Task {
    Copy(Item),
    List(Rc<PutDir>, Entries),
    Finish(Rc<PutDir>),
}

/// What became of an entry.
enum Outcome {
    Done,
    Directory(Task),
    /// Done, and so these can go on.
    Release(Vec<Item>),
    Wait,
}

impl<C: RpcClient> Put<'_, C> {
    async fn start(&self, local: &Path, remote: &[u8]) -> Result<Option<Task>, CopyError> {
        use std::os::unix::ffi::OsStrExt;
        let current = LocalDir::current();
        let local = local.as_os_str().as_bytes();
        if crate::client::components(remote).next().is_none() {
            // Onto the export's root: the same as onto any directory that exists.
            let stat = current
                .stat(local)
                .map_err(|e| current.error("reading", local, e))?;
            if Kind::from_raw_mode(stat.st_mode) != Kind::Directory {
                let path = b"".as_slice().into();
                return Err(CopyError::InTheWay {
                    path,
                    is_directory: true,
                });
            }
            let root = self.mount.root();
            return self
                .directory(None, current, local, Vec::new(), root, stat)
                .map(Some);
        }
        let (parent, name) = self.mount.resolve_parent(remote).await?;
        let mut path: Vec<&[u8]> = crate::client::components(remote).collect();
        path.pop();
        let info = Sides {
            local: current,
            remote: parent.handle,
            stat: None,
        };
        let dir = Dir::new(None, path.join(&b'/'), info);
        Ok(Some(Task::Copy(Item {
            dir,
            local: local.into(),
            remote: Some(name.into()),
        })))
    }

    /// Runs one task; what goes wrong is noted, and ends that task only.
    async fn run(&self, task: Task) -> Vec<Task> {
        match task {
            Task::Copy(item) => {
                let dir = Rc::clone(&item.dir);
                match self.entry(item).await {
                    Ok(Outcome::Directory(list)) => vec![list],
                    Ok(Outcome::Wait) => Vec::new(),
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
            Task::List(dir, entries) => self.list(dir, entries),
            Task::Finish(dir) => {
                self.finish_dir(&dir).await;
                match dir.parent() {
                    Some(parent) => self.ended(Rc::clone(parent)),
                    None => Vec::new(),
                }
            }
        }
    }

    /// One less to do in a directory.
    fn ended(&self, dir: Rc<PutDir>) -> Vec<Task> {
        match dir.end() {
            true => vec![Task::Finish(dir)],
            false => Vec::new(),
        }
    }

    fn list(&self, dir: Rc<PutDir>, mut entries: Entries) -> Vec<Task> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        while names.len() < BATCH {
            match entries.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        names.push(name.into());
                    }
                }
                Some(Err(error)) => {
                    self.ledger
                        .problem(dir.info.local.error("listing", b"", error));
                    break;
                }
                None => break,
            }
        }
        let more = names.len() == BATCH;
        let mut tasks = Vec::with_capacity(names.len() + 1);
        let copies = names.into_iter().map(|local| {
            dir.begin();
            let dir = Rc::clone(&dir);
            Task::Copy(Item {
                dir,
                local,
                remote: None,
            })
        });
        let copies: Vec<Task> = copies.collect();
        match more {
            true => tasks.push(Task::List(dir, entries)),
            false => tasks.extend(self.ended(dir)),
        }
        tasks.extend(copies);
        tasks
    }

    async fn entry(&self, item: Item) -> Result<Outcome, (CopyError, Vec<Item>)> {
        let alone = |error| (error, Vec::new());
        let side = &item.dir.info;
        let stat = side
            .local
            .stat(&item.local)
            .map_err(|error| alone(side.local.error("reading", &item.local, error)))?;
        if Kind::from_raw_mode(stat.st_mode) == Kind::Directory {
            return self.make_dir(&item, stat).await.map_err(alone);
        }
        let key = (stat.st_dev as u64, stat.st_ino as u64);
        let nlink = stat.st_nlink as u64;
        if nlink < 2 {
            self.object(&item, &stat).await.map_err(alone)?;
            return Ok(Outcome::Done);
        }
        match self.links.found(key, nlink, item) {
            Turn::Wait => Ok(Outcome::Wait),
            Turn::Link(item, object) => {
                self.link(&item, object).await.map_err(alone)?;
                Ok(Outcome::Done)
            }
            Turn::Copy(item) => match self.object(&item, &stat).await {
                Ok(object) => Ok(Outcome::Release(self.links.done(key, object))),
                Err(error) => Err((error, self.links.failed(key))),
            },
        }
    }

    /// Copies what is no directory.
    async fn object(&self, item: &Item, stat: &Stat) -> Result<FileHandle, CopyError> {
        if Kind::from_raw_mode(stat.st_mode) == Kind::RegularFile {
            return self.file(item).await;
        }
        let object = self.special(item, stat).await?;
        let at = item.dir.at(item.name());
        self.finish(object, stat, &at).await?;
        self.ledger.count(|totals| totals.others += 1);
        Ok(object)
    }

    /// Makes a symbolic link, pipe, socket or device.
    async fn special(&self, item: &Item, stat: &Stat) -> Result<FileHandle, CopyError> {
        let (dir, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        let attributes = SetAttributes {
            mode: Some(stat.st_mode & MODE_BITS),
            ..SetAttributes::default()
        };
        let device = DeviceNumber {
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        };
        let kind = Kind::from_raw_mode(stat.st_mode);
        let what = match kind {
            Kind::Symlink => None,
            Kind::Fifo => Some(MknodWhat::Fifo(attributes)),
            Kind::Socket => Some(MknodWhat::Socket(attributes)),
            Kind::CharacterDevice => Some(MknodWhat::Character(attributes, device)),
            _ => Some(MknodWhat::Block(attributes, device)),
        };
        let text = match kind {
            Kind::Symlink => Some(self.link_text(item)?),
            _ => None,
        };
        for replaced in [false, true] {
            let made = match (&what, &text) {
                (_, Some(text)) => self.mount.symlink(dir, name, text.clone(), &at).await,
                (Some(what), None) => self.mount.mknod(dir, name, what.clone(), &at).await,
                (None, None) => break,
            };
            match made {
                Err(error) if error.status() == Some(Status::EXIST) && !replaced => {}
                outcome => return Ok(outcome?.handle),
            }
            // Either something else has the name, or this call's first reply was lost.
            let there = self.mount.lookup(dir, name, &at).await?;
            if self
                .is_same(&there, kind, text.as_ref(), device, &at)
                .await?
            {
                return Ok(there.handle);
            }
            self.make_way(&there, item).await?;
        }
        let there = self.mount.lookup(dir, name, &at).await?;
        Ok(there.handle)
    }

    async fn is_same(
        &self,
        there: &Object,
        kind: Kind,
        text: Option<&LinkText>,
        device: DeviceNumber,
        at: &(impl Place + ?Sized),
    ) -> Result<bool, CopyError> {
        Ok(match (there.attributes.file_type, kind) {
            (FileType::Symlink, Kind::Symlink) => {
                let says = self.mount.readlink(there.handle, at).await?;
                text.is_some_and(|text| text.0 == says)
            }
            (FileType::Fifo, Kind::Fifo) | (FileType::Socket, Kind::Socket) => true,
            (FileType::Character, Kind::CharacterDevice) | (FileType::Block, Kind::BlockDevice) => {
                there.attributes.rdev == device
            }
            _ => false,
        })
    }

    fn link_text(&self, item: &Item) -> Result<LinkText, CopyError> {
        let local = &item.dir.info.local;
        let failed = |error| local.error("reading link", &item.local, error);
        let text = local.read_link(&item.local).map_err(failed)?;
        if text.len() > MAX_PATH as usize {
            return Err(failed(rustix::io::Errno::NAMETOOLONG));
        }
        Ok(LinkText(text.into()))
    }

    /// Removes what has the name of something that is to be made, unless that is a directory.
    pub(super) async fn make_way(&self, there: &Object, item: &Item) -> Result<(), CopyError> {
        let at = item.dir.at(item.name());
        if there.attributes.file_type == FileType::Directory {
            return Err(CopyError::InTheWay {
                path: at.display(),
                is_directory: true,
            });
        }
        match self
            .mount
            .remove(item.dir.info.remote, item.name(), &at)
            .await
        {
            Err(error) if error.status() == Some(Status::NOENT) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Gives an object that was copied a further name.
    async fn link(&self, item: &Item, object: FileHandle) -> Result<(), CopyError> {
        let (dir, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        for replaced in [false, true] {
            match self.mount.link(object, dir, name, &at).await {
                Err(error) if error.status() == Some(Status::EXIST) && !replaced => {}
                outcome => {
                    outcome?;
                    break;
                }
            }
            let there = self.mount.lookup(dir, name, &at).await?;
            let wanted = self.mount.getattr(object, &at).await?;
            let same = (wanted.fsid, wanted.fileid);
            if (there.attributes.fsid, there.attributes.fileid) == same {
                break;
            }
            self.make_way(&there, item).await?;
        }
        self.ledger.count(|totals| totals.others += 1);
        Ok(())
    }

    async fn make_dir(&self, item: &Item, stat: Stat) -> Result<Outcome, CopyError> {
        let (parent, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        if !self.options.recursive {
            let path = at.display();
            return Err(CopyError::NotRecursive { path });
        }
        // So that its owner, and nobody else, can fill it; it gets its own mode at the end.
        let attributes = SetAttributes {
            mode: Some(0o700),
            ..SetAttributes::default()
        };
        let remote = match self.mount.mkdir(parent, name, attributes, &at).await {
            // It was there before, or this call's first reply was lost.
            Err(error) if error.status() == Some(Status::EXIST) => {
                let there = self.mount.lookup(parent, name, &at).await?;
                if there.attributes.file_type != FileType::Directory {
                    let path = at.display();
                    return Err(CopyError::InTheWay {
                        path,
                        is_directory: false,
                    });
                }
                there.handle
            }
            outcome => outcome?.handle,
        };
        let up = Some(Rc::clone(&item.dir));
        let above = &item.dir.info.local;
        self.open_dir(up, above, &item.local, name.to_vec(), remote, stat)
            .map(Outcome::Directory)
    }

    fn directory(
        &self,
        parent: Option<Rc<PutDir>>,
        above: LocalDir,
        local: &[u8],
        name: Vec<u8>,
        remote: FileHandle,
        stat: Stat,
    ) -> Result<Task, CopyError> {
        if !self.options.recursive {
            let path = name.as_slice().into();
            return Err(CopyError::NotRecursive { path });
        }
        self.open_dir(parent, &above, local, name, remote, stat)
    }

    fn open_dir(
        &self,
        parent: Option<Rc<PutDir>>,
        above: &LocalDir,
        local: &[u8],
        name: Vec<u8>,
        remote: FileHandle,
        stat: Stat,
    ) -> Result<Task, CopyError> {
        let failed = |error| above.error("opening directory", local, error);
        let here = above.open_dir(local).map_err(failed)?;
        let entries = here.entries().map_err(failed)?;
        let info = Sides {
            local: here,
            remote,
            stat: Some(stat),
        };
        Ok(Task::List(Dir::new(parent, name, info), entries))
    }

    async fn finish_dir(&self, dir: &Rc<PutDir>) {
        let Some(stat) = &dir.info.stat else {
            return;
        };
        match self.finish(dir.info.remote, stat, &**dir).await {
            Ok(()) => self.ledger.count(|totals| totals.directories += 1),
            Err(error) => self.ledger.problem(error),
        }
    }

    /// Gives an object the mode, the times and the owner that the local one has.
    pub(super) async fn finish(
        &self,
        object: FileHandle,
        stat: &Stat,
        at: &impl Place,
    ) -> Result<(), CopyError> {
        let (atime, a) = nfs_time(stat.st_atime as i64, stat.st_atime_nsec as u32);
        let (mtime, m) = nfs_time(stat.st_mtime as i64, stat.st_mtime_nsec as u32);
        let is_link = Kind::from_raw_mode(stat.st_mode) == Kind::Symlink;
        let mut attributes = SetAttributes {
            // A symbolic link's mode means nothing, and servers differ in what they say to it.
            mode: (!is_link).then_some(stat.st_mode & MODE_BITS),
            atime: SetTime::To(atime),
            mtime: SetTime::To(mtime),
            ..SetAttributes::default()
        };
        if self.options.owner.wanted() {
            attributes.uid = Some(stat.st_uid);
            attributes.gid = Some(stat.st_gid);
        }
        match self.mount.setattr(object, attributes.clone(), at).await {
            Err(error)
                if self.options.owner == Owner::IfRoot
                    && attributes.uid.is_some()
                    && error.status() == Some(Status::PERM) =>
            {
                (attributes.uid, attributes.gid) = (None, None);
                self.mount.setattr(object, attributes, at).await?;
                self.ledger.count(|totals| totals.owners_lost += 1);
            }
            outcome => outcome?,
        }
        if !(a && m) {
            let path = at.display();
            self.ledger.problem(CopyError::TimeRange { path });
        }
        Ok(())
    }
}

impl Owner {
    /// Whether to try.
    pub(super) fn wanted(self) -> bool {
        match self {
            Self::No => false,
            Self::IfRoot => rustix::process::geteuid().is_root(),
            Self::Yes => true,
        }
    }
}
