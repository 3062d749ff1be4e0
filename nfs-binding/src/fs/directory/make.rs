//! Operations that create objects and names.

use std::os::fd::OwnedFd;

use rustix::fs::{Access as Wanted, AtFlags, Statx, makedev};

use super::*;
use crate::proto::DeviceNumber;

/// The mode of files that are created without one.
const FILE_MODE: u32 = 0o600;
/// The mode of directories that are created without one.
const DIRECTORY_MODE: u32 = 0o700;
/// The highest major device number (12 bits, `MKDEV` of Linux).
const MAX_MAJOR: u32 = 0xfff;
/// The highest minor device number (20 bits).
const MAX_MINOR: u32 = 0xf_ffff;
/// The maximum number of attempts of a CREATE whose name local processes create and remove
/// meanwhile.
const ATTEMPTS: usize = 10;
/// The bits of each half of a verifier that the seconds of a time can hold on every host.
const VERIFIER_BITS: u32 = 0x7fff_ffff;

/// Converts the verifier of an exclusive CREATE to file times, in which it is stored until the
/// client sets the times (RFC 1813, section 3.3.8). So a repeated CREATE is recognised even after a
/// restart.
fn verifier_times(verifier: Verifier) -> SetAttributes {
    let verifier = u64::from_be_bytes(verifier);
    let time = |half: u32| {
        SetTime::To(NfsTime {
            seconds: half & VERIFIER_BITS,
            nanos: 0,
        })
    };
    SetAttributes {
        mtime: time((verifier >> 32) as u32),
        atime: time(verifier as u32),
        ..SetAttributes::default()
    }
}

impl Served {
    /// Opens the object that was just created as the entry `name`.
    ///
    /// Returns `None` if the entry is not, or may not be, the new object: it has another type, is the root of a
    /// file system that is not part of the export, or was replaced at each attempt to open it. Also returns
    /// whether the object belongs to the caller. If not, either a local process has replaced it, or its file
    /// system assigns owners itself, such as FAT or NFS with `root_squash`.
    fn open_made(
        &self,
        who: &Caller,
        dir: &Node,
        name: &[u8],
        file_type: FileType,
    ) -> FsResult<Option<(Node, bool)>> {
        let Child::Here(node, attributes) = self.open_linked(dir, name)? else {
            return Ok(None);
        };
        let ours = attributes.uid == self.authority.identity(who).uid;
        let may_be_it = node.file_type == file_type && attributes.nlink > 0;
        Ok(may_be_it.then_some((node, ours)))
    }

    /// Returns the attributes that remain to be set on a new object after the host has determined
    /// its mode, on which set-id bits and access control lists have an influence.
    fn plan_new(
        &self,
        who: &Caller,
        dir: &Attributes,
        set: &SetAttributes,
        default_mode: u32,
    ) -> FsResult<(u32, SetAttributes)> {
        let who = self.authority.identity(who);
        let mode = permission::plan_new(dir, set, who, default_mode)?.mode;
        let rest = SetAttributes {
            mode: None,
            ..permission::allowed_for_new(set, who)
        };
        Ok((mode.unwrap_or(default_mode), rest))
    }

    /// Creates an entry with `make`, which receives the mode, and completes it. If that fails, the
    /// entry is removed again.
    fn make(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        (set, default_mode, file_type): (&SetAttributes, u32, FileType),
        make: impl FnOnce(&Node, Mode) -> Result<(), rustix::io::Errno>,
    ) -> Change<Object> {
        self.change(who, dir, |dir, now, unstable| {
            permission::require_directory(now)?;
            name::check_new(name)?;
            let (mode, mut rest) = self.plan_new(who, now, set, default_mode)?;
            let set_id = mode & (permission::SET_UID | permission::SET_GID);
            if file_type == FileType::Directory && set_id != 0 {
                // mkdir(2) ignores these bits.
                rest.mode = Some(set_id);
            }
            make(dir, Mode::from_raw_mode(mode))?;
            match self.open_made(who, dir, name, file_type) {
                Ok(Some((node, ours))) => {
                    let rest = ours.then_some(&rest);
                    self.adopt(who, dir, name, node, rest, unstable)
                }
                Ok(None) | Err(FsError::NotFound) => Err(FsError::Later),
                Err(error) => {
                    // Where the file system assigns owners itself (FAT, NFS with `root_squash`), the
                    // object cannot be told from another's, and is left behind.
                    let uid = self.authority.identity(who).uid;
                    let may_be_it =
                        |now: &Statx| host::file_type(now) == file_type && now.stx_uid == uid;
                    if error != FsError::Stale {
                        discard(dir, name, may_be_it);
                    }
                    Err(error)
                }
            }
        })
    }

