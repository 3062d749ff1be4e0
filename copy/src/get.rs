//! Copies from a server to this machine: entries, directories, links.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nfs_binding::client::{Follow, Listing, Mount, NfsError, Object, Place, RpcClient};
use nfs_binding::escape::escape;
use nfs_binding::proto::{Attributes, FileHandle, FileType, Status};
use rustix::fs::{FileType as Kind, Timestamps, makedev};
use rustix::io::Errno;

use super::budget::Budget;
use super::descriptors::Descriptors;
use super::ledger::Ledger;
use super::links::{Links, Turn};
use super::local::{Keep, Kept, LocalDir, MODE_BITS, Meta, timespec};
use super::same::is_same;
use super::temporary::under_temporary_name;
use super::work::{At, Dir, run_all};
use super::{CopyError, CopyOptions, Owner, Report, Totals};

/// How long the attributes of a listing are used: the shortest time that NFS clients cache them
/// (`acregmin` of nfs(5)). An entry whose turn comes later is looked up again.
const LISTING_VALID: Duration = Duration::from_secs(3);

/// Copies the file or directory `remote`, a path from the export's root, to `local`, whose parent
/// exists. A symbolic link at the end of the path is copied if the copy is recursive, and followed if
/// not, as with cp(1). `progress` is called after each step.
///
/// The [module documentation](super) says what happens to existing objects. Names from the server
/// cannot lead out of `local`: those with a slash are refused, and no symbolic link below `local`
/// is followed.
pub async fn get<C: RpcClient>(
    mount: &Mount<C>,
    remote: &[u8],
    local: &Path,
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Totals),
) -> Report {
    let ledger = Ledger::new(progress);
    let descriptors = Descriptors::left(options.files_in_flight);
    let get = Get {
        mount,
        options,
        budget: Budget::new(options.bytes_in_flight),
        open_files: Budget::new(descriptors.files),
        here: LocalDir::current(descriptors.directories),
        links: Links::default(),
        ledger: &ledger,
    };
    let work = async {
        match get.start(remote, local).await {
            Ok(first) => {
                let limit = options.files_in_flight;
                run_all(vec![first], limit, &ledger, |task| get.run(task)).await;
            }
            Err(error) => ledger.problem(error.into()),
        }
    };
    ledger.run(&options.interrupt, work).await;
    ledger.report()
}

pub(super) struct Get<'a, C> {
    pub(super) mount: &'a Mount<C>,
    pub(super) options: &'a CopyOptions,
    pub(super) budget: Budget,
    /// The number of files that may be open.
    pub(super) open_files: Budget,
    /// The working directory.
    here: LocalDir,
    /// The local paths, relative to the current directory, at which objects with several names were
    /// first created.
    links: Links<(u64, u64), PathBuf, Item>,
    pub(super) ledger: &'a Ledger<'a>,
}

type GetDir = Dir<Sides>;

/// The local and remote side of a directory.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) local: LocalDir,
    remote: FileHandle,
    /// The attributes on the server. `None` for the directory that contains the root of the copy.
    attributes: Option<Attributes>,
}

/// An entry to copy.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) dir: Rc<GetDir>,
    /// The name on the server.
    name: Box<[u8]>,
    /// The local name, if it differs. Only the root of the copy has one.
    local: Option<Box<[u8]>>,
    /// The object and the time from which its attributes are trusted, if they are known. `None`: the
    /// name is looked up.
    object: Option<(Object, Instant)>,
    /// Whether it was looked up anew, after its object was gone.
    again: bool,
}

impl Item {
    pub(super) fn local(&self) -> &[u8] {
        self.local.as_deref().unwrap_or(&self.name)
    }

    /// Returns whether this is the object that the user named, and not one below it.
    pub(super) fn is_root(&self) -> bool {
        self.local.is_some()
    }

    pub(super) fn at(&self) -> At<'_, Sides> {
        self.dir.at(&self.name)
    }

    /// Returns a function that makes an operating system error into an error at the local path.
    pub(super) fn failed(&self, doing: &'static str) -> impl Fn(Errno) -> CopyError {
        move |error| self.dir.info.local.error(doing, self.local(), error)
    }
}