    /// Completes a file that was just created as the entry `name` of `dir` and is open as `fd`, or
    /// removes it.
    fn adopt_file(
        &self,
        who: &Caller,
        dir: &Arc<Node>,
        name: &[u8],
        fd: OwnedFd,
        rest: &SetAttributes,
        unstable: &mut Unstable,
    ) -> FsResult<Object> {
        let node = self.created(&fd, dir);
        let node = node.inspect_err(|_| discard_made(dir, name, &fd))?;
        node.keep_content(fd);
        self.adopt(who, dir, name, node, Some(rest), unstable)
    }

    /// Completes an object that was just created with the attributes `rest`, or removes it.
    /// `rest` is `None` if the object may be another's: then it stays as it is.
    fn adopt(
        &self,
        who: &Caller,
        dir: &Arc<Node>,
        name: &[u8],
        node: Node,
        rest: Option<&SetAttributes>,
        unstable: &mut Unstable,
    ) -> FsResult<Object> {
        let node = self.keep_child(dir, name, node);
        if let Some(rest) = rest {
            let completed = self.complete(who, &node, rest);
            let completed = completed.inspect_err(|_| {
                discard_made(dir, name, &*node);
                // No client has its handle, so nothing else would close it soon.
                self.lost_name(dir, name, &node);
            });
            completed.map_err(not_of_directory)?;
        }
        if matches!(node.file_type, FileType::Directory | FileType::Regular) {
            unstable.push(Arc::clone(&node));
        }
        unstable.push(Arc::clone(dir));
        list::object(&node).map_err(not_of_directory)
    }

    /// Sets those of the requested attributes that a new object does not have yet. Mode bits are
    /// only added.
    fn complete(&self, who: &Caller, node: &Node, rest: &SetAttributes) -> FsResult<()> {
        let now = node.attributes()?;
        if let Some(size) = rest.size
            && node.file_type == FileType::Regular
        {
            self.set_size(node, size)?;
        }
        let rest = SetAttributes {
            mode: rest.mode.map(|bits| now.mode | bits),
            uid: rest.uid.filter(|&uid| uid != now.uid),
            gid: rest.gid.filter(|&gid| gid != now.gid),
            ..rest.clone()
        };
        self.set_rest(self.authority.identity(who), node, &now, &rest)
    }

    /// Executes CREATE.
    pub(super) fn create_file(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        how: &HowToCreate,
    ) -> Change<Object> {
        self.create_with(who, dir, name, how, |dir, mode| {
            host::create_file(dir, name, mode)
        })
    }

    /// Executes CREATE with `create`, which creates the file or finds that the name exists.
    fn create_with(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        how: &HowToCreate,
        mut create: impl FnMut(&Node, u32) -> FsResult<OwnedFd>,
    ) -> Change<Object> {
        let times;
        let set = match how {
            HowToCreate::Unchecked(set) | HowToCreate::Guarded(set) => set,
            HowToCreate::Exclusive(verifier) => {
                times = verifier_times(*verifier);
                &times
            }
        };
        self.change(who, dir, |dir, now, unstable| {
            permission::require_directory(now)?;
            name::check_new(name)?;
            let (mode, rest) = self.plan_new(who, now, set, FILE_MODE)?;
            for _ in 0..ATTEMPTS {
                let fd = match create(dir, mode) {
                    Err(FsError::Exists) => match self.existing(who, dir, name, how, unstable) {
                        // The file that had the name is gone, so that it can be created now. To the
                        // client, these errors would say that the directory is gone.
                        Err(FsError::NotFound | FsError::Stale) => {
                            unstable.clear();
                            continue;
                        }
                        other => return other,
                    },
                    other => other?,
                };
                return self.adopt_file(who, dir, name, fd, &rest, unstable);
            }
            Err(FsError::Later)
        })
    }