enum Task<'m, C> {
    Copy(Item),
    List(Rc<GetDir>, Listing<'m, C>),
    Finish(Rc<GetDir>),
}

/// The outcome of copying an entry.
enum Outcome<'m, C> {
    Done,
    /// A directory, to be listed.
    Directory(Rc<GetDir>, Listing<'m, C>),
    /// This attempt is over. The given entries, which waited for it or are to be tried again, can
    /// continue.
    Release(Vec<Item>),
    Wait,
}

impl<'m, C: RpcClient> Get<'m, C> {
    async fn start(&self, remote: &[u8], local: &Path) -> Result<Task<'m, C>, NfsError> {
        let (parent, object) = match self.mount.resolve_parent(remote).await {
            Ok((parent, name)) => {
                let found = self.mount.lookup(parent.handle, &name, remote).await;
                (parent.handle, found?)
            }
            // It is the export's root or ends with `..`, and is not looked up by a name.
            Err(NfsError::NoName { .. }) => {
                let object = self.mount.resolve(remote, Follow::No).await?;
                (self.mount.root(), object)
            }
            Err(error) => return Err(error),
        };
        let mut path: Vec<&[u8]> = nfs_binding::client::components(remote).collect();
        let name = path.pop().unwrap_or_default();
        let info = Sides {
            local: self.here.clone(),
            remote: parent,
            attributes: None,
        };
        Ok(Task::Copy(Item {
            dir: Dir::new(None, path.join(&b'/'), info),
            name: name.into(),
            local: Some(local.as_os_str().as_bytes().into()),
            object: Some((object, Instant::now())),
            again: false,
        }))
    }

    /// Runs one task. An error is recorded and ends only that task.
    async fn run(&self, task: Task<'m, C>) -> Vec<Task<'m, C>> {
        match task {
            Task::Copy(item) => {
                let dir = Rc::clone(&item.dir);
                let released = match self.entry(item).await {
                    Ok(Outcome::Directory(dir, listing)) => return vec![Task::List(dir, listing)],
                    Ok(Outcome::Wait) => return Vec::new(),
                    Ok(Outcome::Done) => Vec::new(),
                    Ok(Outcome::Release(items)) => items,
                    Err((error, items)) => {
                        self.ledger.problem(error);
                        items
                    }
                };
                let mut tasks = self.ended(dir);
                tasks.extend(released.into_iter().map(Task::Copy));
                tasks
            }
            Task::List(dir, listing) => self.list(dir, listing).await,
            Task::Finish(dir) => {
                self.finish_dir(&dir);
                match dir.parent() {
                    Some(parent) => self.ended(Rc::clone(parent)),
                    None => Vec::new(),
                }
            }
        }
    }

    /// Counts an entry of a directory as done. Returns the task that follows.
    fn ended(&self, dir: Rc<GetDir>) -> Vec<Task<'m, C>> {
        match dir.end() {
            true => vec![Task::Finish(dir)],
            false => Vec::new(),
        }
    }

    async fn list(&self, dir: Rc<GetDir>, mut listing: Listing<'m, C>) -> Vec<Task<'m, C>> {
        let entries = match listing.next(&*dir).await {
            Ok(Some(entries)) => entries,
            Ok(None) => return self.ended(dir),
            Err(error) => {
                self.ledger.problem(error.into());
                return self.ended(dir);
            }
        };
        let now = Instant::now();
        let mut tasks = Vec::with_capacity(entries.len() + 1);
        tasks.push(Task::List(Rc::clone(&dir), listing));
        tasks.extend(entries.into_iter().map(|entry| {
            dir.begin();
            let object = entry.handle.zip(entry.attributes);
            Task::Copy(Item {
                dir: Rc::clone(&dir),
                name: entry.name.0[..].into(),
                local: None,
                object: object.map(|(handle, attributes)| (Object { handle, attributes }, now)),
                again: false,
            })
        }));
        tasks
    }

    async fn entry(&self, mut item: Item) -> Result<Outcome<'m, C>, (CopyError, Vec<Item>)> {
        let alone = |error| (error, Vec::new());
        let listed = item.object.take();
        let valid = |found: &Instant| item.is_root() || found.elapsed() < LISTING_VALID;
        let listed = listed.filter(|(_, found)| valid(found));
        let mut object = match listed {
            Some((object, _)) => object,
            None => {
                let dir = item.dir.info.remote;
                let found = self.mount.lookup(dir, &item.name, &item.at()).await;
                found.map_err(|error| alone(error.into()))?
            }
        };
        let is_link = object.attributes.file_type == FileType::Symlink;
        if is_link && item.is_root() && !self.options.recursive {
            let path = item.at().display();
            let target = self.mount.resolve(path.as_bytes(), Follow::Yes).await;
            object = target.map_err(|error| alone(error.into()))?;
        }
        if object.attributes.file_type == FileType::Directory {
            return self.make_dir(&item, object).await.map_err(alone);
        }
        let attributes = &object.attributes;
        let is_device = matches!(attributes.file_type, FileType::Block | FileType::Character);
        if is_device && !self.options.devices {
            self.ledger.count(|totals| totals.devices_left_out += 1);
            return Ok(Outcome::Done);
        }
        let key = (attributes.fsid, attributes.fileid);
        let nlink = u64::from(attributes.nlink);
        let is_file = attributes.file_type == FileType::Regular;
        let turn = if nlink < 2 {
            Turn::Copy(item)
        } else {
            item.object = Some((object.clone(), Instant::now()));
            self.links.found(key, nlink, item)
        };
        let mut item = match turn {
            Turn::Wait => return Ok(Outcome::Wait),
            Turn::Link(item, place) => {
                self.link(&item, &place).map_err(alone)?;
                self.ledger.entry(is_file);
                return Ok(Outcome::Done);
            }
            Turn::Copy(item) => item,
        };
        match self.object(&item, &object).await {
            Ok(()) if nlink < 2 => Ok(Outcome::Done),
            Ok(()) => {
                let place = item.dir.info.local.path(item.local());
                Ok(Outcome::Release(self.links.done(key, place)))
            }
            Err(error) => {
                let mut released = match nlink {
                    0 | 1 => Vec::new(),
                    _ => self.links.failed(key),
                };
                if item.again || !is_stale(&error) {
                    return Err((error, released));
                }
                // Another file may have taken its name since it was found: the name is looked up again,
                // once.
                (item.object, item.again) = (None, true);
                item.dir.begin();
                released.push(item);
                Ok(Outcome::Release(released))
            }
        }
    }

    /// Copies an object that is not a directory.
    async fn object(&self, item: &Item, object: &Object) -> Result<(), CopyError> {
        if object.attributes.file_type == FileType::Regular {
            return self.file(item, object).await;
        }
        if item.is_root() {
            let here = || item.dir.info.local.stat(item.local()).ok();
            if self.is_same(item, object, here).await? {
                let path = item.at().display();
                return Err(CopyError::Same { path });
            }
        }
        self.special(item, object).await?;
        let keep = self.keep(&object.attributes);
        let local = &item.dir.info.local;
        let kept = local.finish_entry(item.local(), &keep);
        self.note_lost(kept.map_err(item.failed("setting attributes of"))?);
        self.sync_name(item);
        self.ledger.entry(false);
        Ok(())
    }

    /// Creates a symbolic link, pipe, socket or device.
    async fn special(&self, item: &Item, object: &Object) -> Result<(), CopyError> {
        let attributes = &object.attributes;
        let local = &item.dir.info.local;
        let device = makedev(attributes.rdev.major, attributes.rdev.minor);
        let kind = match attributes.file_type {
            FileType::Symlink => {
                let text = self.mount.readlink(object.handle, &item.at()).await?;
                return make(item, |name| local.make_symlink(name, &text));
            }
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::Character => Kind::CharacterDevice,
            _ => Kind::BlockDevice,
        };
        make(item, |name| local.make_node(name, kind, device))
    }

    /// Syncs the directory that contains the copy's root, so that its name is on stable storage.
    /// Names below the root are synced when their directory is done.
    pub(super) fn sync_name(&self, item: &Item) {
        if !item.is_root() {
            return;
        }
        match item.dir.info.local.sync_folder_of(item.local()) {
            Ok(()) => {}
            // A directory that is writable but not readable cannot be synced.
            Err(error @ Errno::ACCESS) => {
                let path = item.dir.info.local.path(item.local());
                let path = escape(path.as_os_str().as_bytes());
                tracing::warn!(%path, %error, "cannot sync the directory of this file");
            }
            Err(error) => {
                let problem = item.failed("syncing the directory of")(error);
                self.ledger.problem(problem);
            }
        }
    }

    /// Creates a hard link to a file that was already copied.
    fn link(&self, item: &Item, place: &Path) -> Result<(), CopyError> {
        let from = &self.here;
        let (to, name) = (&item.dir.info.local, item.local());
        let path = place.as_os_str().as_bytes();
        let same = match (from.stat(path), to.stat(name)) {
            (Ok(a), Ok(b)) => a.key == b.key,
            _ => false,
        };
        if !same {
            make(item, |name| from.make_link(path, to, name))?;
        }
        Ok(())
    }

    /// Returns whether a directory on the server is one that this copy has come through, or one on this
    /// machine that it is copied into: an export of this machine can contain both.
    async fn is_above(&self, item: &Item, object: &Object) -> Result<bool, NfsError> {
        for dir in item.dir.up() {
            // The directory that contains the copy's root is not part of the copy. If the root is that of
            // the export, both have its handle.
            if dir.info.attributes.is_some() && dir.info.remote == object.handle {
                return Ok(true);
            }
            // Directories above need not be open, so they are looked at only if they can be the
            // same.
            if dir.info.local.inode() == Some(object.attributes.fileid)
                && self
                    .is_same(item, object, || dir.info.local.stat_self())
                    .await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the source is a local object, whose metadata `here` returns.
    pub(super) async fn is_same(
        &self,
        item: &Item,
        source: &Object,
        here: impl Fn() -> Option<Meta>,
    ) -> Result<bool, NfsError> {
        let source = (source.handle, source.attributes.fileid);
        is_same(self.mount, source, &item.at(), here).await
    }

    async fn make_dir(&self, item: &Item, object: Object) -> Result<Outcome<'m, C>, CopyError> {
        if !self.options.recursive {
            let path = item.at().display();
            return Err(CopyError::NotRecursive { path });
        }
        if self.is_above(item, &object).await? {
            let path = item.at().display();
            return Err(CopyError::IntoItself { path });
        }
        let (above, name) = (&item.dir.info.local, item.local());
        match above.make_dir(name) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(item.failed("making directory")(error)),
        }
        // The user named the root of the copy, so it may be a symbolic link to a directory.
        let here = match item.local {
            Some(_) => above.open_dir(&[name, b"/."].concat()),
            None => above.open_dir(name),
        };
        let here = here.map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => in_the_way(item, false),
            error => item.failed("opening directory")(error),
        })?;
        if self.is_same(item, &object, || here.stat_self()).await? {
            let path = item.at().display();
            return Err(CopyError::Same { path });
        }
        self.sync_name(item);
        let info = Sides {
            local: here,
            remote: object.handle,
            attributes: Some(object.attributes),
        };
        let dir = Dir::new(Some(Rc::clone(&item.dir)), item.name.to_vec(), info);
        let listing = self.mount.list(object.handle);
        Ok(Outcome::Directory(dir, listing))
    }

    fn finish_dir(&self, dir: &GetDir) {
        let Some(attributes) = &dir.info.attributes else {
            return;
        };
        let local = &dir.info.local;
        let finished = local.finish(&self.keep(attributes));
        match finished.and_then(|kept| local.sync().map(|()| kept)) {
            Ok(kept) => {
                self.note_lost(kept);
                self.ledger.count(|totals| totals.directories += 1);
            }
            Err(error) => {
                let problem = local.error("finishing", b"", error);
                self.ledger.problem(problem);
            }
        }
    }

    /// Returns the attributes to set on the local object.
    pub(super) fn keep(&self, attributes: &Attributes) -> Keep {
        let is_link = attributes.file_type == FileType::Symlink;
        let required = self.options.owner == Owner::Yes;
        let is_directory = attributes.file_type == FileType::Directory;
        Keep {
            mode: (!is_link).then_some(attributes.mode & MODE_BITS),
            set_id: self.options.set_id || is_directory,
            source: (attributes.uid, attributes.gid),
            owner: self.options.owner.wanted().then_some(required),
            times: Timestamps {
                last_access: timespec(attributes.atime),
                last_modification: timespec(attributes.mtime),
            },
        }
    }

    pub(super) fn note_lost(&self, kept: Kept) {
        if kept.owner_lost {
            self.ledger.count(|totals| totals.owners_lost += 1);
        }
        if kept.set_id_left_out {
            self.ledger.count(|totals| totals.set_ids_left_out += 1);
        }
    }
}

/// Creates an object with `make`, which gets the name. An existing object with the name is replaced,
/// unless it is a directory or a device that the user named, when its successor has been made.
fn make(item: &Item, make: impl Fn(&[u8]) -> Result<(), Errno>) -> Result<(), CopyError> {
    let (local, name) = (&item.dir.info.local, item.local());
    match make(name) {
        Err(Errno::EXIST) => {}
        outcome => return outcome.map_err(item.failed("creating")),
    }
    if let Ok(there) = local.stat(name) {
        if there.kind == Kind::Directory {
            return Err(in_the_way(item, true));
        }
        keep_device(item, there.is_special())?;
    }
    let ((), temporary) = under_temporary_name(name, make).map_err(item.failed("creating"))?;
    let renamed = local.rename(&temporary, name);
    // rename(2) does nothing if both names are links to one object; then the temporary name is still
    // there.
    let _ = local.remove(&temporary);
    renamed.map_err(item.failed("naming"))
}

fn is_stale(error: &CopyError) -> bool {
    matches!(error, CopyError::Remote(error) if error.status() == Some(Status::STALE))
}

/// Returns an error if the user named the target and it is `special`: a device, a pipe or a socket.
/// `get … /dev/null` must not replace the device for all users.
pub(super) fn keep_device(item: &Item, special: bool) -> Result<(), CopyError> {
    match item.is_root() && special {
        true => {
            let path = item.dir.info.local.path(item.local());
            let path = path.as_os_str().as_bytes().into();
            Err(CopyError::Device { path })
        }
        false => Ok(()),
    }
}