    /// Returns a file that was just created in `dir` and is open.
    fn created(&self, fd: &OwnedFd, dir: &Node) -> FsResult<Node> {
        let path = self.files.reopen(fd.as_fd(), OFlags::PATH)?;
        let stat = host::stat(&path)?;
        let id = dir.volume.identify(&path, &stat)?;
        Ok(Node::new(id, Arc::clone(&dir.volume), path, &stat))
    }

    /// Executes CREATE of a name that exists.
    fn existing(
        &self,
        who: &Caller,
        dir: &Arc<Node>,
        name: &[u8],
        how: &HowToCreate,
        unstable: &mut Unstable,
    ) -> FsResult<Object> {
        let child = || {
            let node = self.child(dir, name)?;
            match node.file_type {
                FileType::Regular => Ok(node),
                _ => Err(FsError::Exists),
            }
        };
        let node;
        match how {
            HowToCreate::Guarded(_) => return Err(FsError::Exists),
            HowToCreate::Unchecked(set) => {
                node = child()?;
                let set = SetAttributes {
                    size: set.size,
                    ..SetAttributes::default()
                };
                if set.size.is_some() {
                    self.set(who, &node, &node.attributes()?, &set)?;
                    unstable.push(Arc::clone(&node));
                }
            }
            HowToCreate::Exclusive(verifier) => {
                node = child()?;
                let now = node.attributes()?;
                let times = verifier_times(*verifier);
                let same =
                    SetTime::To(now.mtime) == times.mtime && SetTime::To(now.atime) == times.atime;
                if !same || now.size != 0 {
                    return Err(FsError::Exists);
                }
                unstable.push(Arc::clone(&node));
            }
        }
        // The CREATE that made the file may not have synced the directory yet, so it is synced here. The file
        // is synced only in the cases above: an older one can have much unstable data, of which this reply
        // promises nothing.
        unstable.push(Arc::clone(dir));
        list::object(&node)
    }

    /// Executes MKDIR.
    pub(super) fn make_directory(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        let plan = (set, DIRECTORY_MODE, FileType::Directory);
        self.make(who, dir, name, plan, |dir, mode| {
            rustix::fs::mkdirat(dir, name, mode)
        })
    }

    /// Executes SYMLINK.
    pub(super) fn make_symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        if let Err(error) = name::check_target(target) {
            return Change::refused(error);
        }
        let plan = (set, 0o777, FileType::Symlink);
        self.make(who, dir, name, plan, |dir, _| {
            rustix::fs::symlinkat(target, dir, name)
        })
    }

    /// Executes MKNOD.
    pub(super) fn make_special(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        use rustix::fs::FileType as Host;
        let none = DeviceNumber::default();
        let (host, file_type, rdev) = match what {
            Special::Character(rdev) => (Host::CharacterDevice, FileType::Character, rdev),
            Special::Block(rdev) => (Host::BlockDevice, FileType::Block, rdev),
            Special::Socket => (Host::Socket, FileType::Socket, none),
            Special::Fifo => (Host::Fifo, FileType::Fifo, none),
        };
        // Larger numbers would be truncated to those of other devices.
        if rdev.major > MAX_MAJOR || rdev.minor > MAX_MINOR {
            return Change::refused(FsError::Invalid);
        }
        let plan = (set, FILE_MODE, file_type);
        self.make(who, dir, name, plan, |dir, mode| {
            let rdev = makedev(rdev.major, rdev.minor);
            rustix::fs::mknodat(dir, name, host, mode, rdev)
        })
    }

    /// Executes LINK.
    pub(super) fn add_link(
        &self,
        who: &Caller,
        file: &FileId,
        dir: &FileId,
        name: &[u8],
    ) -> Change<Attributes> {
        let target = self.find(file);
        self.change(who, dir, |dir, now, unstable| {
            let target = target?;
            permission::require_directory(now)?;
            name::check_new(name)?;
            if target.file_type == FileType::Directory {
                return Err(FsError::IsDirectory);
            }
            target.attributes()?;
            self.link_as_caller(&target, dir, name)?;
            self.record_place(dir, name, &target);
            unstable.push(Arc::clone(dir));
            target.attributes()
        })
    }
}