pub(super) fn in_the_way(item: &Item, is_directory: bool) -> CopyError {
    let path = item.dir.info.local.path(item.local());
    CopyError::InTheWay {
        path: path.as_os_str().as_bytes().into(),
        is_directory,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// An entry `x` of a directory in which a file has the name, and that directory.
    fn existing() -> (Item, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x"), "old").unwrap();
        let path = directory.path().as_os_str().as_bytes();
        let info = Sides {
            local: LocalDir::current(8).open_dir(path).unwrap(),
            remote: FileHandle::new(b"").unwrap(),
            attributes: None,
        };
        let item = Item {
            dir: Dir::new(None, Vec::new(), info),
            name: b"x".as_slice().into(),
            local: None,
            object: None,
            again: false,
        };
        (item, directory)
    }

    /// Asserts that `x` has this content, and that these other names are beside it.
    #[track_caller]
    fn check(directory: &Path, content: &[u8], others: usize) {
        assert_eq!(fs::read(directory.join("x")).unwrap(), content);
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1 + others);
    }

    #[test]
    fn an_object_stays_if_its_successor_cannot_be_made() {
        let (item, directory) = existing();
        let made = make(&item, |name| match name {
            b"x" => Err(Errno::EXIST),
            _ => Err(Errno::PERM),
        });
        assert!(made.unwrap_err().to_string().starts_with("creating"));
        check(directory.path(), b"old", 0);
    }

    /// Another process makes the wanted link meanwhile.
    #[test]
    fn no_temporary_name_stays_if_the_link_exists_by_now() {
        let (item, directory) = existing();
        let at = |name: &[u8]| directory.path().join(std::ffi::OsStr::from_bytes(name));
        fs::write(at(b"first"), "new").unwrap();
        let made = make(&item, |name| match name {
            b"x" => Err(Errno::EXIST),
            name => {
                fs::hard_link(at(b"first"), at(name)).unwrap();
                fs::remove_file(at(b"x")).unwrap();
                fs::hard_link(at(b"first"), at(b"x")).unwrap();
                Ok(())
            }
        });
        made.unwrap();
        check(directory.path(), b"new", 1);
    }
}