impl Served {
    /// Creates a hard link to an object.
    ///
    /// The host may forbid its users to link to files that they do not own
    /// (`fs.protected_hardlinks`), to protect local programs that write to world-writable
    /// directories. The kernel's NFS server ignores that setting, and clients could not tell the
    /// reason of a failure. So if the directory's permissions allow the link, it is made.
    fn link_as_caller(&self, target: &Node, dir: &Node, name: &[u8]) -> FsResult<()> {
        match self.files.link(target.as_fd(), dir, name) {
            Err(FsError::Perm) => {}
            other => return other,
        }
        permit::ask(dir, Wanted::WRITE_OK | Wanted::EXEC_OK)?;
        self.authority
            .as_server(|| self.files.link(target.as_fd(), dir, name))
    }
}

/// Removes the entry `name` of `dir` if it is still the object that was just made and is open as
/// `made`.
fn discard_made(dir: &Node, name: &[u8], made: impl AsFd) {
    if let Ok(made) = host::stat(made) {
        discard(dir, name, |now| host::is_same_object(now, &made));
    }
}

/// Removes the entry `name` of `dir`, which could not be completed, if `is_it` returns true for its
/// metadata. A local process may have renamed another object to that name meanwhile, which must
/// stay. (The host cannot compare and remove in one step, so this shortens the time in which that
/// can happen to a moment.)
fn discard(dir: &Node, name: &[u8], is_it: impl FnOnce(&Statx) -> bool) {
    let Ok(now) = host::stat_entry(dir, name) else {
        return;
    };
    let flags = match host::file_type(&now) {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    if is_it(&now) {
        // The operation has failed already, with a more useful error.
        let _ = rustix::fs::unlinkat(dir, name, flags);
    }
}

/// Converts the error for a new object that another process removed or replaced before it was complete.
/// To the client, STALE would say that the directory is gone.
fn not_of_directory(error: FsError) -> FsError {
    match error {
        FsError::Stale => FsError::Later,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8] = b"name";

    /// Creates a file or a FIFO, calls `meanwhile` with the path of the exported directory, and
    /// then completes the new object with `rest`.
    fn complete_after(
        file_type: FileType,
        rest: &SetAttributes,
        meanwhile: impl FnOnce(&Path),
    ) -> (tempfile::TempDir, FsResult<Object>) {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let (who, served) = (Caller::root(), &fs.0);
        let made = served.change(&who, &fs.root(), |dir, _, unstable| match file_type {
            FileType::Regular => {
                let fd = host::create_file(dir, NAME, 0o600)?;
                meanwhile(host.path());
                served.adopt_file(&who, dir, NAME, fd, rest, unstable)
            }
            _ => {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(&**dir, NAME, rustix::fs::FileType::Fifo, mode, 0)?;
                let made = served.open_made(&who, dir, NAME, file_type)?;
                meanwhile(host.path());
                let (node, ours) = made.unwrap();
                assert!(ours);
                served.adopt(&who, dir, NAME, node, Some(rest), unstable)
            }
        });
        (host, made.result)
    }

    /// Attributes that no new object can have.
    fn impossible(file_type: FileType) -> SetAttributes {
        let none = SetAttributes::default();
        match file_type {
            FileType::Regular => SetAttributes {
                size: Some(u64::MAX),
                ..none
            },
            _ => SetAttributes {
                uid: Some(u32::MAX),
                ..none
            },
        }
    }

    const TYPES: [FileType; 2] = [FileType::Regular, FileType::Fifo];

    #[test]
    fn what_cannot_be_completed_is_removed() {
        for file_type in TYPES {
            let (host, made) = complete_after(file_type, &impossible(file_type), |_| {});
            assert!(made.is_err(), "{made:?}");
            assert!(!host.path().join("name").exists());
        }
    }

    /// Executes a CREATE of a name that another process creates just before, and removes just
    /// after, each of the first `times` attempts to create the file.
    fn create_against_another(how: &HowToCreate, times: usize) -> FsResult<Object> {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let mut attempts = 0;
        let create = |dir: &Node, mode| {
            attempts += 1;
            match attempts <= times {
                true => Err(FsError::Exists),
                false => host::create_file(dir, NAME, mode),
            }
        };
        let made =
            fs.0.create_with(&Caller::root(), &fs.root(), NAME, how, create);
        assert_eq!(made.result.is_ok(), host.path().join("name").exists());
        made.result
    }

    #[test]
    fn a_name_that_is_removed_during_a_create_is_created() {
        let set = SetAttributes::default();
        let guarded = HowToCreate::Guarded(set.clone());
        let refused = create_against_another(&guarded, 2);
        assert_eq!(refused.unwrap_err(), FsError::Exists);
        for how in [HowToCreate::Unchecked(set), HowToCreate::Exclusive([7; 8])] {
            let made = create_against_another(&how, 2);
            assert!(made.is_ok(), "{made:?}");
            let never = create_against_another(&how, usize::MAX);
            assert_eq!(never.unwrap_err(), FsError::Later);
        }
    }

    /// A local process may remove a new object before it is opened. NFS3ERR_NOENT would say that
    /// the directory is gone.
    #[test]
    fn a_new_object_that_is_removed_at_once_is_to_be_made_again() {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let set = SetAttributes::default();
        let what = (&set, 0o600, FileType::Fifo);
        let made =
            fs.0.make(&Caller::root(), &fs.root(), NAME, what, |_, _| Ok(()));
        assert_eq!(made.result.unwrap_err(), FsError::Later);
    }

    #[test]
    fn what_cannot_be_completed_is_closed() {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let how = HowToCreate::Guarded(impossible(FileType::Regular));
        let made = fs.create(&Caller::root(), &fs.root(), NAME, &how).result;
        assert!(made.is_err(), "{made:?}");
        assert!(fs.0.tables.is_empty());
    }

    #[test]
    fn what_took_the_name_of_a_new_object_before_that_was_complete_stays() {
        let others = |path: &Path| {
            std::fs::write(path.join("tmp"), "another's").unwrap();
            std::fs::rename(path.join("tmp"), path.join("name")).unwrap();
        };
        for file_type in TYPES {
            let none = SetAttributes::default();
            let (host, made) = complete_after(file_type, &none, others);
            assert_eq!(made.unwrap_err(), FsError::Later);
            assert_eq!(
                std::fs::read(host.path().join("name")).unwrap(),
                b"another's"
            );
            // The new object still exists, with another name.
            let (host, made) = complete_after(file_type, &impossible(file_type), |path| {
                std::fs::rename(path.join("name"), path.join("moved")).unwrap();
                others(path);
            });
            assert!(made.is_err(), "{made:?}");
            assert_eq!(
                std::fs::read(host.path().join("name")).unwrap(),
                b"another's"
            );
        }
    }

    /// Only the creator's descriptor can write to the file, unless the server runs as root.
    #[test]
    fn a_new_file_that_another_client_has_looked_up_stays_writable() {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let (who, served) = (Caller::root(), &fs.0);
        let fd = host::create_file(&*served.root, NAME, 0o444).unwrap();
        let found = fs.lookup(&who, &fs.root(), NAME).unwrap().object.id;
        let (mut unstable, none) = (Unstable::new(), SetAttributes::default());
        let made = served.adopt_file(&who, &served.root, NAME, fd, &none, &mut unstable);
        assert_eq!(made.unwrap().id, found);
        assert!(served.find(&found).unwrap().is_writable());
    }

    #[test]
    fn what_somebody_else_put_in_the_new_ones_place_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let served = DirectoryFs::open(dir.path(), DirectoryOptions::default()).unwrap();
        let (who, path) = (Caller::root(), dir.path().join("name"));
        let set = SetAttributes::default();
        let what = (&set, 0o600, FileType::Fifo);
        let made = served.0.make(&who, &served.root(), b"name", what, |_, _| {
            std::fs::write(&path, "another's").unwrap();
            Ok(())
        });
        assert!(matches!(made.result, Err(FsError::Later)), "{made:?}");
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
    }
}
